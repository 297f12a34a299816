//! The `jp` command.

use std::process::ExitCode;

use jp_cli::{Env, Ui};
use nix::sys::stat::{Mode, umask};

fn main() -> ExitCode {
    keep_owner_bits();
    let env = Env::of_process();
    let ui = Ui::of_process(&env);
    jp_cli::run(std::env::args_os(), env, ui)
}

/// A umask that takes bits from the owner would leave files in the store that nobody can open again. What it takes from others
/// stays.
fn keep_owner_bits() {
    let wanted = umask(Mode::S_IRWXG | Mode::S_IRWXO);
    umask(wanted.difference(Mode::S_IRWXU));
}
