//! `jp draft drop`: gives drafts up.

use serde::Serialize;

use super::Named;
use crate::change::{change, count};
use crate::ctx::Ctx;
use crate::drafts::{Owner, Record, chosen};
use crate::error::{Error, Exit, Kind, Result};
use crate::ui::clean;

/// Give up drafts.
///
/// The mount shows what the store has again. The bytes are not lost: they are kept under `conflicts/` in the store, and their
/// place is printed. A new conversation that is not whole yet can be given up too, with all of its files. Asks first; in a
/// pipe it needs `--yes`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp draft drop last
  jp draft drop 17528832001 events.json
  jp draft drop 17528832001 --yes        all of its drafts, and nothing is asked")]
pub(crate) struct Args {
    #[command(flatten)]
    named: Named,
    /// Do not ask.
    #[arg(short, long, visible_alias = "no-confirm")]
    yes: bool,
}

#[derive(Serialize)]
struct Dropped {
    id: String,
    file: Option<String>,
    /// Where the bytes are; `null` if the draft was empty.
    kept: Option<String>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let file = args.named.file.as_deref();
    let records = chosen(ctx, &view, &args.named.id, file)?;
    if let (Some(file), Some(new)) = (file, records.iter().find(|record| record.file.is_none())) {
        return Err(Error::usage(format!("{} is a new conversation; {file} cannot be given up by itself", new.id))
            .hint(format!("`jp draft drop {}` gives up all of it", new.id)));
    }
    if !args.yes {
        ask(ctx, &records)?;
    }
    let (dropped, exit) = change(ctx, &view.store, |change| {
        let owner = Owner::of(&view.store)?;
        let (mut dropped, mut worst) = (Vec::new(), Exit::DONE);
        for record in &records {
            match owner.give_up(&change.writer, record) {
                Ok(kept) => {
                    let name = clean(&record.name()).into_owned();
                    ctx.ui.note(&match &kept {
                        Some(path) if record.file.is_none() => {
                            format!("Gave up the new conversation {name}; its files are in {}.", clean(path))
                        }
                        Some(path) => format!("Gave up the draft of {name}; its bytes are in {}.", clean(path)),
                        None => format!("Gave up the draft of {name}, which was empty."),
                    });
                    dropped.push(Dropped { id: record.id.clone(), file: record.file.clone(), kept });
                }
                Err(error) if records.len() == 1 => return Err(error),
                Err(error) => worst = Exit(worst.0.max(ctx.ui.fail(&error).0)),
            }
        }
        Ok((dropped, worst))
    })?;
    if ctx.ui.json() {
        ctx.ui.object(&dropped)?;
    }
    Ok(exit)
}

fn ask(ctx: &Ctx<'_>, records: &[Record]) -> Result<()> {
    let what = match records {
        [record] => format!("give up the draft of {} ({} bytes)", clean(&record.name()), record.bytes),
        records => format!("give up {} of {}", count(records.len(), "draft"), records[0].id),
    };
    if !ctx.ui.interactive() {
        return Err(Error::no(format!("not told whether to {what}"))
            .hint("nobody is there to be asked; say `--yes` to go ahead"));
    }
    if records.len() > 1 {
        for record in records {
            ctx.ui.note(&format!("  {} ({} bytes)", clean(&record.name()), record.bytes));
        }
    }
    let mut question = format!("{what}?");
    if let Some(first) = question.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    if ctx.ui.confirm(&question)? {
        return Ok(());
    }
    ctx.ui.note("Nothing was changed.");
    Err(Error::new(Kind::Told, "declined"))
}
