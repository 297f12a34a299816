//! What the mount answers. Requests name nodes by number, as kernels do; nothing here knows which kernel asks, and all state
//! belongs to nodes, none to whoever has them open.
//!
//! # Locks
//!
//! `refreshing` first, then a conversation's room, then its lock in the store, then `sight`; the tables (`catalog`, `inodes`, `drafts`, `kept`,
//! `clean`, `fresh`, `touched`, `suspects`, `shifts`, `listings`, `echo`, `aware`, `seen`) last, for a moment each and never one inside
//! another. What goes stale is handed to a thread of its own, so that no lock is held while the kernel is told.

mod around;
mod attr;
mod dirs;
mod drafts;
mod files;
mod find;
mod former;
mod hidden;
mod list;
mod look;
mod named;
mod noticed;
mod persist;
mod remove;
mod rename;
mod save;
mod scratch;
mod xattr;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, ThreadId};
use std::time::Instant;

use jp_store::ConversationId;
use jp_store::books::Books;
use jp_store::disk::Kind;
use jp_store::error::Context as _;
use jp_store::lock::{Guard, Wait};
use jp_store::reconcile::ManagedFile;
use jp_store::writer::Writer;
use parking_lot::{Mutex, RwLock};

pub use attr::{Attr, SetAttr};
pub use dirs::ArrivalNote;
pub use drafts::Handled;
pub use files::Opening;
pub use find::{Found, Lookup};
pub use look::Seen;
pub use noticed::Noticed;
pub use rename::Rename;

use crate::ahead::Ahead;
use crate::backing::{Backing, Stat};
use crate::caller::Caller;
use crate::catalog::{Catalog, Item, Stale};
use crate::draft::Draft;
use crate::error::{FsError, Result};
use crate::inodes::Inodes;
use crate::listings::Listings;
use crate::node::{Dir, Home, Node};
use crate::renames::Renames;
use crate::teller::Outbox;

/// What the mount may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Nothing can be changed.
    pub read_only: bool,
    /// Also show what is not meant to be shown here.
    pub all: bool,
    /// A save that is no document fails.
    pub strict: bool,
    /// Answers extended attributes.
    pub xattrs: bool,
}

/// The filesystem.
#[derive(Debug)]
pub struct Vfs {
    rules: Rules,
    writer: Writer,
    backing: Arc<dyn Backing>,
    /// Where the real files beneath the mount are reached.
    under: PathBuf,
    /// This worktree's state in the store.
    state: PathBuf,
    outbox: Outbox,
    /// When the mount began: directories of conversations have not changed before.
    began: i64,
    catalog: RwLock<Catalog>,
    inodes: Mutex<Inodes>,
    renames: Renames,
    drafts: Mutex<HashMap<(ConversationId, ManagedFile), Draft>>,
    /// Of which files there is a draft on disk, whether or not that is the latest.
    kept: Mutex<HashSet<(ConversationId, ManagedFile)>>,
    /// Drafts that the store could not be written for when they were tried again, and since when.
    tried: Mutex<HashMap<(ConversationId, ManagedFile), Instant>>,
    /// One at a time brings drafts to disk by the way.
    refreshing: Mutex<()>,
    /// Files that nobody has written to since they were brought to disk.
    clean: Mutex<HashSet<Node>>,
    rooms: Mutex<HashMap<ConversationId, Arc<Mutex<()>>>>,
    fresh: Mutex<HashMap<ConversationId, Fresh>>,
    touched: Mutex<HashMap<Node, i64>>,
    suspects: Mutex<hidden::Suspects>,
    /// How often the content of a file has gone stale.
    shifts: Mutex<HashMap<Node, i64>>,
    listings: Mutex<Listings>,
    echo: Mutex<HashMap<PathBuf, Option<Left>>>,
    aware: Mutex<Vec<(ThreadId, Node, OsString)>>,
    sight: Mutex<Sight>,
    /// How files looked, where they are looked at again and again instead of being watched.
    seen: Mutex<around::Marks>,
    ahead: Ahead,
    /// A draft that the tree may have a place for by now was not tried again.
    missed: AtomicBool,
    /// Whatever changes beside the mount is noticed from now on, so the kernel may remember what it is told.
    settled: AtomicBool,
    /// How metadata looked in the beginning, until that has been compared with what is there.
    first: Mutex<Vec<(ConversationId, Option<Look>)>>,
}

/// What was last seen of the store's own books.
#[derive(Debug, Default)]
struct Sight {
    books: Books,
    /// Some conversation has two directories, and which one counts is for the store to say.
    doubled: bool,
}

