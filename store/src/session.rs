//! A session is a terminal: what identifies it, and which conversations it was on. Which hints there are, which process
//! is alive and what time it is are told by the caller; nothing here asks the system.

mod dir;
mod mapping;

use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub use self::dir::{Cleaned, SessionDir, World, stale};
pub use self::mapping::{Entry, Mapping, Standing};
use crate::json::Object;

/// The variables by which terminals name themselves, the first one set being the session.
pub const TERMINAL_VARIABLES: [&str; 4] = ["TMUX_PANE", "WEZTERM_PANE", "TERM_SESSION_ID", "ITERM_SESSION_ID"];

/// What the system says about where we run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// `$JP_SESSION`.
    pub jp_session: Option<String>,
    /// The session leader's process id, on Unix.
    pub getsid: Option<i32>,
    /// The console window, on Windows.
    pub hwnd: Option<i64>,
    /// Those of [`TERMINAL_VARIABLES`] that are set, in any order.
    pub terminal: Vec<(String, String)>,
}

/// What identifies a terminal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    /// Where the value comes from.
    pub source: Source,
    /// The value, as it came.
    pub value: String,
}

impl Session {
    /// Whether the terminal is still there, where that can be told.
    pub fn is_there(&self) -> Option<bool> {
        match self.source {
            Source::Getsid => self.value.parse().ok().and_then(crate::lock::alive),
            Source::Hwnd | Source::Env(_) => None,
        }
    }
}

/// Where a session's value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The session leader's process id.
    Getsid,
    /// The console window.
    Hwnd,
    /// The environment variable of this name.
    Env(String),
}

/// The session to use: what the user says, then what the system says, then what the terminal says.
pub fn choose(hints: &Hints) -> Option<Session> {
    let env = |name: &str, value: &str| {
        let source = Source::Env(name.to_owned());
        (!value.is_empty()).then(|| Session { source, value: value.to_owned() })
    };
    let terminal = |name: &&str| {
        let mut named = hints.terminal.iter().filter(|(key, _)| key == name);
        named.find_map(|(key, value)| env(key, value))
    };
    let jp_session = hints.jp_session.as_deref().and_then(|value| env("JP_SESSION", value));
    let getsid =
        hints.getsid.filter(|pid| *pid >= 0).map(|pid| Session { source: Source::Getsid, value: pid.to_string() });
    let hwnd = hints
        .hwnd
        .filter(|window| *window != 0)
        .map(|window| Session { source: Source::Hwnd, value: window.to_string() });
    jp_session.or(getsid).or(hwnd).or_else(|| TERMINAL_VARIABLES.iter().find_map(terminal))
}

impl Session {
    /// The name of the session's file, without its extension. Two sessions may share one, so the file says whose it is.
    pub fn key(&self) -> String {
        match &self.source {
            Source::Getsid => format!("getsid-{}", plain(&self.value)),
            Source::Hwnd => format!("hwnd-{}", plain(&self.value)),
            Source::Env(name) => format!("env-{}-{}", plain(name), digest(&self.value)),
        }
    }
}

impl Source {
    fn to_value(&self) -> Value {
        let mut object = Object::new();
        let mut put = |key: &str, value: &str| object.insert(key.to_owned(), value.into());
        match self {
            Self::Getsid => put("type", "getsid"),
            Self::Hwnd => put("type", "hwnd"),
            Self::Env(name) => {
                put("type", "env");
                put("key", name)
            }
        };
        Value::Object(object)
    }

    fn from_value(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        match text("type")? {
            "getsid" => Some(Self::Getsid),
            "hwnd" => Some(Self::Hwnd),
            "env" => text("key").map(|key| Self::Env(key.to_owned())),
            _ => None,
        }
    }
}

fn plain(text: &str) -> String {
    text.chars().map(|it| if it.is_ascii_alphanumeric() || it == '_' { it } else { '_' }).collect()
}

/// The first 16 hex digits of the SHA-256 of a text.
fn digest(text: &str) -> String {
    let mut digits = String::new();
    for byte in &Sha256::digest(text.as_bytes())[..8] {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str, value: &str) -> Session {
        Session { source: Source::Env(name.to_owned()), value: value.to_owned() }
    }

    #[test]
    fn keys() {
        let check = |session: Session, expected: &str| assert_eq!(session.key(), expected);
        check(env("TMUX_PANE", "%3"), "env-TMUX_PANE-cb00ccd344b9bcfa");
        check(env("JP_SESSION", "1234"), "env-JP_SESSION-03ac674216f3e15c");
        check(env("A-B", "1234"), "env-A_B-03ac674216f3e15c");
        check(Session { source: Source::Getsid, value: "12057".to_owned() }, "getsid-12057");
        check(Session { source: Source::Getsid, value: "../é".to_owned() }, "getsid-____");
        check(Session { source: Source::Hwnd, value: "-5".to_owned() }, "hwnd-_5");
    }

    #[test]
    fn choices() {
        let check = |hints: &Hints, expected: Option<Session>| {
            assert_eq!(choose(hints), expected, "{hints:?}");
        };
        let mut hints = Hints::default();
        check(&hints, None);
        hints.terminal = vec![
            ("ITERM_SESSION_ID".to_owned(), "i".to_owned()),
            ("SHELL".to_owned(), "sh".to_owned()),
            ("WEZTERM_PANE".to_owned(), String::new()),
            ("TERM_SESSION_ID".to_owned(), "t".to_owned()),
        ];
        check(&hints, Some(env("TERM_SESSION_ID", "t")));
        hints.hwnd = Some(0);
        check(&hints, Some(env("TERM_SESSION_ID", "t")));
        hints.hwnd = Some(-7);
        check(&hints, Some(Session { source: Source::Hwnd, value: "-7".to_owned() }));
        hints.getsid = Some(-1);
        check(&hints, Some(Session { source: Source::Hwnd, value: "-7".to_owned() }));
        hints.getsid = Some(0);
        check(&hints, Some(Session { source: Source::Getsid, value: "0".to_owned() }));
        hints.jp_session = Some(String::new());
        check(&hints, Some(Session { source: Source::Getsid, value: "0".to_owned() }));
        hints.jp_session = Some("mine".to_owned());
        check(&hints, Some(env("JP_SESSION", "mine")));
    }
}
