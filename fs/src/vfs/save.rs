//! Saves. Whatever is written to a managed file goes into its draft; the moment the draft is a whole document it is committed
//! to the store, before the call returns. What the store cannot take stays a draft, on disk.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use jp_store::ConversationId;
use jp_store::disk::Stat;
use jp_store::document::Document;
use jp_store::error::Context as _;
use jp_store::json::JsonError;
use jp_store::lock::Guard;
use jp_store::meta::{Meta, Parent};
use jp_store::modes::Access;
use jp_store::reconcile::{Digest, ManagedFile};
use jp_store::writer::{ReadyFile, Shape, Writer};

use super::Vfs;
use super::hidden::Unseen;
use super::named::Room;
use super::persist::Grown;
use crate::caller::Caller;
use crate::draft::{self, Draft, OnDisk, Undo};
use crate::error::{FsError, Result};
use crate::node::Node;

/// How long a change of the tree waits for whoever is at work on a draft that it may let in.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long a draft is left alone that the store could not be written for: each try fills what room there is.
const AGAIN: Duration = Duration::from_secs(1);

/// What became of a draft.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The store has it.
    Committed {
        /// The file that had the bytes has become the store's.
        handed_over: bool,
    },
    /// It is no document that the store takes, for this reason.
    Kept(JsonError),
    /// It is good and on disk, and the store could not be written. It is tried again.
    Waits(FsError),
}

/// A file that has the very bytes that are to be saved, and can become the store's.
#[derive(Debug)]
pub(super) struct Ready {
    /// Where it is.
    pub(super) path: PathBuf,
    /// Whether its bytes have reached the disk.
    pub(super) on_disk: bool,
}

/// Where the store's file is, and what it has; `None` where there is none.
pub(super) type Current = (PathBuf, Option<Vec<u8>>);

/// What whoever commits a draft knows about it.
#[derive(Debug, Default)]
struct AtHand<'a> {
    /// The store's file, read since the lock was taken.
    current: Option<Current>,
    ready: Option<&'a Ready>,
    /// The kernel has written these bytes itself, and knows them.
    written: bool,
    /// What was added to the draft, if its file has the rest.
    grown: Option<Grown>,
}

/// Who changes a managed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A program that waits for the answer.
    Caller,
    /// A program that wrote to its memory some time ago. It cannot be refused.
    Memory,
}

/// Rooms and locks of the conversations a change touches; the locks go first.
pub(super) struct Hold {
    guards: Vec<Guard>,
    _rooms: Vec<Room>,
}

impl Vfs {
    /// Rooms and locks of all conversations whose files these nodes are, in order. Scratch and what is not in the store yet
    /// need no lock.
    pub(super) fn hold(&self, caller: Caller, nodes: &[&Node]) -> Result<Hold> {
        let locked: BTreeSet<_> = nodes.iter().filter_map(|node| locked(node)).collect();
        let scratch = nodes.iter().filter(|node| matches!(node, Node::Scratch(..)));
        let ids: BTreeSet<_> = scratch.filter_map(|node| node.conversation()).chain(locked.iter().copied()).collect();
        let rooms: Vec<_> = ids.iter().map(|&id| self.room(id).lock_arc()).collect();
        let guards = self.locks(caller, locked)?;
        Ok(Hold { guards, _rooms: rooms })
    }

    /// The lock of a node whose room is held already. A change of memory goes through whoever has it.
    pub(super) fn hold_in(&self, caller: Caller, node: &Node, room: Option<Room>, origin: Origin) -> Result<Hold> {
        let guards = match self.locks(caller, locked(node)) {
            Err(FsError::Busy) if origin == Origin::Memory => Vec::new(),
            guards => guards?,
        };
        Ok(Hold { guards, _rooms: room.into_iter().collect() })
    }

    fn locks(&self, caller: Caller, ids: impl IntoIterator<Item = ConversationId>) -> Result<Vec<Guard>> {
        let mut guards = Vec::new();
        for id in ids {
            if !self.item(id)?.pending {
                guards.push(self.lock(caller, id)?);
            }
        }
        Ok(guards)
    }

