//! One lock file: taking its `flock`, making sure that it is still the file at its path, and letting go of it. Nothing
//! here knows conversations, and nothing here waits longer than it is told.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::process::Processes;
use super::unix::{self, Inode, Mode, Opened};
use crate::disk::{Disk, Kind};
use crate::error::{Context as _, Error, Result, name_processes};
use crate::files::make_dirs;
use crate::modes::Access;
use crate::scan::is_absent;

/// How long [`FileLock`] waits. What it protects takes milliseconds, so a holder that has it longer is stuck.
const LOCK_WAIT: Duration = Duration::from_secs(30);
/// After this long the wait is reported.
const NOTICE_AFTER: Duration = Duration::from_secs(1);
/// The target of remarks that are shown even to a user who did not ask for remarks.
pub const WAIT_NOTICE: &str = "jp_store::notice";
/// What belongs at the path of a lock.
pub(super) const LOCK_FILE: &str = "a lock file";

/// The lock on one of the store's own files, such as the mirror of the tree. The file stays when the lock goes.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

impl FileLock {
    /// Waits until nobody else has the lock. Directories that are missing are made.
    pub fn exclusive(disk: &dyn Disk, path: &Path) -> Result<Self> {
        Self::within(disk, path, Mode::Exclusive, LOCK_WAIT)
    }

    /// Waits until nobody has the lock exclusively. Directories that are missing are made.
    pub fn shared(disk: &dyn Disk, path: &Path) -> Result<Self> {
        Self::within(disk, path, Mode::Shared, LOCK_WAIT)
    }

    /// Takes the lock if the file is there and nobody has it.
    pub(crate) fn if_free(disk: &dyn Disk, path: &Path) -> Result<Option<Self>> {
        let file = match disk.open_existing_lock(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.context("open", path)?,
        };
        if !unix::try_lock(&file, Mode::Exclusive).context("lock", path)? {
            return Ok(None);
        }
        let opened = Opened::of(&file).context("stat", path)?;
        let lock = Self { file };
        Ok(is_at(disk, path, opened.inode).context("stat", path)?.then_some(lock))
    }

    pub(super) fn within(disk: &dyn Disk, path: &Path, mode: Mode, limit: Duration) -> Result<Self> {
        let watch = Instant::now();
        let mut backoff = Backoff::new();
        let mut told = false;
        loop {
            let file = open_or_make(disk, path)?;
            let ours = unix::try_lock(&file, mode).context("lock", path)?;
            let opened = Opened::of(&file).context("stat", path)?;
            if ours && is_at(disk, path, opened.inode).context("stat", path)? {
                return Ok(Self { file });
            }
            let left = limit.saturating_sub(watch.elapsed());
            if left.is_zero() {
                let (path, holders) = (path.to_owned(), unix::holders(opened.inode));
                return Err(Error::Stuck { path, holders, waited: limit });
            }
            if !told && watch.elapsed() >= NOTICE_AFTER {
                told = true;
                let holders = name_processes(&unix::holders(opened.inode));
                tracing::warn!(target: WAIT_NOTICE, "waiting for {} (held by {holders})", path.display());
            }
            thread::sleep(backoff.next().min(left));
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        unlock(&self.file);
    }
}

/// Pauses between two tries: 5 ms at first, 50 ms in the end.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Self {
        Self(Duration::from_millis(5))
    }

    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(Duration::from_millis(50));
        pause
    }
}

/// What to do when a lock file is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// Make it, and its directory.
    Make,
    /// Report [`Taken::Absent`].
    Leave,
}

/// What came of trying to take a lock.
#[derive(Debug)]
pub(super) enum Taken {
    /// It is ours. The size of the file is that of the text the last holder left behind.
    Free(Named, Opened),
    /// Somebody else has it.
    Busy(Opened),
    /// There is no such file.
    Absent,
    /// It was ours, but no longer the file at the path: its holder removed it on leaving.
    Deleted,
}

/// Takes the exclusive lock on a file if it is free and is, once locked, still the one at the path.
pub(super) fn take(disk: &Arc<dyn Disk>, path: &Path, missing: Missing) -> Result<Taken> {
    let file = match missing {
        Missing::Make => open_or_make(&**disk, path)?,
        Missing::Leave => match disk.open_existing_lock(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Taken::Absent),
            opened => opened.map_err(|error| explain(&**disk, path, error))?,
        },
    };
    let ours = unix::try_lock(&file, Mode::Exclusive).context("lock", path)?;
    // From here on nobody who asks for the lock first writes to it.
    let opened = Opened::of(&file).context("stat", path)?;
    if !ours {
        return Ok(Taken::Busy(opened));
    }
    if !is_at(&**disk, path, opened.inode).context("stat", path)? {
        return Ok(Taken::Deleted);
    }
    let (inode, left) = (opened.inode, opened.size);
    let lock = Named { disk: Arc::clone(disk), path: path.to_owned(), inode, left, kept: false, file: Some(file) };
    Ok(Taken::Free(lock, opened))
}

