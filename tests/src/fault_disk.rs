//! A disk that fails or dies at a chosen call. Everything that is not chosen reaches the real disk.
//!
//! # Limitations
//!
//! A stop is the death of the process, not of the machine: what was done stays done, synced or not.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use jp_store::beneath::AllowedDirs;
use jp_store::disk::{Contents, DirEntry, Disk, RealDisk, Stat};

/// Counts and records the calls of the store, and makes one of them go wrong. Calls are numbered from 1.
#[derive(Debug, Default)]
pub struct FaultDisk {
    real: RealDisk,
    fault: Option<Fault>,
    mutations_only: bool,
    seen: Mutex<Seen>,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Fail { nth: usize, errno: i32 },
    Stop { nth: usize, when: When },
}

#[derive(Clone, Copy, Debug)]
enum When {
    Before,
    During,
    After,
}

#[derive(Debug, Default)]
struct Seen {
    calls: usize,
    mutations: usize,
    log: Vec<String>,
    struck: bool,
    dead: bool,
}

/// What is to happen to one call.
enum Fate {
    Pass,
    Fail(i32),
    /// Not performed, apart from what a torn write leaves behind.
    Tear,
    Refuse,
}

impl FaultDisk {
    /// A disk on which nothing goes wrong; it counts and records.
    pub fn new() -> Self {
        Self::default()
    }

    /// Call number `nth` fails with `errno`; the others work. All calls count. A `write_new` or `append` that fails with EIO,
    /// ENOSPC or EDQUOT leaves the first half of its bytes behind; any other failing call has done nothing.
    pub fn fail(nth: usize, errno: i32) -> Self {
        Self { fault: Some(Fault::Fail { nth, errno }), ..Self::default() }
    }

    /// The process dies just before call number `nth`: it is not performed and all later calls fail.
    pub fn stop_before(nth: usize) -> Self {
        Self::stop(nth, When::Before)
    }

    /// As [`stop_before`](Self::stop_before), but a `write_new` or `append` leaves the first half of its bytes behind.
    pub fn stop_during(nth: usize) -> Self {
        Self::stop(nth, When::During)
    }

    /// The process dies just after call number `nth`: it is performed and answered, and all later calls fail.
    pub fn stop_after(nth: usize) -> Self {
        Self::stop(nth, When::After)
    }

    fn stop(nth: usize, when: When) -> Self {
        Self { fault: Some(Fault::Stop { nth, when }), ..Self::default() }
    }

    /// Reaches the files that another disk reaches.
    pub fn sharing(mut self, allowed: &AllowedDirs) -> Self {
        self.real = RealDisk::new(allowed.clone());
        self
    }

    /// Lets only mutating calls count: a death between two reads leaves nothing new to look at, and no read is refused for
    /// want of room.
    /// `sync_dir` changes nothing that a surviving machine could see, so it does not count.
    pub fn counting_mutations(mut self) -> Self {
        self.mutations_only = true;
        self
    }

    /// How many calls were made, the failed ones included.
    pub fn calls(&self) -> usize {
        self.seen().calls
    }

    /// How many of them were to change something.
    pub fn mutations(&self) -> usize {
        self.seen().mutations
    }

    /// Whether the fault has happened. When it has not, the sweep over `nth` has gone past the end.
    pub fn struck(&self) -> bool {
        self.seen().struck
    }

    /// The calls in order, as `verb path`, with what the fault did to them.
    pub fn log(&self) -> Vec<String> {
        self.seen().log.clone()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no holder of the log panics")
    }

    fn fate(&self, verb: &str, path: &Path, mutates: bool) -> Fate {
        let mut seen = self.seen();
        seen.calls += 1;
        seen.mutations += usize::from(mutates);
        let mut line = format!("{verb} {}", path.display());
        let (count, counts) = if self.mutations_only { (seen.mutations, mutates) } else { (seen.calls, true) };
        let fate = if seen.dead {
            Fate::Refuse
        } else {
            match self.fault {
                Some(Fault::Fail { nth, errno }) if counts && count == nth => {
                    seen.struck = true;
                    Fate::Fail(errno)
                }
                Some(Fault::Stop { nth, when }) => {
                    if counts && count == nth {
                        seen.struck = true;
                        seen.dead = true;
                        match when {
                            When::Before => Fate::Refuse,
                            When::During => Fate::Tear,
                            When::After => Fate::Pass,
                        }
                    } else {
                        Fate::Pass
                    }
                }
                Some(Fault::Fail { .. }) | None => Fate::Pass,
            }
        };
        match fate {
            Fate::Pass if seen.dead => line.push_str(" (the last one)"),
            Fate::Pass => {}
            Fate::Fail(errno) => {
                line.push_str(&format!(" ({})", io::Error::from_raw_os_error(errno)));
            }
            Fate::Tear => line.push_str(" (torn)"),
            Fate::Refuse => line.push_str(" (dead)"),
        }
        seen.log.push(line);
        fate
    }

