//! `jp draft ls`: what was saved through a mount and is not in the store.

use crate::ctx::Ctx;
use crate::drafts::Record;
use crate::error::{Exit, Result};
use crate::ui::{Column, Table, ago, clean};

/// List the drafts of this worktree.
///
/// Says of each why it is not in the store: a line and a column if it does not parse, who holds the lock if it waits for one,
/// or that the store's file was changed since. In a pipe the columns are separated by tabs, without a header: id, file, size in
/// bytes, since when, why, title. A new conversation that is not whole yet has no file. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp draft ls
  jp draft ls --json | jq -r '.[] | \"\\(.path):\\(.line):\\(.column): \\(.reason)\"'")]
pub(crate) struct Args {}

pub(crate) fn run(ctx: &Ctx<'_>, Args {}: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let records = Record::all(&view)?;
    if ctx.ui.json() {
        ctx.ui.object(&records)?;
        return Ok(Exit::DONE);
    }
    let mut table = Table::new([
        Column::left("ID"),
        Column::left("File"),
        Column::right("Bytes"),
        Column::left("Saved"),
        Column::soft("Why it is not in the store"),
        Column::soft("Title"),
    ]);
    let now = ctx.env.now();
    for record in &records {
        let since = record.since.as_deref().and_then(jp_store::time::parse).map(|since| ago(now, since));
        table.row([
            record.id.as_str().into(),
            record.file.as_deref().unwrap_or("(new)").into(),
            record.bytes.to_string().into(),
            since.unwrap_or_default().into(),
            clean(&record.why()).into_owned().into(),
            clean(record.title.as_deref().unwrap_or_default()).into_owned().into(),
        ]);
    }
    ctx.ui.table(&table)?;
    if table.is_empty() {
        ctx.ui.note("No drafts.");
    } else if ctx.ui.interactive() {
        ctx.ui
            .note("hint: `jp draft show ID FILE` prints one, `jp draft apply` commits it, `jp draft drop` gives it up");
    }
    Ok(Exit::DONE)
}
