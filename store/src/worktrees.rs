//! What the other worktrees of a store remember, and whether the store knows this one. Reads only.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Deserialize;

use crate::beneath::Attributes;
use crate::beneath::trusted;
use crate::disk::{Disk, Kind, Stat};
use crate::error::{Context as _, Result};
use crate::files::entries;
use crate::id::ConversationId;
use crate::identity::Identity;
use crate::join::{Exposure, HoldReason, hold_reason};
use crate::journal::{self, Footing};
use crate::layout::{Layout, STORAGE, StoreRoot};
use crate::ledger::{Entry, Ledger};
use crate::mountinfo::{self, Mount};
use crate::observe::{begins_alike, has_no_events, read_file};
use crate::presence::Projection;
use crate::scan::is_absent;
use crate::store::Store;

/// Where the other worktrees have the conversations of the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtherWorktrees {
    exposures: BTreeMap<ConversationId, Exposure>,
}

impl OtherWorktrees {
    /// Reads the ledgers of all worktrees but this one. A ledger of this path counts if `.jp` is not the one it was made for. A ledger that does not parse says nothing. One that cannot be read
    /// is an error: it may be the one that has a conversation as local.
    pub(crate) fn read(disk: &dyn Disk, layout: &Layout) -> Result<Self> {
        let mut others = Self::default();
        let here = identity(&layout.storage)?;
        let mounts = LazyCell::new(mountinfo::read);
        let gone = |project: &Path, workspace| is_gone(&mounts, layout, project, workspace);
        for silo in std::iter::once(&layout.store).chain(&layout.siblings) {
            for entry in entries(disk, &silo.vfs())? {
                // One of this path that was made for another `.jp` directory is another worktree's.
                let ours = if entry.name == *layout.worktree { here } else { None };
                if entry.kind == Kind::Dir {
                    others.add(disk, &silo.vfs().join(entry.name), ours, &gone)?;
                }
            }
        }
        Ok(others)
    }

