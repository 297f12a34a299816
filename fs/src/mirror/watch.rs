//! Notices what happens on both sides of a mirror: in the real files, with every directory that comes and goes there, and
//! in the store, with its books and its locks. A directory is watched before it is listed, so that nothing is missed.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use jp_store::ConversationId;
use jp_store::beneath::{AllowedDirs, Kind};
use jp_store::layout::{CONVERSATIONS, Layout, TRASH, WORK_TMP};
use jp_store::modes::Access;
use jp_store::scratch::is_scratch;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

use crate::bell::CHANGES;
use crate::remote;
use crate::watch::{ASKED_TO_POLL, is_gone};

/// What counts among the store's books. This worktree's own are written by every reconcile, and whoever else writes them
/// asks for one.
const LINKS: [&str; 2] = ["tree.json", "tree.journal"];
/// What befalls the workspace as a whole.
const FATE: AddWatchFlags = AddWatchFlags::IN_DELETE
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_MOVE_SELF)
    .union(AddWatchFlags::IN_DELETE_SELF)
    .union(AddWatchFlags::IN_ONLYDIR);

/// What a watch is on.
#[derive(Clone, Debug)]
enum On {
    /// A directory of conversations, or anywhere beneath one, on either side.
    Tree(PathBuf),
    /// The directory that has the directory of conversations, on either side.
    Above(PathBuf),
    /// The directory with the mirrored links.
    Books,
    /// The lock files.
    Locks,
    /// The project. What happens to it is seen by whoever looks for it.
    Project,
}

/// What was noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Noticed {
    /// Something changed on either side.
    pub(super) changed: bool,
    /// Something was removed on either side.
    pub(super) removed: bool,
    /// Somebody let go of a lock.
    pub(super) unlocked: bool,
}

/// The watches.
#[derive(Debug)]
pub(super) struct Watch {
    inotify: Option<Inotify>,
    on: HashMap<WatchDescriptor, On>,
    layout: Layout,
    allowed: AllowedDirs,
    /// Why nothing is watched, if nothing is.
    polled: Option<String>,
}

impl Watch {
    /// Begins to watch. What happens from now on is not missed. Where there cannot be watches enough there are none, which
    /// is said.
    pub(super) fn begin(layout: &Layout, allowed: &AllowedDirs, polling: bool) -> Self {
        let (layout, allowed) = (layout.clone(), allowed.clone());
        let polled = if polling {
            Some(ASKED_TO_POLL.to_owned())
        } else {
            let conversations = [layout.store.conversations(), layout.storage.join(CONVERSATIONS)];
            let dirs = [&*layout.store.dir, &*layout.storage].into_iter().chain(conversations.iter().map(|dir| &**dir));
            remote::reason(&allowed, dirs)
        };
        let mut watch = Self { inotify: None, on: HashMap::new(), layout, allowed, polled };
        match &watch.polled {
            Some(why) => tracing::info!("both sides are looked at once a second: {why}"),
            None => {
                if let Err(error) = watch.add_all() {
                    watch.give_up(&error);
                }
            }
        }
        watch
    }

    /// Whether changes are noticed when they happen.
    pub(super) fn is_watching(&self) -> bool {
        self.inotify.is_some()
    }

    /// Why both sides are polled, if they are.
    pub(super) fn why_polled(&self) -> Option<String> {
        self.polled.clone()
    }

