//! `flock(2)` and `/proc`. This is the only part of the lock that knows the operating system; it decides nothing.
//!
//! # Limitations
//!
//! Where there is no `/proc` (macOS), no process has a known parent, so nobody is let through a lock of an ancestor.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::time::SystemTime;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal;
use nix::unistd::Pid;

use super::process::Processes;
use crate::beneath::trusted;
use crate::disk::Stat;

/// The process table of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proc;

impl Processes for Proc {
    fn parent(&self, pid: u32) -> Option<u32> {
        parent_in(&trusted::read_text(format!("/proc/{pid}/stat")).ok()?)
    }

    fn is_comparable(&self) -> bool {
        let stat = trusted::read_text("/proc/self/stat").unwrap_or_default();
        stat.split(' ').next().and_then(|pid| pid.parse().ok()) == Some(std::process::id())
    }

    fn process_of(&self, thread: u32) -> Option<u32> {
        process_in(&trusted::read_text(format!("/proc/{thread}/status")).ok()?)
    }

    fn owners(&self, dev: u64, ino: u64) -> Vec<u32> {
        trusted::read_text("/proc/locks").map(|text| owners_in(&text, dev, ino)).unwrap_or_default()
    }

    fn has_lock(&self, pid: u32, dev: u64, ino: u64) -> bool {
        let fds = format!("/proc/{pid}/fd");
        trusted::names(&fds).iter().filter_map(|name| name.to_str()).any(|fd| {
            let is_it = trusted::follow(Path::new(&format!("{fds}/{fd}")))
                .is_ok_and(|meta| (meta.dev(), meta.ino()) == (dev, ino));
            is_it
                && trusted::read_text(format!("/proc/{pid}/fdinfo/{fd}")).is_ok_and(|text| {
                    let locks = text.lines().filter_map(|line| line.strip_prefix("lock:"));
                    locks
                        .map(|line| line.split_ascii_whitespace())
                        .any(|mut words| words.by_ref().nth(1) == Some("FLOCK") && words.nth(1) == Some("WRITE"))
                })
        })
    }
}

/// The processes that have a `flock` on this file, exclusive or shared, where the system tells.
pub(crate) fn holders(inode: Inode) -> Vec<u32> {
    let locks = trusted::read_text("/proc/locks").unwrap_or_default();
    let mut pids = pids_in(&locks, inode.dev, inode.ino, &["WRITE", "READ"]);
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Whether a process exists. `None` for numbers that do not name a single process.
pub fn alive(pid: i32) -> Option<bool> {
    if pid <= 0 {
        return None;
    }
    match signal::kill(Pid::from_raw(pid), None) {
        Ok(()) | Err(Errno::EPERM) => Some(true),
        Err(Errno::ESRCH) => Some(false),
        Err(_) => None,
    }
}

/// Makes sure that this many files more can be open at once, as far as the system allows. Every lock is an open file, and
/// the usual limit of 1,024 is less than a large subtree has.
pub(crate) fn make_room_for_files(count: usize) {
    // The rest is for everything that is not a lock.
    let wanted = (count as rlim_t).saturating_add(256);
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < wanted
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard)
    {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// Writes where the file begins, wherever it was last read or written.
pub(crate) fn write_at_start(file: &File, text: &[u8]) -> io::Result<()> {
    file.write_all_at(text, 0)
}

/// How many may have the lock at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One.
    Exclusive,
    /// Any number, while nobody has it exclusively.
    Shared,
}

/// Which file a descriptor or a path means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

impl From<Stat> for Inode {
    fn from(stat: Stat) -> Self {
        Self { dev: stat.dev, ino: stat.ino }
    }
}

/// What `fstat` says of a lock file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) inode: Inode,
    pub(crate) size: u64,
    birth: Option<SystemTime>,
}

impl Opened {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        let inode = Inode { dev: meta.dev(), ino: meta.ino() };
        Ok(Self { inode, size: meta.len(), birth: meta.created().ok() })
    }

    /// Whether this is the file that another descriptor, perhaps closed by now, stood for. Inode numbers are used
    /// again as soon as they are free, hence the birth.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        (self.inode, self.birth) == (other.inode, other.birth)
    }
}