    /// Changes a managed file as somebody writes to it.
    pub(super) fn change(
        &self,
        caller: Caller,
        _room: &Room,
        node: &Node,
        origin: Origin,
        change: impl FnOnce(&mut Draft) -> Result<Undo>,
    ) -> Result<()> {
        let Node::Managed(id, file) = *node else { return Err(FsError::Stale) };
        let begun = self.drafts.lock().contains_key(&(id, file));
        let guard = match self.lock(caller, id) {
            // Held since before the first byte: nothing has been taken yet, so nothing is kept.
            Err(FsError::Busy) if !begun && origin == Origin::Caller => return Err(FsError::Busy),
            Err(FsError::Busy) => None,
            Err(error) => {
                self.show_what_is_kept_of_new(id, file);
                return Err(error);
            }
            Ok(guard) => Some(guard),
        };
        let mut at_hand = AtHand { written: true, ..AtHand::default() };
        let (mut draft, undo) = if begun {
            // Where it is: a copy for every piece of a long file would cost more than the file.
            let mut drafts = self.drafts.lock();
            let draft = drafts.get_mut(&(id, file)).ok_or(FsError::Stale)?;
            let on_disk = draft.on_disk;
            let undo = change(draft)?;
            if let (OnDisk::Open(header), Some(from)) = (on_disk, undo.grown_from(draft)) {
                at_hand.grown = Some(Grown { header, from });
            }
            (draft.clone(), Some(undo))
        } else {
            let (mut draft, current) = self.begin_draft(id, file)?;
            at_hand.current = Some(current);
            change(&mut draft)?;
            (draft, None)
        };
        let before = |draft| undo.map(|undo| undo.apply(draft));
        let Some(guard) = guard else {
            draft.waiting = draft::whole(file, &draft.bytes).is_ok();
            if let Err(error) = self.keep_draft(id, file, draft.clone(), true) {
                // It may be in its file, and only its name did not reach the disk.
                self.take_back(id, file, true, before(draft));
                return Err(error);
            }
            return if origin == Origin::Memory { Ok(()) } else { Err(FsError::Busy) };
        };
        self.settle(caller, &guard, file, draft, at_hand, before).map(drop)
    }

    /// A draft that is only in memory, because it has just begun, is not shown any more.
    fn show_what_is_kept_of_new(&self, id: ConversationId, file: ManagedFile) {
        if self.draft(id, file).is_some_and(|draft| draft.on_disk == OnDisk::No) {
            self.show_what_is_kept(id, file);
        }
    }

    /// Begins an empty draft, as whoever writes a file anew does first. Nothing is no document, so none of it is for the
    /// store, and the conversation's lock need not be taken: it is enough that nobody has it. `false` where somebody
    /// does, where a draft has begun, or where it has to be seen first whether it can be kept.
    pub(super) fn begin_anew(&self, _room: &Room, node: &Node) -> Result<bool> {
        let Node::Managed(id, file) = *node else { return Ok(false) };
        let begun = self.drafts.lock().contains_key(&(id, file));
        if begun || self.writer.store().locks().is_held(id) || !self.has_room()? {
            return Ok(false);
        }
        let (mut draft, _) = self.begin_draft(id, file)?;
        draft.truncate(0, self.now())?;
        self.drafts.lock().insert((id, file), draft);
        Ok(true)
    }

    /// Saves a managed file whole, as a rename into place does.
    pub(super) fn save(
        &self,
        caller: Caller,
        guard: &Guard,
        file: ManagedFile,
        bytes: Vec<u8>,
        ready: Option<&Ready>,
        unseen: Option<Unseen>,
    ) -> Result<Outcome> {
        let id = guard.id();
        let before = self.draft(id, file);
        if unseen.is_some() {
            self.retire_draft(id, file)?;
        }
        let (mut draft, current) = self.begin_draft(id, file)?;
        draft.base = self.base_of(unseen, id, file, &draft);
        draft.replace(bytes, self.now());
        let at_hand = AtHand { current: Some(current), ready, ..AtHand::default() };
        let settled = self.settle(caller, guard, file, draft, at_hand, |_| before.clone());
        if let Err(FsError::Busy) = settled {
            // The bytes are still where they came from, so nothing needs to wait.
            self.take_back(id, file, true, before.clone());
        }
        let outcome = settled?;
        if let Some(draft) = self.draft(id, file)
            && let Err(error) = self.sync_draft(id, file, draft)
        {
            self.take_back(id, file, true, before);
            return Err(error);
        }
        match &outcome {
            Outcome::Kept(reason) if self.rules.strict => Err(FsError::Invalid(reason.to_string())),
            Outcome::Committed { .. } | Outcome::Kept(_) | Outcome::Waits(_) => Ok(outcome),
        }
    }

