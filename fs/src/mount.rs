//! A mount from its beginning to its end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jp_store::store::Surroundings;

/// How to mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Nothing can be changed through the mount.
    pub read_only: bool,
    /// Also shows what is not projected in this worktree.
    pub all: bool,
    /// A save that is no document fails with `EINVAL`; its bytes are kept as a draft all the same.
    pub strict: bool,
    /// Other users may look.
    pub allow_other: bool,
    /// Answers `user.jp.*` attributes.
    pub xattrs: bool,
    /// Answers every open, as kernels need it that cannot do without.
    pub compat_open: bool,
    /// Looks at the store once a second instead of watching it.
    pub poll: bool,
}

/// Why there is no mount, or why it could not be ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store says no.
    #[error(transparent)]
    Store(#[from] jp_store::Error),
    /// The system says no.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        verb: &'static str,
        /// On what.
        path: std::path::PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// There is nothing that could be mounted.
    #[error("{0}")]
    Refused(String),
}

/// How things stand in a live mount.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Status {
    /// How changes beside the mount are noticed: `"watching"`, or `"polling"` once a second.
    pub staleness: String,
    /// Conversations shown.
    pub shown: usize,
    /// Conversations that have begun to arrive, and what each still needs.
    pub arrivals: Vec<Arrival>,
}

/// A new conversation that is not whole yet.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Arrival {
    /// Its id, as `jp-c…`.
    pub id: String,
    /// What it still needs.
    pub needs: String,
}

/// A live mount. The kernel is served from its own threads.
#[derive(Debug)]
pub struct Session {}

impl Session {
    /// Mounts the projection of the workspace at or above `start` on `point`, which is a directory. When this returns the
    /// tree can be listed.
    pub fn begin(around: Surroundings, start: &Path, point: &Path, options: &Options) -> Result<Arc<Self>, Error> {
        let _ = (around, start, point, options);
        Err(Error::Refused("not yet".to_owned()))
    }

    /// Looks at the store again and tells the kernel what changed; when this returns it has been told.
    pub fn refresh(&self) {}

    /// How things stand.
    pub fn status(&self) -> Status {
        Status::default()
    }

    /// Takes the mount away. Fails with `EBUSY` while somebody is in it, unless `lazy`.
    pub fn unmount(&self, lazy: bool) -> Result<(), Error> {
        let _ = lazy;
        Ok(())
    }

    /// Whether the mount has ended, whoever ended it; waits for that at most so long.
    pub fn wait(&self, limit: Duration) -> bool {
        let _ = limit;
        true
    }

    /// Brings drafts to disk and ends the threads. To be called once the mount is gone.
    pub fn finish(&self) -> Result<(), Error> {
        Ok(())
    }
}
