//! Directories that are made: conversations brought back, conversations that arrive, directories of the user's own.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use jp_store::ConversationId;
use jp_store::disk::Kind;
use jp_store::error::Context as _;
use jp_store::join::Exposure;
use jp_store::journal::Change;
use jp_store::layout::{CONVERSATIONS, Partition};
use jp_store::lock::Wait;
use jp_store::modes::{Access, PERMISSIONS};
use jp_store::path_text::{to_path, to_text};
use jp_store::reconcile::ManagedFile;
use jp_store::scratch::is_scratch;
use jp_store::writer::Writer;
use serde::{Deserialize, Serialize};

use super::files::Wanted;
use super::{Attr, Fresh, Vfs, check_name};
use crate::caller::Caller;
use crate::catalog::{Item, parse};
use crate::draft;
use crate::error::{FsError, Result};
use crate::mount::Arrival;
use crate::node::{Dir, Node};

/// What is noted of a conversation that is arriving, beside its files.
#[derive(Debug, Serialize, Deserialize)]
pub struct ArrivalNote {
    name: String,
    /// Its parent, by its place.
    pub(crate) parent: Option<ConversationId>,
    /// Whether its place is in the archive.
    pub(crate) archived: bool,
}

/// What an arriving conversation needs that has everything of its own.
const WAITS: &str = "to be taken in; the log says what keeps it";

