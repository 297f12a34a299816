//! `jp session ls`: all terminals that have been on something.

use jp_store::session::{Entry, Session};
use jp_store::time::rfc3339;
use serde::Serialize;

use super::source;
use crate::ctx::Ctx;
use crate::error::{Exit, Result};
use crate::ui::{Column, Table, ago, clean};

/// List all sessions.
///
/// In a pipe the columns are separated by tabs, without a header: mark (`>` is this terminal), value, source, whether
/// the terminal is there (`Y`, `N`, or nothing where that cannot be told), the active conversation, when it was turned
/// to, its title.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp session ls
  jp session ls --json | jq '.[] | select(.alive == false) | .path'")]
pub(crate) struct Args {}

#[derive(Serialize)]
struct Record {
    source: String,
    value: String,
    path: String,
    current: bool,
    alive: Option<bool>,
    active: Option<String>,
    last_used_at: Option<String>,
    conversations: usize,
}

pub(crate) fn run(ctx: &Ctx<'_>, Args {}: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let current = |session: &Session| view.store.session() == Some(session);
    let mut table = Table::new(["", "Session", "Source", "Alive", "Active", "Since", "Title"].map(Column::soft));
    let mut records = Vec::new();
    for (path, mapping) in view.store.sessions().list()? {
        let mapping = match mapping {
            Ok(mapping) => mapping,
            Err(error) => {
                ctx.ui.warn(&error.to_string());
                continue;
            }
        };
        let session = mapping.session();
        let active = mapping.active(&|id| view.standing(id));
        let used = mapping.history().first().map(Entry::activated_at);
        let title = active.and_then(|id| view.snapshot.get(id)).and_then(|it| it.title());
        let alive = session.is_there();
        table.row([
            if current(session) { ">" } else { "" }.into(),
            clean(&session.value).into(),
            source(session).into(),
            alive.map_or("", |alive| if alive { "Y" } else { "N" }).into(),
            active.map(|id| id.to_string()).unwrap_or_default().into(),
            used.map(|at| ago(ctx.env.now(), at)).unwrap_or_default().into(),
            clean(title.unwrap_or_default()).into(),
        ]);
        records.push(Record {
            source: source(session),
            value: session.value.clone(),
            path: path.to_string_lossy().into_owned(),
            current: current(session),
            alive,
            active: active.map(|id| id.to_string()),
            last_used_at: used.map(rfc3339),
            conversations: mapping.history().len(),
        });
    }
    if ctx.ui.json() {
        ctx.ui.object(&records)?;
        return Ok(Exit::DONE);
    }
    ctx.ui.table(&table)?;
    if table.is_empty() {
        ctx.ui.note("No sessions.");
    }
    Ok(Exit::DONE)
}
