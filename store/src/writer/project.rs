//! Makes the workspace's copy of a conversation what the store has, where the tree wants it. The store is settled by then.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::operation::Operation;
use crate::conversation::Conversation;
use crate::disk::{Kind, Stat};
use crate::error::{Context as _, Error, Result};
use crate::files::{NewFile, exists, gather, kind, make_dirs, move_dir, remove_hollow, remove_tree, stat};
use crate::id::ConversationId;
use crate::layout::{Partition, managed};
use crate::lock::{Guard, Wait};
use crate::modes::Access;
use crate::observe::{Rule, read_file, stat_file, unmanaged};
use crate::own::{has_nothing_new, has_scratch, is_exported, take_too_large};
use crate::plan::Nesting;
use crate::presence::{Projection, StoragePresence};
use crate::reconcile::{Action, Base, Digest, FileBase, ManagedFile, Root, Unit, is_conclusive};
use crate::scan::Place;
use crate::sighting::is_trashed;

/// Every system takes paths of this length.
const SHORT: usize = 1_000;
/// More than the longest name of a managed file.
const NAME: usize = 32;

/// How the files of copies in the workspace looked at one moment, by their paths in the copy.
pub(super) type Seen = BTreeMap<ConversationId, BTreeMap<PathBuf, Stat>>;

