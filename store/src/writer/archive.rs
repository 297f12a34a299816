//! Puts conversations away and takes them out again, each with its subtree, in every root that holds it.

use std::collections::BTreeSet;

use super::Writer;
use super::toggle::with_inside;
use crate::error::{Error, Result};
use crate::id::ConversationId;
use crate::layout::Partition;
use crate::lock::Wait;
use crate::reconcile::Root;
use crate::snapshot::Snapshot;

impl Writer {
    /// Archives a conversation and everything beneath it. Returns what was archived, parents first.
    pub fn archive(&self, id: ConversationId, wait: &Wait<'_>) -> Result<Vec<ConversationId>> {
        self.move_to(id, Partition::Archived, wait)
    }

    /// Takes a conversation and everything beneath it out of the archive. Returns what was taken out, parents first.
    pub fn unarchive(&self, id: ConversationId, wait: &Wait<'_>) -> Result<Vec<ConversationId>> {
        self.move_to(id, Partition::Live, wait)
    }

    fn move_to(&self, id: ConversationId, to: Partition, wait: &Wait<'_>) -> Result<Vec<ConversationId>> {
        let subtree = |snapshot: &Snapshot| -> Result<Vec<ConversationId>> {
            let from = snapshot.find(id)?.partition;
            if from == to {
                return Err(Error::Refused(match to {
                    Partition::Archived => format!("{id} is archived already"),
                    Partition::Live => format!("{id} is not archived"),
                }));
            }
            let below = snapshot.tree(from).descendants(id);
            Ok(std::iter::once(id).chain(below).collect())
        };
        let (guards, mut op) = self.begin_locked(true, wait, |snapshot| {
            let ids: BTreeSet<_> = subtree(snapshot)?.into_iter().collect();
            Ok(with_inside(snapshot, Root::Store, ids))
        })?;
        let ids = subtree(op.snapshot())?;
        let now = self.store.now();
        // Children first: cut short, the same command finds what is left to be moved.
        for id in ids.iter().rev() {
            let Some(guard) = guards.get(id) else { continue };
            op.settle(guard)?;
            let mut meta = op.read_meta(guard)?;
            // The stamp first, then the move: where the directory lies is the truth.
            meta.set_archived_at((to == Partition::Archived).then_some(now));
            op.write_meta(guard, meta.clone())?;
            op.move_in_store(guard, to, &id.dirname(meta.title()))?;
        }
        for id in &ids {
            if let Some(guard) = guards.get(id) {
                op.project(guard)?;
            }
        }
        op.tidy_work()?;
        op.finish()?;
        Ok(ids)
    }
}