    /// A managed file is made that was not there, or that the caller does not see: it begins empty, and the store keeps what it
    /// has.
    pub(super) fn create_managed(
        &self,
        caller: Caller,
        hold: &Hold,
        id: ConversationId,
        file: ManagedFile,
        mode: u32,
        unseen: bool,
    ) -> Result<()> {
        if hold.guards.is_empty() {
            let path = self.path(&Node::Managed(id, file))?;
            return Ok(self.backing.create(&path, Access::Private.copy_of(mode)).context("make", &path)?);
        }
        let (mut draft, (_, stored)) = self.begin_draft(id, file)?;
        if !unseen && (stored.is_some() || self.draft(id, file).is_some()) {
            return Err(FsError::Exists);
        }
        self.retire_draft(id, file)?;
        draft.base = self.base_of(self.unseen(caller, id, Path::new(file.name())), id, file, &draft);
        draft.truncate(0, self.now())?;
        let has_room = self.has_room()?;
        self.noted(self.to_show(&Node::Managed(id, file)), || {
            if has_room {
                self.drafts.lock().insert((id, file), draft);
                return Ok(());
            }
            self.keep_draft(id, file, draft, false)
        })
    }

    /// Brings a draft to disk and tries it once more.
    pub(super) fn sync_managed(&self, caller: Caller, id: ConversationId, file: ManagedFile) -> Result<()> {
        let _room = self.room(id).lock_arc();
        let Some(draft) = self.draft(id, file) else { return Ok(self.writer.catch_up_on(&self.item(id)?.dir)?) };
        let outcome = match self.lock(caller, id) {
            Ok(guard) => self.settle(caller, &guard, file, draft, AtHand::default(), Some),
            Err(error) => Err(error),
        };
        if let Some(draft) = self.draft(id, file) {
            let whole = draft::whole(file, &draft.bytes);
            self.sync_draft(id, file, draft)?;
            if matches!(outcome, Err(FsError::Busy)) {
                // It is safe, and whoever wrote it was told that it waits, or could not be told.
                return match whole {
                    Err(reason) if self.rules.strict => Err(FsError::Invalid(reason.to_string())),
                    Ok(()) | Err(_) => Ok(()),
                };
            }
        }
        match outcome? {
            Outcome::Kept(reason) if self.rules.strict => Err(FsError::Invalid(reason.to_string())),
            Outcome::Committed { .. } | Outcome::Kept(_) | Outcome::Waits(_) => {
                Ok(self.writer.catch_up_on(&self.item(id)?.dir)?)
            }
        }
    }

    /// What was saved reaches the disk, names included, and long journals are folded. Called every now and then.
    pub fn tend_disk(&self) -> Result<()> {
        self.writer.catch_up()?;
        if self.rules.read_only { Ok(()) } else { Ok(self.writer.fold_if_long()?) }
    }

    /// Drafts reach the disk, and those that wait for a lock are tried again. Called every now and then.
    pub fn tend_drafts(&self) {
        if let Err(error) = self.keep_drafts() {
            tracing::warn!(%error, "a draft cannot be kept on disk");
        }
        self.tend_waiting();
        if self.missed.swap(false, Ordering::SeqCst) {
            self.tend_refused(Caller { pid: std::process::id() });
        }
    }

    /// Drafts that wait for a lock are tried again. Called when a lock has become free.
    pub fn tend_waiting(&self) {
        if self.rules.read_only {
            return;
        }
        for (id, file) in self.drafts_that(|draft| draft.waiting) {
            if self.tried.lock().get(&(id, file)).is_some_and(|tried| tried.elapsed() < AGAIN) {
                continue;
            }
            if let Err(error) = self.try_waiting(id, file) {
                tracing::debug!(%id, file = file.name(), %error, "a draft waits on");
            }
        }
    }

