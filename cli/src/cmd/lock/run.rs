//! `jp lock run`: holds a conversation while another program works on it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::ctx::Ctx;
use crate::error::{Error, Exit, Result};
use crate::target;

/// Hold a conversation while a command runs.
///
/// Nobody else changes the conversation meanwhile; what runs beneath the command, `jp` included, may. The command has
/// the terminal to itself, and Ctrl-C is its business. Its exit code is ours; killed by signal N it is 128 + N.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp lock run last -- vim \"$(jp c path last --events)\"
  jp lock run . -- sh -c 'cd \"$(jp c path)\" && sed -i s/teh/the/ events.json'
  JP_LOCK_DURATION=0 jp lock run . -- true || echo busy")]
pub(crate) struct Args {
    /// The conversation.
    #[arg(value_name = "ID")]
    id: OsString,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let id = target::one(ctx, &view, &args.id)?;
    let locked = ctx.lock(&view.store, id)?;
    ctx.ui.flush()?;
    let exit = match args.command.split_first() {
        Some((program, rest)) => match Command::new(program).args(rest).spawn() {
            Ok(child) => wait(child)?,
            Err(error) => {
                let told = Error::no(format!("cannot run {}", program.to_string_lossy())).because(&error);
                ctx.ui.fail(&told);
                // What a shell says of a command it cannot run.
                Exit(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
            }
        },
        None => Exit::DONE,
    };
    if let Err(error) = locked.guard.release() {
        ctx.ui.warn(&format!("the lock file stays behind: {error}"));
    }
    // Ctrl-C was the command's; what it made of it is in its exit code.
    ctx.signals.forget();
    Ok(exit)
}

/// Waits for the child, passing on what would otherwise end us before it and let go of its lock.
fn wait(mut child: Child) -> Result<Exit> {
    let failed = |error: io::Error| Error::no("cannot wait for the command").because(&error);
    let mut passed = Signals::new([SIGTERM, SIGHUP, SIGQUIT]).map_err(failed)?;
    let handle = passed.handle();
    let pid = i32::try_from(child.id()).map(Pid::from_raw);
    let passing = std::thread::spawn(move || {
        for signal in &mut passed {
            if let (Ok(pid), Ok(signal)) = (pid, Signal::try_from(signal)) {
                let _ = kill(pid, signal);
            }
        }
    });
    let status = child.wait().map_err(failed);
    handle.close();
    let _ = passing.join();
    status.map(code)
}

fn code(status: ExitStatus) -> Exit {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Exit(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(255))
}
