//! What a number of the mount stands for. Identity is the conversation and the file in it, never a path from the root.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use jp_store::ConversationId;
use jp_store::layout::Partition;
use jp_store::reconcile::ManagedFile;

/// A directory of conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dir {
    /// The top of the mount.
    Root,
    /// `.archive`.
    Archive,
    /// The children of a conversation.
    Of(ConversationId),
}

impl Dir {
    /// Where the roots of a partition are.
    pub fn top(partition: Partition) -> Self {
        match partition {
            Partition::Live => Self::Root,
            Partition::Archived => Self::Archive,
        }
    }

    /// The conversation whose children these are.
    pub fn parent(self) -> Option<ConversationId> {
        match self {
            Self::Root | Self::Archive => None,
            Self::Of(id) => Some(id),
        }
    }
}

/// Where scratch lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Home {
    /// In a conversation's directory, or beneath it.
    Conversation(ConversationId),
    /// In a directory of conversations.
    Children(Dir),
}

/// What a number stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Node {
    /// A directory of conversations.
    Children(Dir),
    /// A conversation's directory.
    Conversation(ConversationId),
    /// A managed file.
    Managed(ConversationId, ManagedFile),
    /// Any other file, directory or link of a conversation, by its path in the conversation's directory.
    Own(ConversationId, PathBuf),
    /// A program's file of the moment.
    Scratch(Home, PathBuf),
    /// A real file beside the conversations, at the top.
    Under(OsString),
    /// Another name of a conversation: a link to the canonical one.
    Alias(Dir, OsString),
    /// A file that has lost its name and lives until it is forgotten.
    Orphan(u64),
}

/// The number of the top.
pub const ROOT: u64 = 1;
/// The number of `.archive`.
const ARCHIVE: u64 = 2;
/// Numbers from here on are not computed from ids.
const TABLE: u64 = 1 << 62;

impl Node {
    /// The conversation it belongs to.
    pub fn conversation(&self) -> Option<ConversationId> {
        match self {
            Self::Children(Dir::Of(id))
            | Self::Conversation(id)
            | Self::Managed(id, _)
            | Self::Own(id, _)
            | Self::Scratch(Home::Conversation(id), _) => Some(*id),
            Self::Children(Dir::Root | Dir::Archive)
            | Self::Scratch(Home::Children(_), _)
            | Self::Under(_)
            | Self::Alias(..)
            | Self::Orphan(_) => None,
        }
    }

    /// The number that follows from an id alone: the same after a move, and after mounting again.
    pub fn computed(&self) -> Option<u64> {
        let of = |id: ConversationId, slot: u64| (id.deciseconds() + 1) << 4 | slot;
        match self {
            Self::Children(Dir::Root) => Some(ROOT),
            Self::Children(Dir::Archive) => Some(ARCHIVE),
            Self::Conversation(id) => Some(of(*id, 0)),
            Self::Managed(id, ManagedFile::Metadata) => Some(of(*id, 1)),
            Self::Managed(id, ManagedFile::Events) => Some(of(*id, 2)),
            Self::Managed(id, ManagedFile::BaseConfig) => Some(of(*id, 3)),
            Self::Children(Dir::Of(id)) => Some(of(*id, 4)),
            Self::Own(..) | Self::Scratch(..) | Self::Under(_) | Self::Alias(..) | Self::Orphan(_) => None,
        }
    }

    /// The node whose computed number this is.
    pub fn from_computed(number: u64) -> Option<Self> {
        match number {
            ROOT => return Some(Self::Children(Dir::Root)),
            ARCHIVE => return Some(Self::Children(Dir::Archive)),
            _ => {}
        }
        let id = ConversationId::new((number >> 4).checked_sub(1)?)?;
        Some(match number & 15 {
            0 => Self::Conversation(id),
            1 => Self::Managed(id, ManagedFile::Metadata),
            2 => Self::Managed(id, ManagedFile::Events),
            3 => Self::Managed(id, ManagedFile::BaseConfig),
            4 => Self::Children(Dir::Of(id)),
            _ => return None,
        })
    }

    /// The number to try first for a node that has none by its id. It follows from the name, so that it is usually the
    /// same after mounting again.
    pub fn wish(&self) -> u64 {
        let mut hash = Fnv::new();
        let mut path = |tag: u8, id: u64, path: &Path| {
            hash.add(&[tag]);
            hash.add(&id.to_le_bytes());
            hash.add(path.as_os_str().as_encoded_bytes());
        };
        let dir = |dir: &Dir| match dir {
            Dir::Root => 0,
            Dir::Archive => u64::MAX,
            Dir::Of(id) => id.deciseconds(),
        };
        match self {
            Self::Own(id, inner) => path(1, id.deciseconds(), inner),
            Self::Scratch(Home::Conversation(id), inner) => path(2, id.deciseconds(), inner),
            Self::Scratch(Home::Children(at), inner) => path(3, dir(at), inner),
            Self::Under(name) => path(4, 0, Path::new(name)),
            Self::Alias(at, name) => path(5, dir(at), Path::new(name)),
            Self::Managed(id, file) => path(6, id.deciseconds(), Path::new(file.name())),
            Self::Conversation(id) => path(7, id.deciseconds(), Path::new("")),
            Self::Children(at) => path(8, dir(at), Path::new("")),
            Self::Orphan(number) => path(9, *number, Path::new("")),
        }
        TABLE | (hash.end() & (TABLE - 1))
    }
}

/// How many bits the place of a name in its directory has.
pub const PLACE_BITS: u32 = 48;

/// The place of a name in the order of its directory, for names that have no id. It follows from the name alone, so it is
/// the same while other names come and go.
pub fn place_of(name: &OsStr) -> u64 {
    const NAMES: u64 = 1 << (PLACE_BITS - 1);
    let mut hash = Fnv::new();
    hash.add(name.as_encoded_bytes());
    NAMES | (hash.end() & (NAMES - 1))
}

/// FNV-1a: the same on every machine and in every version, unlike the hasher of the standard library.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn end(&self) -> u64 {
        // The low bits of FNV are its best; the fold brings the high ones in.
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computed_numbers_come_back() {
        for n in [0, 1, 17_528_832_001, 92_233_720_368] {
            let id = ConversationId::new(n).unwrap();
            let mut nodes = vec![Node::Conversation(id), Node::Children(Dir::Of(id))];
            nodes.extend(ManagedFile::ALL.map(|file| Node::Managed(id, file)));
            nodes.extend([Node::Children(Dir::Root), Node::Children(Dir::Archive)]);
            for node in nodes {
                let number = node.computed().unwrap();
                assert!(number < TABLE);
                assert_eq!(Node::from_computed(number), Some(node));
            }
        }
        for number in [0, 3, 15, 21, 31, u64::MAX, TABLE] {
            assert_eq!(Node::from_computed(number), None, "{number}");
        }
    }

    #[test]
    fn wishes_are_told_apart_and_do_not_change() {
        let id = ConversationId::new(17_528_832_001).unwrap();
        let own = Node::Own(id, "notes.md".into());
        assert_eq!(own.wish(), Node::Own(id, "notes.md".into()).wish());
        assert_ne!(own.wish(), Node::Scratch(Home::Conversation(id), "notes.md".into()).wish());
        assert_ne!(own.wish(), Node::Own(id, "notes2.md".into()).wish());
        assert!(own.wish() >= TABLE);
        // Names that have an id come first.
        assert!(place_of(OsStr::new("x")) > 92_233_720_368 && place_of(OsStr::new("x")) < 1 << PLACE_BITS);
    }
}
