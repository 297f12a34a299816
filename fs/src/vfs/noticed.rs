//! What is said to have changed in the store.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use jp_store::ConversationId;
use jp_store::reconcile::ManagedFile;

use crate::node::Node;

/// What a watch has seen.
#[derive(Debug, Default)]
pub struct Noticed {
    /// Directories of conversations that came, went or were renamed.
    pub names: HashSet<PathBuf>,
    /// Any directory of a conversation may have.
    pub all_names: bool,
    /// The mirror, the ledger or one of their journals changed.
    pub books: bool,
    /// These files of conversations came, went or changed, by path in the conversation's directory.
    pub files: HashSet<(ConversationId, PathBuf)>,
    /// These directories of conversations, by path in the conversation's, are watched only from now on. What came into them before
    /// is among the files; what went from them is not.
    pub dirs: HashMap<ConversationId, HashSet<PathBuf>>,
    /// These directories have another mode, perhaps; their names are as they were.
    pub modes: HashSet<Node>,
    /// The name, the title, the parent of any conversation may have changed, and whether it is shown.
    pub shape: bool,
    /// Something was missed: everything may have changed.
    pub everything: bool,
}

impl Noticed {
    /// Whether nothing was seen.
    pub fn is_nothing(&self) -> bool {
        !self.is_shape() && !self.everything && self.files.is_empty() && self.dirs.is_empty() && self.modes.is_empty()
    }

    /// Whether what was seen concerns more than files.
    pub(super) fn is_shape(&self) -> bool {
        self.all_names || !self.names.is_empty() || self.books || self.shape
    }

    pub(super) fn has_metadata(&self) -> bool {
        self.files.iter().any(|(_, inner)| inner == Path::new(ManagedFile::Metadata.name()))
    }
}
