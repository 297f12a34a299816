//! Looking at the store: everything at once in the beginning, then only what is said to have changed. What is seen goes into
//! the catalog, and what that makes stale is told.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;

use jp_store::ConversationId;
use jp_store::books::{Books, BooksLook};
use jp_store::conversation::Conversation;
use jp_store::disk::{self, Kind};
use jp_store::error::Context as _;
use jp_store::journal::Change;
use jp_store::layout::Partition;
use jp_store::lock::Guard;
use jp_store::meta::Meta;
use jp_store::path_text::to_path;
use jp_store::presence::Projection;
use jp_store::problem::What;
use jp_store::reconcile::ManagedFile;
use jp_store::snapshot::Snapshot;
use jp_store::store::Store;
use jp_store::writer::{Found, Known, Reshaped, Shape, Writer};

use super::{Noticed, Sight, Vfs, mark};
use crate::caller::Caller;
use crate::catalog::{Item, Stale};
use crate::error::Result;
use crate::node::{Dir, Node};

/// How often a change is tried again that finds the books written meanwhile.
const PATIENCE: usize = 4;

/// What somebody has just seen.
#[derive(Debug)]
pub struct Seen {
    snapshot: Snapshot,
    /// How the books looked before.
    books: BooksLook,
}

impl Seen {
    /// Looks at everything.
    pub fn of(store: &Store) -> Result<Self> {
        let books = store.look_at_books()?;
        Ok(Self { snapshot: store.snapshot()?, books })
    }

    /// Has everything looked at by whoever makes the store ready for a mount and needs to look for that anyway; looks itself
    /// where that one has nothing to show.
    pub fn by<T>(store: &Store, look: impl FnOnce() -> Result<(T, Option<Snapshot>)>) -> Result<(T, Self)> {
        // From before, so that whatever changes meanwhile is news.
        let books = store.look_at_books()?;
        let (done, snapshot) = look()?;
        let seen = match snapshot {
            Some(snapshot) => Self { snapshot, books },
            None => Self::of(&store.covered())?,
        };
        Ok((done, seen))
    }

    /// The store's metadata, taken out, so that it can be written down.
    pub fn take_found(&mut self) -> Found {
        self.snapshot.take_found()
    }
}

impl Vfs {
    /// Takes in what a watch has seen. Files are looked at even where what is shown of them could not be.
    pub fn notice(&self, noticed: Noticed) -> Result<()> {
        let looked = self.notice_shape(&noticed);
        let stale = if noticed.everything {
            self.doubt_everything()
        } else {
            let known =
                if noticed.dirs.is_empty() { Vec::new() } else { self.inodes.lock().known_inside(&noticed.dirs) };
            let files: HashSet<_> = known.into_iter().chain(noticed.files.iter().cloned()).collect();
            let files = files.iter().flat_map(|(id, inner)| self.look_at_file(*id, inner));
            files.chain(noticed.modes.iter().flat_map(stale_modes)).collect()
        };
        self.tell(stale);
        looked?;
        if noticed.is_shape() || noticed.has_metadata() {
            self.tend_refused(Caller { pid: std::process::id() });
        }
        Ok(())
    }

    /// Names, titles, parents, and what is shown.
    fn notice_shape(&self, noticed: &Noticed) -> Result<()> {
        if noticed.everything || noticed.shape {
            return self.look_at_all();
        }
        let covered = self.writer.store().layout().covered;
        if !covered && (noticed.is_shape() || noticed.has_metadata()) {
            // The real files have a say too, and only a whole look weighs them.
            return self.look_at_all();
        }
        if noticed.books {
            self.look_at_books()?;
        }
        if noticed.all_names {
            self.look_at_names()?;
        } else if !noticed.names.is_empty() {
            self.look_at_some(&noticed.names)?;
        }
        Ok(())
    }