/// A directory that a program has just made: to that program it is empty, as any directory is that one makes.
#[derive(Debug)]
struct Fresh {
    maker: u32,
    /// It is new, and was taken in where it was made; from then on its file says where it belongs.
    new: bool,
    made: BTreeSet<PathBuf>,
}

/// After so many nanoseconds the times of a file begin anew.
const SHIFTS: i64 = 1000;

/// What the names of old bytes begin with while an exchange lasts.
const SWAP: &str = "swap-";
/// What the names of files begin with that are open and have lost theirs.
const UNLINKED: &str = "unlinked-";

/// As long as this lives, the kernel knows of a name by itself.
struct Aware<'a>(&'a Vfs);

impl Drop for Aware<'_> {
    fn drop(&mut self) {
        let this = thread::current().id();
        self.0.aware.lock().retain(|(by, ..)| *by != this);
    }
}

/// Tells one state of a file from another for sure.
type Look = (u64, u64, i64, i64);

/// Tells one state of a file from another, by what a rename leaves as it is: it is known before the file gets its name.
type Mark = (u64, u64, i64, u32);

fn mark(stat: &Stat) -> Mark {
    (stat.ino, stat.size, stat.mtime, stat.mode)
}

/// How we left a file of the store.
#[derive(Clone, Copy, Debug)]
struct Left {
    mark: Mark,
    /// When anything of it changed last, once that is known. Whoever takes it away and brings it back changes that.
    changed: Option<i64>,
}

/// Whether a file in `orphans/` has a name that a mount gives: what else is there is somebody else's.
fn is_orphan_name(name: &OsStr) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.to_str().is_some_and(|name| {
        [UNLINKED, "make-", "move-"].iter().any(|start| name.strip_prefix(start).is_some_and(number))
            || name.strip_prefix(SWAP).and_then(|rest| rest.split_once('-')).is_some_and(|(id, _)| number(id))
    })
}

impl Vfs {
    /// A filesystem over a store that is ready to be changed. `under` is where the real files beneath the mount are
    /// reached. Everything is looked at once.
    pub fn new(
        writer: Writer,
        backing: Arc<dyn Backing>,
        under: PathBuf,
        rules: Rules,
        outbox: Outbox,
    ) -> Result<Self> {
        Self::with(writer, backing, under, rules, outbox, None)
    }

    /// As [`Vfs::new`], where somebody has just looked at everything: what that one saw is shown, and compared with what is
    /// there by [`Vfs::catch_up`].
    pub fn with(
        writer: Writer,
        backing: Arc<dyn Backing>,
        under: PathBuf,
        rules: Rules,
        outbox: Outbox,
        seen: Option<Seen>,
    ) -> Result<Self> {
        let state = writer.store().layout().worktree_state();
        let began = nanos(&writer);
        let vfs = Self {
            rules,
            writer: writer.putting_off(),
            backing,
            under,
            state,
            outbox,
            began,
            catalog: RwLock::new(Catalog::new(rules.all)),
            inodes: Mutex::default(),
            renames: Renames::default(),
            drafts: Mutex::default(),
            kept: Mutex::default(),
            refreshing: Mutex::default(),
            clean: Mutex::default(),
            rooms: Mutex::default(),
            fresh: Mutex::default(),
            touched: Mutex::default(),
            suspects: Mutex::default(),
            tried: Mutex::default(),
            shifts: Mutex::default(),
            listings: Mutex::default(),
            echo: Mutex::default(),
            aware: Mutex::default(),
            sight: Mutex::default(),
            seen: Mutex::default(),
            ahead: Ahead::default(),
            missed: AtomicBool::default(),
            settled: AtomicBool::default(),
            first: Mutex::default(),
        };
        vfs.prepare()?;
        vfs.begin(seen)?;
        vfs.load_arrivals()?;
        vfs.finish_moving()?;
        vfs.load_former();
        vfs.load_drafts()?;
        Ok(vfs)
    }

    /// The store it shows.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// How many conversations are shown.
    pub fn count_shown(&self) -> usize {
        self.catalog.read().count_shown()
    }

    /// The number of a node, if the kernel knows it.
    pub fn known(&self, node: &Node) -> Option<u64> {
        self.inodes.lock().known(node)
    }

    /// The kernel forgets a node as often as it says.
    pub fn forget(&self, number: u64, count: u64) {
        let gone = self.inodes.lock().forget(number, count);
        if let Some(node) = gone
            && let Ok(path) = self.path(&node)
            && let Err(error) = self.backing.remove(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::debug!(path = %path.display(), %error, "a file without a name stays behind");
        }
    }

