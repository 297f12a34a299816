//! `jp draft apply`: commits drafts now.

use serde::Serialize;

use super::Named;
use crate::change::change;
use crate::ctx::Ctx;
use crate::drafts::{Owner, chosen};
use crate::error::{Error, Exit, Result};
use crate::ui::clean;

/// Commit drafts to the store now.
///
/// Takes the conversation's lock, waiting for as long as JP_LOCK_DURATION says. A draft that does not parse is refused with
/// line and column, and stays a draft. So does one whose file was changed in the store since the draft began; with `--force`
/// it is committed, and the bytes that the store had are kept under `conflicts/`. A new conversation is taken in if it is whole.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp draft apply last
  jp draft apply 17528832001 metadata.json
  jp draft apply 17528832001 metadata.json --force   over what the store got since")]
pub(crate) struct Args {
    #[command(flatten)]
    named: Named,
    /// Commit it also if the store's file was changed since the draft began. The store's bytes are kept.
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct Applied {
    id: String,
    file: Option<String>,
    /// Where the bytes are that the store had; `null` if none were lost.
    kept: Option<String>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let file = args.named.file.as_deref();
    let records = chosen(ctx, &view, &args.named.id, file)?;
    if let (Some(_), Some(new)) = (file, records.iter().find(|record| record.file.is_none())) {
        return Err(Error::usage(format!("{} is a new conversation, and is committed whole", new.id))
            .hint(format!("`jp draft apply {}` takes it in", new.id)));
    }
    let (applied, exit) = change(ctx, &view.store, |change| {
        let (mut applied, mut worst) = (Vec::new(), Exit::DONE);
        for record in &records {
            ctx.signals.check()?;
            let guard = change.lock(record.of);
            let done = guard.and_then(|guard| Owner::of(&view.store)?.apply(&change.writer, record, guard, args.force));
            match done {
                Ok(kept) => {
                    let name = clean(&record.name()).into_owned();
                    ctx.ui.note(&match &kept {
                        Some(path) => format!("{name} is committed; what the store had is in {}.", clean(path)),
                        None => format!("{name} is committed."),
                    });
                    applied.push(Applied { id: record.id.clone(), file: record.file.clone(), kept });
                }
                Err(error) if records.len() == 1 => return Err(error),
                Err(error) => worst = Exit(worst.0.max(ctx.ui.fail(&error).0)),
            }
        }
        Ok((applied, worst))
    })?;
    if ctx.ui.json() {
        ctx.ui.object(&applied)?;
    }
    Ok(exit)
}