impl Operation<'_> {
    /// Brings the workspace's copy in step, moves it where it belongs, and remembers how both sides look.
    pub(super) fn project(&mut self, guard: &Guard) -> Result<()> {
        let id = guard.id();
        self.project_copy(guard).map_err(|source| Error::Unprojected { id, source: Box::new(source) })
    }

    /// How the workspace's copies look, to notice an edit that comes after they were settled.
    pub(super) fn look_at_work(&self, ids: impl IntoIterator<Item = ConversationId>) -> Result<Seen> {
        let mut seen = Seen::new();
        for id in ids {
            let Some(dir) = self.snapshot().get(id).and_then(|found| found.dirs().work) else { continue };
            seen.insert(id, self.stamps(dir)?);
        }
        Ok(seen)
    }

    /// As [`Operation::withdraw`]; whatever was edited since it was seen is kept.
    pub(super) fn withdraw_seen(&mut self, id: ConversationId, seen: &Seen) -> Result<()> {
        self.check_nothing_held_inside([id])?;
        let dirs: Vec<_> = self.snapshot().places(Root::Work, id).map(|place| place.dir.clone()).collect();
        for dir in dirs {
            if exists(self.store().disk(), &dir)?
                && let Some(scratch) = self.writer.work_scratch()
            {
                let aside = scratch.set_aside(&dir)?;
                self.keep_late(&dir, &aside, seen)?;
                remove_tree(self.store().disk(), &aside)?;
                self.remove_if_empty(&dir);
            }
        }
        self.update(id, |conversation| {
            conversation.work = None;
            if conversation.store.is_some() {
                conversation.presence = StoragePresence::UserLocalOnly;
            }
        });
        Ok(())
    }

    /// Refuses to take copies out of the workspace that a held copy lies in: its files stay as they are.
    pub(super) fn check_nothing_held_inside(&self, ids: impl IntoIterator<Item = ConversationId>) -> Result<()> {
        for id in ids {
            let mut places = self.snapshot().places(Root::Work, id);
            if let Some(held) = places.find_map(|place| self.snapshot().held_inside(&place.dir)) {
                return Err(Error::Refused(format!(
                    "a held copy of {held} lies in the copy of {id}; `jp import {held}` joins it, or move it away"
                )));
            }
        }
        Ok(())
    }

    /// Keeps the files of a directory set aside, and of what lies beneath it, that are not as they were seen.
    fn keep_late(&self, dir: &Path, aside: &Path, seen: &Seen) -> Result<()> {
        for (&id, before) in seen {
            let work = self.snapshot().get(id).and_then(|found| found.dirs().work);
            let Some(Ok(rest)) = work.map(|work| work.strip_prefix(dir)) else { continue };
            let there = aside.join(rest);
            let now = self.stamps(&there)?;
            let late = now.into_iter().filter(|(path, stat)| before.get(path) != Some(stat)).map(|(path, _)| path);
            let files = gather(self.store().disk(), &there, late)?;
            if files.is_empty() {
                continue;
            }
            self.keep_files(id, "late-workspace", &files)?;
        }
        Ok(())
    }

    /// The files of a copy that is there. Directories have nothing of their own.
    fn stamps(&self, dir: &Path) -> Result<BTreeMap<PathBuf, Stat>> {
        let disk = self.store().disk();
        let mut found = BTreeMap::new();
        let own = if exists(disk, dir)? { unmanaged(disk, dir)? } else { Vec::new() };
        for path in ManagedFile::ALL.into_iter().map(|file| PathBuf::from(file.name())).chain(own) {
            if let Some(stat) = stat(disk, &dir.join(&path))?.filter(|stat| stat.kind != Kind::Dir) {
                found.insert(path, stat);
            }
        }
        Ok(found)
    }

    /// Takes a conversation's copy, and whatever lies beneath it, out of the workspace. The caller has settled all of it.
    pub(super) fn withdraw(&mut self, id: ConversationId) -> Result<()> {
        self.withdraw_seen(id, &Seen::new())
    }

    /// Moves every copy in the workspace to where the tree wants it by now. Only directories move, and the ledger's lock
    /// guards those. One that somebody moved is left to whoever learns from it what that means, and one that is not in the
    /// store may still be arriving.
    pub(super) fn rearrange(&mut self) -> Result<()> {
        for partition in Partition::ALL {
            let order: Vec<_> = self.snapshot().tree(partition).walk().into_iter().map(|(_, id)| id).collect();
            for id in order {
                let settled = self.snapshot().get(id).filter(|found| found.store.is_some() && found.moved.is_none());
                let at = settled.and_then(|found| found.work.as_ref()).map(|place| place.dir.clone());
                let wanted = self.snapshot().work_dir(&self.store().layout, id);
                if let (Some(at), Some(wanted)) = (at, wanted)
                    && at != wanted
                    // The one it belongs beneath could not be moved out of it.
                    && !wanted.starts_with(&at)
                    && !self.is_in_the_way(&wanted)?
                {
                    self.move_in_work(id, &at, &wanted)?;
                }
            }
        }
        Ok(())
    }

    /// Puts the workspace in order after a change of shape. Copies move to where they belong. Leftovers go: copies of
    /// conversations that the store no longer has and that hold exactly what was exported, and second copies of one
    /// conversation. Whatever has bytes of its own is kept.
    pub(super) fn tidy_work(&mut self) -> Result<()> {
        self.put_in_place()?;
        let mut seconds = Vec::new();
        for id in self.snapshot().all().map(|conversation| conversation.id) {
            let others = self.snapshot().places(Root::Work, id).skip(1);
            seconds.extend(others.map(|place| (id, place.dir.clone())));
        }
        for (id, dir) in seconds {
            self.drop_second_copy(id, &dir)?;
        }
        Ok(())
    }

    /// Moves copies to where they belong, and drops those of what is gone from the store.
    pub(super) fn put_in_place(&mut self) -> Result<()> {
        self.rearrange()?;
        self.drop_leftovers(&|_| true)
    }

    /// Drops the copies of what was removed for good, among those in these directories, where nothing in them is their own.
    pub(super) fn drop_leftovers(&mut self, among: &dyn Fn(&Path) -> bool) -> Result<()> {
        let external = self.snapshot().all().filter(|found| found.presence == StoragePresence::WorkspaceOnly);
        let mut leftovers: Vec<_> = external
            .filter_map(|found| Some((found.dirs().work.filter(|dir| among(dir))?.components().count(), found.id)))
            .collect();
        // What lies in another goes first.
        leftovers.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
        leftovers.into_iter().try_for_each(|(_, id)| self.drop_leftover(id))
    }

    /// Keeps what second copies of a conversation have of their own, before they go with the first.
    pub(super) fn keep_second_copies(&mut self, id: ConversationId) -> Result<()> {
        let dirs: Vec<_> = self.snapshot().places(Root::Work, id).skip(1).map(|place| place.dir.clone()).collect();
        for dir in dirs {
            if exists(self.store().disk(), &dir)? && !self.is_second(id, &dir)? {
                self.keep_copy(id, &dir)?;
            }
        }
        Ok(())
    }

    fn project_copy(&mut self, guard: &Guard) -> Result<()> {
        let id = guard.id();
        if self.store().layout.is_single_root() {
            return Ok(());
        }
        let intent = self.intent(id);
        if intent == Projection::LocalOnly || self.store().layout.covered {
            // Beneath a mount the decision is all there is to do; the real files follow when it ends.
            self.intend(id, intent);
            return Ok(());
        }
        let place = |op: &Self| op.snapshot().get(id)?.work.as_ref().map(|place| place.dir.clone());
        let (mut at, mut wanted) = (place(self), self.snapshot().work_dir(&self.store().layout, id));
        if let (Some(from), Some(to)) = (&at, &wanted)
            && from != to
            && to.starts_with(from)
        {
            // The new parent still lies beneath it: that one moves out first.
            self.rearrange()?;
            (at, wanted) = (place(self), self.snapshot().work_dir(&self.store().layout, id));
        }
        match (at, wanted) {
            (None, None) => {
                // Hidden with an ancestor; it comes back with it.
                self.intend(id, Projection::Projected);
                return Ok(());
            }
            (None, Some(wanted)) => self.copy_out(guard, &wanted)?,
            // Into itself nothing moves: the one it belongs beneath could not be moved out.
            (Some(at), Some(wanted)) if at != wanted && !wanted.starts_with(&at) => {
                self.move_in_work(id, &at, &wanted)?;
                self.export_units(guard)?;
            }
            (Some(_), Some(_) | None) => self.export_units(guard)?,
        }
        self.stamp(id)
    }

    /// Remembers how both copies of a conversation look, and where its copy is. Times come before what they vouch for: what
    /// changes while we look is looked at again.
    pub(super) fn stamp(&mut self, id: ConversationId) -> Result<()> {
        let taken = self.nanoseconds();
        let found = self.snapshot().find(id)?;
        let (Some(store), Some(work)) = (found.dirs().store, found.dirs().work) else { return Ok(()) };
        let (store, work) = (store.to_owned(), work.to_owned());
        let at = self.store().layout.work.as_ref().and_then(|root| root.at(&work));
        let named = self.named(&store, &work)?;
        let base = Base { taken, ..self.take_base(id)? };
        self.remember(id, Projection::Projected, Some(base));
        // From here on the base tells what changed.
        self.ledger_mut().entry(id).first_seen = None;
        self.update(id, |conversation| conversation.rule = Rule::Newest);
        let left = self.left_mut(id);
        (left.at, left.named) = (at, named);
        self.remember_own(id, &store, &work)
    }

    /// When names in both directories last changed.
    pub(super) fn named(&self, store: &Path, work: &Path) -> Result<[Option<i64>; 2]> {
        let mtime = |dir: &Path| self.store().disk().stat(dir).map(|stat| stat.mtime).context("look at", dir);
        Ok([Some(mtime(store)?), Some(mtime(work)?)])
    }

    pub(super) fn nanoseconds(&self) -> i64 {
        i64::try_from(self.store().now().as_nanosecond()).unwrap_or(i64::MAX)
    }

    /// Makes a new copy, whole.
    fn copy_out(&mut self, guard: &Guard, target: &Path) -> Result<()> {
        let id = guard.id();
        let disk = self.store().disk();
        let store = self.store_dir(guard)?;
        let mut files = Vec::new();
        for file in ManagedFile::ALL.into_iter().filter(|file| !self.is_hidden(id, Path::new(file.name()))) {
            let contents = read_file(disk, &managed(&store, file))?;
            files.extend(contents.map(|contents| NewFile::bytes(file.name(), contents.bytes)));
        }
        let mut others = unmanaged(disk, &store)?;
        others.retain(|path| is_exported(path) && !self.is_hidden(id, path));
        take_too_large(disk, &store, &mut others)?;
        files.extend(gather(disk, &store, others)?);
        self.check_reach(target)?;
        if let Some(parent) = target.parent() {
            make_dirs(disk, parent, Access::Shared)?;
        }
        if let Some(scratch) = self.writer.work_scratch() {
            remove_hollow(disk, target)?;
            scratch.place(target, &files)?;
        }
        let conversation = self.snapshot().find(id)?;
        let place = Place {
            dir: target.to_owned(),
            name: target.file_name().unwrap_or_default().to_owned(),
            partition: conversation.partition,
            beneath: match self.ledger().form.nesting {
                Nesting::Nested => self.snapshot().tree(conversation.partition).parent(id),
                Nesting::Flat => None,
            },
        };
        self.update(id, |conversation| {
            conversation.work = Some(place);
            conversation.presence = StoragePresence::Projected;
        });
        self.note_copied(id, &files);
        Ok(())
    }

    /// Refuses a directory whose files would have paths that are too long for the system. A rename could bring it there,
    /// but nobody could look into it any more.
    pub(super) fn check_reach(&self, dir: &Path) -> Result<()> {
        let longest = managed(dir, ManagedFile::BaseConfig);
        if longest.as_os_str().len() < SHORT {
            return Ok(());
        }
        exists(self.store().disk(), &longest).map(drop)
    }

    fn move_in_work(&mut self, id: ConversationId, from: &Path, to: &Path) -> Result<()> {
        let works = || self.snapshot().all().filter_map(|conversation| conversation.work.as_ref());
        let longest = works().map(|place| place.dir.as_os_str().len()).max().unwrap_or(0);
        let grows = to.as_os_str().len().saturating_sub(from.as_os_str().len());
        if longest + grows + NAME >= SHORT {
            for place in works().filter(|place| place.dir.starts_with(from)) {
                let rest = place.dir.strip_prefix(from).unwrap_or(Path::new(""));
                self.check_reach(&to.join(rest))?;
            }
        }
        remove_hollow(self.store().disk(), to)?;
        if self.is_in_the_way(to)? {
            return Err(Error::Refused(format!("{} is in the way", to.display())));
        }
        if exists(self.store().disk(), to)? {
            self.drop_second_copy(id, to)?;
            if exists(self.store().disk(), to)? {
                // A second copy with children of its own. They move first, and the next write brings this one here.
                return Ok(());
            }
        }
        let inside = self.left_inside(from);
        move_dir(self.store().disk(), from, to, Access::Shared)?;
        self.remove_if_empty(from);
        self.snapshot_moved(from, to);
        let at = self.store().layout.work.as_ref().and_then(|root| root.at(to));
        let partition = at.as_ref().map(|at| at.partition);
        if let Some(left) = self.ledger_mut().get_mut(id).and_then(|entry| entry.left.as_mut()) {
            left.at = at;
        }
        for id in inside {
            let left = self.ledger_mut().get_mut(id).and_then(|entry| entry.left.as_mut());
            if let (Some(at), Some(partition)) = (left.and_then(|left| left.at.as_mut()), partition) {
                at.partition = partition;
            }
        }
        Ok(())
    }

    /// The conversations whose copies lie where they were left, inside this directory. They go along with it, and nobody
    /// has moved them.
    fn left_inside(&self, dir: &Path) -> Vec<ConversationId> {
        let Some(root) = self.store().layout.work.as_ref() else { return Vec::new() };
        let lies_as_left = |found: &&Conversation| {
            let Some(work) = found.work.as_ref().filter(|place| place.dir.starts_with(dir)) else { return false };
            let left = self.ledger().get(found.id).and_then(|entry| entry.left.as_ref()?.at.as_ref());
            left.is_some() && left == root.at(&work.dir).as_ref()
        };
        self.snapshot().all().filter(lies_as_left).map(|found| found.id).collect()
    }

    /// Whether something that is no conversation has a place.
    fn is_in_the_way(&self, to: &Path) -> Result<bool> {
        Ok(kind(self.store().disk(), to)?.is_some_and(|kind| kind != Kind::Dir))
    }

    fn export_units(&mut self, guard: &Guard) -> Result<()> {
        let id = guard.id();
        for unit in Unit::ALL {
            let conversation = self.snapshot().find(id)?;
            let Some(work) = conversation.work.as_ref().map(|place| place.dir.clone()) else {
                return Ok(());
            };
            let observed = self.observe(id, unit)?;
            if matches!(observed.action, Action::Hold | Action::Import) {
                // Somebody is in the middle of resolving it, or wrote to it since it was settled and the store has no
                // news: the real file stays.
                continue;
            }
            let edited = matches!(observed.action, Action::Restore | Action::Conflict { .. });
            if let (true, Some(edit)) = (edited, &observed.work) {
                // Somebody wrote to it since it was settled.
                self.keep_unit(guard, unit, Root::Work, edit)?;
            }
            let (Some(store), Some(scratch)) = (observed.store, self.writer.work_scratch()) else {
                continue;
            };
            for &file in unit.files() {
                if self.is_hidden(id, Path::new(file.name())) {
                    continue;
                }
                let path = managed(&work, file);
                match store.file(file) {
                    Some(contents) => {
                        let seen = observed.work.as_ref().and_then(|work| work.file(file)).map(|seen| &*seen.bytes);
                        let late = scratch.swap(&path, &contents.bytes, None, &|old| seen == Some(old))?;
                        if let Some(late) = late {
                            self.keep_files(id, "late-workspace", &[NewFile::bytes(file.name(), late)])?;
                        }
                    }
                    None if exists(self.store().disk(), &path)? => {
                        self.store().disk().remove_file(&path).context("remove", &path)?;
                    }
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// How both sides look now. A file that differs keeps what was remembered of it.
    fn take_base(&self, id: ConversationId) -> Result<Base> {
        let disk = self.store().disk();
        let conversation = self.snapshot().find(id)?;
        let dirs = conversation.dirs();
        let before = self.ledger().get(id).and_then(|entry| entry.base);
        let mut base = before.unwrap_or_default();
        let (Some(store), Some(work)) = (dirs.store, dirs.work) else {
            return Ok(base);
        };
        for file in ManagedFile::ALL {
            let paths = [managed(store, file), managed(work, file)];
            let stamps = (stat_file(disk, &paths[0])?, stat_file(disk, &paths[1])?);
            if stamps.1.is_none() && self.is_hidden(id, Path::new(file.name())) {
                base.file_mut(file).work = None;
                continue;
            }
            let known = before.is_some_and(|before| {
                let remembered = before.file(file);
                is_conclusive(remembered.store, stamps.0, before.taken)
                    && is_conclusive(remembered.work, stamps.1, before.taken)
            });
            if known {
                continue;
            }
            let (in_store, in_work) = (read_file(disk, &paths[0])?, read_file(disk, &paths[1])?);
            let bytes = |contents: &Option<crate::disk::Contents>| contents.as_ref().map(|c| Digest::of(&c.bytes));
            if bytes(&in_store) == bytes(&in_work) {
                *base.file_mut(file) = FileBase {
                    digest: bytes(&in_store),
                    store: in_store.map(|contents| contents.stat.into()),
                    work: in_work.map(|contents| contents.stat.into()),
                };
            }
        }
        Ok(base)
    }

    /// Drops the copy of a conversation that is gone from the store, if nothing in it is its own.
    pub(super) fn drop_leftover(&mut self, id: ConversationId) -> Result<()> {
        let disk = self.store().disk();
        let conversation = self.snapshot().find(id)?;
        let Some(work) = conversation.work.clone() else {
            return Ok(());
        };
        // A copy of what was not removed may be the last there is.
        if !self.is_removed(id)? {
            return Ok(());
        }
        // Whoever holds it is about to say that it matters.
        let Ok(_guard) = self.writer.lock(id, &Wait::none()) else { return Ok(()) };
        let seen = self.look_at_work([id])?;
        for unit in Unit::ALL {
            if !self.observe(id, unit)?.is_as_left(self.snapshot().base(id)) {
                return Ok(());
            }
        }
        let (children, entry) = (crate::layout::children_dir(&work.dir), self.ledger().get(id));
        // Not empty is a good reason to stay.
        let _ = disk.remove_dir(&children);
        if exists(disk, &children)? || has_scratch(disk, &work.dir)? || !has_nothing_new(disk, &work.dir, entry)? {
            return Ok(());
        }
        // Of several copies one may differ.
        if is_trashed(disk, &self.store().layout, id)? || self.snapshot().places(Root::Work, id).count() > 1 {
            return Ok(());
        }
        self.withdraw_seen(id, &seen)?;
        self.forget(id);
        self.take_out(id);
        Ok(())
    }

    /// Removes another copy of a conversation that the worktree also has elsewhere; keeps it if it differs.
    pub(super) fn drop_second_copy(&mut self, id: ConversationId, dir: &Path) -> Result<()> {
        let disk = self.store().disk();
        // What was a second copy may have become the one in use.
        if self.snapshot().in_use(id, dir) || !exists(disk, dir)? {
            return Ok(());
        }
        if exists(disk, &crate::layout::children_dir(dir))? {
            // Other conversations lie beneath it; it stays until they have moved.
            return Ok(());
        }
        if !self.is_second(id, dir)? {
            self.keep_copy(id, dir)?;
        }
        if let Some(scratch) = self.writer.work_scratch() {
            scratch.discard(dir)?;
            self.remove_if_empty(dir);
        }
        self.forget_second(id, dir);
        Ok(())
    }

    /// Whether another copy of a conversation has nothing that the store does not have.
    fn is_second(&self, id: ConversationId, dir: &Path) -> Result<bool> {
        let disk = self.store().disk();
        let conversation = self.snapshot().find(id)?;
        let mut same = unmanaged(disk, dir)?.is_empty();
        for file in ManagedFile::ALL {
            let there = read_file(disk, &managed(dir, file))?.map(|contents| contents.bytes);
            let known = match conversation.dirs().store {
                Some(store) => read_file(disk, &managed(store, file))?.map(|contents| contents.bytes),
                None => None,
            };
            same &= there.is_none() || there == known;
        }
        Ok(same)
    }

    /// Copies a directory of the workspace to the kept losers. The two may be on different filesystems.
    fn keep_copy(&self, id: ConversationId, dir: &Path) -> Result<()> {
        let disk = self.store().disk();
        let mut there = unmanaged(disk, dir)?;
        for file in ManagedFile::ALL {
            if exists(disk, &managed(dir, file))? {
                there.push(file.name().into());
            }
        }
        self.keep_files(id, "duplicate-workspace", &gather(disk, dir, there)?)
    }

    /// Removes the children's directory that something was moved out of, once nothing is left in it.
    fn remove_if_empty(&self, moved: &Path) {
        let Some(parent) = moved.parent() else { return };
        let is_children_dir = self.store().layout.work.as_ref().is_some_and(|work| parent != work.conversations);
        if is_children_dir {
            // Not empty is the usual answer.
            let _ = self.store().disk().remove_dir(parent);
        }
    }
}
