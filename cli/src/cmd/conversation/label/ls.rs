//! `jp c label ls`: which labels conversations have.

use super::Labels;
use crate::ctx::Ctx;
use crate::error::{Exit, Result};
use crate::target::Targets;

/// List the labels of conversations.
///
/// One per line; of several conversations with the id and a tab in front.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp c label ls
  jp c label ls -i +live --json")]
pub(crate) struct Args {}

pub(super) fn run(ctx: &Ctx<'_>, targets: &Targets, _: &Args) -> Result<Exit> {
    let view = ctx.view()?;
    let ids = targets.resolve(ctx, &view)?;
    let mut all = Vec::new();
    for id in ids {
        all.push(Labels::of(id, view.find(id)?.meta.as_ref()));
    }
    if ctx.ui.json() {
        ctx.ui.object(&all)?;
        return Ok(Exit::DONE);
    }
    let several = all.len() > 1;
    for labels in &all {
        for line in labels.lines() {
            ctx.ui.line(&if several { format!("{}\t{line}", labels.id) } else { line })?;
        }
    }
    Ok(Exit::DONE)
}
