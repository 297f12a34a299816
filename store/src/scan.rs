//! Finds conversation directories in a root. Looks at names only; what is inside them is read elsewhere.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, Kind};
use crate::error::Result;
use crate::files::entries;
use crate::id::ConversationId;
use crate::layout::{Partition, children_dir};

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
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Places by conversation. More than one is a duplicate; the canonically named one comes first.
    pub places: BTreeMap<ConversationId, Vec<Place>>,
    /// Directories among conversations that name none.
    pub strangers: Vec<PathBuf>,
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
    /// Looks through both partitions. A root that is not there is empty.
    pub fn of(disk: &dyn Disk, partitions: [(Partition, PathBuf); 2], depth: Depth) -> Result<Self> {
        let mut scan = Self::default();
        for (partition, dir) in partitions {
            let mut open = vec![(dir, None)];
            while let Some((dir, beneath)) = open.pop() {
                scan.list(disk, &dir, partition, beneath, |id, place| {
                    if depth == Depth::Nested {
                        open.push((children_dir(&place.dir), Some(id)));
                    }
                })?;
            }
        }
        for (id, places) in &mut scan.places {
            places.sort_by(|a, b| {
                let stray = |place: &Place| !place.name.to_str().is_some_and(|name| id.is_canonical_dirname(name));
                (a.partition, stray(a), &a.dir).cmp(&(b.partition, stray(b), &b.dir))
            });
        }
        scan.strangers.sort();
        Ok(scan)
    }

    fn list(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        partition: Partition,
        beneath: Option<ConversationId>,
        mut found: impl FnMut(ConversationId, &Place),
    ) -> Result<()> {
        for entry in entries(disk, dir)? {
            if entry.kind != Kind::Dir || entry.name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = dir.join(&entry.name);
            match ConversationId::from_dirname(&entry.name) {
                Some(id) => {
                    let place = Place { dir: path, name: entry.name, partition, beneath };
                    found(id, &place);
                    self.places.entry(id).or_default().push(place);
                }
                None => self.strangers.push(path),
            }
        }
        Ok(())
    }
}

/// Nothing is there: the name, or a directory on the way to it, does not exist.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
