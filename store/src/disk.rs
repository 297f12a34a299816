//! The one seam to the filesystem. Everything the store reads or writes passes through [`Disk`], so that a test can make
//! any single call fail. Nothing here knows what a conversation is.

use std::ffi::OsString;
use std::fmt::{self, Debug};
use std::fs::{File, Permissions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

pub use crate::beneath::Kind;
use crate::beneath::{AllowedDirs, Attributes, LARGEST, WrongKind};
use crate::modes::{Access, is_wide};

/// What is in a file's place and cannot be read as one, as a [`WrongKind`] says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRegular(pub &'static str);

impl fmt::Display for NotRegular {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "is {}", self.0)
    }
}

impl NotRegular {
    /// What the path is, if a read failed because it is a link, a directory, a pipe, a socket, a device or too large.
    pub fn of(error: &io::Error) -> Option<Self> {
        WrongKind::what(error).map(Self)
    }

    /// What a thing of this kind is to whoever wants to read a file; `None` for a regular one.
    pub fn of_kind(kind: Kind) -> Option<Self> {
        match kind {
            Kind::File => None,
            Kind::Dir => Some(Self(WrongKind::DIR)),
            Kind::Link => Some(Self(WrongKind::LINK)),
            Kind::Other => Some(Self(WrongKind::SPECIAL)),
        }
    }
}

/// What the filesystem says about one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Size in bytes.
    pub size: u64,
    /// Last change of the contents, in nanoseconds since the epoch.
    pub mtime: i64,
    /// Last change of the contents or of what else is known of it, in nanoseconds since the epoch. Nobody can set it.
    pub ctime: i64,
    /// Inode number.
    pub ino: u64,
    /// Device number.
    pub dev: u64,
    /// Permission bits.
    pub mode: u32,
    /// Birth time in nanoseconds since the epoch, where the filesystem keeps one.
    pub birth: Option<i64>,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name, which need not be UTF-8.
    pub name: OsString,
    /// What it stands for.
    pub kind: Kind,
}

/// A file's bytes and what `fstat` said of the very descriptor they came from.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The stat of the open file.
    pub stat: Stat,
}

