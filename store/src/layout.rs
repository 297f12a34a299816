//! Where things live under the two roots. Path arithmetic only; no disk.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::id::ConversationId;
use crate::ledger::At;
use crate::modes::Access;
use crate::reconcile::ManagedFile;

/// The directory name of a workspace's storage.
pub const STORAGE: &str = ".jp";
/// The directory of conversations in any root, and of children in a projected conversation.
pub const CONVERSATIONS: &str = "conversations";
/// The partition of archived conversations.
pub const ARCHIVE: &str = ".archive";
/// The partition of conversations that could not be read.
pub const TRASH: &str = ".trash";
/// Scratch space in the workspace's conversations; dot-directories are passed over by every reader.
pub const WORK_TMP: &str = ".tmp";

/// The paths of one workspace: the durable root and, where there are two, the workspace's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The project directory, which holds `.jp`.
    pub project: PathBuf,
    /// The `.jp` directory.
    pub storage: PathBuf,
    /// The durable root.
    pub store: StoreRoot,
    /// Other silos of the same workspace, not yet merged into the store.
    pub siblings: Vec<StoreRoot>,
    /// The workspace's conversations; `None` when there is no user-local storage and the workspace is the only root, and
    /// while they are covered: what there is no path to is neither looked at nor touched.
    pub work: Option<WorkRoot>,
    /// Whether something is mounted over the workspace's conversations. Its real files follow when that ends.
    pub covered: bool,
    /// Names this worktree's own state within the store.
    pub worktree: String,
}

impl Layout {
    /// Whether the workspace is the only root.
    pub fn is_single_root(&self) -> bool {
        self.work.is_none() && !self.covered
    }

    /// Who may reach what is made in the store. Where the workspace is the only root, the store is in the worktree.
    pub fn store_access(&self) -> Access {
        if self.is_single_root() { Access::Shared } else { Access::Private }
    }

    /// The same workspace with something mounted over its conversations. One that is the only root stays as it is.
    pub fn cover(self) -> Self {
        let covered = self.work.is_some();
        Self { work: None, covered: self.covered || covered, ..self }
    }

    /// Where the project shows its conversations, as real files or through a mount.
    pub fn shown(&self) -> WorkRoot {
        WorkRoot { conversations: self.storage.join(CONVERSATIONS) }
    }

    /// The name that new conversations carry as their origin: the worktree's directory name.
    pub fn origin(&self) -> Option<String> {
        self.project.file_name().map(|name| name.to_string_lossy().into_owned())
    }

    /// The state of this worktree.
    pub fn worktree_state(&self) -> PathBuf {
        self.store.vfs().join(&self.worktree)
    }

    /// Which conversations are projected here, and what the last reconcile left behind.
    pub fn projection_file(&self) -> PathBuf {
        self.worktree_state().join("projection.json")
    }

    /// What changed in the projection since its file was written.
    pub fn journal_file(&self) -> PathBuf {
        self.worktree_state().join("journal")
    }

    /// Guards the projection file, its journal and the workspace's tree of directories.
    pub fn projection_lock(&self) -> PathBuf {
        self.worktree_state().join("projection.lock")
    }
}

/// The flat, durable root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRoot {
    /// The silo directory, or `.jp` where it is the only root.
    pub dir: PathBuf,
}

impl StoreRoot {
    /// Live conversations.
    pub fn conversations(&self) -> PathBuf {
        self.dir.join(CONVERSATIONS)
    }

    /// One partition.
    pub fn partition(&self, partition: Partition) -> PathBuf {
        partition.beneath(&self.conversations())
    }

    /// Conversations that could not be read.
    pub fn trash(&self) -> PathBuf {
        self.conversations().join(TRASH)
    }

    /// Lock files.
    pub fn locks(&self) -> PathBuf {
        self.dir.join("locks")
    }

    /// Session files.
    pub fn sessions(&self) -> PathBuf {
        self.dir.join("sessions")
    }

    /// The link back to the workspace that last used the store.
    pub fn storage_link(&self) -> PathBuf {
        self.dir.join("storage")
    }

    /// Everything that is ours alone.
    pub fn vfs(&self) -> PathBuf {
        self.dir.join("vfs")
    }

    /// The mirror of parent links and origins.
    pub fn tree_file(&self) -> PathBuf {
        self.vfs().join("tree.json")
    }

