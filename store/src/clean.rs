//! Makes foreign text harmless: what would move a cursor, change a colour or turn the reading direction is shown.

use std::borrow::Cow;
use std::fmt::Write as _;

/// For one line: nothing in it ends the line, and no tab begins a column.
pub fn clean(text: &str) -> Cow<'_, str> {
    escape(text, is_unsafe)
}

/// For a block of text: lines and tabs stay.
pub fn clean_block(text: &str) -> Cow<'_, str> {
    escape(text, |char| is_unsafe(char) && !matches!(char, '\n' | '\t'))
}

/// For a JSON document: the same characters, in the spelling that JSON has for them. Outside of strings it has none.
pub fn clean_json(text: &str) -> Cow<'_, str> {
    let is_unsafe = |char| is_unsafe(char) && !matches!(char, '\n' | '\t');
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_unsafe(char) {
            let _ = write!(out, "\\u{:04x}", char as u32);
        } else {
            out.push(char);
        }
    }
    Cow::Owned(out)
}

fn escape(text: &str, is_unsafe: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        match char {
            char if !is_unsafe(char) => out.push(char),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            char if char.is_ascii() => {
                let _ = write!(out, "\\x{:02x}", char as u32);
            }
            char => {
                let _ = write!(out, "\\u{{{:x}}}", char as u32);
            }
        }
    }
    Cow::Owned(out)
}

fn is_unsafe(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            // Marks, embeddings, overrides and isolates that change the reading direction; line and paragraph ends.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_blocks() {
        let check = |text: &str, line: &str, block: &str| {
            assert_eq!((&*clean(text), &*clean_block(text)), (line, block), "{text:?}");
        };
        check("", "", "");
        check("Grüße 日本語 👩‍💻", "Grüße 日本語 👩‍💻", "Grüße 日本語 👩‍💻");
        check("a\nb\tc", "a\\nb\\tc", "a\nb\tc");
        check("a\r\nb", "a\\r\\nb", "a\\r\nb");
        check("\u{1b}[31mred\u{7}", "\\x1b[31mred\\x07", "\\x1b[31mred\\x07");
        check("\0\u{7f}\u{9b}2J", "\\x00\\x7f\\u{9b}2J", "\\x00\\x7f\\u{9b}2J");
        check("abc\u{202e}fed\u{2069}", "abc\\u{202e}fed\\u{2069}", "abc\\u{202e}fed\\u{2069}");
        check("x\u{2028}y", "x\\u{2028}y", "x\\u{2028}y");
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "a": "\u{9b}2J \u{202e}\u{7f}\u{1b} Grüße\n" });
        let text = serde_json::to_string_pretty(&value).unwrap();
        let clean = clean_json(&text);
        assert!(clean.contains("\\u009b2J \\u202e\\u007f\\u001b Grüße\\n"), "{clean}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&clean).unwrap(), value);
    }
}
