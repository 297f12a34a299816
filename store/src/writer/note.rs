//! Notes what a worktree shows, without looking at a single conversation. Lines are appended to the ledger's journal;
//! folding makes one file of both.

use super::Writer;
use crate::error::{Context as _, Result};
use crate::files::make_dirs;
use crate::journal::{self, Change};
use crate::ledger::Ledger;
use crate::lock::FileLock;
use crate::scan::is_absent;

impl Writer {
    /// Notes changes of what this worktree shows. They survive the death of this process; nothing is brought to disk.
    pub fn note(&self, changes: &[Change]) -> Result<()> {
        if changes.is_empty() || self.store.layout.is_single_root() {
            return Ok(());
        }
        let lock = self.ledger_lock()?;
        self.note_under(&lock, changes)
    }

    /// Makes one file of the ledger and its journal.
    pub fn fold(&self) -> Result<()> {
        let (disk, layout) = (self.store.disk(), &self.store.layout);
        if layout.is_single_root() {
            return Ok(());
        }
        let lock = self.ledger_lock()?;
        match disk.stat(&layout.journal_file()) {
            Ok(_) => self.write_ledger(&lock, &self.store.read_ledger()?),
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) => Err(error).context("look at", &layout.journal_file()),
        }
    }

    /// The lock that guards the ledger, its journal and the workspace's directories.
    pub(super) fn ledger_lock(&self) -> Result<FileLock> {
        self.file_lock(&self.store.layout.projection_lock())
    }

    /// As [`Writer::note`], by whoever holds the ledger's lock.
    pub(super) fn note_under(&self, _lock: &FileLock, changes: &[Change]) -> Result<()> {
        let file = self.store.layout.journal_file();
        let lines = journal::lines(changes, self.store.footing()?);
        let lines = lines.map_err(std::io::Error::other).context("encode", &file)?;
        self.store.disk().append(&file, &lines).context("append to", &file)
    }

    /// As [`Writer::note_under`], and brings it to disk.
    pub(super) fn note_durably(&self, lock: &FileLock, changes: &[Change]) -> Result<()> {
        let (disk, layout) = (self.store.disk(), &self.store.layout);
        make_dirs(disk, &layout.worktree_state())?;
        self.note_under(lock, changes)?;
        disk.sync_file(&layout.journal_file()).context("bring to disk", &layout.journal_file())?;
        disk.sync_dir(&layout.worktree_state()).context("bring to disk", &layout.worktree_state())
    }

    /// Writes the whole ledger. Its journal is in it by then; a line that stays behind says nothing about the new file.
    pub(super) fn write_ledger(&self, _lock: &FileLock, ledger: &Ledger) -> Result<()> {
        let (disk, layout) = (self.store.disk(), &self.store.layout);
        let (file, journal) = (layout.projection_file(), layout.journal_file());
        make_dirs(disk, &layout.worktree_state())?;
        let bytes = ledger.to_bytes().map_err(std::io::Error::other).context("encode", &file)?;
        self.scratch().replace(&file, &bytes)?;
        match disk.remove_file(&journal) {
            Err(error) if !is_absent(&error) => Err(error).context("remove", &journal),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
