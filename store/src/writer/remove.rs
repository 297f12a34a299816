//! Removes conversations for good, because somebody asked for exactly that.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use super::operation::Operation;
use super::toggle::hidden_with;
use super::{Guards, Writer};
use crate::error::{Context as _, Error, Result};
use crate::files::{exists, make_dirs};
use crate::id::ConversationId;
use crate::lock::Wait;
use crate::meta::Parent;
use crate::observe::read_file;
use crate::reconcile::Root;
use crate::removed;
use crate::scan::Place;
use crate::snapshot::Snapshot;

/// What becomes of the children of a removed conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Refuse to remove a conversation that has any.
    Refuse,
    /// Remove them too, with everything beneath them.
    Cascade,
    /// Hang them beneath the removed conversation's parent.
    Promote,
}

impl Writer {
    /// Removes a conversation from every root. Returns what was removed.
    pub fn remove(&self, id: ConversationId, strategy: Strategy, wait: &Wait<'_>) -> Result<Vec<ConversationId>> {
        let (guards, mut op) = self.begin_locked(true, wait, |snapshot| {
            refuse_children(snapshot, id, strategy)?;
            affected(snapshot, id, strategy)
        })?;
        let doomed = op.remove(id, strategy, &guards)?;
        let going: BTreeSet<_> = doomed.iter().copied().collect();
        op.forget_links(&going)?;
        op.tidy_work()?;
        op.finish()?;
        Ok(doomed)
    }
}

impl Writer {
    /// Ends the record of a removal, if there is one: the conversation is in the store again.
    pub(super) fn forget_removal(&self, id: ConversationId) -> Result<()> {
        let path = self.store.layout.store.removed();
        let contents = read_file(self.store.disk(), &path)?;
        if contents.is_some_and(|contents| removed::parse(&contents.bytes).contains(&id)) {
            self.append_removed(&removed::back(id))?;
        }
        Ok(())
    }

    pub(super) fn append_removed(&self, lines: &[u8]) -> Result<()> {
        let root = &self.store.layout.store;
        let (path, _lock) = (root.removed(), self.file_lock(&root.removed_lock())?);
        self.store.disk().append(&path, lines).context("append to", &path)
    }
}

