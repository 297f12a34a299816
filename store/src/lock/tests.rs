//! Locks within one process, on a real filesystem. Other processes are in `processes`, borrowing is in `borrowing`.

mod borrowing;
mod hook;
mod processes;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use self::hook::Hook;
use super::unix::Mode;
use super::*;
use crate::disk::RealDisk;
use crate::time;

const LONG: Duration = Duration::from_secs(60);

#[test]
fn the_file_is_the_real_tools() {
    let ground = Ground::new();
    let holder = Holder {
        pid: Some(41233),
        session: Some("12057".to_owned()),
        since: time::parse("2026-08-20T14:03:11.258319251Z"),
    };
    let guard = ground.locks().try_acquire(id(17528832001), &holder).unwrap();
    let path = ground.primary().join("jp-c17528832001.lock");
    assert_eq!(guard.path(), path);
    assert_eq!(guard.id(), id(17528832001));
    assert!(guard.is_current() && !guard.is_borrowed());
    let guard = is_send(guard);
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        r#"{"pid":41233,"session":"12057","acquired_at":"2026-08-20T14:03:11.258319251+00:00"}"#
    );
    assert_eq!(ground.locks().holder(id(17528832001)), Some(holder));
    guard.release().unwrap();
    assert!(!path.exists());
    assert_eq!(ground.locks().holder(id(17528832001)), None);
}

#[test]
fn one_at_a_time() {
    let ground = Ground::new();
    let locks = ground.locks();
    let first = locks.try_acquire(id(1), &pid(7)).unwrap();
    assert_locked(locks.try_acquire(id(1), &pid(8)), Some(7));
    let other = locks.try_acquire(id(2), &pid(8)).unwrap();
    assert!(locks.is_held(id(1)) && locks.is_held(id(2)) && !locks.is_held(id(3)));
    drop(first);
    assert!(!locks.is_held(id(1)));
    drop(locks.try_acquire(id(1), &pid(8)).unwrap());
    drop(other);
    assert_eq!(ground.names(), Vec::<String>::new());
}

#[test]
fn looking_makes_nothing() {
    let ground = Ground::new();
    let locks = ground.locks();
    assert_eq!(locks.list().unwrap(), []);
    assert!(locks.clear_orphans().unwrap().is_empty());
    assert!(!locks.is_held(id(1)));
    assert_eq!(fs::read_dir(ground.dir.path()).unwrap().count(), 0);
}

#[test]
fn a_waiter_gets_it_and_is_told_once() {
    let ground = Ground::new();
    let locks = ground.locks();
    let since = time::parse("2026-08-20T14:03:11Z");
    let first = Mutex::new(Some(locks.try_acquire(id(1), &pid(7)).unwrap()));
    let told = AtomicU32::new(0);
    let on_wait = |_, holder: &Option<Holder>| {
        assert_eq!(holder.as_ref().unwrap().pid, Some(7));
        told.fetch_add(1, Ordering::Relaxed);
        first.lock().unwrap().take();
    };
    let wait = Wait { timeout: LONG, on_wait: &on_wait, cancelled: &|| false };
    let guard = locks.acquire(id(1), &Holder { since, ..pid(8) }, &wait).unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 1);
    let noted = locks.holder(id(1)).unwrap().since;
    assert!(noted >= since.and_then(|at| at.checked_add(Duration::from_millis(100)).ok()));
    drop(guard);
}

#[test]
fn a_wait_ends() {
    let ground = Ground::new();
    let locks = ground.locks();
    let _held = locks.try_acquire(id(1), &pid(7)).unwrap();

    let watch = Instant::now();
    assert_locked(locks.try_acquire(id(1), &pid(8)), Some(7));
    assert!(watch.elapsed() >= GRACE);

    let timeout = Duration::from_millis(130);
    let watch = Instant::now();
    let wait = Wait { timeout, ..Wait::none() };
    assert_locked(locks.acquire(id(1), &pid(8), &wait), Some(7));
    assert!(watch.elapsed() >= timeout);

    let asked = AtomicU32::new(0);
    let cancelled = || asked.fetch_add(1, Ordering::Relaxed) == 5;
    let wait = Wait { timeout: Duration::MAX, on_wait: &|_, _| (), cancelled: &cancelled };
    assert!(matches!(locks.acquire(id(1), &pid(8), &wait), Err(Error::Interrupted)));
}

