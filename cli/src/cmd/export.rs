//! `jp export`: makes the real files what the store has.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use jp_store::ConversationId;
use jp_store::beneath::trusted;
use jp_store::mountinfo;
use jp_store::plan::{Direction, Form, Nesting, Wanted};
use jp_store::store::Store;

use crate::control::What;
use crate::ctx::{Ctx, View};
use crate::error::{Error, Exit, Result};
use crate::reconcile::{Job, only};
use crate::target::Targets;

/// Write what this worktree shows as real files, for git.
///
/// The files in `.jp/conversations` become what the store has: children beneath their parents, only what differs is
/// written, each file whole or not at all. What was edited in them by hand reaches the store first; of two edits the
/// newer counts and the other is kept. A copy that is not meant to be here goes only if it holds nothing of its own. What
/// cannot be taken in, such as a file with merge markers, stays as it is and is named.
///
/// stdout has a line for each step. The exit code is 1 when something is left as it is, and 3 when somebody is working
/// on something; with `--check` it is 1 when there is anything to do, with `--for-commit` only when a file has merge
/// markers. Beneath a mount the process behind it does the
/// work. Ctrl-C stops between two conversations; the next export goes on from there.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp export
  jp export --dry-run              what would be done
  jp export --check && git commit  only when nothing is behind
  jp export last --transcripts     one conversation, from now on with its text for people
  jp export --to ~/backup          the same tree, somewhere else")]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// Write to this directory instead; the worktree is left alone.
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Change nothing; say what would be done, with exit code 1 if that is anything.
    #[arg(long)]
    check: bool,
    /// Change nothing; say what would be done.
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Exit with 0 when something is held, unless it is a file with merge markers, and print `hold ID` for each conversation
    /// that is. For a git hook.
    #[arg(long, conflicts_with_all = ["check", "dry_run", "to"])]
    for_commit: bool,
    /// From now on, also write each conversation as text for people, or not.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    transcripts: Option<bool>,
    /// From now on, put children beneath their parents (`nested`) or beside them (`flat`).
    #[arg(long, value_enum, value_name = "LAYOUT", hide_possible_values = true)]
    layout: Option<Layout>,
}

/// Where children lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Layout {
    /// Beneath their parents.
    Nested,
    /// Beside them.
    Flat,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let (store, ids) = if args.targets.words.is_empty() {
        (ctx.store()?, None)
    } else {
        let view = ctx.view()?;
        let ids = args.targets.resolve(ctx, &view)?;
        ids.iter().try_for_each(|&id| check_shown(&view, id))?;
        (view.store, only(ids))
    };
    let job = Job {
        wanted: Wanted { direction: Direction::Out, only: ids, form: args.form(&store)? },
        to: args.place(ctx, &store)?,
        what: if args.check || args.dry_run { What::Plan } else { What::Run },
        check: args.check,
        for_commit: args.for_commit,
    };
    job.run(ctx, &store)
}

impl Args {
    /// What is not said about the form stays as it is.
    fn form(&self, store: &Store) -> Result<Option<Form>> {
        if self.transcripts.is_none() && self.layout.is_none() {
            return Ok(None);
        }
        let mut form = store.form()?;
        form.transcripts = self.transcripts.unwrap_or(form.transcripts);
        form.nesting = match self.layout {
            Some(Layout::Nested) => Nesting::Nested,
            Some(Layout::Flat) => Nesting::Flat,
            None => form.nesting,
        };
        Ok(Some(form))
    }

    /// The other directory. Within our own roots it would be taken for something else.
    fn place(&self, ctx: &Ctx<'_>, store: &Store) -> Result<Option<PathBuf>> {
        let Some(typed) = &self.to else { return Ok(None) };
        let own = [&store.layout().storage, &store.layout().store.dir].map(|dir| mountinfo::place(dir));
        let check = |place: &Path| match own.iter().find(|own| place.starts_with(own)) {
            Some(own) => Err(Error::usage(format!("{} is within {}", place.display(), own.display()))
                .hint("`jp export` alone writes to the worktree; `--to` is for a directory outside of it")),
            None => Ok(()),
        };
        let typed = ctx.cwd()?.join(typed);
        // First of all: a mount whose process does not answer is not looked into.
        check(&typed)?;
        let place = trusted::canonical_or_new(&typed).map_err(|error| Error::io("look at", &typed, &error))?;
        check(&place)?;
        Ok(Some(place))
    }
}

fn check_shown(view: &View, id: ConversationId) -> Result<()> {
    let here = view.find(id)?.work.is_some() || view.snapshot.is_visible(id);
    if here {
        return Ok(());
    }
    Err(Error::no(format!("{id} is local here, so it has no real files"))
        .hint(format!("`jp c edit --local=false {id}` shows it in this worktree")))
}
