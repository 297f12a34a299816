//! Notes what a worktree shows and what hangs where, without looking at a single conversation. Lines are appended to the
//! books' journals; folding makes one file of each book and its journal.

use std::path::Path;

use super::Writer;
use crate::error::{Context as _, Result};
use crate::files::{exists, make_dirs, stat};
use crate::id::ConversationId;
use crate::journal::{self, Change};
use crate::ledger::Ledger;
use crate::lock::FileLock;
use crate::mirror::journal::Footing;
use crate::mirror::{self, Link, Mirror};
use crate::scan::is_absent;

/// A journal that is longer than this, and than its book, is folded into it. The book is what all its lines come to, so folding
/// costs no more than the lines did.
const LONG: u64 = 64 << 10;

impl Writer {
    /// Notes changes of what this worktree shows. They survive the death of this process, and reach the disk
    /// when somebody catches up.
    pub fn note(&self, changes: &[Change]) -> Result<()> {
        if changes.is_empty() || self.store.layout.is_single_root() {
            return Ok(());
        }
        let lock = self.ledger_lock()?;
        self.note_under(&lock, changes)
    }

    /// Makes one file of each book and its journal.
    pub fn fold(&self) -> Result<()> {
        let (disk, layout) = (self.store.disk(), &self.store.layout);
        if layout.is_single_root() {
            return Ok(());
        }
        let lock = self.ledger_lock()?;
        if exists(disk, &layout.journal_file())? {
            self.write_ledger(&lock, &self.store.read_ledger()?)?;
        }
        let lock = self.file_lock(&layout.store.tree_lock())?;
        if exists(disk, &layout.store.tree_journal())? {
            self.change_mirror(&lock, |_| true)?;
        }
        Ok(())
    }

    /// As [`Writer::fold`], once a journal has grown so long that reading it whole would be felt.
    pub fn fold_if_long(&self) -> Result<()> {
        let (disk, layout) = (self.store.disk(), &self.store.layout);
        let books = [
            (layout.journal_file(), layout.projection_file()),
            (layout.store.tree_journal(), layout.store.tree_file()),
        ];
        let size = |path: &Path| Ok(stat(disk, path)?.map_or(0, |stat| stat.size));
        for (journal, book) in books {
            let long = size(&journal)?;
            if long > LONG && long > size(&book)? {
                return self.fold();
            }
        }
        Ok(())
    }

    /// The lock that guards the ledger, its journal and the workspace's directories.
    pub(super) fn ledger_lock(&self) -> Result<FileLock> {
        self.file_lock(&self.store.layout.projection_lock())
    }

    /// As [`Writer::note`], by whoever holds the ledger's lock.
    pub(super) fn note_under(&self, _lock: &FileLock, changes: &[Change]) -> Result<()> {
        let file = self.store.layout.journal_file();
        let line = journal::line(changes, self.store.footing()?);
        let line = line.map_err(std::io::Error::other).context("encode", &file)?;
        self.append(&file, &line)
    }

    /// As [`Writer::note_under`], and brings it to disk.
    pub(super) fn note_durably(&self, lock: &FileLock, changes: &[Change]) -> Result<()> {
        let (disk, layout) = (self.store.disk(), &self.store.layout);
        make_dirs(disk, &layout.worktree_state(), layout.store_access())?;
        self.note_under(lock, changes)?;
        disk.sync_file(&layout.journal_file()).context("bring to disk", &layout.journal_file())?;
        disk.sync_dir(&layout.worktree_state()).context("bring to disk", &layout.worktree_state())
    }

    /// Writes the whole ledger. Its journal is in it by then; a line that stays behind says nothing about the new file.
    pub(super) fn write_ledger(&self, _lock: &FileLock, ledger: &Ledger) -> Result<()> {
        let (disk, layout) = (self.store.disk(), &self.store.layout);
        let (file, journal) = (layout.projection_file(), layout.journal_file());
        make_dirs(disk, &layout.worktree_state(), layout.store_access())?;
        let bytes = ledger.to_bytes().map_err(std::io::Error::other).context("encode", &file)?;
        self.scratch().replace(&file, &bytes)?;
        self.drop_journal(&journal)
    }

    /// Notes what the mirror says of a conversation now. It survives the death of this process.
    pub(super) fn note_link(&self, _lock: &FileLock, id: ConversationId, link: Link) -> Result<()> {
        let (disk, root) = (self.store.disk(), &self.store.layout.store);
        let (file, journal) = (root.tree_file(), root.tree_journal());
        let on = match disk.stat(&file) {
            Ok(stat) => Some(stat),
            Err(error) if is_absent(&error) => None,
            Err(error) => return Err(error).context("look at", &file),
        };
        let line = mirror::journal::line(id, link, Footing::new(on));
        let line = line.map_err(std::io::Error::other).context("encode", &journal)?;
        self.append(&journal, &line)
    }

    /// Adds a line to a journal. It reaches the disk when somebody catches up.
    fn append(&self, journal: &Path, line: &[u8]) -> Result<()> {
        self.store.disk().append(journal, line).context("append to", journal)?;
        if let (Some(later), Some(dir)) = (&self.later, journal.parent()) {
            later.put_off_file(journal);
            later.put_off_dir(dir);
        }
        Ok(())
    }

    /// Writes the whole mirror, as [`Writer::write_ledger`] does the ledger.
    pub(super) fn write_mirror(&self, _lock: &FileLock, mirror: &Mirror) -> Result<()> {
        let root = &self.store.layout.store;
        self.scratch().replace(&root.tree_file(), &crate::json::pretty(mirror))?;
        self.drop_journal(&root.tree_journal())
    }

    pub(super) fn drop_journal(&self, journal: &Path) -> Result<()> {
        match self.store.disk().remove_file(journal) {
            Err(error) if !is_absent(&error) => Err(error).context("remove", journal),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
