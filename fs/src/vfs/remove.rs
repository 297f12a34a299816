//! Removing. What is the store's is hidden in this worktree and stays where it is; only scratch, and what never arrived, is
//! really gone.

use std::ffi::OsStr;
use std::path::Path;

use jp_store::ConversationId;
use jp_store::disk::Kind;
use jp_store::error::Context as _;
use jp_store::journal::Change;
use jp_store::reconcile::ManagedFile;

use super::named::Named;
use super::{Vfs, check_name};
use crate::caller::Caller;
use crate::error::{FsError, Result};
use crate::node::Node;

impl Vfs {
    /// Removes a file or a link.
    pub fn remove_file(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<()> {
        self.writable()?;
        check_name(name)?;
        let ([dir], [node], _hold) = self.hold_known(caller, parent, name)?;
        if self.attr_of(&node).map_err(absent)?.kind == Kind::Dir {
            return Err(FsError::IsDir);
        }
        if matches!(node, Node::Alias(..)) {
            return Err(FsError::Refused("another name of a conversation; remove the conversation"));
        }
        let _renaming = self.renaming(&[&node]);
        self.save_orphan(&node)?;
        match &node {
            Node::Managed(id, file) if !self.item(*id)?.pending => {
                self.retire_draft(*id, *file)?;
                self.hide_node(&node)?;
                self.drop_draft(*id, *file)?;
            }
            Node::Own(id, _) if !self.item(*id)?.pending => self.hide_node(&node)?,
            node => {
                let path = self.path(node)?;
                self.backing.remove(&path).context("remove", &path)?;
            }
        }
        self.inodes.lock().unlinked(&node);
        self.touch(&dir);
        Ok(())
    }

    /// Removes a directory that shows nothing.
    pub fn remove_dir(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<()> {
        self.writable()?;
        check_name(name)?;
        let check = |node: &Node| {
            if self.attr_of(node).map_err(absent)?.kind != Kind::Dir {
                return Err(FsError::NotDir);
            }
            let is_full = self.take_listing(node)?.iter().any(|listed| !listed.is_dots());
            if is_full { Err(FsError::NotEmpty) } else { Ok(()) }
        };
        let ([dir], [node], _hold) = match self.hold_known(caller, parent, name) {
            // A directory that is still full says that first.
            Err(FsError::Busy) => {
                let node = self.find_known(caller, &self.node(parent)?, name)?.0.ok_or(FsError::NotFound)?;
                return Err(check(&node).err().unwrap_or(FsError::Busy));
            }
            held => held?,
        };
        check(&node)?;
        let _aware = self.aware(&dir, name);
        match &node {
            // It is listed when there is something in it, and can be entered anyway. To whoever has it open it is gone, so
            // what is entered from now on has another number.
            Node::Children(_) => {
                self.inodes.lock().unlinked(&node);
            }
            Node::Conversation(id) => {
                self.hide(*id)?;
                self.inodes.lock().unlinked(&node);
            }
            Node::Own(id, _) => {
                let _renaming = self.renaming(&[&node]);
                if self.item(*id)?.pending {
                    let path = self.path(&node)?;
                    self.backing.remove_dir(&path).context("remove directory", &path)?;
                } else {
                    self.hide_node(&node)?;
                }
                self.inodes.lock().unlinked(&node);
            }
            node => {
                let path = self.path(node)?;
                self.backing.remove_dir(&path).context("remove directory", &path)?;
                self.inodes.lock().unlinked(node);
            }
        }
        self.touch(&dir);
        Ok(())
    }

    /// Takes hold of what has a name that the kernel has seen.
    fn hold_known(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<Named<1, 1>> {
        self.hold_named(caller, [parent], |[dir]| {
            Ok([self.find_known(caller, dir, name)?.0.ok_or(FsError::NotFound)?])
        })
    }

    /// Hides a conversation in this worktree. One that never arrived is gone. The caller holds it.
    fn hide(&self, id: ConversationId) -> Result<()> {
        self.fresh.lock().remove(&id);
        if self.item(id)?.pending {
            let dir = self.arrival_dir(id);
            self.backing.remove_dir(&dir).context("remove directory", &dir)?;
            let note = self.note_path(id);
            self.backing.remove(&note).context("remove", &note)?;
            let stale = self.catalog.write().apply(id, None);
            self.tell(stale);
            // The store may have a conversation of that id.
            self.look_at_names()?;
            return Ok(());
        }
        for file in ManagedFile::ALL {
            self.retire_draft(id, file)?;
        }
        self.note(&[Change::Hide(id)])?;
        for file in ManagedFile::ALL {
            self.drop_draft(id, file)?;
        }
        let stale = self.catalog.write().give(id, None);
        self.tell(stale);
        Ok(())
    }

    /// The store keeps what lost its name here, so whoever goes on changing that through a descriptor changes a copy.
    pub(super) fn part_from_store(&self, node: &Node) -> Result<()> {
        let Node::Orphan(number) = node else { return Ok(()) };
        let orphan = self.orphan(*number);
        let stat = match self.backing.stat(&orphan) {
            Ok(stat) if stat.kind == Kind::File && stat.links > 1 => stat,
            _ => return Ok(()),
        };
        let bytes = self.backing.read_all(&orphan).context("read", &orphan)?;
        self.write_orphan(&orphan, &bytes)?;
        Ok(self.backing.set_mode(&orphan, stat.mode).context("set the mode of", &orphan)?)
    }

    /// Whoever still has a file open goes on reading what it was.
    pub(super) fn save_orphan(&self, node: &Node) -> Result<()> {
        let known = self.inodes.lock().known(node);
        let Some(number) = known else { return Ok(()) };
        let orphan = self.orphan(number);
        let draft = match node {
            Node::Managed(id, file) => self.draft(*id, *file).map(|draft| draft.bytes),
            _ => None,
        };
        let bytes = match draft {
            Some(bytes) => Some(bytes.to_vec()),
            None => {
                let path = self.path(node)?;
                let linked = match self.backing.link(&path, &orphan) {
                    Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                        self.backing.remove(&orphan).context("remove", &orphan)?;
                        self.backing.link(&path, &orphan)
                    }
                    linked => linked,
                };
                match linked {
                    Ok(()) => None,
                    // On another filesystem, or a link that cannot be linked: the bytes do as well.
                    Err(_) => self.backing.read_all(&path).ok(),
                }
            }
        };
        match bytes {
            Some(bytes) => self.write_orphan(&orphan, &bytes),
            None => Ok(()),
        }
    }

    fn write_orphan(&self, orphan: &Path, bytes: &[u8]) -> Result<()> {
        Ok(self.backing.replace(orphan, &orphan.with_extension("new"), bytes).context("write", orphan)?)
    }
}

/// A name whose file is gone.
pub(super) fn absent(error: FsError) -> FsError {
    if error.is_absent() { FsError::NotFound } else { error }
}
