//! The commands on drafts.

mod apply;
mod diff;
mod drop;
mod ls;
mod show;

use std::ffi::OsString;

group! {
    /// See, commit and give up what was saved through a mount and is not in the store.
    ///
    /// A draft is a file saved through a mount that the store cannot take yet: it is not a whole document, or another process
    /// holds its conversation. The mount shows the draft; the store keeps the last good version. A new conversation that is
    /// not whole yet is listed too. All of these commands work with a live mount and without one.
}

commands! {
    /// What can be done with drafts.
    Commands {
        #[command(visible_alias = "list")]
        Ls => ls,
        #[command(visible_alias = "cat")]
        Show => show,
        Apply => apply,
        #[command(visible_alias = "discard")]
        Drop => drop,
    }
}

/// Which drafts are meant.
#[derive(Debug, clap::Args)]
struct Named {
    /// The conversation: an id, a directory, or a word such as `last`.
    #[arg(value_name = "ID")]
    id: OsString,
    /// One of its files, such as `events.json`; without it all of its drafts.
    #[arg(value_name = "FILE")]
    file: Option<String>,
}
