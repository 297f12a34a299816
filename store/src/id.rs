//! The name of a conversation: the instant it was created, in tenths of a second. Nothing here knows which ids are taken.

use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A conversation's id. It prints as `jp-c17528832001` and is a bare integer in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u64", try_from = "u64")]
pub struct ConversationId(u64);

/// Why a text is no conversation id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// It does not begin as ids do.
    #[error("an id begins with `jp-c`")]
    Prefix,
    /// What should be a number is none.
    #[error("an id is `jp-c` followed by digits")]
    Digits,
    /// The number stands for an instant that cannot be represented.
    #[error("an id is at most jp-c{MAX}")]
    Range,
    /// The part after the second dash is no workspace id.
    #[error("a workspace id after a conversation id is lowercase letters and digits")]
    Workspace,
}

/// The last decisecond whose nanoseconds fit 64 signed bits.
const MAX: u64 = 92_233_720_368;

/// What filesystems allow for one name, in bytes.
const NAME_MAX: usize = 255;

/// How much of a title goes into a directory name: characters are taken up to this many, and a title of more bytes
/// loses its last word.
const TITLE_MAX: usize = 60;

impl ConversationId {
    /// The id of this many tenths of a second since the epoch, if that instant can be represented.
    pub fn new(deciseconds: u64) -> Option<Self> {
        (deciseconds <= MAX).then_some(Self(deciseconds))
    }

    /// Tenths of a second since the epoch.
    pub fn deciseconds(self) -> u64 {
        self.0
    }

    /// The id of an instant, truncated to a tenth of a second. Instants outside the range get the nearest id.
    pub fn at(instant: Timestamp) -> Self {
        let tenths = instant.as_nanosecond().div_euclid(100_000_000);
        Self(u64::try_from(tenths.max(0)).unwrap_or(MAX).min(MAX))
    }

    /// The instant the id stands for.
    pub fn timestamp(self) -> Timestamp {
        // Every id is in range of a timestamp, so the default is never taken.
        Timestamp::from_nanosecond(i128::from(self.0) * 100_000_000).unwrap_or_default()
    }

    /// The id a tenth of a second later.
    pub fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    /// Reads bare digits or what [`FromStr`] reads.
    pub fn parse_loose(text: &str) -> Option<Self> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Self::from_number(text).ok();
        }
        text.parse().ok()
    }

    /// Reads the id off a directory name: the number before the first `-`.
    ///
    /// A plus sign and leading zeros are accepted, so several names can stand for one id; see
    /// [`is_canonical_dirname`](Self::is_canonical_dirname).
    pub fn from_dirname(name: &OsStr) -> Option<Self> {
        // The slug need not be UTF-8: it is cosmetic, and the id before it still says whose directory this is.
        let digits = name.as_encoded_bytes().split(|byte| *byte == b'-').next()?;
        Self::from_number(std::str::from_utf8(digits).ok()?).ok()
    }

    /// Whether a directory name is the plain digits of this id, alone or followed by `-` and anything.
    pub fn is_canonical_dirname(self, name: &str) -> bool {
        name.strip_prefix(&self.0.to_string()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    /// The directory name for this id and title. The slug is cosmetic: the title cannot be read back from it.
    pub fn dirname(self, title: Option<&str>) -> String {
        let title = title.unwrap_or_default();
        let dashed: String =
            title.trim().chars().take(TITLE_MAX).map(|char| if char.is_alphanumeric() { char } else { '-' }).collect();
        let slug = dashed.trim_end_matches('-').to_lowercase();
        let mut name = self.0.to_string();
        if !slug.is_empty() {
            name.push('-');
            name.push_str(&slug);
        }
        if title.len() > TITLE_MAX
            && let Some(dash) = name.rfind('-')
        {
            name.truncate(dash);
        }
        name.truncate(name.floor_char_boundary(NAME_MAX));
        name
    }

    /// Reads a number as `i64` does: a plus sign and leading zeros are fine.
    fn from_number(text: &str) -> Result<Self, IdError> {
        let digits = text.strip_prefix('+').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(IdError::Digits);
        }
        digits.parse().ok().and_then(Self::new).ok_or(IdError::Range)
    }
}