    /// Performs a call whose failure leaves nothing behind.
    fn call<T>(
        &self,
        verb: &str,
        path: &Path,
        mutates: bool,
        perform: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        match self.fate(verb, path, mutates) {
            Fate::Pass => perform(),
            Fate::Fail(errno) => Err(io::Error::from_raw_os_error(errno)),
            Fate::Tear | Fate::Refuse => Err(dead()),
        }
    }
}

impl Disk for FaultDisk {
    fn allowed(&self) -> &AllowedDirs {
        self.real.allowed()
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.call("stat", path, false, || self.real.stat(path))
    }

    fn filesystem(&self, path: &Path) -> io::Result<Option<u64>> {
        self.call("filesystem", path, false, || self.real.filesystem(path))
    }

    fn read(&self, path: &Path) -> io::Result<Contents> {
        self.call("read", path, false, || self.real.read(path))
    }

    fn read_from(&self, path: &Path, offset: u64) -> io::Result<Contents> {
        self.call("read_from", path, false, || self.real.read_from(path, offset))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.call("list", path, false, || self.real.list(path))
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.call("read_link", path, false, || self.real.read_link(path))
    }

    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.call("create_dir", path, true, || self.real.create_dir(path, mode))
    }

    fn write_new(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        match self.fate("write_new", path, true) {
            Fate::Pass => self.real.write_new(path, bytes, mode),
            Fate::Fail(errno) => {
                if [libc::EIO, libc::ENOSPC, libc::EDQUOT].contains(&errno) {
                    tear(path, bytes, mode)?;
                }
                Err(io::Error::from_raw_os_error(errno))
            }
            Fate::Tear => {
                tear(path, bytes, mode)?;
                Err(dead())
            }
            Fate::Refuse => Err(dead()),
        }
    }

    fn write_one_of_many(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.write_new(path, bytes, mode)
    }

    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        self.call("sync_all", dir, false, || self.real.sync_all(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("rename", from, true, || self.real.rename(from, to))
    }

    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        self.call("exchange", a, true, || self.real.exchange(a, b))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.call("remove_file", path, true, || self.real.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.call("remove_dir", path, true, || self.real.remove_dir(path))
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.call("set_mode", path, true, || self.real.set_mode(path, mode))
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.call("symlink", link, true, || self.real.symlink(target, link))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call("sync_dir", path, false, || self.real.sync_dir(path))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        match self.fate("append", path, true) {
            Fate::Pass => self.real.append(path, bytes),
            Fate::Fail(errno) => {
                if [libc::EIO, libc::ENOSPC, libc::EDQUOT].contains(&errno) {
                    self.real.append(path, &bytes[..bytes.len() / 2])?;
                }
                Err(io::Error::from_raw_os_error(errno))
            }
            Fate::Tear => {
                self.real.append(path, &bytes[..bytes.len() / 2])?;
                Err(dead())
            }
            Fate::Refuse => Err(dead()),
        }
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.call("sync_file", path, false, || self.real.sync_file(path))
    }

    fn open_lock(&self, path: &Path) -> io::Result<File> {
        self.call("open_lock", path, true, || self.real.open_lock(path))
    }

    fn open_existing_lock(&self, path: &Path) -> io::Result<File> {
        self.call("open_existing_lock", path, false, || self.real.open_existing_lock(path))
    }
}

/// Leaves what an interrupted write leaves: a new file with the first half of the bytes. A taken name is refused as ever.
fn tear(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(&bytes[..bytes.len() / 2])
}

