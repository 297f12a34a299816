//! Files: made, read, written. Managed ones go through drafts; the others are what is behind them.

use std::ffi::OsStr;
use std::io;
use std::mem::discriminant;
use std::path::{Path, PathBuf};
use std::time::Instant;

use jp_store::disk::Kind;
use jp_store::error::Context as _;
use jp_store::journal::Change;
use jp_store::layout::CONVERSATIONS;
use jp_store::modes::PERMISSIONS;
use jp_store::path_text::to_text;
use jp_store::reconcile::ManagedFile;
use jp_store::scratch::is_scratch;

use super::named::Room;
use super::save::{Hold, Origin};
use super::{Attr, Found, Lookup, SetAttr, Vfs, check_name};
use crate::caller::Caller;
use crate::catalog::{Meaning, Stale};
use crate::error::{FsError, Result};
use crate::node::{Dir, Home, Node};

/// Where bytes go in a file.
#[derive(Clone, Copy, Debug)]
enum Spot {
    At(u64),
    /// At the end, which the caller takes to be here.
    End {
        expected: u64,
    },
    /// The same place as in the memory of the kernel.
    Back(u64),
}

/// How the file behind a node is changed.
enum Way {
    /// By its draft.
    Draft(Room),
    /// Where it is.
    File(Hold),
}

/// How a program opens a file that it makes if there is none.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Who the program is.
    pub uid: u32,
    /// Whether it reads.
    pub read: bool,
    /// Whether it writes.
    pub write: bool,
    /// Whether what is there is to be emptied.
    pub truncate: bool,
}

impl Opening {
    /// Whether this is a file that its owner opens as its mode allows. Of a file that the kernel takes for new it checks nothing.
    fn suits(self, attr: &Attr) -> bool {
        let wanted = if self.read { 0o400 } else { 0 } | if self.write || self.truncate { 0o200 } else { 0 };
        attr.kind == Kind::File && attr.uid == self.uid && attr.mode & wanted == wanted
    }
}

/// A name that something is to be made under, in a directory. As long as it is held, nobody else makes anything there through
/// a mount.
pub(super) struct Wanted {
    pub(super) dir: Node,
    pub(super) node: Node,
    /// The caller does not see what is there, if anything is: it is hidden here, or the caller has just made the directory.
    pub(super) unseen: bool,
    pub(super) hold: Hold,
}

impl Vfs {
    /// A part of a file; less than asked for only at its end.
    pub fn read(&self, number: u64, offset: u64, size: u32) -> Result<Vec<u8>> {
        match self.while_named(number, |node| self.read_node(node, offset, size)) {
            Err(error) if error.is_absent() => Err(FsError::Stale),
            read => read,
        }
    }

    fn read_node(&self, node: &Node, offset: u64, size: u32) -> Result<Vec<u8>> {
        if let Node::Managed(id, file) = node {
            let draft = self.draft(*id, *file).map(|draft| draft.bytes);
            if let Some(bytes) = draft {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let end = start.saturating_add(size as usize).min(bytes.len());
                return Ok(bytes[start..end].to_vec());
            }
        }
        let read = || -> Result<Vec<u8>> {
            let path = self.path(node)?;
            Ok(self.backing.read(&path, offset, size as usize).context("read", &path)?)
        };
        let begun = Instant::now();
        let read = self.or_look_again(node, read);
        if let Node::Managed(id, _) = node {
            self.ahead.read(*id, begun.elapsed(), |id| self.catalog.read().next(id));
        }
        read
    }

    /// Fetches what readers are about to come to, until the end.
    pub fn fetch_ahead(&self) {
        while let Some(id) = self.ahead.take() {
            let Ok(dir) = self.dir_of(id) else { continue };
            for file in ManagedFile::ALL {
                let path = dir.join(file.name());
                // Whoever reads it is told what is wrong with it.
                if let Err(error) = self.backing.fetch(&path) {
                    tracing::trace!(path = %path.display(), %error, "not fetched ahead");
                }
            }
        }
    }

    /// Nothing is fetched ahead any more.
    pub fn end_ahead(&self) {
        self.ahead.end();
    }

    /// Where a link points.
    pub fn read_link(&self, number: u64) -> Result<PathBuf> {
        self.while_named(number, |node| {
            if let Node::Alias(at, name) = node {
                return self.read_alias(*at, name);
            }
            let path = self.path(node)?;
            Ok(self.backing.read_link(&path).context("read link", &path)?)
        })
    }

