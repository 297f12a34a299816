//! A lock is the exclusive right to change one conversation, shared with every other `jp` by `flock(2)` on
//! `locks/jp-c<id>.lock`. Nothing here reads or writes a conversation or the environment. The time of day is handed in;
//! only the length of a wait is measured.
//!
//! A lock is never kept on a file that has lost its name: once locked, the file must still be the one at the path, and
//! it is removed while it is still held. Both are needed, because a second file at the path is a second lock.
//!
//! # Borrowing
//!
//! A process whose ancestor holds a conversation is let through, so that what runs beneath `jp lock run` or `jp query`
//! can work. It takes a lock of its own, level 1, in a directory of borrowed locks, and its children take level 2. So
//! siblings exclude each other. Whoever takes a level also looks whether a deeper one is held, and a borrower looks
//! again whether its lender still holds: of two processes that arrive together at least one sees the other, even when
//! the lender leaves before its children.
//!
//! # Limitations
//!
//! JP itself removes the file after letting go of it. We give such a removal a moment to happen before we rely on a
//! file that somebody left behind; [`Guard::is_current`] tells whether one came later still.

mod attempt;
mod file;
mod holder;
mod process;
#[cfg(test)]
mod tests;
mod unix;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use self::attempt::Attempt;
pub(crate) use self::file::check_file;
use self::file::{Backoff, LOCK_FILE, Missing, Named, Taken};
pub use self::file::{FileLock, WAIT_NOTICE, open_or_make};
pub use self::holder::Holder;
pub use self::process::{Processes, lets_through};
pub(crate) use self::unix::make_room_for_files;
pub use self::unix::{Proc, alive};
use crate::disk::{Disk, Kind};
use crate::error::{Context as _, Error, Result};
use crate::id::ConversationId;

/// Even who does not want to wait tries for this long, because a look at orphans holds a lock for an instant.
const GRACE: Duration = Duration::from_millis(30);
/// A wait is worth telling a person about after this long.
const NOTICE: Duration = Duration::from_millis(100);
/// The longest time between two looks at whether the wait was cancelled.
const POLL: Duration = Duration::from_millis(20);

/// The locks of one store.
#[derive(Clone, Debug)]
pub struct LockDir {
    disk: Arc<dyn Disk>,
    processes: Arc<dyn Processes>,
    primary: PathBuf,
    fallback: Option<PathBuf>,
    borrowed: PathBuf,
    /// Whether `primary` lies in a project too.
    in_project: bool,
    /// This process.
    actor: u32,
    /// The process it works for, usually itself.
    caller: u32,
}

/// How long to wait for a lock, and whom to tell.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    /// After this long it is an error. Zero means not to wait.
    pub timeout: Duration,
    /// Called once, when the wait begins to be noticeable.
    pub on_wait: &'a dyn Fn(ConversationId, &Option<Holder>),
    /// Asked at least every 20 ms; `true` ends the wait.
    pub cancelled: &'a dyn Fn() -> bool,
}

/// Proof that the lock on one conversation is held. The lock goes when this goes.
#[derive(Debug)]
#[must_use = "the lock is let go of at once"]
pub struct Guard {
    id: ConversationId,
    level: u32,
    lock: Named,
}

/// One lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// The conversation.
    pub id: ConversationId,
    /// 0 for the lock itself, more for one borrowed from an ancestor.
    pub level: u32,
    /// The file.
    pub path: PathBuf,
    /// Who holds it or left it behind, as far as the file tells.
    pub holder: Option<Holder>,
    /// Whether anybody does.
    pub state: State,
}

/// Whether a lock file is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A process has the lock.
    Held,
    /// The file was left behind.
    Orphan,
}

impl LockDir {
    /// The locks in `primary`. A file in `fallback` counts where `primary` has none of that name. Locks borrowed from
    /// an ancestor are in `borrowed`. Nothing is made before a lock is taken.
    pub fn new(disk: Arc<dyn Disk>, primary: PathBuf, fallback: Option<PathBuf>, borrowed: PathBuf) -> Self {
        let actor = std::process::id();
        Self { disk, processes: Arc::new(Proc), primary, fallback, borrowed, in_project: false, actor, caller: actor }
    }

    /// The same locks, with `primary` in a project, as `fallback` always is: there a repository has files too, and a file
    /// that is called as a lock may be somebody else's.
    pub fn in_project(self) -> Self {
        Self { in_project: true, ..self }
    }

    /// The same locks under another process table, as seen by process `me` of it.
    pub fn with_processes(self, processes: Arc<dyn Processes>, me: u32) -> Self {
        Self { processes, actor: me, caller: me, ..self }
    }

    /// The same locks, taken for another process: it is that one's ancestors who let us through, and itself.
    pub fn on_behalf_of(&self, caller: u32) -> Self {
        Self { caller, ..self.clone() }
    }

