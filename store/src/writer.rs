//! Changes the store. Whoever has a [`Writer`] has a silo that is there and merged; whoever has a [`Guard`] holds that
//! conversation's lock; nothing is written without both.
//!
//! The order of locks: conversations by ascending id, then the worktree's ledger, then the tree. The ledger's lock also
//! guards the workspace's directories, which move when a parent does.

mod adopt;
mod archive;
mod copies;
mod cover;
mod create;
mod doctor;
mod elsewhere;
mod flat;
mod gc;
mod keep;
mod later;
mod migrate;
mod narrow;
mod note;
mod operation;
mod own;
mod project;
mod reconcile;
mod remove;
mod reshape;
mod settle;
#[cfg(test)]
mod tests;
mod tidy;
mod toggle;
mod transcript;
mod uncover;
mod unhide;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crate::temporaries::Leftovers;
pub use cover::Covered;
pub use create::Seed;
pub use doctor::{Fixed, problems};
pub use gc::{Aside, Collected, expired};
pub(crate) use later::Later;
pub use migrate::Migrated;
pub use reconcile::{Progress, Reconciled};
pub use remove::Strategy;
pub use reshape::{Known, Reshaped, Shape};
pub use tidy::Tidied;
pub use toggle::Toggled;
pub use uncover::Uncovered;
pub use unhide::Unhidden;

use crate::disk::{Disk, Kind, Stat};
use crate::document::Document;
use crate::error::{Context as _, Error, Result};
use crate::files::{Bits, NewContent, Scratch, make_dirs};
use crate::id::ConversationId;
use crate::identity::Identity;
use crate::layout::{WorkRoot, managed};
use crate::ledger::Survey;
use crate::lock::{FileLock, Guard, Wait};
use crate::meta::{Meta, Parent};
use crate::modes::{Access, PERMISSIONS};
use crate::observe::{check, read_file};
use crate::recall::{Extent, Gathered};
use crate::reconcile::ManagedFile;
use crate::scan::is_absent;
use crate::session::{Mapping, Session};
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::temporaries::{IN_STORE, Temporaries};

/// The store, ready to be changed.
#[derive(Clone, Debug)]
pub struct Writer {
    store: Store,
    /// The process it works for, where that is another.
    caller: Option<u32>,
    /// What is to reach the disk later, where somebody sees to that.
    later: Option<Later>,
    temporaries: Arc<OfBothRoots>,
}

/// The temporaries of this process in the store and in the workspace.
#[derive(Debug)]
struct OfBothRoots {
    disk: Arc<dyn Disk>,
    store: Temporaries,
    work: Option<Temporaries>,
}

impl OfBothRoots {
    fn of(store: &Store) -> Self {
        let layout = &store.layout;
        let records = layout.store.tmp();
        let in_work = |work: &WorkRoot| Temporaries::new(work.tmp(), records.clone(), &layout.worktree);
        Self {
            disk: store.around.disk.clone(),
            store: Temporaries::new(records.clone(), records.clone(), IN_STORE),
            work: layout.work.as_ref().map(in_work),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Temporaries> {
        std::iter::once(&self.store).chain(&self.work)
    }
}

impl Drop for OfBothRoots {
    fn drop(&mut self) {
        self.all().for_each(|temporaries| temporaries.release(&*self.disk));
    }
}

/// A file that can become a managed one.
#[derive(Clone, Copy, Debug)]
pub struct ReadyFile<'a> {
    /// Where it is.
    pub path: &'a Path,
    /// Whether its bytes have reached the disk.
    pub on_disk: bool,
}

/// The store's metadata as a snapshot found it.
#[derive(Debug)]
pub struct Found(Gathered);

impl Snapshot {
    /// What was found in the store's metadata, taken out, so that it can be written down without the snapshot.
    pub fn take_found(&mut self) -> Found {
        Found(self.take_gathered())
    }
}

/// Locks on several conversations.
pub type Guards = BTreeMap<ConversationId, Guard>;

impl Store {
    /// Makes the store ready to be changed: makes the silo if there is none, merges its siblings, repoints its link, and
    /// lets real files follow that a mount has left behind.
    pub fn writer(&self) -> Result<(Writer, Migrated)> {
        let temporaries = Arc::new(OfBothRoots::of(self));
        let mut writer = Writer { store: self.clone(), caller: None, later: None, temporaries };
        writer.prepare()?;
        let mut migrated = writer.merge_silos()?;
        let behind = writer.make_known()?;
        if migrated.silos > 0 {
            migrated.absorb(writer.import_all()?);
        }
        if behind {
            // One that is held stays behind until the next time.
            writer.uncover(&Wait::none())?;
        }
        Ok((writer, migrated))
    }
}

/// Refuses a directory that is not of the conversation whose lock this is.
fn check_owner(guard: &Guard, dir: &Path) -> Result<()> {
    if dir.file_name().and_then(ConversationId::from_dirname) == Some(guard.id()) {
        return Ok(());
    }
    let reason = format!("not a directory of {}", guard.id());
    Err(Error::Malformed { path: dir.to_owned(), reason })
}

impl Store {
    /// Half-made things of processes that are gone; the next writer removes them.
    pub fn leftovers(&self) -> Result<Leftovers> {
        let mut all = Leftovers::default();
        for dir in OfBothRoots::of(self).all() {
            let left = dir.leftovers(self.disk())?;
            all.temporaries.extend(left.temporaries);
            all.denied
                .extend(left.denied.into_iter().filter(|record| !all.denied.contains(record)).collect::<Vec<_>>());
        }
        Ok(all)
    }
}

impl Writer {
    /// The store as it is for reading.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The same store, changed for another process: whoever lets that one through lets us through.
    pub fn on_behalf_of(&self, caller: u32) -> Self {
        Self { caller: Some(caller), ..self.clone() }
    }