    pub(super) fn read_alias(&self, at: Dir, name: &OsStr) -> Result<PathBuf> {
        let catalog = self.catalog.read();
        match catalog.meaning(at, name) {
            Meaning::Alias(id) => catalog.link_to(id).map(PathBuf::from).ok_or(FsError::Stale),
            // The name has become the canonical one meanwhile.
            Meaning::Child(_) | Meaning::Free(_) | Meaning::Archive | Meaning::Other => Err(FsError::Stale),
        }
    }

    /// Opens a file, and makes it if there is none.
    pub fn open_or_create(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        opening: Opening,
    ) -> Result<Attr> {
        match self.create(caller, parent, name, mode) {
            Err(error) if error.errno() == libc::EEXIST => self.open_found(caller, parent, name, opening),
            made => made,
        }
    }

    /// Opens a file that the kernel takes for absent. If it is anything but the caller's own file, the kernel is told that what it
    /// knows is stale: it looks once more then, checks permissions and follows links.
    fn open_found(&self, caller: Caller, parent: u64, name: &OsStr, opening: Opening) -> Result<Attr> {
        let Lookup::Found(Found { attr, .. }) = self.lookup(caller, parent, name)? else { return Err(FsError::Stale) };
        let opened = match opening.truncate {
            _ if !opening.suits(&attr) => Err(FsError::Stale),
            true => {
                let empty = SetAttr { size: Some(0), ..SetAttr::default() };
                self.set_attr(caller, attr.number, empty).and_then(|_| self.attr(attr.number))
            }
            false => Ok(attr),
        };
        if opened.is_err() {
            self.forget(attr.number, 1);
        }
        opened
    }

    /// Makes a file. The mode has the caller's umask in it already.
    pub fn create(&self, caller: Caller, parent: u64, name: &OsStr, mode: u32) -> Result<Attr> {
        self.writable()?;
        check_name(name)?;
        let Wanted { dir, node, unseen, hold } = &self.hold_name(caller, parent, name)?;
        match node {
            Node::Managed(id, file) => self.create_managed(caller, hold, *id, *file, mode, *unseen)?,
            node => {
                self.soil(node);
                if *unseen {
                    self.make_room(caller, node, Kind::File)?;
                }
                let create = || {
                    let path = self.path(node)?;
                    let made = match self.backing.create(&path, mode & PERMISSIONS) {
                        Err(error) if error.kind() == io::ErrorKind::NotFound && matches!(node, Node::Scratch(..)) => {
                            self.make_way(node)?;
                            self.backing.create(&path, mode & PERMISSIONS)
                        }
                        made => made,
                    };
                    match made {
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok((path, false)),
                        made => made.context("make", &path).map(|()| (path, true)).map_err(FsError::from),
                    }
                };
                let path = self.noted(self.to_show(node), || match self.or_look_again(node, create)? {
                    (path, true) => Ok(path),
                    (_, false) if !unseen => Err(FsError::Exists),
                    // Perhaps still open somewhere: another file takes its place.
                    (path, false) => {
                        let beside = self.beside(node);
                        self.backing.replace(&beside, &beside.with_extension("new"), b"").context("make", &beside)?;
                        self.backing.set_mode(&beside, mode & PERMISSIONS).context("set the mode of", &beside)?;
                        self.backing.rename(&beside, &path).context("rename", &beside)?;
                        Ok(path)
                    }
                })?;
                self.note_own(&path);
            }
        }
        self.made(dir, name);
        self.enter(node)
    }

