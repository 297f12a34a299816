//! The one way to reach files. Everything the program reads, lists, writes, moves or removes lies beneath an *allowed
//! directory*: the user's data directory, a project's `.jp`, the target of an export, the directory under a mount. A
//! path is resolved from a descriptor of that directory, component by component, and never through a symbolic link; a
//! path that leads anywhere else is refused. So neither a link in a repository nor a name in a store decides where the
//! program acts.
//!
//! [`trusted`] has the few calls for paths that the user typed or the system defines. No other module opens a file.

mod attributes;
mod resolve;
#[cfg(test)]
mod tests;
pub mod trusted;
mod wrong_kind;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, RenameFlags};
use nix::sys::stat::{FchmodatFlags, Mode, UtimensatFlags};
use nix::sys::statvfs::Statvfs;
use nix::sys::time::TimeSpec;
use nix::unistd::{LinkatFlags, UnlinkatFlags};
use parking_lot::RwLock;
use rustix::fs::{AtFlags, FileType, RawDir};

pub use self::attributes::Attributes;
pub use self::wrong_kind::{WrongKind, is_wrong_kind};
use crate::identity::filesystem_id;

/// No file is read that is longer than this many bytes. A sparse file claims any size without occupying a block.
pub const LARGEST: u64 = 1 << 30;

/// A path of so many bytes is longer than the system takes.
const LONGEST_PATH: usize = libc::PATH_MAX as usize;

/// Bytes of a directory's listing that are asked for at once, on the stack.
const LISTING_BUFFER: usize = 16 << 10;

/// The directories beneath which files may be reached. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct AllowedDirs(Arc<RwLock<Vec<Arc<AllowedDir>>>>);

#[derive(Debug)]
struct AllowedDir {
    path: PathBuf,
    /// The descriptor; `None` until the directory exists.
    dir: RwLock<Option<Arc<OwnedFd>>>,
    /// Its path is a name for the descriptor and cannot be opened again.
    pinned: bool,
    /// It may be made, because it was not there when it was allowed. One that was there and is gone was moved or removed by
    /// somebody, who does not want half of it back.
    may_be_made: bool,
}

/// Whether an error says that nothing is at a path.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// What a new file may take the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Whatever has the name.
    Anything,
    /// Only a name that is free.
    Nothing,
}

/// Where a path lies.
enum Place<'a> {
    /// In an allowed directory, or that directory itself where `rest` is empty.
    Inside { dir: Arc<AllowedDir>, rest: &'a OsStr },
    /// Above an allowed directory, on a path that the user or the system chose.
    Above,
}

/// A directory and one name in it.
struct Entry<'a> {
    parent: Arc<OwnedFd>,
    name: &'a OsStr,
}

impl AllowedDir {
    /// Its descriptor, opened now if it was not there before.
    fn open(&self) -> io::Result<Arc<OwnedFd>> {
        if let Some(fd) = &*self.dir.read() {
            return Ok(fd.clone());
        }
        let fd = Arc::new(open_top(&self.path)?);
        *self.dir.write() = Some(fd.clone());
        Ok(fd)
    }

    /// Opens it again if the directory behind the descriptor was removed. `None` if it was not.
    fn reopen(&self, stale: &OwnedFd) -> Option<Arc<OwnedFd>> {
        if self.pinned || nix::sys::stat::fstat(stale).is_ok_and(|stat| stat.st_nlink > 0) {
            return None;
        }
        *self.dir.write() = None;
        self.open().ok()
    }
}

/// Opens an allowed directory itself: the path above it is the user's affair, the last name is not followed.
fn open_top(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    match nix::fcntl::open(path, flags, Mode::empty()) {
        Ok(fd) => Ok(fd),
        Err(Errno::ENOTDIR) => match trusted::stat(path) {
            Ok(meta) if meta.is_symlink() => Err(WrongKind::error(path, WrongKind::LINK)),
            Ok(_) => Err(WrongKind::error(path, WrongKind::NOT_DIR)),
            Err(error) => Err(error),
        },
        Err(errno) => Err(errno.into()),
    }
}

