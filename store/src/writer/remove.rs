//! Removes conversations for good, because somebody asked for exactly that.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::operation::Operation;
use super::toggle::hidden_with;
use super::{Guards, Writer};
use crate::error::{Error, Result};
use crate::files::exists;
use crate::id::ConversationId;
use crate::lock::Wait;
use crate::meta::Parent;
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
        let guards = self.lock_all(wait, |snapshot| {
            refuse_children(snapshot, id, strategy)?;
            affected(snapshot, id, strategy)
        })?;
        self.remove_locked(id, strategy, &guards)
    }

    pub(super) fn remove_locked(
        &self,
        id: ConversationId,
        strategy: Strategy,
        guards: &Guards,
    ) -> Result<Vec<ConversationId>> {
        let mut op = self.begin_structural()?;
        refuse_children(op.snapshot(), id, strategy)?;
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
        let going: BTreeSet<_> = doomed.iter().copied().collect();
        op.evacuate(guards, &going)?;
        // Children before parents, the workspace before the store: cut short, what is left is whole and still listed.
        for &id in doomed.iter().rev() {
            op.destroy(id)?;
        }
        op.change_mirror(|mirror| going.iter().fold(false, |changed, &id| mirror.forget(id) | changed))?;
        op.tidy_work()?;
        op.finish()?;
        Ok(doomed)
    }
}

impl Operation<'_> {
    /// Moves what lies beneath doomed directories in the workspace, but is not doomed, to where it belongs.
    fn evacuate(&mut self, guards: &Guards, doomed: &BTreeSet<ConversationId>) -> Result<()> {
        for (id, guard) in guards {
            if !doomed.contains(id) && self.snapshot().get(*id).is_some_and(|found| found.work.is_some()) {
                self.settle(guard)?;
                self.project(guard)?;
            }
        }
        let dirs: Vec<PathBuf> = doomed
            .iter()
            .filter_map(|id| self.snapshot().get(*id)?.work.as_ref())
            .map(|place| place.dir.clone())
            .collect();
        let trapped = self.snapshot().all().find(|other| {
            !doomed.contains(&other.id)
                && other.work.as_ref().is_some_and(|place| dirs.iter().any(|dir| place.dir.starts_with(dir)))
        });
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

    fn destroy(&mut self, id: ConversationId) -> Result<()> {
        self.withdraw(id)?;
        let mut dirs: Vec<_> =
            self.snapshot().store_places.get(&id).into_iter().flatten().map(|place| place.dir.clone()).collect();
        dirs.extend(self.snapshot().get(id).and_then(|found| found.store.as_ref()).map(|place| place.dir.clone()));
        dirs.sort();
        dirs.dedup();
        for dir in dirs {
            if exists(self.store().disk(), &dir)? {
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
    let mut ids = BTreeSet::from([id]);
    let inside = |places: &Vec<crate::scan::Place>| places.iter().any(|place| place.beneath == Some(id));
    ids.extend(snapshot.work_places.iter().filter(|(_, places)| inside(places)).map(|(&id, _)| id));
    ids
}