    /// What changed in the mirror since its file was written.
    pub fn tree_journal(&self) -> PathBuf {
        self.vfs().join("tree.journal")
    }

    /// Metadata that need not be read again.
    pub fn index(&self) -> PathBuf {
        self.vfs().join("index")
    }

    /// Guards the mirror, its journal and every change of a parent.
    pub fn tree_lock(&self) -> PathBuf {
        self.vfs().join("tree.lock")
    }

    /// The last id given out, guarded by itself.
    pub fn ids(&self) -> PathBuf {
        self.vfs().join("ids.lock")
    }

    /// Locks taken beneath a lock that an ancestor process holds.
    pub fn borrowed(&self) -> PathBuf {
        self.vfs().join("borrowed")
    }

    /// The losing sides of conflicts.
    pub fn conflicts(&self) -> PathBuf {
        self.vfs().join("conflicts")
    }

    /// Guards the file of removals.
    pub fn removed_lock(&self) -> PathBuf {
        self.vfs().join("removed.lock")
    }

    /// Which conversations were removed for good.
    pub fn removed(&self) -> PathBuf {
        self.vfs().join("removed")
    }

    /// Temporaries for atomic writes.
    pub fn tmp(&self) -> PathBuf {
        self.vfs().join("tmp")
    }
}

/// The workspace's conversations, nested by parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkRoot {
    /// `.jp/conversations`, or wherever its real files are reached.
    pub conversations: PathBuf,
}

impl WorkRoot {
    /// One partition.
    pub fn partition(&self, partition: Partition) -> PathBuf {
        partition.beneath(&self.conversations)
    }

    /// Temporaries for atomic writes; on the same filesystem as what they become.
    pub fn tmp(&self) -> PathBuf {
        self.conversations.join(WORK_TMP)
    }

    /// What a directory's path says of the conversation in it; `None` for a name that is no text.
    pub(crate) fn at(&self, dir: &Path) -> Option<At> {
        let archive = self.partition(Partition::Archived);
        let partition = if dir.starts_with(&archive) { Partition::Archived } else { Partition::Live };
        let above = dir.parent().filter(|above| *above != self.partition(partition));
        let above = above.and_then(Path::parent).and_then(Path::file_name);
        let beneath = above.and_then(ConversationId::from_dirname);
        Some(At { beneath, name: dir.file_name()?.to_str()?.to_owned(), partition })
    }
}

/// Whether a conversation is in use or put away. Location is the truth, not what metadata says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Partition {
    /// In use.
    #[default]
    Live,
    /// Put away.
    Archived,
}

impl Partition {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Live, Self::Archived];

    fn beneath(self, conversations: &Path) -> PathBuf {
        match self {
            Self::Live => conversations.to_owned(),
            Self::Archived => conversations.join(ARCHIVE),
        }
    }
}

/// Where a managed file of a conversation directory is.
pub fn managed(dir: &Path, file: ManagedFile) -> PathBuf {
    dir.join(file.name())
}

/// The directory of a projected conversation's children.
pub fn children_dir(dir: &Path) -> PathBuf {
    dir.join(CONVERSATIONS)
}

/// The lock file's name.
pub fn lock_name(id: ConversationId) -> String {
    format!("{id}.lock")
}

/// The three places in a root where conversation directories lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManagedDir {
    Live,
    Archive,
    Trash,
}

impl ManagedDir {
    pub(crate) const ALL: [Self; 3] = [Self::Live, Self::Archive, Self::Trash];

    pub(crate) fn beneath(self, conversations: &Path) -> PathBuf {
        match self {
            Self::Live => conversations.to_owned(),
            Self::Archive => conversations.join(ARCHIVE),
            Self::Trash => conversations.join(TRASH),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_tells_parent_name_and_partition() {
        let work = WorkRoot { conversations: "/p/.jp/conversations".into() };
        let parent = ConversationId::new(17528832001);
        let check = |path: &str, beneath, name: &str, partition| {
            let expected = At { beneath, name: name.to_owned(), partition };
            assert_eq!(work.at(&work.conversations.join(path)), Some(expected), "{path}");
        };
        check("17528832002-b", None, "17528832002-b", Partition::Live);
        check("17528832001-a/conversations/17528832002", parent, "17528832002", Partition::Live);
        check(".archive/17528832002-b", None, "17528832002-b", Partition::Archived);
        check(".archive/17528832001/conversations/17528832002-b", parent, "17528832002-b", Partition::Archived);
    }
}