    /// Directories of our own, without what an earlier mount had no use for any more.
    fn prepare(&self) -> Result<()> {
        if self.rules.read_only {
            return Ok(());
        }
        let is_new = self.backing.stat(&self.state.join("drafts")).is_err();
        for dir in ["drafts", "drafts/new", "scratch", "orphans"] {
            let dir = self.state.join(dir);
            self.backing.make_dirs(&dir).context("make directory", &dir)?;
        }
        if is_new {
            for dir in self.state.ancestors().take(2) {
                self.writer.names_changed(dir)?;
            }
        }
        let orphans = self.state.join("orphans");
        let listed = self.backing.list(&orphans).context("list", &orphans)?;
        for (name, _) in listed.into_iter().filter(|(name, kind)| *kind == Kind::File && is_orphan_name(name)) {
            let path = orphans.join(&name);
            self.keep_swap(&name, &path)?;
            self.backing.remove(&path).context("remove", &path)?;
        }
        Ok(())
    }

    /// The old bytes of an exchange that was cut short, unless the store still has them.
    fn keep_swap(&self, name: &OsStr, path: &Path) -> Result<()> {
        let found = name.to_str().and_then(|name| name.strip_prefix(SWAP)?.split_once('-'));
        let Some((id, file)) =
            found.and_then(|(id, file)| Some((crate::catalog::parse(id)?.0, ManagedFile::from_name(file)?)))
        else {
            return Ok(());
        };
        let bytes = self.backing.read_all(path).context("read", path)?;
        let known = self.writer.store().snapshot()?.get(id).and_then(|found| Some(found.store.clone()?.dir));
        let stored = known.and_then(|dir| self.backing.read_all(&dir.join(file.name())).ok());
        if stored.as_ref() == Some(&bytes) {
            Ok(())
        } else {
            self.writer.keep(id, "exchanged", file.name(), &bytes)?;
            Ok(())
        }
    }

    /// The time, in nanoseconds since the epoch.
    pub fn now(&self) -> i64 {
        nanos(&self.writer)
    }

