//! A reader that walks JSON text and hands out slices of it. It builds no values and copies nothing.
//!
//! It accepts exactly what the parser of values accepts, down to the nesting limit, so that a file that was only scanned
//! can be parsed later. A value is handed out whole, quotes and brackets included.

use std::borrow::Cow;

use super::{JsonError, no_bom};

/// A place in a JSON text.
#[derive(Clone, Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

/// How deep values may nest; the parser of values has the same limit.
const DEPTH: usize = 127;

impl<'a> Scanner<'a> {
    /// Begins at the first value.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, JsonError> {
        no_bom(bytes)?;
        let text = std::str::from_utf8(bytes)
            .map_err(|error| JsonError::at(bytes, error.valid_up_to(), "not UTF-8").or_conflict(bytes))?;
        let mut scanner = Self { text, at: 0 };
        scanner.space();
        Ok(scanner)
    }

    /// Where the scanner stands.
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// The text from an earlier place to here.
    pub(crate) fn since(&self, start: usize) -> &'a str {
        &self.text[start..self.at]
    }

    /// Steps into an array or an object.
    pub(crate) fn open(&mut self, bracket: u8, wanted: &'static str) -> Result<(), JsonError> {
        match self.peek() {
            Some(byte) if byte == bracket => {
                self.at += 1;
                Ok(())
            }
            Some(_) => Err(self.fail(wanted)),
            None => Err(self.fail("the text ends too early")),
        }
    }

    /// Steps to the next item, or out of the array or object. `first` says that none has been read.
    pub(crate) fn more(&mut self, bracket: u8, first: bool) -> Result<bool, JsonError> {
        self.space();
        match self.peek() {
            Some(byte) if byte == bracket => {
                self.at += 1;
                Ok(false)
            }
            Some(b',') if !first => {
                self.at += 1;
                self.space();
                match self.peek() {
                    Some(byte) if byte == bracket => Err(self.fail("a comma with nothing after it")),
                    _ => Ok(true),
                }
            }
            Some(_) if first => Ok(true),
            Some(_) => Err(self.fail("expected a comma or the closing bracket")),
            None => Err(self.fail("the text ends too early")),
        }
    }

    /// Reads a key and its colon.
    pub(crate) fn key(&mut self) -> Result<Cow<'a, str>, JsonError> {
        let start = self.at;
        let escaped = self.quoted_key()?;
        let raw = self.since(start);
        self.colon()?;
        Ok(match escaped {
            true => unquote(raw).unwrap_or_default(),
            false => Cow::Borrowed(&raw[1..raw.len() - 1]),
        })
    }

    /// Reads one value that stands inside `depth` others.
    pub(crate) fn value(&mut self, depth: usize) -> Result<&'a str, JsonError> {
        let start = self.at;
        self.skip(depth)?;
        Ok(self.since(start))
    }

    /// Checks that nothing follows.
    pub(crate) fn end(&mut self) -> Result<(), JsonError> {
        self.space();
        match self.at == self.text.len() {
            true => Ok(()),
            false => Err(self.fail("more text after the end")),
        }
    }

    fn skip(&mut self, depth: usize) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'"') => self.string().map(|_| ()),
            Some(b'{') => self.nested(depth, b'}'),
            Some(b'[') => self.nested(depth, b']'),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            Some(_) => Err(self.fail("expected a value")),
            None => Err(self.fail("the text ends too early")),
        }
    }

    fn nested(&mut self, depth: usize, close: u8) -> Result<(), JsonError> {
        if depth >= DEPTH {
            return Err(self.fail("nested too deeply"));
        }
        self.at += 1;
        let mut first = true;
        while self.more(close, first)? {
            if close == b'}' {
                self.quoted_key()?;
                self.colon()?;
            }
            self.skip(depth + 1)?;
            first = false;
        }
        Ok(())
    }

    fn quoted_key(&mut self) -> Result<bool, JsonError> {
        match self.peek() {
            Some(b'"') => self.string(),
            _ => Err(self.fail("expected a key in double quotes")),
        }
    }

    fn colon(&mut self) -> Result<(), JsonError> {
        self.space();
        match self.peek() {
            Some(b':') => self.at += 1,
            _ => return Err(self.fail("expected a colon")),
        }
        self.space();
        Ok(())
    }

    /// Says whether there are escapes in the string.
    fn string(&mut self) -> Result<bool, JsonError> {
        let mut escaped = false;
        self.at += 1;
        loop {
            self.at += plain(&self.text.as_bytes()[self.at..]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return Err(self.fail("a control character inside a string")),
                None => return Err(self.fail("the text ends inside a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        match self.text.as_bytes().get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(())
            }
            Some(b'u') => match self.unit(self.at) {
                Some(0xd800..=0xdbff) => match self.unit(self.at + 6) {
                    Some(0xdc00..=0xdfff) => {
                        self.at += 12;
                        Ok(())
                    }
                    _ => Err(self.fail("half of a surrogate pair")),
                },
                Some(0xdc00..=0xdfff) => Err(self.fail("half of a surrogate pair")),
                Some(_) => {
                    self.at += 6;
                    Ok(())
                }
                None => Err(self.fail("expected four hexadecimal digits")),
            },
            _ => Err(self.fail("an unknown escape")),
        }
    }

    /// The code unit of the `\uXXXX` at a place.
    fn unit(&self, at: usize) -> Option<u16> {
        let escape = self.text.as_bytes().get(at..at + 6)?;
        let digits = escape.strip_prefix(br"\u")?;
        digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)? as u16))
    }

    fn number(&mut self) -> Result<(), JsonError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let count = self.text.as_bytes()[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        if count == 0 { Err(self.fail("expected a digit")) } else { Ok(()) }
    }

    fn literal(&mut self, word: &str) -> Result<(), JsonError> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.fail("expected a value"));
        }
        self.at += word.len();
        Ok(())
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[cold]
    fn fail(&self, reason: &'static str) -> JsonError {
        let bytes = self.text.as_bytes();
        JsonError::at(bytes, self.at, reason).or_conflict(bytes)
    }
}

