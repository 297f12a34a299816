//! Removes conversations whose time is up, when asked to.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Strategy, Writer};
use crate::error::{Context as _, Error, Result};
use crate::files::{entries, remove_tree};
use crate::id::ConversationId;
use crate::layout::{Partition, TRASH};
use crate::lock::Wait;
use crate::meta::Meta;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::time::Timestamp;

/// What a collection did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Removed.
    pub removed: Vec<ConversationId>,
    /// Expired, but in use: locked, or some terminal's active conversation.
    pub in_use: Vec<ConversationId>,
}

impl Writer {
    /// Removes what has expired.
    pub fn collect(&self, active: &BTreeSet<ConversationId>) -> Result<Collected> {
        let now = self.store.now();
        let snapshot = self.store.snapshot()?;
        let mut collected = Collected::default();
        for id in expired(&snapshot, now) {
            if active.contains(&id) {
                collected.in_use.push(id);
                continue;
            }
            match self.remove(id, Strategy::Refuse, &Wait::none()) {
                Ok(_) => collected.removed.push(id),
                // A child that had to stay keeps its parent.
                Err(Error::Locked { .. } | Error::Refused(_)) => collected.in_use.push(id),
                Err(error) => return Err(error),
            }
        }
        Ok(collected)
    }
}

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
                // The note is written when a directory is put there; without one the directory itself has to do.
                let note = self.disk().stat(&path.join("TRASHED.md"));
                let stat = note.or_else(|_| self.disk().stat(&path)).context("look at", &path)?;
                found.push(Aside { path, at: Timestamp::from_nanosecond(stat.mtime.into()).ok() });
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

/// Live conversations whose time, and that of everything beneath them, is up; children before parents.
pub fn expired(snapshot: &Snapshot, now: Timestamp) -> Vec<ConversationId> {
    let tree = snapshot.tree(Partition::Live);
    let over = |id: ConversationId| {
        let expiry = snapshot.get(id).and_then(|found| found.meta.as_ref()).and_then(Meta::expires_at);
        expiry.is_some_and(|expiry| expiry <= now)
    };
    let mut kept = BTreeSet::new();
    let mut found = Vec::new();
    for (_, id) in tree.walk().into_iter().rev() {
        if over(id) && !kept.contains(&id) {
            found.push(id);
        } else {
            kept.extend(tree.parent(id));
        }
    }
    found
}
