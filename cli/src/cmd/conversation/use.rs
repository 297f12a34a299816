//! `jp c use`: chooses the terminal's active conversation.

use std::ffi::OsString;

use jp_store::layout::Partition;
use jp_store::lock::Wait;
use jp_store::{ConversationId, Error as StoreError};
use serde::Serialize;

use super::bulk::{Range, named};
use super::grep::mentioning;
use crate::change::{Change, change, session, whole};
use crate::ctx::{Ctx, View};
use crate::error::{Error, Exit, Result};
use crate::target::{Group, Target, among, one};

/// Choose this terminal's active conversation.
///
/// Commands that are given no conversation work on the active one. Every terminal has its own. Without an argument it is
/// the one that was active before, as `cd -` does it. The conversation need not be free: another process may be working
/// on it.
///
/// `--grep`, `--from` and `--until` describe it instead: if one conversation is like that it is chosen, of several you
/// choose one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp c use 17528832001
  jp c use               back to the previous one
  jp c use ?             choose from a list
  jp c use archived      the one archived last, out of the archive
  jp c use --grep flaky  the one where that was said, or a choice of them")]
pub(crate) struct Args {
    /// An id, a directory, or a word such as `last`; `help` lists the words.
    #[arg(value_name = "ID", conflicts_with_all = ["grep", "from", "until"])]
    word: Option<OsString>,
    /// Only those with this text in them, as `jp c grep` finds it.
    #[arg(long, value_name = "PATTERN")]
    grep: Option<String>,
    #[command(flatten)]
    range: Range,
}

#[derive(Serialize)]
struct Report {
    id: String,
    session: String,
    unarchived: bool,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let session = session(ctx)?;
    let view = ctx.view()?;
    let described = args.grep.is_some() || args.range.is_given();
    let word = match args.word {
        Some(word) => word,
        None if described => OsString::new(),
        None if view.previous().is_some() => "previous".into(),
        None if ctx.ui.interactive() => "?".into(),
        None => {
            return Err(Error::no("no conversation is named, and there is no previous one")
                .hint("give an id, or a word such as `last`; `jp c show help` lists the words"));
        }
    };
    let id = match described {
        true => among(ctx, &view, &like(ctx, &view, args.grep, &args.range)?)?,
        false => one(ctx, &view, &word)?,
    };
    let archived = view.find(id)?.partition == Partition::Archived;
    if archived && !asks_for_archived(&word) {
        return Err(Error::no(format!("{} is archived", named(&view, id)))
            .hint(format!("`jp c unarchive {id}` takes it out, then it can be used")));
    }
    change(ctx, &view.store, |change| {
        if archived {
            let back = change.patiently(|writer, wait| writer.unarchive(id, wait))?;
            for id in back {
                ctx.ui.note(&format!("Took {} out of the archive.", named(&view, id)));
            }
        }
        change.writer.activate(session, id)?;
        touch(ctx, change, &view, id);
        Ok(())
    })?;
    ctx.ui.note(&format!("This terminal is on {} now.", named(&view, id)));
    if ctx.ui.json() {
        ctx.ui.object(&Report { id: id.to_string(), session: session.key(), unarchived: archived })?;
    }
    Ok(Exit::DONE)
}

/// The live conversations that are in the range and have the text in them, the one worked on last first.
fn like(ctx: &Ctx<'_>, view: &View, grep: Option<String>, range: &Range) -> Result<Vec<ConversationId>> {
    let mut found: Vec<_> = view.snapshot.partition(Partition::Live).filter(|it| range.contains(ctx, it)).collect();
    if let Some(pattern) = grep {
        found = mentioning(ctx, view, found, pattern)?;
    }
    found.sort_by_key(|it| std::cmp::Reverse((it.last_activated_at(), it.id)));
    Ok(found.into_iter().map(|it| it.id).collect())
}

fn asks_for_archived(word: &OsString) -> bool {
    matches!(Target::parse(word), Target::Archived | Target::Pick(Group::Archived))
}

/// Notes in the conversation that somebody turned to it. Whoever holds it has turned to it as well, so nothing is missed
/// when the lock is taken; and the choice stands whatever happens here.
fn touch(ctx: &Ctx<'_>, change: &Change<'_>, view: &View, id: ConversationId) {
    let now = view.store.now();
    let touched = change
        .writer
        .lock(id, &Wait::none())
        .and_then(|guard| change.writer.edit(&guard, |meta| meta.set_last_activated_at(now)));
    match touched {
        Ok(()) | Err(StoreError::Locked { .. }) => {}
        Err(error) => ctx.ui.warn(&format!("its time of activation is not updated: {}", whole(&error))),
    }
}
