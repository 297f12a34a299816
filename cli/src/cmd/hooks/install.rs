//! `jp hooks install`: puts the hook in place.

use super::repository::{Found, Repository};
use super::{Record, left_alone, look};
use crate::ctx::Ctx;
use crate::error::{Error, Exit, Result};

/// Put the hook in place.
///
/// Goes where git looks for hooks, wherever that is configured to be. A hook of somebody else's is never replaced; then
/// the line is shown that does the same from within it. One of ours that was edited is replaced only with `--force`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp hooks install
  jp hooks install --force        even if ours was edited
  git commit --no-verify          a commit without it")]
pub(crate) struct Args {
    /// Replace ours even if it was edited.
    #[arg(long, short)]
    force: bool,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let (repository, found) = look(ctx)?;
    refuse_part(&repository)?;
    let path = repository.hook();
    let path = path.display();
    let told = match &found {
        Found::Current { executable: true } => None,
        Found::Current { executable: false } => Some(format!("Made {path} executable, which it was not any more.")),
        Found::Nothing => Some(format!("Installed {path}.")),
        Found::Former { .. } => Some(format!("Replaced {path}, which was of an earlier version.")),
        Found::Edited { .. } if args.force => Some(format!("Replaced {path}, which had been edited.")),
        Found::Edited { .. } => {
            return Err(left_alone(&repository, &found).hint("`jp hooks install --force` replaces it"));
        }
        Found::Other(_) => return Err(left_alone(&repository, &found)),
    };
    match &told {
        Some(told) => {
            repository.install(&found)?;
            ctx.ui.note(told);
        }
        None => ctx.ui.note(&format!("{path} is there already.")),
    }
    if ctx.ui.json() {
        ctx.ui.object(&Record::of(&repository, &repository.look()?, told.is_some()))?;
    }
    Ok(Exit::DONE)
}

/// The hook looks for `.jp` where the worktree begins. One that would never find any is not installed.
fn refuse_part(repository: &Repository) -> Result<()> {
    let Repository { project, top, .. } = repository;
    if project == top {
        return Ok(());
    }
    let (project, top) = (project.display(), top.display());
    Err(Error::no(format!(
        "{project} is only a part of the worktree in {top}, and the hook looks for `.jp` at its top"
    ))
    .hint(format!("a hook of your own can do it: jp export --for-commit --workspace '{project}' || exit")))
}
