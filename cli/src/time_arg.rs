//! Instants as people type them: a conversation's id, how long ago, a date, or RFC 3339.

use std::str::FromStr;

use jp_store::ConversationId;
use jp_store::time::Timestamp;

/// An instant, or a distance from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeArg {
    /// This instant.
    At(Timestamp),
    /// This long before now.
    Ago(std::time::Duration),
}

impl TimeArg {
    /// The instant that is meant, as seen from `now`.
    pub(crate) fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(span) => now.checked_sub(span).unwrap_or(Timestamp::MIN),
        }
    }
}

impl FromStr for TimeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Digits alone are an id here as everywhere, if there are too many of them for a date.
        let digits = text.len() > "YYYYMMDD".len() && text.bytes().all(|byte| byte.is_ascii_digit());
        let id = if digits { ConversationId::parse_loose(text) } else { text.parse().ok() };
        if let Some(id) = id {
            return Ok(Self::At(id.timestamp()));
        }
        if let Ok(date) = text.parse::<jiff::civil::Date>()
            && text.len() == "YYYY-MM-DD".len()
        {
            let midnight = jiff::tz::Offset::UTC.to_timestamp(date.at(0, 0, 0, 0));
            return midnight.map(Self::At).map_err(|error| error.to_string());
        }
        if let Some(at) = jp_store::time::parse(text) {
            return Ok(Self::At(at));
        }
        humantime::parse_duration(text)
            .map(Self::Ago)
            .map_err(|_| "not a time; try `2h`, `2025-07-19`, `2025-07-19T08:00:00Z` or a conversation id".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form() {
        let now: Timestamp = "2025-07-19T12:00:00Z".parse().unwrap();
        let check = |text: &str, expected: Option<&str>| {
            let found = text.parse::<TimeArg>().ok().map(|arg| arg.at(now).to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        };
        check("jp-c17528832001", Some("2025-07-19T00:00:00.1Z"));
        check("17528832001", Some("2025-07-19T00:00:00.1Z"));
        check("2h", Some("2025-07-19T10:00:00Z"));
        check("1day 30m", Some("2025-07-18T11:30:00Z"));
        check("2025-07-18", Some("2025-07-18T00:00:00Z"));
        check("2025-07-18T08:00:00+02:00", Some("2025-07-18T06:00:00Z"));
        check("2025-07-18 08:00:00", Some("2025-07-18T08:00:00Z"));
        check("20250718", None);
        check("2025-13-01", None);
        check("yesterday", None);
        check("", None);
    }
}
