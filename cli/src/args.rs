//! What can be typed. Each command's own arguments are in its file.

use std::ffi::OsString;

use clap::{CommandFactory as _, Parser, ValueEnum};

use crate::cmd::Command;
use crate::ui::Ui;

/// Conversations with a language model, as plain files.
///
/// Conversations are kept in a store of their own, outside of any worktree; what a worktree shows of them is a
/// projection. Most commands work on the terminal's active conversation when none is named; `jp c show help` lists the
/// words that name one.
#[derive(Debug, Parser)]
#[command(
    name = "jp",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  jp c ls                       what there is
  jp c show last                the one worked on last
  jp c grep -s user 'deadlock'  what I asked about deadlocks
  jp c ls --json | jq '.[].id'  for scripts

Exit codes: 0 done, 1 no, 2 usage, 3 locked, 4 damaged, 130 interrupted."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Work on this workspace: a directory in it, or its five-character id.
    #[arg(short, long, global = true, value_name = "PATH|ID")]
    pub(crate) workspace: Option<OsString>,
    /// What output looks like: `json`, or `text`, which is tables at a terminal and tab-separated lines in a pipe.
    #[arg(
        short = 'F',
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub(crate) format: Format,
    /// The same as `--format json`.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say on stderr what is being done; more of it with `-vv`.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Say nothing but data, warnings and errors.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// When to use colour: `auto`, at a terminal; `always`; `never`.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub(crate) color: Color,
}

/// What output looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text.
    #[default]
    Auto,
    /// Tables at a terminal, tab-separated lines in a pipe.
    #[value(alias = "text-pretty")]
    Text,
    /// JSON.
    #[value(alias = "json-pretty")]
    Json,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// At a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The command line as clap sees it.
pub(crate) fn command(ui: &Ui) -> clap::Command {
    let color = if ui.color() { clap::ColorChoice::Always } else { clap::ColorChoice::Never };
    let command = Cli::command().color(color);
    match ui.width() {
        Some(width) => command.term_width(width.min(120)),
        None => command.term_width(100),
    }
}

/// Whether a command line, well-formed or not, asks for JSON.
pub(crate) fn asks_for_json(args: &[OsString]) -> bool {
    let words: Vec<&str> = args.iter().map_while(|arg| arg.to_str()).take_while(|arg| *arg != "--").collect();
    let is_json = |format: &str| matches!(format, "json" | "json-pretty");
    let attached = |word: &str| ["--format=", "-F=", "-F"].iter().find_map(|flag| word.strip_prefix(flag).map(is_json));
    words.iter().any(|word| *word == "--json" || attached(word) == Some(true))
        || words.windows(2).any(|pair| matches!(pair, ["-F" | "--format", format] if is_json(format)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }

    /// Every command says in a line what it is for, and shows how it is used.
    #[test]
    fn every_command_has_help() {
        let mut open = vec![Cli::command()];
        while let Some(command) = open.pop() {
            let name = command.get_name().to_owned();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty() && !about.contains('\n'), "{name}: {about:?}");
            if command.has_subcommands() {
                open.extend(command.get_subcommands().cloned());
            } else {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.starts_with("Examples:\n"), "{name} shows no examples");
                assert!(command.get_long_about().is_some(), "{name} has no description");
            }
        }
    }

    #[test]
    fn json_is_noticed_in_broken_command_lines() {
        let check = |line: &str, expected| {
            let args: Vec<OsString> = line.split(' ').map(Into::into).collect();
            assert_eq!(asks_for_json(&args), expected, "{line}");
        };
        check("jp c ls --json --nonsense", true);
        check("jp -F json nonsense", true);
        check("jp -Fjson nonsense", true);
        check("jp -F=json nonsense", true);
        check("jp --format=json", true);
        check("jp --format json-pretty", true);
        check("jp -F text", false);
        check("jp c ls", false);
        check("jp lock run x -- tool --json", false);
    }
}
