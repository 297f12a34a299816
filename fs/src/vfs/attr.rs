//! What nodes are like, and what of it can be set.

use std::path::PathBuf;

use jp_store::disk::Kind;
use jp_store::error::Context as _;
use jp_store::modes::PERMISSIONS;

use super::look::stale_modes;
use super::{Found, Vfs};
use crate::backing::{Space, Stat};
use crate::caller::Caller;
use crate::error::{FsError, Result};
use crate::node::{Dir, Node};

/// What a node is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Its number.
    pub number: u64,
    /// What it is.
    pub kind: Kind,
    /// Size in bytes.
    pub size: u64,
    /// Last change, in nanoseconds since the epoch.
    pub mtime: i64,
    /// Last reading, in nanoseconds since the epoch.
    pub atime: i64,
    /// Last change of anything, in nanoseconds since the epoch.
    pub ctime: i64,
    /// Permission bits.
    pub mode: u32,
    /// Whose it is.
    pub uid: u32,
    /// Which group's it is.
    pub gid: u32,
    /// How many names it has.
    pub links: u32,
}

impl Attr {
    /// A directory of which nothing is told but its number.
    pub fn dir(number: u64) -> Self {
        Self { number, kind: Kind::Dir, size: 0, mtime: 0, atime: 0, ctime: 0, mode: 0o700, uid: 0, gid: 0, links: 1 }
    }
}

/// What is to be set.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// The size.
    pub size: Option<u64>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Last reading, in nanoseconds since the epoch.
    pub atime: Option<i64>,
    /// Last change, in nanoseconds since the epoch.
    pub mtime: Option<i64>,
}

/// The mode of the mount's root and its archive, which have none of their own. The store's are closed to others; the kernel
/// keeps others out of the mount unless it was made for them (`--allow-other`), and then the modes of conversations decide.
const TOP_MODE: u32 = 0o755;

impl Vfs {
    /// What a node is like.
    pub fn attr(&self, number: u64) -> Result<Attr> {
        // The number is known, so whatever is not there any more is gone, not misspelt.
        match self.while_named(number, |node| self.attr_of(node)) {
            Ok(attr) => Ok(Attr { number, ..attr }),
            Err(error) if error.is_absent() => Err(FsError::Stale),
            Err(error) => Err(error),
        }
    }

    /// Sets what is to be set. A new size is a change of the content.
    ///
    /// The kernel takes over the time in the answer and keeps the pages it has cached. If those may be older than the file, the
    /// answer has a time that is 1 ns off and is not to be remembered: the next one drops the pages.
    pub fn set_attr(&self, caller: Caller, number: u64, set: SetAttr) -> Result<Found> {
        self.writable()?;
        let before = self.attr(number)?;
        if set.uid.is_some_and(|uid| uid != before.uid) || set.gid.is_some_and(|gid| gid != before.gid) {
            return Err(FsError::Refused("files belong to whom they belong"));
        }
        if let Some(size) = set.size {
            self.truncate(caller, number, size)?;
        }
        if set.mode.is_some() || set.atime.is_some() || set.mtime.is_some() {
            self.set_rest(number, set)?;
        }
        let attr = self.attr(number)?;
        let changed_beside = attr.kind == Kind::File && self.shifts.lock().contains_key(&self.node(number)?);
        if changed_beside {
            return Ok(Found { attr: Attr { mtime: attr.mtime ^ 1, ..attr }, keep: false });
        }
        Ok(Found { attr, keep: true })
    }

    /// How full the filesystem is that holds the store.
    pub fn space(&self) -> Result<Space> {
        let dir = &self.writer.store().layout().store.dir;
        Ok(self.backing.space(dir).context("look at", dir)?)
    }

    /// What a node is like; the number is filled in by whoever knows it.
    pub(super) fn attr_of(&self, node: &Node) -> Result<Attr> {
        self.or_look_again(node, || self.attr_now(node))
    }

