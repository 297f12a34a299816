//! One change of the store, from the locks it takes to the ledger it leaves. The snapshot it works on is kept true as it
//! goes.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::{Guards, Writer};
use crate::conversation::Conversation;
use crate::disk::Contents;
use crate::error::{Error, Result};
use crate::files::{NewFile, exists, make_dirs, move_dir, unused};
use crate::id::ConversationId;
use crate::journal::Change;
use crate::layout::{Partition, managed};
use crate::ledger::Ledger;
use crate::lock::{FileLock, Guard, Wait, make_room_for_files};
use crate::meta::Meta;
use crate::mirror::Mirror;
use crate::observe::{Observed, read_file};
use crate::presence::Projection;
use crate::recall::Extent;
use crate::reconcile::{Base, ManagedFile, Root, Unit};
use crate::snapshot::{Sight, Snapshot};
use crate::store::Store;

/// A change under way. Dropping it without [`Operation::finish`] leaves a state that the next one mends.
#[derive(Debug)]
pub(super) struct Operation<'w> {
    pub(super) writer: &'w Writer,
    snapshot: Snapshot,
    /// The ledger as it is on disk; the snapshot has the one that is being written.
    saved: Ledger,
    pub(super) tree_lock: Option<FileLock>,
    /// `None` where the workspace is the only root, and nothing is remembered.
    ledger_lock: Option<FileLock>,
}