    /// Metadata that the tree would not have is tried again: the tree may be another one by now. Whoever lays out a whole
    /// tree file by file, as git does, names a child's new parent before it has freed that one from beneath the child.
    pub(super) fn tend_refused(&self, caller: Caller) {
        for (id, file) in self.drafts_that(|draft| draft.reason.is_some() && !draft.waiting) {
            if file != ManagedFile::Metadata {
                continue;
            }
            // A room is held by us already, and whoever is in the other one may be waiting for that.
            let Some(_room) = self.room(id).try_lock_arc_for(PATIENCE) else {
                self.missed.store(true, Ordering::SeqCst);
                continue;
            };
            if let Err(error) = self.try_refused(caller, id) {
                tracing::debug!(%id, %error, "a draft waits on");
            }
        }
    }

    fn try_refused(&self, caller: Caller, id: ConversationId) -> Result<()> {
        let file = ManagedFile::Metadata;
        let Some(draft) = self.draft(id, file) else { return Ok(()) };
        if draft::whole(file, &draft.bytes).is_err() || !self.would_have(id, &draft.bytes) {
            return Ok(());
        }
        let guard = self.lock(caller, id)?;
        let (_, current) = self.read_current(id, file)?;
        if current.as_deref().map(Digest::of) != draft.base {
            // Somebody saved it since. Which one is meant is not for us to say.
            return Ok(());
        }
        self.settle(caller, &guard, file, draft, AtHand::default(), Some).map(drop)
    }

    /// Whether the tree has a place for metadata, as far as the catalog knows.
    fn would_have(&self, id: ConversationId, bytes: &[u8]) -> bool {
        let Ok(Parent::Of(parent)) = Meta::parse(bytes).map(|meta| meta.parent()) else { return true };
        let catalog = self.catalog.read();
        let mut line = std::iter::successors(Some(parent), |&above| catalog.tree_parent(above));
        catalog.is_visible(parent) && !line.any(|above| above == id)
    }

    /// The parent that metadata names anew, if that would hide a conversation which is shown.
    fn hidden_parent(&self, id: ConversationId, bytes: &[u8]) -> Option<ConversationId> {
        let Ok(Parent::Of(parent)) = Meta::parse(bytes).map(|meta| meta.parent()) else { return None };
        let catalog = self.catalog.read();
        let (item, above) = (catalog.get(id)?, catalog.get(parent)?);
        let moves = catalog.tree_parent(id) != Some(parent) && item.partition == above.partition;
        // Where a program has put it counts more than what the file says.
        let is_shown = catalog.is_visible(id) && !catalog.is_given(id);
        (moves && is_shown && !catalog.is_visible(parent)).then_some(parent)
    }

    pub(super) fn drafts_that(&self, are: impl Fn(&Draft) -> bool) -> Vec<(ConversationId, ManagedFile)> {
        self.drafts.lock().iter().filter(|(_, draft)| are(draft)).map(|(&key, _)| key).collect()
    }

    /// What is written goes on from here.
    fn begin_draft(&self, id: ConversationId, file: ManagedFile) -> Result<(Draft, Current)> {
        let (path, bytes) = self.read_current(id, file)?;
        Ok((Draft::of(bytes.clone(), self.now()), (path, bytes)))
    }

    /// What a file has that whoever replaces it has seen: what the store has is kept before the new bytes take its place,
    /// unless it is this.
    fn base_of(&self, unseen: Option<Unseen>, id: ConversationId, file: ManagedFile, begun: &Draft) -> Option<Digest> {
        match (unseen, self.draft(id, file)) {
            (Some(unseen), _) => unseen.last_shown,
            (None, Some(draft)) => draft.base,
            (None, None) => begun.base,
        }
    }

