//! Why a draft is not committed by a command. A value: it is the same with a mount, whose process tells it through its
//! control socket, and without one.

use jp_store::json::JsonError;
use jp_store::reconcile::{Digest, ManagedFile};
use serde::{Deserialize, Serialize};

use crate::draft::{self, Draft};

/// Why a draft is not committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum Refusal {
    /// There is no draft.
    Absent,
    /// The store does not have the conversation.
    Gone,
    /// It is not a document of its kind.
    Invalid {
        /// 0 if it is about the whole document.
        line: usize,
        /// Where in the line.
        column: usize,
        /// What is wrong.
        reason: String,
    },
    /// The store's file was changed after the draft began.
    MovedOn {
        /// How many bytes the store's file has; `None` if it is gone.
        store: Option<u64>,
        /// How many bytes the draft has.
        draft: u64,
    },
    /// The store does not take it, for this reason: its parent, for instance.
    Refused {
        /// The reason.
        reason: String,
    },
    /// A new conversation that is not whole yet.
    Needs {
        /// What it needs.
        needs: String,
    },
}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        Self::Invalid { line: error.line, column: error.column, reason: error.reason }
    }
}

/// Refuses a draft that is not a document of its kind, and without `force` one whose base is not what the store has.
pub fn check(file: ManagedFile, draft: &Draft, current: Option<&[u8]>, force: bool) -> Result<(), Refusal> {
    draft::whole(file, &draft.bytes)?;
    let same = current == Some(&**draft.bytes);
    if force || same || current.map(Digest::of) == draft.base {
        return Ok(());
    }
    let store = current.map(|bytes| bytes.len() as u64);
    Err(Refusal::MovedOn { store, draft: draft.bytes.len() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_drafts_of_what_the_store_has() {
        let events = |text: &str, base: Option<&str>| {
            let mut draft = Draft::of(base.map(|base| base.as_bytes().to_vec()), 1);
            draft.replace(text.as_bytes().to_vec(), 2);
            draft
        };
        let try_it = |draft: &Draft, current: Option<&str>, force| {
            check(ManagedFile::Events, draft, current.map(str::as_bytes), force)
        };
        let good = events("[]", Some("[ ]"));
        assert_eq!(try_it(&good, Some("[ ]"), false), Ok(()));
        assert_eq!(try_it(&good, Some("[]"), false), Ok(()), "the store has it already");
        let moved = Err(Refusal::MovedOn { store: Some(3), draft: 2 });
        assert_eq!(try_it(&good, Some("[\n]"), false), moved);
        assert_eq!(try_it(&good, Some("[\n]"), true), Ok(()));
        assert_eq!(try_it(&good, None, false), Err(Refusal::MovedOn { store: None, draft: 2 }));
        assert_eq!(try_it(&events("[]", None), None, false), Ok(()));
        for force in [false, true] {
            let broken = try_it(&events("[\n{,", None), None, force);
            assert!(matches!(broken, Err(Refusal::Invalid { line: 2, .. })), "{broken:?}");
        }
    }
}
