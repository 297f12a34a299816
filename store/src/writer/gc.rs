//! Removes conversations whose time is up, when asked to.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::doctor::NOTE;
use super::remove::{Gone, Inside};
use super::{Guards, Writer};
use crate::error::{Context as _, Error, Result};
use crate::files::{entries, remove_tree};
use crate::id::ConversationId;
use crate::layout::{Partition, TRASH, managed};
use crate::lock::{Wait, make_room_for_files};
use crate::meta::Meta;
use crate::observe::read_file;
use crate::reconcile::ManagedFile;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::time::Timestamp;

/// What a collection did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Removed.
    pub removed: Vec<ConversationId>,
    /// Those of them that are in the trash, because they had files of the user's own, or events that were not exported.
    pub trashed: Vec<ConversationId>,
    /// Expired, but in use: locked, or some terminal's active conversation.
    pub in_use: Vec<ConversationId>,
}

impl Writer {
    /// Removes what has expired.
    pub fn collect(&self, active: &BTreeSet<ConversationId>) -> Result<Collected> {
        let mut collected = Collected::default();
        let mut candidates = expired(&self.store, &self.store.snapshot()?)?;
        candidates.retain(|id| {
            if active.contains(id) {
                collected.in_use.push(*id);
            }
            !active.contains(id)
        });
        for some in candidates.chunks(AT_ONCE) {
            self.collect_some(some, &mut collected)?;
        }
        Ok(collected)
    }

    /// Removes those of these that can be locked and have still expired, children before parents.
    fn collect_some(&self, ids: &[ConversationId], collected: &mut Collected) -> Result<()> {
        let inside = Inside::of(&self.store.snapshot()?);
        make_room_for_files(ids.len());
        let mut guards = Guards::new();
        let mut ours = Vec::new();
        for &id in ids {
            match self.lock_more(&mut guards, &inside.with(id)) {
                Ok(()) => ours.push(id),
                Err(Error::Locked { .. }) => collected.in_use.push(id),
                Err(error) => return Err(error),
            }
        }
        let mut op = self.begin_structural()?;
        // What was given more time since then is none of them.
        let over: BTreeSet<_> = expired(&self.store, op.snapshot())?.into_iter().collect();
        let inside = Inside::of(op.snapshot());
        let mut doomed = Vec::new();
        let mut going = BTreeSet::new();
        for id in ours.into_iter().filter(|id| over.contains(id)) {
            let held = inside.with(id).iter().all(|id| guards.contains_key(id));
            let children = op.snapshot().tree(Partition::Live).children(id);
            // A child that has to stay keeps its parent.
            if held && children.iter().all(|child| going.contains(child)) {
                going.insert(id);
                doomed.push(id);
            } else {
                collected.in_use.push(id);
            }
        }
        let Gone { ids: gone, trashed } = op.remove_leaves(&doomed, &guards)?;
        collected.trashed.extend(trashed);
        let (removed, kept): (Vec<_>, Vec<_>) = doomed.into_iter().partition(|id| gone.contains(id));
        collected.removed.extend(removed);
        collected.in_use.extend(kept);
        op.forget_links(&gone)?;
        op.tidy_work()?;
        op.finish()
    }

    /// Takes these locks too, all or none, without waiting.
    fn lock_more(&self, guards: &mut Guards, ids: &BTreeSet<ConversationId>) -> Result<()> {
        let mut more = Guards::new();
        for &id in ids.iter().filter(|id| !guards.contains_key(id)) {
            more.insert(id, self.lock(id, &Wait::none())?);
        }
        guards.extend(more);
        Ok(())
    }
}

/// How many are removed in one go. Each lock is an open file, and each go a look at the whole store.
const AT_ONCE: usize = 200;

/// Something that was put aside and can be thrown away: a trashed directory or a kept loser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// Where it is.
    pub path: PathBuf,
    /// When it was put there.
    pub at: Option<Timestamp>,
}

impl Store {
    /// Everything in the trash of both roots.
    pub fn trash(&self) -> Result<Vec<Aside>> {
        let layout = &self.layout;
        let mut trashes = vec![layout.store.trash()];
        trashes.extend(layout.work.iter().map(|work| work.conversations.join(TRASH)));
        let mut found = Vec::new();
        for trash in trashes {
            for entry in entries(self.disk(), &trash)? {
                let path = trash.join(&entry.name);
                // The note is written when a directory is put there. One that came with the directory may be older.
                let dir = self.disk().stat(&path).context("look at", &path)?;
                let note = self.disk().stat(&path.join(NOTE)).map_or(dir.mtime, |note| note.mtime.max(dir.mtime));
                found.push(Aside { path, at: Timestamp::from_nanosecond(note.into()).ok() });
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }
}

impl Writer {
    /// Throws away what was put aside. Anything else is refused.
    pub fn throw_away(&self, aside: &Path) -> Result<()> {
        let layout = &self.store.layout;
        let conflicts = layout.store.conflicts();
        let trashes = [Some(layout.store.trash()), layout.work.as_ref().map(|work| work.conversations.join(TRASH))];
        let in_trash = trashes.iter().flatten().any(|trash| aside.parent() == Some(trash));
        let in_conflicts = aside.parent().and_then(Path::parent) == Some(&conflicts);
        if !in_trash && !in_conflicts {
            return Err(Error::Refused(format!("{} was not put aside by jp", aside.display())));
        }
        remove_tree(self.store.disk(), aside)?;
        if let (true, Some(owner)) = (in_conflicts, aside.parent()) {
            // Other losers of the same conversation keep it.
            let _ = self.store.disk().remove_dir(owner);
        }
        Ok(())
    }
}

/// Live conversations whose time, and that of everything beneath them, is up; children before parents. The store's copy and
/// the current one have to say so: a time that came with a pull and is not in the store yet ends nothing.
pub fn expired(store: &Store, snapshot: &Snapshot) -> Result<Vec<ConversationId>> {
    let (tree, now) = (snapshot.tree(Partition::Live), store.now());
    let is_up = |meta: &Meta| meta.expires_at().is_some_and(|expiry| expiry <= now);
    let over = |id: ConversationId| -> Result<bool> {
        let Some(found) = snapshot.get(id).filter(|found| found.meta.as_ref().is_some_and(is_up)) else {
            return Ok(false);
        };
        let Some(dir) = found.dirs().store else { return Ok(false) };
        let contents = read_file(store.disk(), &managed(dir, ManagedFile::Metadata))?;
        Ok(contents.and_then(|contents| Meta::parse(&contents.bytes).ok()).is_some_and(|meta| is_up(&meta)))
    };
    let mut kept = BTreeSet::new();
    let mut found = Vec::new();
    for (_, id) in tree.walk().into_iter().rev() {
        if !kept.contains(&id) && over(id)? {
            found.push(id);
        } else {
            kept.extend(tree.parent(id));
        }
    }
    Ok(found)
}
