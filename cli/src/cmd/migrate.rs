//! `jp migrate`: one silo of several, and nothing that only the workspace has.

use jp_store::ConversationId;
use jp_store::conversation::Conversation;
use jp_store::presence::StoragePresence;
use jp_store::writer::Migrated;
use serde::Serialize;

use crate::change::{count, import_all, migration, with_migration};
use crate::ctx::Ctx;
use crate::error::{Exit, Result};
use crate::ui::clean;

/// Merge silos and import what only the workspace has.
///
/// Every command that writes merges the silos of other worktrees into the store; this does it without writing anything
/// else, and also copies every conversation into the store that came by git and is only in the workspace. The
/// workspace's files stay. Doing it twice changes nothing. What cannot be migrated now, because it is in use or does not
/// parse, stays where it is and makes the exit code 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp migrate --dry-run    what would be done
  jp migrate              do it")]
pub(crate) struct Args {
    /// Say what would be done, and do nothing.
    #[arg(long, short = 'n')]
    dry_run: bool,
}

#[derive(Serialize)]
struct Report {
    dry_run: bool,
    silos: usize,
    moved: Vec<String>,
    conflicts: Vec<String>,
    imported: Vec<String>,
    refused: Vec<String>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let store = ctx.store()?;
    let migrated = if args.dry_run {
        let snapshot = store.snapshot()?;
        let external = snapshot.all().filter(|found| found.presence == StoragePresence::WorkspaceOnly);
        let siblings = &store.layout().siblings;
        let elsewhere = |found: &&Conversation| {
            let place = found.store.as_ref();
            place.is_some_and(|place| siblings.iter().any(|silo| place.dir.starts_with(&silo.dir)))
        };
        Migrated {
            silos: siblings.len(),
            moved: snapshot.all().filter(elsewhere).map(|found| found.id).collect(),
            imported: external.map(|found| found.id).collect(),
            ..Migrated::default()
        }
    } else {
        with_migration(ctx, &store, import_all)?
    };
    tell(ctx, &migrated, args.dry_run)
}

fn tell(ctx: &Ctx<'_>, migrated: &Migrated, dry_run: bool) -> Result<Exit> {
    match migration(migrated, !dry_run) {
        Some(text) if dry_run => ctx.ui.note(&format!("It would {text}.")),
        Some(text) => ctx.ui.note(&format!("Migration: {text}.")),
        None if migrated.refused.is_empty() => ctx.ui.note("There is nothing to migrate."),
        None => {}
    }
    for left in &migrated.refused {
        ctx.ui.warn(&format!("not migrated: {}", clean(left)));
    }
    if ctx.ui.json() {
        let names = |ids: &[ConversationId]| ids.iter().map(ToString::to_string).collect();
        ctx.ui.object(&Report {
            dry_run,
            silos: migrated.silos,
            moved: names(&migrated.moved),
            conflicts: names(&migrated.conflicts),
            imported: names(&migrated.imported),
            refused: migrated.refused.clone(),
        })?;
    }
    if migrated.refused.is_empty() {
        return Ok(Exit::DONE);
    }
    ctx.ui.note(&format!(
        "hint: {} left where it was; `jp doctor` says what does not parse, `jp lock ls` what is in use",
        count(migrated.refused.len(), "thing")
    ));
    Ok(Exit::NO)
}