impl fmt::Display for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `pad` lets a table align ids.
        f.pad(&format!("jp-c{}", self.0))
    }
}

impl FromStr for ConversationId {
    type Err = IdError;

    /// Reads `jp-c<digits>`, optionally followed by `-<workspace>`, which is checked and ignored.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let target = text.strip_prefix("jp-c").ok_or(IdError::Prefix)?;
        let (number, workspace) = match target.split_once('-') {
            Some((number, workspace)) => (number, Some(workspace)),
            None => (target, None),
        };
        let id = Self::from_number(number)?;
        match workspace {
            Some(workspace) if !is_workspace(workspace) => Err(IdError::Workspace),
            Some(_) | None => Ok(id),
        }
    }
}

impl From<ConversationId> for u64 {
    fn from(id: ConversationId) -> Self {
        id.0
    }
}

impl TryFrom<u64> for ConversationId {
    type Error = IdError;

    fn try_from(deciseconds: u64) -> Result<Self, IdError> {
        Self::new(deciseconds).ok_or(IdError::Range)
    }
}

fn is_workspace(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|char| char.is_ascii_lowercase() || char.is_numeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(deciseconds: u64) -> ConversationId {
        ConversationId::new(deciseconds).expect("in range")
    }

    #[test]
    fn strict() {
        fn check(text: &str, expected: Result<u64, IdError>) {
            let parsed = text.parse::<ConversationId>().map(ConversationId::deciseconds);
            assert_eq!(parsed, expected, "{text:?}");
        }
        check("jp-c17528832001", Ok(17_528_832_001));
        check("jp-c17662164715-otvo8", Ok(17_662_164_715));
        check("jp-c5-٣", Ok(5));
        check("jp-c+5", Ok(5));
        check("jp-c007", Ok(7));
        check("jp-c0", Ok(0));
        check("jp-c92233720368", Ok(MAX));
        check("jp-c92233720369", Err(IdError::Range));
        check("jp-c99999999999999999999999", Err(IdError::Range));
        check("jp-c", Err(IdError::Digits));
        check("jp-c+", Err(IdError::Digits));
        check("jp-c++5", Err(IdError::Digits));
        check("jp-c-5", Err(IdError::Digits));
        check("jp-c5 ", Err(IdError::Digits));
        check("jp-c٣", Err(IdError::Digits));
        check("jp-c5-", Err(IdError::Workspace));
        check("jp-c5-Otvo8", Err(IdError::Workspace));
        check("jp-c5-a-b", Err(IdError::Workspace));
        check("JP-c5", Err(IdError::Prefix));
        check("jp-x5", Err(IdError::Prefix));
        check("17528832001", Err(IdError::Prefix));
        check("", Err(IdError::Prefix));
    }

    #[test]
    fn loose() {
        fn check(text: &str, expected: Option<u64>) {
            let parsed = ConversationId::parse_loose(text).map(ConversationId::deciseconds);
            assert_eq!(parsed, expected, "{text:?}");
        }
        check("17528832001", Some(17_528_832_001));
        check("0017", Some(17));
        check("jp-c17-otvo8", Some(17));
        check("+17", None);
        check("17-otvo8", None);
        check("92233720369", None);
        check("", None);
    }

    #[test]
    fn dirnames_read() {
        fn check(name: &str, expected: Option<u64>, canonical: bool) {
            let parsed = ConversationId::from_dirname(OsStr::new(name));
            assert_eq!(parsed.map(ConversationId::deciseconds), expected, "{name:?}");
            assert_eq!(parsed.is_some_and(|id| id.is_canonical_dirname(name)), canonical, "{name:?}");
        }
        check("17528832001", Some(17_528_832_001), true);
        check("17528832001-", Some(17_528_832_001), true);
        check("17528832001--foo", Some(17_528_832_001), true);
        check("1752", Some(1752), true);
        check("+17528832001", Some(17_528_832_001), false);
        check("00017528832001-a", Some(17_528_832_001), false);
        check("17528832001.foo", None, false);
        check("jp-c17528832001", None, false);
        check("-17528832001", None, false);
        check(".17528832001", None, false);
        check("", None, false);
        assert!(!id(1752).is_canonical_dirname("17528832001"));
    }

    #[test]
    fn dirname_with_a_slug_that_is_no_text() {
        use std::os::unix::ffi::OsStrExt as _;
        assert_eq!(ConversationId::from_dirname(OsStr::from_bytes(b"17-\xff")), Some(id(17)));
        assert_eq!(ConversationId::from_dirname(OsStr::from_bytes(b"17\xff-a")), None);
    }

    #[test]
    fn dirnames_written() {
        fn check(title: &str, expected: &str) {
            assert_eq!(id(17_528_832_001).dirname(Some(title)), expected, "{title:?}");
        }
        check("Hello World", "17528832001-hello-world");
        check("  Hello World\n", "17528832001-hello-world");
        check("(foo) bar", "17528832001--foo--bar");
        check(r"a_b.c/d\e", "17528832001-a-b-c-d-e");
        check("../../etc/passwd", "17528832001-------etc-passwd");
        check("emoji 🎉 party", "17528832001-emoji---party");
        check(&"A".repeat(60), &format!("17528832001-{}", "a".repeat(60)));
        check(&"A".repeat(70), "17528832001");
        check(&"日".repeat(24), "17528832001");
        check(
            "日本語 日本語 日本語 日本語 日本語 日本語 日本語",
            "17528832001-日本語-日本語-日本語-日本語-日本語-日本語",
        );
        check(
            "one two three four five six seven eight nine ten eleven twelve",
            "17528832001-one-two-three-four-five-six-seven-eight-nine-ten-eleven",
        );
        // The bytes of the untrimmed title count.
        check(&format!("{}one two", " ".repeat(54)), "17528832001-one");
        check("İstanbul", "17528832001-i\u{307}stanbul");
        check("!!!", "17528832001");
        check(&"!".repeat(70), "17528832001");
        check("", "17528832001");
        assert_eq!(id(17_528_832_001).dirname(None), "17528832001");
    }

    #[test]
    fn dirnames_are_legal_names() {
        for char in ['A', 'İ', 'ẞ', 'Ⱥ', '日', '𐐀', '𠀀', '/', '\0', '🎉'] {
            for length in [1, 15, 30, 59, 60, 61, 300] {
                for tail in ["", " word"] {
                    let title: String = std::iter::repeat_n(char, length).chain(tail.chars()).collect();
                    let name = id(MAX).dirname(Some(&title));
                    assert!(name.len() <= NAME_MAX && !name.contains(['/', '\0']), "{name:?}");
                    assert!(id(MAX).is_canonical_dirname(&name), "{name:?}");
                }
            }
        }
    }

    #[test]
    fn instants() {
        fn check(text: &str, expected: u64, back: &str) {
            let made = ConversationId::at(crate::time::parse(text).expect("a date"));
            assert_eq!(made.deciseconds(), expected, "{text}");
            assert_eq!(crate::time::native(made.timestamp()), back, "{text}");
        }
        check("2025-07-19 00:00:00.199999999", 17_528_832_001, "2025-07-19 00:00:00.1");
        check("1970-01-01 00:00:00", 0, "1970-01-01 00:00:00.0");
        check("1969-12-31 23:59:59.99", 0, "1970-01-01 00:00:00.0");
        check("9999-01-01 00:00:00", MAX, "2262-04-11 23:47:16.8");
        assert_eq!(id(5).next(), Some(id(6)));
        assert_eq!(id(MAX).next(), None);
    }

    #[test]
    fn json() {
        assert_eq!(serde_json::to_string(&id(17_528_832_001)).expect("serialises"), "17528832001");
        for (text, expected) in [
            ("17528832001", Some(id(17_528_832_001))),
            ("92233720369", None),
            ("-1", None),
            ("1.5", None),
            ("\"17528832001\"", None),
        ] {
            assert_eq!(serde_json::from_str(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn display_pads() {
        assert_eq!(format!("[{:>8}]", id(5)), "[   jp-c5]");
    }
}