/// Takes the lock if it is free, without waiting; says whether it was.
pub(crate) fn try_lock(file: &File, mode: Mode) -> io::Result<bool> {
    loop {
        let taken = match mode {
            Mode::Exclusive => file.try_lock(),
            Mode::Shared => file.try_lock_shared(),
        };
        match taken {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// The parent in `/proc/<pid>/stat`. The command name in it may hold spaces and parentheses, so the last one counts.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, after) = stat.rsplit_once(')')?;
    after.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The thread group in `/proc/<tid>/status`, which is the process.
fn process_in(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// The owners of exclusive locks in `/proc/locks`.
fn owners_in(locks: &str, dev: u64, ino: u64) -> Vec<u32> {
    pids_in(locks, dev, ino, &["WRITE"])
}

/// The processes in `/proc/locks`, whose lines read `7: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`. Somebody who only
/// waits has `->` after the number.
fn pids_in(locks: &str, dev: u64, ino: u64, kinds: &[&str]) -> Vec<u32> {
    let inode = format!("{:02x}:{:02x}:{ino}", libc::major(dev), libc::minor(dev));
    let owner = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_lock = words.next() == Some("FLOCK");
        let is_wanted = words.nth(1).is_some_and(|kind| kinds.contains(&kind));
        let pid = words.next()?.parse().ok()?;
        (is_lock && is_wanted && words.next() == Some(&inode)).then_some(pid)
    };
    locks.lines().filter_map(owner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents() {
        let check = |stat: &str, expected| assert_eq!(parent_in(stat), expected, "{stat}");
        check("7 (cat) S 5 7 7 0 -1", Some(5));
        check("7 (a) (b) S 1) R 6 7", Some(6));
        check("7 (cat) S", None);
        check("", None);
        assert_eq!(Proc.parent(std::process::id()), Some(std::os::unix::process::parent_id()));
        assert_eq!(Proc.parent(u32::MAX), None);
    }

    #[test]
    fn threads() {
        let me = std::process::id();
        assert_eq!(Proc.process_of(me), Some(me));
        // The test runs in a thread of its own.
        let thread = nix::unistd::gettid().as_raw().unsigned_abs();
        assert_eq!((Proc.process_of(thread), thread == me), (Some(me), false));
        assert_eq!(Proc.process_of(u32::MAX), None);
        assert!(Proc.is_comparable());
    }

    #[test]
    fn a_lock_is_found_at_its_process() {
        let file = tempfile::tempfile().unwrap();
        let Inode { dev, ino } = Opened::of(&file).unwrap().inode;
        let me = std::process::id();
        assert!(!Proc.has_lock(me, dev, ino), "it is only open");
        assert!(try_lock(&file, Mode::Shared).unwrap() && !Proc.has_lock(me, dev, ino));
        assert!(try_lock(&file, Mode::Exclusive).unwrap() && Proc.has_lock(me, dev, ino));
        assert!(!Proc.has_lock(u32::MAX, dev, ino) && !Proc.has_lock(me, dev, ino + 1));
    }

    #[test]
    fn owners() {
        let locks = "\
1: POSIX  ADVISORY  WRITE 10 08:01:77 0 EOF
2: FLOCK  ADVISORY  WRITE 20 08:01:77 0 EOF
2: -> FLOCK  ADVISORY  WRITE 21 08:01:77 0 EOF
3: FLOCK  ADVISORY  READ 22 08:01:77 0 EOF
4: FLOCK  ADVISORY  WRITE 23 08:02:77 0 EOF
5: FLOCK  ADVISORY  WRITE -1 08:01:77 0 EOF
6: FLOCK
";
        assert_eq!(owners_in(locks, libc::makedev(8, 1), 77), [20]);
        assert_eq!(pids_in(locks, libc::makedev(8, 1), 77, &["WRITE", "READ"]), [20, 22]);
        assert!(owners_in(locks, libc::makedev(8, 1), 7).is_empty());
        assert!(owners_in("", 0, 0).is_empty());
    }

    #[test]
    fn life() {
        assert_eq!(alive(i32::try_from(std::process::id()).unwrap()), Some(true));
        assert_eq!(alive(i32::MAX), Some(false));
        assert_eq!(alive(0), None);
        assert_eq!(alive(-1), None);
    }
}
