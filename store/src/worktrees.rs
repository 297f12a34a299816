//! What the other worktrees of a store remember, and whether the store knows this one. Reads only.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::disk::{Disk, Kind};
use crate::error::{Context as _, Result};
use crate::files::{entries, stat};
use crate::id::ConversationId;
use crate::join::Exposure;
use crate::journal::{self, Footing};
use crate::layout::{Layout, STORAGE};
use crate::ledger::{Identity, Ledger};
use crate::observe::read_file;
use crate::presence::Projection;
use crate::scan::is_absent;

/// Where the other worktrees have the conversations of the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtherWorktrees {
    exposures: BTreeMap<ConversationId, Exposure>,
}

impl OtherWorktrees {
    /// Reads the ledgers of all worktrees but this one. A ledger that does not parse says nothing. One that cannot be read
    /// is an error: it may be the one that has a conversation as local.
    pub(crate) fn read(disk: &dyn Disk, layout: &Layout) -> Result<Self> {
        let mut others = Self::default();
        for silo in std::iter::once(&layout.store).chain(&layout.siblings) {
            for entry in entries(disk, &silo.vfs())? {
                if entry.kind == Kind::Dir && entry.name != *layout.worktree {
                    others.add(disk, &silo.vfs().join(entry.name))?;
                }
            }
        }
        Ok(others)
    }

    fn add(&mut self, disk: &dyn Disk, state: &Path) -> Result<()> {
        let Some(contents) = read_file(disk, &state.join("projection.json"))? else { return Ok(()) };
        let Some((mut ledger, workspace)) = Ledger::parse_any(&contents.bytes) else { return Ok(()) };
        if let Some(lines) = read_file(disk, &state.join("journal"))? {
            journal::replay(&mut ledger, &lines.bytes, Footing::new(workspace, Some(contents.stat)));
        }
        let is_gone = match &ledger.project {
            Some(project) => is_gone(disk, Path::new(project), workspace)?,
            None => false,
        };
        for (id, entry) in ledger.entries() {
            if is_gone && entry.is_local() && !entry.never_projected {
                // It was hidden with the worktree, as its files were removed.
                continue;
            }
            let exposure = self.exposures.entry(id).or_default();
            if !entry.is_local() {
                *exposure = Exposure::Projected;
            } else if *exposure == Exposure::Unknown {
                *exposure = Exposure::Local;
            }
        }
        Ok(())
    }

    /// Where the other worktrees have a conversation.
    pub(crate) fn exposure(&self, id: ConversationId) -> Exposure {
        self.exposures.get(&id).copied().unwrap_or_default()
    }
}

/// Whether the `.jp` directory that a ledger was made for is not in this project any more.
fn is_gone(disk: &dyn Disk, project: &Path, workspace: Identity) -> Result<bool> {
    Ok(stat(disk, &project.join(STORAGE))?.map(Identity::from) != Some(workspace))
}

/// The content of `roots/<key>.json`, which newer versions of the real `jp` write.
#[derive(Deserialize)]
struct Root {
    path: PathBuf,
}

/// Whether a silo names this worktree: by its `storage` link, or by an entry in `roots/`.
pub(crate) fn is_named_by_store(disk: &dyn Disk, layout: &Layout) -> Result<bool> {
    for silo in std::iter::once(&layout.store).chain(&layout.siblings) {
        if is_link_target(disk, &silo.dir, &silo.storage_link(), &layout.storage)? {
            return Ok(true);
        }
        let file = silo.dir.join("roots").join(format!("{}.json", layout.worktree));
        // A file that is not a regular one, or not such a document, names nothing.
        let root = disk.read(&file).ok().and_then(|found| serde_json::from_slice::<Root>(&found.bytes).ok());
        if root.is_some_and(|root| root.path == layout.project) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a link leads to this very directory, under whatever path.
fn is_link_target(disk: &dyn Disk, dir: &Path, link: &Path, storage: &Path) -> Result<bool> {
    let target = match disk.read_link(link) {
        Ok(target) => dir.join(target),
        Err(error) if is_absent(&error) || error.kind() == io::ErrorKind::InvalidInput => return Ok(false),
        Err(error) => return Err(error).context("read link", link),
    };
    if target == *storage {
        return Ok(true);
    }
    let identity = |path: &Path| stat(disk, path).ok().flatten().map(|stat| (stat.dev, stat.ino));
    Ok(identity(&target).is_some_and(|found| identity(storage) == Some(found)))
}

/// Where a conversation is exposed in this worktree, together with what the others say.
pub(crate) fn exposure_with(ours: Option<Projection>, others: Exposure) -> Exposure {
    match (ours, others) {
        (Some(Projection::Projected), _) | (_, Exposure::Projected) => Exposure::Projected,
        (Some(Projection::LocalOnly), _) | (None, Exposure::Local) => Exposure::Local,
        (None, Exposure::Unknown) => Exposure::Unknown,
    }
}
