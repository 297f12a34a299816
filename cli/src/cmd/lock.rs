//! The commands on locks.

mod clear;
mod ls;
mod run;

group! {
    /// See, take and clear locks on conversations.
    ///
    /// Whoever changes a conversation holds its lock; all others wait, for 30 seconds or as long as JP_LOCK_DURATION
    /// says. Reading needs no lock.
}

commands! {
    /// What can be done with locks.
    Commands {
        #[command(visible_alias = "list")]
        Ls => ls,
        Run => run,
        Clear => clear,
    }
}
