//! Brings the real files and the store in step: looks, plans, and carries the plan out a batch at a time. What was planned
//! is looked at again under its lock, so that what somebody does meanwhile counts.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::cover::whole;
use super::migrate::AT_ONCE;
use super::operation::Operation;
use super::{Guards, Writer};
use crate::error::{Error, Result};
use crate::id::ConversationId;
use crate::lock::{Guard, State, Wait, make_room_for_files};
use crate::plan::{Deed, Direction, Ground, Held, HeldKind, Plan, Step, Wanted};
use crate::sighting::{Roots, Sighting};

/// How many are copied out in one go: between two of them everything is brought to disk once.
const COPIES_AT_ONCE: usize = 2_500;

/// How far a reconcile has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Conversations that are done.
    pub done: usize,
    /// Conversations there are to do.
    pub of: usize,
}

/// What a reconcile did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// What was done.
    pub steps: Vec<Step>,
    /// What stays as it is until a person does something about it.
    pub held: Vec<Held>,
    /// What somebody is working on; it can be tried again.
    pub busy: Vec<Held>,
    /// How many conversations were looked at.
    pub looked_at: usize,
    /// It was told to stop before everything was done.
    pub stopped: bool,
}

/// Says whether to go on.
pub(super) type Going<'a> = &'a mut dyn FnMut(Progress) -> bool;

impl Writer {
    /// Brings the real files and the store in step. One conversation that cannot be does not keep the others. Can be
    /// stopped anywhere and run again. `progress` is told now and then, and says whether to go on.
    pub fn reconcile(&self, wanted: &Wanted, wait: &Wait<'_>, progress: Going<'_>) -> Result<Reconciled> {
        let mut done = Reconciled::default();
        if self.store.layout.work.is_none() {
            return Ok(done);
        }
        self.join_held(wanted)?;
        let mut looked = self.store.look(wanted)?;
        done.looked_at = looked.plan.looked_at;
        if looked.covered {
            self.set_form(wanted)?;
            return self.reconcile_beneath(looked.plan, wanted, wait, done);
        }
        done.held = looked.plan.held;
        let planned = by_id(looked.plan.steps);
        let of = looked.todo.len() + looked.copies.len();
        let mut at = 0;
        if wanted.form.is_some() {
            // Where a copy was moved to tells what that means only while the others lie as they were left.
            let by_hand: HashSet<_> =
                planned.values().flatten().filter(|step| step.deed.is_by_place()).map(|step| step.id).collect();
            let (moved, rest) = looked.todo.into_iter().partition(|id| by_hand.contains(id));
            looked.todo = rest;
            let moved: Vec<_> = moved;
            for some in moved.chunks(AT_ONCE) {
                self.reconcile_some(some, wanted, &planned, wait, &mut done)?;
            }
            at += moved.len();
            self.set_form(wanted)?;
        }
        for some in looked.todo.chunks(AT_ONCE) {
            done.stopped |= !progress(Progress { done: at, of });
            if done.stopped {
                return Ok(done);
            }
            self.reconcile_some(some, wanted, &planned, wait, &mut done)?;
            at += some.len();
        }
        self.copy_all(&looked.copies, wait, &mut |so_far| progress(Progress { done: at + so_far, of }), &mut done)?;
        if done.stopped {
            return Ok(done);
        }
        if wanted.direction != Direction::In && !looked.todo.is_empty() {
            self.tidy_after()?;
        }
        self.stamp_again(&looked.unsure)?;
        progress(Progress { done: of, of });
        Ok(done)
    }

    /// Records that the held copies an import names are to be joined. From here on they are copies as others are, seen in a
    /// worktree that the store did not know. What was removed for good and is named comes back.
    fn join_held(&self, wanted: &Wanted) -> Result<()> {
        if wanted.only.is_none() || wanted.direction != Direction::In {
            return Ok(());
        }
        let mut op = self.begin_for_files()?;
        let joined = wanted.joined_of(op.snapshot());
        for id in wanted.only.iter().flatten() {
            if op.snapshot().get(*id).is_some_and(|found| found.store.is_none()) {
                op.forget_removal(*id)?;
            }
        }
        joined.into_iter().for_each(|id| op.ledger_mut().join(id));
        op.finish()
    }

