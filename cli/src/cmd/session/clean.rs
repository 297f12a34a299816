//! `jp session clean`: forgets terminals that are gone.

use std::path::PathBuf;

use serde::Serialize;

use crate::ctx::Ctx;
use crate::error::{Exit, Result};

/// Remove the files of sessions that are gone.
///
/// A terminal that is gone loses its file; the others forget conversations that are gone. Prints the files removed. What
/// cannot be read is left alone.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp session clean")]
pub(crate) struct Args {}

#[derive(Serialize)]
struct Record {
    deleted: Vec<String>,
    pruned: Vec<String>,
    migrated: Vec<String>,
}

pub(crate) fn run(ctx: &Ctx<'_>, Args {}: Args) -> Result<Exit> {
    let hold = ctx.signals.hold();
    let (writer, _) = ctx.store()?.writer()?;
    let cleaned = writer.clean_sessions()?;
    drop(hold);
    for (path, error) in &cleaned.failed {
        ctx.ui.warn(&format!("{} is left alone: {error}", path.display()));
    }
    let words = |paths: Vec<PathBuf>| paths.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let record = Record {
        deleted: words(cleaned.deleted),
        pruned: words(cleaned.pruned.into_iter().map(|(path, _)| path).collect()),
        migrated: words(cleaned.migrated.into_iter().map(|(_, path)| path).collect()),
    };
    if ctx.ui.json() {
        ctx.ui.object(&record)?;
        return Ok(Exit::DONE);
    }
    for path in &record.deleted {
        ctx.ui.line(path)?;
    }
    let tidied = record.pruned.len() + record.migrated.len();
    match (record.deleted.len(), tidied) {
        (0, 0) => ctx.ui.note("Nothing to clean."),
        (_, 0) => {}
        (_, tidied) => ctx.ui.note(&format!("Tidied {tidied} more.")),
    }
    Ok(Exit::DONE)
}
