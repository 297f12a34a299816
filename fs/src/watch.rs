//! Notices what others do to the store: by watching it, or by looking again every second where watches run out.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jp_store::ConversationId;
use jp_store::beneath::{AllowedDirs, Kind, is_wrong_kind};
use jp_store::layout::{ARCHIVE, CONVERSATIONS, Layout, Partition, TRASH};
use jp_store::modes::Access;
use jp_store::reconcile::ManagedFile;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use parking_lot::Mutex;

use crate::bell::{Asked, Bell, CHANGES, Waker, bell};
use crate::flag::Flag;
use crate::memory::Memory;
use crate::node::{Dir, Node};
use crate::remote;
use crate::vfs::{Noticed, Vfs};

/// How often is looked where nothing is watched.
const PERIOD: Duration = Duration::from_secs(1);

/// Why a store is polled that could be watched.
pub(crate) const ASKED_TO_POLL: &str = "asked to by --poll";
/// Why a store is polled where the system has no watches.
pub(crate) const NO_WATCHES: &str = "nothing can be watched here";

/// How long what happens is let go on before it is looked at: one change is told of several times, and our own are told
/// of while they are being made. Whoever asks does not wait for it.
const LULL: Duration = Duration::from_millis(2);

/// Whether a store is watched by now.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    begun: Flag,
    watching: AtomicBool,
    /// Why it is not.
    polled: Mutex<Option<String>>,
}

impl Standing {
    /// Whether the store is watched, and not merely looked at now and then; waits so long for the watches to stand.
    pub(crate) fn is_watching(&self, limit: Duration) -> bool {
        self.begun.wait(limit) && self.watching.load(Ordering::SeqCst)
    }

    /// Why the store is polled, if it is.
    pub(crate) fn why_polled(&self) -> Option<String> {
        self.polled.lock().clone()
    }
}

/// What a watch is on.
#[derive(Clone, Debug)]
enum On {
    /// A directory of the store's conversations.
    Partition(PathBuf),
    /// The directory with the mirror, or this worktree's state.
    Books,
    /// The lock files.
    Locks,
    /// A conversation's directory, or one inside it.
    Conversation(ConversationId, PathBuf, PathBuf),
}

impl On {
    /// What is shown with the mode of the directory itself, where nothing else tells of that.
    fn node(&self) -> Option<Node> {
        match self {
            // Those of the archive look like those that are live.
            Self::Partition(dir) if !dir.ends_with(ARCHIVE) => Some(Node::Children(Dir::Root)),
            Self::Conversation(id, _, inner) if inner.as_os_str().is_empty() => Some(Node::Conversation(*id)),
            Self::Partition(_) | Self::Conversation(..) | Self::Books | Self::Locks => None,
        }
    }
}

/// The watches, before anything is done with what they see.
#[derive(Debug)]
pub(crate) struct Watch {
    inotify: Option<Inotify>,
    on: HashMap<WatchDescriptor, On>,
    layout: Layout,
    allowed: AllowedDirs,
    bell: Bell,
    /// What must not remember what has changed.
    pub(crate) memory: Arc<Memory>,
    standing: Arc<Standing>,
    /// What was last to be looked at could not be.
    owing: bool,
    /// A file is in the way of none of this; only these names count among the books.
    books: [OsString; 4],
}

/// The system's watches, if it has any.
fn system() -> Option<Inotify> {
    let begun = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK);
    begun.inspect_err(|error| tracing::warn!(%error, "nothing can be watched here")).ok()
}

impl Watch {
    /// Nothing is watched before [`Watch::run`].
    pub(crate) fn new(layout: Layout, allowed: AllowedDirs, polling: bool) -> io::Result<(Self, Waker)> {
        let (bell, waker) = bell()?;
        let books = ["tree.json", "tree.journal", "projection.json", "journal"].map(OsString::from);
        let (standing, memory) = (Arc::<Standing>::default(), Arc::default());
        let why = if polling {
            Some(ASKED_TO_POLL.to_owned())
        } else {
            remote::reason(&allowed, [&*layout.store.dir, &*layout.store.conversations()])
        };
        let inotify = if why.is_some() { None } else { system() };
        if let Some(why) = why.or_else(|| inotify.is_none().then(|| NO_WATCHES.to_owned())) {
            tracing::info!("the store is looked at once a second: {why}");
            *standing.polled.lock() = Some(why);
        }
        Ok((Self { inotify, on: HashMap::new(), layout, allowed, bell, memory, standing, owing: false, books }, waker))
    }

