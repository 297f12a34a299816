//! The mount's own calls to the filesystem, one of which goes wrong. Shares its count with nobody: the store's calls have a
//! disk of their own.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use jp_fs::backing::{Backing, RealBacking, Space, Stat};
use jp_store::beneath::AllowedDirs;
use jp_store::disk::Kind;

use crate::fault_disk::FaultDisk;

/// Counts the calls, and makes one of them go wrong. Calls are numbered from 1; what comes before [`FaultBacking::arm`] is
/// not counted. Clones are the same one.
#[derive(Clone, Debug)]
pub struct FaultBacking {
    real: RealBacking,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The disk of the same process.
    disk: Option<Arc<FaultDisk>>,
    fault: Option<Fault>,
    calls: usize,
    struck: bool,
    dead: bool,
    log: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Fail { nth: usize, errno: i32 },
    Stop { nth: usize },
    Full { nth: usize, errno: i32 },
}

/// What needs room, or a filesystem that can be written to.
const NEEDS_ROOM: [&str; 9] =
    ["write", "append", "create", "replace", "put", "make_dir", "make_dirs", "symlink", "link"];

impl FaultBacking {
    /// One on which nothing goes wrong yet.
    pub fn new(allowed: AllowedDirs) -> Self {
        Self { real: RealBacking::new(allowed), seen: Arc::default() }
    }

    /// From now on call number `nth` fails with `errno`; the others work.
    pub fn arm(&self, nth: usize, errno: i32) {
        self.set(Fault::Fail { nth, errno });
    }

    /// From call number `nth` on, every call that needs room fails with `errno`, as on a filesystem that is full.
    pub fn arm_full(&self, nth: usize, errno: i32) {
        self.set(Fault::Full { nth, errno });
    }

    /// From now on the process dies with call number `nth`, which is not performed; nor is any later one.
    pub fn arm_stop(&self, nth: usize) {
        self.set(Fault::Stop { nth });
    }

    /// From now on the process dies when its disk does.
    pub fn die_with(&self, disk: Arc<FaultDisk>) {
        *self.seen() = Seen { fault: Some(Fault::Stop { nth: usize::MAX }), disk: Some(disk), ..Seen::default() };
    }

    /// From now on nothing goes wrong.
    pub fn disarm(&self) {
        *self.seen() = Seen::default();
    }

    /// Whether the process has died.
    pub fn is_dead(&self) -> bool {
        self.seen().dead
    }

    /// Whether the fault has happened.
    pub fn struck(&self) -> bool {
        self.seen().struck
    }

    /// The calls since it was armed, with what became of them.
    pub fn log(&self) -> Vec<String> {
        self.seen().log.clone()
    }

    fn set(&self, fault: Fault) {
        *self.seen() = Seen { fault: Some(fault), ..Seen::default() };
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        // A test that panics elsewhere leaves the count as it is.
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The last bytes that fit on a filesystem that is full from the next call on.
    fn fitting<'a>(&self, data: &'a [u8]) -> &'a [u8] {
        let seen = self.seen();
        let is_last = matches!(seen.fault, Some(Fault::Full { nth, .. }) if seen.calls + 1 == nth);
        if is_last { &data[..data.len().div_ceil(2)] } else { data }
    }

    fn call<T>(&self, verb: &str, path: &Path, perform: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let mut seen = self.seen();
        let Some(fault) = seen.fault else {
            drop(seen);
            return perform();
        };
        seen.calls += 1;
        seen.dead |= seen.disk.as_ref().is_some_and(|disk| disk.struck());
        let mut line = format!("{verb} {}", path.display());
        let fate = match fault {
            _ if seen.dead => Err(io::Error::other("the process is dead")),
            Fault::Fail { nth, errno } if seen.calls == nth => Err(io::Error::from_raw_os_error(errno)),
            Fault::Stop { nth } if seen.calls == nth => {
                seen.dead = true;
                Err(io::Error::other("the process is dead"))
            }
            Fault::Full { nth, errno } if seen.calls >= nth && NEEDS_ROOM.contains(&verb) => {
                Err(io::Error::from_raw_os_error(errno))
            }
            Fault::Fail { .. } | Fault::Stop { .. } | Fault::Full { .. } => Ok(()),
        };
        if let Err(error) = &fate {
            line.push_str(&format!(" ({error})"));
            seen.struck = true;
        }
        seen.log.push(line);
        drop(seen);
        fate?;
        perform()
    }
}

impl Backing for FaultBacking {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.call("stat", path, || self.real.stat(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Kind)>> {
        self.call("list", path, || self.real.list(path))
    }

    fn read(&self, path: &Path, offset: u64, size: usize) -> io::Result<Vec<u8>> {
        self.call("read", path, || self.real.read(path, offset, size))
    }

    fn read_all(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.call("read_all", path, || self.real.read_all(path))
    }

    fn write(&self, path: &Path, offset: u64, data: &[u8]) -> io::Result<usize> {
        self.call("write", path, || self.real.write(path, offset, self.fitting(data)))
    }

    fn append(&self, path: &Path, data: &[u8]) -> io::Result<(u64, usize)> {
        self.call("append", path, || self.real.append(path, self.fitting(data)))
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.call("create", path, || self.real.create(path, mode))
    }

    fn truncate(&self, path: &Path, size: u64) -> io::Result<()> {
        self.call("truncate", path, || self.real.truncate(path, size))
    }

    fn replace(&self, path: &Path, beside: &Path, bytes: &[u8]) -> io::Result<()> {
        self.call("replace", path, || self.real.replace(path, beside, bytes))
    }

    fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.call("put", path, || self.real.put(path, bytes))
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.call("sync", path, || self.real.sync(path))
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.call("set_mode", path, || self.real.set_mode(path, mode))
    }

    fn set_times(&self, path: &Path, atime: Option<i64>, mtime: Option<i64>) -> io::Result<()> {
        self.call("set_times", path, || self.real.set_times(path, atime, mtime))
    }

    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.call("make_dir", path, || self.real.make_dir(path, mode))
    }

    fn make_dirs(&self, path: &Path) -> io::Result<()> {
        self.call("make_dirs", path, || self.real.make_dirs(path))
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.call("symlink", link, || self.real.symlink(target, link))
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.call("read_link", path, || self.real.read_link(path))
    }

    fn link(&self, path: &Path, name: &Path) -> io::Result<()> {
        self.call("link", path, || self.real.link(path, name))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("rename", from, || self.real.rename(from, to))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("rename_new", from, || self.real.rename_new(from, to))
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.call("exchange", one, || self.real.exchange(one, other))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call("remove", path, || self.real.remove(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.call("remove_dir", path, || self.real.remove_dir(path))
    }

    fn fetch(&self, path: &Path) -> io::Result<()> {
        self.call("fetch", path, || self.real.fetch(path))
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.call("space", path, || self.real.space(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_fails_or_all_from_one_on() {
        let allowed = AllowedDirs::default();
        allowed.allow(Path::new("/")).expect("a directory");
        let backing = FaultBacking::new(allowed);
        let look = || backing.stat(Path::new("/")).map_err(|error| error.raw_os_error()).err();
        assert_eq!(look(), None);
        backing.arm(2, libc::ENOSPC);
        assert_eq!([look(), look(), look()], [None, Some(Some(libc::ENOSPC)), None]);
        assert!(backing.struck() && backing.log().len() == 3);
        backing.arm_stop(2);
        assert!(!backing.struck());
        assert_eq!([look(), look(), look()], [None, Some(None), Some(None)]);
    }
}