impl Operation<'_> {
    /// Removes a conversation from every root, and what goes with it. Its links are left to the caller.
    pub(super) fn remove(
        &mut self,
        id: ConversationId,
        strategy: Strategy,
        guards: &Guards,
    ) -> Result<Vec<ConversationId>> {
        let op = self;
        let tree = op.snapshot().tree(op.snapshot().find(id)?.partition);
        let (above, children) = (tree.parent(id), tree.children(id).to_vec());
        let mut doomed = vec![id];
        match strategy {
            Strategy::Cascade => doomed.extend(tree.descendants(id)),
            Strategy::Refuse => {}
            Strategy::Promote => {
                for guard in children.iter().filter_map(|child| guards.get(child)) {
                    op.settle(guard)?;
                    let mut meta = op.read_meta(guard)?;
                    meta.set_parent(above.map_or(Parent::Root, Parent::Of));
                    op.write_meta(guard, meta)?;
                    op.project(guard)?;
                }
            }
        }
        // Children before parents, the workspace before the store: cut short, what is left is whole and still listed.
        let upwards: Vec<_> = doomed.iter().rev().copied().collect();
        op.destroy_all(&upwards, guards)?;
        Ok(doomed)
    }

    /// Removes these, in this order, once nothing else lies in their directories.
    fn destroy_all(&mut self, ids: &[ConversationId], guards: &Guards) -> Result<()> {
        // Beneath what cannot be looked at there may be anything.
        for &id in ids {
            self.snapshot().check_readable(id)?;
        }
        self.check_nothing_held_inside(ids.iter().copied())?;
        self.evacuate(guards, &ids.iter().copied().collect())?;
        self.note_removed(ids)?;
        ids.iter().try_for_each(|&id| self.destroy(id))
    }

    /// Removes conversations that have no children but one another; children come before their parents. What cannot go,
    /// because something else lies in it that cannot be moved out, stays with what is above it. Returns what is gone.
    pub(super) fn remove_leaves(
        &mut self,
        ids: &[ConversationId],
        guards: &Guards,
    ) -> Result<BTreeSet<ConversationId>> {
        match self.destroy_all(ids, guards) {
            // One of them is in the way of all, so each is tried by itself.
            Err(Error::Refused(_)) => {}
            done => return done.map(|()| ids.iter().copied().collect()),
        }
        let mut gone = BTreeSet::new();
        for &id in ids {
            let done = match self.snapshot().get(id) {
                Some(_) => refuse_children(self.snapshot(), id, Strategy::Refuse)
                    .and_then(|()| self.destroy_all(&[id], guards)),
                // It went before the one that could not.
                None => Ok(()),
            };
            match done {
                Ok(()) => drop(gone.insert(id)),
                Err(Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(gone)
    }

    /// Forgets the links of conversations that are gone.
    pub(super) fn forget_links(&mut self, gone: &BTreeSet<ConversationId>) -> Result<()> {
        self.change_mirror(|mirror| gone.iter().fold(false, |changed, &id| mirror.forget(id) | changed))
    }

    /// Moves what lies beneath doomed directories in the workspace, but is not doomed, to where it belongs.
    fn evacuate(&mut self, guards: &Guards, doomed: &BTreeSet<ConversationId>) -> Result<()> {
        let dirs: HashSet<PathBuf> = doomed
            .iter()
            .flat_map(|&id| self.snapshot().places(Root::Work, id))
            .map(|place| place.dir.clone())
            .collect();
        let beneath = |place: &Place| place.dir.ancestors().skip(1).any(|above| dirs.contains(above));
        if dirs.is_empty() {
            return Ok(());
        }
        let others = |op: &Self| -> Vec<ConversationId> {
            let others = op.snapshot().all().map(|other| other.id).filter(|id| !doomed.contains(id));
            others.filter(|&id| op.snapshot().places(Root::Work, id).any(beneath)).collect()
        };
        for id in others(self) {
            let Some(guard) = guards.get(&id) else { continue };
            if self.snapshot().get(id).is_some_and(|found| found.work.is_some()) {
                self.settle(guard)?;
                self.project(guard)?;
            }
            let seconds: Vec<_> = self.snapshot().places(Root::Work, id).skip(1).cloned().collect();
            for place in seconds.iter().filter(|place| beneath(place)) {
                self.drop_second_copy(id, &place.dir)?;
            }
        }
        let trapped = others(self).first().and_then(|&id| self.snapshot().get(id));
        match trapped {
            Some(other) => Err(Error::Refused(format!(
                "{} lies beneath it in {} and cannot be moved out; make it local first (jp conversation edit --local {})",
                other.id,
                other.path().display(),
                other.id
            ))),
            None => Ok(()),
        }
    }

    /// Lets other worktrees tell what was removed from what was lost. It is on disk when this returns.
    fn note_removed(&mut self, ids: &[ConversationId]) -> Result<()> {
        let (disk, root) = (self.store().disk(), &self.store().layout.store);
        make_dirs(disk, &root.vfs(), self.store().layout.store_access())?;
        self.writer.append_removed(&removed::lines(ids))?;
        disk.sync_file(&root.removed()).context("bring to disk", &root.removed())?;
        self.remember_removal_in_snapshot(ids)
    }

    /// Ends the record of a removal, if there is one: the conversation is in the store again, or about to be.
    pub(super) fn forget_removal(&mut self, id: ConversationId) -> Result<()> {
        if self.is_removed(id)? {
            self.writer.append_removed(&removed::back(id))?;
            self.forget_removal_in_snapshot(id)?;
        }
        Ok(())
    }

    /// Whether a conversation was removed for good.
    pub(super) fn is_removed(&self, id: ConversationId) -> Result<bool> {
        self.snapshot().is_removed(self.store().disk(), &self.store().layout, id)
    }

    /// Ends the records of removals that were cut short, or undone: what the store has was not removed. A record that stays
    /// would take the last copy along if the store lost the conversation one day.
    pub(super) fn forget_vain_removals(&mut self) -> Result<()> {
        let in_vain = self.snapshot().removed_in_vain(self.store().disk(), &self.store().layout)?;
        if in_vain.is_empty() {
            return Ok(());
        }
        // Somebody may be removing it just now, and has written the record already.
        let _turn = match &self.tree_lock {
            Some(_) => None,
            None => Some(self.writer.file_lock(&self.store().layout.store.tree_lock())?),
        };
        for id in in_vain {
            let dirs: Vec<_> = self.snapshot().places(Root::Store, id).map(|place| place.dir.clone()).collect();
            let mut is_there = false;
            for dir in dirs {
                is_there |= exists(self.store().disk(), &dir)?;
            }
            if is_there {
                self.forget_removal(id)?;
            }
        }
        Ok(())
    }

    fn destroy(&mut self, id: ConversationId) -> Result<()> {
        self.withdraw(id)?;
        let dirs: Vec<_> = self.snapshot().places(Root::Store, id).map(|place| place.dir.clone()).collect();
        for dir in dirs {
            if exists(self.store().disk(), &dir)? {
                self.unnest(&dir)?;
                self.writer.scratch().discard(&dir)?;
            }
        }
        self.forget(id);
        self.take_out(id);
        Ok(())
    }
}

fn refuse_children(snapshot: &Snapshot, id: ConversationId, strategy: Strategy) -> Result<()> {
    let children = snapshot.tree(snapshot.find(id)?.partition).children(id).len();
    if strategy == Strategy::Refuse && children > 0 {
        let noun = if children == 1 { "child" } else { "children" };
        return Err(Error::Refused(format!(
            "{id} has {children} {noun}; remove them too with --cascade, or move them up with --promote"
        )));
    }
    Ok(())
}

fn affected(snapshot: &Snapshot, id: ConversationId, strategy: Strategy) -> Result<BTreeSet<ConversationId>> {
    let tree = snapshot.tree(snapshot.find(id)?.partition);
    match strategy {
        Strategy::Cascade => hidden_with(snapshot, id),
        Strategy::Promote => {
            Ok(hidden_beneath(snapshot, id).into_iter().chain(tree.children(id).iter().copied()).collect())
        }
        Strategy::Refuse => Ok(hidden_beneath(snapshot, id)),
    }
}

/// The conversation and what lies directly in its directory in the workspace.
fn hidden_beneath(snapshot: &Snapshot, id: ConversationId) -> BTreeSet<ConversationId> {
    Inside::of(snapshot).with(id)
}

/// What lies directly in the directories of conversations, in either root.
pub(super) struct Inside(HashMap<ConversationId, BTreeSet<ConversationId>>);

impl Inside {
    /// Goes through everything once.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut inside: HashMap<_, BTreeSet<_>> = HashMap::new();
        for id in snapshot.all().map(|found| found.id) {
            let places = [Root::Store, Root::Work].into_iter().flat_map(|root| snapshot.places(root, id));
            for above in places.filter_map(|place| place.beneath) {
                inside.entry(above).or_default().insert(id);
            }
        }
        Self(inside)
    }

    /// A conversation and what lies in its directories.
    pub(super) fn with(&self, id: ConversationId) -> BTreeSet<ConversationId> {
        self.0.get(&id).into_iter().flatten().copied().chain([id]).collect()
    }
}
