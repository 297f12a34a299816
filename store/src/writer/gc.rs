//! Removes conversations whose time is up, when asked to.

use std::collections::BTreeSet;

use super::{Strategy, Writer};
use crate::error::{Error, Result};
use crate::id::ConversationId;
use crate::layout::Partition;
use crate::lock::Wait;
use crate::meta::Meta;
use crate::snapshot::Snapshot;
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
