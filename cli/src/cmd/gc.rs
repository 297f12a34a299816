//! `jp gc`: removes what nobody needs any more.

use std::path::PathBuf;
use std::time::Duration;

use jp_store::ConversationId;
use jp_store::time::Timestamp;
use jp_store::writer::expired;
use serde::Serialize;

use super::leftovers::{Sessions, orphans};
use crate::change::{change, whole};
use crate::ctx::Ctx;
use crate::error::{Exit, Result};

/// Remove what nobody needs any more.
///
/// Conversations whose time is up, unless they are locked or some terminal is on them; lock files that nobody holds; the
/// files of sessions whose terminal is gone. The trash and the losing sides of conflicts are somebody's text: they go
/// only when asked for, and only when they are old enough.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp gc --dry-run           what would go
  jp gc
  jp gc --trash             also what has been in the trash for 30 days
  jp gc --conflicts=90d     also losers of conflicts, kept for 90 days")]
pub(crate) struct Args {
    /// Say what would be removed, and remove nothing.
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Also what has been in the trash for so long.
    #[arg(long, value_name = "AGE", num_args = 0..=1, require_equals = true, default_missing_value = "30d", value_parser = age)]
    trash: Option<Duration>,
    /// Also the losing sides of conflicts, if kept for so long.
    #[arg(long, value_name = "AGE", num_args = 0..=1, require_equals = true, default_missing_value = "30d", value_parser = age)]
    conflicts: Option<Duration>,
}

#[derive(Default, Serialize)]
struct Report {
    dry_run: bool,
    removed: Vec<String>,
    /// Those of the removed that are in the trash.
    trashed: Vec<String>,
    in_use: Vec<String>,
    locks: Vec<String>,
    sessions: Vec<String>,
    trash: Vec<String>,
    conflicts: Vec<String>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let sessions = Sessions::of(&view)?;
    for (_, error) in &sessions.unreadable {
        ctx.ui.warn(&format!("session file left alone: {}", whole(error)));
    }
    let now = view.store.now();
    let old =
        |age: Duration, at: Option<Timestamp>| at.is_some_and(|at| now.checked_sub(age).is_ok_and(|limit| at <= limit));
    let trash: Vec<PathBuf> = match args.trash {
        Some(age) => {
            view.store.trash()?.into_iter().filter(|aside| old(age, aside.at)).map(|aside| aside.path).collect()
        }
        None => Vec::new(),
    };
    let conflicts: Vec<PathBuf> = match args.conflicts {
        Some(age) => {
            view.store.conflicts()?.into_iter().filter(|kept| old(age, kept.at)).map(|kept| kept.path).collect()
        }
        None => Vec::new(),
    };
    let mut report =
        Report { dry_run: args.dry_run, trash: words(&trash), conflicts: words(&conflicts), ..Report::default() };
    if args.dry_run {
        let (in_use, removed): (Vec<_>, Vec<_>) = expired(&view.store, &view.snapshot)?
            .into_iter()
            .partition(|id| sessions.active.contains(id) || view.is_locked(*id));
        report.removed = names(&removed);
        report.in_use = names(&in_use);
        report.locks = orphans(&view.store)?.iter().map(|lock| lock.id.to_string()).collect();
        report.sessions = words(&sessions.stale);
        return report.tell(ctx);
    }
    change(ctx, &view.store, |change| {
        let collected = change.writer.collect(&sessions.active)?;
        report.removed = names(&collected.removed);
        report.trashed = names(&collected.trashed);
        report.in_use = names(&collected.in_use);
        for path in trash.iter().chain(&conflicts) {
            ctx.signals.check()?;
            change.writer.throw_away(path)?;
        }
        // The same tidying that follows every command that writes; here somebody wants to know what it did.
        let tidied = change.writer.tidy()?;
        report.locks = names(&tidied.locks);
        report.sessions = words(&tidied.sessions);
        Ok(())
    })?;
    report.tell(ctx)
}

impl Report {
    fn tell(&self, ctx: &Ctx<'_>) -> Result<Exit> {
        if ctx.ui.json() {
            ctx.ui.object(self)?;
            return Ok(Exit::DONE);
        }
        let verb = if self.dry_run { "would remove" } else { "removed" };
        let groups = [
            ("expired", &self.removed),
            ("lock", &self.locks),
            ("session", &self.sessions),
            ("trash", &self.trash),
            ("conflict", &self.conflicts),
        ];
        for (head, group) in groups {
            for each in group {
                ctx.ui.line(&format!("{verb}\t{head}\t{each}"))?;
            }
        }
        for id in &self.trashed {
            ctx.ui.note(&format!(
                "{id} had files of your own, or events that were not exported: it is in the store's trash."
            ));
        }
        for id in &self.in_use {
            ctx.ui.line(&format!("kept\tin use\t{id}"))?;
        }
        if groups.iter().all(|(_, group)| group.is_empty()) {
            ctx.ui.note("There is nothing to remove.");
        }
        Ok(Exit::DONE)
    }
}

fn names(ids: &[ConversationId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

fn words(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

fn age(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    humantime::parse_duration(text).map_err(|_| "not an age; try `30d`, `2h` or `0`".to_owned())
}