/// The calls the store makes. Each is one thing that can fail.
pub trait Disk: Send + Sync + Debug {
    /// The directories beneath which files are reached. Every other call refuses a path that lies elsewhere, or that leads
    /// through a link.
    fn allowed(&self) -> &AllowedDirs;
    /// `lstat`.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    /// The id of the filesystem that a directory is on; `None` if it has none that outlives a reboot.
    fn filesystem(&self, path: &Path) -> io::Result<Option<u64>>;
    /// Reads a whole regular file.
    fn read(&self, path: &Path) -> io::Result<Contents>;
    /// Reads a file from an offset to its end. The stat is that of the whole file.
    fn read_from(&self, path: &Path, offset: u64) -> io::Result<Contents>;
    /// Lists a directory, in no particular order.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Reads a link.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;
    /// Makes one directory with these permission bits, before the umask; its parent is there.
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Makes a new file with these bytes and permission bits, before the umask, and brings it to disk. Fails if the name is
    /// taken.
    fn write_new(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()>;
    /// As [`Disk::write_new`], for one of many: nothing is brought to disk before [`Disk::sync_all`].
    fn write_one_of_many(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()>;
    /// Brings everything on the filesystem of this directory to disk.
    fn sync_all(&self, dir: &Path) -> io::Result<()>;
    /// `rename`, replacing a file or an empty directory.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives two names to each other's files, as one change. Not every filesystem can.
    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()>;
    /// `unlink`.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// `rmdir`.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Sets the permission bits of a file or a directory. A link is not followed.
    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Makes a symbolic link.
    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()>;
    /// Brings a directory's entries to disk.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Adds bytes to the end of a file, making it for its owner alone if it is not there. Nothing is brought to disk. What
    /// cannot be added whole is taken back, so the caller has the lock of all who add to this file.
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Brings a file's bytes to disk.
    fn sync_file(&self, path: &Path) -> io::Result<()>;
    /// Opens a file for locking, making it for its owner alone if it is not there. It is neither truncated nor followed
    /// through a link, and never waited for. One of our own that others can open becomes the owner's alone: whoever can
    /// open it can lock it.
    fn open_lock(&self, path: &Path) -> io::Result<File>;
    /// Opens a lock file that is there, for writing where that is allowed and for reading otherwise. It is never made,
    /// so that looking at a lock changes nothing.
    fn open_existing_lock(&self, path: &Path) -> io::Result<File>;
}

/// The real filesystem.
#[derive(Clone, Debug, Default)]
pub struct RealDisk {
    allowed: AllowedDirs,
}

impl RealDisk {
    /// For files beneath these directories.
    pub fn new(allowed: AllowedDirs) -> Self {
        Self { allowed }
    }

    /// With one directory to begin with.
    pub fn beneath(dir: &Path) -> io::Result<Self> {
        let disk = Self::default();
        disk.allowed.allow(dir)?;
        Ok(disk)
    }
}

impl Disk for RealDisk {
    fn allowed(&self) -> &AllowedDirs {
        &self.allowed
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.allowed.stat(path).map(Stat::from)
    }

    fn filesystem(&self, path: &Path) -> io::Result<Option<u64>> {
        self.allowed.filesystem(path)
    }

    fn read(&self, path: &Path) -> io::Result<Contents> {
        self.read_from(path, 0)
    }

    fn read_from(&self, path: &Path, offset: u64) -> io::Result<Contents> {
        let (mut file, meta) = self.allowed.open_within(path, LARGEST)?;
        let stat = Stat::from(Attributes::from(&meta));
        if offset > 0 {
            file.seek(io::SeekFrom::Start(offset))?;
        }
        Ok(Contents { bytes: read_sized(&mut file, stat.size.saturating_sub(offset))?, stat })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let entry = |(name, kind)| DirEntry { name, kind };
        Ok(self.allowed.list(path)?.into_iter().map(entry).collect())
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.allowed.read_link(path)
    }

    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.allowed.create_dir(path, mode)
    }

    fn write_new(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        let mut file = self.allowed.create(path, mode)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn write_one_of_many(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.allowed.create(path, mode)?.write_all(bytes)
    }

    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        Ok(nix::unistd::syncfs(self.allowed.open_dir(dir)?)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.allowed.rename(from, to)
    }

    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        self.allowed.exchange(a, b)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.allowed.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.allowed.remove_dir(path)
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.allowed.set_mode(path, mode)
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.allowed.symlink(target, link)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.allowed.open_dir(path)?.sync_all()
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.allowed.open_append(path, Access::Private.file())?;
        let before = file.metadata()?.len();
        file.write_all(bytes).inspect_err(|_| {
            // Where even that fails, a part stays behind that is no line.
            let _ = file.set_len(before);
        })
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.allowed.sync(path)
    }

    fn open_existing_lock(&self, path: &Path) -> io::Result<File> {
        match self.allowed.open_both(path) {
            Err(error) if is_refusal(&error) => self.allowed.open(path).map(|(file, _)| file),
            other => other,
        }
    }

    fn open_lock(&self, path: &Path) -> io::Result<File> {
        let (file, meta) = self.allowed.open_or_create(path, Access::Private.file())?;
        if is_wide(meta.mode()) && meta.uid() == nix::unistd::geteuid().as_raw() {
            file.set_permissions(Permissions::from_mode(Access::Private.file()))?;
        }
        Ok(file)
    }
}

/// Reads a file whose size is known from `fstat`: usually one call, and no second question about the size. A file that
/// grows meanwhile is read to its end.
fn read_sized(file: &mut File, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?.saturating_add(1)];
    let mut filled = 0;
    loop {
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if filled as u64 == size {
            break;
        }
        if filled == bytes.len() {
            bytes.resize(bytes.len() * 2, 0);
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

impl From<Attributes> for Stat {
    fn from(found: Attributes) -> Self {
        let Attributes { size, mtime, ctime, ino, dev, birth, .. } = found;
        Self { kind: found.kind(), size, mtime, ctime, ino, dev, mode: found.permissions(), birth }
    }
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}
