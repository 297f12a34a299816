//! Renaming. A conversation that moves is reparented, archived or given a new title; a file that is renamed over a managed
//! name is a save.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use jp_store::ConversationId;
use jp_store::beneath::Over;
use jp_store::disk::Kind;
use jp_store::error::Context as _;
use jp_store::journal::Change;
use jp_store::path_text::{to_path, to_text};
use jp_store::reconcile::ManagedFile;
use jp_store::scratch::is_scratch;
use jp_store::writer::Shape;

use super::remove::absent;
use super::save::{Hold, Outcome, Ready};
use super::{Attr, SWAP, Vfs, check_name};
use crate::caller::Caller;
use crate::catalog::{Former, Stale, parse};
use crate::error::{FsError, Result};
use crate::inodes::rebase;
use crate::node::{Dir, Home, Node};

/// What is to happen to what has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rename {
    /// It goes.
    Replace,
    /// There must be nothing.
    NoReplace,
    /// It gets the old name.
    Exchange,
}

impl Vfs {
    /// Renames.
    pub fn rename(&self, caller: Caller, from: (u64, &OsStr), to: (u64, &OsStr), how: Rename) -> Result<()> {
        self.writable()?;
        check_name(from.1)?;
        check_name(to.1)?;
        let (old_dir, new_dir) = (self.node(from.0)?, self.node(to.0)?);
        if let Some(source @ Node::Conversation(id)) = self.find_known(caller, &old_dir, from.1)?.0 {
            self.attr_of(&source).map_err(absent)?;
            return match (how, &new_dir) {
                (Rename::Exchange, _) => Err(FsError::Invalid("only files change places".to_owned())),
                (_, Node::Children(at)) => {
                    let aware = (self.aware(&old_dir, from.1), self.aware(&new_dir, to.1));
                    self.move_conversation(caller, id, *at, to.1)?;
                    drop(aware);
                    if self.catalog.read().place(id).is_none_or(|place| place != (*at, to.1)) {
                        // The kernel believes in the name that it was told to rename to.
                        self.tell(vec![Stale::Name(new_dir.clone(), to.1.to_owned())]);
                    }
                    self.touch(&old_dir);
                    self.touch(&new_dir);
                    Ok(())
                }
                _ => Err(FsError::Refused("a conversation lies among conversations")),
            };
        }
        let find = |[old_dir, new_dir]: &[Node; 2]| {
            let source = self.find_known(caller, old_dir, from.1)?.0.ok_or(FsError::NotFound)?;
            if matches!(source, Node::Children(_) | Node::Conversation(_) | Node::Alias(..)) {
                return Err(FsError::Refused("the name belongs to the tree"));
            }
            match self.find(caller, new_dir, to.1)?.0 {
                Some(Node::Children(_) | Node::Conversation(_) | Node::Alias(..)) => Err(FsError::Exists),
                Some(target) => Ok([source, target]),
                None => Ok([source, self.place_for(new_dir, to.1)?]),
            }
        };
        let ([old_dir, new_dir], [source, target], hold) = self.hold_named(caller, [from.0, to.0], find)?;
        let kind = self.attr_of(&source).map_err(absent)?.kind;
        let is_seen = self.find(caller, &new_dir, to.1)?.0.is_some();
        if is_seen && how == Rename::NoReplace {
            // Somebody may have made it since it was looked at.
            self.backing.doubt(&self.path(&target)?);
        }
        let present = match is_seen.then(|| self.attr_of(&target)) {
            Some(Ok(attr)) => Some(attr.kind),
            Some(Err(error)) if !error.is_absent() => return Err(error),
            Some(Err(_)) | None => None,
        };
        match (how, present) {
            (Rename::NoReplace, Some(_)) => return Err(FsError::Exists),
            (Rename::Exchange, None) => return Err(FsError::NotFound),
            (Rename::Replace, Some(_)) if target == source => return Ok(()),
            (Rename::Replace, Some(Kind::Dir)) if kind != Kind::Dir => return Err(FsError::IsDir),
            (Rename::Replace, Some(other)) if kind == Kind::Dir && other != Kind::Dir => return Err(FsError::NotDir),
            _ => {}
        }
        let directory = kind == Kind::Dir || present == Some(Kind::Dir);
        let over = if is_seen && how == Rename::NoReplace { Over::Nothing } else { Over::Anything };
        let done = match (how, directory) {
            (Rename::Exchange, true) => return Err(FsError::Invalid("only files change places".to_owned())),
            (Rename::Exchange, false) => self.exchange(caller, &hold, &source, &target),
            (_, true) => self.move_dir(caller, &source, &target, over),
            (_, false) => self.move_file(caller, &hold, &source, kind, &target, over),
        };
        drop(hold);
        if done.as_ref().is_err_and(FsError::is_failure) {
            // The kernel takes it for not done. It may have been, and failed afterwards.
            let names = [(&old_dir, from.1), (&new_dir, to.1)];
            self.tell(names.map(|(dir, name)| Stale::Name(dir.clone(), name.to_owned())).into());
        }
        done?;
        if let Node::Managed(id, _) = target
            && how != Rename::Exchange
        {
            let _room = self.room(id).lock_arc();
            self.arrive(caller, id)?;
        }
        self.unmask(&new_dir, to.1);
        self.touch(&old_dir);
        self.touch(&new_dir);
        Ok(())
    }

