//! The commands on conversations.

pub(crate) mod filter;
mod grep;
mod listing;
mod ls;
mod path;
mod print;
mod record;
mod show;

#[cfg(test)]
mod tests;

group! {
    /// Work with conversations.
    ///
    /// A conversation is named by its id, by the digits of the id, by its directory, or by a word such as `last`. Without
    /// one, the terminal's active conversation is meant. `jp c show help` lists the words.
}

commands! {
    /// What can be done with conversations.
    Commands {
        #[command(visible_alias = "list")]
        Ls => ls,
        #[command(visible_alias = "s")]
        Show => show,
        #[command(visible_alias = "p")]
        Print => print,
        Path => path,
        #[command(visible_aliases = ["g", "rg"])]
        Grep => grep,
    }
}
