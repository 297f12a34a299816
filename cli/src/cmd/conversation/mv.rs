//! `jp c mv`: moves conversations in the tree.

use std::ffi::OsString;

use serde::Serialize;

use super::bulk::named;
use crate::change::change;
use crate::ctx::Ctx;
use crate::error::{Error, Exit, Result};
use crate::target::{Targets, one};

/// Move conversations in the tree.
///
/// Hangs each beneath another conversation, or makes it a root, with everything beneath it. Its directory in the
/// workspace moves accordingly; in the store only the link changes.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "\
Examples:
  jp c mv 17528842001 --parent 17528832001
  jp c mv last --parent .       beneath the active conversation
  jp c mv 17528842001 --root    beneath none",
    group = clap::ArgGroup::new("place").required(true)
)]
pub(crate) struct Args {
    /// Ids, directories, or words such as `last`; `help` lists the words.
    #[arg(value_name = "ID", required = true)]
    words: Vec<OsString>,
    /// The conversation they go beneath.
    #[arg(long, value_name = "ID", group = "place")]
    parent: Option<OsString>,
    /// Beneath none.
    #[arg(long, group = "place")]
    root: bool,
}

#[derive(Serialize)]
struct Moved {
    id: String,
    parent: Option<String>,
}

#[derive(Serialize)]
struct Report {
    moved: Vec<Moved>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let ids = Targets { words: args.words }.resolve(ctx, &view)?;
    let parent = args.parent.map(|word| one(ctx, &view, &word)).transpose()?;
    let (moved, exit) = change(ctx, &view.store, |change| {
        change.each(&ids, |id| {
            let guard = change.lock(id)?;
            change.writer.reparent(&guard, parent).map_err(|error| match (error, parent) {
                (error @ jp_store::Error::Refused(_), Some(parent)) if !view.snapshot.is_visible(parent) => {
                    Error::from(error)
                        .hint(format!("`jp c edit {parent} --local=false` shows the parent here"))
                        .hint(format!("`jp c edit {id} --local=true` hides the child"))
                }
                (error, _) => error.into(),
            })?;
            ctx.ui.note(&match parent {
                Some(parent) => format!("{} is beneath {} now.", named(&view, id), named(&view, parent)),
                None => format!("{} is a root now.", named(&view, id)),
            });
            Ok(Moved { id: id.to_string(), parent: parent.map(|parent| parent.to_string()) })
        })
    })?;
    if ctx.ui.json() {
        ctx.ui.object(&Report { moved })?;
    }
    Ok(exit)
}
