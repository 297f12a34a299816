//! What is wrong with a store, as values. Nothing here mends anything.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::disk::NotRegular;
use crate::error::Error;
use crate::id::ConversationId;
use crate::json::JsonError;
use crate::plan::{LOST, lost};
use crate::reconcile::Root;
use crate::snapshot::HoldCause;

/// Something a person should know about. The view stays sane in spite of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The conversation, where there is one.
    pub id: Option<ConversationId>,
    /// Where to look.
    pub path: PathBuf,
    /// What is wrong.
    pub what: What,
}

impl Problem {
    /// What an error says about a conversation. `place` is where to look when the error does not tell.
    pub(crate) fn unreadable(id: ConversationId, error: &Error, place: &Path) -> Self {
        let (path, reason) = told(error, place);
        Self { id: Some(id), path, what: What::Unreadable { reason } }
    }

    /// The same, where it is a conversation's children that cannot be listed.
    pub(crate) fn unlisted(id: ConversationId, error: &Error) -> Self {
        let (path, reason) = told(error, Path::new(""));
        Self { id: Some(id), path, what: What::Unlisted { reason } }
    }

    /// What the system says, where it refuses.
    pub(crate) fn refusal(&self) -> Option<&str> {
        match &self.what {
            What::Unreadable { reason } | What::Unlisted { reason } => Some(reason),
            _ => None,
        }
    }
}

/// Where to look, and why.
fn told(error: &Error, place: &Path) -> (PathBuf, String) {
    match error {
        Error::Io { path, source, .. } => {
            (path.clone(), error.wrong_kind().map_or_else(|| source.to_string(), |kind| kind.to_string()))
        }
        other => (place.to_owned(), other.to_string()),
    }
}

/// The kinds of trouble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A managed file does not parse, or has the wrong shape.
    Broken {
        /// Which copy.
        root: Root,
        /// Why.
        reason: JsonError,
    },
    /// A managed file that must be there is not.
    Missing {
        /// Which copy.
        root: Root,
    },
    /// The system refuses to read it.
    Unreadable {
        /// What the system says.
        reason: String,
    },
    /// A managed file of the copy in the worktree is not a regular file. The store's copy is read in its place.
    Irregular {
        /// What it is.
        kind: NotRegular,
    },
    /// The system refuses to list its children: any conversation may be among them.
    Unlisted {
        /// What the system says.
        reason: String,
    },
    /// A second directory with the same id; the other one is in use.
    Duplicate,
    /// A directory among conversations whose name is no conversation's.
    Stranger,
    /// `parent_id` is no id; the conversation is shown as if it had none.
    GarbageParent {
        /// What stands there.
        text: String,
    },
    /// The parent is not in the store; the conversation is shown as a root.
    MissingParent {
        /// The parent it names.
        parent: ConversationId,
    },
    /// The parents form a circle, which is cut here.
    Cycle {
        /// The parent it names.
        parent: ConversationId,
    },
    /// The mirror of parents does not parse. Metadata that names its parent is not affected.
    Mirror {
        /// Why.
        reason: JsonError,
    },
    /// Another silo of the same workspace, to be merged by the next command that writes.
    UnmergedSilo,
    /// A copy in the worktree of a conversation that the store had and was not told to remove.
    Lost {
        /// The conversation.
        id: ConversationId,
    },
    /// The real files and the store are not brought in step.
    NotSynced {
        /// Why.
        reason: String,
    },
    /// A copy in the worktree that is not joined with the store's conversation before the user says so.
    Held {
        /// The conversation.
        id: ConversationId,
        /// Why.
        cause: HoldCause,
    },
}

impl What {
    /// Whether content cannot be read, as opposed to an oddity that is shown sanely.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Broken { .. }
            | Self::Missing { .. }
            | Self::Unreadable { .. }
            | Self::Irregular { .. }
            | Self::Unlisted { .. } => true,
            Self::Duplicate
            | Self::Stranger
            | Self::GarbageParent { .. }
            | Self::MissingParent { .. }
            | Self::Cycle { .. }
            | Self::Mirror { .. }
            | Self::UnmergedSilo
            | Self::Lost { .. }
            | Self::NotSynced { .. }
            | Self::Held { .. } => false,
        }
    }

    /// One word for machines.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Broken { .. } => "broken",
            Self::Missing { .. } => "missing",
            Self::Unreadable { .. } | Self::Irregular { .. } | Self::Unlisted { .. } => "unreadable",
            Self::Duplicate => "duplicate",
            Self::Stranger => "stranger",
            Self::GarbageParent { .. } => "garbage-parent",
            Self::MissingParent { .. } => "missing-parent",
            Self::Cycle { .. } => "cycle",
            Self::Mirror { .. } => "mirror",
            Self::UnmergedSilo => "unmerged-silo",
            Self::Lost { .. } => "lost",
            Self::NotSynced { .. } | Self::Held { .. } => "held",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken { reason, .. } => write!(f, "{reason}"),
            Self::Missing { .. } => f.write_str("the file is missing"),
            Self::Unreadable { reason } | Self::Unlisted { reason } => write!(f, "cannot be read: {reason}"),
            Self::Irregular { kind } => write!(f, "cannot be read: {kind}"),
            Self::Duplicate => f.write_str("a second directory with the same id; the other one is in use"),
            Self::Stranger => f.write_str("not a conversation's directory name"),
            Self::GarbageParent { text } => write!(f, "parent_id is not a conversation id: {text}"),
            Self::MissingParent { parent } => write!(f, "its parent {parent} is not here; shown as a root"),
            Self::Cycle { parent } => write!(f, "its parents form a circle through {parent}; shown as a root"),
            Self::Mirror { reason } => write!(f, "the mirror of parents does not parse: {reason}"),
            Self::UnmergedSilo => f.write_str("another silo of this workspace; the next command that writes merges it"),
            Self::Lost { id } => f.write_str(&lost(*id, LOST)),
            Self::NotSynced { reason } => f.write_str(reason),
            Self::Held { id, cause } => f.write_str(&cause.describe(*id)),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}
