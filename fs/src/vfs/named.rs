//! What a number stands for, while names change. A reader finds the path of a node first and uses it afterwards; in between
//! the file may get another path, and another file this one.

use super::Vfs;
use crate::error::{FsError, Result};
use crate::inodes::Inodes;
use crate::node::Node;
use crate::renames::Renaming;

impl Vfs {
    /// What a number stands for.
    pub(super) fn node(&self, number: u64) -> Result<Node> {
        self.inodes.lock().resolve(number).ok_or(FsError::Stale)
    }

    /// Names of these nodes are about to change. The caller has their rooms.
    pub(super) fn renaming(&self, nodes: &[&Node]) -> Renaming<'_> {
        self.renames.begin(nodes.iter().filter_map(|node| node.conversation()))
    }

    /// Does something with the node that a number stands for. If a file of its conversation is renamed or removed meanwhile, it
    /// does so again while none is.
    pub(super) fn while_named<T>(&self, number: u64, work: impl Fn(&Node) -> Result<T>) -> Result<T> {
        self.while_named_then(number, work, |_, done| done)
    }

    /// As [`Vfs::while_named`], and then something else before the number can stand for another node.
    pub(super) fn while_named_then<T, U>(
        &self,
        number: u64,
        work: impl Fn(&Node) -> Result<T>,
        then: impl FnOnce(&mut Inodes, T) -> U,
    ) -> Result<U> {
        let mut at = self.node(number)?.conversation();
        if let Some(id) = at
            && let Some(before) = self.renames.count(id)
        {
            let done = work(&self.node(number)?);
            let mut inodes = self.inodes.lock();
            if self.renames.count(id) == Some(before) {
                return done.map(|done| then(&mut inodes, done));
            }
        }
        loop {
            // Whoever renames or removes has the room.
            let _room = at.map(|id| self.room(id).lock_arc());
            let node = self.node(number)?;
            if node.conversation() == at {
                let done = work(&node)?;
                return Ok(then(&mut self.inodes.lock(), done));
            }
            at = node.conversation();
        }
    }
}
