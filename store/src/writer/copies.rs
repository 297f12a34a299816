//! Copies many conversations out at once. Each is prepared aside, several at once, without waiting for the disk; then
//! everything is brought to disk in one go, and only then do the copies appear, each by one rename.
//!
//! Nothing of the store is written, and the ledger's lock guards the workspace's directories, so no conversation is locked:
//! ten thousand lock files made and removed would cost more than the copies. One that somebody holds is left to them, and
//! one that changed in the store while its copy was prepared does not appear.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::cover::whole;
use super::operation::Operation;
use super::reconcile::is_everybodys;
use crate::error::{Context as _, Error, Result};
use crate::files::{NewContent, NewFile, Scratch, gather, remove_hollow};
use crate::id::ConversationId;
use crate::layout::{CONVERSATIONS, managed};
use crate::ledger::Left;
use crate::observe::{UnitBytes, stat_file, unmanaged};
use crate::own::{digest, is_exported, take_too_large};
use crate::parallel;
use crate::plan::{Deed, Held, HeldKind, Nesting, Step};
use crate::presence::{Projection, StoragePresence};
use crate::reconcile::{Base, Digest, FileBase, ManagedFile, Stamp, Unit, is_settled};
use crate::scan::Place;

/// How many are prepared between two looks at whether to go on.
const STRIDE: usize = 250;

/// What became of a batch.
#[derive(Debug, Default)]
pub(super) struct Copied {
    pub(super) steps: Vec<Step>,
    pub(super) held: Vec<Held>,
    pub(super) stopped: bool,
}

/// A copy that is ready to appear.
struct Prepared {
    id: ConversationId,
    dir: PathBuf,
    base: Base,
    left: Left,
    /// How the files looked in the store when they were read.
    read: [Option<Stamp>; 3],
    /// Whether it has files of the user's own.
    own: bool,
}

impl Operation<'_> {
    /// Copies out these conversations, parents first. They have no copy yet, and nobody else works on them. `all` are these
    /// and those that come later.
    pub(super) fn copy_some(
        &mut self,
        ids: &[ConversationId],
        all: &HashSet<ConversationId>,
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Copied> {
        let mut copied = Copied::default();
        let mut ready = Vec::new();
        let mut outcome = Ok(());
        for some in ids.chunks(STRIDE) {
            copied.stopped |= !go_on(ready.len());
            if copied.stopped || outcome.is_err() {
                break;
            }
            let op = &*self;
            for (id, prepared) in some.iter().zip(parallel::map(some, |&id| op.prepare(id, all))) {
                match prepared {
                    Ok(prepared) => ready.extend(prepared),
                    Err(error) if is_everybodys(&error) => outcome = Err(error),
                    Err(error) => copied.held.push(Held {
                        id: Some(*id),
                        kind: HeldKind::of_error(&error),
                        reason: whole(&error),
                    }),
                }
            }
        }
        let placed = self.place_all(ready, &mut copied);
        self.save_ledger().and(placed).and(outcome).map(|()| copied)
    }
}

