//! The error for something that is at a path, but is not what has to be there.

use std::io;
use std::path::{Path, PathBuf};

/// Something is at a path, but not what has to be there.
#[derive(Debug, thiserror::Error)]
#[error("{} is {what}", path.display())]
pub struct WrongKind {
    /// The path at fault, which may be a directory above the one that was asked for.
    pub path: PathBuf,
    /// What is there.
    pub what: &'static str,
}

impl WrongKind {
    /// A symbolic link.
    pub const LINK: &'static str = "a symbolic link, which is not followed";
    /// A directory.
    pub const DIR: &'static str = "a directory, not a regular file";
    /// A pipe, a socket or a device.
    pub const SPECIAL: &'static str = "a pipe, a socket or a device, not a regular file";
    /// A file.
    pub const NOT_DIR: &'static str = "not a directory";
    /// Longer than [`LARGEST`](super::LARGEST).
    pub const TOO_LARGE: &'static str = "larger than 1 GiB";

    /// What an error says is there, if it says so: in our own words, or by the number that the system has for it.
    pub(crate) fn what(error: &io::Error) -> Option<&'static str> {
        match error.raw_os_error() {
            Some(libc::ELOOP) => Some(Self::LINK),
            Some(libc::EISDIR) => Some(Self::DIR),
            Some(libc::ENXIO) => Some(Self::SPECIAL),
            _ => error.get_ref()?.downcast_ref::<Self>().map(|wrong| wrong.what),
        }
    }

    /// As an I/O error.
    pub fn error(path: &Path, what: &'static str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, Self { path: path.to_owned(), what })
    }
}

/// Whether an error says that something is at a path, but not what has to be there.
pub fn is_wrong_kind(error: &io::Error) -> bool {
    WrongKind::what(error).is_some()
}
