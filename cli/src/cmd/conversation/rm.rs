//! `jp c rm`: removes conversations for good.

use jp_store::ConversationId;
use jp_store::writer::Strategy;
use serde::Serialize;

use super::bulk::{Consent, Range, chosen, with_others};
use crate::change::{change, count};
use crate::ctx::{Ctx, View};
use crate::error::{Exit, Result};
use crate::target::Targets;

/// Remove conversations for good.
///
/// They go from the store and from every worktree's view at once, and there is no way back; `jp c archive` puts away
/// instead. A conversation that has children is not removed unless you say what becomes of them. Asks first; in a pipe
/// it needs `--yes`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp c rm last                       asks, then removes the one worked on last
  jp c rm 17528832001 --cascade      with everything beneath it
  jp c rm 17528832001 --promote -y   its children move up, nothing is asked
  jp c rm --until 2025-01-01         everything created before this year")]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    range: Range,
    /// Remove the children too, with everything beneath them.
    #[arg(long, conflicts_with = "promote")]
    cascade: bool,
    /// Hang the children beneath the parent of what is removed.
    #[arg(long)]
    promote: bool,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Serialize)]
struct Report {
    removed: Vec<String>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let mut ids = chosen(ctx, &view, &args.targets, &args.range, None)?;
    let strategy = match (args.cascade, args.promote) {
        (true, _) => Strategy::Cascade,
        (false, true) => Strategy::Promote,
        (false, false) => Strategy::Refuse,
    };
    let below = beneath(&view, &ids);
    let remark = match strategy {
        Strategy::Cascade if below > 0 => format!(" and {} beneath", count(below, "conversation")),
        Strategy::Cascade | Strategy::Promote | Strategy::Refuse => String::new(),
    };
    args.consent.ask(ctx, &view, "remove", &ids, &remark)?;
    // The deepest first, so that no parent is refused for the sake of a child that goes as well.
    ids.sort_by_key(|&id| std::cmp::Reverse(depth(&view, id)));
    let (removed, exit) = change(ctx, &view.store, |change| {
        let mut removed: Vec<ConversationId> = Vec::new();
        let (_, exit) = change.each(&ids, |id| {
            let gone = change.patiently(|writer, wait| writer.remove(id, strategy, wait))?;
            ctx.ui.note(&format!("Removed {}.", with_others(&view, id, &gone)));
            removed.extend(gone);
            Ok(())
        })?;
        Ok((removed, exit))
    })?;
    if ctx.ui.json() {
        let removed = removed.iter().map(ToString::to_string).collect();
        ctx.ui.object(&Report { removed })?;
    }
    Ok(exit)
}

fn depth(view: &View, id: ConversationId) -> usize {
    let partition = view.snapshot.get(id).map(|it| it.partition);
    partition.map_or(0, |partition| view.snapshot.tree(partition).ancestors(id).count())
}

/// How many conversations are beneath these and not among them.
fn beneath(view: &View, ids: &[ConversationId]) -> usize {
    let mut below: Vec<ConversationId> = Vec::new();
    for &id in ids {
        if let Some(found) = view.snapshot.get(id) {
            below.extend(view.snapshot.tree(found.partition).descendants(id));
        }
    }
    below.retain(|id| !ids.contains(id));
    below.sort();
    below.dedup();
    below.len()
}