    /// Tells others how it goes.
    pub(crate) fn standing(&self) -> Arc<Standing> {
        self.standing.clone()
    }

    fn is_watching(&self) -> bool {
        self.inotify.is_some()
    }

    /// Puts the watches up. What happened since the mount began to look, and was not seen by them, is looked for once they
    /// stand; whoever asks for a fresh look waits for that.
    fn begin(&mut self, vfs: &Vfs) {
        if self.is_watching()
            && let Err(error) = self.add_all()
        {
            self.give_up(&error);
        }
        if self.is_watching() {
            let layout = &self.layout;
            let partitions = Partition::ALL.map(|partition| layout.store.partition(partition));
            self.memory.wake(partitions, layout.worktree_state().join("scratch"));
            self.standing.watching.store(true, Ordering::SeqCst);
        } else {
            // Without watches later looks are compared with this one, from before the kernel can remember anything.
            vfs.look_first();
        }
        self.looked(vfs.catch_up());
        self.standing.begun.set();
    }

    /// Not everything can be watched, so nothing is: what is looked at every second is looked at whole.
    fn give_up(&mut self, error: &io::Error) {
        tracing::warn!(%error, "not everything can be watched, so the store is looked at once a second");
        self.inotify = None;
        self.on.clear();
        self.memory.sleep();
        *self.standing.polled.lock() = Some(format!("not everything can be watched: {error}"));
        self.standing.watching.store(false, Ordering::SeqCst);
    }

    /// Notices until the end.
    pub(crate) fn run(mut self, vfs: &Vfs) {
        self.begin(vfs);
        loop {
            let asked = self.wait();
            self.look(vfs);
            let end = asked.end;
            asked.answer();
            if end {
                return;
            }
        }
    }

    /// Takes in what has happened by now.
    fn look(&mut self, vfs: &Vfs) {
        let (noticed, locks) = self.take();
        if !self.is_watching() {
            self.looked(vfs.look_around(noticed));
        } else if !noticed.is_nothing() {
            self.looked(vfs.notice(noticed));
        }
        if locks {
            vfs.tend_waiting();
        }
    }

    /// What could not be looked at is looked at again, which is said once.
    fn looked(&mut self, result: crate::error::Result<()>) {
        if let Err(error) = &result
            && !self.owing
        {
            tracing::warn!(%error, "what changed in the store could not be read");
        }
        self.owing = result.is_err();
    }

    /// Waits until something happens, somebody asks, or it is time to look.
    fn wait(&self) -> Asked {
        let watched = self.inotify.as_ref().map(|inotify| inotify.as_fd());
        let often = watched.is_none() || self.owing;
        let mut asked = self.bell.wait(watched, often.then_some(PERIOD));
        if watched.is_some() && asked.is_nothing() {
            asked.add(self.bell.wait(None, Some(LULL)));
        }
        asked
    }

    /// Everything the watches have seen by now, and whether a lock was let go of.
    fn take(&mut self) -> (Noticed, bool) {
        let (mut noticed, mut locks) = (Noticed { shape: self.owing, ..Noticed::default() }, false);
        while let Some(events) = self.inotify.as_ref().and_then(|inotify| inotify.read_events().ok()) {
            if events.is_empty() {
                break;
            }
            for event in events {
                if let Err(error) = self.sort(event, &mut noticed, &mut locks) {
                    // Nobody hears of what happened since.
                    self.give_up(&error);
                    noticed.everything = true;
                    return (noticed, true);
                }
            }
        }
        (noticed, locks)
    }

