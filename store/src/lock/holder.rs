//! Who holds a lock, as its file tells. The text is for people and for finding ancestors; it proves nothing by itself:
//! a lock is held exactly as long as somebody has the `flock`.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::time::{self, Timestamp};

/// Who holds a lock. Every part may be missing, because another program may have written the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The process.
    pub pid: Option<u32>,
    /// The raw value of its session, not the key of the session's file.
    pub session: Option<String>,
    /// Since when.
    pub since: Option<Timestamp>,
}

impl Holder {
    /// No text of a lock file is longer.
    pub(super) const LONGEST: u64 = 64 * 1024;

    /// Whether this is the text of a lock file and nothing else.
    pub(super) fn is_text(text: &[u8]) -> bool {
        let Ok(Value::Object(object)) = serde_json::from_slice(text) else {
            return text.is_empty();
        };
        object.iter().all(|(key, value)| match key.as_str() {
            "pid" => value.is_u64(),
            "session" | "acquired_at" => value.is_string(),
            _ => false,
        })
    }

    /// Reads the text of a lock file. Parts that make no sense are unknown; no JSON object at all is `None`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let Ok(Value::Object(object)) = serde_json::from_slice(text) else {
            return None;
        };
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        Some(Self {
            pid: object.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok()),
            session: text("session").map(str::to_owned),
            since: text("acquired_at").and_then(time::parse),
        })
    }

    /// The text of a lock file, byte for byte as JP writes it: one line, no newline.
    pub fn to_bytes(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Line<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            pid: Option<u32>,
            #[serde(skip_serializing_if = "Option::is_none")]
            session: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            acquired_at: Option<String>,
        }
        let line =
            Line { pid: self.pid, session: self.session.as_deref(), acquired_at: self.since.map(time::rfc3339_offset) };
        // Numbers and strings always serialise; an empty text would only cost a diagnosis.
        serde_json::to_vec(&line).unwrap_or_default()
    }
}

/// `pid 12345, session 12057`, as much of it as is known. Control characters are shown, not obeyed.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, &self.session) {
            (Some(pid), Some(session)) => write!(f, "pid {pid}, session {}", Shown(session)),
            (Some(pid), None) => write!(f, "pid {pid}"),
            (None, Some(session)) => write!(f, "session {}", Shown(session)),
            (None, None) => f.write_str("an unknown process"),
        }
    }
}

struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            // Marks that reorder or hide text are as good as control characters to whoever reads a terminal.
            let hidden = matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            if char.is_control() || hidden {
                write!(f, "{}", char.escape_default())?;
            } else {
                write!(f, "{char}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(pid: Option<u32>, session: Option<&str>, since: Option<&str>) -> Holder {
        Holder { pid, session: session.map(str::to_owned), since: since.and_then(time::parse) }
    }

    #[test]
    fn the_text_is_the_real_tools() {
        let check = |holder: Holder, expected: &str| {
            assert_eq!(String::from_utf8(holder.to_bytes()).unwrap(), expected);
            assert_eq!(Holder::parse(expected.as_bytes()), Some(holder));
        };
        check(
            holder(Some(41233), Some("12057"), Some("2026-08-20T14:03:11.258319251Z")),
            r#"{"pid":41233,"session":"12057","acquired_at":"2026-08-20T14:03:11.258319251+00:00"}"#,
        );
        check(
            holder(Some(1), None, Some("2026-08-20T14:03:11Z")),
            r#"{"pid":1,"acquired_at":"2026-08-20T14:03:11+00:00"}"#,
        );
        check(holder(None, Some("a\"\n"), None), r#"{"session":"a\"\n"}"#);
        check(Holder::default(), "{}");
    }

    #[test]
    fn parsing_takes_what_makes_sense() {
        let check = |text: &str, expected: Option<Holder>| {
            assert_eq!(Holder::parse(text.as_bytes()), expected, "{text}");
        };
        check("", None);
        check("[]", None);
        check("{\"pid\":1", None);
        check(r#"{"pid":"1","session":5,"acquired_at":"yesterday"}"#, Some(Holder::default()));
        check(r#"{"pid":-1}"#, Some(Holder::default()));
        check(r#"{"pid":4294967296}"#, Some(Holder::default()));
        check(r#"{"more":{},"pid":7}"#, Some(holder(Some(7), None, None)));
        check(r#"{"acquired_at":"2026-08-20T16:03:11+02:00"}"#, Some(holder(None, None, Some("2026-08-20T14:03:11Z"))));
    }

    #[test]
    fn shown_to_a_person() {
        let check = |holder: Holder, expected: &str| assert_eq!(holder.to_string(), expected);
        check(holder(Some(12345), Some("12057"), None), "pid 12345, session 12057");
        check(holder(Some(12345), None, None), "pid 12345");
        check(holder(None, Some("%3"), None), "session %3");
        check(Holder::default(), "an unknown process");
        check(holder(None, Some("é\x1b[31m\u{202e}"), None), "session é\\u{1b}[31m\\u{202e}");
    }
}
