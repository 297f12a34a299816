//! Bytes saved through the mount that the store cannot take yet: one draft for each file, shared by all who have it open.
//! A value, and the text it is kept as; reading and writing files is somebody else's affair.

use std::sync::Arc;

use jp_store::json::JsonError;
use jp_store::observe;
use jp_store::reconcile::{Digest, ManagedFile};
use serde::{Deserialize, Serialize};

use crate::error::{FsError, Result};

/// No draft grows beyond this: it is held in memory.
pub const LIMIT: u64 = 1 << 30;

/// A draft of one managed file.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The bytes as they are now.
    pub bytes: Arc<Vec<u8>>,
    /// What the store had when the draft began; `None` when it had nothing.
    pub base: Option<Digest>,
    /// Why the store does not take it; `None` while that is not known, or when it only waits.
    pub reason: Option<JsonError>,
    /// It is good, but somebody holds the conversation.
    pub waiting: bool,
    /// When it changed last, in nanoseconds since the epoch.
    pub changed: i64,
    /// Whether its file is what is here, reason and all, and would survive a power loss.
    pub kept: bool,
    /// Whether its file has these bytes.
    pub on_disk: OnDisk,
}

/// What the file of a draft has. It is a file like any other: what is written survives us, but not yet a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDisk {
    /// Not these bytes, or there is none.
    No,
    /// These bytes.
    Yes,
    /// These bytes, beneath a header of this length that stays true when some are added.
    Open(u64),
}

/// Takes a change of a draft back. It has what the change went over and no more: drafts are large and changes small.
#[derive(Debug)]
pub struct Undo {
    length: usize,
    start: usize,
    bytes: Vec<u8>,
    /// The draft as it was, but for its bytes.
    rest: Draft,
}

impl Undo {
    /// Where the bytes begin that the change added, if it did nothing but add some.
    pub fn grown_from(&self, draft: &Draft) -> Option<usize> {
        (self.start == self.length && draft.bytes.len() >= self.length).then_some(self.length)
    }

    /// The draft as it was before the change that this one has seen.
    pub fn apply(self, draft: Draft) -> Draft {
        let mut bytes = draft.bytes;
        let all = Arc::make_mut(&mut bytes);
        all.resize(self.length, 0);
        all[self.start..self.start + self.bytes.len()].copy_from_slice(&self.bytes);
        Draft { bytes, ..self.rest }
    }
}

/// What stands above the bytes in a draft's file.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    base: Option<Digest>,
    reason: Option<Reason>,
    since: String,
    waiting: Option<String>,
    changed: i64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Reason {
    line: usize,
    column: usize,
    reason: String,
}

impl Draft {
    /// A draft that begins as what the store has.
    pub fn of(bytes: Option<Vec<u8>>, now: i64) -> Self {
        let base = bytes.as_deref().map(Digest::of);
        Self {
            bytes: Arc::new(bytes.unwrap_or_default()),
            base,
            reason: None,
            waiting: false,
            changed: now,
            kept: false,
            on_disk: OnDisk::No,
        }
    }

    /// Writes into it; a gap before the place is filled with zeros.
    pub fn write(&mut self, offset: u64, data: &[u8], now: i64) -> Result<Undo> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= LIMIT).ok_or(FsError::TooLarge)?;
        let (start, end) = (offset as usize, end as usize);
        let undo = self.undo(start, end);
        let bytes = Arc::make_mut(&mut self.bytes);
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(data);
        self.touch(now);
        Ok(undo)
    }

    /// Writes at its end.
    pub fn append(&mut self, data: &[u8], now: i64) -> Result<Undo> {
        self.write(self.bytes.len() as u64, data, now)
    }

    /// Makes it so long.
    pub fn truncate(&mut self, size: u64, now: i64) -> Result<Undo> {
        if size > LIMIT {
            return Err(FsError::TooLarge);
        }
        let undo = self.undo(size as usize, usize::MAX);
        Arc::make_mut(&mut self.bytes).resize(size as usize, 0);
        self.touch(now);
        Ok(undo)
    }

    /// How to take back what is about to be done to a part of it.
    fn undo(&self, start: usize, end: usize) -> Undo {
        let length = self.bytes.len();
        let start = start.min(length);
        let bytes = self.bytes[start..end.clamp(start, length)].to_vec();
        Undo { length, start, bytes, rest: Self { bytes: Arc::default(), ..self.clone() } }
    }

    /// Makes it these bytes.
    pub fn replace(&mut self, bytes: Vec<u8>, now: i64) {
        self.bytes = Arc::new(bytes);
        self.touch(now);
    }

    fn touch(&mut self, now: i64) {
        self.changed = now.max(self.changed);
        self.kept = false;
        self.on_disk = OnDisk::No;
        self.reason = None;
        self.waiting = false;
    }

    /// Whether it is the same draft, in the same state, as one that was cloned from it.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes) && (self.changed, self.waiting) == (other.changed, other.waiting)
    }

    /// As its file has it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let since = jp_store::time::Timestamp::from_nanosecond(i128::from(self.changed)).unwrap_or_default();
        let header = Header {
            base: self.base,
            reason: self.reason.as_ref().map(|error| Reason {
                line: error.line,
                column: error.column,
                reason: error.reason.clone(),
            }),
            since: jp_store::time::rfc3339(since),
            waiting: self.waiting.then(|| "lock".to_owned()),
            changed: self.changed,
        };
        // A header of plain values is always JSON.
        let mut out = serde_json::to_vec(&header).unwrap_or_default();
        out.push(b'\n');
        out.extend_from_slice(&self.bytes);
        out
    }

    /// What a file of this length is to the draft, once that has been written to it.
    pub fn once_written(&self, length: usize) -> OnDisk {
        if self.reason.is_none() && !self.waiting {
            OnDisk::Open((length - self.bytes.len()) as u64)
        } else {
            OnDisk::Yes
        }
    }

    /// From its file.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let end = text.iter().position(|byte| *byte == b'\n')?;
        let header: Header = serde_json::from_slice(&text[..end]).ok()?;
        let reason = header.reason.map(|it| JsonError { line: it.line, column: it.column, reason: it.reason });
        Some(Self {
            bytes: Arc::new(text[end + 1..].to_vec()),
            base: header.base,
            reason,
            waiting: header.waiting.is_some(),
            changed: header.changed,
            kept: true,
            on_disk: OnDisk::Yes,
        })
    }
}

