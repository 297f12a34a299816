//! What a number stands for, while names change. Whoever finds the path of a node first and uses it afterwards may use another
//! file's: in between the file may get another path, and another file this one. Readers notice that and look again
//! ([`Vfs::while_named`]); whoever changes something finds it once more when it has the rooms ([`Vfs::in_room`],
//! [`Vfs::hold_named`]).

use parking_lot::{ArcMutexGuard, RawMutex};

use super::Vfs;
use super::save::Hold;
use crate::caller::Caller;
use crate::error::{FsError, Result};
use crate::inodes::Inodes;
use crate::node::Node;
use crate::renames::Renaming;

/// Nobody else changes a conversation through this mount while this lives.
pub(super) type Room = ArcMutexGuard<RawMutex, ()>;

/// What numbers stand for, the nodes that a request changes, and what it takes to change them.
pub(super) type Named<const N: usize, const M: usize> = ([Node; N], [Node; M], Hold);

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
        if let Some(id) = self.node(number)?.conversation()
            && let Some(before) = self.renames.count(id)
        {
            let done = work(&self.node(number)?);
            let mut inodes = self.inodes.lock();
            if self.renames.count(id) == Some(before) {
                return done.map(|done| then(&mut inodes, done));
            }
        }
        // Whoever renames or removes has the room.
        let (node, _room) = self.in_room(number)?;
        let done = work(&node)?;
        Ok(then(&mut self.inodes.lock(), done))
    }

    /// What a number stands for, and the room of that: it stands for nothing else as long as that is held.
    pub(super) fn in_room(&self, number: u64) -> Result<(Node, Option<Room>)> {
        let mut at = self.node(number)?.conversation();
        loop {
            let room = at.map(|id| self.room(id).lock_arc());
            let node = self.node(number)?;
            if node.conversation() == at {
                return Ok((node, room));
            }
            at = node.conversation();
        }
    }

    /// Rooms and locks of the nodes that `find` finds from what these numbers stand for. If it finds others once they are
    /// held, because names changed while they were waited for, this begins again.
    pub(super) fn hold_named<const N: usize, const M: usize>(
        &self,
        caller: Caller,
        numbers: [u64; N],
        find: impl Fn(&[Node; N]) -> Result<[Node; M]>,
    ) -> Result<Named<N, M>> {
        loop {
            let named = self.nodes(numbers)?;
            let found = find(&named)?;
            let hold = self.hold(caller, &found.each_ref())?;
            if self.nodes(numbers)? == named && find(&named)? == found {
                return Ok((named, found, hold));
            }
        }
    }

    fn nodes<const N: usize>(&self, numbers: [u64; N]) -> Result<[Node; N]> {
        let inodes = self.inodes.lock();
        let nodes: Option<Vec<_>> = numbers.iter().map(|&number| inodes.resolve(number)).collect();
        nodes.and_then(|nodes| nodes.try_into().ok()).ok_or(FsError::Stale)
    }
}