impl Vfs {
    /// Makes a directory.
    pub fn make_dir(&self, caller: Caller, parent: u64, name: &OsStr, mode: u32) -> Result<Attr> {
        self.writable()?;
        check_name(name)?;
        let dir = self.node(parent)?;
        if let Node::Conversation(id) = &dir
            && name == CONVERSATIONS
            && self.is_masked(caller, *id, Path::new(name))
        {
            self.made(&dir, name);
            return self.enter(&Node::Children(Dir::Of(*id)));
        }
        if let Node::Children(at) = &dir {
            if self.is_there(caller, &dir, name)? {
                return Err(FsError::Exists);
            }
            let _aware = self.aware(&dir, name);
            let node = Node::Conversation(self.make_conversation(caller, *at, name)?);
            self.made(&dir, name);
            return self.enter(&node);
        }
        let Wanted { dir, node, unseen, hold: _hold } = &self.hold_name(caller, parent, name)?;
        if matches!(node, Node::Managed(..)) {
            let is_there = self.is_there(caller, dir, name)?;
            return Err(if is_there {
                FsError::Exists
            } else {
                FsError::Refused("the name is that of a managed file")
            });
        }
        let _aware = self.aware(dir, name);
        self.make_way(node)?;
        if *unseen {
            self.make_room(caller, node, Kind::Dir)?;
            self.make_room_for_scratch(node)?;
        }
        let make = || {
            let path = self.path(node)?;
            match self.backing.make_dir(&path, mode & PERMISSIONS) {
                // A new directory from now on. What is in it stays hidden.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && *unseen => {
                    self.backing.set_mode(&path, mode & PERMISSIONS).context("set the mode of", &path)?;
                    self.touch(node);
                }
                made => made.context("make directory", &path)?,
            }
            Ok(path)
        };
        let changes = if *unseen { self.to_show_empty(node)? } else { self.to_show(node) };
        let path = self.noted(changes, || self.or_look_again(node, make))?;
        self.note_own(&path);
        self.made(dir, name);
        self.enter(node)
    }

    /// Brings a known conversation back, or lets a new one begin to arrive.
    fn make_conversation(&self, caller: Caller, at: Dir, name: &OsStr) -> Result<ConversationId> {
        const PRIVATE: FsError = FsError::Refused("the conversation is private here; `jp c unhide` shows it");
        const ABOVE: FsError = FsError::Refused("something above the conversation is private here");
        const NO_PLACE: FsError = FsError::Refused("only conversations lie here, named by their ids");
        let id = match name.to_str().and_then(parse) {
            Some((id, _)) if !is_scratch(name) && id.is_canonical_dirname(&name.to_string_lossy()) => id,
            Some(_) | None => return Err(NO_PLACE),
        };
        if self.catalog.read().get(id).is_none() {
            // The store may have it, and nobody has told us yet.
            self.look_at_names()?;
        }
        let (known, visible, above) = {
            let catalog = self.catalog.read();
            let visible = catalog.is_visible(id);
            // What git remembers under another name or elsewhere it moves there, file by file.
            if visible && !caller.is_git() {
                return Err(FsError::Exists);
            }
            (catalog.get(id).cloned(), visible, catalog.hidden_above(id))
        };
        let Some(item) = known else {
            self.begin_arrival(caller, id, at, name)?;
            return Ok(id);
        };
        if visible || item.pending {
            self.bring_back(caller, id, &item, at, name)?;
            return Ok(id);
        }
        // Whoever knows an id may have guessed it.
        let exposure = match self.exposure(id)? {
            Exposure::Unknown if self.writer.store().has_no_events(&item.dir)? => Exposure::Projected,
            exposure => exposure,
        };
        match exposure {
            Exposure::Projected if self.private_above(above)?.is_empty() => {
                self.bring_back(caller, id, &item, at, name)?;
            }
            Exposure::Projected => return Err(ABOVE),
            // All of them are shown by this mount, and this one was removed.
            Exposure::Local | Exposure::Unknown if self.rules.all => {
                let stale = self.catalog.write().put_away(id, false);
                self.tell(stale);
            }
            Exposure::Local => return Err(PRIVATE),
            // What it brings tells whether it is the same conversation.
            Exposure::Unknown => self.begin_arrival(caller, id, at, name)?,
        }
        Ok(id)
    }

    /// Where a conversation is exposed.
    fn exposure(&self, id: ConversationId) -> Result<Exposure> {
        let entry = self.sight.lock().books.ledger.get(id).cloned();
        Ok(self.writer.store().exposure(id, entry.as_ref())?)
    }

    /// Those of some conversations that are private here.
    pub(super) fn private_above(&self, ancestors: Vec<ConversationId>) -> Result<Vec<ConversationId>> {
        if ancestors.is_empty() {
            return Ok(ancestors);
        }
        let sight = self.sight.lock();
        Ok(self.writer.store().private_above(&sight.books.ledger, ancestors)?)
    }

    fn bring_back(&self, caller: Caller, id: ConversationId, item: &Item, at: Dir, name: &OsStr) -> Result<()> {
        let mut changes = vec![Change::Show(id)];
        if caller.is_git() {
            // It lays out what it remembers. Files of one's own that are not among that stay away until they are made.
            self.hide_all_own(id, &item.dir, Path::new(""), &mut changes)?;
        }
        let partition = self.partition_of(at);
        if item.partition != partition && !item.pending {
            self.put_in(&self.writer.on_behalf_of(caller.pid), id, partition)?;
        }
        self.fresh.lock().insert(id, Fresh { maker: caller.process(), new: false, made: Default::default() });
        self.note(&changes)?;
        let natural = {
            let catalog = self.catalog.read();
            catalog.place(id).is_some_and(|place| place == (at, name))
        };
        if !natural {
            let stale = self.catalog.write().give(id, Some((at, name.to_owned())));
            self.tell(stale);
        }
        Ok(())
    }

    /// Hides every file, link and directory of the user's own in a conversation.
    fn hide_all_own(&self, id: ConversationId, dir: &Path, inner: &Path, changes: &mut Vec<Change>) -> Result<()> {
        let path = dir.join(inner);
        let listed = match self.backing.list(&path) {
            // If the conversation itself is not where it was, there is no telling what would be shown.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && inner != Path::new("") => return Ok(()),
            listed => listed.context("list", &path)?,
        };
        for (name, kind) in listed {
            let inner = inner.join(&name);
            let managed = inner.to_str().and_then(ManagedFile::from_name).is_some();
            if managed || is_scratch(&name) {
                continue;
            }
            changes.push(Change::HideFile(id, to_text(&inner).into_owned()));
            if kind == Kind::Dir {
                self.hide_all_own(id, dir, &inner, changes)?;
            }
        }
        Ok(())
    }

    /// Archives a conversation, or takes it out of the archive.
    pub(super) fn put_in(&self, writer: &Writer, id: ConversationId, partition: Partition) -> Result<()> {
        match partition {
            Partition::Live => writer.unarchive(id, &Wait::none())?,
            Partition::Archived => writer.archive(id, &Wait::none())?,
        };
        self.look_after_shape(id)
    }

    /// A new conversation is pending until its metadata and its events are there and good.
    fn begin_arrival(&self, caller: Caller, id: ConversationId, at: Dir, name: &OsStr) -> Result<()> {
        let dir = self.arrival_dir(id);
        let note = self.note_at(at, name);
        self.write_note(id, &note)?;
        self.backing.make_dir(&dir, Access::Private.dir()).context("make directory", &dir)?;
        self.fresh.lock().insert(id, Fresh { maker: caller.process(), new: true, made: Default::default() });
        self.insert_arrival(id, note);
        Ok(())
    }

    fn note_at(&self, at: Dir, name: &OsStr) -> ArrivalNote {
        let archived = self.partition_of(at) == Partition::Archived;
        ArrivalNote { name: name.to_string_lossy().into_owned(), parent: at.parent(), archived }
    }

    fn write_note(&self, id: ConversationId, note: &ArrivalNote) -> Result<()> {
        let path = self.note_path(id);
        let beside = path.with_extension("new");
        // A note of plain values is always JSON.
        let bytes = serde_json::to_vec(note).unwrap_or_default();
        Ok(self.backing.replace(&path, &beside, &bytes).context("write", &path)?)
    }

    fn insert_arrival(&self, id: ConversationId, note: ArrivalNote) {
        let item = Item {
            partition: if note.archived { Partition::Archived } else { Partition::Live },
            name: OsString::from(note.name),
            parent: note.parent,
            shown: true,
            title: None,
            dir: self.arrival_dir(id),
            pending: true,
            hidden: Default::default(),
        };
        let stale = self.catalog.write().apply(id, Some(item));
        self.tell(stale);
    }

    /// Gives a conversation that has not arrived yet another place or name.
    pub(super) fn move_arrival(&self, id: ConversationId, at: Dir, name: &OsStr) -> Result<()> {
        let note = self.note_at(at, name);
        self.write_note(id, &note)?;
        self.insert_arrival(id, note);
        Ok(())
    }

    /// What an earlier mount saw arriving goes on arriving.
    pub(super) fn load_arrivals(&self) -> Result<()> {
        let dir = self.state.join("drafts/new");
        let listed = match self.backing.list(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            listed => listed.context("list", &dir)?,
        };
        for (name, _) in listed {
            let Some((id, true)) = name.to_str().and_then(parse) else { continue };
            if self.catalog.read().get(id).is_some_and(|item| !item.pending && item.shown) {
                // It has arrived; what is left of it is a leftover of the moment between.
                continue;
            }
            let note = self.backing.read_all(&self.note_path(id)).ok();
            if let Some(note) = note.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
                self.insert_arrival(id, note);
            }
        }
        self.tend_arrivals();
        Ok(())
    }

    /// What is arriving, and what each still needs.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.pending()
            .into_iter()
            .map(|id| Arrival { id: id.to_string(), needs: self.needs(id).unwrap_or_else(|| WAITS.to_owned()) })
            .collect()
    }

    fn pending(&self) -> Vec<ConversationId> {
        let catalog = self.catalog.read();
        catalog.ids().filter(|&id| catalog.get(id).is_some_and(|item| item.pending)).collect()
    }

    fn needs(&self, id: ConversationId) -> Option<String> {
        let dir = self.arrival_dir(id);
        let parent = self.pending_parent(id);
        let missing = [ManagedFile::Metadata, ManagedFile::Events].into_iter().find_map(|file| {
            match self.backing.read_all(&dir.join(file.name())) {
                Err(_) => Some(file.name().to_owned()),
                Ok(bytes) => draft::whole(file, &bytes).err().map(|reason| format!("{}: {reason}", file.name())),
            }
        });
        missing.or(parent.map(|parent| format!("its parent {parent}, which is arriving too"))).or_else(|| self.held(id))
    }

    /// Why a copy that arrives is not joined with the conversation of its id that the store has, if it is not.
    fn held(&self, id: ConversationId) -> Option<String> {
        let entry = self.sight.lock().books.ledger.get(id).cloned();
        let held = match self.stored_dir(id) {
            Ok(None) => return None,
            Ok(Some(dir)) => self.writer.store().holds(id, entry.as_ref(), &dir, &self.arrival_dir(id)),
            Err(error) => return Some(error.to_string()),
        };
        let todo = format!("`jp draft drop {id}` gives it up, `jp c unhide {id}` shows the store's conversation");
        match held {
            Ok(held) => held.map(|reason| format!("a decision: it is {}. {todo}", reason.describe())),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Whether a file that it needs is missing or cannot be whole yet. Its end alone is read: this is asked for every
    /// piece of a file that is being written.
    fn is_half(&self, id: ConversationId) -> bool {
        const END: u64 = 64;
        let dir = self.arrival_dir(id);
        [ManagedFile::Metadata, ManagedFile::Events].into_iter().any(|file| {
            let path = dir.join(file.name());
            let end = self
                .backing
                .stat(&path)
                .and_then(|stat| self.backing.read(&path, stat.size.saturating_sub(END), END as usize));
            let blank = |end: &[u8]| end.iter().all(u8::is_ascii_whitespace);
            end.map_or(true, |end| !blank(&end) && draft::is_half(file, &end))
        })
    }

    /// The parent, where that has not arrived itself.
    fn pending_parent(&self, id: ConversationId) -> Option<ConversationId> {
        let catalog = self.catalog.read();
        let parent = catalog.get(id)?.parent?;
        catalog.get(parent).is_some_and(|item| item.pending).then_some(parent)
    }

    /// Takes in what has become whole without anybody writing to it: a parent has arrived, or a lock is free.
    pub fn tend_arrivals(&self) {
        if self.rules.read_only {
            return;
        }
        loop {
            let mut arrived = false;
            for id in self.pending() {
                // Whoever is at work on it takes it in.
                let Some(_room) = self.room(id).try_lock_arc() else { continue };
                match self.arrive(Caller { pid: std::process::id() }, id) {
                    Ok(()) => arrived |= self.item(id).is_ok_and(|item| !item.pending),
                    Err(error) => tracing::debug!(%id, %error, "an arriving conversation waits on"),
                }
            }
            if !arrived {
                return;
            }
        }
    }

    /// A managed file of an arriving conversation has changed: it may be whole now.
    pub(super) fn arrive_if_managed(&self, caller: Caller, node: &Node) -> Result<()> {
        match node {
            Node::Managed(id, _) => self.arrive(caller, *id),
            _ => Ok(()),
        }
    }

    /// Takes a conversation into the store if everything it needs is there. The caller has its room.
    pub(super) fn arrive(&self, caller: Caller, id: ConversationId) -> Result<()> {
        let item = self.item(id)?;
        if !item.pending || self.is_half(id) || self.needs(id).is_some() {
            return Ok(());
        }
        if let Some(dir) = self.stored_dir(id)? {
            return self.join_arrival(caller, id, &item, &dir);
        }
        let guard = self.lock(caller, id)?;
        let writer = self.writer.on_behalf_of(caller.pid);
        if self.fresh.lock().contains_key(&id) {
            // Whoever brings it goes on by the name it has chosen, from before others can see it in the store.
            let place = (item.parent.map_or(Dir::top(item.partition), Dir::Of), item.name.clone());
            let stale = self.catalog.write().give(id, Some(place));
            self.tell(stale);
        }
        // Whatever arrives is live for a moment, and a live one cannot be beneath an archived one.
        let archived = item.partition == Partition::Archived;
        let dir = match writer.adopt(&guard, &item.dir, item.parent.filter(|_| !archived)) {
            Ok(dir) => dir,
            Err(error) => {
                let stale = self.catalog.write().give(id, None);
                self.tell(stale);
                return Err(error.into());
            }
        };
        drop(guard);
        let path = self.note_path(id);
        if let Err(error) = self.backing.remove(&path) {
            tracing::debug!(path = %path.display(), %error, "a note stays behind");
        }
        if archived {
            writer.archive(id, &Wait::none())?;
            if item.parent.is_some() {
                let guard = self.lock(caller, id)?;
                writer.reparent(&guard, item.parent)?;
            }
            self.look_after_shape(id)?;
        } else {
            self.look_after_arrival(dir)?;
        }
        // What came before its parent can follow now.
        self.tend_arrivals();
        Ok(())
    }

    /// Takes an arriving copy into the conversation that the store has, and shows that. Files of one's own that the copy does
    /// not have stay hidden.
    fn join_arrival(&self, caller: Caller, id: ConversationId, item: &Item, dir: &Path) -> Result<()> {
        let mut changes = Vec::new();
        self.hide_all_own(id, dir, Path::new(""), &mut changes)?;
        changes.retain(|change| match change {
            Change::HideFile(_, file) => self.backing.stat(&item.dir.join(&*to_path(file))).is_err(),
            _ => true,
        });
        changes.insert(0, Change::Show(id));
        let guard = self.lock(caller, id)?;
        let writer = self.writer.on_behalf_of(caller.pid);
        writer.join(&guard, &item.dir, dir)?;
        if self.fresh.lock().contains_key(&id) {
            let place = (item.parent.map_or(Dir::top(item.partition), Dir::Of), item.name.clone());
            let stale = self.catalog.write().give(id, Some(place));
            self.tell(stale);
        }
        self.note(&changes)?;
        let path = self.note_path(id);
        if let Err(error) = self.backing.remove(&path) {
            tracing::debug!(path = %path.display(), %error, "a note stays behind");
        }
        self.look_after_shape(id)?;
        drop(guard);
        if self.item(id)?.partition != item.partition {
            self.put_in(&writer, id, item.partition)?;
        }
        if self.catalog.read().tree_parent(id) != item.parent {
            let guard = self.lock(caller, id)?;
            writer.reparent(&guard, item.parent)?;
            self.look_after_shape(id)?;
        }
        self.tend_arrivals();
        Ok(())
    }

    /// The partition a directory of conversations is in.
    pub(super) fn partition_of(&self, at: Dir) -> Partition {
        match at {
            Dir::Root => Partition::Live,
            Dir::Archive => Partition::Archived,
            Dir::Of(id) => self.catalog.read().get(id).map_or(Partition::Live, |item| item.partition),
        }
    }

    pub(super) fn arrival_dir(&self, id: ConversationId) -> PathBuf {
        self.state.join("drafts/new").join(id.deciseconds().to_string())
    }

    pub(super) fn note_path(&self, id: ConversationId) -> PathBuf {
        self.state.join("drafts/new").join(format!("{}.json", id.deciseconds()))
    }
}
