//! Notices what others do to the store: by watching it, or by looking again every second where watches run out.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jp_store::ConversationId;
use jp_store::layout::{ARCHIVE, CONVERSATIONS, Layout, Partition, TRASH};
use jp_store::reconcile::ManagedFile;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

use crate::bell::{Asked, Bell, CHANGES, Waker, bell};
use crate::flag::Flag;
use crate::memory::Memory;
use crate::vfs::{Noticed, Vfs};

/// How often is looked where nothing is watched.
const PERIOD: Duration = Duration::from_secs(1);

/// How long what happens is let go on before it is looked at: one change is told of several times, and our own are told
/// of while they are being made. Whoever asks does not wait for it.
const LULL: Duration = Duration::from_millis(2);

/// Whether a store is watched by now.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    begun: Flag,
    watching: AtomicBool,
}

impl Standing {
    /// Whether the store is watched, and not merely looked at now and then; waits so long for the watches to stand.
    pub(crate) fn is_watching(&self, limit: Duration) -> bool {
        self.begun.wait(limit) && self.watching.load(Ordering::SeqCst)
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

/// The watches, before anything is done with what they see.
#[derive(Debug)]
pub(crate) struct Watch {
    inotify: Option<Inotify>,
    on: HashMap<WatchDescriptor, On>,
    layout: Layout,
    bell: Bell,
    /// What must not remember what has changed.
    pub(crate) memory: Arc<Memory>,
    standing: Arc<Standing>,
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
    pub(crate) fn new(layout: &Layout, polling: bool) -> io::Result<(Self, Waker)> {
        let (bell, waker) = bell()?;
        let books = ["tree.json", "tree.journal", "projection.json", "journal"].map(OsString::from);
        let inotify = if polling { None } else { system() };
        let (standing, memory) = (Arc::default(), Arc::default());
        Ok((Self { inotify, on: HashMap::new(), layout: layout.clone(), bell, memory, standing, books }, waker))
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
            tracing::warn!(%error, "the store cannot be watched, so it is looked at once a second");
            self.inotify = None;
            self.on.clear();
        }
        if self.is_watching() {
            let layout = &self.layout;
            let partitions = Partition::ALL.map(|partition| layout.store.partition(partition));
            self.memory.wake(partitions, layout.worktree_state().join("scratch"));
        }
        // Without watches later looks are compared with this one, from before the kernel can remember anything.
        let around = if self.is_watching() { Ok(()) } else { vfs.look_around() };
        if let Err(error) = around.and_then(|()| vfs.catch_up()) {
            tracing::warn!(%error, "what changed in the store could not be read");
        }
        self.standing.watching.store(self.is_watching(), Ordering::SeqCst);
        self.standing.begun.set();
    }

    /// Notices until the end.
    pub(crate) fn run(mut self, vfs: &Vfs) {
        self.begin(vfs);
        loop {
            let asked = self.wait();
            let result = if self.is_watching() { self.take(vfs) } else { vfs.look_around() };
            if let Err(error) = result {
                tracing::warn!(%error, "what changed in the store could not be read");
            }
            let end = asked.end;
            asked.answer();
            if end {
                return;
            }
        }
    }

    /// Waits until something happens, somebody asks, or it is time to look.
    fn wait(&self) -> Asked {
        let watched = self.inotify.as_ref().map(|inotify| inotify.as_fd());
        let mut asked = self.bell.wait(watched, watched.is_none().then_some(PERIOD));
        if watched.is_some() && asked.is_nothing() {
            asked.add(self.bell.wait(None, Some(LULL)));
        }
        asked
    }

    /// Everything the watches have seen by now.
    fn take(&mut self, vfs: &Vfs) -> crate::error::Result<()> {
        let (mut noticed, mut locks) = (Noticed::default(), false);
        while let Some(events) = self.inotify.as_ref().and_then(|inotify| inotify.read_events().ok()) {
            if events.is_empty() {
                break;
            }
            for event in events {
                self.sort(event, &mut noticed, &mut locks);
            }
        }
        let result = if noticed.is_nothing() { Ok(()) } else { vfs.notice(noticed) };
        if locks {
            vfs.tend_waiting();
        }
        result
    }

    fn sort(&mut self, event: InotifyEvent, noticed: &mut Noticed, locks: &mut bool) {
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            tracing::warn!("the system lost track of changes; everything is looked at again");
            self.memory.forget_all();
            noticed.everything = true;
            return;
        }
        // What is about the directory itself bears no name.
        match self.on.get(&event.wd) {
            Some(On::Partition(dir)) => self.memory.forget(&dir.join(event.name.as_deref().unwrap_or_default())),
            Some(On::Conversation(_, dir, _)) => self.memory.forget(dir),
            Some(On::Books | On::Locks) | None => {}
        }
        if event.mask.contains(AddWatchFlags::IN_IGNORED) {
            self.on.remove(&event.wd);
            return;
        }
        let (Some(on), Some(name)) = (self.on.get(&event.wd).cloned(), event.name) else { return };
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
                        self.add_named(&dir, name, noticed);
                    }
                }
            }
            On::Books => noticed.books |= self.books.contains(&name),
            On::Locks => *locks |= event.mask.intersects(AddWatchFlags::IN_DELETE),
            On::Conversation(id, dir, inner) => {
                let inner = inner.join(&name);
                if is_dir && appeared {
                    self.add_inside(id, &dir, &inner);
                }
                noticed.files.insert((id, inner));
            }
        }
    }

    fn add_all(&mut self) -> io::Result<()> {
        let store = self.layout.store.clone();
        for dir in [store.vfs(), self.layout.worktree_state(), store.locks()] {
            std::fs::create_dir_all(&dir)?;
        }
        self.add(&store.vfs(), On::Books)?;
        self.add(&self.layout.worktree_state(), On::Books)?;
        // That one is taken is no news, and happens with every change.
        self.add_for(&store.locks(), On::Locks, AddWatchFlags::IN_DELETE | AddWatchFlags::IN_ONLYDIR)?;
        self.add_partition(store.conversations())?;
        let archive = store.conversations().join(ARCHIVE);
        if archive.is_dir() {
            self.add_partition(archive)?;
        }
        Ok(())
    }

    fn add_partition(&mut self, dir: PathBuf) -> io::Result<()> {
        self.add(&dir, On::Partition(dir.clone()))?;
        for entry in std::fs::read_dir(&dir)? {
            let name = entry?.file_name();
            if let Some(id) = ConversationId::from_dirname(&name) {
                self.add_tree(id, &dir.join(name), Path::new(""))?;
            }
        }
        Ok(())
    }

    /// A directory appeared among conversations. What happened in it before it was watched is looked at now.
    fn add_named(&mut self, dir: &Path, name: OsString, noticed: &mut Noticed) {
        if name == ARCHIVE {
            if let Err(error) = self.add_partition(dir.join(name)) {
                tracing::warn!(%error, "the archive cannot be watched");
            }
            self.memory.forget_all();
            return;
        }
        let Some(id) = ConversationId::from_dirname(&name).filter(|_| name != TRASH) else { return };
        let path = dir.join(&name);
        if let Err(error) = self.add_tree(id, &path, Path::new("")) {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(path = %path.display(), %error, "a conversation cannot be watched");
            }
            return;
        }
        self.memory.forget(&path);
        noticed.files.extend(ManagedFile::ALL.map(|file| (id, PathBuf::from(file.name()))));
    }

    fn add_inside(&mut self, id: ConversationId, dir: &Path, inner: &Path) {
        if let Err(error) = self.add_tree(id, dir, inner)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %dir.join(inner).display(), %error, "a directory cannot be watched");
        }
    }

    /// A conversation's directory and whatever directories it has.
    fn add_tree(&mut self, id: ConversationId, dir: &Path, inner: &Path) -> io::Result<()> {
        use std::os::unix::fs::MetadataExt as _;
        let path = dir.join(inner);
        self.add(&path, On::Conversation(id, dir.to_owned(), inner.to_owned()))?;
        // Two links mean no directory inside, on filesystems that count them.
        if std::fs::symlink_metadata(&path)?.nlink() == 2 {
            return Ok(());
        }
        for entry in std::fs::read_dir(&path)? {
            let entry = entry?;
            let name = entry.file_name();
            if entry.file_type()?.is_dir() && name != CONVERSATIONS {
                self.add_tree(id, dir, &inner.join(name))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, on: On) -> io::Result<()> {
        self.add_for(path, on, CHANGES)
    }

    fn add_for(&mut self, path: &Path, on: On, what: AddWatchFlags) -> io::Result<()> {
        let Some(inotify) = &self.inotify else { return Ok(()) };
        let descriptor = inotify.add_watch(path, what)?;
        self.on.insert(descriptor, on);
        Ok(())
    }
}
