//! `jp c unhide`: shows again what is hidden in this worktree.

use std::ffi::OsString;

use jp_store::writer::Unhidden;
use serde::Serialize;

use super::bulk::named;
use crate::change::{can_be_local, change, count};
use crate::ctx::{Ctx, View};
use crate::error::{Error, Exit, Result};
use crate::target;
use crate::ui::clean;

/// Show a conversation or its files in this worktree again.
///
/// Removing a file or a directory in a mount hides it in this worktree; the store keeps it. Without FILE this shows the
/// conversation, with everything above it and what was hidden with it, and all of its hidden files. It stops if something above
/// it is private. With FILE it shows these files again. `jp c show ID` lists what is hidden.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp c unhide 17528832001                  the conversation and all of its files
  jp c unhide 17528832001 metadata.json    one file
  jp c unhide last --json")]
pub(crate) struct Args {
    /// The conversation: an id, a directory, or a word such as `last`.
    #[arg(value_name = "ID")]
    id: OsString,
    /// Hidden files of it, by their paths in its directory; without any all of them.
    #[arg(value_name = "FILE")]
    files: Vec<String>,
}

#[derive(Serialize)]
struct Report {
    id: String,
    /// Whether anything is different now.
    changed: bool,
    /// Whether the conversation itself was hidden.
    shown: bool,
    files: Vec<String>,
    ancestors: Vec<String>,
    descendants: Vec<String>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let view = ctx.view()?;
    can_be_local(&view.store)?;
    let id = target::one(ctx, &view, &args.id)?;
    let files: Vec<String> = args.files.iter().map(|file| tidy(file)).collect();
    if !files.is_empty() && !view.snapshot.is_shown(id) {
        return Err(Error::no(format!("{} is hidden here as a whole", named(&view, id)))
            .hint(format!("`jp c unhide {id}` shows it with its files")));
    }
    let unhidden = change(ctx, &view.store, |change| {
        change.patiently(|writer, wait| writer.unhide(id, &files, wait)).map_err(|error| {
            if files.is_empty() { error } else { error.hint(format!("`jp c show {id}` lists what is hidden")) }
        })
    })?;
    tell(ctx, &view, id, &unhidden);
    if ctx.ui.json() {
        let names = |ids: &[jp_store::ConversationId]| ids.iter().map(ToString::to_string).collect();
        let Unhidden { toggled, files } = unhidden;
        ctx.ui.object(&Report {
            id: id.to_string(),
            changed: toggled.changed || !files.is_empty() || !toggled.ancestors.is_empty(),
            shown: toggled.changed,
            files,
            ancestors: names(&toggled.ancestors),
            descendants: names(&toggled.descendants),
        })?;
    }
    Ok(Exit::DONE)
}

/// A path as the ledger has it: without `./` before and `/` after it.
fn tidy(file: &str) -> String {
    let mut file = file;
    while let Some(rest) = file.strip_prefix("./") {
        file = rest;
    }
    file.trim_end_matches('/').to_owned()
}

fn tell(ctx: &Ctx<'_>, view: &View, id: jp_store::ConversationId, unhidden: &Unhidden) {
    let Unhidden { toggled, files } = unhidden;
    let mut parts = Vec::new();
    let others = [(&toggled.ancestors, "above it"), (&toggled.descendants, "beneath it")];
    let others = others.into_iter().filter(|(ids, _)| !ids.is_empty());
    let others: Vec<_> = others.map(|(ids, place)| format!("{} {place}", count(ids.len(), "conversation"))).collect();
    let others = others.join(" and ");
    match (toggled.changed, others.is_empty()) {
        (true, true) => parts.push("is shown here now".to_owned()),
        (true, false) => parts.push(format!("is shown here now, with {others}")),
        (false, false) => parts.push(format!("was shown here already, and now {others} too")),
        (false, true) => {}
    }
    if !files.is_empty() {
        let listed: Vec<_> = files.iter().map(|file| clean(file)).collect();
        parts.push(format!("shows {} again", listed.join(", ")));
    }
    let text = if parts.is_empty() { "hides nothing here".to_owned() } else { parts.join(", and ") };
    ctx.ui.note(&format!("{} {text}.", named(view, id)));
}
