//! Lets the real files follow what was decided while a mount covered them: copied out, moved, updated, withdrawn. Can be
//! stopped anywhere and run again: until the last step the ledger says that they are behind.

use std::collections::{BTreeSet, HashSet};

use super::cover::whole;
use super::migrate::AT_ONCE;
use super::operation::Operation;
use super::project::Seen;
use super::{Guards, Reconciled, Writer};
use crate::error::{Error, Result};
use crate::files::{entries, gather};
use crate::id::ConversationId;
use crate::layout::children_dir;
use crate::lock::{Guard, Wait, make_room_for_files};
use crate::observe::unmanaged;
use crate::plan::{Direction, Held, HeldKind, LOST, Wanted, lost};
use crate::presence::Projection;
use crate::reconcile::{Root, Unit};
use crate::sighting::{Looked, Roots, is_trashed};
use crate::snapshot::{Sight, Snapshot};

/// What became of the real files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uncovered {
    /// How many conversations were copied out, moved or updated.
    pub written: usize,
    /// How many copies went.
    pub withdrawn: usize,
    /// What did not follow, and why.
    pub kept: Vec<Held>,
}

impl Uncovered {
    fn keep(&mut self, id: Option<ConversationId>, error: &Error) {
        self.kept.push(Held { id, kind: HeldKind::of_error(error), reason: whole(error) });
    }
}

impl Writer {
    /// Makes the real files what the mount showed. What somebody edited in them meanwhile reaches the store first. What
    /// cannot follow stays as it is and does not keep the others; a copy that should go and could not is tried again by
    /// the next writer.
    pub fn uncover(&self, wait: &Wait<'_>) -> Result<Uncovered> {
        let mut done = Uncovered::default();
        if self.store.layout.work.is_none() {
            return Ok(done);
        }
        let mut op = self.begin_beneath()?;
        let looked = self.look_beneath(op.snapshot())?;
        if looked.is_in_step() && unwanted(op.snapshot()).is_empty() {
            op.tidy_into(&mut done);
        } else {
            // Locks of conversations come before the ledger's.
            done = self.follow_seen(op.into_snapshot(), looked, &|_| true, wait)?;
            op = self.begin_beneath()?;
        }
        // What refuses to be looked at may hold a copy that should go.
        let seen = op.snapshot().is_all_readable();
        if seen {
            op.forget_the_gone();
        }
        let done_with = seen && unwanted(op.snapshot()).is_empty();
        op.set_covered(!done_with);
        op.finish()?;
        Ok(done)
    }

    /// Makes the real files of these conversations what the ledger says, and leaves it at saying that they may be behind.
    pub(super) fn follow_all(&self, wanted: &dyn Fn(ConversationId) -> bool, wait: &Wait<'_>) -> Result<Uncovered> {
        let snapshot = self.store.snapshot_with(Sight::Beneath)?;
        let looked = self.look_beneath(&snapshot)?;
        self.follow_seen(snapshot, looked, wanted, wait)
    }

    /// How all real files stand to what they are to become.
    fn look_beneath(&self, snapshot: &Snapshot) -> Result<Looked> {
        Looked::at(self.store.disk(), &self.store.layout, snapshot, &Wanted::all(Direction::Out))
    }

    /// As [`Writer::follow_all`], by what was just seen.
    fn follow_seen(
        &self,
        mut snapshot: Snapshot,
        looked: Looked,
        wanted: &dyn Fn(ConversationId) -> bool,
        wait: &Wait<'_>,
    ) -> Result<Uncovered> {
        let mut done = Uncovered::default();
        // A copy that is not joined has nothing to follow; what is named as such is named elsewhere.
        let stays = |held: &&Held| held.kind != HeldKind::Unjoined && held.id.is_none_or(wanted);
        done.kept.extend(looked.plan.held.iter().filter(stays).cloned());
        let follows = |id: &ConversationId| wanted(*id) && snapshot.is_visible(*id);
        let behind: Vec<_> = looked.todo.iter().copied().filter(follows).collect();
        let copies: Vec<_> = looked.copies.iter().copied().filter(follows).collect();
        for some in behind.chunks(AT_ONCE) {
            self.follow_some(some, wait, &mut done)?;
        }
        if !copies.is_empty() {
            let mut told = Reconciled::default();
            self.copy_all(&copies, wait, &mut |_| true, &mut told)?;
            done.written += told.steps.len();
            done.kept.extend(told.held.into_iter().chain(told.busy));
        }
        self.stamp_again(&looked.unsure)?;
        if !behind.is_empty() || !copies.is_empty() {
            // What is meant to be here has moved out of the way by now.
            snapshot = self.store.snapshot_with(Sight::Beneath)?;
        }
        if !copies.is_empty() && !unwanted(&snapshot).is_empty() {
            // A copy whose new parent was copied out just now may still lie inside one that goes.
            let mut op = self.begin_beneath()?;
            op.tidy_into(&mut done);
            op.finish()?;
            snapshot = self.store.snapshot_with(Sight::Beneath)?;
        }
        let mut gone = unwanted(&snapshot);
        gone.retain(|&id| wanted(id));
        // Another one is taken in a moment, and there may be a hundred thousand conversations in each.
        drop((snapshot, looked));
        for some in gone.chunks(AT_ONCE) {
            self.withdraw_some(some, wait, &mut done)?;
        }
        let mut op = self.begin_beneath()?;
        op.tidy_into(&mut done);
        op.finish()?;
        Ok(done)
    }