    /// The same store, whose workspace's real files are reached elsewhere.
    pub fn reached_at(&self, work: PathBuf) -> Self {
        let mut writer = self.clone();
        if let Some(root) = &mut writer.store.layout.work {
            root.conversations = work;
        }
        writer.temporaries = Arc::new(OfBothRoots::of(&writer.store));
        writer
    }

    /// Takes a conversation's lock.
    pub fn lock(&self, id: ConversationId, wait: &Wait<'_>) -> Result<Guard> {
        let locks = self.store.locks();
        let locks = self.caller.map(|caller| locks.on_behalf_of(caller)).unwrap_or(locks);
        locks.acquire(id, &self.store.holder(), wait)
    }

    /// Refuses to go on under a lock whose file somebody has removed meanwhile.
    fn check_guard(&self, guard: &Guard) -> Result<()> {
        if guard.is_current() {
            return Ok(());
        }
        let id = guard.id();
        Err(Error::Locked { id, holder: self.store.locks().holder(id) })
    }

    /// Changes a conversation's metadata, in every root that is meant to have it.
    pub fn edit(&self, guard: &Guard, change: impl FnOnce(&mut Meta)) -> Result<()> {
        let mut op = self.begin()?;
        op.settle(guard)?;
        let mut meta = op.read_meta(guard)?;
        change(&mut meta);
        op.write_meta(guard, meta)?;
        op.project(guard)?;
        op.finish()
    }

    /// Hangs a conversation beneath another, or makes it a root.
    pub fn reparent(&self, guard: &Guard, parent: Option<ConversationId>) -> Result<()> {
        let mut op = self.begin_structural()?;
        op.settle(guard)?;
        op.check_parent(guard.id(), parent)?;
        if let Some(parent) = parent {
            let snapshot = op.snapshot();
            if snapshot.is_shown(guard.id()) && !snapshot.is_visible(parent) {
                return Err(Error::Refused(format!(
                    "{parent} is local here, so {} could not be shown beneath it; project {parent} or make {} local first",
                    guard.id(),
                    guard.id()
                )));
            }
        }
        let mut meta = op.read_meta(guard)?;
        meta.set_parent(parent.map_or(Parent::Root, Parent::Of));
        op.write_meta(guard, meta)?;
        op.project(guard)?;
        op.tidy_work()?;
        op.finish()
    }

    /// Makes a managed file these very bytes. Refused when they are no such document.
    pub fn replace(&self, guard: &Guard, file: ManagedFile, bytes: &[u8]) -> Result<()> {
        let mut op = self.begin_structural()?;
        op.settle(guard)?;
        let path = op.store_file(guard, file)?;
        check(file, bytes).map_err(|reason| Error::Invalid { path: path.clone(), reason })?;
        if file == ManagedFile::Metadata {
            let meta = Meta::parse(bytes).map_err(|reason| Error::Invalid { path: path.clone(), reason })?;
            let before = read_file(self.store.disk(), &path)?.and_then(|contents| Meta::parse(&contents.bytes).ok());
            let had_parent = before.as_ref().is_some_and(|before| before.parent() != Parent::Absent);
            let stored = op.snapshot().mirror.effective_parent(guard.id(), before.as_ref(), None);
            if had_parent && meta.parent() == Parent::Absent {
                // The key was there and somebody took it out: that is meant.
                op.change_mirror(|mirror| mirror.forget_parent(guard.id()))?;
            }
            if let Parent::Of(parent) = meta.parent() {
                op.check_cycle(guard.id(), parent)?;
                if stored != Some(parent) {
                    op.check_private(guard.id(), parent)?;
                }
            }
            op.put_meta_bytes(guard, &meta, bytes)?;
        } else {
            op.put(guard, file, bytes)?;
        }
        op.project(guard)?;
        op.finish()
    }

