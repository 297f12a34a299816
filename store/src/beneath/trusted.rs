//! Calls for paths that the user typed, that the environment names or that the system defines, such as `/proc`. Links in
//! them are followed, because they are the user's own. A path that comes from a repository, a store or a conversation
//! never goes here.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use super::is_missing;
use crate::identity::filesystem_id;
use crate::modes::Access;

/// `lstat`.
pub fn stat(path: &Path) -> io::Result<Metadata> {
    fs::symlink_metadata(path)
}

/// `stat`.
pub fn follow(path: &Path) -> io::Result<Metadata> {
    fs::metadata(path)
}

/// Whether something is there.
pub fn exists(path: &Path) -> bool {
    stat(path).is_ok()
}

/// Whether a directory is there.
pub fn is_dir(path: &Path) -> bool {
    follow(path).is_ok_and(|meta| meta.is_dir())
}

/// The path without links, `.` and `..`.
pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// Whether a directory is another one or lies in it, by inode: whatever links or mounts lead there. A path that does not
/// exist yet lies where its nearest existing ancestor does.
pub fn is_within(inner: &Path, outer: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let id = |meta: Metadata| (meta.dev(), meta.ino());
    let outer = match follow(outer) {
        Ok(meta) => id(meta),
        Err(error) if is_missing(&error) => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut existing = inner;
    let inner = loop {
        match canonical(existing) {
            Ok(found) => break found,
            Err(error) if is_missing(&error) => match existing.parent() {
                Some(parent) => existing = parent,
                None => return Ok(false),
            },
            Err(error) => return Err(error),
        }
    };
    for dir in inner.ancestors() {
        if id(follow(dir)?) == outer {
            return Ok(true);
        }
    }
    Ok(false)
}

/// As [`canonical`], for a path whose last names need not exist yet.
pub fn canonical_or_new(path: &Path) -> io::Result<PathBuf> {
    match canonical(path) {
        Err(error) if is_missing(&error) => match (path.parent(), path.components().next_back()) {
            (Some(parent), Some(Component::Normal(name))) => Ok(canonical_or_new(parent)?.join(name)),
            _ => Err(error),
        },
        found => found,
    }
}

/// Opens a directory.
pub fn open_dir(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NONBLOCK).open(path)
}

/// Asks the filesystem at a path something that the kernel cannot answer from memory.
pub fn ask(path: &Path) -> io::Result<()> {
    Ok(nix::sys::statvfs::statvfs(path).map(drop)?)
}

/// The id of the filesystem of a path that has this metadata; `None` if it has none that outlives a reboot.
pub fn filesystem(path: &Path, meta: &Metadata) -> io::Result<Option<u64>> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(filesystem_id(nix::sys::statvfs::statvfs(path)?.filesystem_id(), meta.dev()))
}

/// Makes one directory with these permission bits, narrowed by the umask.
pub fn create_dir(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)
}

/// Makes a directory and those above it.
pub fn create_dirs(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Reads a file of the system, such as one of `/proc`, as far as it goes.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    fs::read(path)
}

/// As [`read`], for text.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read_to_string(path)
}

/// Writes a file that the user named, or a switch of the system.
pub fn write(path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, bytes)
}

/// Makes a file that nobody but its owner can read. Fails if the name is taken.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(Access::Private.file()).open(path)?;
    file.write_all(bytes)
}

/// Opens a device for reading and writing.
pub fn open_device(path: &str) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// What a link of the system says.
pub fn read_link(path: &Path) -> io::Result<PathBuf> {
    fs::read_link(path)
}

/// The names in a directory of the system; what cannot be listed has none.
pub fn names(path: impl AsRef<Path>) -> Vec<OsString> {
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
}
