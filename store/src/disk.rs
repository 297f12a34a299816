//! The one seam to the filesystem. Everything the store reads or writes passes through [`Disk`], so that a test can make
//! any single call fail. Nothing here knows what a conversation is.

use std::ffi::OsString;
use std::fmt::{self, Debug};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

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

/// The error of a read that found something other than a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongKind(pub Kind);

impl fmt::Display for WrongKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::File => "is not a regular file",
            Kind::Dir => "is a directory, not a regular file",
            Kind::Link => "is a symbolic link, not a regular file",
            Kind::Other => "is a pipe, a socket or a device, not a regular file",
        })
    }
}

impl std::error::Error for WrongKind {}

impl WrongKind {
    /// What the path is, if a read failed because it is a link, a directory, a pipe, a socket or a device.
    pub fn of(error: &io::Error) -> Option<Self> {
        match error.raw_os_error() {
            Some(libc::ELOOP) => Some(Self(Kind::Link)),
            Some(libc::EISDIR) => Some(Self(Kind::Dir)),
            Some(libc::ENXIO) => Some(Self(Kind::Other)),
            _ => error.get_ref().and_then(|inner| inner.downcast_ref()).copied(),
        }
    }
}

/// Whether a read failed because the path is not a regular file.
pub fn is_wrong_kind(error: &io::Error) -> bool {
    WrongKind::of(error).is_some()
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
    /// `lstat`.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    /// Reads a whole file.
    fn read(&self, path: &Path) -> io::Result<Contents>;
    /// Reads a file from an offset to its end. The stat is that of the whole file.
    fn read_from(&self, path: &Path, offset: u64) -> io::Result<Contents>;
    /// Lists a directory, in no particular order.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Reads a link.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;
    /// Makes one directory; its parent is there.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes a new file with these bytes and permission bits and brings it to disk. Fails if the name is taken.
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
    /// Makes a symbolic link.
    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()>;
    /// Brings a directory's entries to disk.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Adds bytes to the end of a file, making it if it is not there. Nothing is brought to disk.
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Brings a file's bytes to disk.
    fn sync_file(&self, path: &Path) -> io::Result<()>;
    /// Opens a file for locking, making it if it is not there. It is neither truncated nor followed through a link.
    fn open_lock(&self, path: &Path) -> io::Result<File>;
    /// Opens a lock file that is there, for writing where that is allowed and for reading otherwise. It is never made,
    /// so that looking at a lock changes nothing.
    fn open_existing_lock(&self, path: &Path) -> io::Result<File>;
}

/// The real filesystem.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        fs::symlink_metadata(path).map(|meta| stat_of(&meta))
    }

    fn read(&self, path: &Path) -> io::Result<Contents> {
        self.read_from(path, 0)
    }

    fn read_from(&self, path: &Path, offset: u64) -> io::Result<Contents> {
        // A pipe put in a file's place must not hang the reader, hence NONBLOCK and the check for a regular file.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let stat = stat_of(&file.metadata()?);
        match stat.kind {
            Kind::File => {}
            Kind::Dir => return Err(io::Error::from_raw_os_error(libc::EISDIR)),
            Kind::Link | Kind::Other => return Err(io::Error::other(WrongKind(stat.kind))),
        }
        if offset > 0 {
            file.seek(io::SeekFrom::Start(offset))?;
        }
        Ok(Contents { bytes: read_sized(&mut file, stat.size.saturating_sub(offset))?, stat })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        fs::read_dir(path)?
            .map(|entry| {
                let entry = entry?;
                Ok(DirEntry { name: entry.file_name(), kind: kind_of(entry.file_type()?) })
            })
            .collect()
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        fs::read_link(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o777).create(path)
    }

    fn write_new(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn write_one_of_many(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(bytes)
    }

    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        nix::unistd::syncfs(File::open(dir)?).map_err(io::Error::from)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
        renameat2(AT_FDCWD, a, AT_FDCWD, b, RenameFlags::RENAME_EXCHANGE).map_err(io::Error::from)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        std::os::unix::fs::symlink(target, link)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
        OpenOptions::new().append(true).create(true).custom_flags(flags).open(path)?.write_all(bytes)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        // NONBLOCK, because a pipe in the file's place would hang a reader.
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
        OpenOptions::new().read(true).custom_flags(flags).open(path)?.sync_all()
    }

    fn open_existing_lock(&self, path: &Path) -> io::Result<File> {
        // NONBLOCK, because a pipe in the file's place would hang a reader.
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags);
        match options.clone().write(true).open(path) {
            Err(error) if is_refusal(&error) => options.open(path),
            other => other,
        }
    }

    fn open_lock(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)
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

fn stat_of(meta: &fs::Metadata) -> Stat {
    Stat {
        kind: kind_of(meta.file_type()),
        size: meta.len(),
        mtime: meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec()),
        ctime: meta.ctime().saturating_mul(1_000_000_000).saturating_add(meta.ctime_nsec()),
        ino: meta.ino(),
        dev: meta.dev(),
        mode: meta.permissions().mode() & 0o7777,
        birth: meta
            .created()
            .ok()
            .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
            .and_then(|since| i64::try_from(since.as_nanos()).ok()),
    }
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn kind_of(kind: fs::FileType) -> Kind {
    if kind.is_file() {
        Kind::File
    } else if kind.is_dir() {
        Kind::Dir
    } else if kind.is_symlink() {
        Kind::Link
    } else {
        Kind::Other
    }
}
