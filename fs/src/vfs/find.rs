//! Names: what a name in a directory stands for.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use jp_store::ConversationId;
use jp_store::disk::Kind;
use jp_store::layout::CONVERSATIONS;
use jp_store::path_text::to_text;
use jp_store::scratch::is_scratch;

use super::{Attr, Vfs, check_name, managed_file};
use crate::caller::Caller;
use crate::catalog::Meaning;
use crate::error::{FsError, Result};
use crate::node::{Dir, Home, Node};

/// The user's next message, which the store has and no worktree shows.
pub(super) const NOT_SHOWN: &str = "QUERY_MESSAGE.md";

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub enum Lookup {
    /// This.
    Found(Found),
    /// Nothing.
    Absent {
        /// Whether that may be remembered until it is told otherwise.
        keep: bool,
    },
}

/// A node that was found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// What it is like.
    pub attr: Attr,
    /// Whether the name may be remembered until it is told otherwise.
    pub keep: bool,
}

impl Vfs {
    /// What a name in a directory stands for. The kernel is taken to know what was found from now on.
    pub fn lookup(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<Lookup> {
        check_name(name)?;
        let find = |dir: &Node| {
            let (node, keep) = self.find(caller, dir, name)?;
            let Some(node) = node else { return Ok((None, keep)) };
            match self.attr_of(&node) {
                Ok(attr) => Ok((Some((node, Some(attr))), keep)),
                Err(error) if error.is_absent() => {
                    // It may come back, and be taken for what we left, before this is told.
                    let keep = keep && !self.is_taken_away(&node);
                    Ok((Some((node, None)), keep))
                }
                Err(error) => Err(error),
            }
        };
        self.while_named_then(parent, find, |inodes, (found, keep)| match found {
            Some((node, Some(attr))) => {
                let attr = Attr { number: inodes.tell(&node, attr.kind), ..attr };
                Lookup::Found(Found { attr, keep })
            }
            Some((node, None)) => {
                inodes.tell_absent(&node);
                Lookup::Absent { keep }
            }
            None => Lookup::Absent { keep },
        })
    }

    /// What a node is like, told to the kernel as something it can name from now on.
    pub fn enter(&self, node: &Node) -> Result<Attr> {
        Ok(self.tell_number(node, self.attr_of(node)?))
    }

    /// The kernel is told the number of a node.
    pub(super) fn tell_number(&self, node: &Node, attr: Attr) -> Attr {
        Attr { number: self.inodes.lock().tell(node, attr.kind), ..attr }
    }

    /// The node a name stands for, whether or not there is a file behind it, and whether the kernel may remember the
    /// answer.
    pub(super) fn find(&self, caller: Caller, dir: &Node, name: &OsStr) -> Result<(Option<Node>, bool)> {
        let masked = match dir {
            Node::Conversation(id) => self.is_masked(caller, *id, Path::new(name)),
            Node::Own(id, inner) => self.is_masked(caller, *id, &inner.join(name)),
            _ => false,
        };
        if masked {
            return Ok((None, false));
        }
        self.find_known(caller, dir, name)
    }

    /// The same for a name that the kernel has seen: whoever made the directory may have learnt of it from before.
    pub(super) fn find_known(&self, caller: Caller, dir: &Node, name: &OsStr) -> Result<(Option<Node>, bool)> {
        match dir {
            Node::Children(at) => Ok(self.find_child(caller, *at, name)),
            Node::Conversation(id) => {
                self.check_shown(*id)?;
                if name == CONVERSATIONS {
                    return Ok((Some(Node::Children(Dir::Of(*id))), true));
                }
                Ok((self.inside(*id, PathBuf::from(name)), true))
            }
            Node::Own(id, inner) => Ok((self.inside(*id, inner.join(name)), true)),
            Node::Scratch(home, inner) => Ok((Some(Node::Scratch(*home, inner.join(name))), true)),
            Node::Managed(..) | Node::Under(_) | Node::Alias(..) => Err(FsError::NotDir),
            // The path may lead to another directory by now.
            Node::Orphan(_) => Err(FsError::Stale),
        }
    }

    fn find_child(&self, caller: Caller, at: Dir, name: &OsStr) -> (Option<Node>, bool) {
        self.end_fresh();
        if is_scratch(name) {
            return (Some(Node::Scratch(Home::Children(at), name.into())), true);
        }
        let meaning = self.catalog.read().meaning(at, name);
        match meaning {
            Meaning::Child(id) => (Some(Node::Conversation(id)), true),
            // Links for other names are never remembered: the name may be wanted for the thing itself in a moment.
            Meaning::Alias(_) if caller.claims(name) => (None, false),
            Meaning::Alias(_) => (Some(Node::Alias(at, name.to_owned())), false),
            Meaning::Free(_) => (None, false),
            Meaning::Archive => (Some(Node::Children(Dir::Archive)), true),
            Meaning::Other if at == Dir::Root => {
                let real = self.backing.stat(&self.under.join(name)).is_ok_and(|stat| is_plain(stat.kind));
                (real.then(|| Node::Under(name.to_owned())), true)
            }
            Meaning::Other => (None, true),
        }
    }

    /// The node of a path inside a conversation's directory; `None` when it is hidden here.
    pub(super) fn inside(&self, id: ConversationId, inner: PathBuf) -> Option<Node> {
        if let Some(file) = managed_file(inner.as_os_str()) {
            let hidden = self.is_hidden(id, Path::new(file.name()));
            return (!hidden).then_some(Node::Managed(id, file));
        }
        if inner.iter().any(is_scratch) {
            return Some(Node::Scratch(Home::Conversation(id), inner));
        }
        let hidden = inner == Path::new(NOT_SHOWN) || self.is_hidden(id, &inner);
        (!hidden).then_some(Node::Own(id, inner))
    }

    /// The same, whether or not it is hidden: what a name becomes that is about to be made.
    pub(super) fn place_inside(&self, id: ConversationId, inner: PathBuf) -> Result<Node> {
        if let Some(file) = managed_file(inner.as_os_str()) {
            return Ok(Node::Managed(id, file));
        }
        if inner.iter().any(is_scratch) {
            return Ok(Node::Scratch(Home::Conversation(id), inner));
        }
        if inner == Path::new(NOT_SHOWN) {
            return Err(FsError::Refused("the name is the store's own"));
        }
        Ok(Node::Own(id, inner))
    }

    /// Whether a file of a conversation is hidden in this worktree.
    pub(super) fn is_hidden(&self, id: ConversationId, inner: &Path) -> bool {
        let catalog = self.catalog.read();
        let Some(item) = catalog.get(id).filter(|item| !item.hidden.is_empty()) else { return false };
        item.hidden.contains(&*to_text(inner))
    }

    /// Whether a node is a file that is hidden in this worktree.
    pub(super) fn is_node_hidden(&self, node: &Node) -> bool {
        match node {
            Node::Managed(id, file) => self.is_hidden(*id, Path::new(file.name())),
            Node::Own(id, inner) => self.is_hidden(*id, inner),
            _ => false,
        }
    }

    /// Whether a path of a conversation is not there for the program that has just made the directory.
    pub(super) fn is_masked(&self, caller: Caller, id: ConversationId, inner: &Path) -> bool {
        let fresh = self.fresh.lock();
        let Some(fresh) = fresh.get(&id).filter(|fresh| !fresh.made.contains(inner)) else { return false };
        fresh.maker == caller.process()
    }

    /// Whether a path is of a conversation that a program is bringing back, and that program has not made it yet. It may have
    /// others make it.
    pub(super) fn is_fresh(&self, id: ConversationId, inner: &Path) -> bool {
        self.fresh.lock().get(&id).is_some_and(|fresh| !fresh.new && !fresh.made.contains(inner))
    }

    /// The program that made the directory has made this name in it, or in a directory beneath it.
    pub(super) fn unmask(&self, dir: &Node, name: &OsStr) {
        let (id, inner) = match dir {
            Node::Conversation(id) => (id, PathBuf::from(name)),
            Node::Own(id, inner) => (id, inner.join(name)),
            _ => return,
        };
        if let Some(fresh) = self.fresh.lock().get_mut(id) {
            fresh.made.insert(inner);
        }
    }

    /// Takes back what was given to programs that are gone by now.
    pub fn end_fresh(&self) {
        let done: Vec<_> = {
            let mut fresh = self.fresh.lock();
            if fresh.is_empty() {
                return;
            }
            let gone = |fresh: &super::Fresh| !crate::caller::is_running(fresh.maker);
            let ids = fresh.iter().filter(|(_, fresh)| gone(fresh)).map(|(&id, _)| id).collect::<Vec<_>>();
            ids.iter().for_each(|id| drop(fresh.remove(id)));
            ids
        };
        for id in done {
            let stale = self.catalog.write().give(id, None);
            self.tell(stale);
            self.show_ancestors(id);
        }
    }

    /// What was brought back stays in sight: whatever is above it comes along, unless that is private.
    fn show_ancestors(&self, id: ConversationId) {
        let mut hidden = {
            let catalog = self.catalog.read();
            if catalog.is_visible(id) || catalog.get(id).is_none_or(|item| !item.shown) {
                return;
            }
            catalog.hidden_above(id)
        };
        match self.private_above(hidden.clone()) {
            Ok(private) if private.is_empty() => {}
            // It stays out of sight with it.
            Ok(private) => {
                tracing::warn!(%id, ?private, "not shown: something above it is private");
                hidden.clear();
            }
            Err(error) => {
                tracing::warn!(%id, %error, "not shown");
                hidden.clear();
            }
        }
        for id in hidden {
            if let Err(error) = self.note(&[jp_store::journal::Change::Show(id)]) {
                tracing::warn!(%id, %error, "cannot be shown");
            }
        }
    }
}

/// What of the real files beneath the mount is shown at the top: files and links.
pub(super) fn is_plain(kind: Kind) -> bool {
    matches!(kind, Kind::File | Kind::Link)
}
