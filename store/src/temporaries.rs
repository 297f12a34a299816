//! Names for temporary files, and what becomes of those that a dead process left behind.
//!
//! A process that makes temporaries in a directory first leaves a *record* of that in the store, locked for as long as it
//! lives. Its temporaries carry the record's random token in their names. A temporary is removed by another process only
//! if there is a record with its token and nobody holds that record's lock: a file that the user gave a similar name has
//! no record, and a process in another container holds its lock whatever its process id means here.

use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::disk::Disk;
use crate::error::{Context as _, Result};
use crate::files::{entries, make_dirs, remove_tree};
use crate::lock::FileLock;
use crate::modes::Access;
use crate::scan::is_absent;

/// What the names of temporaries begin with.
const TEMPORARY: &str = "jp-tmp-";
/// What the names of records begin with.
const RECORD: &str = "owner-";

/// The temporaries of this process in one directory.
#[derive(Debug)]
pub(crate) struct Temporaries {
    /// Where they are made.
    dir: PathBuf,
    /// Where records are kept.
    records: PathBuf,
    /// Tells directories apart, however they are reached.
    key: String,
    claim: Mutex<Option<Claim>>,
    serial: AtomicU64,
}

/// A record whose lock we hold.
#[derive(Debug)]
struct Claim {
    token: String,
    record: PathBuf,
    _lock: FileLock,
}

impl Temporaries {
    pub(crate) fn new(dir: PathBuf, records: PathBuf, key: &str) -> Self {
        Self { dir, records, key: key.to_owned(), claim: Mutex::new(None), serial: AtomicU64::new(0) }
    }

    /// Where they are made.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A name that nothing has. The directory need not be there.
    pub(crate) fn next(&self, disk: &dyn Disk) -> Result<PathBuf> {
        let mut claim = self.claim.lock();
        if claim.is_none() {
            *claim = Some(self.claim(disk)?);
        }
        let token = claim.as_ref().map_or("", |claim| &claim.token);
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        Ok(self.dir.join(format!("{TEMPORARY}{token}-{serial}")))
    }

    fn claim(&self, disk: &dyn Disk) -> Result<Claim> {
        make_dirs(disk, &self.records, Access::Private)?;
        // Seeded by the system, and another one each time.
        let token = format!("{:016x}", RandomState::new().hash_one(0));
        let record = self.records.join(format!("{RECORD}{}-{token}", self.key));
        let lock = FileLock::exclusive(disk, &record)?;
        Ok(Claim { token, record, _lock: lock })
    }

    /// Removes what dead processes left behind, as far as that can be done.
    pub(crate) fn sweep(&self, disk: &dyn Disk) -> Result<()> {
        for (record, token) in self.records(disk)? {
            // Held until both are gone, so that nobody else sweeps meanwhile.
            let Some(_lock) = FileLock::if_free(disk, &record)? else { continue };
            let removed = self.of_token(disk, &token)?.iter().try_for_each(|leftover| remove_tree(disk, leftover));
            match removed {
                Ok(()) => match disk.remove_file(&record) {
                    Err(error) if is_absent(&error) => {}
                    removed => removed.context("remove", &record)?,
                },
                Err(error) => tracing::debug!(%error, "a temporary stays behind"),
            }
        }
        Ok(())
    }

    /// What dead processes left behind.
    pub(crate) fn leftovers(&self, disk: &dyn Disk) -> Result<Vec<PathBuf>> {
        let mut left = Vec::new();
        for (record, token) in self.records(disk)? {
            if FileLock::if_free(disk, &record)?.is_some() {
                left.extend(self.of_token(disk, &token)?);
            }
        }
        left.sort();
        Ok(left)
    }

    /// The records of this directory, with their tokens. Our own is none of them.
    fn records(&self, disk: &dyn Disk) -> Result<Vec<(PathBuf, String)>> {
        let ours = self.claim.lock().as_ref().map(|claim| claim.record.clone());
        let start = format!("{RECORD}{}-", self.key);
        let listed = entries(disk, &self.records)?.into_iter().filter_map(|entry| {
            let token = entry.name.to_str()?.strip_prefix(&start)?.to_owned();
            Some((self.records.join(&entry.name), token))
        });
        Ok(listed.filter(|(record, token)| !token.is_empty() && ours.as_ref() != Some(record)).collect())
    }

    fn of_token(&self, disk: &dyn Disk, token: &str) -> Result<Vec<PathBuf>> {
        let start = format!("{TEMPORARY}{token}-");
        let mut found = entries(disk, &self.dir)?;
        found.retain(|entry| entry.name.as_encoded_bytes().starts_with(start.as_bytes()));
        Ok(found.into_iter().map(|entry| self.dir.join(entry.name)).collect())
    }

    /// Gives the record up if none of its temporaries is there any more. What cannot be looked at stays recorded, for
    /// somebody who can.
    pub(crate) fn release(&self, disk: &dyn Disk) {
        let Some(claim) = self.claim.lock().take() else { return };
        if self.of_token(disk, &claim.token).is_ok_and(|left| left.is_empty())
            && let Err(error) = disk.remove_file(&claim.record)
        {
            tracing::debug!(%error, "a record of temporaries stays behind");
        }
    }
}