/// Whether somebody has the exclusive lock; `None` if there is no such file. A holder notices nothing. A lock that
/// turns out free is taken for an instant, which is why others try for a moment before they give up.
pub(super) fn is_locked(disk: &dyn Disk, processes: &dyn Processes, path: &Path) -> Result<Option<bool>> {
    let stat = match disk.stat(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        stat => stat.context("stat", path)?,
    };
    if stat.kind != Kind::File {
        return Err(Error::InTheWay { path: path.to_owned(), kind: stat.kind, wanted: LOCK_FILE });
    }
    if !processes.owners(stat.dev, stat.ino).is_empty() {
        return Ok(Some(true));
    }
    let file = match disk.open_existing_lock(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // Another user's. It cannot be tried, and it must not pass for an orphan.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(Some(true)),
        file => file.context("open", path)?,
    };
    let free = unix::try_lock(&file, Mode::Exclusive).context("lock", path)?;
    if free {
        unlock(&file);
    }
    Ok(Some(!free))
}

/// A held lock whose file goes when the lock goes.
#[derive(Debug)]
pub(super) struct Named {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    inode: Inode,
    /// The length of the text that the last holder left behind.
    left: u64,
    /// Whether the file is somebody else's, and so is neither written nor removed.
    kept: bool,
    /// `None` once let go.
    file: Option<File>,
}

impl Named {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is still the one at the path. Somebody who finds another one there does not see this lock.
    pub(super) fn is_current(&self) -> bool {
        is_at(&*self.disk, &self.path, self.inode).unwrap_or(false)
    }

    /// Leaves the file as it is, and where it is.
    pub(super) fn keep(&mut self) {
        self.kept = true;
    }

    pub(super) fn is_kept(&self) -> bool {
        self.kept
    }

    /// Replaces the text. It only serves people, so a failure is no reason to give up the lock.
    pub(super) fn describe(&self, text: &[u8]) {
        let Some(file) = self.file.as_ref().filter(|_| !self.kept) else {
            return;
        };
        // Nearly always it is empty, and to empty it again would make some filesystems write it out when it is closed.
        let emptied = if self.left == 0 { Ok(()) } else { file.set_len(0) };
        let written = emptied.and_then(|()| unix::write_at_start(file, text));
        if let Err(error) = written {
            tracing::warn!(path = %self.path.display(), %error, "cannot note the holder of the lock");
        }
    }

    /// Removes the file, then lets go.
    pub(super) fn remove(mut self) -> Result<()> {
        self.let_go()
    }

    fn let_go(&mut self) -> Result<()> {
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        // The name goes first. Whoever waits on this inode then gets a lock without a name, notices, and opens the
        // path again; the other way round the name might be that of their lock.
        let removed = match is_at(&*self.disk, &self.path, self.inode) {
            Ok(true) if self.kept => Ok(()),
            Ok(true) => self.disk.remove_file(&self.path),
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        unlock(&file);
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.context("remove", &self.path),
        }
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Err(error) = self.let_go() {
            tracing::warn!(path = %self.path.display(), %error, "cannot clean up the lock");
        }
    }
}

/// Lets go before the descriptor closes: a child that another thread has just forked shares it until it executes.
fn unlock(file: &File) {
    if let Err(error) = file.unlock() {
        tracing::warn!(%error, "cannot unlock");
    }
}

fn is_at(disk: &dyn Disk, path: &Path, inode: Inode) -> io::Result<bool> {
    match disk.stat(path) {
        Ok(stat) => Ok(Inode::from(stat) == inode),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens a lock file, making it and its directory if they are not there. Neither is followed through a link.
pub fn open_or_make(disk: &dyn Disk, path: &Path) -> Result<File> {
    let opened = match (disk.open_lock(path), path.parent()) {
        (Err(error), Some(dir)) if error.kind() == io::ErrorKind::NotFound => {
            make_dirs(disk, dir, Access::Private)?;
            disk.open_lock(path)
        }
        (opened, _) => opened,
    };
    opened.map_err(|error| explain(disk, path, error))
}

/// Whether a directory of lock files is there. Anything else in its place is an error.
pub(super) fn is_lock_dir(disk: &dyn Disk, dir: &Path) -> Result<bool> {
    match disk.stat(dir) {
        Ok(stat) if stat.kind == Kind::Dir => Ok(true),
        Ok(stat) => Err(Error::InTheWay { path: dir.to_owned(), kind: stat.kind, wanted: "a directory of lock files" }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context("stat", dir),
    }
}

/// Whether a lock file is there. Anything else in its place is an error.
pub(crate) fn check_file(disk: &dyn Disk, path: &Path) -> Result<bool> {
    match disk.stat(path) {
        Ok(stat) if stat.kind == Kind::File => Ok(true),
        Ok(stat) => Err(Error::InTheWay { path: path.to_owned(), kind: stat.kind, wanted: LOCK_FILE }),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error).context("stat", path),
    }
}

/// Why a lock file cannot be opened: something else may be in its place.
fn explain(disk: &dyn Disk, path: &Path, error: io::Error) -> Error {
    if let Some(Err(in_the_way)) = path.parent().map(|dir| is_lock_dir(disk, dir)) {
        return in_the_way;
    }
    match disk.stat(path) {
        Ok(stat) if stat.kind != Kind::File => {
            Error::InTheWay { path: path.to_owned(), kind: stat.kind, wanted: LOCK_FILE }
        }
        Ok(_) | Err(_) => Error::Io { verb: "open", path: path.to_owned(), source: error },
    }
}
