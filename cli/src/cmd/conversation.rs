//! The commands on conversations.

mod archive;
mod bulk;
mod edit;
pub(crate) mod filter;
mod fork;
mod grep;
mod label;
mod listing;
mod ls;
mod mv;
mod new;
mod path;
mod print;
mod record;
mod rm;
mod show;
mod unarchive;
mod unhide;
mod r#use;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod write_tests;

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
        New => new,
        #[command(visible_alias = "f")]
        Fork => fork,
        #[command(visible_alias = "e")]
        Edit => edit,
        #[command(visible_aliases = ["l", "labels"])]
        Label => label,
        Mv => mv,
        #[command(visible_alias = "u")]
        Use => r#use,
        #[command(visible_aliases = ["remove", "rem", "delete", "del"])]
        Rm => rm,
        #[command(visible_alias = "a")]
        Archive => archive,
        #[command(visible_alias = "ua")]
        Unarchive => unarchive,
        Unhide => unhide,
        #[command(visible_aliases = ["g", "rg"])]
        Grep => grep,
    }
}