    /// Does something with a conversation's files, and once more if its directory turns out to have been renamed beside us.
    pub(super) fn or_look_again<T>(&self, node: &Node, work: impl Fn() -> Result<T>) -> Result<T> {
        let before = node.conversation().map(|id| (id, self.dir_of(id)));
        let result = work();
        match (&result, before) {
            (Err(error), Some((id, Ok(dir)))) if error.errno() == libc::ENOENT => {
                // Whoever looks for what is not there, as git looks for a `.gitignore`, costs nobody what is known.
                if self.path(node).is_ok_and(|path| self.backing.remembers_nothing(&path)) {
                    return result;
                }
                self.backing.doubt(&dir);
                let stays = self.backing.stat(&dir).is_ok();
                if self.dir_of(id)? != dir {
                    // The renamed directory is known by now.
                    return work();
                }
                if stays {
                    return result;
                }
                self.look_at_names()?;
                work()
            }
            _ => result,
        }
    }

    fn attr_now(&self, node: &Node) -> Result<Attr> {
        match node {
            Node::Children(at) => self.attr_of_children(*at),
            Node::Conversation(id) => {
                let dir = self.dir_of(*id)?;
                let attr = self.attr_at(&dir)?;
                let mtime = self.touched.lock().get(node).map_or(attr.mtime, |&touched| touched.max(attr.mtime));
                Ok(Attr { mtime, ctime: mtime.max(attr.ctime), ..attr })
            }
            Node::Managed(id, file) => {
                let drafts = self.drafts.lock();
                let draft = drafts.get(&(*id, *file)).map(|draft| (draft.bytes.len(), draft.changed));
                drop(drafts);
                let path = self.path(node)?;
                let Some((size, changed)) = draft else {
                    let attr = self.attr_at(&path)?;
                    if attr.kind != Kind::File {
                        // A link would lead its reader, and who saves to it, out of the store.
                        return Err(FsError::NotFound);
                    }
                    return Ok(Attr { mtime: attr.mtime.saturating_add(self.shift_of(node)), ..attr });
                };
                let behind = self.attr_at(&path).or_else(|error| match error.is_absent() {
                    // The store has none yet: it will look like its neighbours.
                    true => self.attr_of(&Node::Conversation(*id)).map(|dir| Attr { mode: dir.mode & 0o666, ..dir }),
                    false => Err(error),
                })?;
                Ok(Attr {
                    kind: Kind::File,
                    size: size as u64,
                    mtime: changed,
                    ctime: changed.max(behind.ctime),
                    ..behind
                })
            }
            Node::Alias(at, name) => {
                let target = self.read_alias(*at, name)?;
                let dir = self.attr_of_children(*at)?;
                Ok(Attr { kind: Kind::Link, size: target.as_os_str().len() as u64, mode: 0o777, ..dir })
            }
            // A directory that was removed while a program had it open has nothing behind it.
            Node::Orphan(number) if self.inodes.lock().was_dir(*number) => {
                Ok(Attr { links: 0, ..self.attr_at(&self.state)? })
            }
            Node::Own(..) | Node::Scratch(..) | Node::Under(_) | Node::Orphan(_) => {
                let attr = self.attr_at(&self.path(node)?)?;
                let touched = self.touched.lock().get(node).copied().filter(|_| attr.kind == Kind::Dir);
                let mtime = touched.map_or(attr.mtime, |touched| touched.max(attr.mtime));
                let mtime = if attr.kind == Kind::File { mtime.saturating_add(self.shift_of(node)) } else { mtime };
                let links = if matches!(node, Node::Orphan(_)) { 0 } else { attr.links };
                Ok(Attr { mtime, ctime: mtime.max(attr.ctime), links, ..attr })
            }
        }
    }

    pub(super) fn attr_at(&self, path: &std::path::Path) -> Result<Attr> {
        let Stat { kind, size, mtime, atime, ctime, mode, uid, gid, .. } =
            self.backing.stat(path).context("look at", path)?;
        // A program that saw other bits would set them again.
        let mode = mode & PERMISSIONS;
        // One for directories too: that is how filesystems say that they do not count.
        Ok(Attr { number: 0, kind, size, mtime, atime, ctime, mode, uid, gid, links: 1 })
    }

