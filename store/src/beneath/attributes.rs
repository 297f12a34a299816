//! What the system says about one path or one open file.

use std::fs::Metadata;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use rustix::fs::{AtFlags, Statx, StatxFlags, StatxTimestamp};

use super::Kind;

/// The answer of `stat`. Times are in nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Type and permission bits, as the system has them.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
    /// Last change of the contents.
    pub mtime: i64,
    /// Last reading.
    pub atime: i64,
    /// Last change of anything. It cannot be set.
    pub ctime: i64,
    /// Birth, where the filesystem records it.
    pub birth: Option<i64>,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Inode number.
    pub ino: u64,
    /// Device number. Another boot may give the same filesystem another one.
    pub dev: u64,
    /// Number of names.
    pub links: u64,
}

impl Attributes {
    /// File, directory, link or something else.
    pub fn kind(&self) -> Kind {
        match self.mode & libc::S_IFMT {
            libc::S_IFREG => Kind::File,
            libc::S_IFDIR => Kind::Dir,
            libc::S_IFLNK => Kind::Link,
            _ => Kind::Other,
        }
    }

    /// Whether it is a socket.
    pub fn is_socket(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFSOCK
    }

    /// Permission bits, with setuid, setgid and sticky.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// `lstat` of a path relative to a directory; of the directory itself if the path is empty. One call.
    pub(super) fn relative(dir: impl AsFd, path: &Path) -> io::Result<Self> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
        let found = rustix::fs::statx(dir, path, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
        Ok(Self::from(&found))
    }
}

fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

impl From<&Metadata> for Attributes {
    fn from(meta: &Metadata) -> Self {
        let since_epoch = |time: std::time::SystemTime| time.duration_since(UNIX_EPOCH).ok();
        Self {
            mode: meta.mode(),
            size: meta.len(),
            mtime: nanoseconds(meta.mtime(), meta.mtime_nsec()),
            atime: nanoseconds(meta.atime(), meta.atime_nsec()),
            ctime: nanoseconds(meta.ctime(), meta.ctime_nsec()),
            birth: meta.created().ok().and_then(since_epoch).and_then(|since| i64::try_from(since.as_nanos()).ok()),
            uid: meta.uid(),
            gid: meta.gid(),
            ino: meta.ino(),
            dev: meta.dev(),
            links: meta.nlink(),
        }
    }
}

impl From<&Statx> for Attributes {
    fn from(found: &Statx) -> Self {
        let time = |at: &StatxTimestamp| nanoseconds(at.tv_sec, i64::from(at.tv_nsec));
        let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0 && found.stx_btime.tv_sec >= 0;
        Self {
            mode: u32::from(found.stx_mode),
            size: found.stx_size,
            mtime: time(&found.stx_mtime),
            atime: time(&found.stx_atime),
            ctime: time(&found.stx_ctime),
            birth: has_birth.then(|| time(&found.stx_btime)),
            uid: found.stx_uid,
            gid: found.stx_gid,
            ino: found.stx_ino,
            dev: libc::makedev(found.stx_dev_major, found.stx_dev_minor),
            links: u64::from(found.stx_nlink),
        }
    }
}