    /// Commits a draft that is whole, and keeps one that is not. A failure of the disk leaves everything as it was, which
    /// `before` tells from how it is.
    fn settle(
        &self,
        caller: Caller,
        guard: &Guard,
        file: ManagedFile,
        mut draft: Draft,
        at_hand: AtHand<'_>,
        before: impl FnOnce(Draft) -> Option<Draft>,
    ) -> Result<Outcome> {
        let id = guard.id();
        let bytes = draft.bytes.clone();
        let whole = match draft::is_half(file, &bytes) {
            // Where exactly it breaks off is told when somebody asks, not for every piece of a file being written.
            true => Err(None),
            false => Document::of(file, &bytes).map_err(Some),
        };
        let grown = at_hand.grown;
        let mut wrote = false;
        let reason = match whole {
            Err(reason) => reason,
            Ok(document) => {
                self.drafts.lock().insert((id, file), draft.clone());
                let kept = self.keep_whole(id, file, &draft, grown);
                wrote = matches!(kept, Ok(true));
                match kept.and_then(|_| self.commit(caller, guard, id, &draft, document, at_hand)) {
                    Ok(handed_over) => {
                        self.tried.lock().remove(&(id, file));
                        if let Err(error) = self.drop_draft(id, file) {
                            // The store has the very bytes that stay on disk as a draft.
                            tracing::warn!(%id, file = file.name(), %error, "a draft stays behind that was committed");
                        }
                        if file == ManagedFile::Metadata {
                            self.tend_refused(caller);
                        }
                        return Ok(Outcome::Committed { handed_over });
                    }
                    Err(FsError::Store(jp_store::Error::Refused(text))) => Some(JsonError::new(text)),
                    Err(FsError::Store(jp_store::Error::Invalid { reason, .. })) => Some(reason),
                    Err(error) => {
                        let is_busy = error.errno() == libc::EBUSY;
                        let waiting = Draft { waiting: true, ..draft.clone() };
                        // Where its conversation is gone there is nothing to wait for.
                        if error.is_absent() || self.keep_waiting(id, file, waiting, wrote).is_err() {
                            self.take_back(id, file, wrote, before(draft));
                            return Err(error);
                        }
                        if is_busy {
                            return Err(FsError::Busy);
                        }
                        tracing::debug!(%id, file = file.name(), %error, "a save waits as a draft");
                        return Ok(Outcome::Waits(error));
                    }
                }
            }
        };
        drop(bytes);
        draft.reason = reason.clone();
        draft.waiting = false;
        draft.kept = false;
        let grown = if reason.is_none() { grown } else { None };
        if let Err(error) = self.write_through(id, file, &draft, grown) {
            if !wrote {
                self.take_back(id, file, false, before(draft));
                return Err(error);
            }
            // Its file has the bytes, and gets the reason when there is room.
            self.drafts.lock().insert((id, file), Draft { on_disk: OnDisk::Yes, ..draft });
        }
        Ok(Outcome::Kept(reason.unwrap_or_else(|| JsonError::new("the document is not whole"))))
    }

    /// Commits or keeps a draft whose conversation nobody is writing to.
    pub(super) fn settle_as_is(
        &self,
        caller: Caller,
        guard: &Guard,
        file: ManagedFile,
        draft: Draft,
    ) -> Result<Outcome> {
        self.settle(caller, guard, file, draft, AtHand::default(), Some)
    }

    /// Makes the store's file these bytes, unaltered. `true` if the file that was ready has become it.
    fn commit(
        &self,
        caller: Caller,
        guard: &Guard,
        id: ConversationId,
        draft: &Draft,
        document: Document<'_>,
        at_hand: AtHand<'_>,
    ) -> Result<bool> {
        let file = document.file();
        let writer = self.writer.on_behalf_of(caller.pid);
        let (path, current) = match at_hand.current {
            Some(current) => current,
            None => self.read_current(id, file)?,
        };
        let same = current.as_deref() == Some(document.bytes());
        if let Some(current) = &current
            && !same
            && draft.base != Some(Digest::of(current))
        {
            // Somebody else saved since this draft began. The later save counts; the other is kept.
            writer.keep(id, "overtaken-store", file.name(), current)?;
        }
        let dir = path.parent().unwrap_or(Path::new("")).to_owned();
        let shape = file == ManagedFile::Metadata && self.changes_shape(id, current.as_deref(), document.bytes());
        let mut handed_over = false;
        if shape {
            if let Some(parent) = self.hidden_parent(id, document.bytes()) {
                return Err(jp_store::Error::Refused(format!("{parent} is hidden here, and would hide {id}")).into());
            }
            if !self.reshape(&writer, guard, Shape::Bytes(document.bytes()))? {
                writer.replace(guard, file, document.bytes())?;
                self.look_after_shape(id)?;
            }
            self.honour_place(&writer, guard, id)?;
        } else if !same {
            let about = |new: &Stat| self.expect(&path, (new.ino, new.size, new.mtime, new.mode));
            if let Some(Ready { path, on_disk }) = at_hand.ready {
                let ready = ReadyFile { path, on_disk: *on_disk };
                handed_over = writer.save_file(guard, &dir, document, ready, &about)?;
            }
            if !handed_over {
                writer.save(guard, &dir, document, &about)?;
            }
        }
        if !handed_over && !at_hand.written {
            self.tell(vec![crate::catalog::Stale::Content(Node::Managed(id, file))]);
        }
        Ok(handed_over)
    }

