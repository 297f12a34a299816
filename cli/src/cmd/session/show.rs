//! `jp session show`: what this terminal remembers.

use anstyle::Style;
use jp_store::session::{Entry, Mapping, Standing};
use jp_store::time::rfc3339;
use serde::Serialize;

use super::source;
use crate::ctx::{Ctx, View};
use crate::error::{Error, Exit, Result};
use crate::ui::{ago, clean};

/// Show which conversations this terminal has been on.
///
/// The active one comes first; it is what commands work on when no conversation is named.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp session show
  JP_SESSION=nightly jp session show --json")]
pub(crate) struct Args {}

#[derive(Serialize)]
struct Record {
    source: String,
    value: String,
    path: String,
    active: Option<String>,
    previous: Option<String>,
    history: Vec<Step>,
}

#[derive(Serialize)]
struct Step {
    id: String,
    title: Option<String>,
    activated_at: String,
    standing: &'static str,
}

pub(crate) fn run(ctx: &Ctx<'_>, Args {}: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let Some(session) = view.store.session() else {
        return Err(Error::no("there is no session here: no terminal, and JP_SESSION is not set")
            .hint("set JP_SESSION to a value of your choice"));
    };
    let history = view.mapping.as_ref().map_or(&[][..], Mapping::history);
    let record = Record {
        source: source(session),
        value: session.value.clone(),
        path: view.store.sessions().path(session).to_string_lossy().into_owned(),
        active: view.active().map(|id| id.to_string()),
        previous: view.previous().map(|id| id.to_string()),
        history: history.iter().map(|entry| step(&view, entry)).collect(),
    };
    if ctx.ui.json() {
        ctx.ui.object(&record)?;
        return Ok(Exit::DONE);
    }
    let field = |name: &str, value: &str| {
        let name = ctx.ui.paint(&format!("{name:<9}"), Style::new().dimmed());
        ctx.ui.line(&format!("{name} {}", clean(value)))
    };
    field("Session", &format!("{} ({})", record.value, record.source))?;
    field("File", &record.path)?;
    field("Active", record.active.as_deref().unwrap_or("none"))?;
    for (entry, step) in history.iter().zip(&record.history) {
        let title = step.title.as_deref().unwrap_or("(untitled)");
        let standing = if step.standing == "live" { String::new() } else { format!("  [{}]", step.standing) };
        let ago = ago(ctx.env.now(), entry.activated_at());
        field("History", &format!("{}  {ago:>8}  {title}{standing}", step.id))?;
    }
    Ok(Exit::DONE)
}

fn step(view: &View, entry: &Entry) -> Step {
    let title = view.snapshot.get(entry.id()).and_then(|it| it.title());
    Step {
        id: entry.id().to_string(),
        title: title.map(ToOwned::to_owned),
        activated_at: rfc3339(entry.activated_at()),
        standing: match view.standing(entry.id()) {
            Standing::Live => "live",
            Standing::Archived => "archived",
            Standing::Gone => "gone",
        },
    }
}