/// Whether bytes are a whole document of this kind. [`is_half`] tells most half-written ones without parsing them.
pub fn whole(file: ManagedFile, bytes: &[u8]) -> Result<(), JsonError> {
    observe::check(file, bytes)
}

/// Whether bytes cannot be whole: they do not end as a document of this kind does. Says nothing about those that do.
pub fn is_half(file: ManagedFile, bytes: &[u8]) -> bool {
    let last = bytes.iter().rev().find(|byte| !byte.is_ascii_whitespace());
    let close = match file {
        ManagedFile::Metadata | ManagedFile::BaseConfig => b'}',
        ManagedFile::Events => b']',
    };
    last != Some(&close)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_fill_gaps_and_have_a_limit() {
        let mut draft = Draft::of(Some(b"abc".to_vec()), 1);
        draft.write(5, b"x", 2).unwrap();
        assert_eq!(**draft.bytes, *b"abc\0\0x");
        draft.write(0, b"A", 1).unwrap();
        assert_eq!((draft.bytes[0], draft.changed), (b'A', 2));
        draft.truncate(1, 3).unwrap();
        assert_eq!(**draft.bytes, *b"A");
        assert!(draft.truncate(LIMIT + 1, 3).is_err());
        assert!(draft.write(u64::MAX, b"x", 3).is_err());
        assert!(draft.write(LIMIT, b"x", 3).is_err());
        assert_eq!(draft.base, Some(Digest::of(b"abc")));
    }

    #[test]
    fn a_change_is_taken_back() {
        let draft = || Draft { kept: true, ..Draft::of(Some(b"abcdef".to_vec()), 1) };
        for (offset, data) in [(0, "xyz"), (4, "12345"), (6, "!"), (9, "far"), (2, "")] {
            let mut changed = draft();
            let undo = changed.write(offset, data.as_bytes(), 2).unwrap();
            let back = undo.apply(changed);
            assert_eq!((&**back.bytes, back.changed, back.kept), (&b"abcdef"[..], 1, true), "{data} at {offset}");
        }
        for size in [0, 3, 6, 10] {
            let mut changed = draft();
            let undo = changed.truncate(size, 2).unwrap();
            assert_eq!(changed.bytes.len() as u64, size);
            assert_eq!(**undo.apply(changed).bytes, *b"abcdef", "{size}");
        }
    }

    #[test]
    fn pieces_go_where_the_draft_is() {
        let mut draft = Draft::of(Some(vec![b' '; 1 << 20]), 1);
        let place = draft.bytes.as_ptr();
        draft.write(5, b"x", 2).unwrap();
        assert_eq!(draft.bytes.as_ptr(), place, "nothing is copied for a small change");
    }

    #[test]
    fn survives_its_file() {
        let mut draft = Draft::of(None, 5_000_000_000);
        draft.replace(b"{\n\"a\":\n".to_vec(), 6_000_000_000);
        draft.reason = Some(JsonError { line: 2, column: 4, reason: "odd".to_owned() });
        draft.waiting = true;
        let back = Draft::parse(&draft.to_bytes()).unwrap();
        assert_eq!((back.bytes, back.base, back.reason), (draft.bytes, None, draft.reason));
        assert!(back.waiting && back.kept && back.changed == 6_000_000_000);
        assert!(Draft::parse(b"").is_none() && Draft::parse(b"{}\n").is_none() && Draft::parse(b"x\ny").is_none());
    }

    #[test]
    fn no_proper_prefix_is_whole() {
        for (file, text) in [
            (ManagedFile::Events, r#"[{"type":"turn_start","timestamp":"2025-07-19 00:00:00.0","x":[{"a":[{}]}]}]"#),
            (ManagedFile::Metadata, r#"{"last_activated_at":"2025-07-19 00:00:00.0","labels":{"a":"}"}}"#),
            (ManagedFile::BaseConfig, r#"{"a":{"b":{}}}"#),
        ] {
            assert!(whole(file, text.as_bytes()).is_ok() && !is_half(file, text.as_bytes()), "{text}");
            for end in 0..text.len() {
                let half = &text.as_bytes()[..end];
                assert!(is_half(file, half) || whole(file, half).is_err(), "{end} of {text}");
            }
        }
    }
}
