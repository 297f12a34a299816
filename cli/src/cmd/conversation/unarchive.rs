//! `jp c unarchive`: takes conversations out of the archive.

use jp_store::ConversationId;
use serde::Serialize;

use super::bulk::with_others;
use crate::change::change;
use crate::ctx::Ctx;
use crate::error::{Error, Exit, Result};
use crate::target::Targets;

/// Take conversations out of the archive.
///
/// Each comes back with whatever is beneath it, and to where it was shown before. Without an id it is chosen from a
/// list, at a terminal.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp c unarchive archived       the one archived last
  jp c unarchive 17528832001
  jp c unarchive +archived      all of them")]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
}

#[derive(Serialize)]
struct Report {
    unarchived: Vec<String>,
}

pub(crate) fn run(ctx: &Ctx<'_>, mut args: Args) -> Result<Exit> {
    let view = ctx.view()?;
    if args.targets.words.is_empty() {
        if !ctx.ui.interactive() {
            return Err(Error::no("no conversation is named")
                .hint("give an id or `archived`, the one archived last; `jp c ls --archived` lists them"));
        }
        // The active conversation is never the one that is meant.
        args.targets.words.push("?archived".into());
    }
    let ids = args.targets.resolve(ctx, &view)?;
    if ids.is_empty() {
        return Err(Error::no("no conversation is archived"));
    }
    let (back, exit) = change(ctx, &view.store, |change| {
        let mut back: Vec<ConversationId> = Vec::new();
        let (_, exit) = change.each(&ids, |id| {
            if back.contains(&id) {
                return Ok(());
            }
            let taken_out = change.patiently(|writer, wait| writer.unarchive(id, wait))?;
            ctx.ui.note(&format!("Took {} out of the archive.", with_others(&view, id, &taken_out)));
            back.extend(taken_out);
            Ok(())
        })?;
        Ok((back, exit))
    })?;
    if ctx.ui.json() {
        let unarchived = back.iter().map(ToString::to_string).collect();
        ctx.ui.object(&Report { unarchived })?;
    }
    Ok(exit)
}
