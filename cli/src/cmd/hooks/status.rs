//! `jp hooks status`: whether the hook is in place.

use super::repository::Found;
use super::{LINE, Record, look};
use crate::ctx::Ctx;
use crate::error::{Exit, Result};
use crate::ui::clean;

/// Tell whether the hook is in place.
///
/// Prints what is where git looks for it: `installed`, `absent`, `outdated` when an earlier version put it there, `edited`,
/// or `foreign` when it is not ours; then the path. The exit code is 0 if what this version installs is there and git runs
/// it, and 1 if not.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp hooks status
  jp hooks status --json | jq -r .state
  jp hooks status --quiet > /dev/null || jp hooks install")]
pub(crate) struct Args {}

pub(crate) fn run(ctx: &Ctx<'_>, Args {}: Args) -> Result<Exit> {
    let (repository, found) = look(ctx)?;
    let record = Record::of(&repository, &found, false);
    let advice = match &found {
        Found::Current { executable: true } => None,
        Found::Current { executable: false } => Some("it is not executable; `jp hooks install` makes it so".to_owned()),
        Found::Nothing => Some("`jp hooks install` puts it in place".to_owned()),
        Found::Former { .. } => Some("`jp hooks install` brings it up to date".to_owned()),
        Found::Edited { .. } => Some("`jp hooks install --force` replaces it".to_owned()),
        Found::Other(what) => Some(format!("it is {what}; to have the same from it, add this line: {LINE}")),
    };
    if ctx.ui.json() {
        ctx.ui.object(&record)?;
    } else {
        ctx.ui.line(&format!("{}\t{}", record.state, clean(&record.path)))?;
    }
    if let Some(advice) = &advice {
        ctx.ui.note(&format!("hint: {advice}"));
    }
    Ok(if advice.is_none() { Exit::DONE } else { Exit::NO })
}
