//! Instants as the store's files spell them. Nothing here reads a clock.
//!
//! Conversation files use the *native* spelling, `2025-07-19 00:00:05.1`, always UTC; session files, lock files and our
//! own JSON use RFC 3339.

use jiff::civil::{DateTime, Time};
use jiff::tz::Offset;

pub use jiff::Timestamp;

/// Reads an instant: the native spelling first, else RFC 3339 with any offset.
///
/// The native spelling allows one digit where two are usual, since people write it by hand; RFC 3339 does not.
pub fn parse(text: &str) -> Option<Timestamp> {
    parse_native(text).or_else(|| parse_rfc3339(text))
}

/// Spells an instant as conversation files do: UTC, no zone, the fraction without trailing zeros but never empty.
pub fn native(at: Timestamp) -> String {
    let utc = Offset::UTC.to_datetime(at);
    let fraction = format!("{:09}", utc.subsec_nanosecond());
    let digits = match fraction.trim_end_matches('0') {
        "" => "0",
        digits => digits,
    };
    format!("{} {}.{digits}", date(utc), time(utc))
}

/// Spells an instant as session files and our own JSON do: RFC 3339 with `Z` and 0, 3, 6 or 9 digits of fraction.
pub fn rfc3339(at: Timestamp) -> String {
    format!("{}Z", rfc3339_local(at))
}

/// Spells an instant as lock files do: like [`rfc3339`], with `+00:00` for `Z`.
pub fn rfc3339_offset(at: Timestamp) -> String {
    format!("{}+00:00", rfc3339_local(at))
}

fn rfc3339_local(at: Timestamp) -> String {
    let utc = Offset::UTC.to_datetime(at);
    let nanos = utc.subsec_nanosecond();
    let fraction = match nanos {
        0 => String::new(),
        _ if nanos % 1_000_000 == 0 => format!(".{:03}", nanos / 1_000_000),
        _ if nanos % 1_000 == 0 => format!(".{:06}", nanos / 1_000),
        _ => format!(".{nanos:09}"),
    };
    format!("{}T{}{fraction}", date(utc), time(utc))
}

fn date(at: DateTime) -> String {
    format!("{:04}-{:02}-{:02}", at.year(), at.month(), at.day())
}

fn time(at: DateTime) -> String {
    format!("{:02}:{:02}:{:02}", at.hour(), at.minute(), at.second())
}

fn parse_native(text: &str) -> Option<Timestamp> {
    let mut cursor = Cursor(text.as_bytes());
    let local = cursor.datetime(1, b" ")?;
    cursor.end()?;
    Offset::UTC.to_timestamp(local).ok()
}

fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let mut cursor = Cursor(text.as_bytes());
    let local = cursor.datetime(2, b"Tt ")?;
    let offset = cursor.offset()?;
    cursor.end()?;
    offset.to_timestamp(local).ok()
}