    /// Has something to read when something has happened.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(|inotify| inotify.as_fd())
    }

    /// Everything that has happened by now.
    pub(super) fn take(&mut self) -> Noticed {
        let mut noticed = Noticed::default();
        while let Some(events) = self.inotify.as_ref().and_then(|inotify| inotify.read_events().ok()) {
            if events.is_empty() {
                break;
            }
            for event in events {
                if let Err(error) = self.sort(event, &mut noticed) {
                    self.give_up(&error);
                    noticed.changed = true;
                    break;
                }
            }
        }
        noticed
    }

    fn give_up(&mut self, error: &io::Error) {
        tracing::warn!(%error, "not everything can be watched, so both sides are looked at once a second");
        self.inotify = None;
        self.on.clear();
        self.polled = Some(format!("not everything can be watched: {error}"));
    }

    fn sort(&mut self, event: InotifyEvent, noticed: &mut Noticed) -> io::Result<()> {
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            tracing::warn!("the system lost track of changes; everything is looked at again");
            noticed.changed = true;
            return self.add_all();
        }
        if event.mask.contains(AddWatchFlags::IN_IGNORED) {
            self.on.remove(&event.wd);
            return Ok(());
        }
        let (Some(on), Some(name)) = (self.on.get(&event.wd).cloned(), event.name) else { return Ok(()) };
        let is_dir = event.mask.contains(AddWatchFlags::IN_ISDIR);
        let appeared = event.mask.intersects(AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO);
        match on {
            On::Tree(dir) => {
                if self.is_passed_over(&dir, &name) {
                    return Ok(());
                }
                noticed.changed = true;
                noticed.removed |= event.mask.contains(AddWatchFlags::IN_DELETE);
                if is_dir && appeared {
                    self.add_tree(&dir.join(name))?;
                }
            }
            On::Above(dir) => {
                if name == CONVERSATIONS {
                    noticed.changed = true;
                    if appeared {
                        self.add_tree(&dir.join(name))?;
                    }
                }
            }
            On::Books => noticed.changed |= LINKS.iter().any(|link| name == *link),
            // One that is let go of is removed, or at least closed.
            On::Locks => {
                noticed.unlocked |= event.mask.intersects(AddWatchFlags::IN_DELETE | AddWatchFlags::IN_CLOSE_WRITE);
            }
            On::Project => {}
        }
        Ok(())
    }

    /// Programs' scratch, and ours.
    fn is_passed_over(&self, dir: &Path, name: &OsStr) -> bool {
        let tops = [self.layout.shown().conversations, self.layout.store.conversations()];
        let ours = (name == WORK_TMP || name == TRASH) && tops.iter().any(|top| top == dir);
        ours || is_scratch(name) && ConversationId::from_dirname(name).is_none()
    }

    fn add_all(&mut self) -> io::Result<()> {
        if self.inotify.is_none() {
            self.inotify = Some(Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?);
        }
        let store = self.layout.store.clone();
        for dir in [store.vfs(), store.locks()] {
            self.allowed.create_dirs(&dir, Access::Private.dir())?;
        }
        let (project, storage) = (self.layout.project.clone(), self.layout.storage.clone());
        self.add(&project, FATE, On::Project)?;
        self.add(&store.vfs(), CHANGES, On::Books)?;
        self.add(&store.locks(), CHANGES, On::Locks)?;
        for above in [storage, store.dir] {
            self.add(&above, CHANGES, On::Above(above.clone()))?;
            self.add_tree(&above.join(CONVERSATIONS))?;
        }
        Ok(())
    }

    /// A directory and all that it has. One that is gone again is nobody's.
    fn add_tree(&mut self, top: &Path) -> io::Result<()> {
        let mut open = vec![top.to_owned()];
        while let Some(dir) = open.pop() {
            match self.add_tree_dir(&dir) {
                Ok(names) => {
                    let inner = names.into_iter().filter(|name| !self.is_passed_over(&dir, name));
                    open.extend(inner.map(|name| dir.join(name)));
                }
                Err(error) if is_gone(&error) => {}
                // It cannot be read either, which whoever reads it tells of.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    tracing::warn!(path = %dir.display(), %error, "a directory cannot be watched");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Watches one directory, and gives the names of the directories in it.
    fn add_tree_dir(&mut self, dir: &Path) -> io::Result<Vec<OsString>> {
        let Some(watched) = self.watch(dir, CHANGES, On::Tree(dir.to_owned()))? else { return Ok(Vec::new()) };
        // Two links mean no directory inside, on filesystems that count them.
        if watched.metadata()?.nlink() == 2 {
            return Ok(Vec::new());
        }
        let names = self.allowed.list(dir)?.into_iter();
        Ok(names.filter(|(_, kind)| *kind == Kind::Dir).map(|(name, _)| name).collect())
    }

    fn add(&mut self, path: &Path, what: AddWatchFlags, on: On) -> io::Result<()> {
        self.watch(path, what, on).map(drop)
    }

    /// Watches a directory, and gives what it was opened as; `None` where nothing is watched.
    fn watch(&mut self, path: &Path, what: AddWatchFlags, on: On) -> io::Result<Option<File>> {
        let Some(inotify) = &self.inotify else { return Ok(None) };
        let dir = self.allowed.open_dir(path)?;
        remote::check(&dir, path)?;
        // One that has moved gets the same number again, and its new path with it.
        let descriptor = inotify.add_watch(&AllowedDirs::path_of(&dir), what)?;
        self.on.insert(descriptor, on);
        Ok(Some(dir))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use jp_store::layout::StoreRoot;

    use super::*;

    /// A project and its silo, with one conversation in each.
    fn layout(root: &Path) -> Layout {
        let layout = Layout {
            project: root.join("project"),
            storage: root.join("project/.jp"),
            store: StoreRoot { dir: root.join("silo") },
            siblings: Vec::new(),
            work: None,
            covered: false,
            worktree: "0123456789abcdef".to_owned(),
        };
        for above in [&layout.storage, &layout.store.dir] {
            fs::create_dir_all(above.join("conversations/17528832001-one")).unwrap();
        }
        layout
    }

    #[test]
    fn nothing_is_missed() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(dir.path());
        let allowed = AllowedDirs::default();
        allowed.allow(dir.path()).unwrap();
        let mut watch = Watch::begin(&layout, &allowed, false);
        assert!(watch.is_watching());
        assert_eq!(watch.take(), Noticed::default());
        let mut check = |what: &str, work: &dyn Fn(), (changed, removed, unlocked): (bool, bool, bool)| {
            work();
            assert_eq!(watch.take(), Noticed { changed, removed, unlocked }, "{what}");
            assert_eq!(watch.take(), Noticed::default(), "{what}, once");
        };
        let (yes, no) = ((true, false, false), (false, false, false));
        let tops = [layout.storage.join("conversations"), layout.store.conversations()];
        for top in &tops {
            let put = |path: &str| {
                let path = top.join(path);
                move || fs::write(&path, "x").unwrap()
            };
            let deep = top.join("17528832001-one/conversations/17528842001-two/notes");
            check("a file", &put("17528832001-one/x"), yes);
            check("directories", &|| fs::create_dir_all(&deep).unwrap(), yes);
            check("a file in them", &put("17528832001-one/conversations/17528842001-two/notes/x"), yes);
            let aside = dir.path().join("aside");
            fs::create_dir_all(aside.join("notes")).unwrap();
            check("one that is moved in", &|| fs::rename(&aside, top.join("17528852001-three")).unwrap(), yes);
            check("a file in it", &put("17528852001-three/notes/x"), yes);
            let (from, to) = (top.join("17528832001-one"), top.join("17528832001-other"));
            check("another name", &|| fs::rename(&from, &to).unwrap(), yes);
            let inner = to.join("conversations/17528842001-two/notes/more");
            check("a directory under the new name", &|| fs::create_dir(&inner).unwrap(), yes);
            check("a file in that", &put("17528832001-other/conversations/17528842001-two/notes/more/x"), yes);
            check("a removal", &|| fs::remove_file(inner.join("x")).unwrap(), (true, true, false));
            for scratch in ["17528832001-other/x.tmp", "17528832001-other/.x.swp"] {
                check(scratch, &put(scratch), no);
            }
            check("our own scratch", &|| fs::create_dir(top.join(".tmp")).unwrap(), no);
            check("and what is in it", &put(".tmp/x"), no);
            check("all of it removed", &|| fs::remove_dir_all(top).unwrap(), (true, true, false));
            check("and made again", &|| fs::create_dir_all(top.join("17528862001-four")).unwrap(), yes);
            check("with a file", &put("17528862001-four/x"), yes);
        }
        let books = layout.store.vfs();
        check("the mirrored links", &|| fs::write(books.join("tree.json"), "{}").unwrap(), yes);
        check("anything else", &|| fs::write(books.join("ids.lock"), "").unwrap(), no);
        check("the ledger", &|| fs::create_dir(layout.worktree_state()).unwrap(), no);
        let lock = layout.store.locks().join("jp-c17528832001.lock");
        check("a lock", &|| drop(fs::File::create(&lock).unwrap()), (false, false, true));
        check("is let go of", &|| fs::remove_file(&lock).unwrap(), (false, false, true));
        check("the project's own files", &|| fs::write(layout.project.join("x"), "").unwrap(), no);
    }

    #[test]
    fn whoever_polls_watches_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(dir.path());
        let allowed = AllowedDirs::default();
        allowed.allow(dir.path()).unwrap();
        let mut watch = Watch::begin(&layout, &allowed, true);
        fs::write(layout.store.conversations().join("17528832001-one/x"), "x").unwrap();
        assert!(!watch.is_watching() && watch.descriptor().is_none());
        assert_eq!(watch.take(), Noticed::default());
    }
}
