//! `jp lock ls`: who holds what.

use jp_store::lock::{LockInfo, State, alive};
use jp_store::time::rfc3339;
use serde::Serialize;

use crate::ctx::Ctx;
use crate::error::{Exit, Result};
use crate::ui::{Column, Table, ago, clean};

/// List who holds which conversation.
///
/// A lock is held as long as its process has it; a file that nobody has is an orphan, which hinders nobody and is
/// removed by the next command that writes. In a pipe the columns are separated by tabs, without a header: id, state,
/// pid, whether that process is alive, session, since, title. A lock borrowed from an ancestor process has `+` and its
/// level after the state.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp lock ls
  jp lock ls --json | jq '.[] | select(.state == \"held\") | .pid'")]
pub(crate) struct Args {}

#[derive(Serialize)]
struct Record {
    id: String,
    title: Option<String>,
    state: &'static str,
    level: u32,
    pid: Option<u32>,
    alive: Option<bool>,
    session: Option<String>,
    since: Option<String>,
    path: String,
}

pub(crate) fn run(ctx: &Ctx<'_>, Args {}: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let locks = view.store.locks().list()?;
    let title = |lock: &LockInfo| {
        let conversation = view.snapshot.get(lock.id);
        conversation.and_then(|it| it.title()).map(ToOwned::to_owned)
    };
    if ctx.ui.json() {
        ctx.ui.object(&locks.iter().map(|lock| record(lock, title(lock))).collect::<Vec<_>>())?;
        return Ok(Exit::DONE);
    }
    let mut table = Table::new(["ID", "State", "PID", "Alive", "Session", "Since", "Title"].map(Column::soft));
    let now = ctx.env.now();
    for lock in &locks {
        let it = record(lock, title(lock));
        let state = if it.level > 0 { format!("{}+{}", it.state, it.level) } else { it.state.to_owned() };
        let since = lock.holder.as_ref().and_then(|holder| holder.since);
        table.row([
            it.id.into(),
            state.into(),
            it.pid.map(|pid| pid.to_string()).unwrap_or_default().into(),
            it.alive.map_or("", |alive| if alive { "Y" } else { "N" }).into(),
            clean(&it.session.unwrap_or_default()).into(),
            since.map(|since| ago(now, since)).unwrap_or_default().into(),
            clean(&it.title.unwrap_or_default()).into(),
        ]);
    }
    ctx.ui.table(&table)?;
    if table.is_empty() {
        ctx.ui.note("No locks.");
    }
    Ok(Exit::DONE)
}

fn record(lock: &LockInfo, title: Option<String>) -> Record {
    let holder = lock.holder.clone().unwrap_or_default();
    let pid = holder.pid.and_then(|pid| i32::try_from(pid).ok());
    Record {
        id: lock.id.to_string(),
        title,
        state: match lock.state {
            State::Held => "held",
            State::Orphan => "orphan",
        },
        level: lock.level,
        pid: holder.pid,
        alive: pid.and_then(alive),
        session: holder.session,
        since: holder.since.map(rfc3339),
        path: lock.path.to_string_lossy().into_owned(),
    }
}
