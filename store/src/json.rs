//! JSON text, read with its place of failure and written as the store's files are. Nothing here knows what a key means.
//!
//! # Limitations
//!
//! Of a key that occurs twice below the top level, the last one counts. Numbers keep every digit, but an exponent is
//! written with its sign: `1e400` becomes `1e+400`.

mod scan;

use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub(crate) use scan::{Scanner, unquote};

/// A JSON object with its keys in file order and its numbers as written.
pub type Object = serde_json::Map<String, Value>;

const MERGE_MARKER: &str = "unresolved merge conflict marker";

/// What is wrong with a JSON text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// The line, from 1; 0 when there is no place to point at.
    pub line: usize,
    /// The byte in that line, from 1.
    pub column: usize,
    /// What is wrong.
    pub reason: String,
}

impl JsonError {
    /// An error without a place.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { line: 0, column: 0, reason: reason.into() }
    }

    /// An error at a byte of the text.
    pub(crate) fn at(bytes: &[u8], offset: usize, reason: impl Into<String>) -> Self {
        let before = &bytes[..offset.min(bytes.len())];
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Self { line, column: before.len() - start + 1, reason: reason.into() }
    }

    fn of(bytes: &[u8], error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let place = format!(" at line {line} column {column}");
        let reason = text.strip_suffix(&place).unwrap_or(&text).to_owned();
        Self { line, column: if line == 0 { 0 } else { column.max(1) }, reason }.or_conflict(bytes)
    }

    /// Whether the text is one that a merge left markers in.
    pub fn is_merge_marker(&self) -> bool {
        self.reason == MERGE_MARKER
    }

    /// An unmerged file fails wherever its first marker happens to confuse the parser; the marker is what to tell.
    pub(crate) fn or_conflict(self, bytes: &[u8]) -> Self {
        let marker = |line: &[u8]| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            line.starts_with(b"<<<<<<< ") || line.starts_with(b"=======") || line.starts_with(b">>>>>>> ")
        };
        match bytes.split(|byte| *byte == b'\n').position(marker) {
            Some(line) => Self { line: line + 1, column: 1, reason: MERGE_MARKER.to_owned() },
            None => self,
        }
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.reason),
            line => write!(f, "line {line}, column {}: {}", self.column, self.reason),
        }
    }
}

impl std::error::Error for JsonError {}

/// Reads one object. A key that occurs twice at the top level is an error: one of its values would be lost.
pub fn object(bytes: &[u8]) -> Result<Object, JsonError> {
    read::<Unique>(bytes).map(|Unique(object)| object)
}

/// Reads one array.
pub fn array(bytes: &[u8]) -> Result<Vec<Value>, JsonError> {
    read(bytes)
}

/// Reads one value of any kind.
pub fn value(bytes: &[u8]) -> Result<Value, JsonError> {
    read(bytes)
}

/// Writes a value as the store's files have it: two spaces of indentation and one newline at the end.
///
/// What cannot be JSON, such as a map with keys that are no strings, gives no bytes at all; no type of this crate is
/// like that.
pub fn pretty(value: &impl Serialize) -> Vec<u8> {
    match serde_json::to_vec_pretty(value) {
        Ok(mut bytes) => {
            bytes.push(b'\n');
            bytes
        }
        Err(_) => Vec::new(),
    }
}

fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, JsonError> {
    no_bom(bytes)?;
    serde_json::from_slice(bytes).map_err(|error| JsonError::of(bytes, &error))
}

fn no_bom(bytes: &[u8]) -> Result<(), JsonError> {
    match bytes.starts_with(b"\xef\xbb\xbf") {
        true => Err(JsonError { line: 1, column: 1, reason: "starts with a byte order mark (BOM)".to_owned() }),
        false => Ok(()),
    }
}

/// An object in which no key occurs twice.
struct Unique(Object);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueVisitor)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Unique;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique, A::Error> {
        let mut object = Object::new();
        while let Some(key) = map.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key `{key}` occurs twice")));
            }
            let value = map.next_value()?;
            object.insert(key, value);
        }
        // With no room to spare: there may be a hundred thousand of them.
        Ok(Unique(object.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outcome of [`object`]: compact JSON, or the error as a person sees it.
    fn check(text: &str, expected: &str) {
        let shown = match object(text.as_bytes()) {
            Ok(object) => Value::Object(object).to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{text:?}");
    }

    #[test]
    fn objects() {
        check(r#" {"b": 1.10, "a": 1e400} "#, r#"{"b":1.10,"a":1e+400}"#);
        check("{\r\n}", "{}");
        check(r#"{"a": {"b": 1, "b": 2}}"#, r#"{"a":{"b":2}}"#);
        check(r#"{"a": 1, "a": 2}"#, "line 1, column 12: the key `a` occurs twice");
        check("[]", "line 1, column 1: invalid type: sequence, expected an object");
        check("null", "line 1, column 4: invalid type: null, expected an object");
        check("", "line 1, column 1: EOF while parsing a value");
        check("{}\n{}", "line 2, column 1: trailing characters");
        check("{\n  \"a\": 1,\n}", "line 3, column 1: trailing comma");
        check("{ // no\n}", "line 1, column 3: key must be a string");
        check("\u{feff}{}", "line 1, column 1: starts with a byte order mark (BOM)");
    }

    #[test]
    fn conflicts() {
        let marker = |line| format!("line {line}, column 1: unresolved merge conflict marker");
        check("{\n<<<<<<< HEAD\n\"a\": 1\n=======\n\"a\": 2\n>>>>>>> x\n}\n", &marker(2));
        check("{\r\n  \"a\": 1\r\n=======\r\n}\r\n", &marker(3));
        check("{\n\"a\": 1 \"b\"\n>>>>>>> x\n}\n", &marker(3));
        // A marker inside a string of a good file is text.
        check(r#"{"a": "<<<<<<< HEAD\n=======\n"}"#, r#"{"a":"<<<<<<< HEAD\n=======\n"}"#);
    }

    #[test]
    fn arrays_and_values() {
        assert_eq!(array(b"[1, \"a\"]").map(|items| items.len()), Ok(2));
        assert_eq!(
            array(b"{}").map_err(|error| error.to_string()),
            Err("line 1, column 1: invalid type: map, expected a sequence".to_owned())
        );
        assert_eq!(value(b"null"), Ok(Value::Null));
        assert!(value(b"\"\xff\"").is_err());
        assert!(value("[".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn errors_without_a_place() {
        assert_eq!(JsonError::new("odd").to_string(), "odd");
        assert_eq!(JsonError::at(b"ab\ncd", 4, "odd").to_string(), "line 2, column 2: odd");
        assert_eq!(JsonError::at(b"", 9, "odd").to_string(), "line 1, column 1: odd");
    }

    #[test]
    fn written() {
        let object = object(r#"{"z":[],"a":{"é":[1,{}]},"n":1.50}"#.as_bytes()).expect("an object");
        let expected = "{\n  \"z\": [],\n  \"a\": {\n    \"é\": [\n      1,\n      {}\n    ]\n  },\n  \"n\": 1.50\n}\n";
        assert_eq!(String::from_utf8_lossy(&pretty(&object)), expected);
    }
}