    /// Takes the lock without waiting.
    pub fn try_acquire(&self, id: ConversationId, holder: &Holder) -> Result<Guard> {
        self.acquire(id, holder, &Wait::none())
    }

    /// Takes the lock, waiting for it if need be. `holder.since` is the time of the call; what the file says is the
    /// time at which the lock was taken.
    pub fn acquire(&self, id: ConversationId, holder: &Holder, wait: &Wait<'_>) -> Result<Guard> {
        // A file that changes under our hands is tried again at once, but not for ever.
        const RUSH: u32 = 16;
        let limit = wait.timeout.max(GRACE);
        let watch = Instant::now();
        let mut backoff = Backoff::new();
        let (mut rush, mut told, mut refused, mut busy) = (0, false, None, None);
        loop {
            match self.attempt(id, &mut refused)? {
                Attempt::Got(guard) => {
                    guard.lock.describe(&noted(holder, refused.map(|_| watch.elapsed())).to_bytes());
                    return Ok(guard);
                }
                Attempt::Busy(holder) => (rush, busy) = (0, holder),
                Attempt::Again => rush += 1,
            }
            if (wait.cancelled)() {
                return Err(Error::Interrupted);
            }
            let spent = watch.elapsed();
            if spent >= limit {
                return Err(Error::Locked { id, holder: busy });
            }
            if (1..RUSH).contains(&rush) {
                continue;
            }
            if spent >= NOTICE && !told {
                told = true;
                (wait.on_wait)(id, &busy);
            }
            pause(backoff.next().min(limit - spent), wait.cancelled)?;
        }
    }

    /// Whether anybody holds the conversation. A lock that cannot be looked at counts as held.
    pub fn is_held(&self, id: ConversationId) -> bool {
        let name = format!("{id}.lock");
        let held = |dir: &PathBuf| {
            let state = file::is_locked(&*self.disk, &*self.processes, &dir.join(&name));
            state.map_or(true, |state| state == Some(true))
        };
        held(&self.primary)
            || self.fallback.as_ref().is_some_and(held)
            || self.deepest_held(id, 0).map_or(true, |found| found.is_some())
    }

    /// Who holds the conversation according to the lock file. It may be a holder that has died.
    pub fn holder(&self, id: ConversationId) -> Option<Holder> {
        self.place(id, 0).ok().and_then(|(path, _)| self.holder_in(&path))
    }

    /// All lock files, by id. Holders notice nothing; names that are no lock's, and files that are none, are passed over.
    pub fn list(&self) -> Result<Vec<LockInfo>> {
        let mut found = Vec::new();
        for (id, level, path) in self.files(true)? {
            let Some(held) = file::is_locked(&*self.disk, &*self.processes, &path)? else {
                continue;
            };
            if !held && self.is_foreign(&path) {
                continue;
            }
            let state = if held { State::Held } else { State::Orphan };
            found.push(LockInfo { id, level, holder: self.holder_in(&path), path, state });
        }
        Ok(found)
    }

    /// What is in the place of lock files or of their directories, and is not a lock. It is left alone.
    pub fn in_the_way(&self) -> Result<Vec<Error>> {
        let mut found = Vec::new();
        for dir in self.dirs() {
            match file::is_lock_dir(&*self.disk, dir) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(error) => {
                    found.push(error);
                    continue;
                }
            }
            let mut entries = self.disk.list(dir).context("list", dir)?;
            entries.sort();
            for entry in entries {
                let is_lock = entry.name.to_str().and_then(parse_name).is_some();
                let path = dir.join(&entry.name);
                if is_lock && (entry.kind != Kind::File || self.is_foreign(&path)) {
                    found.push(Error::InTheWay { path, kind: entry.kind, wanted: LOCK_FILE });
                }
            }
        }
        Ok(found)
    }

    /// Removes the files that were left behind, each while holding it, and says whose they were. One that cannot be
    /// removed does not keep the others.
    pub fn clear_orphans(&self) -> Result<Vec<ConversationId>> {
        let mut cleared = Vec::new();
        let mut failed = None;
        for (id, _, path) in self.files(false)? {
            match self.clear(&path) {
                Ok(true) => cleared.push(id),
                Ok(false) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        cleared.dedup();
        failed.map_or(Ok(cleared), Err)
    }
}

impl Wait<'static> {
    /// Not to wait.
    pub fn none() -> Self {
        Self { timeout: Duration::ZERO, on_wait: &|_, _| (), cancelled: &|| false }
    }
}

impl fmt::Debug for Wait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Guard {
    /// The conversation.
    pub fn id(&self) -> ConversationId {
        self.id
    }

    /// Whether an ancestor's lock let us through.
    pub fn is_borrowed(&self) -> bool {
        self.level > 0
    }

    /// The lock file.
    pub fn path(&self) -> &Path {
        self.lock.path()
    }

    /// Whether the lock file is still the one at its path. If it is not, another program removed it, and a third may
    /// believe that the conversation is free.
    pub fn is_current(&self) -> bool {
        self.lock.is_current()
    }

