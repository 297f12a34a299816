//! Why a request fails, and the number the system has for it.

use std::io;

use jp_store::beneath::WrongKind;

/// Why a request fails.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// There is no such name.
    #[error("no such name")]
    NotFound,
    /// The node is gone; the caller should look the name up again.
    #[error("the node is gone")]
    Stale,
    /// The name is taken.
    #[error("the name is taken")]
    Exists,
    /// The directory holds something.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A directory is needed.
    #[error("not a directory")]
    NotDir,
    /// A directory does not do.
    #[error("a directory")]
    IsDir,
    /// The tree has no place for it, or the attribute cannot be changed.
    #[error("not permitted: {0}")]
    Refused(&'static str),
    /// Somebody else holds the conversation.
    #[error("the conversation is locked")]
    Busy,
    /// The bytes are no such document, or the request makes no sense.
    #[error("invalid: {0}")]
    Invalid(String),
    /// Nothing can be changed here.
    #[error("the mount is read-only")]
    ReadOnly,
    /// More than one file may be.
    #[error("too large")]
    TooLarge,
    /// The name is longer than names may be.
    #[error("the name is too long")]
    NameTooLong,
    /// The two places are on different filesystems.
    #[error("on another filesystem")]
    CrossDevice,
    /// There is no such attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// This is not done here.
    #[error("not supported")]
    Unsupported,
    /// The store or the system says no.
    #[error(transparent)]
    Store(#[from] jp_store::Error),
}

/// What a request comes to.
pub type Result<T, E = FsError> = std::result::Result<T, E>;

impl FsError {
    /// The number the system has for it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotFound => libc::ENOENT,
            Self::Stale => libc::ESTALE,
            Self::Exists => libc::EEXIST,
            Self::NotEmpty => libc::ENOTEMPTY,
            Self::NotDir => libc::ENOTDIR,
            Self::IsDir => libc::EISDIR,
            Self::Refused(_) => libc::EPERM,
            Self::Busy => libc::EBUSY,
            Self::Invalid(_) => libc::EINVAL,
            Self::ReadOnly => libc::EROFS,
            Self::TooLarge => libc::EFBIG,
            Self::NameTooLong => libc::ENAMETOOLONG,
            Self::CrossDevice => libc::EXDEV,
            Self::NoAttribute => libc::ENODATA,
            Self::Unsupported => libc::ENOTSUP,
            Self::Store(error) => store_errno(error),
        }
    }

    /// Whether it is the system or the store that failed, rather than the request.
    pub fn is_failure(&self) -> bool {
        let asked_for = [
            libc::ENOENT,
            libc::EBUSY,
            libc::EINVAL,
            libc::ENAMETOOLONG,
            libc::ENOTDIR,
            libc::EISDIR,
            libc::EEXIST,
            libc::ENOTEMPTY,
            libc::EXDEV,
        ];
        matches!(self, Self::Store(_)) && !asked_for.contains(&self.errno())
    }

    /// Whether the name or the file is not there. A file that the system fails to look at may be.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Stale) || matches!(self.errno(), libc::ENOENT | libc::ENOTDIR)
    }
}

fn store_errno(error: &jp_store::Error) -> i32 {
    use jp_store::Error;
    match error {
        Error::Io { source, .. } => io_errno(source),
        Error::Invalid { .. } | Error::Refused(_) => libc::EINVAL,
        Error::NotFound { .. } => libc::ENOENT,
        Error::Locked { .. } | Error::Stuck { .. } => libc::EBUSY,
        Error::Unprojected { source, .. } => store_errno(source),
        Error::Interrupted => libc::EINTR,
        Error::Malformed { .. } | Error::InTheWay { .. } | Error::NoWorkspace { .. } => libc::EIO,
    }
}

/// The number of an error of the system; what has none is an input or output error.
pub(crate) fn io_errno(error: &io::Error) -> i32 {
    if let Some(wrong) = error.get_ref().and_then(|inner| inner.downcast_ref::<WrongKind>()) {
        return match wrong.what {
            WrongKind::LINK => libc::ELOOP,
            WrongKind::DIR => libc::EISDIR,
            WrongKind::NOT_DIR => libc::ENOTDIR,
            WrongKind::TOO_LARGE => libc::EFBIG,
            _ => libc::EPERM,
        };
    }
    match (error.raw_os_error(), error.kind()) {
        (Some(errno), _) => errno,
        (None, io::ErrorKind::NotFound) => libc::ENOENT,
        (None, io::ErrorKind::AlreadyExists) => libc::EEXIST,
        (None, io::ErrorKind::PermissionDenied) => libc::EACCES,
        (None, _) => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let id = jp_store::ConversationId::new(5).unwrap();
        let io = |errno| jp_store::Error::Io {
            verb: "write",
            path: "/x".into(),
            source: io::Error::from_raw_os_error(errno),
        };
        for (error, errno, failure) in [
            (FsError::NotFound, libc::ENOENT, false),
            (FsError::Refused("no"), libc::EPERM, false),
            (io(libc::ENOSPC).into(), libc::ENOSPC, true),
            (io(libc::ENOENT).into(), libc::ENOENT, false),
            (jp_store::Error::Locked { id, holder: None }.into(), libc::EBUSY, false),
            (jp_store::Error::Refused("a circle".into()).into(), libc::EINVAL, false),
            (jp_store::Error::Unprojected { id, source: Box::new(io(libc::EDQUOT)) }.into(), libc::EDQUOT, true),
        ] {
            assert_eq!((error.errno(), error.is_failure()), (errno, failure), "{error}");
        }
    }
}