    /// Makes a managed file this very document, in a conversation's directory in the store and nowhere else. Looks at
    /// nothing but that file, so it is for documents that leave title, parent and origin alone, and that the file is known
    /// not to be yet. A directory that is not there is not made. What the new file looks like is told before it gets its
    /// name.
    pub fn save(&self, guard: &Guard, dir: &Path, document: Document<'_>, about: &dyn Fn(&Stat)) -> Result<()> {
        self.check_guard(guard)?;
        check_owner(guard, dir)?;
        let path = managed(dir, document.file());
        let scratch = self.saving();
        let bits = match self.store.disk().stat(&path) {
            Ok(stat) => Bits::Kept(stat.mode & PERMISSIONS),
            Err(error) if is_absent(&error) => scratch.bits_of_new(None),
            Err(error) => return Err(error).context("look at", &path),
        };
        scratch.put(&path, document.bytes(), bits, about)
    }

    /// As [`Writer::save`], by giving the name to a file that has these very bytes, and that nobody else can reach. `false`,
    /// and nothing is done, where that would leave another file than a save does: of another kind, or with an older time. It
    /// gets the permission bits that the managed file has.
    pub fn save_file(
        &self,
        guard: &Guard,
        dir: &Path,
        document: Document<'_>,
        ready: ReadyFile<'_>,
        about: &dyn Fn(&Stat),
    ) -> Result<bool> {
        let disk = self.store.disk();
        self.check_guard(guard)?;
        check_owner(guard, dir)?;
        let path = managed(dir, document.file());
        let (Ok(mut new), Ok(old)) = (disk.stat(ready.path), disk.stat(&path)) else { return Ok(false) };
        let alike = (new.kind, new.dev) == (old.kind, old.dev) && new.kind == Kind::File;
        if !alike || new.size != document.bytes().len() as u64 || new.mtime < old.mtime {
            return Ok(false);
        }
        if new.mode != old.mode {
            disk.set_mode(ready.path, old.mode & PERMISSIONS).context("set the mode of", ready.path)?;
            new = disk.stat(ready.path).context("look at", ready.path)?;
        }
        if !ready.on_disk {
            disk.sync_file(ready.path).context("sync", ready.path)?;
        }
        about(&new);
        self.saving().hand_over(ready.path, &path)?;
        Ok(true)
    }

    /// Brings both copies of a conversation into step.
    pub fn sync(&self, guard: &Guard) -> Result<()> {
        let mut op = self.begin()?;
        op.settle(guard)?;
        op.project(guard)?;
        op.finish()
    }

    /// Makes a conversation the session's active one.
    pub fn activate(&self, session: &Session, id: ConversationId) -> Result<()> {
        let _turn = self.session_lock()?;
        let sessions = self.store.sessions();
        let mut mapping = sessions.load(session)?.unwrap_or_else(|| Mapping::new(session.clone()));
        mapping.activate(id, self.store.now());
        sessions.save(&mapping, &|path, bytes| self.scratch().replace(path, bytes).map(drop))
    }

    /// Writes down the store's metadata as it was found, so that the next look need not read it. Nothing depends on it: what
    /// keeps it from being written keeps nothing else.
    fn keep_index(&self, gathered: &Gathered, extent: Extent) {
        let root = &self.store.layout.store;
        let write = || {
            let silo = self.store.disk().stat(&root.dir).context("look at", &root.dir)?;
            let filesystem = self.store.disk().filesystem(&root.dir).context("look at", &root.dir)?;
            let bytes = gathered.encode(Identity::new(silo, filesystem), silo.dev, extent);
            let content = NewContent::File { bytes, mode: Access::Private.file() };
            self.scratch().put_one_of_many(&root.index(), content)
        };
        if let Err(error) = write() {
            tracing::debug!(%error, "the index is not written");
        }
    }

