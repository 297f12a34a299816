//! Parents that copies in the worktree ask for. Where a conversation hangs may be the word of whoever planted its copy: one
//! that would hang beneath a private conversation stays where it is.

use std::collections::BTreeSet;

use super::Snapshot;
use crate::conversation::Conversation;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::id::ConversationId;
use crate::layout::{Layout, managed};
use crate::meta::{Meta, Parent};
use crate::observe::{Observed, UnitBytes, read_file};
use crate::reconcile::{Action, ManagedFile, Root, Unit};
use crate::worktrees::{private_of, read_once};

/// A parent that a copy in the worktree asks for and does not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Barred {
    /// The conversation that asks.
    pub(crate) id: ConversationId,
    /// The parent it asks for.
    pub(crate) parent: ConversationId,
    /// That parent or what is above it: private in this worktree.
    pub(crate) private: ConversationId,
}

impl Barred {
    /// What to say about it, with what the user can do.
    pub(crate) fn error(self) -> Error {
        Error::private_parent(self.id, self.parent, self.private)
    }
}

impl Snapshot {
    /// The parent that the copy of a conversation asks for and does not get.
    pub(crate) fn barred(&self, id: ConversationId) -> Option<Barred> {
        self.barred.get(&id).copied()
    }

    /// The same, where nothing can be done about the conversation meanwhile: only the worktree has it, or it was moved there.
    pub(crate) fn barred_by_place(&self, id: ConversationId) -> Option<Barred> {
        let found = self.get(id)?;
        let barred = self.barred(id)?;
        let moved = found.moved.as_ref().and_then(|moved| moved.parent) == Some(Some(barred.parent));
        (found.store.is_none() || moved).then_some(barred)
    }

    /// One unit of a conversation on both sides, with what is to be done about it. Metadata from the worktree that names a
    /// parent that is private here is held.
    pub(crate) fn observe(
        &self,
        disk: &dyn Disk,
        layout: &Layout,
        found: &Conversation,
        unit: Unit,
    ) -> Result<Observed> {
        let mut observed = found.observe(disk, unit, self.base(found.id))?;
        if unit == Unit::Metadata && observed.action.source() == Root::Work && found.store.is_some() {
            let meta = |side: Option<&UnitBytes>| {
                side.and_then(|side| Meta::parse(&side.file(ManagedFile::Metadata)?.bytes).ok())
            };
            let named = meta(observed.work.as_ref()).map(|meta| meta.parent());
            if let Some(Parent::Of(parent)) = named
                && self.stored_parent(found.id, meta(observed.store.as_ref()).as_ref()) != Some(parent)
                && self.bar(disk, layout, found.id, parent)?.is_some()
            {
                observed.action = Action::Hold;
            }
        }
        Ok(observed)
    }

    /// The parent that the store has, whatever the copy in the worktree says.
    fn stored_parent(&self, id: ConversationId, stored: Option<&Meta>) -> Option<ConversationId> {
        self.mirror.effective_parent(id, stored, None)
    }

    /// Decides whether a parent that is new to the store is private here, or lies beneath what is.
    pub(crate) fn bar(
        &self,
        disk: &dyn Disk,
        layout: &Layout,
        id: ConversationId,
        parent: ConversationId,
    ) -> Result<Option<Barred>> {
        let mut seen = BTreeSet::from([id]);
        let mut line = Vec::new();
        let mut at = Some(parent);
        while let Some(above) = at.filter(|&above| !self.is_shown(above) && seen.insert(above)) {
            let Some(found) = self.get(above) else { break };
            if found.store.is_some() {
                line.push(above);
            }
            at = found.parent;
        }
        let private = private_of(&self.ledger, line, |above| read_once(&self.others, disk, layout, above))?;
        Ok(private.first().map(|&private| Barred { id, parent, private }))
    }

    /// Lets what asks for a private parent by its metadata, or is new and asks for one, hang where the store has it.
    pub(super) fn bar_parents(&mut self, disk: &dyn Disk, layout: &Layout) -> Result<()> {
        if layout.is_single_root() {
            return Ok(());
        }
        let asks = |found: &&Conversation| {
            let hidden = found.parent.is_some_and(|parent| self.get(parent).is_some() && !self.is_shown(parent));
            found.work.is_some() && hidden && !self.barred.contains_key(&found.id)
        };
        let asking: Vec<_> = self.all().filter(asks).map(|found| found.id).collect();
        for id in asking {
            let Some(found) = self.get(id) else { continue };
            let (Some(parent), stored) = (found.parent, found.dirs().store) else { continue };
            let stored = match stored {
                Some(dir) => read_file(disk, &managed(dir, ManagedFile::Metadata))?,
                None => None,
            };
            let stored = stored.and_then(|contents| Meta::parse(&contents.bytes).ok());
            let is_new = found.store.is_none() || self.stored_parent(id, stored.as_ref()) != Some(parent);
            let Some(barred) = (if is_new { self.bar(disk, layout, id, parent)? } else { None }) else { continue };
            let above = found.store.as_ref().and_then(|_| self.stored_parent(id, stored.as_ref()));
            self.barred.insert(id, barred);
            self.update(id, |found| {
                found.parent = above;
                if found.store.is_some() {
                    found.meta = stored.or(found.meta.take());
                }
            });
        }
        Ok(())
    }
}
