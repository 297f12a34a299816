//! `jp c label rm`: takes labels off conversations.

use super::edit;
use crate::ctx::Ctx;
use crate::error::{Exit, Result};
use crate::target::Targets;

/// Take labels off conversations.
///
/// Without a key it takes them all. A key that is not there is no error.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp c label rm wip
  jp c label rm -i last     all of them")]
pub(crate) struct Args {
    /// The keys.
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
}

pub(super) fn run(ctx: &Ctx<'_>, targets: &Targets, args: &Args) -> Result<Exit> {
    let view = ctx.view()?;
    let ids = targets.resolve(ctx, &view)?;
    edit(ctx, &view, &ids, |meta| {
        if args.keys.is_empty() {
            meta.clear_labels();
        }
        for key in &args.keys {
            meta.remove_label(key);
        }
    })
}
