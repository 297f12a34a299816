//! Brings the store up to date with what was edited in the workspace, before anything else is done to a conversation.

use std::path::Path;

use super::operation::Operation;
use crate::beneath::WrongKind;
use crate::disk::NotRegular;
use crate::error::{Context as _, Error, Result};
use crate::files::{NewFile, exists, gather, kind, make_dirs};
use crate::id::ConversationId;
use crate::layout::{Partition, managed};
use crate::lock::Guard;
use crate::meta::{Meta, Parent};
use crate::observe::{Flaw, Observed, UnitBytes, read_file, unmanaged};
use crate::own::{came_back, is_exported, is_made, take_too_large};
use crate::presence::{Projection, StoragePresence};
use crate::reconcile::{Action, FileBase, ManagedFile, Root, Unit};
use crate::scan::Place;
use crate::scratch::is_scratch;
use crate::transcript;

impl Operation<'_> {
    /// After this the store has the current version of both units, and whatever lost is kept.
    pub(super) fn settle(&mut self, guard: &Guard) -> Result<()> {
        self.writer.check_guard(guard)?;
        self.snapshot().check_readable(guard.id())?;
        let conversation = self.snapshot().find(guard.id())?;
        if conversation.store.is_none() {
            return self.import_whole(guard);
        }
        self.check_regular(guard.id())?;
        self.heed_return(guard.id())?;
        self.show_put_back(guard.id())?;
        for unit in Unit::ALL {
            self.settle_unit(guard, unit)?;
        }
        self.heed_move(guard)?;
        self.agree_on_own(guard)
    }

    /// Fails if a managed file of the workspace's copy is not a regular file. Nothing is written to a conversation before its
    /// copy could be read.
    fn check_regular(&self, id: ConversationId) -> Result<()> {
        let Some(work) = self.snapshot().find(id)?.dirs().work else { return Ok(()) };
        for file in ManagedFile::ALL {
            let path = managed(work, file);
            let found = kind(self.store().disk(), &path)?.and_then(NotRegular::of_kind);
            if let Some(NotRegular(what)) = found {
                return Err(WrongKind::error(&path, what)).context("read", &path);
            }
        }
        Ok(())
    }

    /// As [`Operation::settle`], before the workspace's copy goes: whatever of it the store does not have is kept.
    pub(super) fn settle_whole(&mut self, guard: &Guard) -> Result<()> {
        self.settle(guard)?;
        for unit in Unit::ALL {
            let observed = self.observe(guard.id(), unit)?;
            let unsettled =
                matches!(observed.action, Action::Hold | Action::Import | Action::Restore | Action::Conflict { .. });
            let digests = |side: &Option<UnitBytes>| side.as_ref().map(UnitBytes::digests);
            // What does not parse, or was edited just now, never entered the store.
            if unsettled
                && digests(&observed.store) != digests(&observed.work)
                && let Some(work) = &observed.work
            {
                self.keep_unit(guard, unit, Root::Work, work)?;
            }
        }
        self.keep_second_copies(guard.id())?;
        let kept = self.own_left_over(guard.id())?;
        self.keep_own(guard.id(), Root::Work, kept)
    }

    /// A copy that was hidden and that somebody brought back, as git does with another branch, says which files of the
    /// user's own are here. What it lacks stays hidden.
    fn heed_return(&mut self, id: ConversationId) -> Result<()> {
        let found = self.snapshot().find(id)?;
        let (Some(store), Some(work)) = (found.dirs().store, found.dirs().work) else { return Ok(()) };
        if found.intent != Projection::Projected || !came_back(self.ledger().get(id)) {
            return Ok(());
        }
        let disk = self.store().disk();
        let mut lacking = Vec::new();
        for path in unmanaged(disk, store)?.into_iter().filter(|path| is_exported(path)) {
            if !exists(disk, &work.join(&path))? {
                lacking.extend(path.to_str().map(ToOwned::to_owned));
            }
        }
        lacking.iter().for_each(|path| self.hide_file(id, path));
        Ok(())
    }

    /// What somebody meant by moving the copy becomes true in the store.
    fn heed_move(&mut self, guard: &Guard) -> Result<()> {
        let id = guard.id();
        let Some(moved) = self.snapshot().find(id)?.moved.clone() else { return Ok(()) };
        if let Some(barred) = self.snapshot().barred_by_place(id) {
            return Err(barred.error());
        }
        if let Some(parent) = self.snapshot().circle(id) {
            return Err(Error::circle(id, parent));
        }
        let path = self.store_file(guard, ManagedFile::Metadata)?;
        let stored = read_file(self.store().disk(), &path)?.and_then(|contents| Meta::parse(&contents.bytes).ok());
        let mut parent = moved.parent;
        if parent == Some(None) && stored.is_some_and(|meta| meta.parent() == Parent::Absent) {
            // The file says nothing else, and stays as it is: another branch may have it so.
            self.change_mirror(|mirror| mirror.forget_parent(id))?;
            parent = None;
        }
        let mut meta = self.read_meta(guard)?;
        let before = meta.clone();
        if let Some(parent) = parent {
            meta.set_parent(parent.map_or(Parent::Root, Parent::Of));
        }
        if let Some(title) = &moved.title {
            meta.set_title(Some(title));
        }
        if let Some(partition) = moved.partition {
            meta.set_archived_at((partition == Partition::Archived).then(|| self.store().now()));
        }
        if moved.title.is_some() && moved.partition.is_none() {
            // The name comes first: once the store has the title, nothing tells that its directory was not renamed. What
            // changes its partition gets its name with that.
            self.follow_meta(guard, &meta)?;
        }
        if meta != before {
            self.write_meta(guard, meta.clone())?;
        }
        if let Some(partition) = moved.partition {
            self.move_in_store(guard, partition, &id.dirname(meta.title()))?;
        }
        self.update(id, |conversation| conversation.moved = None);
        Ok(())
    }

    fn settle_unit(&mut self, guard: &Guard, unit: Unit) -> Result<()> {
        let id = guard.id();
        let observed = self.observe(id, unit)?;
        let Observed { store, work, action, .. } = observed;
        match (action, store, work) {
            (Action::Import, _, Some(work)) => {
                self.bring_in(guard, unit, &work)?;
                self.remember_as_base(guard, unit, &work)
            }
            (Action::Restore | Action::Conflict { winner: Root::Work }, store, Some(work)) => {
                // The decision is written down before it is acted on: with the loser as the base, only the winner has
                // changes, however far the copying gets.
                if let Some(store) = store {
                    self.keep_unit(guard, unit, Root::Store, &store)?;
                    self.remember_as_base(guard, unit, &store)?;
                }
                self.bring_in(guard, unit, &work)?;
                self.remember_as_base(guard, unit, &work)
            }
            (Action::Conflict { winner: Root::Store }, _, Some(work)) => {
                self.keep_unit(guard, unit, Root::Work, &work)?;
                self.remember_as_base(guard, unit, &work)
            }
            (Action::Unproject, ..) => {
                self.intend(id, Projection::LocalOnly);
                self.update(id, |conversation| conversation.intent = Projection::LocalOnly);
                Ok(())
            }
            (Action::Keep, Some(store), Some(work)) => {
                // Two equal copies are what a later change is measured against, even if nobody remembers them.
                let base = self.ledger().get(id).and_then(|entry| entry.base).unwrap_or_default();
                let before: Vec<_> = unit.files().iter().map(|&file| base.file(file).digest).collect();
                if store.digests() == work.digests() && store.digests() != before {
                    self.note_as_base(id, unit, &work);
                }
                Ok(())
            }
            (
                Action::Keep
                | Action::Export
                | Action::Drop
                | Action::Hold
                | Action::Import
                | Action::Restore
                | Action::Conflict { .. },
                ..,
            ) => Ok(()),
        }
    }

    /// From here on these bytes are what changes are measured against, even if nothing else comes of the operation.
    fn remember_as_base(&mut self, guard: &Guard, unit: Unit, bytes: &UnitBytes) -> Result<()> {
        self.note_as_base(guard.id(), unit, bytes);
        self.save_ledger()
    }

    fn note_as_base(&mut self, id: ConversationId, unit: Unit, bytes: &UnitBytes) {
        let mut base = self.ledger().get(id).and_then(|entry| entry.base).unwrap_or_default();
        for (&file, digest) in unit.files().iter().zip(bytes.digests()) {
            *base.file_mut(file) = FileBase { digest, store: None, work: None };
        }
        let intent = self.intent(id);
        self.remember(id, intent, Some(base));
    }

    fn bring_in(&mut self, guard: &Guard, unit: Unit, work: &UnitBytes) -> Result<()> {
        for &file in unit.files() {
            match work.file(file) {
                Some(contents) if file == ManagedFile::Metadata => {
                    let path = self.store_file(guard, file)?;
                    let meta = Meta::parse(&contents.bytes).map_err(|reason| Error::Invalid { path, reason })?;
                    // A circle that came in from the workspace is stored as it is and cut in every view. The bytes come
                    // last: once both copies have them, nothing tells that the rest was not done.
                    self.follow_meta(guard, &meta)?;
                    self.put_copy(guard, file, contents)?;
                }
                Some(contents) => self.put_copy(guard, file, contents)?,
                // Hidden is not removed.
                None if self.is_hidden(guard.id(), Path::new(file.name())) => {}
                None => {
                    let path = self.store_file(guard, file)?;
                    if exists(self.store().disk(), &path)? {
                        let store = self.store_dir(guard)?;
                        let lost = gather(self.store().disk(), &store, [file.name().into()])?;
                        self.keep_own(guard.id(), Root::Store, lost)?;
                        self.store().disk().remove_file(&path).context("remove", &path)?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn keep_unit(&self, guard: &Guard, unit: Unit, root: Root, bytes: &UnitBytes) -> Result<()> {
        let files: Vec<_> = unit
            .files()
            .iter()
            .filter_map(|&file| Some(NewFile::bytes(file.name(), bytes.file(file)?.bytes.clone())))
            .collect();
        self.keep_files(guard.id(), &format!("{unit}-{root}"), &files)
    }

    /// Copies a conversation that only the workspace has into the store, as it is.
    fn import_whole(&mut self, guard: &Guard) -> Result<()> {
        let id = guard.id();
        if let Some(barred) = self.snapshot().barred(id) {
            return Err(barred.error());
        }
        let disk = self.store().disk();
        let conversation = self.snapshot().find(id)?;
        let work = conversation.work.clone().ok_or(Error::NotFound { id })?;
        let mut files = Vec::new();
        for unit in Unit::ALL {
            let found = UnitBytes::read(disk, &work.dir, unit)?;
            let first = unit.files()[unit.files().len() - 1];
            let Some(bytes) = found else {
                let path = managed(&work.dir, first);
                return Err(Error::Malformed { path, reason: "the file is missing".to_owned() });
            };
            if let Some((file, flaw)) = bytes.problem() {
                let path = managed(&work.dir, file);
                return Err(match flaw {
                    Flaw::Missing => Error::Malformed { path, reason: "the file is missing".to_owned() },
                    Flaw::Broken(reason) => Error::Invalid { path, reason },
                });
            }
            for &file in unit.files() {
                files.extend(bytes.file(file).map(|contents| NewFile::bytes(file.name(), contents.bytes.clone())));
            }
        }
        let mut own = unmanaged(disk, &work.dir)?;
        own.retain(|path| !path.iter().any(is_scratch));
        if is_made(disk, &work.dir.join(transcript::NAME))? {
            own.retain(|path| path != Path::new(transcript::NAME));
        }
        take_too_large(disk, &work.dir, &mut own)?;
        files.extend(gather(disk, &work.dir, own)?);
        let meta = conversation.meta.clone();
        let beneath = conversation.parent;
        let partition = conversation.partition;
        let name = id.dirname(conversation.title());
        let target = self.store().layout.store.partition(partition).join(&name);
        // The parent a file does not name is told by its place, and the mirror keeps it; no byte of the file changes.
        self.change_mirror(|mirror| match &meta {
            Some(meta) => mirror.follow_place(id, meta, beneath),
            None => false,
        })?;
        if let Some(parent) = target.parent() {
            make_dirs(self.store().disk(), parent, self.store().layout.store_access())?;
        }
        self.writer.scratch().place(&target, &files)?;
        self.forget_removal(id)?;
        self.update(id, |conversation| {
            conversation.presence = StoragePresence::Projected;
            conversation.store = Some(Place { dir: target, name: name.into(), partition, beneath: None });
        });
        self.note_copied(id, &files);
        Ok(())
    }
}