    /// The beginning: what somebody has just seen, or everything.
    pub(super) fn begin(&self, seen: Option<Seen>) -> Result<()> {
        let Seen { mut snapshot, books } = match seen {
            Some(seen) => seen,
            None => Seen::of(self.writer.store())?,
        };
        let mut sight = self.sight.lock();
        sight.take_in(&mut snapshot, books);
        let look = |stat: disk::Stat| (stat.ino, stat.size, stat.mtime, stat.ctime);
        *self.first.lock() = snapshot.all().map(|found| (found.id, found.looked.map(look))).collect();
        self.catalog.write().fill(snapshot.all().filter_map(|found| Some((found.id, item(&sight, found)?))));
        // To take it apart takes as long as to list it, and nobody should wait for that. Without a thread it is done here.
        let _ = thread::Builder::new().spawn(move || drop(snapshot));
        Ok(())
    }

    /// Compares what was seen in the beginning with what is there by now. Whoever watches calls this once nothing escapes
    /// any more; from then on the kernel may remember what it is told.
    pub fn catch_up(&self) -> Result<()> {
        let first = std::mem::take(&mut *self.first.lock());
        let mut noticed = Noticed { all_names: true, books: true, ..Noticed::default() };
        for (id, before) in first {
            let Ok(path) = self.path(&Node::Managed(id, ManagedFile::Metadata)) else { continue };
            let now = self.backing.stat(&path).ok();
            let now = now.map(|stat| (stat.ino, stat.size, stat.mtime, stat.ctime));
            if before.is_none() || now != before {
                noticed.files.insert((id, PathBuf::from(ManagedFile::Metadata.name())));
            }
        }
        let result = self.notice(noticed);
        self.suspect_all();
        self.settled.store(true, Ordering::SeqCst);
        // What the kernel was told until now it was told not to remember, but it keeps the contents of what it has read.
        let known: Vec<_> = self.inodes.lock().all_known().into_iter().filter(has_content).collect();
        self.outbox.send(known.into_iter().map(Stale::Content).collect());
        result
    }

    /// Whether the kernel may remember what it is told: whatever changes is noticed, and told.
    pub fn is_settled(&self) -> bool {
        self.settled.load(Ordering::SeqCst)
    }

    /// Everything, by way of a snapshot of the store.
    pub(super) fn look_at_all(&self) -> Result<()> {
        let mut sight = self.sight.lock();
        self.look_at_all_with(&mut sight)
    }

    fn look_at_all_with(&self, sight: &mut Sight) -> Result<()> {
        let Seen { mut snapshot, books } = Seen::of(self.writer.store())?;
        sight.take_in(&mut snapshot, books);
        let mut seen = HashSet::new();
        let mut stale = Vec::new();
        for found in snapshot.all() {
            let Some(item) = item(sight, found) else { continue };
            seen.insert(found.id);
            stale.extend(self.follow_store(found.id, Some(item)));
        }
        let gone: Vec<_> = {
            let catalog = self.catalog.read();
            let gone = |id: &ConversationId| !seen.contains(id) && catalog.get(*id).is_some_and(|item| !item.pending);
            catalog.ids().filter(gone).collect()
        };
        for id in gone {
            stale.extend(self.catalog.write().apply(id, None));
        }
        self.tell(stale);
        Ok(())
    }

    /// Directories of conversations, by name.
    pub(super) fn look_at_names(&self) -> Result<()> {
        let mut sight = self.sight.lock();
        self.look_at_names_with(&mut sight, None)
    }

    /// These directories of conversations alone.
    fn look_at_some(&self, dirs: &HashSet<PathBuf>) -> Result<()> {
        let mut sight = self.sight.lock();
        self.look_at_some_with(&mut sight, dirs)
    }

    /// A conversation has arrived, in this directory.
    pub(super) fn look_after_arrival(&self, dir: PathBuf) -> Result<()> {
        if !self.writer.store().layout().covered {
            return self.look_at_all();
        }
        let mut sight = self.sight.lock();
        self.look_at_books_with(&mut sight)?;
        self.look_at_some_with(&mut sight, &HashSet::from([dir]))
    }

