//! `jp hooks uninstall`: takes the hook away.

use super::repository::Found;
use super::{Record, left_alone, look};
use crate::ctx::Ctx;
use crate::error::{Exit, Result};

/// Take the hook away.
///
/// Removes exactly what `jp hooks install` put there. A hook that is not ours stays, and so does one that was edited.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp hooks uninstall")]
pub(crate) struct Args {}

pub(crate) fn run(ctx: &Ctx<'_>, Args {}: Args) -> Result<Exit> {
    let (repository, found) = look(ctx)?;
    let path = repository.hook();
    let changed = match &found {
        Found::Current { .. } | Found::Former { .. } => {
            repository.uninstall()?;
            ctx.ui.note(&format!("Removed {}.", path.display()));
            true
        }
        Found::Nothing => {
            ctx.ui.note(&format!("There is no {}.", path.display()));
            false
        }
        Found::Edited { .. } => {
            let told = left_alone(&repository, &found);
            return Err(told.hint("remove the file by hand if nothing in it is needed any more"));
        }
        Found::Other(_) => return Err(left_alone(&repository, &found)),
    };
    if ctx.ui.json() {
        ctx.ui.object(&Record::of(&repository, &repository.look()?, changed))?;
    }
    Ok(Exit::DONE)
}
