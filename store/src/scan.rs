//! Finds conversation directories in a root. Looks at names only; what is inside them is read elsewhere.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, Kind};
use crate::error::{Error, Result};
use crate::files::entries;
use crate::id::ConversationId;
use crate::layout::{CONVERSATIONS, Partition, children_dir};
use crate::parallel;

/// One directory that names a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The directory.
    pub dir: PathBuf,
    /// Its name.
    pub name: OsString,
    /// The partition it is in.
    pub partition: Partition,
    /// The conversation whose children it lies among.
    pub beneath: Option<ConversationId>,
}

/// What a root holds.
#[derive(Debug, Default)]
pub struct Scan {
    /// Places by conversation. More than one is a duplicate; the canonically named one comes first.
    pub places: Vec<(ConversationId, Place)>,
    /// Directories among conversations that name none.
    pub strangers: Vec<PathBuf>,
    /// Conversations whose children cannot be looked at, and why.
    pub unreadable: Vec<(ConversationId, Error)>,
}

/// How deep a root goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Conversations lie side by side.
    Flat,
    /// Children lie in their parent's `conversations` directory.
    Nested,
}

impl Scan {
    /// Looks through both partitions. A root that is not there is empty; children that cannot be listed do not hide the
    /// rest.
    pub fn of(disk: &dyn Disk, partitions: [(Partition, PathBuf); 2], depth: Depth) -> Result<Self> {
        let mut scan = Self::default();
        // One level of the tree at a time, because that is what can be read side by side.
        let mut level: Vec<_> = partitions.into_iter().map(|(partition, dir)| (partition, dir, None)).collect();
        while !level.is_empty() {
            let listed = parallel::map(&level, |(_, dir, _)| entries(disk, dir));
            let mut below = Vec::new();
            for ((partition, dir, beneath), entries) in level.into_iter().zip(listed) {
                let entries = match (entries, beneath) {
                    (Err(error), Some(id)) => {
                        if !is_out_of_reach(disk, &dir, &error) {
                            scan.unreadable.push((id, error));
                        }
                        continue;
                    }
                    (entries, _) => entries?,
                };
                for entry in entries {
                    if entry.kind != Kind::Dir || entry.name.as_encoded_bytes().starts_with(b".") {
                        continue;
                    }
                    let path = dir.join(&entry.name);
                    let Some(id) = ConversationId::from_dirname(&entry.name) else {
                        scan.strangers.push(path);
                        continue;
                    };
                    if depth == Depth::Nested {
                        below.push((partition, children_dir(&path), Some(id)));
                    }
                    scan.places.push((id, Place { dir: path, name: entry.name, partition, beneath }));
                }
            }
            level = below;
        }
        scan.places.sort_by(|(id, a), (other, b)| {
            let stray = |place: &Place| !place.name.to_str().is_some_and(|name| id.is_canonical_dirname(name));
            id.cmp(other).then_with(|| (a.partition, stray(a), &a.dir).cmp(&(b.partition, stray(b), &b.dir)))
        });
        scan.strangers.sort();
        Ok(scan)
    }
}

/// Whether a children's directory is not there and never can be: its path is longer than the system takes, and the
/// directory it would be in does not have it.
fn is_out_of_reach(disk: &dyn Disk, dir: &Path, error: &Error) -> bool {
    let too_long = matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::InvalidFilename);
    let listed = if too_long { dir.parent().map(|above| entries(disk, above)) } else { None };
    listed.is_some_and(|listed| listed.is_ok_and(|found| !found.iter().any(|entry| entry.name == CONVERSATIONS)))
}

/// Nothing is there: the name, or a directory on the way to it, does not exist.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
