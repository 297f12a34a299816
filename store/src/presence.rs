//! Where a conversation is, and where it is meant to be. Facts and intents go in, one answer comes out; no disk.

use serde::{Deserialize, Serialize};

/// Which roots hold a conversation: a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StoragePresence {
    /// In the store only; not shown in this worktree.
    #[serde(rename = "local")]
    UserLocalOnly,
    /// In the store and in this worktree.
    #[serde(rename = "projected")]
    Projected,
    /// In this worktree only: it came by git, and nothing has been written to it yet.
    #[serde(rename = "external")]
    WorkspaceOnly,
}

impl StoragePresence {
    /// The word for it in listings and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::UserLocalOnly => "local",
            Self::Projected => "projected",
            Self::WorkspaceOnly => "external",
        }
    }
}

/// Whether a conversation is meant to be in this worktree: an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Projection {
    /// The store only.
    #[serde(rename = "local")]
    LocalOnly,
    /// The store and this worktree.
    #[serde(rename = "projected")]
    Projected,
}

/// What is known of one conversation in one worktree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The store has it.
    pub in_store: bool,
    /// The worktree has it.
    pub in_work: bool,
    /// The remembered intent.
    pub remembered: Option<Projection>,
    /// A base is remembered: it has been in this worktree since the intent was last set.
    pub exported: bool,
}

/// Reads the facts. `None` when no root has the conversation.
pub fn presence(facts: Facts) -> Option<StoragePresence> {
    match (facts.in_store, facts.in_work) {
        (true, true) => Some(StoragePresence::Projected),
        (true, false) => Some(StoragePresence::UserLocalOnly),
        (false, true) => Some(StoragePresence::WorkspaceOnly),
        (false, false) => None,
    }
}

/// What the next write is meant to leave behind.
pub fn intent(facts: Facts) -> Projection {
    match (facts.in_work, facts.remembered, facts.exported) {
        // What is there is meant to be there.
        (true, Some(_) | None, true | false) => Projection::Projected,
        // Never written here since it was meant to be: an ancestor is hidden, and it comes back with that ancestor.
        (false, Some(Projection::Projected), false) => Projection::Projected,
        // It was here and somebody removed it.
        (false, Some(Projection::Projected), true) => Projection::LocalOnly,
        (false, Some(Projection::LocalOnly) | None, true | false) => Projection::LocalOnly,
    }
}

/// Both at once where the workspace's real files are covered: what is remembered is all there is.
pub fn covered(remembered: Option<Projection>) -> (StoragePresence, Projection) {
    match remembered.unwrap_or(Projection::LocalOnly) {
        Projection::LocalOnly => (StoragePresence::UserLocalOnly, Projection::LocalOnly),
        Projection::Projected => (StoragePresence::Projected, Projection::Projected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination() {
        let mut rows = Vec::new();
        for in_store in [false, true] {
            for in_work in [false, true] {
                for remembered in [None, Some(Projection::LocalOnly), Some(Projection::Projected)] {
                    for exported in [false, true] {
                        let facts = Facts { in_store, in_work, remembered, exported };
                        rows.push((facts, presence(facts), intent(facts)));
                    }
                }
            }
        }
        for (facts, presence, intent) in &rows {
            assert_eq!(presence.is_some(), facts.in_store || facts.in_work, "{facts:?}");
            assert_eq!(*presence == Some(StoragePresence::WorkspaceOnly), facts.in_work && !facts.in_store);
            if facts.in_work {
                assert_eq!(*intent, Projection::Projected, "{facts:?}");
            }
            if facts.remembered != Some(Projection::Projected) && !facts.in_work {
                assert_eq!(*intent, Projection::LocalOnly, "{facts:?}");
            }
        }
        let pending: Vec<_> =
            rows.iter().filter(|(facts, _, intent)| !facts.in_work && *intent == Projection::Projected).collect();
        assert!(pending.iter().all(|(facts, ..)| !facts.exported) && pending.len() == 2);
    }
}
