//! Shows conversations in this worktree, or hides them from it. Nothing leaves the store either way.

use std::collections::BTreeSet;

use super::Writer;
use crate::error::{Error, Result};
use crate::id::ConversationId;
use crate::ledger::Entry;
use crate::lock::Wait;
use crate::presence::Projection;
use crate::snapshot::Snapshot;

/// What a toggle changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toggled {
    /// Whether the conversation itself was not already so.
    pub changed: bool,
    /// The ancestors that came along.
    pub ancestors: Vec<ConversationId>,
    /// The descendants that came along.
    pub descendants: Vec<ConversationId>,
}

impl Writer {
    /// Shows a conversation here, ancestors first, with the descendants that are meant to be here; or hides it with its
    /// whole subtree.
    pub fn toggle(&self, id: ConversationId, projection: Projection, wait: &Wait<'_>) -> Result<Toggled> {
        if self.store.layout.is_single_root() {
            return Err(Error::Refused("there is no user-local storage, so nothing can be local".to_owned()));
        }
        match projection {
            Projection::LocalOnly => self.hide(id, wait),
            Projection::Projected => self.show(id, wait),
        }
    }

    fn hide(&self, id: ConversationId, wait: &Wait<'_>) -> Result<Toggled> {
        let guards = self.lock_all(wait, |snapshot| hidden_with(snapshot, id))?;
        let mut op = self.begin()?;
        // First everything is safe in the store, then the decision is written down, then files go.
        for guard in guards.values() {
            op.settle(guard)?;
            op.settle_unmanaged(guard)?;
        }
        let shown = |snapshot: &Snapshot, id| snapshot.get(id).is_some_and(|found| found.work.is_some());
        let changed = shown(op.snapshot(), id);
        let tree = op.snapshot().tree(op.snapshot().find(id)?.partition);
        let descendants: Vec<_> =
            tree.descendants(id).into_iter().filter(|&below| shown(op.snapshot(), below)).collect();
        for &other in guards.keys() {
            let intent = if other == id { Projection::LocalOnly } else { op.intent(other) };
            op.remember(other, Entry { intent, base: None });
        }
        op.save_ledger()?;
        // What merely lies beneath it in the workspace belongs elsewhere and moves there first.
        let subtree: BTreeSet<_> = descendants.iter().copied().chain([id]).collect();
        for (other, guard) in &guards {
            if !subtree.contains(other) {
                op.project(guard)?;
            }
        }
        for &below in std::iter::once(&id).chain(&descendants) {
            op.withdraw(below)?;
        }
        op.finish()?;
        Ok(Toggled { changed, ancestors: Vec::new(), descendants })
    }

    fn show(&self, id: ConversationId, wait: &Wait<'_>) -> Result<Toggled> {
        let guards = self.lock_all(wait, |snapshot| {
            let partition = snapshot.find(id)?.partition;
            let tree = snapshot.tree(partition);
            Ok(tree.ancestors(id).chain([id]).chain(tree.descendants(id)).collect())
        })?;
        let mut op = self.begin()?;
        let tree = op.snapshot().tree(op.snapshot().find(id)?.partition);
        let mut ancestors: Vec<_> = tree.ancestors(id).collect();
        ancestors.reverse();
        let descendants = tree.descendants(id);
        let mut toggled = Toggled::default();
        let above = ancestors.into_iter().map(|above| (above, true));
        let below = descendants.into_iter().map(|below| (below, false));
        for (each, meant) in above.chain([(id, true)]).chain(below) {
            let Some(guard) = guards.get(&each) else { continue };
            let Some(found) = op.snapshot().get(each) else { continue };
            let (was_shown, remembered) = (found.work.is_some(), found.intent);
            if !meant && remembered == Projection::LocalOnly {
                continue;
            }
            op.settle(guard)?;
            op.update(each, |conversation| conversation.intent = Projection::Projected);
            if !was_shown {
                op.remember(each, Entry { intent: Projection::Projected, base: None });
            }
            op.project(guard)?;
            let now_shown = op.snapshot().get(each).is_some_and(|found| found.work.is_some());
            if !was_shown && now_shown {
                match (each == id, meant) {
                    (true, _) => toggled.changed = true,
                    (false, true) => toggled.ancestors.push(each),
                    (false, false) => toggled.descendants.push(each),
                }
            }
        }
        op.finish()?;
        Ok(toggled)
    }
}

/// The subtree, and whatever else lies beneath its directories in the workspace.
pub(super) fn hidden_with(snapshot: &Snapshot, id: ConversationId) -> Result<BTreeSet<ConversationId>> {
    let tree = snapshot.tree(snapshot.find(id)?.partition);
    let mut ids: BTreeSet<_> = tree.descendants(id).into_iter().chain([id]).collect();
    let dirs: Vec<_> =
        ids.iter().filter_map(|&id| snapshot.work_places.get(&id)).flatten().map(|place| place.dir.clone()).collect();
    let beneath = snapshot
        .work_places
        .iter()
        .filter(|(_, places)| places.iter().any(|place| dirs.iter().any(|dir| place.dir.starts_with(dir))));
    ids.extend(beneath.map(|(&id, _)| id));
    Ok(ids)
}
