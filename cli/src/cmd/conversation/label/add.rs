//! `jp c label add`: puts labels on conversations.

use super::{Label, edit};
use crate::ctx::Ctx;
use crate::error::{Exit, Result};
use crate::target::Targets;

/// Put labels on conversations.
///
/// A key that is there already gets the new value.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp c label add wip branch=fix/upload
  jp c label add -i last -i 17528832001 review")]
pub(crate) struct Args {
    /// The labels.
    #[arg(value_name = "KEY[=VALUE]", required = true)]
    labels: Vec<Label>,
}

pub(super) fn run(ctx: &Ctx<'_>, targets: &Targets, args: &Args) -> Result<Exit> {
    let view = ctx.view()?;
    let ids = targets.resolve(ctx, &view)?;
    edit(ctx, &view, &ids, |meta| {
        for label in &args.labels {
            meta.set_label(&label.key, &label.value);
        }
    })
}
