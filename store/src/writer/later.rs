//! What is to reach the disk a little later. A name that was just given, or a line that was just added, survives the death
//! of every process at once; power loss it survives once somebody catches up.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Writer;
use crate::disk::Disk;
use crate::error::{Context as _, Result};
use crate::scan::is_absent;

/// More than this are brought to disk together, with everything else that waits on the filesystem.
const MANY: usize = 16;

/// Directories and files that wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Later(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    dirs: BTreeSet<PathBuf>,
    files: BTreeSet<PathBuf>,
}

impl Later {
    /// The names in a directory can wait.
    pub(crate) fn put_off_dir(&self, dir: &Path) {
        let mut waiting = self.waiting();
        if !waiting.dirs.contains(dir) {
            waiting.dirs.insert(dir.to_owned());
        }
    }

    /// The bytes of a file can wait.
    pub(crate) fn put_off_file(&self, file: &Path) {
        let mut waiting = self.waiting();
        if !waiting.files.contains(file) {
            waiting.files.insert(file.to_owned());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Whoever panicked held nothing but two sets.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings a directory to disk, if it waits.
    fn catch_up_on(&self, disk: &dyn Disk, dir: &Path) -> Result<()> {
        if !self.waiting().dirs.remove(dir) {
            return Ok(());
        }
        match disk.sync_dir(dir) {
            // It has another name by now, and waits under that.
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) => {
                self.put_off_dir(dir);
                Err(error).context("sync", dir)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Brings everything to disk. What cannot be brought there goes on waiting.
    fn catch_up(&self, disk: &dyn Disk, all: &Path) -> Result<()> {
        let Waiting { dirs, files } = std::mem::take(&mut *self.waiting());
        if dirs.len() + files.len() > MANY {
            let synced = disk.sync_all(all);
            if synced.is_err() {
                let mut waiting = self.waiting();
                waiting.dirs.extend(dirs);
                waiting.files.extend(files);
            }
            return synced.context("sync", all);
        }
        let mut result = Ok(());
        // What is gone by now took its names with it, or was given another that waits too.
        for file in files {
            match disk.sync_file(&file) {
                Err(error) if !is_absent(&error) => {
                    self.put_off_file(&file);
                    result = result.and(Err(error).context("sync", &file));
                }
                Ok(()) | Err(_) => {}
            }
        }
        for dir in dirs {
            match disk.sync_dir(&dir) {
                Err(error) if !is_absent(&error) => {
                    self.put_off_dir(&dir);
                    result = result.and(Err(error).context("sync", &dir));
                }
                Ok(()) | Err(_) => {}
            }
        }
        result
    }
}

impl Writer {
    /// The same, for whoever catches up by itself within a second: names of saved files, and lines of the books, reach the
    /// disk then. The bytes of a saved file are there before it gets its name, as ever.
    pub fn putting_off(&self) -> Self {
        Self { later: Some(Later::default()), ..self.clone() }
    }

    /// Brings to disk what was put off.
    pub fn catch_up(&self) -> Result<()> {
        match &self.later {
            Some(later) => later.catch_up(self.store.disk(), &self.store.layout.store.dir),
            None => Ok(()),
        }
    }

    /// Brings to disk what was put off of one directory.
    pub fn catch_up_on(&self, dir: &Path) -> Result<()> {
        match &self.later {
            Some(later) => later.catch_up_on(self.store.disk(), dir),
            None => Ok(()),
        }
    }
}
