//! Tells by its bytes that a file has nothing to be found in it, long before it could be decoded. In doubt it does not.

use jp_store::events::{self, Scope};
use memchr::memmem;
use regex::{Regex, bytes};

use super::search::Case;

/// What a file must have in it to be worth decoding.
pub(super) struct Sieve<'a> {
    decoded: &'a Regex,
    raw: bytes::Regex,
}

impl<'a> Sieve<'a> {
    /// One for these patterns, which `decoded` is the expression of; `None` where bytes tell nothing.
    pub(super) fn new(patterns: &[String], regex: bool, case: Case, decoded: &'a Regex) -> Option<Self> {
        if regex || !patterns.iter().all(|pattern| is_verbatim(pattern)) {
            return None;
        }
        let ignore = case.is_ignored(patterns, regex);
        let raw = bytes::RegexBuilder::new(decoded.as_str()).case_insensitive(ignore).build().ok()?;
        Some(Self { decoded, raw })
    }

    /// Whether any text of an `events.json` may match.
    pub(super) fn lets_through(&self, file: &[u8]) -> bool {
        if self.is_suspect(file) {
            return true;
        }
        if memmem::find(file, b"\"tool_call_").is_none() {
            return false;
        }
        // What tools were asked and what they answered is encoded; the rest was looked at.
        events::texts(file, |scope| matches!(scope, Scope::ToolCall | Scope::ToolResult))
            .any(|text| text.map_or(true, |text| self.decoded.is_match(&text.text)))
    }

    /// Whether the words are there, or something that may stand for them.
    fn is_suspect(&self, bytes: &[u8]) -> bool {
        memmem::find(bytes, b"\\u").is_some() || self.raw.is_match(bytes)
    }
}

/// Whether a pattern that matches a text stands in the file as it was typed, unless it is escaped. Marks may be escaped,
/// space between words may be where data is laid out, and numbers may be spelt anew.
fn is_verbatim(pattern: &str) -> bool {
    let is_word = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-');
    let words = pattern.split(' ');
    let spelt = |char: char| char.is_alphabetic() && !matches!(char, 'e' | 'E');
    words.into_iter().all(|word| !word.is_empty() && word.chars().all(is_word)) && pattern.chars().any(spelt)
}

#[cfg(test)]
mod tests {
    use super::super::search::expression;
    use super::*;

    /// What a sieve for this pattern says to these events; `None` when there is none.
    fn lets_through(pattern: &str, case: Case, events: &str) -> Option<bool> {
        let patterns = [pattern.to_owned()];
        let decoded = expression(&patterns, false, case).unwrap();
        Some(Sieve::new(&patterns, false, case, &decoded)?.lets_through(events.as_bytes()))
    }

    fn event(kind: &str, rest: &str) -> String {
        format!(r#"[{{"timestamp": "2025-01-01 00:00:00.0", "type": "{kind}", {rest}}}]"#)
    }

    #[test]
    fn what_bytes_tell() {
        let said = event("chat_request", r#""content": "Zwei Größen\nand a zebra""#);
        for (pattern, case, expected) in [
            ("zebra", Case::Smart, true),
            ("ZEBRA", Case::Smart, false),
            ("ZEBRA", Case::Ignore, true),
            ("and a", Case::Smart, true),
            ("größen", Case::Smart, true),
            ("giraffe", Case::Smart, false),
        ] {
            assert_eq!(lets_through(pattern, case, &said), Some(expected), "{pattern}");
        }
    }

    #[test]
    fn what_may_stand_for_the_words_goes_through() {
        let escaped = event("chat_request", r#""content": "\u007aebra""#);
        assert_eq!(lets_through("zebra", Case::Smart, &escaped), Some(true));
        // "the zebra", as tools' answers are kept.
        let answer = "dGhlIHplYnJh";
        let told = event("tool_call_response", &format!(r#""content": "{answer}""#));
        assert_eq!(lets_through("zebra", Case::Smart, &told), Some(true));
        assert_eq!(lets_through("giraffe", Case::Smart, &told), Some(false));
        let asked = event("tool_call_request", &format!(r#""name": "look", "arguments": {{"at": "{answer}"}}"#));
        assert_eq!(lets_through("zebra", Case::Smart, &asked), Some(true));
        // Whoever decodes it says what is wrong with it.
        assert_eq!(lets_through("giraffe", Case::Smart, &told[..told.len() - 2]), Some(true));
    }

    #[test]
    fn patterns_that_bytes_cannot_be_asked_for() {
        for pattern in ["a/b", "say \"no\"", "a\\b", "key: value", "a  b", " a", "a ", "123", "1e5", "", "a\nb", "a,b"]
        {
            assert_eq!(lets_through(pattern, Case::Smart, "[]"), None, "{pattern:?}");
        }
        let patterns = ["a.b".to_owned()];
        let decoded = expression(&patterns, true, Case::Smart).unwrap();
        assert!(Sieve::new(&patterns, true, Case::Smart, &decoded).is_none());
    }
}