    fn move_file(
        &self,
        caller: Caller,
        hold: &Hold,
        source: &Node,
        kind: Kind,
        target: &Node,
        over: Over,
    ) -> Result<()> {
        let source_is_stored = self.is_stored_managed(source)?;
        let stays = source_is_stored || self.leaves_store(source, target)?;
        if matches!(source, Node::Own(..)) && stays && kind != Kind::File {
            // Whoever moves it copies and removes it instead, as between filesystems.
            return Err(FsError::CrossDevice);
        }
        let _renaming = self.renaming(&[source, target]);
        self.make_room(caller, target, kind)?;
        if over == Over::Anything {
            self.save_orphan(target)?;
        }
        match target {
            Node::Managed(id, file) if self.is_stored_managed(target)? => {
                let bytes = self.read_whole(source)?;
                let guard = hold.guard(*id).ok_or(FsError::Stale)?;
                let ready = self.ready(source, *id)?;
                // Asked before the name is shown.
                let unseen = self.unseen(caller, *id, Path::new(file.name()));
                let hidden = if source_is_stored { self.to_hide(source)? } else { Vec::new() };
                let changes = [self.to_show(target), hidden].concat();
                let save = || self.save(caller, guard, *file, bytes, ready.as_ref(), unseen);
                let outcome = self.noted(changes, save)?;
                if !source_is_stored {
                    // The directory may have another name by now.
                    let path = self.path(source)?;
                    if !matches!(outcome, Outcome::Committed { handed_over: true }) {
                        self.backing.remove(&path).context("remove", &path)?;
                    }
                    self.soil(source);
                    self.note_own(&path);
                }
                self.renamed(source, target);
            }
            target => {
                self.soil(source);
                self.soil(target);
                self.make_way(target)?;
                let to = self.path(target)?;
                if stays {
                    self.copy_out(source, target, &to, over)?;
                    self.renamed(source, target);
                } else {
                    let from = self.path(source)?;
                    self.noted(self.to_show(target), || self.rename_path(&from, &to, over))?;
                    self.renamed(source, target);
                    self.names_changed(&from)?;
                    self.note_own(&from);
                }
                self.names_changed(&to)?;
                self.note_own(&to);
            }
        }
        if source_is_stored && let Node::Managed(id, file) = source {
            self.drop_draft(*id, *file)?;
        }
        Ok(())
    }

    /// The numbers follow a file to its new name at once: whatever fails afterwards, they stand for what is there.
    fn renamed(&self, source: &Node, target: &Node) {
        self.inodes.lock().renamed(source, target);
        self.move_shift(source, target);
    }

    /// Gives a copy of a file the new name. The store keeps the file, and here its name is free. The copy comes first: whoever
    /// stops us in between finds both.
    fn copy_out(&self, source: &Node, target: &Node, to: &Path, over: Over) -> Result<()> {
        let changes = [self.to_show(target), self.to_hide(source)?].concat();
        let (beside, former) = (self.beside(source), self.beside(source).with_extension("former"));
        // Somebody may have been stopped here.
        let _ = self.backing.remove(&beside);
        let prepared = self.prepare_copy(source, &beside);
        // What the name leads to now comes back if its new file cannot stay. Not every filesystem can keep that.
        let _ = self.backing.remove(&former);
        let is_kept = self.backing.link(to, &former).is_ok();
        let is_new = !is_kept && self.backing.stat(to).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        let place = |()| self.rename_path(&beside, to, over);
        let done = prepared.and_then(place).inspect_err(|_| {
            let _ = self.backing.remove(&beside);
        });
        let done = done.and_then(|()| {
            self.note(&changes).inspect_err(|_| {
                let back = match (is_kept, is_new) {
                    (true, _) => self.backing.rename(&former, to),
                    (false, true) => self.backing.remove(to),
                    (false, false) => Ok(()),
                };
                if let Err(error) = back {
                    tracing::warn!(path = %to.display(), %error, "a copy stays behind");
                }
            })
        });
        if is_kept {
            // It may be back where it was.
            let _ = self.backing.remove(&former);
        }
        done
    }

