//! `jp man`: the manual pages, made from the same words as `--help`.

use std::path::PathBuf;

use clap::CommandFactory as _;
use jp_store::beneath::trusted;

use crate::args::Cli;
use crate::ctx::Ctx;
use crate::error::{Error, Exit, Kind, Result};

/// Print the manual page, or write all pages into a directory.
///
/// Without `--dir` the page of `jp` itself goes to stdout. With it, one file per command is written there and named on
/// stdout.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp man | man -l -
  jp man --dir ~/.local/share/man/man1")]
pub(crate) struct Args {
    /// Write the pages of all commands into this directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let Some(dir) = args.dir else {
        ctx.ui.bytes(&page(Cli::command())?)?;
        return Ok(Exit::DONE);
    };
    trusted::create_dirs(&dir).map_err(|error| Error::io("create", &dir, &error))?;
    // Building gives every command its whole name, which heads its page.
    let mut top = Cli::command();
    top.build();
    let mut open = vec![top];
    let mut written = Vec::new();
    while let Some(command) = open.pop() {
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        let inner: Vec<_> = command.get_subcommands().filter(|inner| !inner.is_hide_set()).cloned().collect();
        open.extend(inner.into_iter().rev());
        let file = dir.join(format!("{name}.1"));
        trusted::write(&file, &page(command)?).map_err(|error| Error::io("write", &file, &error))?;
        written.push(file);
    }
    if ctx.ui.json() {
        let written: Vec<_> = written.iter().map(|file| file.to_string_lossy()).collect();
        ctx.ui.object(&written)?;
    } else {
        written.iter().try_for_each(|file| ctx.ui.path(file))?;
    }
    Ok(Exit::DONE)
}

fn page(command: clap::Command) -> Result<Vec<u8>> {
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(command).render(&mut page);
    rendered.map_err(|error| Error::new(Kind::Damaged, "cannot write the page").because(&error))?;
    Ok(page)
}