    /// Gives a conversation another title or parent, and lets the catalog follow. `false`, and nothing is done, where that
    /// takes a look at everything.
    pub(super) fn reshape(&self, writer: &Writer, guard: &Guard, shape: Shape<'_>) -> Result<bool> {
        let id = guard.id();
        let mut sight = self.sight.lock();
        let mut done = None;
        if sight.doubled {
            return Ok(false);
        }
        for _ in 0..PATIENCE {
            let dir = |id| Some(self.catalog.read().get(id).filter(|item| !item.pending)?.dir.clone());
            let about = |path: &Path, new: &disk::Stat| self.expect(path, (new.ino, new.size, new.mtime, new.mode));
            done = writer.reshape(guard, shape, Known { books: &sight.books, dir: &dir, about: &about })?;
            if done.is_some() || sight.books.is_current(self.writer.store())? {
                break;
            }
            self.look_at_books_with(&mut sight)?;
        }
        let Some(Reshaped { dir, name, title, parent }) = done else { return Ok(false) };
        let item = Item { name: name.into(), parent, title, dir, ..self.item(id)? };
        let stale = self.catalog.write().apply(id, Some(item));
        drop(sight);
        self.tell(stale);
        Ok(true)
    }

    /// After a change of title, parent or partition of our own: the books first, then names, then the conversation itself.
    pub(super) fn look_after_shape(&self, id: ConversationId) -> Result<()> {
        if !self.writer.store().layout().covered {
            return self.look_at_all();
        }
        let mut sight = self.sight.lock();
        self.look_at_books_with(&mut sight)?;
        self.look_at_names_with(&mut sight, Some(id))
    }

    fn look_at_books(&self) -> Result<()> {
        let mut sight = self.sight.lock();
        self.look_at_books_with(&mut sight)
    }