    /// Writes down what a snapshot found, if it is news, for the looks to come. What was written a moment ago is brought to
    /// disk for that where it is much, so it takes as long as it takes: it is for whoever nobody waits for.
    pub fn keep_found(&self, found: &Found) {
        let Found(gathered) = found;
        if gathered.has_many_young() {
            let dir = &self.store.layout.store.dir;
            match self.store.disk().sync_all(dir).context("bring to disk", dir) {
                Ok(()) => return self.keep_index(gathered, Extent::All),
                Err(error) => tracing::debug!(%error, "the index goes without what is young"),
            }
        }
        if gathered.has_news() {
            self.keep_index(gathered, Extent::Safe);
        }
    }

    fn session_lock(&self) -> Result<FileLock> {
        self.file_lock(&self.store.layout.store.vfs().join("sessions.lock"))
    }

    fn file_lock(&self, path: &Path) -> Result<FileLock> {
        FileLock::exclusive(self.store.disk(), path)
    }

    fn scratch(&self) -> Scratch<'_> {
        Scratch::new(self.store.disk(), &self.temporaries.store, self.store.layout.store_access())
    }

    /// As [`Writer::scratch`], for files whose names can reach the disk later.
    fn saving(&self) -> Scratch<'_> {
        self.scratch().putting_off(self.later.as_ref())
    }

    fn work_scratch(&self) -> Option<Scratch<'_>> {
        Some(Scratch::new(self.store.disk(), self.temporaries.work.as_ref()?, Access::Shared))
    }

    /// Removes what dead processes left behind.
    fn sweep(&self) -> Result<()> {
        self.temporaries.all().try_for_each(|temporaries| temporaries.sweep(self.store.disk()))
    }

    /// The silo, and scratch space without leftovers.
    fn prepare(&self) -> Result<()> {
        let (disk, layout) = (self.store.disk(), &self.store.layout);
        make_dirs(disk, &layout.store.conversations(), layout.store_access())?;
        self.sweep()?;
        if layout.is_single_root() {
            // Our state lies inside the project here; it is nobody else's business.
            make_dirs(disk, &layout.store.vfs(), layout.store_access())?;
            self.scratch().replace(&layout.store.vfs().join(".gitignore"), b"*\n")?;
        }
        Ok(())
    }

    /// Makes the worktree known to the store: surveys its copies, and points the silo's link at it. Returns whether a mount
    /// has left its real files behind.
    fn make_known(&self) -> Result<bool> {
        let layout = &self.store.layout;
        if layout.is_single_root() || (layout.work.is_none() && self.is_linked()?) {
            return Ok(false);
        }
        let head = self.store.ledger_head()?;
        if self.survey(head.survey)? {
            self.point_link()?;
        }
        Ok(layout.work.is_some() && head.covered)
    }

    /// Records, before the first change of a worktree, how the store stands to the copies that are in it. If this is cut
    /// short, the worktree is as unknown as before. Returns whether the worktree is known now: beneath a mount its copies
    /// cannot be seen.
    fn survey(&self, so_far: Survey) -> Result<bool> {
        match (so_far, &self.store.layout.work) {
            (Survey::Done, _) | (Survey::Older, None) => Ok(true),
            (Survey::Pending, None) => Ok(false),
            (Survey::Older | Survey::Pending, Some(_)) => {
                let mut op = self.begin()?;
                op.ledger_mut().survey = Survey::Done;
                op.ledger_mut().project = self.store.layout.project.to_str().map(ToOwned::to_owned);
                op.finish()?;
                Ok(true)
            }
        }
    }

    /// Whether the silo's link points at this worktree already.
    fn is_linked(&self) -> Result<bool> {
        let (disk, layout) = (self.store.disk(), &self.store.layout);
        let link = layout.store.storage_link();
        match disk.read_link(&link) {
            Ok(target) => Ok(target == layout.storage),
            Err(error) if is_absent(&error) || error.kind() == io::ErrorKind::InvalidInput => Ok(false),
            Err(error) => Err(error).context("read link", &link),
        }
    }

    /// Points the silo at the worktree that used it last.
    fn point_link(&self) -> Result<()> {
        let (disk, layout) = (self.store.disk(), &self.store.layout);
        let link = layout.store.storage_link();
        match disk.stat(&link) {
            Ok(stat) if stat.kind != Kind::Link => {
                tracing::warn!(path = %link.display(), "not a link; left alone");
                Ok(())
            }
            Ok(_) if disk.read_link(&link).context("read link", &link)? == layout.storage => Ok(()),
            Ok(_) => self.scratch().link(&layout.storage, &link),
            Err(error) if is_absent(&error) => self.scratch().link(&layout.storage, &link),
            Err(error) => Err(error).context("look at", &link),
        }
    }
}
