//! The seam to the filesystem for what the store's own seam has no calls for: parts of files, modes, times. Everything the
//! mount itself reads or writes passes through [`Backing`], so that a test can make any single call fail.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{File, Permissions};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use jp_store::beneath::{AllowedDirs, Attributes, LARGEST};
use jp_store::disk::Kind;
use jp_store::modes::Access;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::statvfs::FsFlags;
use nix::sys::time::TimeSpec;

/// What the filesystem says about one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Size in bytes.
    pub size: u64,
    /// Last change of the contents, in nanoseconds since the epoch.
    pub mtime: i64,
    /// Last reading, in nanoseconds since the epoch.
    pub atime: i64,
    /// Last change of anything, in nanoseconds since the epoch.
    pub ctime: i64,
    /// Permission bits.
    pub mode: u32,
    /// Whose it is.
    pub uid: u32,
    /// Which group's it is.
    pub gid: u32,
    /// The inode, to tell one file from another at the same path.
    pub ino: u64,
    /// How many names it has.
    pub links: u64,
}

/// How full a filesystem is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Size of the blocks it counts in.
    pub block: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks for users.
    pub available: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Whether nothing can be written.
    pub read_only: bool,
}

/// The calls the mount makes. Each is one thing that can fail. Links are never followed at the end of a path.
pub trait Backing: Send + Sync + Debug {
    /// `lstat`.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    /// Names and kinds of a directory.
    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Kind)>>;
    /// A part of a file; less than asked for only at its end.
    fn read(&self, path: &Path, offset: u64, size: usize) -> io::Result<Vec<u8>>;
    /// A whole file.
    fn read_all(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Writes a part of a file that is there. Returns how many bytes were written: fewer than all where no more fit.
    fn write(&self, path: &Path, offset: u64, data: &[u8]) -> io::Result<usize>;
    /// Writes at the end of a file that is there, whoever else does so at the same time. Returns where these bytes begin, and
    /// how many were written: fewer than all where no more fit.
    fn append(&self, path: &Path, data: &[u8]) -> io::Result<(u64, usize)>;
    /// Makes a file that is not there.
    fn create(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Makes a file so long.
    fn truncate(&self, path: &Path, size: u64) -> io::Result<()>;
    /// Makes a file these bytes, whole or not at all, by way of a name beside it that nobody else uses. It is its owner's
    /// alone.
    fn replace(&self, path: &Path, beside: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Makes a file these bytes, in place; one that is made for that is its owner's alone.
    fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Brings a file or a directory to disk.
    fn sync(&self, path: &Path) -> io::Result<()>;
    /// Sets permission bits.
    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Sets times in nanoseconds since the epoch; `None` leaves one alone.
    fn set_times(&self, path: &Path, atime: Option<i64>, mtime: Option<i64>) -> io::Result<()>;
    /// Makes a directory.
    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Makes a directory and those above it, for their owner alone.
    fn make_dirs(&self, path: &Path) -> io::Result<()>;
    /// Makes a symbolic link.
    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()>;
    /// Reads a symbolic link.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;
    /// Gives a file a second name.
    fn link(&self, path: &Path, name: &Path) -> io::Result<()>;
    /// Renames, replacing what is there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Renames, and fails where something is there.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes two paths change places.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;
    /// Removes a file or a link.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// How full the filesystem is.
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// Begins to bring the beginning of a file into memory, without waiting for it.
    fn fetch(&self, path: &Path) -> io::Result<()>;
    /// What is remembered of this path may not be so any more.
    fn doubt(&self, _path: &Path) {}
    /// Whether it is remembered that nothing is there: then no disk was asked, and none can be ahead of us.
    fn remembers_nothing(&self, _path: &Path) -> bool {
        false
    }
}

/// The real filesystem.
#[derive(Clone, Debug)]
pub struct RealBacking {
    allowed: AllowedDirs,
}

/// How much of a file is fetched ahead. Whoever reads on has the rest fetched by the system.
const FETCHED: i64 = 256 << 10;

impl RealBacking {
    /// For files beneath these directories.
    pub fn new(allowed: AllowedDirs) -> Self {
        Self { allowed }
    }

    /// Opens for writing. A file whose mode forbids that was opened by its user when it did not, or is being made with that
    /// mode, so the mode is set aside for a moment.
    fn open_write(&self, path: &Path) -> io::Result<File> {
        match self.allowed.open_write(path) {
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
                let before = self.allowed.stat(path)?.permissions();
                self.allowed.set_mode(path, before | 0o200)?;
                let file = self.allowed.open_write(path);
                self.allowed.set_mode(path, before)?;
                file
            }
            result => result,
        }
    }
}

impl Backing for RealBacking {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let found = self.allowed.stat(path)?;
        let Attributes { size, mtime, atime, ctime, uid, gid, ino, links, .. } = found;
        Ok(Stat { kind: found.kind(), size, mtime, atime, ctime, mode: found.permissions(), uid, gid, ino, links })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Kind)>> {
        self.allowed.list(path)
    }

    fn read(&self, path: &Path, offset: u64, size: usize) -> io::Result<Vec<u8>> {
        let (file, _) = self.allowed.open(path)?;
        let mut bytes = vec![0; size];
        let mut filled = 0;
        while filled < size {
            match file.read_at(&mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    fn read_all(&self, path: &Path) -> io::Result<Vec<u8>> {
        let (mut file, meta) = self.allowed.open_within(path, LARGEST)?;
        // One more than there should be: a read that ends before it has seen the end.
        let size = usize::try_from(meta.len()).map_err(io::Error::other)?;
        let mut bytes = vec![0; size.saturating_add(1)];
        let mut filled = 0;
        while filled <= size {
            match io::Read::read(&mut file, &mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if filled == size {
                // All there was a moment ago. Whoever adds to it now has done so afterwards.
                break;
            }
        }
        bytes.truncate(filled);
        if filled > size {
            io::Read::read_to_end(&mut file, &mut bytes)?;
        }
        Ok(bytes)
    }

    fn write(&self, path: &Path, offset: u64, data: &[u8]) -> io::Result<usize> {
        let file = self.open_write(path)?;
        unless_interrupted(|| file.write_at(data, offset))
    }

    fn append(&self, path: &Path, data: &[u8]) -> io::Result<(u64, usize)> {
        let mut file = self.open_write(path)?;
        fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND))?;
        let count = unless_interrupted(|| file.write(data))?;
        Ok((file.stream_position()?.saturating_sub(count as u64), count))
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<()> {
        // The caller's umask is in the mode already; ours must not be applied on top.
        self.allowed.create(path, mode)?.set_permissions(Permissions::from_mode(mode))
    }

    fn truncate(&self, path: &Path, size: u64) -> io::Result<()> {
        self.open_write(path)?.set_len(size)
    }

    fn replace(&self, path: &Path, beside: &Path, bytes: &[u8]) -> io::Result<()> {
        self.put(beside, bytes)?;
        self.allowed.rename(beside, path)
    }

    fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (mut file, meta) = self.allowed.open_or_create(path, Access::Private.file())?;
        if meta.len() > 0 {
            file.set_len(0)?;
        }
        file.write_all(bytes)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.allowed.sync(path)
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.allowed.set_mode(path, mode)
    }

    fn set_times(&self, path: &Path, atime: Option<i64>, mtime: Option<i64>) -> io::Result<()> {
        let spec = |time: Option<i64>| match time {
            Some(time) => TimeSpec::new(time.div_euclid(1_000_000_000), time.rem_euclid(1_000_000_000)),
            None => TimeSpec::UTIME_OMIT,
        };
        self.allowed.set_times(path, spec(atime), spec(mtime))
    }

    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.allowed.create_dir(path, mode)?;
        self.allowed.set_mode(path, mode)
    }

    fn make_dirs(&self, path: &Path) -> io::Result<()> {
        self.allowed.create_dirs(path, Access::Private.dir())
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.allowed.symlink(target, link)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.allowed.read_link(path)
    }

    fn link(&self, path: &Path, name: &Path) -> io::Result<()> {
        self.allowed.link(path, name)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.allowed.rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.allowed.rename_new(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.allowed.exchange(one, other)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.allowed.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.allowed.remove_dir(path)
    }

    fn fetch(&self, path: &Path) -> io::Result<()> {
        use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
        let (file, _) = self.allowed.open(path)?;
        posix_fadvise(file, 0, FETCHED, PosixFadviseAdvice::POSIX_FADV_WILLNEED).map_err(io::Error::from)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let stat = self.allowed.space(path)?;
        Ok(Space {
            block: u32::try_from(stat.fragment_size()).unwrap_or(4096),
            blocks: stat.blocks(),
            free: stat.blocks_free(),
            available: stat.blocks_available(),
            files: stat.files(),
            files_free: stat.files_free(),
            read_only: stat.flags().contains(FsFlags::ST_RDONLY),
        })
    }
}

/// One call of the system, which is made again while signals cut it short.
fn unless_interrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