    fn add(
        &mut self,
        disk: &dyn Disk,
        state: &Path,
        ours: Option<Identity>,
        gone: &dyn Fn(&Path, Identity) -> bool,
    ) -> Result<()> {
        let Some(contents) = read_file(disk, &state.join("projection.json"))? else { return Ok(()) };
        let Some((mut ledger, workspace)) = Ledger::parse_any(&contents.bytes) else { return Ok(()) };
        if ours.is_some_and(|ours| ours.is_same(workspace)) {
            return Ok(());
        }
        if let Some(lines) = read_file(disk, &state.join("journal"))? {
            journal::replay(&mut ledger, &lines.bytes, Footing::new(workspace, Some(contents.stat)));
        }
        let is_gone = ledger.project.as_ref().is_some_and(|project| gone(Path::new(project), workspace));
        for (id, entry) in ledger.entries() {
            if is_gone && entry.is_local() && !entry.never_projected && !entry.made_local {
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

/// Where the other worktrees have a conversation. They are read when this is first asked.
pub(crate) fn read_once(
    others: &OnceLock<OtherWorktrees>,
    disk: &dyn Disk,
    layout: &Layout,
    id: ConversationId,
) -> Result<Exposure> {
    if let Some(read) = others.get() {
        return Ok(read.exposure(id));
    }
    let read = OtherWorktrees::read(disk, layout)?;
    Ok(others.get_or_init(|| read).exposure(id))
}

/// Whether the `.jp` directory that a ledger was made for is not in this project any more. It is another worktree's, so it
/// is looked at and never opened. To be gone makes less private, so what cannot be told, or not at once, is not gone.
fn is_gone(mounts: &[Mount], layout: &Layout, project: &Path, workspace: Identity) -> bool {
    let path = project.join(STORAGE);
    let found = match mountinfo::resolve_quickly(mounts, &path, &[&layout.project, &layout.store.dir]) {
        Ok(Some(resolved)) => identity(&resolved),
        Ok(None) => return false,
        Err(error) => Err(error).context("look at", &path),
    };
    match found {
        Ok(found) => !found.is_some_and(|found| found.is_same(workspace)),
        Err(error) => error.is_absence(),
    }
}

/// What has a path that may lie anywhere; `None` if nothing has.
fn identity(path: &Path) -> Result<Option<Identity>> {
    match trusted::stat(path) {
        Ok(meta) => {
            let filesystem = trusted::filesystem(path, &meta).context("look at", path)?;
            Ok(Some(Identity::new(Stat::from(Attributes::from(&meta)), filesystem)))
        }
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error).context("look at", path),
    }
}

/// The content of `roots/<key>.json`, which newer versions of the real `jp` write.
#[derive(Deserialize)]
struct Root {
    path: PathBuf,
}

/// Whether a silo names this worktree: by its `storage` link, or by an entry in `roots/`.
pub(crate) fn is_named_by_store(disk: &dyn Disk, layout: &Layout) -> Result<bool> {
    for silo in std::iter::once(&layout.store).chain(&layout.siblings) {
        if is_link_target(disk, layout, silo)? {
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

/// Whether a silo's link leads to this very `.jp`, under whatever path.
fn is_link_target(disk: &dyn Disk, layout: &Layout, silo: &StoreRoot) -> Result<bool> {
    let (link, storage) = (silo.storage_link(), &layout.storage);
    let target = match disk.read_link(&link) {
        Ok(target) => silo.dir.join(target),
        Err(error) if is_absent(&error) || error.kind() == io::ErrorKind::InvalidInput => return Ok(false),
        Err(error) => return Err(error).context("read link", &link),
    };
    if target == *storage {
        return Ok(true);
    }
    // Another way to the same directory may lead through links; what it leads to is compared and nothing else.
    let resolved = mountinfo::resolve_quickly(&mountinfo::read(), &target, &[&layout.project, &layout.store.dir]);
    let Ok(Some(target)) = resolved else { return Ok(false) };
    Ok(identity(&target).ok().flatten().is_some_and(|found| identity(storage).is_ok_and(|ours| ours == Some(found))))
}

/// Where a conversation is exposed in this worktree, together with what the others say.
pub(crate) fn exposure_with(ours: Option<Projection>, others: Exposure) -> Exposure {
    match (ours, others) {
        (Some(Projection::Projected), _) | (_, Exposure::Projected) => Exposure::Projected,
        (Some(Projection::LocalOnly), _) | (None, Exposure::Local) => Exposure::Local,
        (None, Exposure::Unknown) => Exposure::Unknown,
    }
}

/// Where a conversation is exposed. `ours` is what this worktree remembers of it, `others` what the other ones say. What was
/// made local here by a command is local, whatever others show; what was here and is only hidden is no secret.
pub(crate) fn exposure_of(ours: Option<&Entry>, others: impl FnOnce() -> Result<Exposure>) -> Result<Exposure> {
    match ours {
        Some(entry) if entry.was_made_local() => Ok(Exposure::Local),
        Some(entry) if !entry.was_never_here() => Ok(Exposure::Projected),
        Some(_) | None => Ok(exposure_with(ours.map(|entry| entry.intent), others()?)),
    }
}

/// Those of a conversation's ancestors that are private in this worktree, and so are not shown for its sake: no worktree shows
/// them, or the user made them local here.
pub(crate) fn private_of(
    ledger: &Ledger,
    ancestors: impl IntoIterator<Item = ConversationId>,
    others: impl Fn(ConversationId) -> Result<Exposure>,
) -> Result<Vec<ConversationId>> {
    let mut private = Vec::new();
    for above in ancestors {
        // What no worktree has a word about may be private all the same: other programs write none.
        if exposure_of(ledger.get(above), || others(above))? != Exposure::Projected {
            private.push(above);
        }
    }
    Ok(private)
}

impl Store {
    /// Those of a conversation's ancestors that are private in this worktree. `ledger` is what this worktree remembers.
    pub fn private_above(
        &self,
        ledger: &Ledger,
        ancestors: impl IntoIterator<Item = ConversationId>,
    ) -> Result<Vec<ConversationId>> {
        let others = OnceLock::new();
        private_of(ledger, ancestors, |above| read_once(&others, self.disk(), &self.layout, above))
    }

    /// Where a conversation is exposed. It is local if it was made so in this worktree by a command, or if it is so in every
    /// worktree that has a word about it and never was in this one. `ours` is what this worktree remembers of it.
    pub fn exposure(&self, id: ConversationId, ours: Option<&Entry>) -> Result<Exposure> {
        exposure_of(ours, || Ok(OtherWorktrees::read(self.disk(), &self.layout)?.exposure(id)))
    }

    /// Whether the copy of a conversation in this directory has no events, so that every other begins as it does.
    pub fn has_no_events(&self, dir: &Path) -> Result<bool> {
        has_no_events(self.disk(), dir)
    }

    /// Why a copy that arrives beneath a mount is not joined with the store's conversation, if it is not. `ours` is what this
    /// worktree remembers of it, `stored` and `copy` are the two directories.
    pub fn holds(
        &self,
        id: ConversationId,
        ours: Option<&Entry>,
        stored: &Path,
        copy: &Path,
    ) -> Result<Option<HoldReason>> {
        let reason = hold_reason(self.exposure(id, ours)?, begins_alike(self.disk(), stored, copy)?);
        Ok(if ours.is_some_and(Entry::was_made_local) { reason.and(Some(HoldReason::MadeLocal)) } else { reason })
    }
}
