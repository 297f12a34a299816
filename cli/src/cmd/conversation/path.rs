//! `jp c path`: where conversations are.

use std::path::PathBuf;

use jp_store::layout::managed;
use jp_store::reconcile::ManagedFile;

use crate::ctx::Ctx;
use crate::error::{Exit, Result};
use crate::target::Targets;

/// Print where conversations are.
///
/// One absolute path per line: the directory in the workspace where there is one, else the one in the store. With flags,
/// the paths of those files instead. In a pipe paths are printed byte for byte; at a terminal control characters are
/// shown, not sent.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp c path                   the active conversation's directory
  jp c path last --events     the events of the one worked on last
  cd \"$(jp c path 17528832001)\"")]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// The path of events.json.
    #[arg(long)]
    events: bool,
    /// The path of metadata.json.
    #[arg(long)]
    metadata: bool,
    /// The path of base_config.json.
    #[arg(long)]
    base_config: bool,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let files: Vec<ManagedFile> = [
        (args.events, ManagedFile::Events),
        (args.metadata, ManagedFile::Metadata),
        (args.base_config, ManagedFile::BaseConfig),
    ]
    .into_iter()
    .filter_map(|(wanted, file)| wanted.then_some(file))
    .collect();
    let mut paths: Vec<PathBuf> = Vec::new();
    for id in args.targets.resolve(ctx, &view)? {
        let dir = view.path(view.find(id)?);
        match files.as_slice() {
            [] => paths.push(dir),
            files => paths.extend(files.iter().map(|&file| managed(&dir, file))),
        }
    }
    if ctx.ui.json() {
        let paths: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
        ctx.ui.object(&paths)?;
    } else {
        for path in paths {
            ctx.ui.path(&path)?;
        }
    }
    Ok(Exit::DONE)
}
