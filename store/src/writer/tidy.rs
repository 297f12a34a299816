//! Cleans up behind commands that write: lock files nobody holds, session files of terminals that are gone.

use std::path::{Path, PathBuf};

use super::Writer;
use crate::error::{Error, Result};
use crate::id::ConversationId;
use crate::session::{Cleaned, Session, World};

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
        let _turn = self.session_lock()?;
        let locks = self.store.locks();
        // Nearly every session is on something of the store's; the rest is looked for only for those that are not.
        let stored = self.stored()?;
        // A terminal may be on what was made after we looked: what is not there is looked for again.
        let on_disk = |id| stored.contains(&id) || !matches!(self.present(), Ok(present) if !present.contains(&id));
        let world = World { alive: &Session::is_there, on_disk: &on_disk, locked: &|id| locks.holder(id).is_some() };
        let write = |path: &Path, bytes: &[u8]| self.scratch().replace(path, bytes).map(drop);
        self.store.sessions().clean(&world, &write)
    }
}
