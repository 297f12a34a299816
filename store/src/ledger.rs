//! What one worktree remembers: which conversations it is meant to show, and what the last reconcile left behind. The
//! content of `projection.json` as a value.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::disk::Stat;
use crate::id::ConversationId;
use crate::presence::Projection;
use crate::reconcile::Base;

/// The ledger of one worktree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// The `.jp` directory it was made for; a ledger of another directory is void.
    #[serde(default)]
    workspace: Option<Identity>,
    /// The last writer here was a mount, so the real files may be behind.
    #[serde(default)]
    pub covered: bool,
    #[serde(default)]
    conversations: BTreeMap<ConversationId, Entry>,
}

/// Tells a directory from another that took its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    device: u64,
    inode: u64,
    birth: Option<i64>,
}

impl From<Stat> for Identity {
    fn from(stat: Stat) -> Self {
        Self { device: stat.dev, inode: stat.ino, birth: stat.birth }
    }
}

/// What is remembered of one conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Whether it is meant to be here.
    pub intent: Projection,
    /// What the last reconcile left behind; `None` when it has not been here since the intent was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// Files of it that are not shown in this worktree, as paths relative to its directory. The store has them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hidden: BTreeSet<String>,
}

impl Entry {
    /// Meant to be here or not, and nothing else known.
    pub fn new(intent: Projection) -> Self {
        Self { intent, base: None, hidden: BTreeSet::new() }
    }
}

impl Ledger {
    /// An empty ledger for this directory.
    pub fn new(workspace: Identity) -> Self {
        Self { workspace: Some(workspace), ..Self::default() }
    }

    /// The ledger in these bytes, if they are one and it was made for this directory.
    pub fn parse(bytes: &[u8], workspace: Identity) -> Option<Self> {
        let ledger: Self = serde_json::from_slice(bytes).ok()?;
        (ledger.workspace == Some(workspace)).then_some(ledger)
    }

    /// As bytes: one line for each conversation, so that a person can read it and a diff is short.
    pub fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        let mut out = format!("{{\n\"workspace\": {},\n", serde_json::to_string(&self.workspace)?);
        if self.covered {
            out.push_str("\"covered\": true,\n");
        }
        out.push_str("\"conversations\": {");
        for (i, (id, entry)) in self.conversations.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            out.push_str(&format!("{comma}\n\"{}\": {}", id.deciseconds(), serde_json::to_string(entry)?));
        }
        out.push_str("\n}\n}\n");
        Ok(out.into_bytes())
    }

    /// What is remembered of a conversation.
    pub fn get(&self, id: ConversationId) -> Option<&Entry> {
        self.conversations.get(&id)
    }

    /// Remembers; `true` if that is news.
    pub fn set(&mut self, id: ConversationId, entry: Entry) -> bool {
        let news = self.get(id) != Some(&entry);
        self.conversations.insert(id, entry);
        news
    }

    /// Everything that is remembered, by id.
    pub fn entries(&self) -> impl Iterator<Item = (ConversationId, &Entry)> {
        self.conversations.iter().map(|(&id, entry)| (id, entry))
    }

    /// What is remembered of a conversation, to be changed; where nothing is, it is not meant to be here.
    pub(crate) fn entry(&mut self, id: ConversationId) -> &mut Entry {
        self.conversations.entry(id).or_insert_with(|| Entry::new(Projection::LocalOnly))
    }

    /// Forgets a conversation; `true` if it was known.
    pub fn forget(&mut self, id: ConversationId) -> bool {
        self.conversations.remove(&id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::{Digest, FileBase, Stamp};

    #[test]
    fn survives_its_file_and_is_void_elsewhere() {
        let here = Identity { device: 1, inode: 2, birth: Some(3) };
        let id = ConversationId::new(17528832001).unwrap();
        let mut ledger = Ledger::new(here);
        let stamp = Stamp { mtime: 1_752_883_200_123_456_789, size: 9, ino: u64::MAX };
        let file = FileBase { digest: Some(Digest::of(b"x")), store: Some(stamp), work: None };
        let entry = Entry {
            intent: Projection::Projected,
            base: Some(Base { files: [file, FileBase::default(), FileBase::default()], taken: 5 }),
            hidden: ["notes/plan \"b\".md", "events.json"].map(String::from).into(),
        };
        assert!(ledger.set(id, entry.clone()));
        assert!(!ledger.set(id, entry));
        let bytes = ledger.to_bytes().unwrap();
        assert_eq!(Ledger::parse(&bytes, here), Some(ledger.clone()));
        assert_eq!(Ledger::parse(&bytes, Identity { inode: 9, ..here }), None);
        assert_eq!(Ledger::parse(b"{", here), None);
        let cut = &bytes[..bytes.len() / 2];
        assert_eq!(Ledger::parse(cut, here), None);
        ledger.covered = true;
        assert_eq!(Ledger::parse(&ledger.to_bytes().unwrap(), here), Some(ledger.clone()));
        ledger.covered = false;
        assert!(ledger.forget(id));
        assert_eq!(Ledger::parse(&ledger.to_bytes().unwrap(), here), Some(Ledger::new(here)));
    }
}