    /// Copies out what has no copy yet.
    pub(super) fn copy_all(
        &self,
        copies: &[ConversationId],
        wait: &Wait<'_>,
        go_on: &mut dyn FnMut(usize) -> bool,
        done: &mut Reconciled,
    ) -> Result<()> {
        if copies.is_empty() {
            return Ok(());
        }
        let (free, _guards) = self.free_of(copies, wait, done)?;
        let all = free.iter().copied().collect();
        let mut op = self.begin_for_files()?;
        let mut at = 0;
        for some in free.chunks(COPIES_AT_ONCE) {
            let copied = op.copy_some(some, &all, &mut |more| go_on(at + more))?;
            done.steps.extend(copied.steps);
            done.held.extend(copied.held);
            done.stopped |= copied.stopped;
            if done.stopped {
                break;
            }
            at += some.len();
        }
        op.finish()
    }

    /// Those that nobody holds, or whose holder lets us through; the locks of the latter.
    fn free_of(
        &self,
        ids: &[ConversationId],
        wait: &Wait<'_>,
        done: &mut Reconciled,
    ) -> Result<(Vec<ConversationId>, Guards)> {
        let locks = self.store.locks().list()?;
        let held: BTreeSet<_> = locks.iter().filter(|lock| lock.state == State::Held).map(|lock| lock.id).collect();
        let wanted: Vec<_> = ids.iter().copied().filter(|id| held.contains(id)).collect();
        let guards = self.lock_or_tell(&wanted, wait, done);
        let free = ids.iter().copied().filter(|id| !held.contains(id) || guards.contains_key(id)).collect();
        Ok((free, guards))
    }

    /// Lays the real files out differently from now on.
    fn set_form(&self, wanted: &Wanted) -> Result<()> {
        let Some(form) = wanted.form else { return Ok(()) };
        if self.store.form()? == form {
            return Ok(());
        }
        let mut op = self.begin()?;
        op.ledger_mut().set_form(form);
        op.finish()
    }

    /// Beneath a live mount nobody edits the real files: they follow the ledger, and go on being covered.
    fn reconcile_beneath(
        &self,
        plan: Plan,
        wanted: &Wanted,
        wait: &Wait<'_>,
        mut done: Reconciled,
    ) -> Result<Reconciled> {
        let ids: BTreeSet<_> = plan.steps.iter().map(|step| step.id).collect();
        let kept = self.follow_all(&|id| ids.contains(&id), wait)?.kept;
        // What is still to be done was not.
        let left: BTreeSet<_> = self.store.look(wanted)?.plan.steps.into_iter().map(|step| step.id).collect();
        done.steps = plan.steps.into_iter().filter(|step| !left.contains(&step.id)).collect();
        done.held = plan.held;
        for held in kept {
            match held.kind {
                HeldKind::Busy => done.busy.push(held),
                _ if done.held.contains(&held) => {}
                _ => done.held.push(held),
            }
        }
        Ok(done)
    }

    fn lock_or_tell(&self, ids: &[ConversationId], wait: &Wait<'_>, done: &mut Reconciled) -> Guards {
        make_room_for_files(ids.len());
        let mut guards = Guards::new();
        let mut sorted = ids.to_vec();
        sorted.sort();
        for id in sorted {
            match self.lock(id, wait) {
                Ok(guard) => {
                    guards.insert(id, guard);
                }
                Err(error @ Error::Locked { .. }) => {
                    done.busy.push(Held { id: Some(id), kind: HeldKind::of_error(&error), reason: whole(&error) });
                }
                Err(error) => {
                    done.held.push(Held { id: Some(id), kind: HeldKind::of_error(&error), reason: whole(&error) });
                }
            }
        }
        guards
    }

    fn reconcile_some(
        &self,
        ids: &[ConversationId],
        wanted: &Wanted,
        planned: &Planned,
        wait: &Wait<'_>,
        done: &mut Reconciled,
    ) -> Result<()> {
        let guards = self.lock_or_tell(ids, wait, done);
        let mut op = self.begin_structural()?;
        let mut outcome = Ok(());
        for guard in ids.iter().filter_map(|id| guards.get(id)) {
            match op.bring_in_step(guard, wanted.direction) {
                Ok(steps) => done.steps.extend(as_planned(planned, guard.id(), steps)),
                Err(error) if is_everybodys(&error) => {
                    outcome = Err(error);
                    break;
                }
                Err(error) => done.held.push(Held {
                    id: Some(guard.id()),
                    kind: HeldKind::of_error(&error),
                    reason: whole(&error),
                }),
            }
        }
        // What was done is known, whatever came after it.
        op.finish().and(outcome)
    }