    /// Makes a copy of a file at a path.
    fn prepare_copy(&self, source: &Node, path: &Path) -> Result<()> {
        let bytes = self.read_whole(source)?;
        let Attr { mode, mtime, .. } = self.attr_of(source)?;
        self.backing.put(path, &bytes).context("write", path)?;
        self.backing.set_mode(path, mode).context("set the mode of", path)?;
        Ok(self.backing.set_times(path, None, Some(mtime)).context("set the times of", path)?)
    }

    /// The file behind a node, if it can become a managed file of this conversation as it is. Whoever still writes to it
    /// waits for the room, and goes on by its number, which is the managed file's by then.
    fn ready(&self, source: &Node, id: ConversationId) -> Result<Option<Ready>> {
        if !matches!(source, Node::Own(..) | Node::Scratch(..)) || source.conversation() != Some(id) {
            return Ok(None);
        }
        let path = self.path(source)?;
        let stat = self.backing.stat(&path).context("look at", &path)?;
        // A time that somebody has set ahead would outlive every later save.
        let fits = stat.kind == Kind::File && stat.links == 1 && stat.mtime <= stat.ctime;
        Ok(fits.then(|| Ready { path, on_disk: self.clean.lock().contains(source) }))
    }

    fn move_dir(&self, caller: Caller, source: &Node, target: &Node, over: Over) -> Result<()> {
        let movable = |node: &Node| matches!(node, Node::Own(..) | Node::Scratch(..));
        if !movable(source) || !movable(target) {
            return Err(FsError::Refused("a directory of its own kind is needed"));
        }
        let enters_store = matches!((source, target), (Node::Scratch(..), Node::Own(..)));
        if self.leaves_store(source, target)? || (enters_store && self.has_scratch_inside(&self.path(source)?)?) {
            // Whoever moves it copies and removes it instead, file by file.
            return Err(FsError::CrossDevice);
        }
        let _renaming = self.renaming(&[source, target]);
        self.make_way(target)?;
        let (from, to) = (self.path(source)?, self.path(target)?);
        // A directory that is hidden there is not in the way, whatever is in it.
        self.make_room(caller, target, Kind::Other)?;
        let emptied = if over == Over::Anything { self.empty_out(target)? } else { None };
        let (at_target, at_source) = self.hidden_there(source, target)?;
        let renamed = self.noted(at_target, || {
            let moving = self.move_scratch(source, target)?;
            let renamed = self.rename_path(&from, &to, over);
            self.end_moving(moving, renamed.is_ok());
            renamed
        });
        if let (Err(_), Some(mode)) = (&renamed, emptied)
            && let Err(error) = self.backing.make_dir(&to, mode)
        {
            tracing::warn!(path = %to.display(), %error, "cannot be made again");
        }
        renamed?;
        {
            let follow = |node: &Node| follow(node, source, target);
            let mut inodes = self.inodes.lock();
            inodes.unlinked(target);
            inodes.moved(follow);
        }
        if let Err(error) = self.noted(at_source.clone(), || Ok(())) {
            // Nothing has these names, so nothing is hidden that should be shown.
            tracing::debug!(%error, "names that are gone stay hidden for a while");
            at_source.iter().for_each(|change| self.suspect_of(change));
        }
        self.names_changed(&from)?;
        self.names_changed(&to)?;
        self.note_own(&from);
        self.note_own(&to);
        Ok(())
    }

    fn exchange(&self, caller: Caller, hold: &Hold, one: &Node, other: &Node) -> Result<()> {
        let _renaming = self.renaming(&[one, other]);
        match (self.is_stored_managed(one)?, self.is_stored_managed(other)?) {
            (true, true) => return Err(FsError::Invalid("two managed files do not change places".to_owned())),
            (false, false) => {
                let (first, second) = (self.path(one)?, self.path(other)?);
                self.backing.exchange(&first, &second).context("exchange", &first).map_err(cross)?;
                self.inodes.lock().exchanged(one, other);
                self.names_changed(&first)?;
                self.names_changed(&second)?;
                self.note_own(&first);
                self.note_own(&second);
            }
            (stored, _) => {
                let (managed, plain) = if stored { (one, other) } else { (other, one) };
                let Node::Managed(id, file) = managed else { return Err(FsError::Stale) };
                let (old, new) = (self.read_whole(managed)?, self.read_whole(plain)?);
                let guard = hold.guard(*id).ok_or(FsError::Stale)?;
                let (path, target) = (self.path(plain)?, self.path(managed)?);
                let stored = self.backing.read_all(&target).ok();
                // The old bytes are safe before the new ones take their place.
                let beside = self.state.join("orphans").join(format!("{SWAP}{}-{}", id.deciseconds(), file.name()));
                self.place_bytes(&beside, &beside.with_extension("new"), &old, Over::Anything)?;
                let saved = self.save(caller, guard, *file, new, None, None);
                if saved.is_err() && self.backing.read_all(&target).ok() == stored {
                    self.backing.remove(&beside).context("remove", &beside)?;
                    return saved.map(drop);
                }
                let placed = self.backing.rename(&beside, &path).context("rename", &beside).map_err(cross);
                if placed.is_err() {
                    self.writer.keep(*id, "exchanged", file.name(), &old)?;
                }
                self.note_own(&path);
                placed?;
                saved?;
                self.inodes.lock().exchanged(one, other);
            }
        }
        Ok(())
    }

