//! `jp c archive`: puts conversations away.

use jp_store::ConversationId;
use jp_store::conversation::Conversation;
use jp_store::layout::Partition;
use serde::Serialize;

use super::bulk::{Consent, Range, chosen, with_others};
use crate::change::change;
use crate::ctx::{Ctx, View};
use crate::error::{Exit, Result};
use crate::target::{Targets, is_pinned};
use crate::time_arg::TimeArg;

/// Put conversations away.
///
/// An archived conversation is in no listing until `jp c unarchive` takes it out again; nothing is lost. Whatever is
/// beneath it comes along. Asks first about a pinned conversation, about this terminal's active one, and about several
/// that are not named one by one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp c archive 17528832001
  jp c archive --inactive-since 30d    all that have rested for a month
  jp c archive --until 2025-01-01 -y   all created before, without asking")]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    range: Range,
    /// Only those last worked on before this time: `30d` ago, a date, a conversation's id.
    #[arg(long, value_name = "TIME")]
    inactive_since: Option<TimeArg>,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Serialize)]
struct Report {
    archived: Vec<String>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let since = args.inactive_since.map(|since| since.at(ctx.env.now()));
    let rests = |it: &Conversation| since.is_none_or(|since| it.last_activated_at() < since);
    let filter: Option<&dyn Fn(&Conversation) -> bool> = if since.is_some() { Some(&rests) } else { None };
    let mut ids = chosen(ctx, &view, &args.targets, &args.range, filter)?;
    let named_singly = !args.targets.words.is_empty()
        && !args.targets.words.iter().any(|word| word.as_encoded_bytes().starts_with(b"+"));
    let remark = match delicate(&view, &ids) {
        Some((_, why)) if ids.len() == 1 => format!(", which is {why}"),
        Some((id, why)) => format!(", among them {id}, which is {why}"),
        None => String::new(),
    };
    if args.consent.confirm || !remark.is_empty() || (ids.len() > 1 && !named_singly) {
        args.consent.ask(ctx, &view, "archive", &ids, &remark)?;
    }
    // The topmost first: what is beneath it comes along and needs no turn of its own.
    ids.sort_by_key(|&id| view.snapshot.tree(Partition::Live).ancestors(id).count());
    let (archived, exit) = change(ctx, &view.store, |change| {
        let mut archived: Vec<ConversationId> = Vec::new();
        let (_, exit) = change.each(&ids, |id| {
            if archived.contains(&id) {
                return Ok(());
            }
            let put_away = change.patiently(|writer, wait| writer.archive(id, wait))?;
            ctx.ui.note(&format!("Archived {}.", with_others(&view, id, &put_away)));
            archived.extend(put_away);
            Ok(())
        })?;
        Ok((archived, exit))
    })?;
    if ctx.ui.json() {
        let archived = archived.iter().map(ToString::to_string).collect();
        ctx.ui.object(&Report { archived })?;
    }
    Ok(exit)
}

/// The first conversation that one does not put away by mistake, and why.
fn delicate(view: &View, ids: &[ConversationId]) -> Option<(ConversationId, &'static str)> {
    let active = view.active();
    ids.iter().find_map(|&id| {
        if Some(id) == active {
            return Some((id, "active in this terminal"));
        }
        let pinned = view.snapshot.get(id).is_some_and(is_pinned);
        pinned.then_some((id, "pinned"))
    })
}