    fn look_at_names_with(&self, sight: &mut Sight, also: Option<ConversationId>) -> Result<()> {
        let mut found: BTreeMap<ConversationId, (Partition, OsString, PathBuf)> = BTreeMap::new();
        let mut twice = false;
        for partition in Partition::ALL {
            let dir = self.writer.store().layout().store.partition(partition);
            let listed = match self.backing.list(&dir) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                listed => listed.context("list", &dir)?,
            };
            for (name, kind) in listed {
                let dotted = name.as_encoded_bytes().starts_with(b".");
                let Some(id) = ConversationId::from_dirname(&name).filter(|_| kind == Kind::Dir && !dotted) else {
                    continue;
                };
                let path = dir.join(&name);
                twice |= found.insert(id, (partition, name, path)).is_some();
            }
        }
        if twice {
            // Which of two directories counts is for the store to say.
            return self.look_at_all_with(sight);
        }
        sight.doubled = false;
        let mut stale = Vec::new();
        let gone: Vec<_> = {
            let catalog = self.catalog.read();
            let gone =
                |id: &ConversationId| !found.contains_key(id) && catalog.get(*id).is_some_and(|item| !item.pending);
            catalog.ids().filter(gone).collect()
        };
        for id in gone {
            stale.extend(self.catalog.write().apply(id, None));
        }
        for (id, (partition, name, dir)) in found {
            let same = self.catalog.read().get(id).is_some_and(|item| item.dir == dir && !item.pending);
            if !same || also == Some(id) {
                let item = self.look_at(sight, id, partition, name, dir);
                stale.extend(self.follow_store(id, Some(item)));
            }
        }
        self.tell(stale);
        Ok(())
    }

    /// Lets the catalog follow what the store has of a conversation. While a copy arrives of one that is not shown here, that
    /// copy is what is there.
    fn follow_store(&self, id: ConversationId, item: Option<Item>) -> Vec<Stale> {
        let mut catalog = self.catalog.write();
        let arriving = catalog.get(id).is_some_and(|item| item.pending);
        if arriving && item.as_ref().is_some_and(|item| !item.shown) { Vec::new() } else { catalog.apply(id, item) }
    }

    /// Where the store has a conversation.
    pub(super) fn stored_dir(&self, id: ConversationId) -> Result<Option<PathBuf>> {
        for partition in Partition::ALL {
            let dir = self.writer.store().layout().store.partition(partition);
            let listed = match self.backing.list(&dir) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                listed => listed.context("list", &dir)?,
            };
            let its =
                |(name, kind): &(OsString, Kind)| *kind == Kind::Dir && ConversationId::from_dirname(name) == Some(id);
            if let Some((name, _)) = listed.into_iter().find(its) {
                return Ok(Some(dir.join(name)));
            }
        }
        Ok(None)
    }

    fn look_at_some_with(&self, sight: &mut Sight, dirs: &HashSet<PathBuf>) -> Result<()> {
        if sight.doubled {
            // One that is gone may leave another of the same conversation.
            return self.look_at_names_with(sight, None);
        }
        let mut by_id: BTreeMap<ConversationId, BTreeSet<PathBuf>> = BTreeMap::new();
        for dir in dirs {
            if let Some(id) = dir.file_name().and_then(ConversationId::from_dirname) {
                by_id.entry(id).or_default().insert(dir.clone());
            }
        }
        let mut stale = Vec::new();
        for (id, mut dirs) in by_id {
            let known = self.catalog.read().get(id).filter(|item| !item.pending).map(|item| item.dir.clone());
            dirs.extend(known.clone());
            let mut there = Vec::new();
            for dir in dirs {
                match self.backing.stat(&dir) {
                    Ok(stat) if stat.kind == Kind::Dir => there.push(dir),
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(error).context("look at", &dir).map_err(Into::into);
                    }
                    Ok(_) | Err(_) => {}
                }
            }
            let item = match &there[..] {
                [] if known.is_none() => continue,
                [] => None,
                [dir] if known.as_ref() == Some(dir) => continue,
                [dir] => {
                    let archived =
                        dir.parent() == Some(&*self.writer.store().layout().store.partition(Partition::Archived));
                    let partition = if archived { Partition::Archived } else { Partition::Live };
                    let name = dir.file_name().unwrap_or_default().to_owned();
                    Some(self.look_at(sight, id, partition, name, dir.clone()))
                }
                // Which of them counts is for the store to say.
                [_, _, ..] => {
                    self.tell(stale);
                    return self.look_at_all_with(sight);
                }
            };
            stale.extend(self.follow_store(id, item));
        }
        self.tell(stale);
        Ok(())
    }

    /// One conversation in its directory.
    fn look_at(&self, sight: &Sight, id: ConversationId, partition: Partition, name: OsString, dir: PathBuf) -> Item {
        let bytes = self.backing.read_all(&dir.join(ManagedFile::Metadata.name())).ok();
        let meta = bytes.and_then(|bytes| Meta::parse(&bytes).ok());
        let entry = sight.books.ledger.get(id);
        Item {
            partition,
            name,
            parent: sight.books.mirror.effective_parent(id, meta.as_ref(), None),
            shown: entry.is_some_and(|entry| entry.intent == Projection::Projected),
            title: meta.as_ref().and_then(Meta::title).map(ToOwned::to_owned),
            dir,
            pending: false,
            hidden: entry.map(|entry| entry.hidden.clone()).unwrap_or_default().into(),
        }
    }

    /// The mirror and the ledger, if they are not as they were seen.
    fn look_at_books_with(&self, sight: &mut Sight) -> Result<()> {
        let changed = sight.books.follow(self.writer.store())?;
        let mut stale = Vec::new();
        let mut shown_instead = false;
        for id in changed {
            let Some(item) = self.catalog.read().get(id).cloned() else { continue };
            if item.pending {
                // A command may show the store's conversation while a copy of it that is held has its name.
                shown_instead |= sight.books.ledger.get(id).is_some_and(|it| it.intent == Projection::Projected);
                continue;
            }
            let mut new = item.clone();
            if sight.books.mirror.parent(id) != item.parent {
                new = self.look_at(sight, id, item.partition, item.name.clone(), item.dir.clone());
            }
            let entry = sight.books.ledger.get(id);
            new.shown = entry.is_some_and(|entry| entry.intent == Projection::Projected);
            if !entry.map_or(item.hidden.is_empty(), |entry| entry.hidden == *item.hidden) {
                new.hidden = entry.map(|entry| entry.hidden.clone()).unwrap_or_default().into();
            }
            if new != item {
                stale.extend(hidden_names(id, &item, &new));
                stale.extend(self.catalog.write().apply(id, Some(new)));
            }
        }
        self.tell(stale);
        if shown_instead { self.look_at_names_with(sight, None) } else { Ok(()) }
    }

    /// One file of a conversation. What we did ourselves is no news.
    fn look_at_file(&self, id: ConversationId, inner: &Path) -> Vec<Stale> {
        let Ok(item) = self.item(id) else { return Vec::new() };
        let path = item.dir.join(inner);
        let now = self.backing.stat(&path).ok();
        if now.is_none() {
            self.suspect(id, inner);
        }
        if self.is_own_doing(id, inner, &path, now.as_ref()) {
            return Vec::new();
        }
        if inner == Path::new(ManagedFile::Metadata.name()) && !item.pending && self.writer.store().layout().covered {
            let sight = self.sight.lock();
            // Whoever had the sight until now may have moved it.
            let Ok(item) = self.item(id) else { return Vec::new() };
            let item = self.look_at(&sight, id, item.partition, item.name, item.dir);
            let stale = self.catalog.write().apply(id, Some(item));
            self.tell(stale);
        }
        self.stale_file(id, inner, now.map(|stat| stat.kind))
    }

    /// Whether a file of the store is as we left it, and the kernel knows. What another process made of it meanwhile may be
    /// what the kernel heard last.
    fn is_own_doing(&self, id: ConversationId, inner: &Path, path: &Path, now: Option<&crate::backing::Stat>) -> bool {
        let mut echo = self.echo.lock();
        let Some(left) = echo.get_mut(path) else { return false };
        let is_as_left = match (left, now) {
            (Some(left), Some(now)) => {
                let same = left.mark == mark(now) && left.changed.is_none_or(|changed| changed == now.ctime);
                if same {
                    left.changed = Some(now.ctime);
                }
                same
            }
            (left, now) => left.is_none() && now.is_none(),
        };
        if !is_as_left {
            if now.is_none() || echo[path].is_none() {
                // Somebody took it, or made it again; that it comes back as it was, or goes once more, is news.
                echo.remove(path);
            }
            return false;
        }
        drop(echo);
        let Some(node) = self.inside(id, inner.to_owned()) else { return true };
        let inodes = self.inodes.lock();
        if now.is_none() { inodes.known_kind(&node).is_none() } else { !inodes.was_told_absent(&node) }
    }

    /// Whether a name that nothing has is one that we left to something: somebody else took it, and when it comes back that
    /// is news.
    pub(super) fn is_taken_away(&self, node: &Node) -> bool {
        if !matches!(node, Node::Own(..) | Node::Managed(..)) {
            return false;
        }
        let Ok(path) = self.path(node) else { return false };
        let mut echo = self.echo.lock();
        let is_left = echo.get(&path).is_some_and(Option::is_some);
        if is_left {
            echo.remove(&path);
        }
        is_left
    }

    /// What the kernel must not remember of a file that is this now, or not there.
    pub(super) fn stale_file(&self, id: ConversationId, inner: &Path, now: Option<Kind>) -> Vec<Stale> {
        let Some(name) = inner.file_name() else { return Vec::new() };
        let dir = match inner.parent() {
            Some(above) if !above.as_os_str().is_empty() => Node::Own(id, above.to_owned()),
            Some(_) | None => Node::Conversation(id),
        };
        let mut stale = vec![Stale::Content(dir.clone())];
        let node = self.inside(id, inner.to_owned());
        let is_listed = matches!(node, Some(Node::Own(..))) && now.is_some_and(|kind| kind != Kind::Other);
        if matches!(dir, Node::Own(..)) && self.is_given_wrong(&dir, name, is_listed) {
            self.touch(&dir);
        }
        let known = node.as_ref().and_then(|node| self.inodes.lock().known_kind(node));
        if known != now {
            // It came, went, or is of another kind; otherwise the name stands for what it stood for.
            stale.push(Stale::Name(dir, name.to_owned()));
        }
        stale.extend(node.map(Stale::Content));
        stale
    }

    /// Whether the kernel may keep a listing of a directory that is wrong about a name. It does so until the directory has another
    /// time, and on disk that may be the same: clocks of filesystems tick slowly, and we were there with a faster one.
    fn is_given_wrong(&self, dir: &Node, name: &OsStr, is_listed: bool) -> bool {
        let Some(number) = self.known(dir) else { return false };
        self.listings.lock().is_given_wrong(number, name, is_listed)
    }

    /// Writes down what is shown and hidden here, and lets the catalog follow.
    pub(super) fn note(&self, changes: &[Change]) -> Result<()> {
        let mut sight = self.sight.lock();
        self.writer.note(changes)?;
        let mut stale = Vec::new();
        for change in changes {
            // The next look at the books reads it again, which changes nothing.
            change.apply(&mut sight.books.ledger);
            let mut catalog = self.catalog.write();
            match change {
                Change::HideFile(id, file) => catalog.set_hidden(*id, file, true),
                Change::ShowFile(id, file) => catalog.set_hidden(*id, file, false),
                Change::Show(id) | Change::Hide(id) => {
                    stale.extend(catalog.put_away(*id, matches!(change, Change::Hide(_))));
                    let Some(mut item) = catalog.get(*id).cloned() else { continue };
                    let entry = sight.books.ledger.get(*id);
                    item.shown = entry.is_some_and(|entry| entry.intent == Projection::Projected);
                    item.hidden = entry.map(|entry| entry.hidden.clone()).unwrap_or_default().into();
                    stale.extend(catalog.apply(*id, Some(item)));
                }
                Change::LastShown(..) | Change::Cover => {}
            }
        }
        drop(sight);
        self.tell(stale);
        Ok(())
    }
}