    fn follow_some(&self, ids: &[ConversationId], wait: &Wait<'_>, done: &mut Uncovered) -> Result<()> {
        let guards = self.lock_some(ids, wait, done);
        let mut op = self.begin_beneath()?;
        for guard in ids.iter().filter_map(|id| guards.get(id)) {
            match op.follow(guard) {
                Ok(()) => done.written += 1,
                Err(error) => done.keep(Some(guard.id()), &error),
            }
        }
        op.finish()
    }

    fn withdraw_some(&self, ids: &[ConversationId], wait: &Wait<'_>, done: &mut Uncovered) -> Result<()> {
        let guards = self.lock_some(ids, wait, done);
        let mut op = self.begin_beneath()?;
        let seen = op.look_at_work(guards.keys().copied())?;
        // First everything is safe in the store, then the decision is written down, then files go.
        let mut safe = Vec::new();
        for guard in ids.iter().filter_map(|id| guards.get(id)) {
            match op.make_safe(guard) {
                Ok(Safe::Yes) => safe.push(guard.id()),
                Ok(Safe::No(reason)) => {
                    let id = Some(guard.id());
                    // The plan may have named it already.
                    if !done.kept.iter().any(|held| held.id == id) {
                        done.kept.push(Held { id, kind: HeldKind::Lost, reason });
                    }
                }
                Err(error) => done.keep(Some(guard.id()), &error),
            }
        }
        for &id in &safe {
            // A copy of what was removed for good is told by what was exported, until it is gone.
            if op.snapshot().get(id).is_some_and(|found| found.store.is_some()) {
                let intent = op.intent(id);
                op.remember(id, intent, None);
            }
        }
        op.save_ledger()?;
        for id in safe {
            match op.withdraw_safe(id, &seen) {
                Ok(true) => done.withdrawn += 1,
                Ok(false) => {
                    let reason = format!("the copy of {id}: others lie in it that could not be moved out");
                    done.kept.push(Held { id: Some(id), kind: HeldKind::Blocked, reason });
                }
                Err(error) => done.keep(Some(id), &error),
            }
        }
        op.finish()
    }

    fn lock_some(&self, ids: &[ConversationId], wait: &Wait<'_>, done: &mut Uncovered) -> Guards {
        make_room_for_files(ids.len());
        let mut guards = Guards::new();
        for id in ids.iter().copied().collect::<BTreeSet<_>>() {
            match self.lock(id, wait) {
                Ok(guard) => {
                    guards.insert(id, guard);
                }
                Err(error) => done.keep(Some(id), &error),
            }
        }
        guards
    }
}

/// Whether a copy may go.
enum Safe {
    Yes,
    No(String),
}