impl Writer {
    /// Begins a change that leaves the shape of the tree alone.
    pub(super) fn begin(&self) -> Result<Operation<'_>> {
        self.begin_with(false, None)
    }

    /// Begins a change that may move conversations in the tree; only one is under way in a store at a time.
    pub(super) fn begin_structural(&self) -> Result<Operation<'_>> {
        self.begin_with(true, None)
    }

    /// Begins a change of real files alone, whether or not a mount has left them behind.
    pub(super) fn begin_for_files(&self) -> Result<Operation<'_>> {
        let beneath = self.store.layout.work.is_some() && self.store.is_behind()?;
        self.begin_with(false, beneath.then_some(Sight::Beneath))
    }

    /// Begins a change of real files that a mount has left behind.
    pub(super) fn begin_beneath(&self) -> Result<Operation<'_>> {
        self.begin_with(false, Some(Sight::Beneath))
    }

    /// Takes the locks that `wanted` asks for, in order, and begins a change once what it asks for under them is what is
    /// held: whatever appears until the change is alone is held too.
    pub(super) fn begin_locked(
        &self,
        structural: bool,
        wait: &Wait<'_>,
        wanted: impl Fn(&Snapshot) -> Result<BTreeSet<ConversationId>>,
    ) -> Result<(Guards, Operation<'_>)> {
        let mut may_have_leftovers = true;
        loop {
            let snapshot = self.store.snapshot()?;
            if std::mem::take(&mut may_have_leftovers) && self.has_leftovers(&snapshot)? {
                // What was removed for good and has left a copy here is no part of the change: it must not come back with
                // it, nor be in its way. What lies in it and is not removed moves out first.
                let mut op = self.begin()?;
                op.put_in_place()?;
                op.finish()?;
                continue;
            }
            let ids = wanted(&snapshot)?;
            drop(snapshot);
            make_room_for_files(ids.len());
            let mut guards = Guards::new();
            for &id in &ids {
                guards.insert(id, self.lock(id, wait)?);
            }
            let op = self.begin_with(structural, None)?;
            if wanted(op.snapshot())?.iter().all(|id| guards.contains_key(id)) {
                return Ok((guards, op));
            }
        }
    }

    /// Whether the worktree may have copies of what was removed for good.
    fn has_leftovers(&self, snapshot: &Snapshot) -> Result<bool> {
        for found in snapshot.all().filter(|found| snapshot.is_without_store(found.id)) {
            if snapshot.is_removed(self.store.disk(), &self.store.layout, found.id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Changes the mirror, starting from what is on disk now, by whoever holds the tree's lock.
    pub(super) fn change_mirror(&self, lock: &FileLock, change: impl Fn(&mut Mirror) -> bool) -> Result<()> {
        let mut mirror = self.store.mirror()?;
        if change(&mut mirror) {
            self.keep_broken_mirror(&self.store.layout.store.tree_file())?;
            self.write_mirror(lock, &mirror)?;
        }
        Ok(())
    }

    /// A mirror that does not parse counts as empty, but may be the only place that has some links: it is kept.
    fn keep_broken_mirror(&self, file: &Path) -> Result<()> {
        let disk = self.store.disk();
        let Some(contents) = read_file(disk, file)? else { return Ok(()) };
        if serde_json::from_slice::<Mirror>(&contents.bytes).is_ok() {
            return Ok(());
        }
        let owner = self.store.layout.store.conflicts().join("tree");
        make_dirs(disk, &owner, self.store.layout.store_access())?;
        let name = format!("{}_mirror", crate::conflict::dirname(self.store.now()));
        let target = unused(disk, &owner, OsStr::new(&name))?;
        self.scratch().place(&target, &[NewFile::bytes("tree.json", contents.bytes)])
    }

    fn begin_with(&self, structural: bool, sight: Option<Sight>) -> Result<Operation<'_>> {
        let layout = &self.store.layout;
        let ledger_lock = if layout.is_single_root() { None } else { Some(self.ledger_lock()?) };
        let tree_lock = if structural { Some(self.file_lock(&layout.store.tree_lock())?) } else { None };
        let snapshot = match sight {
            Some(sight) => self.store.snapshot_with(sight)?,
            None => self.store.snapshot()?,
        };
        let saved = snapshot.ledger.clone();
        let mut op = Operation { writer: self, saved, snapshot, tree_lock, ledger_lock };
        for (id, seen) in op.snapshot.take_first_seen() {
            op.snapshot.ledger.entry(id).first_seen = Some(seen);
        }
        op.forget_vain_removals()?;
        Ok(op)
    }
}

impl Operation<'_> {
    pub(super) fn store(&self) -> &Store {
        &self.writer.store
    }

    pub(super) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Ends it without having changed anything.
    pub(super) fn into_snapshot(self) -> Snapshot {
        self.snapshot
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.snapshot.ledger
    }

    pub(super) fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.snapshot.ledger
    }

    /// One unit of a conversation on both sides, with what is to be done about it.
    pub(super) fn observe(&self, id: ConversationId, unit: Unit) -> Result<Observed> {
        self.snapshot.observe(self.store().disk(), &self.store().layout, self.snapshot.find(id)?, unit)
    }

    /// Remembers how a conversation was left; what is remembered reaches the disk with [`Operation::save_ledger`].
    pub(super) fn remember(&mut self, id: ConversationId, intent: Projection, base: Option<Base>) {
        let is_here = self.snapshot.get(id).is_some_and(|found| found.work.is_some());
        let entry = self.snapshot.ledger.entry(id);
        if intent == Projection::LocalOnly {
            entry.end_showing();
        }
        entry.intent = intent;
        match base {
            Some(_) => entry.base = base,
            None => entry.forget_base(),
        }
        entry.never_projected &= intent == Projection::LocalOnly && base.is_none() && !is_here;
        if intent != Projection::LocalOnly {
            entry.end_made_local();
        }
    }

    /// Remembers that the user does not keep a conversation local here any more.
    pub(super) fn show_by_command(&mut self, id: ConversationId) {
        if let Some(entry) = self.snapshot.ledger.get_mut(id) {
            entry.end_made_local();
        }
    }

    /// Remembers where a conversation is meant to be, now that it has no copy here. Beneath a mount its real files are
    /// still there, and what they are measured against stays known until they can follow.
    pub(super) fn intend(&mut self, id: ConversationId, intent: Projection) {
        let left = self.ledger().get(id).and_then(|entry| entry.base);
        self.remember(id, intent, left.filter(|_| self.snapshot.is_out_of_sight(id)));
    }

    /// Remembers whether the real files may be behind.
    pub(super) fn set_covered(&mut self, covered: bool) {
        self.snapshot.ledger.covered = covered;
    }

    /// Hides no single file of a conversation any more.
    pub(super) fn show_files(&mut self, id: ConversationId) {
        self.snapshot.ledger.entry(id).show(|_| true);
    }

    /// Hides one of its files.
    pub(super) fn hide_file(&mut self, id: ConversationId, file: &str) {
        self.snapshot.ledger.entry(id).hide(file);
    }

    /// Hides one of its files no more.
    pub(super) fn show_file(&mut self, id: ConversationId, file: &str) {
        Change::ShowFile(id, file.to_owned()).apply(&mut self.snapshot.ledger);
    }

    /// Forgets a conversation that is gone. Beneath a mount its real files are still there, to be withdrawn later.
    pub(super) fn forget(&mut self, id: ConversationId) {
        let left = self.ledger().get(id).is_some_and(|entry| entry.base.is_some());
        if left && self.store().layout.covered {
            Change::Hide(id).apply(&mut self.snapshot.ledger);
        } else {
            self.snapshot.ledger.forget(id);
        }
    }

    /// Takes a conversation for one that was not removed.
    pub(super) fn forget_removal_in_snapshot(&mut self, id: ConversationId) -> Result<()> {
        self.snapshot.forget_removal(&*self.writer.store.around.disk, &self.writer.store.layout, id)
    }

    /// Takes conversations for removed.
    pub(super) fn remember_removal_in_snapshot(&mut self, ids: &[ConversationId]) -> Result<()> {
        self.snapshot.remember_removal(&*self.writer.store.around.disk, &self.writer.store.layout, ids)
    }

    /// Changes the snapshot's idea of one conversation, and of the tree with it.
    pub(super) fn update(&mut self, id: ConversationId, change: impl FnOnce(&mut Conversation)) {
        self.snapshot.update(id, change);
    }

    /// Puts a conversation into the snapshot.
    pub(super) fn insert(&mut self, conversation: Conversation) {
        self.snapshot.insert(conversation);
    }

    /// Takes a conversation out of the snapshot.
    pub(super) fn take_out(&mut self, id: ConversationId) {
        self.snapshot.remove(id);
    }

    /// Tells the snapshot that a directory of the workspace moved.
    pub(super) fn snapshot_moved(&mut self, from: &Path, to: &Path) {
        self.snapshot.moved(Root::Work, from, to);
    }

    /// Tells the snapshot that a second copy is gone.
    pub(super) fn forget_second(&mut self, id: ConversationId, dir: &Path) {
        self.snapshot.remove_duplicate(id, dir);
    }

    /// Brings the ledger to disk, if it has news.
    pub(super) fn save_ledger(&mut self) -> Result<()> {
        if *self.ledger() == self.saved {
            return Ok(());
        }
        if let Some(lock) = &self.ledger_lock {
            self.writer.write_ledger(lock, self.ledger())?;
        }
        self.saved = self.ledger().clone();
        Ok(())
    }

    /// Ends the change with a mount over the real files. Where nothing else is new that is one line of the journal, which
    /// is on disk before anything can be changed beneath the mount.
    pub(super) fn finish_covered(mut self) -> Result<Snapshot> {
        let news = *self.ledger() != self.saved;
        match &self.ledger_lock {
            Some(lock) if !news && !self.saved.covered => self.writer.note_durably(lock, &[Change::Cover])?,
            Some(_) | None => {}
        }
        self.set_covered(true);
        if news {
            self.save_ledger()?;
        }
        self.close();
        Ok(self.snapshot)
    }

    /// Ends the change.
    pub(super) fn finish(mut self) -> Result<()> {
        self.save_ledger()?;
        let gathered = self.snapshot.take_gathered();
        if gathered.has_many_news() {
            self.writer.keep_index(&gathered, Extent::Safe);
        }
        self.close();
        Ok(())
    }

    fn close(&self) {
        if let Some(scratch) = self.writer.work_scratch() {
            scratch.close();
        }
    }

    /// Where a managed file is in the store.
    pub(super) fn store_file(&self, guard: &Guard, file: ManagedFile) -> Result<PathBuf> {
        Ok(managed(&self.store_dir(guard)?, file))
    }

    /// Where a conversation is in the store.
    pub(super) fn store_dir(&self, guard: &Guard) -> Result<PathBuf> {
        let conversation = self.snapshot.find(guard.id())?;
        let place = conversation.store.as_ref().ok_or(Error::NotFound { id: guard.id() })?;
        Ok(place.dir.clone())
    }

    /// The store's metadata, with what another writer dropped put back.
    pub(super) fn read_meta(&self, guard: &Guard) -> Result<Meta> {
        let path = self.store_file(guard, ManagedFile::Metadata)?;
        let Some(contents) = read_file(self.store().disk(), &path)? else {
            return Err(Error::Malformed { path, reason: "the file is missing".to_owned() });
        };
        let mut meta = Meta::parse(&contents.bytes).map_err(|reason| Error::Invalid { path, reason })?;
        self.snapshot.mirror.heal(guard.id(), &mut meta);
        Ok(meta)
    }

    /// Writes metadata if it says anything new, and lets the mirror and the directory's name follow.
    pub(super) fn write_meta(&mut self, guard: &Guard, meta: Meta) -> Result<()> {
        let path = self.store_file(guard, ManagedFile::Metadata)?;
        let before = read_file(self.store().disk(), &path)?.and_then(|contents| Meta::parse(&contents.bytes).ok());
        if before.as_ref() == Some(&meta) {
            return self.follow_meta(guard, &meta);
        }
        let bytes = meta.to_bytes();
        self.put_meta_bytes(guard, &meta, &bytes)
    }

    /// Writes these very bytes, which are this metadata.
    pub(super) fn put_meta_bytes(&mut self, guard: &Guard, meta: &Meta, bytes: &[u8]) -> Result<()> {
        self.put(guard, ManagedFile::Metadata, bytes)?;
        self.follow_meta(guard, meta)
    }

    /// Writes a managed file of the store.
    pub(super) fn put(&mut self, guard: &Guard, file: ManagedFile, bytes: &[u8]) -> Result<()> {
        self.writer.check_guard(guard)?;
        let path = self.store_file(guard, file)?;
        self.writer.scratch().replace(&path, bytes).map(drop)
    }

    /// Writes a managed file of the store that is a copy of one in the workspace. It has no permission bits that either of
    /// the two does not have.
    pub(super) fn put_copy(&mut self, guard: &Guard, file: ManagedFile, source: &Contents) -> Result<()> {
        self.writer.check_guard(guard)?;
        let path = self.store_file(guard, file)?;
        self.writer.scratch().replace_like(&path, &source.bytes, Some(source.stat.mode)).map(drop)
    }

    /// Changes the mirror, under the tree's lock, starting from what is on disk now.
    pub(super) fn change_mirror(&mut self, change: impl Fn(&mut Mirror) -> bool) -> Result<()> {
        if !change(&mut self.snapshot.mirror) {
            return Ok(());
        }
        match &self.tree_lock {
            Some(lock) => self.writer.change_mirror(lock, change),
            None => {
                let lock = self.writer.file_lock(&self.store().layout.store.tree_lock())?;
                self.writer.change_mirror(&lock, change)
            }
        }
    }

    /// Refuses a parent that is not there, is put away, or would close a circle.
    pub(super) fn check_parent(&self, id: ConversationId, parent: Option<ConversationId>) -> Result<()> {
        let Some(parent) = parent else { return Ok(()) };
        self.snapshot.check_readable(parent)?;
        let partition = self.snapshot.find(id).map_or(Partition::Live, |conversation| conversation.partition);
        if self.snapshot.find(parent)?.partition != partition {
            return Err(Error::Refused(format!("{parent} is archived; unarchive it first")));
        }
        self.check_cycle(id, parent)
    }

    /// Refuses a parent that is private here, for what is meant to be shown here.
    pub(super) fn check_private(&self, id: ConversationId, parent: ConversationId) -> Result<()> {
        if self.intent(id) != Projection::Projected {
            return Ok(());
        }
        let barred = self.snapshot.bar(self.store().disk(), &self.store().layout, id, parent)?;
        barred.map_or(Ok(()), |barred| Err(barred.error()))
    }

    /// Refuses a parent that would close a circle.
    pub(super) fn check_cycle(&self, id: ConversationId, parent: ConversationId) -> Result<()> {
        let Some(conversation) = self.snapshot.get(id) else {
            return Ok(());
        };
        if self.snapshot.tree(conversation.partition).would_cycle(id, parent) {
            return Err(Error::circle(id, parent));
        }
        Ok(())
    }

    /// Moves a conversation's directory in the store.
    pub(super) fn move_in_store(&mut self, guard: &Guard, partition: Partition, name: &str) -> Result<()> {
        let from = self.store_dir(guard)?;
        let to = self.store().layout.store.partition(partition).join(name);
        if from == to {
            return Ok(());
        }
        if exists(self.store().disk(), &to)? {
            // A second directory of the same conversation is in the way. It is kept, not overwritten.
            self.unnest(&to)?;
            self.keep_dir(guard.id(), &to, "duplicate")?;
            self.forget_second(guard.id(), &to);
        }
        if partition != self.snapshot.find(guard.id())?.partition {
            self.unnest(&from)?;
        }
        move_dir(self.store().disk(), &from, &to, self.store().layout.store_access())?;
        if self.store().layout.is_single_root() {
            self.snapshot.moved(Root::Store, &from, &to);
        }
        self.update(guard.id(), |conversation| {
            conversation.partition = partition;
            if let Some(place) = &mut conversation.store {
                place.name = name.into();
                place.dir = to;
                place.partition = partition;
            }
        });
        Ok(())
    }

    /// Moves what lies beneath a directory of the only root out of it, to lie beside the others. A store of its own is flat,
    /// and has nothing to be moved.
    pub(super) fn unnest(&mut self, dir: &Path) -> Result<()> {
        if !self.store().layout.is_single_root() {
            return Ok(());
        }
        while let Some((id, partition, from)) = self.snapshot.outermost_beneath(dir) {
            let name = from.file_name().unwrap_or_default();
            let to = self.store().layout.store.partition(partition).join(name);
            if exists(self.store().disk(), &to)? {
                return Err(Error::Refused(format!(
                    "{id} lies in {} and cannot be moved out, because {} is there",
                    from.display(),
                    to.display()
                )));
            }
            move_dir(self.store().disk(), &from, &to, self.store().layout.store_access())?;
            self.snapshot.moved(Root::Store, &from, &to);
        }
        Ok(())
    }

    /// Moves a whole directory to where losers are kept.
    pub(super) fn keep_dir(&self, id: ConversationId, dir: &Path, label: &str) -> Result<()> {
        move_dir(self.store().disk(), dir, &self.kept_name(id, label)?, self.store().layout.store_access())
    }

    /// Keeps these files among a conversation's losers.
    pub(super) fn keep_files(&self, id: ConversationId, label: &str, files: &[NewFile]) -> Result<()> {
        let target = self.kept_name(id, label)?;
        if let Some(parent) = target.parent() {
            make_dirs(self.store().disk(), parent, self.store().layout.store_access())?;
        }
        self.writer.scratch().place(&target, files)
    }

    /// A new name among a conversation's kept losers.
    fn kept_name(&self, id: ConversationId, label: &str) -> Result<PathBuf> {
        let time = crate::conflict::dirname(self.store().now());
        let owner = self.store().layout.store.conflicts().join(id.deciseconds().to_string());
        unused(self.store().disk(), &owner, OsStr::new(&format!("{time}_{label}")))
    }

    /// Whether a conversation is meant to be in this worktree.
    pub(super) fn intent(&self, id: ConversationId) -> Projection {
        self.snapshot.get(id).map_or(Projection::LocalOnly, |conversation| conversation.intent)
    }

    /// Lets the mirror and the directory's name follow metadata.
    pub(super) fn follow_meta(&mut self, guard: &Guard, meta: &Meta) -> Result<()> {
        let id = guard.id();
        self.change_mirror(|mirror| mirror.follow(id, meta))?;
        let parent = self.snapshot.mirror.effective_parent(id, Some(meta), None);
        let origin = meta.origin().or(self.snapshot.mirror.origin(id)).map(ToOwned::to_owned);
        let new = meta.clone();
        self.update(id, |conversation| {
            conversation.parent = parent;
            conversation.origin = origin;
            conversation.meta = Some(new);
        });
        let conversation = self.snapshot.find(id)?;
        if self.store().layout.is_single_root()
            && conversation.store.as_ref().is_some_and(|place| place.beneath.is_some())
        {
            // A tree that came nested stays nested where it is the only copy.
            return Ok(());
        }
        let (partition, name) = (conversation.partition, id.dirname(meta.title()));
        self.move_in_store(guard, partition, &name)
    }
}