    /// Fails where something cannot be watched.
    fn sort(&mut self, event: InotifyEvent, noticed: &mut Noticed, locks: &mut bool) -> io::Result<()> {
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            tracing::warn!("the system lost track of changes; everything is looked at again");
            noticed.everything = true;
            // What came meanwhile is not watched yet.
            self.add_all()?;
            self.memory.forget_all();
            return Ok(());
        }
        // What is about the directory itself bears no name.
        match self.on.get(&event.wd) {
            Some(On::Partition(dir)) => self.memory.forget(&dir.join(event.name.as_deref().unwrap_or_default())),
            Some(On::Conversation(_, dir, _)) => self.memory.forget(dir),
            Some(On::Books | On::Locks) | None => {}
        }
        if event.mask.contains(AddWatchFlags::IN_IGNORED) {
            self.on.remove(&event.wd);
            return Ok(());
        }
        let Some(on) = self.on.get(&event.wd).cloned() else { return Ok(()) };
        let Some(name) = event.name else {
            noticed.modes.extend(on.node());
            return Ok(());
        };
        let is_dir = event.mask.contains(AddWatchFlags::IN_ISDIR);
        let appeared = event.mask.intersects(AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO);
        match on {
            On::Partition(dir) => {
                if is_dir {
                    if name == ARCHIVE {
                        noticed.all_names |= !event.mask.intersects(AddWatchFlags::IN_ATTRIB);
                    } else if !event.mask.intersects(AddWatchFlags::IN_ATTRIB) {
                        noticed.names.insert(dir.join(&name));
                    }
                    if appeared {
                        self.add_named(&dir, name, noticed)?;
                    }
                }
            }
            On::Books => noticed.books |= self.books.contains(&name),
            On::Locks => *locks |= event.mask.intersects(AddWatchFlags::IN_DELETE),
            On::Conversation(id, dir, inner) => {
                let inner = inner.join(&name);
                if is_dir && appeared {
                    self.add_new(id, &dir, &inner, noticed)?;
                }
                noticed.files.insert((id, inner));
            }
        }
        Ok(())
    }

    fn add_all(&mut self) -> io::Result<()> {
        let store = self.layout.store.clone();
        for dir in [store.vfs(), self.layout.worktree_state(), store.locks()] {
            self.allowed.create_dirs(&dir, Access::Private.dir())?;
        }
        self.add(&store.vfs(), On::Books)?;
        self.add(&self.layout.worktree_state(), On::Books)?;
        // That one is taken is no news, and happens with every change.
        self.add_for(&store.locks(), On::Locks, AddWatchFlags::IN_DELETE | AddWatchFlags::IN_ONLYDIR)?;
        self.add_partition(store.conversations())?;
        let archive = store.conversations().join(ARCHIVE);
        let added = self.add_partition(archive);
        if added.as_ref().is_err_and(is_gone) { Ok(()) } else { added }
    }

    fn add_partition(&mut self, dir: PathBuf) -> io::Result<()> {
        self.add(&dir, On::Partition(dir.clone()))?;
        for (name, _) in self.allowed.list(&dir)? {
            if let Some(id) = ConversationId::from_dirname(&name) {
                self.add_tree(id, &dir.join(name), Path::new(""))?;
            }
        }
        Ok(())
    }

    /// A directory appeared among conversations.
    fn add_named(&mut self, dir: &Path, name: OsString, noticed: &mut Noticed) -> io::Result<()> {
        if name == ARCHIVE {
            let added = self.add_partition(dir.join(name));
            self.memory.forget_all();
            return if added.as_ref().is_err_and(is_gone) { Ok(()) } else { added };
        }
        let Some(id) = ConversationId::from_dirname(&name).filter(|_| name != TRASH) else { return Ok(()) };
        let path = dir.join(&name);
        self.add_new(id, &path, Path::new(""), noticed)?;
        self.memory.forget(&path);
        noticed.files.extend(ManagedFile::ALL.map(|file| (id, PathBuf::from(file.name()))));
        Ok(())
    }

    /// A directory of a conversation that has just appeared. What came into it before it was watched is looked at now.
    fn add_new(&mut self, id: ConversationId, dir: &Path, inner: &Path, noticed: &mut Noticed) -> io::Result<()> {
        self.add_tree(id, dir, inner)?;
        noticed.dirs.entry(id).or_default().insert(inner.to_owned());
        let mut open = vec![inner.to_owned()];
        while let Some(inner) = open.pop() {
            for (name, kind) in self.entries(&dir.join(&inner))? {
                let inner = inner.join(name);
                if kind == Kind::Dir && inner != Path::new(CONVERSATIONS) {
                    open.push(inner.clone());
                }
                noticed.files.insert((id, inner));
            }
        }
        Ok(())
    }

    /// A conversation's directory and whatever directories it has. One that is gone again is nobody's.
    fn add_tree(&mut self, id: ConversationId, dir: &Path, inner: &Path) -> io::Result<()> {
        let added = self.add_dir(id, dir, inner);
        if added.as_ref().is_err_and(is_gone) { Ok(()) } else { added }
    }

    fn add_dir(&mut self, id: ConversationId, dir: &Path, inner: &Path) -> io::Result<()> {
        let path = dir.join(inner);
        let on = On::Conversation(id, dir.to_owned(), inner.to_owned());
        let Some(watched) = self.add_for(&path, on, CHANGES)? else { return Ok(()) };
        // Two links mean no directory inside, on filesystems that count them.
        if watched.metadata()?.nlink() == 2 {
            return Ok(());
        }
        for (name, kind) in self.entries(&path)? {
            let inner = inner.join(name);
            if kind == Kind::Dir && inner != Path::new(CONVERSATIONS) {
                self.add_tree(id, dir, &inner)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, on: On) -> io::Result<()> {
        self.add_for(path, on, CHANGES).map(drop)
    }

    /// Watches a directory, and gives what it was opened as; `None` where nothing is watched.
    fn add_for(&mut self, path: &Path, on: On, what: AddWatchFlags) -> io::Result<Option<File>> {
        let Some(inotify) = &self.inotify else { return Ok(None) };
        let dir = self.allowed.open_dir(path)?;
        remote::check(&dir, path)?;
        let descriptor = inotify.add_watch(&AllowedDirs::path_of(&dir), what)?;
        self.on.insert(descriptor, on);
        Ok(Some(dir))
    }

    /// What is in a directory. One that is gone has nothing.
    fn entries(&self, dir: &Path) -> io::Result<Vec<(OsString, Kind)>> {
        match self.allowed.list(dir) {
            Err(error) if is_gone(&error) => Ok(Vec::new()),
            listed => listed,
        }
    }
}

/// Whether there is nothing to watch any more, rather than nothing to watch it with.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) || is_wrong_kind(error)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use jp_store::layout::StoreRoot;

    use super::*;

    /// A store with one conversation, and its watches.
    fn watched(root: &Path) -> (Watch, PathBuf) {
        let layout = Layout {
            project: root.join("project"),
            storage: root.join("project/.jp"),
            store: StoreRoot { dir: root.join("silo") },
            siblings: Vec::new(),
            work: None,
            covered: true,
            worktree: "0123456789abcdef".to_owned(),
        };
        let dir = layout.store.conversations().join("17528832001-one");
        fs::create_dir_all(&dir).unwrap();
        let allowed = AllowedDirs::default();
        allowed.allow(root).unwrap();
        let (mut watch, _) = Watch::new(layout, allowed, false).unwrap();
        watch.add_all().unwrap();
        (watch, dir)
    }

    fn files(watch: &mut Watch) -> Vec<String> {
        let (noticed, _) = watch.take();
        let named = |(id, inner): &(ConversationId, PathBuf)| format!("{} {}", id.deciseconds(), inner.display());
        let mut files: Vec<_> = noticed.files.iter().map(named).collect();
        files.sort();
        files
    }

    #[test]
    fn what_came_before_its_directory_was_watched_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let (mut watch, dir) = watched(root.path());
        fs::create_dir_all(dir.join("sub/deep")).unwrap();
        fs::write(dir.join("sub/deep/x"), "").unwrap();
        assert_eq!(files(&mut watch), ["17528832001 sub", "17528832001 sub/deep", "17528832001 sub/deep/x"]);
        fs::write(dir.join("sub/deep/y"), "").unwrap();
        assert_eq!(files(&mut watch), ["17528832001 sub/deep/y"]);
        let new = dir.with_file_name("17528842001-two");
        fs::create_dir(&new).unwrap();
        fs::write(new.join("notes.md"), "").unwrap();
        assert!(files(&mut watch).contains(&"17528842001 notes.md".to_owned()));
    }

    #[test]
    fn what_is_gone_before_it_could_be_watched_ends_nothing() {
        let root = tempfile::tempdir().unwrap();
        let (mut watch, dir) = watched(root.path());
        fs::write(dir.with_file_name("17528842001-no-directory"), "").unwrap();
        watch.add_all().unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        fs::remove_dir(dir.join("sub")).unwrap();
        let new = dir.with_file_name("17528852001-three");
        fs::create_dir(&new).unwrap();
        fs::remove_dir(&new).unwrap();
        files(&mut watch);
        assert!(watch.is_watching());
    }
}