impl AllowedDirs {
    /// Allows what is beneath this directory, which need not exist yet. Fails if it is a link or not a directory.
    pub fn allow(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        if self.0.read().iter().any(|known| known.path == path && known.dir.read().is_some()) {
            return Ok(());
        }
        let dir = match open_top(&path) {
            Ok(fd) => Some(fd),
            Err(error) if is_missing(&error) => None,
            Err(error) => return Err(error),
        };
        self.add_opened(path, dir);
        Ok(())
    }

    fn add_opened(&self, path: PathBuf, dir: Option<OwnedFd>) {
        let may_be_made = dir.is_none();
        self.add(AllowedDir { path, dir: RwLock::new(dir.map(Arc::new)), pinned: false, may_be_made });
    }

    /// As [`AllowedDirs::allow`] if the directory is there; `false` if it is not.
    pub fn allow_existing(&self, path: &Path) -> io::Result<bool> {
        let path = normal(path);
        match open_top(&path) {
            Ok(fd) => {
                self.add_opened(path, Some(fd));
                Ok(true)
            }
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Allows what is beneath an open directory, under a path that stands for it.
    pub fn allow_open(&self, path: &Path, dir: OwnedFd) {
        let dir = RwLock::new(Some(Arc::new(dir)));
        self.add(AllowedDir { path: path.to_owned(), dir, pinned: true, may_be_made: false });
    }

    fn add(&self, new: AllowedDir) {
        let mut list = self.0.write();
        list.retain(|known| known.path != new.path);
        list.push(Arc::new(new));
        // The innermost first.
        list.sort_by_key(|known| std::cmp::Reverse(known.path.as_os_str().len()));
    }

    fn locate<'a>(&self, path: &'a Path) -> io::Result<Place<'a>> {
        self.locate_with(path, |dir, rest| Place::Inside { dir: dir.clone(), rest }, Place::Above)
    }