    fn rename_path(&self, from: &Path, to: &Path, over: Over) -> Result<()> {
        let renamed = match over {
            Over::Anything => self.backing.rename(from, to),
            Over::Nothing => self.backing.rename_new(from, to),
        };
        renamed.context("rename", from).map_err(cross)
    }

    /// The name of a file of the store was given or taken away. It reaches the disk within a second.
    fn names_changed(&self, path: &Path) -> Result<()> {
        match path.parent() {
            // Scratch need not survive a power loss.
            Some(dir) if !dir.starts_with(&self.state) => Ok(self.writer.names_changed(dir)?),
            Some(_) | None => Ok(()),
        }
    }

    /// Puts bytes at a path, whole or not at all, even when that is on another filesystem than our state.
    fn place_bytes(&self, path: &Path, beside: &Path, bytes: &[u8], over: Over) -> Result<()> {
        let placed = match over {
            Over::Anything => self.backing.replace(path, beside, bytes),
            Over::Nothing => self.backing.put(beside, bytes).and_then(|()| self.backing.rename_new(beside, path)),
        };
        let placed = placed.context("write", path).map_err(cross);
        if placed.as_ref().is_err_and(|error| matches!(error.errno(), libc::EXDEV | libc::EEXIST)) {
            self.backing.remove(beside).context("remove", beside)?;
        }
        placed
    }

    /// A file's bytes as they are seen here.
    fn read_whole(&self, node: &Node) -> Result<Vec<u8>> {
        if let Node::Managed(id, file) = node {
            let draft = self.draft(*id, *file).map(|draft| draft.bytes);
            if let Some(bytes) = draft {
                return Ok(bytes.to_vec());
            }
        }
        let path = self.path(node)?;
        Ok(self.backing.read_all(&path).context("read", &path)?)
    }

    pub(super) fn is_stored_managed(&self, node: &Node) -> Result<bool> {
        match node {
            Node::Managed(id, _) => Ok(!self.item(*id)?.pending),
            _ => Ok(false),
        }
    }

