//! The `jp` command.

use std::process::ExitCode;

use jp_cli::{Env, Ui};

fn main() -> ExitCode {
    let env = Env::of_process();
    let ui = Ui::of_process(&env);
    jp_cli::run(std::env::args_os(), env, ui)
}