impl Operation<'_> {
    /// Makes a copy aside. `None` where there is nothing to copy any more, or no place for it yet.
    fn prepare(&self, id: ConversationId, all: &HashSet<ConversationId>) -> Result<Option<Prepared>> {
        let (disk, layout) = (self.store().disk(), &self.store().layout);
        let started = self.nanoseconds();
        let Some(found) = self.snapshot().get(id) else { return Ok(None) };
        let (Some(store), None, true) = (found.dirs().store, found.dirs().work, self.snapshot().is_visible(id)) else {
            return Ok(None);
        };
        let (Some(scratch), Some(target)) = (self.writer.work_scratch(), self.snapshot().real_dir(layout, id)) else {
            return Ok(None);
        };
        self.snapshot().check_readable(id)?;
        self.check_reach(&target)?;
        let mut files = Vec::new();
        let (mut base, mut left, mut read) = (Base::default(), Left::default(), [None; 3]);
        let steady = |stamp: Stamp| is_settled(stamp.mtime, started).then_some(stamp);
        for unit in Unit::ALL {
            let Some(bytes) = UnitBytes::read(disk, store, unit)? else { continue };
            for &file in unit.files() {
                let hidden = self.is_hidden(id, Path::new(file.name()));
                let Some(contents) = bytes.file(file).filter(|_| !hidden) else { continue };
                let digest = Some(Digest::of(&contents.bytes));
                read[file.index()] = Some(contents.stat.into());
                *base.file_mut(file) = FileBase { digest, store: steady(contents.stat.into()), work: None };
                files.push(NewFile::bytes(file.name(), contents.bytes.clone()));
            }
        }
        let named = disk.stat(store).context("look at", store)?.mtime;
        left.named[0] = is_settled(named, started).then_some(named);
        let mut own = unmanaged(disk, store)?;
        own.retain(|path| is_exported(path) && !self.is_hidden(id, path));
        let has_own = !own.is_empty();
        take_too_large(disk, store, &mut own)?;
        for file in gather(disk, store, own)? {
            // What is written to it from now on is measured against what was read.
            let base = FileBase { digest: Some(digest(&file.content)), store: None, work: None };
            left.own.extend(file.path.to_str().map(|path| (path.to_owned(), base)));
            files.push(file);
        }
        files.extend(self.new_transcript(id)?);
        let children = self.snapshot().tree(found.partition).children(id);
        if self.ledger().form.nesting == Nesting::Nested && children.iter().any(|child| all.contains(child)) {
            // Made now, so that names in the copy do not change any more when its children appear.
            files.push(NewFile { path: CONVERSATIONS.into(), content: NewContent::Dir });
        }
        let dir = scratch.prepare(&files)?;
        let stamped = self.stamp_prepared(&dir, &files, &mut base, &mut left);
        if let Err(error) = stamped {
            scratch.abandon(&dir);
            return Err(error);
        }
        Ok(Some(Prepared { id, dir, base, left, read, own: has_own }))
    }

    /// Notes how the files of a copy look before anybody else can see them.
    fn stamp_prepared(&self, dir: &Path, files: &[NewFile], base: &mut Base, left: &mut Left) -> Result<()> {
        let disk = self.store().disk();
        for file in ManagedFile::ALL {
            base.file_mut(file).work = stat_file(disk, &managed(dir, file))?;
        }
        for file in files {
            let Some(name) = file.path.to_str() else { continue };
            if name == crate::transcript::NAME
                && let NewContent::File { bytes, .. } = &file.content
                && crate::transcript::is_made(bytes)
            {
                let work = stat_file(disk, &dir.join(name))?;
                left.transcript = Some(FileBase { digest: Some(Digest::of(bytes)), store: None, work });
            }
        }
        Ok(())
    }

    /// Lets the copies appear, parents first. One that cannot does not keep the others.
    fn place_all(&mut self, ready: Vec<Prepared>, copied: &mut Copied) -> Result<()> {
        let (Some(scratch), Some(root)) = (self.writer.work_scratch(), self.store().layout.work.clone()) else {
            return Ok(());
        };
        if ready.is_empty() {
            return Ok(());
        }
        let mut outcome = self.store().disk().sync_all(&root.tmp()).context("sync", &root.tmp());
        // From here on others can change the copies. Nobody could before.
        let taken = self.nanoseconds();
        let mut placed = Vec::new();
        for prepared in ready {
            let (id, dir) = (prepared.id, prepared.dir.clone());
            let done = match (&outcome, self.is_as_read(&prepared)) {
                (Ok(()), Ok(true)) => self.appear(&scratch, &prepared),
                (Ok(()), Ok(false)) => Err(Error::Refused(format!("{id} changed while it was copied out; try again"))),
                (Ok(()), Err(error)) => Err(error),
                (Err(_), _) => Ok(None),
            };
            match done {
                Ok(Some(target)) => {
                    let path = target.strip_prefix(&root.conversations).unwrap_or(&target).to_owned();
                    copied.steps.push(Step { id, deed: Deed::Copy, path });
                    placed.push(prepared);
                    continue;
                }
                Ok(None) => {}
                Err(error) if is_everybodys(&error) => outcome = Err(error),
                Err(error) => {
                    copied.held.push(Held { id: Some(id), kind: HeldKind::of_error(&error), reason: whole(&error) });
                }
            }
            scratch.abandon(&dir);
        }
        // A copy that is remembered must be there after a power loss: one that is missing counts as removed by somebody.
        let synced = self.store().disk().sync_all(&root.conversations).context("sync", &root.conversations);
        if synced.is_ok() {
            for prepared in placed {
                self.remember_placed(prepared, taken)?;
            }
        }
        outcome.and(synced)
    }

    /// Whether the store still has what was read.
    fn is_as_read(&self, prepared: &Prepared) -> Result<bool> {
        let Some(store) = self.snapshot().find(prepared.id)?.dirs().store else { return Ok(false) };
        for file in ManagedFile::ALL {
            let read = prepared.read[file.index()];
            if read.is_some() && stat_file(self.store().disk(), &managed(store, file))? != read {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn appear(&mut self, scratch: &Scratch<'_>, prepared: &Prepared) -> Result<Option<PathBuf>> {
        let id = prepared.id;
        let Some(target) = self.snapshot().work_dir(&self.store().layout, id) else { return Ok(None) };
        if let Err(error) = scratch.appear(&prepared.dir, &target) {
            // Directories without files, as git leaves them, are in nobody's way.
            remove_hollow(self.store().disk(), &target)?;
            scratch.appear(&prepared.dir, &target).map_err(|_| error)?;
        }
        let found = self.snapshot().find(id)?;
        let at = self.store().layout.work.as_ref().and_then(|root| root.at(&target));
        let place = Place {
            name: target.file_name().unwrap_or_default().to_owned(),
            partition: found.partition,
            beneath: at.and_then(|at| at.beneath),
            dir: target.clone(),
        };
        self.update(id, |conversation| {
            conversation.work = Some(place);
            conversation.presence = StoragePresence::Projected;
        });
        Ok(Some(target))
    }

    fn remember_placed(&mut self, prepared: Prepared, taken: i64) -> Result<()> {
        let Prepared { id, base, mut left, own, .. } = prepared;
        let found = self.snapshot().find(id)?;
        let (Some(store), Some(work)) = (found.dirs().store, found.dirs().work) else { return Ok(()) };
        let (store, work) = (store.to_owned(), work.to_owned());
        left.at = self.store().layout.work.as_ref().and_then(|root| root.at(&work));
        left.named[1] = self.store().disk().stat(&work).ok().map(|stat| stat.mtime);
        // A name that somebody added since it appeared is not vouched for.
        left.named[1] = left.named[1].filter(|&named| is_settled(named, taken));
        self.remember(id, Projection::Projected, Some(Base { taken, ..base }));
        self.ledger_mut().entry(id).first_seen = None;
        *self.left_mut(id) = left;
        if own {
            self.remember_own(id, &store, &work)?;
        }
        Ok(())
    }
}
