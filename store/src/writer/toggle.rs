//! Shows conversations in this worktree, or hides them from it. Nothing leaves the store either way.

use std::collections::{BTreeSet, HashSet};

use super::Writer;
use crate::error::{Error, Result};
use crate::files::exists;
use crate::id::ConversationId;
use crate::lock::Wait;
use crate::presence::Projection;
use crate::reconcile::Root;
use crate::snapshot::Snapshot;

/// What a toggle changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toggled {
    /// Whether the conversation itself was not already so.
    pub changed: bool,
    /// The ancestors that came along.
    pub ancestors: Vec<ConversationId>,
    /// The others that came along: descendants, and what else was hidden with an ancestor.
    pub descendants: Vec<ConversationId>,
}

impl Writer {
    /// Shows a conversation here, ancestors first, with the descendants that are meant to be here; or hides it with its
    /// whole subtree.
    pub fn toggle(&self, id: ConversationId, projection: Projection, wait: &Wait<'_>) -> Result<Toggled> {
        self.toggle_with(id, projection, &[], wait)
    }

    /// The same. Of its ancestors these may be shown although they are private: the user named them too.
    pub fn toggle_with(
        &self,
        id: ConversationId,
        projection: Projection,
        named: &[ConversationId],
        wait: &Wait<'_>,
    ) -> Result<Toggled> {
        if self.store.layout.is_single_root() {
            return Err(Error::Refused("there is no user-local storage, so nothing can be local".to_owned()));
        }
        match projection {
            Projection::LocalOnly => self.hide(id, wait),
            Projection::Projected => self.show(id, named, wait),
        }
    }

    fn hide(&self, id: ConversationId, wait: &Wait<'_>) -> Result<Toggled> {
        let (guards, mut op) = self.begin_locked(false, wait, |snapshot| hidden_with(snapshot, id))?;
        // First everything is safe in the store, then the decision is written down, then files go.
        op.check_nothing_held_inside(guards.keys().copied())?;
        let seen = op.look_at_work(guards.keys().copied())?;
        for guard in guards.values() {
            op.settle_whole(guard)?;
        }
        let changed = op.snapshot().is_shown(id);
        let below = op.snapshot().tree(op.snapshot().find(id)?.partition).descendants(id);
        let subtree: BTreeSet<_> = below.iter().copied().chain([id]).collect();
        let descendants: Vec<_> = below.into_iter().filter(|&below| op.snapshot().is_shown(below)).collect();
        for &other in guards.keys() {
            let intent = if other == id { Projection::LocalOnly } else { op.intent(other) };
            op.intend(other, intent);
        }
        op.show_files(id);
        op.save_ledger()?;
        // What merely lies beneath it in the workspace belongs elsewhere and moves there first.
        for (other, guard) in &guards {
            if !subtree.contains(other) {
                op.project(guard)?;
            }
        }
        for &below in std::iter::once(&id).chain(&descendants) {
            op.withdraw_seen(below, &seen)?;
        }
        // What had nowhere else to go went along, and is still meant to be here.
        for &other in guards.keys().filter(|other| !subtree.contains(other)) {
            let dir = op.snapshot().get(other).and_then(|found| found.work.as_ref()).map(|place| place.dir.clone());
            if let Some(dir) = dir
                && !exists(self.store.disk(), &dir)?
            {
                op.withdraw(other)?;
                op.intend(other, Projection::Projected);
            }
        }
        // From now on a copy of it was put there by somebody else.
        let entry = op.ledger_mut().entry(id);
        entry.made_local = true;
        if changed {
            entry.took_along = subtree.into_iter().filter(|&below| below != id).collect();
        }
        op.finish()?;
        Ok(Toggled { changed, ancestors: Vec::new(), descendants })
    }

