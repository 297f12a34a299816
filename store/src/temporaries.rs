//! Names for temporary files, and what becomes of those that a dead process left behind.
//!
//! A process that makes temporaries in a directory first leaves a *record* of that in the store, locked for as long as it
//! lives. Its temporaries carry the record's random token in their names. A temporary is removed by another process only
//! if there is a record with its token and nobody holds that record's lock: a file that the user gave a similar name has
//! no record, and a process in another container holds its lock whatever its process id means here.
//!
//! A record is named after the directory that it was made for. That directory may have another path by now, so a record
//! with another name counts too where a temporary has its token: nobody else knows it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
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
/// Tells the store's own temporaries from those of worktrees.
pub(crate) const IN_STORE: &str = "store";

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

/// What processes that are gone left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Temporaries, which the next command that writes removes.
    pub temporaries: Vec<PathBuf>,
    /// Records that may not be opened, so that nobody can tell whether their process lives.
    pub denied: Vec<PathBuf>,
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
        let record = self.record(&self.key, &token);
        let lock = FileLock::exclusive(disk, &record)?;
        Ok(Claim { token, record, _lock: lock })
    }

    /// Removes what dead processes left behind, as far as that can be done.
    pub(crate) fn sweep(&self, disk: &dyn Disk) -> Result<()> {
        for (record, token) in self.records(disk)? {
            // Held until both are gone, so that nobody else sweeps meanwhile.
            let _lock = match FileLock::if_free(disk, &record) {
                Ok(Some(lock)) => lock,
                Ok(None) => continue,
                Err(error) if error.is_denied() => {
                    tracing::warn!(%error, "a record of temporaries is passed over");
                    continue;
                }
                Err(error) => return Err(error),
            };
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
    pub(crate) fn leftovers(&self, disk: &dyn Disk) -> Result<Leftovers> {
        let mut left = Leftovers::default();
        for (record, token) in self.records(disk)? {
            match FileLock::if_free(disk, &record) {
                Ok(Some(_)) => left.temporaries.extend(self.of_token(disk, &token)?),
                Ok(None) => {}
                Err(error) if error.is_denied() => left.denied.push(record),
                Err(error) => return Err(error),
            }
        }
        left.temporaries.sort();
        Ok(left)
    }

    /// The records of this directory, with their tokens: those that were made for it, and others whose temporaries are in
    /// it. Our own is none of them.
    fn records(&self, disk: &dyn Disk) -> Result<Vec<(PathBuf, String)>> {
        let ours = self.claim.lock().as_ref().map(|claim| claim.record.clone());
        let listed = entries(disk, &self.records)?;
        let mut records: Vec<_> = listed.iter().filter_map(|entry| parse_record(&entry.name)).collect();
        if records.iter().any(|(key, _)| *key != self.key) {
            let here = entries(disk, &self.dir)?;
            let tokens: BTreeSet<_> = here.iter().filter_map(|entry| token_of(&entry.name)).collect();
            records.retain(|(key, token)| *key == self.key || tokens.contains(token));
        }
        let named = records.into_iter().map(|(key, token)| (self.record(key, token), token.to_owned()));
        Ok(named.filter(|(record, _)| ours.as_ref() != Some(record)).collect())
    }

    fn record(&self, key: &str, token: &str) -> PathBuf {
        self.records.join(format!("{RECORD}{key}-{token}"))
    }

    fn of_token(&self, disk: &dyn Disk, token: &str) -> Result<Vec<PathBuf>> {
        let mut found = entries(disk, &self.dir)?;
        found.retain(|entry| token_of(&entry.name) == Some(token));
        Ok(found.into_iter().map(|entry| self.dir.join(entry.name)).collect())
    }

    /// The names in this directory that are records made for it, or temporaries of such a record.
    pub(crate) fn own_names(&self, disk: &dyn Disk) -> Result<BTreeSet<OsString>> {
        let mut names: Vec<_> = entries(disk, &self.dir)?.into_iter().map(|entry| entry.name).collect();
        let records = names.iter().filter_map(|name| parse_record(name)).filter(|(key, _)| *key == self.key);
        let tokens: BTreeSet<_> = records.map(|(_, token)| token.to_owned()).collect();
        names.retain(|name| {
            let is_record = parse_record(name).is_some_and(|(key, _)| key == self.key);
            is_record || token_of(name).is_some_and(|token| tokens.contains(token))
        });
        Ok(names.into_iter().collect())
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

/// The key and the token of a record, by its name.
fn parse_record(name: &OsStr) -> Option<(&str, &str)> {
    let (key, token) = name.to_str()?.strip_prefix(RECORD)?.rsplit_once('-')?;
    (!token.is_empty()).then_some((key, token))
}

/// The token of a temporary, by its name.
fn token_of(name: &OsStr) -> Option<&str> {
    let (token, _serial) = name.to_str()?.strip_prefix(TEMPORARY)?.rsplit_once('-')?;
    (!token.is_empty()).then_some(token)
}
