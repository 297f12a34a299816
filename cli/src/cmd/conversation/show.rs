//! `jp c show`: everything that is known of a conversation.

use anstyle::Style;
use jp_store::ConversationId;
use jp_store::conversation::Conversation;
use jp_store::events::Stream;
use jp_store::meta::Meta;
use jp_store::time::{Timestamp, rfc3339};
use serde::Serialize;

use super::record::{Findings, Record, expires_at, labels};
use crate::ctx::{Ctx, View};
use crate::error::{Exit, Result};
use crate::target::Targets;
use crate::ui::{ago, clean};

/// Show what is known of conversations.
///
/// One block for each. `jp c show help` lists the words that name conversations.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp c show               the active conversation
  jp c show last prev     two of them
  jp c show parent --json for scripts
  jp c show help          the words that name conversations")]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
}

#[derive(Serialize)]
struct Details {
    #[serde(flatten)]
    record: Record,
    turns: Option<usize>,
    last_event_at: Option<String>,
    pinned_at: Option<String>,
    archived_at: Option<String>,
    active: bool,
    held_by: Option<HeldBy>,
    ancestors: Vec<String>,
    children: Vec<String>,
    store_path: Option<String>,
    workspace_path: Option<String>,
    /// Files of it that are hidden in this worktree.
    hidden: Vec<String>,
}

#[derive(Serialize)]
struct HeldBy {
    pid: Option<u32>,
    session: Option<String>,
    since: Option<String>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let ids = args.targets.resolve(ctx, &view)?;
    let found: Vec<&Conversation> = ids.into_iter().map(|id| view.find(id)).collect::<Result<_>>()?;
    let mut findings = Findings::of(&view);
    findings.count(&view, &found);
    let details: Vec<Details> = found.iter().map(|it| details(&view, &findings, it)).collect();
    if ctx.ui.json() {
        ctx.ui.object(&details)?;
        return Ok(Exit::DONE);
    }
    for (index, (it, details)) in found.iter().zip(&details).enumerate() {
        if index > 0 {
            ctx.ui.line("")?;
        }
        print(ctx, &view, it, details, findings.problems(it.id))?;
    }
    Ok(Exit::DONE)
}

fn details(view: &View, findings: &Findings, it: &Conversation) -> Details {
    let tree = view.snapshot.tree(it.partition);
    let words = |ids: &[ConversationId]| ids.iter().map(ToString::to_string).collect();
    let stream = view.store.stream(&view.snapshot, it).ok().map(|stream| stream.parse());
    let meta = it.meta.as_ref();
    let when = |at: Option<Timestamp>| at.map(rfc3339);
    let record = Record::of(view, findings, it, None);
    let holder = if record.locked { view.store.locks().holder(it.id) } else { None };
    Details {
        turns: record.events.and(stream.as_ref()).map(|stream| stream.turns().len()),
        last_event_at: when(stream.as_ref().and_then(last_event_at)),
        pinned_at: when(meta.and_then(Meta::pinned_at)),
        archived_at: when(meta.and_then(Meta::archived_at)),
        active: view.active() == Some(it.id),
        held_by: holder.map(|it| HeldBy { pid: it.pid, session: it.session, since: it.since.map(rfc3339) }),
        ancestors: words(&tree.ancestors(it.id).collect::<Vec<_>>()),
        children: words(tree.children(it.id)),
        store_path: it.store.as_ref().map(|place| place.dir.to_string_lossy().into_owned()),
        workspace_path: view.workspace_path(it).map(|path| path.to_string_lossy().into_owned()),
        // What cannot be looked at is named by `jp doctor`.
        hidden: view.store.hidden_files(&view.snapshot, it.id).unwrap_or_default(),
        record,
    }
}

fn last_event_at(stream: &Stream) -> Option<Timestamp> {
    let last = stream.elements().last()?.get("timestamp")?.as_str()?;
    jp_store::time::parse(last)
}

fn print(ctx: &Ctx<'_>, view: &View, it: &Conversation, details: &Details, problems: &[String]) -> Result<()> {
    let now = ctx.env.now();
    let when = |at: Timestamp| format!("{} ({})", at.strftime("%Y-%m-%d %H:%M:%S UTC"), ago(now, at));
    let field = |name: &str, value: Option<String>| match value {
        Some(value) if !value.is_empty() => {
            let name = ctx.ui.paint(&format!("{name:<11}"), Style::new().dimmed());
            ctx.ui.line(&format!("{name} {}", clean(&value)))
        }
        _ => Ok(()),
    };
    let parse = |text: &Option<String>| text.as_deref().and_then(jp_store::time::parse).map(when);
    let named = |id: &String| {
        let title = id.parse().ok().and_then(|id| view.snapshot.get(id)).and_then(Conversation::title);
        title.map_or_else(|| id.clone(), |title| format!("{id} {title}"))
    };
    field("ID", Some(details.record.id.clone()))?;
    field("Title", it.title().map(ToOwned::to_owned))?;
    field("Active", details.active.then(|| "in this terminal".to_owned()))?;
    field("Created", Some(when(it.id.timestamp())))?;
    field("Activated", Some(when(it.last_activated_at())))?;
    field("Last event", parse(&details.last_event_at))?;
    field("Turns", details.turns.map(|turns| turns.to_string()))?;
    field("Events", details.record.events.map(|events| events.to_string()))?;
    field("Pinned", parse(&details.pinned_at))?;
    field("Expires", expires_at(it).map(when))?;
    field("Archived", details.record.archived.then(|| parse(&details.archived_at).unwrap_or("yes".to_owned())))?;
    field("Labels", Some(labels(it)))?;
    field("Origin", it.origin.clone())?;
    field("Presence", Some(details.record.presence.to_owned()))?;
    field("Locked", details.record.locked.then(|| held(details.held_by.as_ref())))?;
    field("Parent", details.record.parent.as_ref().map(named))?;
    for child in &details.children {
        field("Child", Some(named(child)))?;
    }
    field("Workspace", details.workspace_path.clone())?;
    field("Store", details.store_path.clone())?;
    let hidden = Some(details.hidden.join(", ")).filter(|hidden| !hidden.is_empty());
    field("Hidden", hidden.map(|files| format!("{files} (`jp c unhide {}` shows it again)", details.record.id)))?;
    for problem in problems {
        field("Problem", Some(problem.clone()))?;
    }
    Ok(())
}

fn held(holder: Option<&HeldBy>) -> String {
    let Some(holder) = holder else {
        return "yes".to_owned();
    };
    let pid = holder.pid.map(|pid| format!("by pid {pid}"));
    let session = holder.session.as_ref().map(|session| format!("session {session}"));
    let since = holder.since.as_ref().map(|since| format!("since {since}"));
    [pid, session, since].into_iter().flatten().collect::<Vec<_>>().join(", ")
}
