//! The commands on sessions.

mod clean;
mod ls;
mod show;

use jp_store::lock::alive;
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

/// Whether the terminal is still there, where that can be told.
pub(crate) fn is_there(session: &Session) -> Option<bool> {
    match session.source {
        Source::Getsid => session.value.parse().ok().and_then(alive),
        Source::Hwnd | Source::Env(_) => None,
    }
}
