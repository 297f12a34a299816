//! Files: made, read, written. Managed ones go through drafts; the others are what is behind them.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use jp_store::ConversationId;
use jp_store::disk::Kind;
use jp_store::error::Context as _;
use jp_store::journal::Change;
use jp_store::layout::CONVERSATIONS;
use jp_store::modes::PERMISSIONS;
use jp_store::path_text::to_text;
use jp_store::reconcile::ManagedFile;
use jp_store::scratch::is_scratch;

use super::save::{Hold, Origin};
use super::{Attr, Vfs, check_name};
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

    /// Makes a file. The mode has the caller's umask in it already.
    pub fn create(&self, caller: Caller, parent: u64, name: &OsStr, mode: u32) -> Result<Attr> {
        self.writable()?;
        check_name(name)?;
        let dir = self.node(parent)?;
        if self.is_there(caller, &dir, name)? {
            return Err(FsError::Exists);
        }
        let node = self.place_for(&dir, name)?;
        match &node {
            Node::Managed(id, file) => self.create_managed(caller, *id, *file, mode)?,
            node => {
                let _hold = self.hold(caller, &[node])?;
                self.soil(node);
                let path = self.path(node)?;
                self.make_room(node, Kind::File)?;
                self.noted(self.to_show(node), || {
                    let made = match self.backing.create(&path, mode & PERMISSIONS) {
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {
                            self.make_way(node)?;
                            self.backing.create(&path, mode & PERMISSIONS)
                        }
                        made => made,
                    };
                    match made {
                        // Hidden here, and perhaps still open somewhere: another file takes its place.
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                            let beside = self.beside(node);
                            self.backing
                                .replace(&beside, &beside.with_extension("new"), b"")
                                .context("make", &beside)?;
                            self.backing.set_mode(&beside, mode & PERMISSIONS).context("set the mode of", &beside)?;
                            Ok(self.backing.rename(&beside, &path).context("rename", &beside)?)
                        }
                        made => Ok(made.context("make", &path)?),
                    }
                })?;
                self.note_own(&path);
            }
        }
        self.made(&dir, name);
        self.enter(&node)
    }

    /// Makes a symbolic link.
    pub fn make_link(&self, caller: Caller, parent: u64, name: &OsStr, target: &Path) -> Result<Attr> {
        self.writable()?;
        check_name(name)?;
        let dir = self.node(parent)?;
        if self.is_there(caller, &dir, name)? {
            return Err(FsError::Exists);
        }
        let node = self.place_for(&dir, name)?;
        if matches!(node, Node::Managed(..) | Node::Under(_)) {
            return Err(FsError::Refused("no links here"));
        }
        let _hold = self.hold(caller, &[&node])?;
        self.make_way(&node)?;
        let path = self.path(&node)?;
        self.make_room(&node, Kind::Link)?;
        self.noted(self.to_show(&node), || match self.backing.symlink(target, &path) {
            // Hidden here: another link takes its place.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let beside = self.beside(&node);
                // Somebody may have been stopped here.
                let _ = self.backing.remove(&beside);
                self.backing.symlink(target, &beside).context("link", &beside)?;
                Ok(self.backing.rename(&beside, &path).context("rename", &beside)?)
            }
            made => Ok(made.context("link", &path)?),
        })?;
        self.note_own(&path);
        self.made(&dir, name);
        self.enter(&node)
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
        loop {
            let node = self.node(number)?;
            let held = match self.hold_plain(caller, &node) {
                Err(FsError::Busy) if matches!(spot, Spot::Back(_)) => Some(self.hold_rooms(&node)),
                held => held?,
            };
            let Some(_hold) = held else {
                // A draft is kept whole or not at all.
                return self.write_draft(caller, &node, spot, data).map(|()| data.len());
            };
            if self.node(number)? != node {
                // It got another name while its room was waited for.
                continue;
            }
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
            return self.arrive_if_managed(caller, &node).map(|()| count);
        }
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

    fn write_draft(&self, caller: Caller, node: &Node, spot: Spot, data: &[u8]) -> Result<()> {
        let now = self.now();
        match spot {
            Spot::At(offset) => self.change(caller, node, Origin::Caller, |draft| draft.write(offset, data, now)),
            Spot::Back(offset) => self.change(caller, node, Origin::Memory, |draft| draft.write(offset, data, now)),
            Spot::End { expected } => {
                let mut end = expected;
                let changed = self.change(caller, node, Origin::Caller, |draft| {
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
        let node = self.node(number)?;
        match &node {
            Node::Managed(id, file) if !self.item(*id)?.pending => self.sync_managed(caller, *id, *file),
            Node::Scratch(..) => {
                // Its name is nobody's business but the program's that made it.
                let room = node.conversation().map(|id| self.room(id).lock_arc());
                if self.node(number)? != node {
                    // It got another name while its room was waited for.
                    drop(room);
                    return self.sync(caller, number);
                }
                let path = self.path(&node)?;
                self.backing.sync(&path).context("sync", &path)?;
                let mut clean = self.clean.lock();
                if clean.len() > 1024 {
                    clean.clear();
                }
                clean.insert(node.clone());
                Ok(())
            }
            Node::Managed(..) | Node::Own(..) | Node::Under(_) => {
                let path = self.path(&node)?;
                self.backing.sync(&path).context("sync", &path)?;
                if let Some(dir) = path.parent() {
                    self.backing.sync(dir).context("sync", dir)?;
                }
                Ok(())
            }
            Node::Conversation(_) => {
                let path = self.path(&node)?;
                Ok(self.backing.sync(&path).context("sync", &path)?)
            }
            // What hangs where is in files of the store.
            Node::Children(_) => Ok(self.writer.catch_up()?),
            Node::Alias(..) | Node::Orphan(_) => Ok(()),
        }
    }

    pub(super) fn truncate(&self, caller: Caller, node: &Node, size: u64) -> Result<()> {
        if matches!(node, Node::Children(_) | Node::Conversation(_)) {
            return Err(FsError::IsDir);
        }
        let Some(_hold) = self.hold_plain(caller, node)? else {
            if size == 0 && self.begin_anew(node)? {
                return Ok(());
            }
            let now = self.now();
            return self.change(caller, node, Origin::Caller, |draft| draft.truncate(size, now));
        };
        self.part_from_store(node)?;
        self.soil(node);
        let path = self.path(node)?;
        self.backing.truncate(&path, size).context("truncate", &path)?;
        self.note_own(&path);
        self.arrive_if_managed(caller, node)
    }

    /// What it takes to change the file behind a node; `None` when there is a draft to change instead. What arrives while
    /// its room is waited for has drafts from then on.
    fn hold_plain(&self, caller: Caller, node: &Node) -> Result<Option<Hold>> {
        if self.is_stored_managed(node)? {
            return Ok(None);
        }
        let hold = self.hold(caller, &[node])?;
        Ok((!self.is_stored_managed(node)?).then_some(hold))
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

    /// What is hidden under a name that something of another kind gets makes room. What it was is kept.
    pub(super) fn make_room(&self, node: &Node, kind: Kind) -> Result<()> {
        let Node::Own(id, inner) = node else { return Ok(()) };
        let path = self.path(node)?;
        match self.backing.stat(&path) {
            Ok(stat) if stat.kind != kind && self.is_hidden(*id, inner) => self.set_aside(*id, &path, stat.kind),
            _ => Ok(()),
        }
    }

    fn set_aside(&self, id: ConversationId, path: &Path, kind: Kind) -> Result<()> {
        let name = path.file_name().unwrap_or_default();
        match kind {
            Kind::Dir => {
                for (name, kind) in self.backing.list(path).context("list", path)? {
                    self.set_aside(id, &path.join(name), kind)?;
                }
                return Ok(self.backing.remove_dir(path).context("remove directory", path)?);
            }
            Kind::File => {
                let bytes = self.backing.read_all(path).context("read", path)?;
                self.writer.keep(id, "hidden-file", name, &bytes)?;
            }
            Kind::Link | Kind::Other => {}
        }
        Ok(self.backing.remove(path).context("remove", path)?)
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