    /// The store's file as it is now, and where. Its directory may have been renamed beside us.
    pub(super) fn read_current(&self, id: ConversationId, file: ManagedFile) -> Result<Current> {
        for patience in [true, false] {
            let dir = self.item(id)?.dir;
            let path = dir.join(file.name());
            match self.backing.read_all(&path) {
                Ok(bytes) => return Ok((path, Some(bytes))),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    if self.backing.stat(&dir).is_ok() {
                        return Ok((path, None));
                    }
                    if patience {
                        self.look_at_names()?;
                    }
                }
                Err(error) => return Err(error).context("read", &path).map_err(FsError::from),
            }
        }
        Err(FsError::Stale)
    }

    /// Whether metadata says anything new about title, parent or origin: then names and the tree have to follow.
    fn changes_shape(&self, id: ConversationId, old: Option<&[u8]>, new: &[u8]) -> bool {
        if self.catalog.read().is_given(id) && !self.is_new(id) {
            return true;
        }
        let (Some(Ok(old)), Ok(new)) = (old.map(Meta::parse), Meta::parse(new)) else { return true };
        let shape =
            |meta: &Meta| (meta.title().map(ToOwned::to_owned), meta.parent(), meta.origin().map(str::to_owned));
        // A change that was cut short may have left the name behind.
        let named = self.item(id).is_ok_and(|item| item.name == *id.dirname(new.title()));
        !named || shape(&old) != shape(&new) || matches!(new.parent(), Parent::Garbage(_))
    }

    /// A conversation that a program has put somewhere belongs there, whatever its file says or leaves out.
    fn honour_place(&self, writer: &Writer, guard: &Guard, id: ConversationId) -> Result<()> {
        let (given, natural) = {
            let catalog = self.catalog.read();
            if !catalog.is_given(id) {
                return Ok(());
            }
            (catalog.place(id).and_then(|(dir, _)| dir.parent()), catalog.tree_parent(id))
        };
        if given != natural && !self.is_new(id) {
            let shape = Shape::Place { parent: Some(given), title: None };
            if !self.reshape(writer, guard, shape)? {
                writer.reparent(guard, given)?;
                self.look_after_shape(id)?;
            }
        }
        let stale = self.catalog.write().give(id, None);
        self.tell(stale);
        Ok(())
    }

    /// Whether it was taken in by this mount, for a program that is still at work on it.
    fn is_new(&self, id: ConversationId) -> bool {
        self.fresh.lock().get(&id).is_some_and(|fresh| fresh.new)
    }

    /// A draft that waited for a lock. If the store has moved on since it began, both were saved and the later one counts.
    fn try_waiting(&self, id: ConversationId, file: ManagedFile) -> Result<()> {
        let _room = self.room(id).lock_arc();
        let Some(draft) = self.draft(id, file).filter(|draft| draft.waiting) else { return Ok(()) };
        let caller = Caller { pid: std::process::id() };
        let guard = self.lock(caller, id)?;
        let (_, current) = self.read_current(id, file)?;
        let moved_on = current.as_deref().map(Digest::of) != draft.base;
        if moved_on && current.as_deref() != Some(&**draft.bytes) {
            self.writer.keep(id, "overtaken-draft", file.name(), &draft.bytes)?;
            self.drop_draft(id, file)?;
            self.tell(vec![crate::catalog::Stale::Content(Node::Managed(id, file))]);
            return Ok(());
        }
        match self.settle(caller, &guard, file, draft, AtHand::default(), Some)? {
            Outcome::Waits(error) => {
                self.tried.lock().insert((id, file), Instant::now());
                Err(error)
            }
            Outcome::Committed { .. } | Outcome::Kept(_) => Ok(()),
        }
    }
}

/// The conversation whose lock a change of this node takes.
fn locked(node: &Node) -> Option<ConversationId> {
    let is_locked = matches!(node, Node::Own(..) | Node::Managed(..) | Node::Conversation(_));
    node.conversation().filter(|_| is_locked)
}

impl Hold {
    /// The lock on a conversation, if one was needed.
    pub(super) fn guard(&self, id: ConversationId) -> Option<&Guard> {
        self.guards.iter().find(|guard| guard.id() == id)
    }
}