    /// Lets go, and says if the file could not be removed. The lock is gone either way.
    pub fn release(self) -> Result<()> {
        self.lock.remove()
    }
}

impl LockDir {
    fn clear(&self, path: &Path) -> Result<bool> {
        // Asked first, so that a holder's lock is not even tried.
        if file::is_locked(&*self.disk, &*self.processes, path)? != Some(false) {
            return Ok(false);
        }
        match self.take(path, Missing::Leave)? {
            Taken::Free(lock, _) if lock.is_kept() => Ok(false),
            Taken::Free(lock, _) => lock.remove().map(|()| true),
            Taken::Busy(_) | Taken::Absent | Taken::Deleted => Ok(false),
        }
    }

    /// Takes the lock on a file. One that is not a lock's is locked as any other, since that is the file at which other
    /// programs look, and keeps its bytes and its name.
    fn take(&self, path: &Path, missing: Missing) -> Result<Taken> {
        let mut taken = file::take(&self.disk, path, missing)?;
        if let Taken::Free(lock, _) = &mut taken
            && self.is_foreign(path)
        {
            lock.keep();
        }
        Ok(taken)
    }

    /// Whether a file in a project has another content than a lock: then a repository or another program put it there.
    fn is_foreign(&self, path: &Path) -> bool {
        let dir = path.parent();
        let shared = dir == self.fallback.as_deref() || self.in_project && dir == Some(&self.primary);
        if !shared {
            return false;
        }
        let is_lock = |size: u64| {
            size == 0
                || size <= Holder::LONGEST
                    && self.disk.read(path).is_ok_and(|contents| Holder::is_text(&contents.bytes))
        };
        match self.disk.stat(path) {
            Ok(stat) => !is_lock(stat.size),
            Err(error) => !is_missing(&error),
        }
    }

    fn holder_in(&self, path: &Path) -> Option<Holder> {
        self.disk.read(path).ok().and_then(|contents| Holder::parse(&contents.bytes))
    }

    /// The directories of lock files, each once.
    fn dirs(&self) -> Vec<&Path> {
        let fallback = self.fallback.as_deref().filter(|fallback| **fallback != self.primary);
        std::iter::once(self.primary.as_path()).chain(fallback).chain([self.borrowed.as_path()]).collect()
    }

    /// Every lock file, by id, level and path. `lenient` passes over a directory that is something else.
    fn files(&self, lenient: bool) -> Result<Vec<(ConversationId, u32, PathBuf)>> {
        let mut found = Vec::new();
        for dir in self.dirs() {
            let files = match self.files_in(dir) {
                Err(Error::InTheWay { .. }) if lenient => Vec::new(),
                files => files?,
            };
            let is_borrowed = dir == self.borrowed;
            found.extend(files.into_iter().filter(|(_, level, _)| (*level > 0) == is_borrowed));
        }
        found.sort();
        Ok(found)
    }

    fn files_in(&self, dir: &Path) -> Result<Vec<(ConversationId, u32, PathBuf)>> {
        if !file::is_lock_dir(&*self.disk, dir)? {
            return Ok(Vec::new());
        }
        let entries = match self.disk.list(dir) {
            Err(error) if is_missing(&error) => return Ok(Vec::new()),
            entries => entries.context("list", dir)?,
        };
        let files = entries.into_iter().filter(|entry| entry.kind == Kind::File).filter_map(|entry| {
            let (id, level) = parse_name(entry.name.to_str()?)?;
            Some((id, level, dir.join(entry.name)))
        });
        Ok(files.collect())
    }
}

/// `jp-c<id>.lock`, or `jp-c<id>.<level>.lock` for a borrowed one.
fn parse_name(name: &str) -> Option<(ConversationId, u32)> {
    let stem = name.strip_suffix(".lock")?;
    let Some((id, digits)) = stem.split_once('.') else {
        return Some((exact(stem)?, 0));
    };
    let level: u32 = digits.parse().ok()?;
    (level > 0 && level.to_string() == digits).then_some((exact(id)?, level))
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// The holder as the file tells of it, `waited` after it asked.
fn noted(holder: &Holder, waited: Option<Duration>) -> Holder {
    let since = holder.since.map(|asked| asked.checked_add(waited.unwrap_or_default()).unwrap_or(asked));
    Holder { since, ..holder.clone() }
}

fn pause(length: Duration, cancelled: &dyn Fn() -> bool) -> Result<()> {
    let mut left = length;
    while !left.is_zero() {
        let slice = left.min(POLL);
        thread::sleep(slice);
        if cancelled() {
            return Err(Error::Interrupted);
        }
        left -= slice;
    }
    Ok(())
}

/// An id spelled the one way that we and JP spell it in file names.
fn exact(text: &str) -> Option<ConversationId> {
    text.parse().ok().filter(|id: &ConversationId| id.to_string() == text)
}
