//! The elements of `events.json` as slices of its bytes. No values are built, and what an element says is not judged.

use std::borrow::Cow;

use jiff::Timestamp;

use super::text::Scope;
use crate::json::{JsonError, Scanner, unquote};
use crate::time;

/// What a listing needs to know of `events.json`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skim {
    /// How many elements there are, of whatever type.
    pub count: usize,
    /// The timestamp of the last one, if it has a good one.
    pub last_at: Option<Timestamp>,
}

/// One element, read but not decoded.
#[derive(Clone, Debug)]
pub struct Element<'a> {
    /// Its text: one whole JSON object.
    pub raw: &'a str,
    /// Its `type`, if that is a string.
    pub kind: Option<Cow<'a, str>>,
    /// Its `timestamp` as written, if that is a string.
    pub timestamp: Option<Cow<'a, str>>,
    /// Where a text search would count it.
    pub scope: Option<Scope>,
    /// Which of the two keys that must be there is there twice.
    twice: Option<&'static str>,
    offset: usize,
}

/// The elements in order. After an error there are no more.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    bytes: &'a [u8],
    state: State<'a>,
}

/// Counts the elements and finds the time of the last, in one pass over the bytes.
///
/// Fails on anything but one well-formed JSON array of objects.
pub fn skim(bytes: &[u8]) -> Result<Skim, JsonError> {
    summary(bytes, |_| Ok(()))
}

/// Does what [`skim`] does, and fails on an element without a `timestamp` and a `type`, each a string that occurs once.
pub fn validate(bytes: &[u8]) -> Result<Skim, JsonError> {
    summary(bytes, |element| {
        let reason = match (&element.timestamp, &element.kind) {
            (Some(_), Some(_)) => match element.twice {
                Some(key) => format!("the key `{key}` occurs twice"),
                None => return Ok(()),
            },
            (None, _) => "an event without a `timestamp` string".to_owned(),
            (Some(_), None) => "an event without a `type` string".to_owned(),
        };
        Err(JsonError::at(bytes, element.offset, reason))
    })
}

/// Reads the elements one by one.
pub fn elements(bytes: &[u8]) -> Elements<'_> {
    Elements { bytes, state: State::Fresh }
}

#[derive(Clone, Debug)]
enum State<'a> {
    Fresh,
    /// The flag says that no element has been read.
    Inside(Scanner<'a>, bool),
    Done,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, JsonError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.step() {
            Ok(Some(element)) => Some(Ok(element)),
            Ok(None) => {
                self.state = State::Done;
                None
            }
            Err(error) => {
                self.state = State::Done;
                Some(Err(error))
            }
        }
    }
}

impl<'a> Elements<'a> {
    fn step(&mut self) -> Result<Option<Element<'a>>, JsonError> {
        if let State::Fresh = self.state {
            let mut scanner = Scanner::new(self.bytes)?;
            scanner.open(b'[', "expected an array")?;
            self.state = State::Inside(scanner, true);
        }
        let State::Inside(scanner, first) = &mut self.state else {
            return Ok(None);
        };
        if scanner.more(b']', *first)? {
            *first = false;
            return Element::read(scanner).map(Some);
        }
        scanner.end()?;
        Ok(None)
    }
}

impl<'a> Element<'a> {
    fn read(scanner: &mut Scanner<'a>) -> Result<Self, JsonError> {
        let offset = scanner.offset();
        scanner.open(b'{', "expected an object")?;
        let (mut kind, mut timestamp) = (None, None);
        let (mut kinds, mut timestamps) = (0_usize, 0_usize);
        let (mut message, mut reasoning, mut data) = (false, false, false);
        let mut first = true;
        while scanner.more(b'}', first)? {
            first = false;
            let key = scanner.key()?;
            let value = scanner.value(2)?;
            match &*key {
                "timestamp" => {
                    timestamp = unquote(value);
                    timestamps += 1;
                }
                "type" => {
                    kind = unquote(value);
                    kinds += 1;
                }
                "message" => message = value.starts_with('"'),
                "reasoning" => reasoning = value.starts_with('"'),
                "data" => data = true,
                _ => {}
            }
        }
        let scope = Scope::of(kind.as_deref().unwrap_or_default(), message, reasoning, data);
        let twice = match (timestamps, kinds) {
            (2.., _) => Some("timestamp"),
            (_, 2..) => Some("type"),
            (0 | 1, 0 | 1) => None,
        };
        Ok(Self { raw: scanner.since(offset), kind, timestamp, scope, twice, offset })
    }

    /// The `timestamp` as an instant, if it is one.
    pub fn at(&self) -> Option<Timestamp> {
        time::parse(self.timestamp.as_deref()?)
    }
}

fn summary(bytes: &[u8], check: impl Fn(&Element<'_>) -> Result<(), JsonError>) -> Result<Skim, JsonError> {
    let mut count = 0;
    let mut last = None;
    for element in elements(bytes) {
        let element = element?;
        check(&element)?;
        count += 1;
        last = Some(element);
    }
    Ok(Skim { count, last_at: last.and_then(|element| element.at()) })
}
