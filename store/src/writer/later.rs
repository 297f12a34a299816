//! What is to reach the disk a little later. A name that was just given, or a line that was just added, survives the death
//! of every process at once; power loss it survives once somebody catches up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Writer;
use crate::disk::Disk;
use crate::error::{Context as _, Result};
use crate::scan::is_absent;

/// More than this are brought to disk together, with everything else that waits on the filesystem.
const MANY: usize = 16;

/// What waits. It stops waiting once it is on disk, not before: whoever asks for one that somebody else is at work on
/// brings it there too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Later(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    /// Each with the number of the time it was last put off.
    all: BTreeMap<Put, u64>,
    times: u64,
}

/// What was put off.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Put {
    /// The names in a directory. These come first: a line of a journal may say what became of a name.
    Dir(PathBuf),
    /// The bytes of a file.
    File(PathBuf),
}

impl Later {
    /// The names in a directory can wait.
    pub(crate) fn put_off_dir(&self, dir: &Path) {
        self.put_off(Put::Dir(dir.to_owned()));
    }

    /// The bytes of a file can wait.
    pub(crate) fn put_off_file(&self, file: &Path) {
        self.put_off(Put::File(file.to_owned()));
    }

    fn put_off(&self, put: Put) {
        let mut waiting = self.waiting();
        waiting.times += 1;
        let time = waiting.times;
        waiting.all.insert(put, time);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Whoever panicked held nothing but numbers.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is on disk as it was then; if it was put off again since, it waits on.
    fn done(&self, put: &Put, time: u64) {
        let mut waiting = self.waiting();
        if waiting.all.get(put) == Some(&time) {
            waiting.all.remove(put);
        }
    }

    fn bring(&self, disk: &dyn Disk, put: &Put, time: u64) -> Result<()> {
        let (path, synced) = match put {
            Put::File(file) => (file, disk.sync_file(file)),
            Put::Dir(dir) => (dir, disk.sync_dir(dir)),
        };
        match synced {
            // What is gone by now took its names with it, or has another name and waits under that.
            Err(error) if !is_absent(&error) => return Err(error).context("sync", path),
            Ok(()) | Err(_) => {}
        }
        self.done(put, time);
        Ok(())
    }

    /// Brings a directory to disk, if it waits.
    fn catch_up_on(&self, disk: &dyn Disk, dir: &Path) -> Result<()> {
        let put = Put::Dir(dir.to_owned());
        let time = self.waiting().all.get(&put).copied();
        time.map_or(Ok(()), |time| self.bring(disk, &put, time))
    }

    /// Brings everything to disk. What cannot be brought there goes on waiting.
    fn catch_up(&self, disk: &dyn Disk, all: &Path) -> Result<()> {
        let now = self.waiting().all.clone();
        if now.len() > MANY {
            disk.sync_all(all).context("sync", all)?;
            now.iter().for_each(|(put, &time)| self.done(put, time));
            return Ok(());
        }
        // One that cannot be brought there does not keep the others.
        let mut result = Ok(());
        for (put, &time) in &now {
            result = result.and(self.bring(disk, put, time));
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

    /// The names in a directory have changed. They reach the disk when somebody catches up; at once if nobody does.
    pub fn names_changed(&self, dir: &Path) -> Result<()> {
        match &self.later {
            Some(later) => later.put_off_dir(dir),
            None => match self.store.disk().sync_dir(dir) {
                Err(error) if !is_absent(&error) => return Err(error).context("sync", dir),
                Ok(()) | Err(_) => {}
            },
        }
        Ok(())
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