    /// Whether something in a directory has a name for scratch, which has no place in the store.
    fn has_scratch_inside(&self, dir: &Path) -> Result<bool> {
        for (name, kind) in self.backing.list(dir).context("list", dir)? {
            if is_scratch(&name) || (kind == Kind::Dir && self.has_scratch_inside(&dir.join(name))?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a file of the user's own would go from the store to where removing is for good. The store keeps it then.
    fn leaves_store(&self, source: &Node, target: &Node) -> Result<bool> {
        let stored = |node: &Node| match node {
            Node::Managed(id, _) | Node::Own(id, _) => self.item(*id).map(|item| !item.pending),
            _ => Ok(false),
        };
        Ok(matches!(source, Node::Own(..)) && stored(source)? && !stored(target)?)
    }

    /// What is hidden beneath a directory is hidden wherever it goes, and nothing else is there: what has to be written down
    /// before it goes, and afterwards. Before it goes nothing has the names at its target, and afterwards nothing has those
    /// at its source.
    fn hidden_there(&self, source: &Node, target: &Node) -> Result<(Vec<Change>, Vec<Change>)> {
        let Node::Own(new, to) = target else { return Ok(Default::default()) };
        let (mut going, mut at_source) = (BTreeMap::new(), Vec::new());
        if let Node::Own(id, from) = source {
            for text in self.item(*id)?.hidden.iter() {
                if let Some(moved) = rebase(&to_path(text), from, to) {
                    let shown = self.last_shown(*id, &to_path(text));
                    going.insert(to_text(&moved).into_owned(), shown);
                    at_source.push(Change::ShowFile(*id, text.clone()));
                }
            }
        }
        let hidden = self.item(*new)?.hidden;
        let ends = hidden.iter().filter(|text| to_path(text).starts_with(to) && !going.contains_key(*text));
        let mut at_target: Vec<_> = ends.map(|text| Change::ShowFile(*new, text.clone())).collect();
        for (text, shown) in going {
            if !hidden.contains(&text) {
                at_target.push(Change::HideFile(*new, text.clone()));
            }
            at_target.push(Change::LastShown(*new, text, shown));
        }
        Ok((at_target, at_source))
    }

    /// Moves a conversation in the tree, in and out of the archive, or gives it another title.
    fn move_conversation(&self, caller: Caller, id: ConversationId, at: Dir, name: &OsStr) -> Result<()> {
        let text = name.to_str().ok_or(FsError::Refused("the name is not UTF-8"))?;
        if parse(text).is_none_or(|(other, _)| other != id) || !id.is_canonical_dirname(text) {
            return Err(FsError::Refused("the name has another id"));
        }
        if is_scratch(name) {
            // Such a name leads to scratch, never to a conversation.
            return Err(FsError::Refused("the name is a program's file of the moment"));
        }
        // Looked at before anything is done: of a move into the archive that ends in a circle nothing may stay.
        if at.parent().is_some_and(|parent| self.catalog.read().is_beneath(parent, id)) {
            return Err(FsError::Invalid("beneath itself".to_owned()));
        }
        let _room = self.room(id).lock_arc();
        let item = self.shown(id)?;
        if item.pending {
            return self.move_arrival(id, at, name);
        }
        let writer = self.writer.on_behalf_of(caller.pid);
        let partition = self.partition_of(at);
        if partition != item.partition {
            self.put_in(&writer, id, partition)?;
        }
        let guard = self.lock(caller, id)?;
        let before = self.catalog.read().tree_parent(id);
        let parent = (before != at.parent()).then(|| at.parent());
        let title = (item.name != name).then(|| self.title_of(id, text)).filter(|title| *title != item.title);
        let shape = Shape::Place { parent, title: title.as_ref().map(Option::as_deref) };
        let moved = parent.is_some() || title.is_some();
        if moved && !self.reshape(&writer, &guard, shape)? {
            if let Some(parent) = parent {
                writer.reparent(&guard, parent)?;
            }
            if let Some(title) = &title {
                writer.edit(&guard, |meta| meta.set_title(title.as_deref()))?;
            }
            self.look_after_shape(id)?;
        }
        drop(guard);
        // It says where it belongs and what it is called, and the kernel has not seen it being written.
        self.tell(vec![Stale::Content(Node::Managed(id, ManagedFile::Metadata))]);
        let mut catalog = self.catalog.write();
        if catalog.get(id).is_some_and(|now| now.name != name) {
            // The slug of a title is not always what was typed; what was typed goes on leading here.
            let title = catalog.get(id).and_then(|now| now.title.clone());
            catalog.add_former(id, Former { name: text.to_owned(), title });
        }
        Ok(())
    }

    /// The title that a name stands for: the one it stood for before, else the words in it.
    fn title_of(&self, id: ConversationId, name: &str) -> Option<String> {
        let catalog = self.catalog.read();
        let current = catalog.get(id).and_then(|item| item.title.clone());
        if id.dirname(current.as_deref()) == name {
            return current;
        }
        if let Some(title) = catalog.former_title(id, OsStr::new(name)) {
            return title.map(ToOwned::to_owned);
        }
        let words = name.split_once('-').map(|(_, words)| words.trim()).unwrap_or_default();
        (!words.is_empty()).then(|| words.to_owned())
    }
}

fn follow(node: &Node, source: &Node, target: &Node) -> Option<Node> {
    let (path, from) = match (node, source) {
        (Node::Own(id, path), Node::Own(old, from)) if id == old => (path, from),
        (Node::Scratch(home, path), Node::Scratch(old, from)) if home == old => (path, from),
        (Node::Scratch(Home::Conversation(id), path), Node::Own(old, from)) if id == old => {
            let Node::Own(new, to) = target else { return None };
            return Some(Node::Scratch(Home::Conversation(*new), rebase(path, from, to)?));
        }
        _ => return None,
    };
    match target {
        Node::Own(id, to) => Some(Node::Own(*id, rebase(path, from, to)?)),
        Node::Scratch(home, to) => Some(Node::Scratch(*home, rebase(path, from, to)?)),
        _ => None,
    }
}

fn cross<E: Into<FsError>>(error: E) -> FsError {
    let error = error.into();
    if error.errno() == libc::EXDEV { FsError::CrossDevice } else { error }
}
