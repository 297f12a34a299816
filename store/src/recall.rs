//! What an earlier look has left behind, as a reader uses it: a file whose stamp it knows need not be read. What had to be
//! read is gathered on the way, for whoever may write it down. A thin edge around [`Index`].

use std::path::Path;
use std::sync::Arc;

use crate::disk::{Contents, Disk, Kind, Stat};
use crate::error::{Context as _, Result};
use crate::files::stat;
use crate::identity::Identity;
use crate::index::{Entry, Index};
use crate::layout::StoreRoot;
use crate::observe::read_file;

/// An index of more than this is not ours, and is not read into memory to find that out.
const LARGEST: u64 = 1 << 32;
/// So many files that had to be read are worth a new index, if they are a tenth of all as well.
const MANY: usize = 100;

/// Reads metadata of the store.
#[derive(Debug, Default)]
pub(crate) struct Recall {
    index: Option<Arc<Index>>,
    taken: i64,
}

/// Where a file's bytes came from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The index knew them, under this number.
    Known(usize),
    /// They were read.
    Read,
}

/// All metadata of a store as one look found it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered {
    index: Option<Arc<Index>>,
    taken: i64,
    known: Vec<usize>,
    /// What an index would know that the present one does not, and as much that is not safely on disk yet.
    new: [Vec<(Stat, Vec<u8>)>; 2],
}

/// What is to be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What is on disk by now.
    Safe,
    /// All of it; it was brought to disk since it was read.
    All,
}

impl Recall {
    /// With the silo's index, if there is one. `taken` is the time, from before anything is read.
    pub(crate) fn load(disk: &dyn Disk, root: &StoreRoot, taken: i64) -> Self {
        let path = root.index();
        let index = match read_index(disk, root, &path) {
            Ok(index) => index,
            Err(error) => {
                tracing::debug!(%error, "the index is passed over");
                None
            }
        };
        Self { index: index.map(Arc::new), taken }
    }

    /// A file's bytes, or `None` when it is not there.
    pub(crate) fn read(&self, disk: &dyn Disk, path: &Path) -> Result<Option<(Contents, Source)>> {
        if let Some(index) = &self.index {
            let Some(stat) = stat(disk, path)? else { return Ok(None) };
            if let Some((at, bytes)) = index.find(&stat) {
                return Ok(Some((Contents { bytes: bytes.to_vec(), stat }, Source::Known(at))));
            }
        }
        Ok(read_file(disk, path)?.map(|contents| (contents, Source::Read)))
    }

    /// Nothing gathered yet.
    pub(crate) fn gathered(&self) -> Gathered {
        Gathered { index: self.index.clone(), taken: self.taken, ..Gathered::default() }
    }
}

impl Gathered {
    /// One more file.
    pub(crate) fn add(&mut self, contents: Contents, source: Source) {
        match source {
            Source::Known(at) => self.known.push(at),
            Source::Read => {
                let Contents { stat, bytes } = contents;
                let entry = Entry { stat, bytes: &bytes };
                if entry.is_conclusive(self.taken) {
                    let young = usize::from(!entry.is_safe(self.taken));
                    self.new[young].push((stat, bytes));
                }
            }
        }
    }

    /// Whether an index of this would know anything that the present one does not.
    pub(crate) fn has_news(&self) -> bool {
        !self.new[0].is_empty()
    }

    /// Whether it would know so much more that an operation may as well write it.
    pub(crate) fn has_many_news(&self) -> bool {
        self.is_many(self.new[0].len())
    }

    /// Whether bringing everything to disk would let it know much more.
    pub(crate) fn has_many_young(&self) -> bool {
        self.is_many(self.new[1].len())
    }

    fn is_many(&self, count: usize) -> bool {
        let all = self.known.len() + self.new[0].len() + self.new[1].len();
        count > MANY && count * 10 > all
    }

    /// An index of what was found.
    pub(crate) fn encode(&self, silo: Identity, device: u64, extent: Extent) -> Vec<u8> {
        let known = self.known.iter().filter_map(|&at| self.index.as_ref()?.entry(at));
        let parts = match extent {
            Extent::Safe => &self.new[..1],
            Extent::All => &self.new[..],
        };
        let new = parts.iter().flatten().map(|(stat, bytes)| Entry { stat: *stat, bytes });
        Index::encode(silo, device, known.chain(new).collect())
    }
}

fn read_index(disk: &dyn Disk, root: &StoreRoot, path: &Path) -> Result<Option<Index>> {
    if !stat(disk, path)?.is_some_and(|stat| stat.kind == Kind::File && stat.size <= LARGEST) {
        return Ok(None);
    }
    let silo = disk.stat(&root.dir).context("look at", &root.dir)?;
    let filesystem = disk.filesystem(&root.dir).context("look at", &root.dir)?;
    let Some(contents) = read_file(disk, path)? else { return Ok(None) };
    let index = Index::decode(contents.bytes, Identity::new(silo, filesystem), silo.dev);
    if index.is_none() {
        tracing::debug!(path = %path.display(), "not an index of this silo, or damaged");
    }
    Ok(index)
}
