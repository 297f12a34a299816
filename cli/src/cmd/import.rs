//! `jp import`: takes into the store what arrived in the real files.

use jp_store::plan::{Direction, Wanted};

use crate::control::What;
use crate::ctx::Ctx;
use crate::error::{Exit, Result};
use crate::reconcile::{Job, only};
use crate::target::Targets;

/// Take what arrived in the real files into the store.
///
/// For a tree that came by git while nothing was mounted: conversations that only `.jp/conversations` has are copied into
/// the store, edits are taken, and what was moved, renamed or removed there is so from now on; what was removed is
/// hidden in this worktree, and the store keeps it. Of two edits the newer counts and the other is kept. The real files stay
/// as they are. `jp mount` does this by itself, and every command that writes does it for the conversations it writes to.
///
/// stdout has a line for each step. The exit code is 1 when something is left as it is, such as a file with merge
/// markers, and 3 when somebody is working on something.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  git pull && jp import
  jp import --dry-run         what would be taken
  jp import --json | jq '.held'")]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// Change nothing; say what would be done.
    #[arg(long, short = 'n')]
    dry_run: bool,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let (store, ids) = if args.targets.words.is_empty() {
        (ctx.store()?, None)
    } else {
        let view = ctx.view()?;
        let ids = args.targets.resolve(ctx, &view)?;
        (view.store, only(ids))
    };
    let job = Job {
        wanted: Wanted { direction: Direction::In, only: ids, form: None },
        to: None,
        what: if args.dry_run { What::Plan } else { What::Run },
        check: false,
        for_commit: false,
    };
    job.run(ctx, &store)
}
