//! Cleans up behind commands that write: lock files nobody holds, session files of terminals that are gone.

use std::path::{Path, PathBuf};

use super::Writer;
use crate::error::{Error, Result};
use crate::id::ConversationId;
use crate::lock::alive;
use crate::session::{Cleaned, Session, Source, World};

/// What was cleaned up.
#[derive(Debug, Default)]
pub struct Tidied {
    /// Conversations whose orphaned lock file went.
    pub locks: Vec<ConversationId>,
    /// Session files of terminals that are gone.
    pub sessions: Vec<PathBuf>,
    /// Session files left alone, and why.
    pub failed: Vec<(PathBuf, Error)>,
}

impl Writer {
    /// Removes orphaned lock files and stale session files.
    pub fn tidy(&self) -> Result<Tidied> {
        let locks = self.store.locks().clear_orphans()?;
        let Cleaned { deleted, failed, .. } = self.clean_sessions()?;
        Ok(Tidied { locks, sessions: deleted, failed })
    }

    /// Removes stale session files and forgets conversations that are gone in the others.
    pub fn clean_sessions(&self) -> Result<Cleaned> {
        // The lock first: whatever is in a session file by then is in the snapshot, or gone.
        let _turn = self.session_lock()?;
        let snapshot = self.store.snapshot()?;
        let locks = self.store.locks();
        let world = World {
            alive: &is_there,
            on_disk: &|id| snapshot.get(id).is_some(),
            locked: &|id| locks.holder(id).is_some(),
        };
        let write = |path: &Path, bytes: &[u8]| self.scratch().replace(path, bytes).map(drop);
        self.store.sessions().clean(&world, &write)
    }
}

/// Whether a terminal is still there, where that can be told.
fn is_there(session: &Session) -> Option<bool> {
    match session.source {
        Source::Getsid => session.value.parse().ok().and_then(alive),
        Source::Hwnd | Source::Env(_) => None,
    }
}