    /// What has moved out of the way, and what nothing is left of.
    fn tidy_after(&self) -> Result<()> {
        let mut op = self.begin_structural()?;
        op.put_in_place()?;
        op.finish()
    }

    /// Remembers how these look, since reading was needed to tell that they are in step.
    pub(super) fn stamp_again(&self, ids: &[ConversationId]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut op = self.begin_for_files()?;
        for &id in ids {
            match op.stamp_if_alike(id) {
                // Somebody renamed it just now, and nothing is to be remembered of it.
                Err(error) if error.is_absence() => {}
                stamped => stamped?,
            }
        }
        op.finish()
    }
}

impl Operation<'_> {
    fn bring_in_step(&mut self, guard: &Guard, direction: Direction) -> Result<Vec<Step>> {
        let (id, layout) = (guard.id(), &self.store().layout);
        let Some(root) = layout.work.as_ref() else { return Ok(Vec::new()) };
        let Some(found) = self.snapshot().get(id) else { return Ok(Vec::new()) };
        self.snapshot().check_readable(id)?;
        let mut sighting = Sighting::of(self.store().disk(), layout, self.snapshot(), found)?;
        // What it lies in may not have moved, and it does not move without that.
        sighting.go_where_parent_is(self.snapshot().work_dir(layout, id));
        let shown = layout.shown();
        let mut plan = Plan::default();
        plan.add(&sighting, direction, Ground { reached: &root.conversations, shown: &shown.conversations });
        if plan.steps.is_empty() {
            return Ok(plan.steps);
        }
        match sighting.roots {
            Roots::Leftover | Roots::Inhabited => self.drop_leftover(id)?,
            Roots::Both | Roots::Store | Roots::Removed | Roots::Work | Roots::Outlived | Roots::Lost => {
                self.drop_hidden(id)?;
                self.settle(guard)?;
                self.name_parent(guard)?;
                self.project(guard)?;
                self.write_transcript(guard)?;
                for (second, _) in sighting.seconds.iter().filter(|(_, whole)| *whole) {
                    self.drop_second_copy(id, second)?;
                }
            }
        }
        // What was hidden with it has nothing to be told about.
        plan.steps.retain(|step| step.deed != Deed::Hide || self.store().layout.work.is_some());
        Ok(plan.steps)
    }

    /// Remembers how both copies look, if they are still alike and where they belong.
    fn stamp_if_alike(&mut self, id: ConversationId) -> Result<()> {
        let layout = &self.store().layout;
        let (Some(root), Some(found)) = (layout.work.as_ref(), self.snapshot().get(id)) else { return Ok(()) };
        let sighting = Sighting::of(self.store().disk(), layout, self.snapshot(), found)?;
        let shown = layout.shown();
        let mut plan = Plan::default();
        plan.add(&sighting, Direction::Both, Ground { reached: &root.conversations, shown: &shown.conversations });
        if plan.steps.is_empty() && plan.held.is_empty() && sighting.roots == Roots::Both {
            self.stamp(id)?;
        }
        Ok(())
    }
}

/// Steps by the conversation they are about.
type Planned = BTreeMap<ConversationId, Vec<Step>>;

fn by_id(steps: Vec<Step>) -> Planned {
    let mut planned = Planned::new();
    for step in steps {
        planned.entry(step.id).or_default().push(step);
    }
    planned
}

/// What was done in the words of the plan, if it is what was planned: a parent that has moved meanwhile gives its children
/// other paths, and nothing else.
fn as_planned(planned: &Planned, id: ConversationId, done: Vec<Step>) -> Vec<Step> {
    let same = |(a, b): (&Step, &Step)| std::mem::discriminant(&a.deed) == std::mem::discriminant(&b.deed);
    match planned.get(&id) {
        Some(planned) if planned.len() == done.len() && planned.iter().zip(&done).all(same) => planned.clone(),
        Some(_) | None => done,
    }
}

/// Whether what went wrong would go wrong with every other conversation too.
pub(super) fn is_everybodys(error: &Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match error {
        Error::Io { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem),
        Error::Unprojected { source, .. } => is_everybodys(source),
        _ => false,
    }
}
