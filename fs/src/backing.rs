//! The seam to the filesystem for what the store's own seam has no calls for: parts of files, modes, times. Everything the
//! mount itself reads or writes passes through [`Backing`], so that a test can make any single call fail.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use jp_store::disk::Kind;
use jp_store::modes::Access;

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
    /// Writes a part of a file that is there.
    fn write(&self, path: &Path, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Makes a file that is not there.
    fn create(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Makes a file so long.
    fn truncate(&self, path: &Path, size: u64) -> io::Result<()>;
    /// Makes a file these bytes, whole or not at all, by way of a name beside it that nobody else uses. It is its owner's
    /// alone.
    fn replace(&self, path: &Path, beside: &Path, bytes: &[u8]) -> io::Result<()>;
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
#[derive(Clone, Copy, Debug, Default)]
pub struct RealBacking;

/// A pipe in a file's place must not hang us, and a link must not lead us away.
const GUARDED: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;

/// How much of a file is fetched ahead. Whoever reads on has the rest fetched by the system.
const FETCHED: i64 = 256 << 10;

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(GUARDED).open(path)
}

/// Opens for writing. A file whose mode forbids that was opened by its user when it did not, or is being made with that
/// mode, so the mode is set aside for a moment.
fn open_write(path: &Path) -> io::Result<File> {
    let options = || {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(GUARDED);
        options
    };
    match options().open(path) {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            let before = fs::symlink_metadata(path)?.permissions();
            fs::set_permissions(path, Permissions::from_mode(before.mode() | 0o200))?;
            let file = options().open(path);
            fs::set_permissions(path, before)?;
            file
        }
        result => result,
    }
}

impl Backing for RealBacking {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let meta = fs::symlink_metadata(path)?;
        let nanos = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        Ok(Stat {
            kind: kind_of(meta.file_type()),
            size: meta.len(),
            mtime: nanos(meta.mtime(), meta.mtime_nsec()),
            atime: nanos(meta.atime(), meta.atime_nsec()),
            ctime: nanos(meta.ctime(), meta.ctime_nsec()),
            mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
            ino: meta.ino(),
            links: meta.nlink(),
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Kind)>> {
        fs::read_dir(path)?
            .map(|entry| entry.and_then(|entry| Ok((entry.file_name(), kind_of(entry.file_type()?)))))
            .collect()
    }

    fn read(&self, path: &Path, offset: u64, size: usize) -> io::Result<Vec<u8>> {
        let file = open(path)?;
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
        let mut file = open(path)?;
        // One more than there should be: a read that ends before it has seen the end.
        let size = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
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

    fn write(&self, path: &Path, offset: u64, data: &[u8]) -> io::Result<()> {
        open_write(path)?.write_all_at(data, offset)
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<()> {
        // The caller's umask is in the mode already; ours must not be applied on top.
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).custom_flags(GUARDED).open(path)?;
        file.set_permissions(Permissions::from_mode(mode))
    }

    fn truncate(&self, path: &Path, size: u64) -> io::Result<()> {
        open_write(path)?.set_len(size)
    }

    fn replace(&self, path: &Path, beside: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(Access::Private.file()).custom_flags(GUARDED);
        io::Write::write_all(&mut options.open(beside)?, bytes)?;
        fs::rename(beside, path)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        open(path)?.sync_all()
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        fs::set_permissions(path, Permissions::from_mode(mode))
    }

    fn set_times(&self, path: &Path, atime: Option<i64>, mtime: Option<i64>) -> io::Result<()> {
        use nix::sys::stat::{UtimensatFlags, utimensat};
        use nix::sys::time::TimeSpec;
        let spec = |time: Option<i64>| match time {
            Some(time) => TimeSpec::new(time.div_euclid(1_000_000_000), time.rem_euclid(1_000_000_000)),
            None => TimeSpec::UTIME_OMIT,
        };
        utimensat(nix::fcntl::AT_FDCWD, path, &spec(atime), &spec(mtime), UtimensatFlags::NoFollowSymlink)
            .map_err(io::Error::from)
    }

    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        fs::DirBuilder::new().mode(mode).create(path)?;
        fs::set_permissions(path, Permissions::from_mode(mode))
    }

    fn make_dirs(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(Access::Private.dir()).create(path)
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        std::os::unix::fs::symlink(target, link)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        fs::read_link(path)
    }

    fn link(&self, path: &Path, name: &Path) -> io::Result<()> {
        fs::hard_link(path, name)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
        renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE).map_err(io::Error::from)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn fetch(&self, path: &Path) -> io::Result<()> {
        use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
        posix_fadvise(open(path)?, 0, FETCHED, PosixFadviseAdvice::POSIX_FADV_WILLNEED).map_err(io::Error::from)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let stat = nix::sys::statvfs::statvfs(path).map_err(io::Error::from)?;
        Ok(Space {
            block: u32::try_from(stat.fragment_size()).unwrap_or(4096),
            blocks: stat.blocks(),
            free: stat.blocks_free(),
            available: stat.blocks_available(),
            files: stat.files(),
            files_free: stat.files_free(),
        })
    }
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