impl Operation<'_> {
    /// Puts away what lies about, or says why it stays.
    fn tidy_into(&mut self, done: &mut Uncovered) {
        if let Err(error) = self.tidy_work() {
            done.keep(None, &error);
        }
    }

    fn follow(&mut self, guard: &Guard) -> Result<()> {
        self.check_sight(guard.id())?;
        if matches!(self.roots_without_store(guard.id())?, Some(Roots::Leftover | Roots::Inhabited)) {
            // It was removed for good, and goes when the worktree is put in order.
            return Ok(());
        }
        self.drop_hidden(guard.id())?;
        self.settle(guard)?;
        self.name_parent(guard)?;
        self.project(guard)?;
        self.write_transcript(guard)
    }

    /// Refuses a conversation whose copy was there and is not seen, while something refuses to be looked at: it may be in
    /// that, and has not been removed.
    fn check_sight(&self, id: ConversationId) -> Result<()> {
        let snapshot = self.snapshot();
        let lost = snapshot.find(id)?.work.is_none() && snapshot.base(id).is_some();
        if lost && !snapshot.is_all_readable() {
            return Err(Error::Refused(format!("the copy of {id} cannot be looked at")));
        }
        Ok(())
    }

    /// Sees to it that nothing is lost with a conversation's copy.
    fn make_safe(&mut self, guard: &Guard) -> Result<Safe> {
        let id = guard.id();
        self.check_sight(id)?;
        let found = self.snapshot().find(id)?;
        if found.store.is_some() {
            return self.settle_whole(guard).map(|()| Safe::Yes);
        }
        // It was removed for good, or lost. What is not a copy of what was removed stays, and is nobody's secret.
        let Some(work) = found.work.as_ref().map(|place| place.dir.clone()) else { return Ok(Safe::Yes) };
        let disk = self.store().disk();
        // Of several copies one may differ.
        let mut copy =
            !is_trashed(disk, &self.store().layout, id)? && self.snapshot().places(Root::Work, id).count() == 1;
        for unit in Unit::ALL {
            copy &= self.observe(id, unit)?.is_as_left(self.snapshot().base(id));
        }
        if !copy {
            self.forget(id);
            return Ok(Safe::No(format!("{}: removed from the store, but changed here; it stays", work.display())));
        }
        if !self.is_removed(id)? {
            // It is shown again: as long as it is hidden nobody would hear of it.
            self.ledger_mut().entry(id).intent = Projection::Projected;
            return Ok(Safe::No(format!("{}: {}", work.display(), lost(id, LOST))));
        }
        let own = unmanaged(disk, &work)?;
        self.keep_own(id, Root::Work, gather(disk, &work, own)?)?;
        Ok(Safe::Yes)
    }

    /// Takes a copy out of the workspace, unless others lie in it. Copies of what was removed for good go before it.
    fn withdraw_safe(&mut self, id: ConversationId, seen: &Seen) -> Result<bool> {
        if self.is_inhabited(id)? {
            let dirs: Vec<_> = self.snapshot().places(Root::Work, id).map(|place| place.dir.clone()).collect();
            self.drop_leftovers(&|work| dirs.iter().any(|dir| work != dir && work.starts_with(dir)))?;
            if self.is_inhabited(id)? {
                return Ok(false);
            }
        }
        self.withdraw_seen(id, seen)?;
        if self.snapshot().get(id).is_some_and(|found| found.store.is_none()) {
            self.forget(id);
            self.take_out(id);
        }
        Ok(true)
    }

    /// Whether another conversation's copy still lies inside this one's.
    fn is_inhabited(&self, id: ConversationId) -> Result<bool> {
        for place in self.snapshot().places(Root::Work, id) {
            let children = entries(self.store().disk(), &children_dir(&place.dir))?;
            if children.iter().any(|entry| ConversationId::from_dirname(&entry.name).is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Forgets what is in no root any more.
    fn forget_the_gone(&mut self) {
        let gone = |id: &ConversationId| self.snapshot().get(*id).is_none();
        let gone: Vec<_> = self.ledger().entries().map(|(id, _)| id).filter(gone).collect();
        for id in gone {
            self.forget(id);
        }
    }
}

/// Copies that are not meant to be here, with what lies inside them, the innermost first.
fn unwanted(snapshot: &Snapshot) -> Vec<ConversationId> {
    let local = |id| snapshot.ledger.get(id).is_some_and(|entry| entry.intent == Projection::LocalOnly);
    let here = || snapshot.all().filter_map(|found| Some((found, found.work.as_ref()?)));
    let dirs: HashSet<_> = here().filter(|(found, _)| local(found.id)).map(|(_, place)| &*place.dir).collect();
    let mut unwanted: Vec<_> = here()
        .filter(|(found, place)| {
            let lies_in_local = place.dir.ancestors().any(|dir| dirs.contains(dir));
            // Another worktree may have moved it beneath a conversation that is local here.
            let is_beneath_local = found.store.is_some() && snapshot.ledger.get(found.id).is_some();
            (lies_in_local || is_beneath_local) && !snapshot.is_visible(found.id)
        })
        .map(|(found, place)| (place.dir.components().count(), found.id))
        .collect();
    unwanted.sort_by_key(|&(depth, id)| (std::cmp::Reverse(depth), id));
    unwanted.into_iter().map(|(_, id)| id).collect()
}