    /// Calls `inside` with the allowed directory that a path is in and the rest of the path, or gives `above`.
    fn locate_with<'a, T>(
        &self,
        path: &'a Path,
        inside: impl FnOnce(&Arc<AllowedDir>, &'a OsStr) -> T,
        above: T,
    ) -> io::Result<T> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() >= LONGEST_PATH {
            // It could be reached from a descriptor, but by no other program.
            return Err(Errno::ENAMETOOLONG.into());
        }
        let list = self.0.read();
        for dir in &*list {
            let Some(rest) = bytes.strip_prefix(trim(dir.path.as_os_str().as_bytes())) else { continue };
            let rest = match rest {
                [] => rest,
                [b'/', rest @ ..] => trim(rest),
                _ => continue,
            };
            if has_odd_component(rest) {
                return Err(WrongKind::error(path, "a path with `..` in it, which is not followed"));
            }
            return Ok(inside(dir, OsStr::from_bytes(rest)));
        }
        if list.iter().any(|dir| dir.path.starts_with(path)) {
            return Ok(above);
        }
        Err(WrongKind::error(path, "outside the directories that jp may use"))
    }

    /// Opens what is at a path, which is not a link unless the flags are those of [`AllowedDirs::pin`].
    fn open_with(&self, path: &Path, flags: OFlag, mode: Mode) -> io::Result<OwnedFd> {
        let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        match self.locate(path)? {
            Place::Inside { dir, rest } => {
                let rest = if rest.is_empty() { OsStr::new(".") } else { rest };
                Self::at(path, &dir, |top| resolve::open(top, rest, flags, mode))
            }
            Place::Above => Err(WrongKind::error(path, "outside the directories that jp may use")),
        }
    }

    /// Does something with an allowed directory's descriptor, once more if the directory was replaced meanwhile.
    fn at<T>(path: &Path, dir: &AllowedDir, work: impl Fn(BorrowedFd<'_>) -> nix::Result<T>) -> io::Result<T> {
        let top = dir.open()?;
        let mut done = work(top.as_fd());
        if let Err(Errno::ENOENT) = done
            && let Some(again) = dir.reopen(&top)
        {
            done = work(again.as_fd());
        }
        done.map_err(|errno| Self::explain(errno, path, dir))
    }

    /// An error with the name of the link that is in the way.
    fn explain(errno: Errno, path: &Path, dir: &AllowedDir) -> io::Error {
        // A link in a directory's place is said not to be one.
        if errno != Errno::ELOOP && errno != Errno::ENOTDIR {
            return errno.into();
        }
        let Ok(top) = dir.open() else { return errno.into() };
        let rest = path.strip_prefix(&dir.path).unwrap_or(Path::new(""));
        let mut at = PathBuf::new();
        for component in rest {
            at.push(component);
            let found = resolve::open(
                top.as_fd(),
                at.as_os_str(),
                OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC,
                Mode::empty(),
            );
            match found.map(File::from).ok().and_then(|found| found.metadata().ok()) {
                Some(meta) if meta.is_symlink() => return WrongKind::error(&dir.path.join(at), WrongKind::LINK),
                Some(_) => {}
                None => break,
            }
        }
        errno.into()
    }

    /// The directory that has a path's last name.
    fn entry<'a>(&self, path: &'a Path) -> io::Result<Entry<'a>> {
        let (dir, rest) = match self.locate(path)? {
            Place::Inside { dir, rest } if !rest.is_empty() => (dir, rest),
            Place::Inside { .. } | Place::Above => {
                return Err(WrongKind::error(path, "a directory that jp was given, and does not change itself"));
            }
        };
        let bytes = rest.as_bytes();
        match memchr::memrchr(b'/', bytes) {
            None => Ok(Entry { parent: dir.open()?, name: rest }),
            Some(at) => {
                let (above, name) = (OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..]));
                let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                let parent = Self::at(path, &dir, |top| resolve::open(top, above, flags, Mode::empty()))?;
                Ok(Entry { parent: Arc::new(parent), name })
            }
        }
    }

    /// As [`AllowedDirs::entry`], for two paths. A directory that has both names is opened once.
    fn entries<'a>(&self, one: &'a Path, other: &'a Path) -> io::Result<(Entry<'a>, Entry<'a>)> {
        let first = self.entry(one)?;
        let second = match (one.parent(), other.parent(), other.file_name()) {
            (Some(dir), Some(same), Some(name)) if dir.as_os_str() == same.as_os_str() => {
                self.locate(other)?;
                Entry { parent: first.parent.clone(), name }
            }
            _ => self.entry(other)?,
        };
        Ok((first, second))
    }

    /// A descriptor that stands for what is at a path, a link too. Nothing can be read or written through it.
    fn pin(&self, path: &Path) -> io::Result<File> {
        self.open_with(path, OFlag::O_PATH, Mode::empty()).map(File::from)
    }

    /// `lstat`: what has this name now. It is one call of the system, because nearly everything begins with it, and may
    /// look past a link on the way, as no other call does. It opens nothing; whoever acts on the answer resolves the path
    /// anew.
    pub fn stat(&self, path: &Path) -> io::Result<Attributes> {
        // A pinned directory's path need not lead anywhere.
        match self.locate_with(path, |dir, rest| Some(dir.pinned.then(|| (dir.clone(), rest))), None)? {
            Some(Some((dir, rest))) => match Attributes::relative(&*dir.open()?, Path::new(rest)) {
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                    Ok(Attributes::from(&self.pin(path)?.metadata()?))
                }
                found => found,
            },
            Some(None) => trusted::stat(path).map(|meta| Attributes::from(&meta)),
            None => trusted::follow(path).map(|meta| Attributes::from(&meta)),
        }
    }

    /// Opens a regular file for reading, without waiting for anybody. Anything else is a [`WrongKind`].
    pub fn open(&self, path: &Path) -> io::Result<(File, Metadata)> {
        self.open_checked(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK, 0)
    }

    /// As [`AllowedDirs::open`], for a file of at most this many bytes.
    pub fn open_within(&self, path: &Path, largest: u64) -> io::Result<(File, Metadata)> {
        let (file, meta) = self.open(path)?;
        if meta.len() > largest {
            return Err(WrongKind::error(path, if largest < LARGEST { "too large" } else { WrongKind::TOO_LARGE }));
        }
        Ok((file, meta))
    }

    /// A small regular file as a whole; more than this many bytes is a [`WrongKind`].
    pub fn read_within(&self, path: &Path, largest: u64) -> io::Result<Vec<u8>> {
        let (file, meta) = self.open_within(path, largest)?;
        let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
        io::Read::read_to_end(&mut io::Read::take(file, largest.saturating_add(1)), &mut bytes)?;
        if bytes.len() as u64 > largest {
            return Err(WrongKind::error(path, "too large"));
        }
        Ok(bytes)
    }

    /// Opens a regular file that is there for writing.
    pub fn open_write(&self, path: &Path) -> io::Result<File> {
        self.open_checked(path, OFlag::O_WRONLY | OFlag::O_NONBLOCK, 0).map(|(file, _)| file)
    }

    /// Opens a regular file for writing at its end, and makes it with these permission bits if it is not there.
    pub fn open_append(&self, path: &Path, mode: u32) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_APPEND | OFlag::O_CREAT;
        let (file, meta) = self.open_checked(path, flags, mode)?;
        check_single(path, &meta)?;
        Ok(file)
    }

    /// Opens a regular file for reading and writing, and makes it with these permission bits if it is not there.
    pub fn open_or_create(&self, path: &Path, mode: u32) -> io::Result<(File, Metadata)> {
        let (file, meta) = self.open_checked(path, OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CREAT, mode)?;
        check_single(path, &meta)?;
        Ok((file, meta))
    }

    /// Opens a regular file that is there for reading and writing.
    pub fn open_both(&self, path: &Path) -> io::Result<File> {
        self.open_checked(path, OFlag::O_RDWR | OFlag::O_NONBLOCK, 0).map(|(file, _)| file)
    }

    /// Makes a file with these permission bits, narrowed by the umask. Fails if the name is taken.
    pub fn create(&self, path: &Path, mode: u32) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        self.open_with(path, flags, bits(mode)).map(File::from)
    }

    fn open_checked(&self, path: &Path, flags: OFlag, mode: u32) -> io::Result<(File, Metadata)> {
        // A pipe without a reader says ENXIO, and a directory EISDIR.
        let file = File::from(self.open_with(path, flags, bits(mode))?);
        let meta = file.metadata()?;
        check_regular(path, &meta)?;
        Ok((file, meta))
    }

    /// Opens a directory, to be listed, synced or watched.
    pub fn open_dir(&self, path: &Path) -> io::Result<File> {
        if let Place::Above = self.locate(path)? {
            return trusted::open_dir(path);
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK;
        self.open_with(path, flags, Mode::empty()).map(File::from)
    }

    /// Brings a regular file's bytes or a directory's entries to disk.
    pub fn sync(&self, path: &Path) -> io::Result<()> {
        let file = File::from(self.open_with(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK, Mode::empty())?);
        let meta = file.metadata()?;
        if !meta.is_dir() {
            check_regular(path, &meta)?;
        }
        file.sync_all()
    }

    /// The names in a directory and what each stands for, in no particular order.
    pub fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Kind)>> {
        list(&self.open_dir(path)?)
    }

    /// What a link says. Fails with `EINVAL` for anything else.
    pub fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let entry = self.entry(path)?;
        nix::fcntl::readlinkat(&entry.parent, entry.name).map(PathBuf::from).map_err(io::Error::from)
    }

    /// Makes a directory with these permission bits, narrowed by the umask.
    pub fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        match self.locate(path)? {
            Place::Inside { rest, .. } if !rest.is_empty() => {
                let entry = self.entry(path)?;
                Ok(nix::sys::stat::mkdirat(&entry.parent, entry.name, bits(mode))?)
            }
            Place::Inside { dir, .. } => Self::create_given(path, mode, dir.may_be_made),
            Place::Above => {
                let may_be_made = self.0.read().iter().any(|dir| dir.may_be_made && dir.path.starts_with(path));
                Self::create_given(path, mode, may_be_made)
            }
        }
    }

    /// Makes a directory that jp was given, or one above it.
    fn create_given(path: &Path, mode: u32, may_be_made: bool) -> io::Result<()> {
        if may_be_made {
            return trusted::create_dir(path, mode);
        }
        match trusted::stat(path) {
            Ok(_) => Err(Errno::EEXIST.into()),
            Err(error) if is_missing(&error) => {
                Err(io::Error::other(format!("{} was there, and was moved or removed meanwhile", path.display())))
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a directory and those above it that are missing, with these permission bits.
    pub fn create_dirs(&self, path: &Path, mode: u32) -> io::Result<()> {
        match (self.create_dir(path, mode), path.parent()) {
            (Err(error), _) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
                self.create_dirs(parent, mode)?;
                self.create_dirs(path, mode)
            }
            (made, _) => made,
        }
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        let entry = self.entry(link)?;
        Ok(nix::unistd::symlinkat(target, &entry.parent, entry.name)?)
    }

    /// Gives a file a second name.
    pub fn link(&self, path: &Path, name: &Path) -> io::Result<()> {
        let (old, new) = self.entries(path, name)?;
        Ok(nix::unistd::linkat(&old.parent, old.name, &new.parent, new.name, LinkatFlags::empty())?)
    }

    /// `rename`, replacing a file or an empty directory.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (old, new) = self.entries(from, to)?;
        Ok(nix::fcntl::renameat(&old.parent, old.name, &new.parent, new.name)?)
    }

    /// As [`AllowedDirs::rename`], but fails if the name is taken.
    pub fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (old, new) = self.entries(from, to)?;
        let flags = RenameFlags::RENAME_NOREPLACE;
        match nix::fcntl::renameat2(&old.parent, old.name, &new.parent, new.name, flags) {
            // Not every filesystem can.
            Err(Errno::EINVAL | Errno::ENOSYS) if self.stat(from)?.kind() == Kind::Dir => match self.stat(to) {
                Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                // A directory cannot have two names. One that comes meanwhile is replaced only if it is empty.
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.rename(from, to),
                Err(error) => Err(error),
            },
            Err(Errno::EINVAL | Errno::ENOSYS) => {
                self.link(from, to)?;
                self.remove_file(from)
            }
            renamed => Ok(renamed?),
        }
    }

    /// Makes a file these bytes, whole or not at all, and brings it to disk. The umask narrows the permission bits. With `Over::Nothing` what somebody else puts
    /// there first stays.
    pub fn put(&self, path: &Path, bytes: &[u8], mode: u32, over: Over) -> io::Result<()> {
        let mut name = OsString::from(".jp-tmp-");
        name.push(format!("{:016x}-", RandomState::new().hash_one(0)));
        name.push(path.file_name().unwrap_or_default());
        let tmp = path.with_file_name(name);
        let mut file = self.create(&tmp, mode)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| match over {
            Over::Anything => self.rename(&tmp, path),
            Over::Nothing => self.rename_new(&tmp, path),
        });
        if written.is_err() {
            // The failure is what is reported.
            let _ = self.remove_file(&tmp);
        }
        written
    }

    /// Gives two names to each other's files, as one change. Not every filesystem can.
    pub fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        let (one, other) = self.entries(a, b)?;
        let flags = RenameFlags::RENAME_EXCHANGE;
        Ok(nix::fcntl::renameat2(&one.parent, one.name, &other.parent, other.name, flags)?)
    }

    /// `unlink`.
    pub fn remove_file(&self, path: &Path) -> io::Result<()> {
        let entry = self.entry(path)?;
        Ok(nix::unistd::unlinkat(&entry.parent, entry.name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// `rmdir`.
    pub fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let entry = self.entry(path)?;
        Ok(nix::unistd::unlinkat(&entry.parent, entry.name, UnlinkatFlags::RemoveDir)?)
    }

    /// Sets permission bits. Fails for a link.
    pub fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        let entry = self.entry(path)?;
        let flags = FchmodatFlags::NoFollowSymlink;
        Ok(nix::sys::stat::fchmodat(&entry.parent, entry.name, bits(mode), flags)?)
    }

    /// Sets the times of reading and of modification.
    pub fn set_times(&self, path: &Path, atime: TimeSpec, mtime: TimeSpec) -> io::Result<()> {
        let entry = self.entry(path)?;
        let flags = UtimensatFlags::NoFollowSymlink;
        Ok(nix::sys::stat::utimensat(&entry.parent, entry.name, &atime, &mtime, flags)?)
    }

    /// How full the filesystem of a path is.
    pub fn space(&self, path: &Path) -> io::Result<Statvfs> {
        Ok(nix::sys::statvfs::fstatvfs(&self.pin(path)?)?)
    }

    /// The id of the filesystem of a path; `None` if it has none that outlives a reboot.
    pub fn filesystem(&self, path: &Path) -> io::Result<Option<u64>> {
        let pinned = self.pin(path)?;
        let device = nix::sys::stat::fstat(&pinned)?.st_dev;
        Ok(filesystem_id(nix::sys::statvfs::fstatvfs(&pinned)?.filesystem_id(), device))
    }

    /// What kind of filesystem a path is on, as `statfs` numbers them.
    pub fn filesystem_type(&self, path: &Path) -> io::Result<i64> {
        Self::filesystem_type_of(&self.pin(path)?)
    }

    /// What kind of filesystem an open file or directory is on.
    pub fn filesystem_type_of(open: &impl AsFd) -> io::Result<i64> {
        Ok(nix::sys::statfs::fstatfs(open)?.filesystem_type().0)
    }

    /// Another path to an open directory, for calls of the system that take nothing but a path. It leads to that very
    /// directory, for as long as it is open, and through no link.
    pub fn path_of(dir: &impl AsFd) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd()))
    }
}

