//! The commands on conversations.

mod archive;
mod bulk;
mod edit;
mod fork;
mod label;
mod mv;
mod new;
mod path;
mod rm;
mod unarchive;
mod r#use;

group! {
    /// Work with conversations.
    ///
    /// A conversation is named by its id, by the digits of the id, by its directory, or by a word such as `last`. Without
    /// one, the terminal's active conversation is meant. `jp c show help` lists the words.
}

commands! {
    /// What can be done with conversations.
    Commands {
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
    }
}
