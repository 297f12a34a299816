//! `jp lock clear`: removes lock files that nobody has.

use crate::ctx::Ctx;
use crate::error::{Exit, Result};

/// Remove lock files that nobody holds.
///
/// Prints the ids they were for. A lock that is held is never touched, whoever wrote the file.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp lock clear")]
pub(crate) struct Args {}

pub(crate) fn run(ctx: &Ctx<'_>, Args {}: Args) -> Result<Exit> {
    let store = ctx.store()?;
    let hold = ctx.signals.hold();
    // Whatever else has the name of a lock file is not one of ours to remove.
    for error in store.locks().in_the_way()? {
        ctx.ui.warn(&format!("{error}; left alone"));
    }
    let cleared: Vec<String> = store.locks().clear_orphans()?.iter().map(ToString::to_string).collect();
    drop(hold);
    if ctx.ui.json() {
        ctx.ui.object(&cleared)?;
        return Ok(Exit::DONE);
    }
    for id in &cleared {
        ctx.ui.line(id)?;
    }
    if cleared.is_empty() {
        ctx.ui.note("No lock file was left behind.");
    }
    Ok(Exit::DONE)
}