fn dead() -> io::Error {
    io::Error::other("the process is dead")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// Replaces `a` the way a store does and says what is left: the contents of `a` and of its temporary.
    fn replace(disk: &FaultDisk) -> (io::Result<()>, String, Option<String>) {
        let dir = TempDir::new().expect("a temporary directory");
        let (name, temp) = (dir.path().join("a"), dir.path().join("a.tmp"));
        fs::write(&name, "old").expect("written");
        disk.allowed().allow(dir.path()).expect("a directory");
        let result = disk
            .stat(&name)
            .and_then(|_| disk.write_new(&temp, b"newnew", 0o644))
            .and_then(|()| disk.rename(&temp, &name))
            .and_then(|()| disk.sync_dir(dir.path()));
        let left = fs::read_to_string(&temp).ok();
        (result, fs::read_to_string(&name).expect("a is always there"), left)
    }

    fn check(disk: FaultDisk, errno: Option<i32>, name: &str, temp: Option<&str>) -> FaultDisk {
        let (result, got_name, got_temp) = replace(&disk);
        assert_eq!(result.map_err(|err| err.raw_os_error()).err(), errno.map(Some), "{disk:#?}");
        assert_eq!((got_name.as_str(), got_temp.as_deref()), (name, temp), "{disk:#?}");
        disk
    }

    fn check_dead(disk: FaultDisk, name: &str, temp: Option<&str>) -> FaultDisk {
        let (result, got_name, got_temp) = replace(&disk);
        assert_eq!(result.expect_err("the process died").to_string(), "the process is dead");
        assert_eq!((got_name.as_str(), got_temp.as_deref()), (name, temp), "{disk:#?}");
        assert!(disk.struck());
        disk
    }

    #[test]
    fn without_a_fault_it_counts() {
        let disk = check(FaultDisk::new(), None, "newnew", None);
        assert_eq!((disk.calls(), disk.mutations(), disk.struck()), (4, 2, false));
        let verbs: Vec<String> =
            disk.log().iter().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect();
        assert_eq!(verbs, ["stat", "write_new", "rename", "sync_dir"]);
    }

    #[test]
    fn a_failing_call_fails_once() {
        check(FaultDisk::fail(1, libc::EIO), Some(libc::EIO), "old", None);
        check(FaultDisk::fail(2, libc::ENOSPC), Some(libc::ENOSPC), "old", Some("new"));
        check(FaultDisk::fail(2, libc::EACCES), Some(libc::EACCES), "old", None);
        check(FaultDisk::fail(3, libc::EIO), Some(libc::EIO), "old", Some("newnew"));
        check(FaultDisk::fail(4, libc::EIO), Some(libc::EIO), "newnew", None);
        let beyond = check(FaultDisk::fail(5, libc::EIO), None, "newnew", None);
        assert!(!beyond.struck());

        let disk = FaultDisk::fail(1, libc::EIO);
        disk.allowed().allow(Path::new("/")).expect("a directory");
        assert!(disk.stat(Path::new("/")).is_err());
        assert!(disk.stat(Path::new("/")).is_ok());
    }

    #[test]
    fn a_stop_comes_before_during_or_after() {
        check_dead(FaultDisk::stop_before(2), "old", None);
        check_dead(FaultDisk::stop_during(2), "old", Some("new"));
        check_dead(FaultDisk::stop_after(2), "old", Some("newnew"));
        check_dead(FaultDisk::stop_before(3), "old", Some("newnew"));
        check_dead(FaultDisk::stop_during(3), "old", Some("newnew"));
        check_dead(FaultDisk::stop_after(3), "newnew", None);
    }

    #[test]
    fn a_stop_can_count_mutations_only() {
        let disk = check_dead(FaultDisk::stop_before(1).counting_mutations(), "old", None);
        assert!(disk.log()[0].starts_with("stat ") && !disk.log()[0].ends_with("(dead)"));
        check_dead(FaultDisk::stop_after(1).counting_mutations(), "old", Some("newnew"));
        check_dead(FaultDisk::stop_after(2).counting_mutations(), "newnew", None);
        let beyond = check(FaultDisk::stop_before(3).counting_mutations(), None, "newnew", None);
        assert!(!beyond.struck());
    }

    #[test]
    fn the_dead_do_nothing() {
        let dir = TempDir::new().expect("a temporary directory");
        let path = dir.path().join("a");
        let disk = FaultDisk::stop_after(1);
        disk.allowed().allow(dir.path()).expect("a directory");
        assert!(disk.create_dir(&path, 0o700).is_ok());
        assert!(disk.remove_dir(&path).is_err() && path.is_dir());
        assert!(disk.stat(&path).is_err());
        assert!(disk.open_lock(&dir.path().join("lock")).is_err());
        assert_eq!(disk.calls(), 4);
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1);
    }

    #[test]
    fn a_torn_write_respects_a_taken_name() {
        let dir = TempDir::new().expect("a temporary directory");
        let path = dir.path().join("a");
        fs::write(&path, "old").expect("written");
        let err = FaultDisk::fail(1, libc::EIO).write_new(&path, b"new", 0o644).expect_err("taken");
        assert_eq!(err.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).expect("still there"), "old");
    }
}