    /// Makes a symbolic link.
    pub fn make_link(&self, caller: Caller, parent: u64, name: &OsStr, target: &Path) -> Result<Attr> {
        self.writable()?;
        check_name(name)?;
        let Wanted { dir, node, unseen, hold: _hold } = &self.hold_name(caller, parent, name)?;
        if matches!(node, Node::Managed(..) | Node::Under(_)) {
            let is_there = self.is_there(caller, dir, name)?;
            return Err(if is_there { FsError::Exists } else { FsError::Refused("no links here") });
        }
        self.make_way(node)?;
        if *unseen {
            self.make_room(caller, node, Kind::Link)?;
        }
        let make = || {
            let path = self.path(node)?;
            match self.backing.symlink(target, &path) {
                // Another link takes its place.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && *unseen => {
                    let beside = self.beside(node);
                    // Somebody may have been stopped here.
                    let _ = self.backing.remove(&beside);
                    self.backing.symlink(target, &beside).context("link", &beside)?;
                    self.backing.rename(&beside, &path).context("rename", &beside)?;
                }
                made => made.context("link", &path)?,
            }
            Ok(path)
        };
        let path = self.noted(self.to_show(node), || self.or_look_again(node, make))?;
        self.note_own(&path);
        self.made(dir, name);
        self.enter(node)
    }

    /// Writes a part of a file. Returns how many bytes were written, as `write(2)` does: fewer than all where a file of the
    /// user's own has no room for more.
    pub fn write(&self, caller: Caller, number: u64, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_to(caller, number, Spot::At(offset), data)
    }

    /// Writes at the end of a file, wherever that is by now. `expected` is where the caller takes it to be. Returns how many
    /// bytes were written, as [`Vfs::write`] does.
    pub fn append(&self, caller: Caller, number: u64, expected: u64, data: &[u8]) -> Result<usize> {
        self.write_to(caller, number, Spot::End { expected }, data)
    }

    /// Writes a part of a file that a program changed in memory (`mmap`), some time ago. No caller can be told that it is
    /// refused, so a lock that somebody holds does not refuse it: a managed file gets a draft that waits, and any other file
    /// is written.
    pub fn write_back(&self, number: u64, offset: u64, data: &[u8]) -> Result<usize> {
        let written = self.write_to(Caller { pid: 0 }, number, Spot::Back(offset), data);
        if written.is_err()
            && let Ok(node) = self.node(number)
        {
            // The kernel has these bytes, and must not show them any longer.
            self.tell(vec![Stale::Content(node)]);
        }
        written
    }

    fn write_to(&self, caller: Caller, number: u64, spot: Spot, data: &[u8]) -> Result<usize> {
        self.writable()?;
        let origin = if matches!(spot, Spot::Back(_)) { Origin::Memory } else { Origin::Caller };
        let (node, way) = self.way_to(caller, number, origin)?;
        let _hold = match way {
            // A draft is kept whole or not at all.
            Way::Draft(room) => return self.write_draft(caller, &room, &node, spot, data).map(|()| data.len()),
            Way::File(hold) => hold,
        };
        self.part_from_store(&node)?;
        self.soil(&node);
        // A holder that did not keep us out may have renamed the directory.
        let (path, count) = self.or_look_again(&node, || {
            let path = self.path(&node)?;
            let count = match spot {
                Spot::At(offset) => self.backing.write(&path, offset, data).context("write", &path)?,
                // The kernel takes a page for written if it is told of no error.
                Spot::Back(offset) => self.write_all(&path, offset, data).context("write", &path)?,
                Spot::End { expected } => {
                    let (start, count) = self.backing.append(&path, data).context("append to", &path)?;
                    self.tell_if_elsewhere(&node, expected, start);
                    count
                }
            };
            Ok((path, count))
        })?;
        self.note_own(&path);
        self.arrive_if_managed(caller, &node).map(|()| count)
    }

    /// Writes all of it, or says why not.
    pub(super) fn write_all(&self, path: &Path, offset: u64, data: &[u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < data.len() {
            match self.backing.write(path, offset + done as u64, &data[done..])? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => done += count,
            }
        }
        Ok(done)
    }

    fn write_draft(&self, caller: Caller, room: &Room, node: &Node, spot: Spot, data: &[u8]) -> Result<()> {
        let now = self.now();
        match spot {
            Spot::At(offset) => self.change(caller, room, node, Origin::Caller, |draft| draft.write(offset, data, now)),
            Spot::Back(offset) => {
                self.change(caller, room, node, Origin::Memory, |draft| draft.write(offset, data, now))
            }
            Spot::End { expected } => {
                let mut end = expected;
                let changed = self.change(caller, room, node, Origin::Caller, |draft| {
                    end = draft.bytes.len() as u64;
                    draft.append(data, now)
                });
                self.tell_if_elsewhere(node, expected, end);
                changed
            }
        }
    }

    /// The kernel keeps what it wrote at the end of a file as it knew it. If the end is elsewhere, it drops that.
    fn tell_if_elsewhere(&self, node: &Node, expected: u64, end: u64) {
        if expected != end {
            self.tell(vec![Stale::Content(node.clone())]);
        }
    }

    /// Brings a file to disk. A draft is tried once more.
    pub fn sync(&self, caller: Caller, number: u64) -> Result<()> {
        while !self.sync_as(caller, number, &self.node(number)?)? {}
        Ok(())
    }

    /// Brings a file to disk if it is still of this kind. `false` if it has got a name that makes it another.
    fn sync_as(&self, caller: Caller, number: u64, node: &Node) -> Result<bool> {
        let is_same_kind = |now: &Node| discriminant(now) == discriminant(node);
        match node {
            Node::Managed(id, file) if !self.item(*id)?.pending => {
                let synced = self.sync_managed(caller, *id, *file);
                if self.node(number)? == *node { synced.map(|()| true) } else { Ok(false) }
            }
            Node::Scratch(..) => {
                // Its name is nobody's business but the program's that made it.
                let (node, _room) = self.in_room(number)?;
                if !is_same_kind(&node) {
                    return Ok(false);
                }
                let path = self.path(&node)?;
                self.backing.sync(&path).context("sync", &path)?;
                let mut clean = self.clean.lock();
                if clean.len() > 1024 {
                    clean.clear();
                }
                clean.insert(node);
                Ok(true)
            }
            Node::Managed(..) | Node::Own(..) | Node::Under(_) | Node::Conversation(_) => {
                let sync = |node: &Node| {
                    let path = self.path(node)?;
                    self.backing.sync(&path).context("sync", &path)?;
                    if let Some(dir) = path.parent().filter(|_| !matches!(node, Node::Conversation(_))) {
                        self.backing.sync(dir).context("sync", dir)?;
                    }
                    Ok(true)
                };
                self.while_named(number, |now| match is_same_kind(now) {
                    true => self.or_look_again(now, || sync(now)),
                    false => Ok(false),
                })
            }
            // What hangs where is in files of the store.
            Node::Children(_) => {
                self.writer.catch_up()?;
                Ok(true)
            }
            Node::Alias(..) | Node::Orphan(_) => Ok(true),
        }
    }

    pub(super) fn truncate(&self, caller: Caller, number: u64, size: u64) -> Result<()> {
        let (node, way) = self.way_to(caller, number, Origin::Caller)?;
        if matches!(node, Node::Children(_) | Node::Conversation(_)) {
            return Err(FsError::IsDir);
        }
        let _hold = match way {
            Way::Draft(room) => {
                if size == 0 && self.begin_anew(&room, &node)? {
                    return Ok(());
                }
                let now = self.now();
                return self.change(caller, &room, &node, Origin::Caller, |draft| draft.truncate(size, now));
            }
            Way::File(hold) => hold,
        };
        self.part_from_store(&node)?;
        self.soil(&node);
        let path = self.or_look_again(&node, || {
            let path = self.path(&node)?;
            self.backing.truncate(&path, size).context("truncate", &path)?;
            Ok(path)
        })?;
        self.note_own(&path);
        self.arrive_if_managed(caller, &node)
    }

    /// What a number stands for, and what it takes to change that.
    fn way_to(&self, caller: Caller, number: u64, origin: Origin) -> Result<(Node, Way)> {
        let (node, room) = self.in_room(number)?;
        let way = match room {
            Some(room) if self.is_stored_managed(&node)? => Way::Draft(room),
            room => Way::File(self.hold_in(caller, &node, room, origin)?),
        };
        Ok((node, way))
    }

    /// Takes hold of a name that something is to be made under. Whether it is free the disk tells, when that is made.
    pub(super) fn hold_name(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<Wanted> {
        let find = |[dir]: &[Node; 1]| match self.find(caller, dir, name)?.0 {
            Some(Node::Children(_) | Node::Conversation(_) | Node::Alias(..)) => Err(FsError::Exists),
            Some(_) | None => Ok([self.place_for(dir, name)?]),
        };
        match self.hold_named(caller, [parent], find) {
            Ok(([dir], [node], hold)) => {
                let unseen = self.find(caller, &dir, name)?.0.is_none();
                Ok(Wanted { dir, node, unseen, hold })
            }
            Err(FsError::Busy) if self.is_there(caller, &self.node(parent)?, name)? => Err(FsError::Exists),
            Err(error) => Err(error),
        }
    }

    /// Whether the caller sees something under a name.
    pub(super) fn is_there(&self, caller: Caller, dir: &Node, name: &OsStr) -> Result<bool> {
        let (found, _) = self.find(caller, dir, name)?;
        match found.map(|node| self.attr_of(&node)) {
            None => Ok(false),
            Some(Ok(_)) => Ok(true),
            Some(Err(error)) if error.is_absent() => Ok(false),
            Some(Err(error)) => Err(error),
        }
    }

    /// The node that a new file, link or directory of the user's own under this name would be.
    pub(super) fn place_for(&self, dir: &Node, name: &OsStr) -> Result<Node> {
        match dir {
            Node::Children(at) if is_scratch(name) => Ok(Node::Scratch(Home::Children(*at), name.into())),
            Node::Children(Dir::Root) => match self.catalog.read().meaning(Dir::Root, name) {
                Meaning::Other => Ok(Node::Under(name.to_owned())),
                Meaning::Child(_) | Meaning::Alias(_) | Meaning::Free(_) | Meaning::Archive => {
                    Err(FsError::Refused("the name is a conversation's, and those are directories"))
                }
            },
            Node::Children(_) => Err(FsError::Refused("only conversations lie here")),
            Node::Conversation(_) if name == CONVERSATIONS => Err(FsError::Exists),
            Node::Conversation(id) => {
                self.shown(*id)?;
                self.place_inside(*id, name.into())
            }
            Node::Own(id, inner) => self.place_inside(*id, inner.join(name)),
            Node::Scratch(home, inner) => Ok(Node::Scratch(*home, inner.join(name))),
            Node::Managed(..) | Node::Under(_) | Node::Alias(..) | Node::Orphan(_) => Err(FsError::NotDir),
        }
    }

    /// What a file has now may not be on disk. Asked of whoever changes one, from before it does; the room is held.
    pub(super) fn soil(&self, node: &Node) {
        self.clean.lock().remove(node);
    }

    /// Scratch lies in a tree of its own, whose directories are made when they are needed.
    pub(super) fn make_way(&self, node: &Node) -> Result<()> {
        if let Node::Scratch(..) = node
            && let Some(dir) = self.path(node)?.parent()
        {
            self.backing.make_dirs(dir).context("make directory", dir)?;
        }
        Ok(())
    }

    /// Where something is prepared that is to have the name of a node.
    pub(super) fn beside(&self, node: &Node) -> PathBuf {
        self.state.join("orphans").join(format!("make-{}", self.number(node)))
    }

    /// A file that was hidden here is there again.
    pub(super) fn show_file(&self, node: &Node) -> Result<()> {
        self.noted(self.to_show(node), || Ok(()))
    }

    /// What has to be written down before a file that is hidden here can be there again.
    pub(super) fn to_show(&self, node: &Node) -> Vec<Change> {
        let (id, inner) = match node {
            Node::Own(id, inner) => (*id, to_text(inner).into_owned()),
            Node::Managed(id, file) => (*id, file.name().to_owned()),
            _ => return Vec::new(),
        };
        if self.is_node_hidden(node) { vec![Change::ShowFile(id, inner)] } else { Vec::new() }
    }

    /// A name was made in a directory.
    pub(super) fn made(&self, dir: &Node, name: &OsStr) {
        self.unmask(dir, name);
        self.touch(dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_has_not_checked_is_opened_by_its_owner_alone() {
        let attr = |mode| Attr { kind: Kind::File, mode, uid: 7, ..Attr::dir(1) };
        let opening = |read, write, truncate| Opening { uid: 7, read, write, truncate };
        for (opening, least) in [
            (opening(true, false, false), 0o400),
            (opening(false, true, false), 0o200),
            (opening(true, true, false), 0o600),
            (opening(true, false, true), 0o600),
        ] {
            for mode in [0o000, 0o077, 0o277, 0o400, 0o477, 0o600, 0o777] {
                assert_eq!(opening.suits(&attr(mode)), mode & least == least, "{opening:?} {mode:o}");
            }
            assert!(!Opening { uid: 0, ..opening }.suits(&attr(0o777)));
            for kind in [Kind::Dir, Kind::Link, Kind::Other] {
                assert!(!opening.suits(&Attr { kind, ..attr(0o777) }));
            }
        }
    }
}