/// What is left to read.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    /// `min` is the least number of digits of everything after the year.
    fn datetime(&mut self, min: usize, separators: &[u8]) -> Option<DateTime> {
        let year = self.number(min * 2, 4)?;
        self.one_of(b"-")?;
        let month = self.number(min, 2)?;
        self.one_of(b"-")?;
        let day = self.number(min, 2)?;
        self.one_of(separators)?;
        let hour = self.number(min, 2)?;
        self.one_of(b":")?;
        let minute = self.number(min, 2)?;
        self.one_of(b":")?;
        // A leap second has no place of its own in a timestamp; it counts as the second before it.
        let second = match self.number(min, 2)? {
            60 => 59,
            second => second,
        };
        let nanos = self.fraction()?;
        let small = |number: i32| i8::try_from(number).ok();
        let date = jiff::civil::Date::new(i16::try_from(year).ok()?, small(month)?, small(day)?);
        let time = Time::new(small(hour)?, small(minute)?, small(second)?, nanos);
        Some(date.ok()?.to_datetime(time.ok()?))
    }

    /// Nothing, or a point with at least one digit. Digits beyond nanoseconds are dropped.
    fn fraction(&mut self) -> Option<i32> {
        if self.one_of(b".").is_none() {
            return Some(0);
        }
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        let mut nanos = 0;
        for place in 0..9 {
            let digit = if place < digits { self.0[place] - b'0' } else { 0 };
            nanos = nanos * 10 + i32::from(digit);
        }
        self.0 = &self.0[digits..];
        Some(nanos)
    }

    fn offset(&mut self) -> Option<Offset> {
        let sign = match self.one_of(b"Zz+-")? {
            b'+' => 1,
            b'-' => -1,
            _ => return Some(Offset::UTC),
        };
        let hours = self.number(2, 2)?;
        self.one_of(b":")?;
        let minutes = self.number(2, 2).filter(|minutes| *minutes < 60)?;
        Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
    }

    fn number(&mut self, min: usize, max: usize) -> Option<i32> {
        let digits = self.0.iter().take(max).take_while(|byte| byte.is_ascii_digit()).count();
        if digits < min {
            return None;
        }
        let (number, rest) = self.0.split_at(digits);
        self.0 = rest;
        Some(number.iter().fold(0, |sum, digit| sum * 10 + i32::from(digit - b'0')))
    }

    fn one_of(&mut self, choices: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        choices.contains(first).then(|| self.0 = rest)?;
        Some(*first)
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every spelling of the instant that `text` names.
    fn check(text: &str, expected: Option<[&str; 3]>) {
        let spelled = parse(text).map(|at| [native(at), rfc3339(at), rfc3339_offset(at)]);
        let expected = expected.map(|all| all.map(str::to_owned));
        assert_eq!(spelled, expected, "{text:?}");
    }

    #[test]
    fn spellings() {
        for (text, expected) in [
            (
                "2025-07-19 00:00:05.1",
                ["2025-07-19 00:00:05.1", "2025-07-19T00:00:05.100Z", "2025-07-19T00:00:05.100+00:00"],
            ),
            ("2025-07-19 00:00:05", ["2025-07-19 00:00:05.0", "2025-07-19T00:00:05Z", "2025-07-19T00:00:05+00:00"]),
            (
                "2026-08-20 14:03:11.482915",
                ["2026-08-20 14:03:11.482915", "2026-08-20T14:03:11.482915Z", "2026-08-20T14:03:11.482915+00:00"],
            ),
            (
                "2026-08-20T14:03:11.258319251+00:00",
                [
                    "2026-08-20 14:03:11.258319251",
                    "2026-08-20T14:03:11.258319251Z",
                    "2026-08-20T14:03:11.258319251+00:00",
                ],
            ),
            (
                "2026-01-01T01:30:00+02:00",
                ["2025-12-31 23:30:00.0", "2025-12-31T23:30:00Z", "2025-12-31T23:30:00+00:00"],
            ),
            (
                "2026-01-01 01:30:00.5-00:30",
                ["2026-01-01 02:00:00.5", "2026-01-01T02:00:00.500Z", "2026-01-01T02:00:00.500+00:00"],
            ),
            ("2026-01-01t01:30:00z", ["2026-01-01 01:30:00.0", "2026-01-01T01:30:00Z", "2026-01-01T01:30:00+00:00"]),
            (
                "2026-1-2 3:4:5.0000000019",
                [
                    "2026-01-02 03:04:05.000000001",
                    "2026-01-02T03:04:05.000000001Z",
                    "2026-01-02T03:04:05.000000001+00:00",
                ],
            ),
            ("2016-12-31 23:59:60", ["2016-12-31 23:59:59.0", "2016-12-31T23:59:59Z", "2016-12-31T23:59:59+00:00"]),
            (
                "1969-12-31 23:59:59.9",
                ["1969-12-31 23:59:59.9", "1969-12-31T23:59:59.900Z", "1969-12-31T23:59:59.900+00:00"],
            ),
        ] {
            check(text, Some(expected));
        }
    }

    #[test]
    fn refused() {
        for text in [
            "",
            "2025",
            "2025-07-19",
            "2025-07-19 00:00",
            "2025-07-19 00:00:05.",
            "2025-07-19 00:00:05 ",
            " 2025-07-19 00:00:05",
            "2025-07-19T00:00:05",
            "2025-7-19T00:00:05Z",
            "2025-02-29 00:00:00",
            "2025-13-01 00:00:00",
            "2025-07-19 24:00:00",
            "2025-07-19 00:00:61",
            "2025-07-19T00:00:05+0200",
            "2025-07-19T00:00:05+02:60",
            "2025-07-19T00:00:05+99:00",
            "2025-07-19T00:00:05Zulu",
            "12025-07-19 00:00:05",
            "２025-07-19 00:00:05",
        ] {
            check(text, None);
        }
    }
}