/// What kind of thing a name stands for. Links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A socket, a pipe, a device.
    Other,
}

impl From<std::fs::FileType> for Kind {
    fn from(kind: std::fs::FileType) -> Self {
        if kind.is_file() {
            Self::File
        } else if kind.is_dir() {
            Self::Dir
        } else if kind.is_symlink() {
            Self::Link
        } else {
            Self::Other
        }
    }
}

fn list(dir: &File) -> io::Result<Vec<(OsString, Kind)>> {
    let mut names = Vec::new();
    let mut unknown = Vec::new();
    let mut buffer = [MaybeUninit::uninit(); LISTING_BUFFER];
    let mut entries = RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        // Some filesystems do not say.
        if entry.file_type() == FileType::Unknown {
            unknown.push(names.len());
        }
        names.push((name.to_owned(), kind_of(entry.file_type())));
    }
    for at in unknown {
        let (name, kind) = &mut names[at];
        let stat = rustix::fs::statat(dir, name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW)?;
        *kind = kind_of(FileType::from_raw_mode(stat.st_mode));
    }
    Ok(names)
}

fn kind_of(kind: FileType) -> Kind {
    match kind {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    }
}

fn check_regular(path: &Path, meta: &Metadata) -> io::Result<()> {
    match Kind::from(meta.file_type()) {
        Kind::File => Ok(()),
        Kind::Dir => Err(WrongKind::error(path, WrongKind::DIR)),
        Kind::Link => Err(WrongKind::error(path, WrongKind::LINK)),
        Kind::Other => Err(WrongKind::error(path, WrongKind::SPECIAL)),
    }
}

/// Refuses a file that has another name as well, which may be somebody else's. A file that has lost its name is fine.
fn check_single(path: &Path, meta: &Metadata) -> io::Result<()> {
    if meta.nlink() > 1 {
        return Err(WrongKind::error(path, "a file that has a second name"));
    }
    Ok(())
}

fn bits(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode)
}

/// Without what means nothing: a trailing slash, `.`.
fn normal(path: &Path) -> PathBuf {
    path.components().collect()
}

fn trim(mut rest: &[u8]) -> &[u8] {
    while let Some(shorter) = rest.strip_suffix(b"/") {
        rest = shorter;
    }
    rest
}

/// Whether one of the names is `..`, which could lead out again.
fn has_odd_component(rest: &[u8]) -> bool {
    memchr::memchr_iter(b'.', rest)
        .any(|at| (at == 0 || rest[at - 1] == b'/') && matches!(&rest[at..], b".." | [b'.', b'.', b'/', ..]))
}