    /// A directory of conversations is like the store's, and one of children like the conversation's.
    fn attr_of_children(&self, at: Dir) -> Result<Attr> {
        let node = Node::Children(at);
        let dir: PathBuf = match at {
            Dir::Root | Dir::Archive => self.writer.store().layout().store.conversations(),
            Dir::Of(id) => self.dir_of(id)?,
        };
        let attr = self.attr_at(&dir)?;
        let mode = match at {
            Dir::Root | Dir::Archive => TOP_MODE,
            Dir::Of(_) => attr.mode,
        };
        // Nothing tells when it last changed before the mount began; that it may have is told by the beginning.
        let mtime = self.touched.lock().get(&node).copied().unwrap_or(self.began);
        Ok(Attr { mtime, atime: mtime, ctime: mtime, size: 4096, mode, ..attr })
    }

    fn set_rest(&self, number: u64, set: SetAttr) -> Result<()> {
        // Whoever saves the file, or brings its draft to disk, writes down what it was like when they began. Whoever renames it
        // puts another file in its place.
        let (node, _room) = &self.in_room(number)?;
        if let Node::Managed(id, file) = node
            && let Some(mtime) = set.mtime
            && let Some(draft) = self.drafts.lock().get_mut(&(*id, *file))
        {
            draft.changed = mtime;
            draft.kept = false;
        }
        let path = match node {
            Node::Children(dir) => return self.set_rest_of_children(*dir, set),
            Node::Alias(..) => return Err(FsError::Refused("a link to the canonical name")),
            node => self.path(node)?,
        };
        if set.mtime.is_some() {
            // What somebody says it is, it is.
            if let Some(shift) = self.shifts.lock().get_mut(node) {
                *shift = 0;
            }
        }
        self.part_from_store(node)?;
        let has_draft = matches!(node, Node::Managed(id, file) if self.drafts.lock().contains_key(&(*id, *file)));
        let gone = |error: &std::io::Error| has_draft && error.kind() == std::io::ErrorKind::NotFound;
        if let Some(mode) = set.mode {
            if mode & !PERMISSIONS & 0o7777 != 0 {
                return Err(FsError::Refused("setuid, setgid and sticky bits cannot be set"));
            }
            match self.backing.set_mode(&path, mode & PERMISSIONS) {
                Err(error) if gone(&error) => {}
                result => result.context("set the mode of", &path)?,
            }
        }
        if set.atime.is_some() || set.mtime.is_some() {
            if matches!(node, Node::Conversation(_) | Node::Own(..)) {
                self.touched.lock().remove(node);
            }
            match self.backing.set_times(&path, set.atime, set.mtime) {
                Err(error) if gone(&error) => {}
                result => result.context("set the times of", &path)?,
            }
        }
        self.note_own(&path);
        if set.mode.is_some() && matches!(node, Node::Conversation(_)) {
            self.tell(stale_modes(node));
        }
        Ok(())
    }

    /// A directory of conversations has no time of its own but while the mount lasts. One of children has the mode of its
    /// conversation's directory, and the two at the top have one that cannot be changed. The caller has the room.
    fn set_rest_of_children(&self, at: Dir, set: SetAttr) -> Result<()> {
        if let Some(mode) = set.mode
            && mode & 0o7777 != self.attr_of_children(at)?.mode
        {
            let dir = match at {
                Dir::Of(id) if mode & !PERMISSIONS & 0o7777 == 0 => self.dir_of(id)?,
                _ => return Err(FsError::Refused("the directory has no mode of its own")),
            };
            self.backing.set_mode(&dir, mode & PERMISSIONS).context("set the mode of", &dir)?;
            self.tell(at.parent().map(Node::Conversation).iter().flat_map(stale_modes).collect());
        }
        if let Some(mtime) = set.mtime {
            self.touched.lock().insert(Node::Children(at), mtime);
        }
        Ok(())
    }
}
