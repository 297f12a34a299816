//! What can go wrong in the store. Every I/O failure names its verb and its path.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::disk::{Kind, NotRegular};
use crate::id::ConversationId;
use crate::json::JsonError;
use crate::lock::Holder;

/// The store's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the store, told so that a person knows what to look at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused something.
    #[error("cannot {verb} {}", path.display())]
    Io {
        /// What was attempted, such as `read` or `rename`.
        verb: &'static str,
        /// What it was attempted on.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A file does not hold what it must hold.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column where there are any.
        reason: JsonError,
    },
    /// Something other than JSON content is out of shape: a workspace id, a link, a directory.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The offending path.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No `.jp` directory here or above.
    #[error("no workspace in {} or any directory above it", start.display())]
    NoWorkspace {
        /// Where the search began.
        start: PathBuf,
    },
    /// There is no conversation with this id.
    #[error("no conversation {id}")]
    NotFound {
        /// The id that was asked for.
        id: ConversationId,
    },
    /// Another process holds the conversation.
    #[error("conversation {id} is locked{}", held_by(holder.as_ref()))]
    Locked {
        /// The conversation.
        id: ConversationId,
        /// Who holds it, as far as the lock file tells.
        holder: Option<Holder>,
    },
    /// Something else is where the store keeps a file or a directory of its own. It is neither followed nor removed.
    #[error("{}: {}, not {wanted}", path.display(), name_of(*kind))]
    InTheWay {
        /// Where.
        path: PathBuf,
        /// What it is.
        kind: Kind,
        /// What belongs there, such as `a lock file`.
        wanted: &'static str,
    },
    /// Another process holds one of the store's internal locks for too long.
    #[error("cannot lock {}: {} has held it for {} seconds", path.display(), name_processes(holders), waited.as_secs())]
    Stuck {
        /// The lock file.
        path: PathBuf,
        /// The processes that hold it, where the system tells.
        holders: Vec<u32>,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The store has the change; the workspace's copy does not.
    #[error("{id} is safe in the store, but its copy in the workspace could not be brought in step")]
    Unprojected {
        /// The conversation.
        id: ConversationId,
        /// What went wrong with the copy.
        #[source]
        source: Box<Error>,
    },
    /// The wait was given up because the user asked for it.
    #[error("interrupted")]
    Interrupted,
    /// The request contradicts the state of the store.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// Whether something was not there that had just been seen.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Io { source, .. } if crate::scan::is_absent(source))
    }

    /// What a file is that was to be read and is not a regular one.
    pub(crate) fn wrong_kind(&self) -> Option<NotRegular> {
        match self {
            Self::Io { source, .. } => NotRegular::of(source),
            _ => None,
        }
    }

    /// Whether the system does not permit it.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Whether it is about what one file is, so that others are not affected: a file of the wrong kind, one that may not be
    /// read, or a path that is too long.
    pub(crate) fn is_about_one_file(&self) -> bool {
        match self {
            Self::Io { source, .. } => {
                let is_refusal =
                    matches!(source.kind(), io::ErrorKind::InvalidFilename | io::ErrorKind::PermissionDenied);
                NotRegular::of(source).is_some() || is_refusal
            }
            Self::Unprojected { source, .. } => source.is_about_one_file(),
            _ => false,
        }
    }

    /// The message with those of its causes, in one line.
    pub(crate) fn with_causes(&self) -> String {
        let chain = std::iter::successors(Some(self as &dyn std::error::Error), |cause| cause.source());
        chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    }

    /// Refuses to hang a conversation beneath this one.
    pub(crate) fn circle(id: ConversationId, parent: ConversationId) -> Self {
        Self::Refused(format!("{id} cannot be beneath {parent}, which is {id} itself or beneath it"))
    }

    /// Refuses a parent that a copy in the worktree names and that is private here.
    pub(crate) fn private_parent(id: ConversationId, parent: ConversationId, private: ConversationId) -> Self {
        let beneath = if parent == private { String::new() } else { format!(" beneath {private}") };
        Self::Refused(format!(
            "{id} is not put beneath {parent}{beneath}, which is private here. Take `parent_id` out of its `metadata.json`, or move \
             it elsewhere; or, to show {private} too, where git can commit it: `jp c edit --local=false {private}`"
        ))
    }
}

fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "a file",
        Kind::Dir => "a directory",
        Kind::Link => "a symbolic link",
        Kind::Other => "a pipe, a socket or a device",
    }
}

/// `pid 12, pid 13`, or `another process` where the system does not tell.
pub(crate) fn name_processes(pids: &[u32]) -> String {
    match pids {
        [] => "another process".to_owned(),
        pids => pids.iter().map(|pid| format!("pid {pid}")).collect::<Vec<_>>().join(", "),
    }
}

fn held_by(holder: Option<&Holder>) -> String {
    holder.map(|holder| format!(" (held by {holder})")).unwrap_or_default()
}

/// Gives an [`io::Result`] its verb and its path.
pub trait Context<T> {
    /// Names what was attempted and on what.
    fn context(self, verb: &'static str, path: &Path) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, verb: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { verb, path: path.to_owned(), source })
    }
}