/// The text of a string that the scanner handed out; nothing for any other value.
pub(crate) fn unquote(raw: &str) -> Option<Cow<'_, str>> {
    let inside = raw.strip_prefix('"')?.strip_suffix('"')?;
    match inside.contains('\\') {
        true => serde_json::from_str(raw).ok().map(Cow::Owned),
        false => Some(Cow::Borrowed(inside)),
    }
}

/// How many bytes at the front are neither a quote nor a backslash nor a control character.
///
/// Most of a conversation is inside strings, so this looks at eight bytes at a time. In each word, the lowest byte that
/// is flagged is flagged rightly; a borrow can only disturb the bytes above it.
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let is = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);

    let (words, rest) = bytes.as_chunks::<8>();
    for (index, chunk) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*chunk);
        let flags = (below(word, 0x20) | is(word, b'"') | is(word, b'\\')) & HIGHS;
        if flags != 0 {
            return index * 8 + flags.trailing_zeros() as usize / 8;
        }
    }
    words.len() * 8 + rest.iter().position(|byte| is_special(*byte)).unwrap_or(rest.len())
}

fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn scan(bytes: &[u8]) -> Result<&str, JsonError> {
        let mut scanner = Scanner::new(bytes)?;
        let value = scanner.value(0)?;
        scanner.end()?;
        Ok(value)
    }

    /// The scanner and the parser of values agree.
    fn check(text: &[u8]) {
        let parsed = serde_json::from_slice::<Value>(text);
        let scanned = scan(text);
        assert_eq!(scanned.is_ok(), parsed.is_ok(), "{:?}: {scanned:?} {parsed:?}", String::from_utf8_lossy(text));
        if let (Ok(scanned), Ok(parsed)) = (scanned, parsed) {
            assert_eq!(serde_json::from_str::<Value>(scanned).ok(), Some(parsed));
        }
    }

    #[test]
    fn agrees_with_the_parser() {
        for text in [
            "",
            " ",
            "{}",
            "[]",
            " [ ] ",
            "[1]",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1",
            "{",
            "}",
            "{\"a\":1}",
            "{\"a\" : 1 , \"b\":[]}",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "{\"a\":1,}",
            "{,}",
            "{\"a\":1]",
            "[1}",
            "0",
            "-0",
            "-",
            "01",
            "1.",
            ".1",
            "1.5e",
            "1e+5",
            "1E-5",
            "1e+",
            "+1",
            "NaN",
            "tru",
            "true",
            "truex",
            "null",
            "false",
            "nul",
            "\"",
            "\"a",
            "\"a\"b",
            "\"\\",
            r#""\n\/\b\f\r\t\"\\""#,
            r#""\x""#,
            r#""\u00e9""#,
            r#""\u00E""#,
            r#""\ud83c\udf89""#,
            r#""\ud83c""#,
            r#""\udf89""#,
            r#""\ud83c\u0041""#,
            r#""\ud83cx""#,
            r#""\u+123""#,
            "\"\t\"",
            "\"\u{7f}\"",
            "\"日本語 long enough for words\"",
            "[] x",
            "/* */ 1",
            "\u{a0}1",
            "1 ",
        ] {
            check(text.as_bytes());
        }
        check(b"\"\xff\"");
        check(b"\"\xed\xa0\x80\"");
    }

    #[test]
    fn nests_as_deep_as_the_parser() {
        for depth in [1, 126, 127, 128, 129, 100_000] {
            check(format!("{}{}", "[".repeat(depth), "]".repeat(depth)).as_bytes());
            check(format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)).as_bytes());
        }
    }

    #[test]
    fn finds_the_end_of_plain_text() {
        for length in 0..80 {
            for special in [b'"', b'\\', 0, 0x1f, b'\n'] {
                for filler in [b'a', b' ', 0x7f, 0x80, 0xff, b'!', b'#', b'[', b']'] {
                    let mut bytes = vec![filler; length];
                    assert_eq!(plain(&bytes), length);
                    bytes.extend([special, filler, special]);
                    assert_eq!(plain(&bytes), length, "{filler} {special}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_on_noise(text in r#"[\[\]{},:" \\utrefalsn0-9.eE+\-\n\x00é🎉]{0,24}"#) {
            check(text.as_bytes());
        }

        #[test]
        fn agrees_on_almost_json(cut in 0..200usize, byte in any::<u8>(), at in 0..200usize) {
            let whole = br#"[{"timestamp":"2025-07-19 00:00:05.1","type":"a\u00e9\"b","n":[-1.5e3,true,null,{"x":{}}],"s":"\ud83c\udf89 tail"}]"#;
            let mut text = whole.to_vec();
            text.truncate(text.len().saturating_sub(cut.saturating_sub(100)));
            if let Some(place) = text.get_mut(at) {
                *place = byte;
            }
            check(&text);
        }
    }
}
