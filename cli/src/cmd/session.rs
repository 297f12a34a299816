//! The commands on sessions.

mod clean;
mod ls;
mod show;

use jp_store::session::{Session, Source};

group! {
    /// See and clean up what terminals remember.
    ///
    /// A session is a terminal: its file says which conversations it has been on. JP_SESSION names one by hand, which is
    /// how scripts get a session of their own.
}

commands! {
    /// What can be done with sessions.
    Commands {
        #[command(visible_alias = "s")]
        Show => show,
        #[command(visible_alias = "list")]
        Ls => ls,
        Clean => clean,
    }
}

/// Where a session's value comes from, in a word.
fn source(session: &Session) -> String {
    match &session.source {
        Source::Getsid => "getsid".to_owned(),
        Source::Hwnd => "hwnd".to_owned(),
        Source::Env(name) => name.clone(),
    }
}
