//! Removes conversations for good, because somebody asked for exactly that.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;

use super::operation::Operation;
use super::toggle::hidden_with;
use super::{Guards, Writer};
use crate::error::{Context as _, Error, Result};
use crate::files::{exists, make_dirs};
use crate::id::ConversationId;
use crate::lock::Wait;
use crate::meta::Parent;
use crate::observe::{UnitBytes, read_file};
use crate::own;
use crate::reconcile::{Root, Unit};
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

/// What the note in the trash says of an expired conversation.
const EXPIRED: &str = "The time of this conversation was up. It had files of your own, or events that were not \
    exported. To use it again, take `expires_at` out of its metadata and `expired-` from its name.\n";

/// Why conversations are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Somebody asked for exactly that.
    Asked,
    /// Their time is up, which a repository may have said.
    Expired,
}

/// What is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gone {
    pub(super) ids: BTreeSet<ConversationId>,
    /// Those of them that are in the trash.
    pub(super) trashed: BTreeSet<ConversationId>,
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
        let path = self.store.layout.store.removed();
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
        op.destroy_all(&upwards, guards, Why::Asked)?;
        Ok(doomed)
    }

    /// Removes these, in this order, once nothing else lies in their directories.
    fn destroy_all(&mut self, ids: &[ConversationId], guards: &Guards, why: Why) -> Result<BTreeSet<ConversationId>> {
        // Beneath what cannot be looked at there may be anything.
        for &id in ids {
            self.snapshot().check_readable(id)?;
        }
        self.check_nothing_held_inside(ids.iter().copied())?;
        self.evacuate(guards, &ids.iter().copied().collect())?;
        self.note_removed(ids)?;
        let mut trashed = BTreeSet::new();
        for &id in ids {
            if self.destroy(id, why)? {
                trashed.insert(id);
            }
        }
        Ok(trashed)
    }

    /// Removes conversations that have no children but one another; children come before their parents. What cannot go,
    /// because something else lies in it that cannot be moved out, stays with what is above it.
    pub(super) fn remove_leaves(&mut self, ids: &[ConversationId], guards: &Guards) -> Result<Gone> {
        match self.destroy_all(ids, guards, Why::Expired) {
            // One of them is in the way of all, so each is tried by itself.
            Err(Error::Refused(_)) => {}
            done => return done.map(|trashed| Gone { ids: ids.iter().copied().collect(), trashed }),
        }
        let mut gone = Gone::default();
        for &id in ids {
            let done = match self.snapshot().get(id) {
                Some(_) => refuse_children(self.snapshot(), id, Strategy::Refuse)
                    .and_then(|()| self.destroy_all(&[id], guards, Why::Expired)),
                // It went before the one that could not.
                None => Ok(BTreeSet::new()),
            };
            match done {
                Ok(trashed) => {
                    gone.ids.insert(id);
                    gone.trashed.extend(trashed);
                }
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

    /// Whether a conversation has files of the user's own, or events that this worktree's copy never had.
    fn is_more_than_exported(&self, id: ConversationId) -> Result<bool> {
        let (disk, entry) = (self.store().disk(), self.ledger().get(id));
        let base = entry.and_then(|entry| entry.base.as_ref());
        for place in self.snapshot().places(Root::Store, id) {
            if !own::has_nothing_new(disk, &place.dir, None)? {
                return Ok(true);
            }
            for &file in base.iter().flat_map(|_| Unit::Stream.files()) {
                let now = UnitBytes::read_one(disk, &place.dir, file)?;
                if now.is_some() && now != base.and_then(|base| base.file(file).digest) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Says whether it went to the trash.
    fn destroy(&mut self, id: ConversationId, why: Why) -> Result<bool> {
        let to_trash = why == Why::Expired && self.is_more_than_exported(id)?;
        self.withdraw(id)?;
        let dirs: Vec<_> = self.snapshot().places(Root::Store, id).map(|place| place.dir.clone()).collect();
        for dir in dirs {
            if exists(self.store().disk(), &dir)? {
                self.unnest(&dir)?;
                if to_trash {
                    // Not under its id: the conversation is removed, and what is left of it no copy of it.
                    let mut name = OsString::from("expired-");
                    name.push(dir.file_name().unwrap_or_default());
                    self.writer.put_in_trash(&dir, &name, EXPIRED)?;
                } else {
                    self.writer.scratch().discard(&dir)?;
                }
            }
        }
        self.forget(id);
        self.take_out(id);
        Ok(to_trash)
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