#[test]
fn a_counter_loses_nothing() {
    let ground = Ground::new();
    let counter = ground.dir.path().join("counter");
    fs::write(&counter, "0").unwrap();
    thread::scope(|scope| {
        for me in 0..8 {
            let (locks, counter) = (ground.locks(), &counter);
            scope.spawn(move || {
                for _ in 0..200 {
                    let wait = Wait { timeout: LONG, ..Wait::none() };
                    let guard = locks.acquire(id(1), &pid(me), &wait).unwrap();
                    let count: u32 = fs::read_to_string(counter).unwrap().parse().unwrap();
                    fs::write(counter, (count + 1).to_string()).unwrap();
                    assert!(guard.is_current());
                    guard.release().unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_to_string(&counter).unwrap(), "1600");
    assert_eq!(ground.names(), Vec::<String>::new());
}

/// B has the file open when A removes it and lets go, and C locks the file that it makes in its place. B gets the lock
/// on the old file, and must not keep it.
#[test]
fn a_deleted_lock_is_never_kept() {
    let ground = Ground::new();
    let plain = ground.locks();
    let a = plain.try_acquire(id(1), &pid(1)).unwrap();
    // Without a text the file looks like one that B made itself.
    fs::write(a.path(), "").unwrap();
    let a = Mutex::new(Some(a));
    let c = Arc::new(Mutex::new(None));
    let made = Arc::clone(&c);
    let hook = Hook::after_open(move || {
        if let Some(a) = a.lock().unwrap().take() {
            a.release().unwrap();
            *made.lock().unwrap() = Some(plain.try_acquire(id(1), &pid(3)).unwrap());
        }
    });
    let b = ground.locks_on(Arc::new(hook));
    assert_locked(b.try_acquire(id(1), &pid(2)), Some(3));
    assert!(c.lock().unwrap().as_ref().unwrap().is_current());
    c.lock().unwrap().take();
    assert!(b.try_acquire(id(1), &pid(2)).unwrap().is_current());
}

/// JP lets go first and removes the file afterwards, which may be after we have locked and checked it.
#[test]
fn a_late_removal_is_noticed() {
    let ground = Ground::new();
    fs::create_dir(ground.primary()).unwrap();
    let path = ground.primary().join("jp-c1.lock");
    fs::write(&path, pid(1).to_bytes()).unwrap();
    let victim = path.clone();
    // The first look after the file is opened is the one that finds it in place.
    let opened = Arc::new(AtomicU32::new(0));
    let looking = Arc::clone(&opened);
    let mut hook = Hook::after_open(move || {
        opened.fetch_add(1, Ordering::Relaxed);
    });
    hook.stat = Box::new(move || {
        if looking.compare_exchange(1, 2, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            fs::remove_file(&victim).unwrap();
        }
    });
    let guard = ground.locks_on(Arc::new(hook)).try_acquire(id(1), &pid(2)).unwrap();
    assert!(guard.is_current());
    fs::remove_file(&path).unwrap();
    assert!(!guard.is_current());
    guard.release().unwrap();
}

#[test]
fn a_stranger_at_the_path_is_not_removed() {
    let ground = Ground::new();
    let guard = ground.locks().try_acquire(id(1), &pid(1)).unwrap();
    let path = guard.path().to_owned();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "somebody else's").unwrap();
    drop(guard);
    assert_eq!(fs::read_to_string(&path).unwrap(), "somebody else's");
}

#[test]
fn orphans() {
    let ground = Ground::new();
    let locks = ground.locks();
    let held = locks.try_acquire(id(2), &pid(7)).unwrap();
    for name in ["jp-c3.lock", "jp-c1.lock", "3.lock", "jp-c03.lock", "jp-c4.1.lock", "jp-c5.txt"] {
        fs::write(ground.primary().join(name), "{}").unwrap();
    }
    fs::create_dir(ground.primary().join("jp-c6.lock")).unwrap();
    std::os::unix::fs::symlink("jp-c5.txt", ground.primary().join("jp-c7.lock")).unwrap();
    fs::create_dir(ground.borrowed()).unwrap();
    fs::write(ground.borrowed().join("jp-c1.1.lock"), "").unwrap();
    fs::write(ground.borrowed().join("jp-c8.lock"), "").unwrap();

    let listed: Vec<_> = locks.list().unwrap().into_iter().map(|it| (it.id, it.level, it.holder, it.state)).collect();
    let nobody = Some(Holder::default());
    assert_eq!(
        listed,
        [
            (id(1), 0, nobody.clone(), State::Orphan),
            (id(1), 1, None, State::Orphan),
            (id(2), 0, Some(pid(7)), State::Held),
            (id(3), 0, nobody, State::Orphan),
        ]
    );
    assert_eq!(locks.clear_orphans().unwrap(), [id(1), id(3)]);
    assert_eq!(
        ground.names(),
        ["3.lock", "jp-c03.lock", "jp-c2.lock", "jp-c4.1.lock", "jp-c5.txt", "jp-c6.lock", "jp-c7.lock"]
    );
    assert!(ground.borrowed().join("jp-c8.lock").exists());
    assert!(held.is_current());
}

#[test]
fn the_fallback_counts_where_it_alone_has_the_file() {
    let ground = Ground::new();
    let locks = ground.locks();
    fs::create_dir(ground.fallback()).unwrap();
    let old = ground.fallback().join("jp-c1.lock");
    fs::write(&old, "").unwrap();

    let guard = locks.try_acquire(id(1), &pid(7)).unwrap();
    assert_eq!(guard.path(), old);
    assert!(locks.is_held(id(1)));
    assert_locked(locks.try_acquire(id(1), &pid(8)), Some(7));
    // Another file in the primary directory does not make a second lock.
    fs::create_dir(ground.primary()).unwrap();
    fs::write(ground.primary().join("jp-c1.lock"), "").unwrap();
    assert_locked(locks.try_acquire(id(1), &pid(8)), Some(7));
    assert!(locks.is_held(id(1)));
    drop(guard);
    assert!(!old.exists() && !locks.is_held(id(1)));

    let guard = locks.try_acquire(id(1), &pid(8)).unwrap();
    assert_eq!(guard.path(), ground.primary().join("jp-c1.lock"));
}

#[test]
fn failures_name_verb_and_path() {
    let ground = Ground::new();
    let path = ground.primary().join("jp-c1.lock");
    let check = |disk: Hook, verb: &str, path: &Path| {
        let error = ground.locks_on(Arc::new(disk)).try_acquire(id(1), &pid(1)).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot {verb} {}", path.display()));
    };
    let refuse = || io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
    check(Hook { create_dir: Box::new(move || Err(refuse())), ..Hook::default() }, "make directory", &ground.primary());
    check(Hook { open: Box::new(move |_| Err(refuse())), ..Hook::default() }, "open", &path);

    // A link is not followed, and a directory is no lock.
    let check = |kind: &str| {
        let error = ground.locks().try_acquire(id(1), &pid(1)).unwrap_err();
        assert_eq!(error.to_string(), format!("{}: {kind}, not a lock file", path.display()));
    };
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("elsewhere", &path).unwrap();
    check("a symbolic link");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    check("a directory");
}

#[test]
fn a_lock_whose_text_cannot_be_written_is_a_lock() {
    let ground = Ground::new();
    let read_only = |file: File| {
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        File::open(link)
    };
    let disk = Hook { open: Box::new(read_only), ..Hook::default() };
    let guard = ground.locks_on(Arc::new(disk)).try_acquire(id(1), &pid(1)).unwrap();
    assert_eq!(fs::read(guard.path()).unwrap(), b"");
    assert_locked(ground.locks().try_acquire(id(1), &pid(2)), None);
}

#[test]
fn file_locks() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a/b/tree.lock");
    let disk = RealDisk::beneath(dir.path()).unwrap();
    let within = |mode| FileLock::within(&disk, &path, mode, Duration::from_millis(20));
    let first = FileLock::shared(&disk, &path).unwrap();
    let second = FileLock::shared(&disk, &path).unwrap();
    let late = within(Mode::Exclusive).unwrap_err();
    let by = format!("pid {} has held it for 0 seconds", std::process::id());
    assert_eq!(late.to_string(), format!("cannot lock {}: {by}", path.display()));
    drop((first, second));
    let alone = FileLock::exclusive(&disk, &path).unwrap();
    within(Mode::Shared).unwrap_err();
    within(Mode::Exclusive).unwrap_err();
    drop(alone);
    assert!(path.exists());
    drop(within(Mode::Exclusive).unwrap());
}

fn id(number: u64) -> ConversationId {
    ConversationId::new(number).unwrap()
}

fn is_send<T: Send>(it: T) -> T {
    it
}

fn pid(pid: u32) -> Holder {
    Holder { pid: Some(pid), ..Holder::default() }
}

#[track_caller]
fn assert_locked(result: Result<Guard>, by: Option<u32>) {
    match result {
        Err(Error::Locked { holder, .. }) => assert_eq!(holder.and_then(|holder| holder.pid), by),
        other => panic!("expected to be locked by {by:?}, got {other:?}"),
    }
}

/// The real locks of processes that are nobody's children.
#[derive(Debug)]
struct Unrelated;

impl Processes for Unrelated {
    fn parent(&self, _: u32) -> Option<u32> {
        None
    }

    fn owners(&self, dev: u64, ino: u64) -> Vec<u32> {
        Proc.owners(dev, ino)
    }

    fn has_lock(&self, pid: u32, dev: u64, ino: u64) -> bool {
        Proc.has_lock(pid, dev, ino)
    }
}

/// A temporary directory with places for locks.
struct Ground {
    dir: TempDir,
}

impl Ground {
    fn new() -> Self {
        Self { dir: TempDir::new().unwrap() }
    }

    fn primary(&self) -> PathBuf {
        self.dir.path().join("locks")
    }

    fn fallback(&self) -> PathBuf {
        self.dir.path().join("old")
    }

    fn borrowed(&self) -> PathBuf {
        self.dir.path().join("borrowed")
    }

    fn locks(&self) -> LockDir {
        self.locks_on(Arc::new(RealDisk::default()))
    }

    /// Without relatives, since the numbers that the tests make up may be those of real ancestors.
    fn locks_on(&self, disk: Arc<dyn Disk>) -> LockDir {
        disk.allowed().allow(self.dir.path()).unwrap();
        let locks = LockDir::new(disk, self.primary(), Some(self.fallback()), self.borrowed());
        locks.with_processes(Arc::new(Unrelated), std::process::id())
    }

    /// What is in the primary directory.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.primary()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}
