//! The commands on conversations.

mod path;

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
    }
}
