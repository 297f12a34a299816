//! The `jp` command: arguments, environment, terminal. What a conversation is and how it is kept is the store's business.
//!
//! Arguments come in as typed, the environment as a value, and output goes through [`Ui`]; so a whole command can be run
//! in a test. stdout is data, stderr is talk.

mod args;
mod change;
mod cmd;
mod control;
mod ctx;
mod daemon;
mod drafts;
mod env;
mod error;
mod mounts;
mod process;
mod reconcile;
mod signal;
mod steps;
mod target;
#[cfg(test)]
mod testing;
mod time_arg;
mod ui;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches as _;
use clap::error::ErrorKind;

pub use env::{Env, Terminals};
pub use ui::Ui;

use crate::args::Cli;
use crate::ctx::Ctx;
use crate::error::{Error, Exit, Kind, Result};
use crate::signal::Signals;

/// Runs one command line, program name included.
pub fn run(args: impl IntoIterator<Item = OsString>, env: Env, mut ui: Ui) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    // The command line may be too broken to parse and still say how its errors are wanted.
    ui.set_json(args::asks_for_json(&args));
    let exit = match parse(&args, &ui) {
        Ok(Parsed::Command(cli)) => {
            ui.configure(&cli.global, &env);
            perform(*cli, &env, &ui)
        }
        Ok(Parsed::Answered(exit)) => Ok(exit),
        Err(error) => Err(error),
    };
    let exit = exit.and_then(|exit| ui.flush().map(|()| exit)).unwrap_or_else(|error| ui.fail(&error));
    ExitCode::from(exit.0)
}

/// What a command line comes to.
enum Parsed {
    /// Something to do.
    Command(Box<Cli>),
    /// A help text or a version, which is printed.
    Answered(Exit),
}

fn parse(args: &[OsString], ui: &Ui) -> Result<Parsed> {
    let parsed = args::command(ui).try_get_matches_from(args);
    let error = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => return Ok(Parsed::Command(Box::new(cli))),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            ui.help(&error)?;
            Ok(Parsed::Answered(Exit::DONE))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if ui.json() => {
            Err(Error::usage("no command is given").hint("`--help` lists the commands"))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            ui.remind(&error);
            Ok(Parsed::Answered(Kind::Usage.exit()))
        }
        _ => Err(Error::from(error)),
    }
}

fn perform(cli: Cli, env: &Env, ui: &Ui) -> Result<Exit> {
    let signals = Signals::install()?;
    let ctx = Ctx::new(env, ui, &signals, cli.global.workspace);
    let exit = cli.command.run(&ctx)?;
    // Ctrl-C during something that had to be finished first.
    signals.check()?;
    Ok(exit)
}
