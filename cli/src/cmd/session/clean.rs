//! `jp session clean`: forgets terminals that are gone.

use std::path::{Path, PathBuf};

use jp_store::error::Context as _;
use jp_store::session::World;
use serde::Serialize;

use super::is_there;
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
    let view = ctx.view()?;
    let world =
        World { alive: &is_there, on_disk: &|id| view.snapshot.get(id).is_some(), locked: &|id| view.is_locked(id) };
    let hold = ctx.signals.hold();
    let cleaned = view.store.sessions().clean(&world, &|path, bytes| replace(path, bytes, ctx.env.pid))?;
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

/// Readers see the old bytes or the new ones. The name in between is none that anybody takes for a session's.
fn replace(path: &Path, bytes: &[u8], pid: u32) -> jp_store::Result<()> {
    let between = path.with_extension(format!("json.{pid}.tmp"));
    std::fs::write(&between, bytes).context("write", &between)?;
    std::fs::rename(&between, path).context("rename", &between)
}