    fn writable(&self) -> Result<()> {
        if self.rules.read_only { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// What is known of a conversation.
    fn item(&self, id: ConversationId) -> Result<Item> {
        self.catalog.read().get(id).cloned().ok_or(FsError::Stale)
    }

    /// Where a conversation's files are.
    fn dir_of(&self, id: ConversationId) -> Result<PathBuf> {
        self.catalog.read().get(id).map(|item| item.dir.clone()).ok_or(FsError::Stale)
    }

    /// Fails unless a conversation is shown.
    fn check_shown(&self, id: ConversationId) -> Result<()> {
        if self.catalog.read().is_visible(id) { Ok(()) } else { Err(FsError::Stale) }
    }

    /// What is known of a conversation that is shown.
    fn shown(&self, id: ConversationId) -> Result<Item> {
        let catalog = self.catalog.read();
        match catalog.get(id) {
            Some(item) if catalog.is_visible(id) => Ok(item.clone()),
            Some(_) | None => Err(FsError::Stale),
        }
    }

    /// The real file or directory behind a node.
    fn path(&self, node: &Node) -> Result<PathBuf> {
        match node {
            Node::Conversation(id) => self.dir_of(*id),
            Node::Managed(id, file) => Ok(self.dir_of(*id)?.join(file.name())),
            Node::Own(id, inner) => Ok(self.dir_of(*id)?.join(inner)),
            Node::Scratch(home, inner) => Ok(self.scratch_dir(*home).join(inner)),
            Node::Under(name) => Ok(self.under.join(name)),
            Node::Orphan(number) => Ok(self.orphan(*number)),
            Node::Children(_) | Node::Alias(..) => Err(FsError::IsDir),
        }
    }

    fn scratch_dir(&self, home: Home) -> PathBuf {
        let name = match home {
            Home::Conversation(id) => id.deciseconds().to_string(),
            Home::Children(Dir::Root) => "root".to_owned(),
            Home::Children(Dir::Archive) => "archive".to_owned(),
            Home::Children(Dir::Of(id)) => format!("{}.children", id.deciseconds()),
        };
        self.state.join("scratch").join(name)
    }

    fn orphan(&self, number: u64) -> PathBuf {
        self.state.join("orphans").join(format!("{UNLINKED}{number}"))
    }

    /// Nobody else changes the conversation through this mount while this is held.
    fn room(&self, id: ConversationId) -> Arc<Mutex<()>> {
        let mut rooms = self.rooms.lock();
        if rooms.len() > 1024 {
            rooms.retain(|_, room| Arc::strong_count(room) > 1);
        }
        rooms.entry(id).or_default().clone()
    }

    /// The conversation's lock, for whoever asks: what its ancestors hold lets it through.
    fn lock(&self, caller: Caller, id: ConversationId) -> Result<Guard> {
        self.writer.on_behalf_of(caller.pid).lock(id, &Wait::none()).map_err(|error| match error {
            jp_store::Error::Locked { .. } => FsError::Busy,
            error => error.into(),
        })
    }

    /// A directory has changed now.
    fn touch(&self, dir: &Node) {
        let number = self.known(dir);
        let mut listings = self.listings.lock();
        listings.changed(dir);
        if let Some(number) = number {
            listings.drop_given(number);
        }
        drop(listings);
        let now = self.now();
        self.touched.lock().insert(dir.clone(), now);
    }

    /// What has become stale is told to the kernel in a while.
    fn tell(&self, stale: Vec<Stale>) {
        if stale.is_empty() {
            return;
        }
        let now = self.now();
        self.shift(&stale);
        let mut touched = self.touched.lock();
        for stale in &stale {
            if let Stale::Name(dir, _) | Stale::Content(dir @ (Node::Children(_) | Node::Conversation(_))) = stale {
                touched.insert(dir.clone(), now);
            }
        }
        drop(touched);
        let mut listings = self.listings.lock();
        for stale in &stale {
            if let Stale::Name(dir, _) | Stale::Content(dir @ Node::Children(_)) = stale {
                listings.changed(dir);
            }
        }
        drop(listings);
        let this = thread::current().id();
        let aware = self.aware.lock().clone();
        let news = stale.into_iter().filter(|stale| match stale {
            Stale::Name(dir, name) => !aware.iter().any(|(by, at, known)| *by == this && at == dir && known == name),
            Stale::Content(_) | Stale::Attr(_) => true,
        });
        self.outbox.send(news.collect());
    }

    /// A file that changed gets another time than it was told to have before, even if it has the same: clocks of filesystems
    /// tick slowly, and the kernel drops what it remembers of the content only when the time or the size is another.
    fn shift(&self, stale: &[Stale]) {
        let mut shifts = self.shifts.lock();
        for stale in stale {
            if let Stale::Content(node) = stale
                && !matches!(node, Node::Children(_) | Node::Conversation(_) | Node::Alias(..))
            {
                let shift = shifts.entry(node.clone()).or_default();
                *shift = (*shift + 1) % SHIFTS;
            }
        }
    }

    /// A file got another name, and the kernel has yet to see that its content changed.
    fn move_shift(&self, from: &Node, to: &Node) {
        let mut shifts = self.shifts.lock();
        match shifts.remove(from) {
            Some(shift) => drop(shifts.insert(to.clone(), shift)),
            None => drop(shifts.remove(to)),
        }
    }

    /// By how many nanoseconds a file's time is another than it is told to be on disk.
    fn shift_of(&self, node: &Node) -> i64 {
        self.shifts.lock().get(node).copied().unwrap_or_default()
    }

    /// The kernel itself is about to change this name, in the request that this thread is answering: it need not be told.
    /// Telling would also have to wait until the request is answered, because the kernel holds the directory.
    fn aware(&self, dir: &Node, name: &OsStr) -> Aware<'_> {
        self.aware.lock().push((thread::current().id(), dir.clone(), name.to_owned()));
        Aware(self)
    }

    /// A file of the store looks like this by our own doing: when the watch tells of it, that is no news.
    fn note_own(&self, path: &Path) {
        if path.starts_with(&self.state) {
            // Nobody watches what is in there.
            return;
        }
        let now = self.backing.stat(path).ok();
        self.leave(path, now.map(|stat| Left { mark: mark(&stat), changed: Some(stat.ctime) }));
    }

    /// A file of the store is about to look like this by our own doing.
    fn expect(&self, path: &Path, now: Mark) {
        self.leave(path, Some(Left { mark: now, changed: None }));
    }

    fn leave(&self, path: &Path, now: Option<Left>) {
        let mut echo = self.echo.lock();
        if echo.len() > 10_000 {
            echo.clear();
        }
        echo.insert(path.to_owned(), now);
    }
}

fn nanos(writer: &Writer) -> i64 {
    i64::try_from(writer.store().now().as_nanosecond()).unwrap_or(i64::MAX)
}

/// Names that no directory takes.
fn check_name(name: &OsStr) -> Result<()> {
    match name.len() {
        0 => Err(FsError::NotFound),
        1..=255 => Ok(()),
        _ => Err(FsError::NameTooLong),
    }
}

/// The managed file of this name.
fn managed_file(name: &OsStr) -> Option<ManagedFile> {
    ManagedFile::from_name(name.to_str()?)
}
