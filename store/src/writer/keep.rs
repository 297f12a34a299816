//! Keeps bytes that lost against others, for a person to find.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::Writer;
use crate::conflict;
use crate::error::Result;
use crate::files::{NewFile, make_dirs, move_dir, unused};
use crate::id::ConversationId;
use crate::own;
use crate::reconcile::Digest;

impl Writer {
    /// Keeps one file among a conversation's losers. The label says what it lost against. Returns where it is kept.
    pub fn keep(&self, id: ConversationId, label: &str, name: impl AsRef<Path>, bytes: &[u8]) -> Result<PathBuf> {
        let target = self.kept_name(id, label)?;
        self.scratch().place(&target, &[NewFile::bytes(name.as_ref(), bytes.to_vec())])?;
        Ok(target.join(name))
    }

    /// Moves a directory of the store among a conversation's losers, by one rename. Returns where it is kept.
    pub fn keep_dir(&self, id: ConversationId, label: &str, dir: &Path) -> Result<PathBuf> {
        let target = self.kept_name(id, label)?;
        move_dir(self.store.disk(), dir, &target, self.store.layout.store_access())?;
        Ok(target)
    }

    /// As [`Writer::keep_dir`], for anything in a conversation's directory, under its path in that.
    pub fn keep_whole(&self, id: ConversationId, label: &str, inner: &Path, path: &Path) -> Result<PathBuf> {
        let target = self.kept_name(id, label)?.join(inner);
        move_dir(self.store.disk(), path, &target, self.store.layout.store_access())?;
        Ok(target)
    }

    /// A fingerprint of a file or of a link. `None` where neither is, or it is too large to be read.
    pub fn digest_at(&self, path: &Path) -> Result<Option<Digest>> {
        own::digest_at(self.store.disk(), path)
    }

    /// A new name among a conversation's losers, in a directory that is there.
    fn kept_name(&self, id: ConversationId, label: &str) -> Result<PathBuf> {
        let disk = self.store.disk();
        let owner = self.store.layout.store.conflicts().join(id.deciseconds().to_string());
        make_dirs(disk, &owner, self.store.layout.store_access())?;
        let time = conflict::dirname(self.store.now());
        unused(disk, &owner, OsStr::new(&format!("{time}_{label}")))
    }
}
