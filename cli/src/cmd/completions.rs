//! `jp completions`: what a shell needs to complete our command line.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Cli;
use crate::ctx::Ctx;
use crate::error::{Exit, Result};

/// Print a completion script for a shell.
///
/// The script goes to stdout; put it where the shell looks for completions.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp completions bash > ~/.local/share/bash-completion/completions/jp
  jp completions zsh > ~/.zfunc/_jp
  jp completions fish > ~/.config/fish/completions/jp.fish")]
pub(crate) struct Args {
    /// Which shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "jp", &mut script);
    ctx.ui.bytes(&script)?;
    Ok(Exit::DONE)
}