/// The names that a change of what is hidden concerns.
fn hidden_names(id: ConversationId, old: &Item, new: &Item) -> Vec<Stale> {
    let names = old.hidden.symmetric_difference(&new.hidden).map(|text| to_path(text));
    names
        .filter_map(|inner| {
            let dir = match inner.parent() {
                Some(above) if !above.as_os_str().is_empty() => Node::Own(id, above.to_owned()),
                Some(_) | None => Node::Conversation(id),
            };
            // The kernel keeps a listing if it has no entry of the name.
            Some([Stale::Name(dir.clone(), inner.file_name()?.to_owned()), Stale::Content(dir)])
        })
        .flatten()
        .collect()
}

impl Sight {
    /// Takes in everything that was seen.
    fn take_in(&mut self, snapshot: &mut Snapshot, looked: BooksLook) {
        self.books = Books::take(snapshot, looked);
        self.doubled = snapshot.problems().iter().any(|problem| matches!(problem.what, What::Duplicate));
    }
}

/// What is shown of a conversation that the store has.
fn item(sight: &Sight, found: &Conversation) -> Option<Item> {
    let place = found.store.as_ref()?;
    Some(Item {
        partition: place.partition,
        name: place.name.clone(),
        parent: found.parent,
        shown: found.intent == Projection::Projected,
        title: found.title().map(ToOwned::to_owned),
        dir: place.dir.clone(),
        pending: false,
        hidden: sight.books.ledger.get(found.id).map(|entry| entry.hidden.clone()).unwrap_or_default().into(),
    })
}

/// What the kernel must not remember of a directory that may have another mode: what is made of it looks like it.
pub(super) fn stale_modes(dir: &Node) -> Vec<Stale> {
    let like_it = match dir {
        Node::Conversation(id) => Some(Node::Children(Dir::Of(*id))),
        Node::Children(Dir::Root) => Some(Node::Children(Dir::Archive)),
        _ => None,
    };
    std::iter::once(dir.clone()).chain(like_it).map(Stale::Attr).collect()
}

/// Whether a node has something to read that does not follow from the catalog.
pub(super) fn has_content(node: &Node) -> bool {
    !matches!(node, Node::Children(_) | Node::Alias(..))
}