    fn show(&self, id: ConversationId, named: &[ConversationId], wait: &Wait<'_>) -> Result<Toggled> {
        let (guards, mut op) = self.begin_locked(false, wait, |snapshot| {
            let top = topmost_hidden(snapshot, id)?;
            let tree = snapshot.tree(snapshot.find(id)?.partition);
            Ok(tree.descendants(top).into_iter().chain([top]).chain(tree.ancestors(id)).collect())
        })?;
        self.check_ancestors(op.snapshot(), id, named)?;
        let top = topmost_hidden(op.snapshot(), id)?;
        let tree = op.snapshot().tree(op.snapshot().find(id)?.partition);
        let ancestors: BTreeSet<_> = tree.ancestors(id).collect();
        let order: Vec<_> = std::iter::once(top).chain(tree.descendants(top)).collect();
        let mut toggled = Toggled::default();
        // The decision is written down before the first file appears: if this is cut short, what is there was not planted.
        for &each in ancestors.iter().chain([&id]) {
            op.show_by_command(each);
        }
        op.save_ledger()?;
        // Parents before children: whoever is meant to be here comes as soon as there is a place for it.
        for each in order {
            let (Some(guard), Some(found)) = (guards.get(&each), op.snapshot().get(each)) else { continue };
            let was_shown = op.snapshot().is_shown(each);
            let asked_for = each == id || ancestors.contains(&each);
            if !asked_for && (was_shown || found.intent == Projection::LocalOnly) {
                continue;
            }
            if op.snapshot().held_copy(each).is_some() {
                return Err(Error::Refused(format!(
                    "a copy of {each} in this worktree is held; `jp import {each}` joins it and shows the conversation"
                )));
            }
            op.settle(guard)?;
            op.update(each, |conversation| conversation.intent = Projection::Projected);
            if !was_shown {
                op.intend(each, Projection::Projected);
            }
            op.project(guard)?;
            let now_shown = op.snapshot().is_shown(each);
            if was_shown || !now_shown {
                continue;
            }
            if each == id {
                toggled.changed = true;
            } else if ancestors.contains(&each) {
                toggled.ancestors.push(each);
            } else {
                toggled.descendants.push(each);
            }
        }
        op.tidy_work()?;
        op.finish()?;
        Ok(toggled)
    }
}

impl Writer {
    /// Refuses to show private conversations for the sake of one beneath them, unless the user named them.
    fn check_ancestors(&self, snapshot: &Snapshot, id: ConversationId, named: &[ConversationId]) -> Result<()> {
        let ancestors = snapshot.tree(snapshot.find(id)?.partition).ancestors(id);
        // What was hidden with an ancestor comes back with it, where the user says so.
        let went_along =
            |above: ConversationId| snapshot.ledger.get(above).is_some_and(|entry| entry.took_along.contains(&id));
        let ancestors =
            ancestors.filter(|&above| !snapshot.is_shown(above) && !named.contains(&above) && !went_along(above));
        let private = self.store.private_above(&snapshot.ledger, ancestors)?;
        if private.is_empty() {
            return Ok(());
        }
        let all = private.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        Err(Error::Refused(format!(
            "{id} lies beneath what is private: {all}. To show that too, where git can commit it: `jp c edit --local=false {all} \
             {id}`; to show {id} alone, make it a root first: `jp c mv {id} --root`"
        )))
    }
}

/// The ancestor nearest to the root that is not shown here, or the conversation itself.
fn topmost_hidden(snapshot: &Snapshot, id: ConversationId) -> Result<ConversationId> {
    let tree = snapshot.tree(snapshot.find(id)?.partition);
    let hidden = |id: &ConversationId| snapshot.get(*id).is_some() && !snapshot.is_shown(*id);
    Ok(tree.ancestors(id).filter(hidden).last().unwrap_or(id))
}

/// The subtree, and whatever else lies beneath its directories.
pub(super) fn hidden_with(snapshot: &Snapshot, id: ConversationId) -> Result<BTreeSet<ConversationId>> {
    let tree = snapshot.tree(snapshot.find(id)?.partition);
    let ids = tree.descendants(id).into_iter().chain([id]).collect();
    Ok(with_inside(snapshot, Root::Store, with_inside(snapshot, Root::Work, ids)))
}

/// These conversations, and whatever else lies beneath their directories in a root.
pub(super) fn with_inside(
    snapshot: &Snapshot,
    root: Root,
    mut ids: BTreeSet<ConversationId>,
) -> BTreeSet<ConversationId> {
    let dirs: HashSet<_> = ids.iter().flat_map(|&id| snapshot.places(root, id)).map(|place| &*place.dir).collect();
    let inside = |id| snapshot.places(root, id).any(|place| place.dir.ancestors().any(|above| dirs.contains(above)));
    // What has no parent by place lies beneath nothing.
    let nested = |id| snapshot.places(root, id).any(|place| place.beneath.is_some());
    ids.extend(snapshot.all().map(|found| found.id).filter(|&id| nested(id) && inside(id)));
    ids
}
