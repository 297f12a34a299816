//! What a reconcile is going to do, as a value: one step for each thing that changes. Nothing here reads a disk or a clock.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::id::ConversationId;
use crate::reconcile::Root;

/// Which way things may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The real files become what the store has. What was edited in them reaches the store first; what only they have
    /// stays as it is.
    Out,
    /// The store gets what arrived in the real files. What only the store has news of is not written out.
    In,
    /// Both.
    Both,
}

/// What is to be brought in step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which way.
    pub direction: Direction,
    /// Only these conversations; `None` for all.
    pub only: Option<BTreeSet<ConversationId>>,
    /// The form the real files have from now on; `None` for the one this worktree keeps.
    pub form: Option<Form>,
}

/// The form of the real files, kept by each worktree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Form {
    /// Where children lie.
    pub nesting: Nesting,
    /// Whether each conversation is also written as text for people.
    pub transcripts: bool,
}

/// Where children lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Nesting {
    /// Beneath their parents.
    #[default]
    Nested,
    /// Beside them.
    Flat,
}

impl Wanted {
    /// Everything, this way.
    pub fn all(direction: Direction) -> Self {
        Self { direction, only: None, form: None }
    }

    /// Whether it is about this conversation.
    pub fn includes(&self, id: ConversationId) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&id))
    }
}

/// One thing that changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Step {
    /// Whose.
    pub id: ConversationId,
    /// What is done.
    #[serde(flatten)]
    pub deed: Deed,
    /// Where, relative to the workspace's conversations.
    pub path: PathBuf,
}

/// What is done in one step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Deed {
    /// The conversation is copied out, whole.
    Copy,
    /// Its copy goes from one place to another.
    Move {
        /// Where it is.
        from: PathBuf,
    },
    /// A real file gets the store's bytes.
    Write,
    /// A real file goes, because the store has none.
    Remove,
    /// The copy goes: it is not meant to be here, and holds nothing of its own.
    Withdraw,
    /// The conversation enters the store, whole.
    Import,
    /// A file of the store gets the real one's bytes.
    Take,
    /// Both sides changed; the newer one counts and the other is kept.
    Conflict {
        /// Whose bytes count.
        winner: Root,
    },
    /// The copy, or one of its files, was removed: it is hidden here from now on. The store keeps it.
    Hide,
    /// The copy was moved: the conversation hangs elsewhere from now on.
    Reparent {
        /// Its parent.
        parent: Option<ConversationId>,
    },
    /// The copy was moved into the archive.
    Archive,
    /// The copy was moved out of the archive.
    Unarchive,
    /// The copy has another name: that is its title from now on.
    Retitle {
        /// The title.
        title: String,
    },
}

/// Something that is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Held {
    /// Whose, where that is known.
    pub id: Option<ConversationId>,
    /// Why.
    pub reason: String,
}

/// Everything that would be done, and what would be left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// What would be done, in order.
    pub steps: Vec<Step>,
    /// What would be left, and why.
    pub held: Vec<Held>,
}
