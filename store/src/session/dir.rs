//! The directory of session files: finding one, listing them, and cleaning up after terminals that are gone. A file
//! that cannot be read is reported and never deleted, and a file that changes meanwhile is left alone.

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Mapping, Session, Source};
use crate::disk::{Disk, Kind};
use crate::error::{Context as _, Error, Result};
use crate::files::make_dirs;
use crate::id::ConversationId;
use crate::modes::Access;

/// Writes a file so that a reader sees the old bytes or the new ones.
type Write<'a> = &'a dyn Fn(&Path, &[u8]) -> Result<()>;

/// The session files of one store.
#[derive(Clone, Debug)]
pub struct SessionDir {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

/// What cleaning needs to know.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// Whether the terminal is there; `None` where that cannot be told, as on another platform.
    pub alive: &'a dyn Fn(&Session) -> Option<bool>,
    /// Whether a conversation is on disk, live or archived, in either root.
    pub on_disk: &'a dyn Fn(ConversationId) -> bool,
    /// Whether a conversation is locked. Somebody may be about to write it.
    pub locked: &'a dyn Fn(ConversationId) -> bool,
}

/// What cleaning did.
#[derive(Debug, Default)]
pub struct Cleaned {
    /// Files of terminals that are gone.
    pub deleted: Vec<PathBuf>,
    /// Files from which conversations that are gone were taken, and how many.
    pub pruned: Vec<(PathBuf, usize)>,
    /// Files of old, and where their contents are now.
    pub migrated: Vec<(PathBuf, PathBuf)>,
    /// Files that were left alone, and why.
    pub failed: Vec<(PathBuf, Error)>,
}

/// Whether a session file has outlived its terminal. A process or a window can be asked; an environment variable only
/// says that it was set, so its file goes when there is nothing left for it to point at.
pub fn stale(source: &Source, alive: Option<bool>, any_on_disk: bool, any_locked: bool) -> bool {
    match (source, alive) {
        (Source::Getsid | Source::Hwnd, Some(alive)) => !alive,
        (Source::Getsid | Source::Hwnd, None) | (Source::Env(_), Some(_) | None) => !any_on_disk && !any_locked,
    }
}

impl SessionDir {
    /// The session files in `dir`, which need not be there.
    pub fn new(disk: Arc<dyn Disk>, dir: PathBuf) -> Self {
        Self { disk, dir }
    }

    /// Where the file of a session is.
    pub fn path(&self, session: &Session) -> PathBuf {
        self.dir.join(format!("{}.json", session.key()))
    }

    /// What a session was on. A file of another session under the same name counts as none.
    pub fn load(&self, session: &Session) -> Result<Option<Mapping>> {
        let mut found = self.read(&self.path(session))?;
        if found.is_none()
            && let Some(legacy) = self.legacy_path(session)
        {
            found = self.read(&legacy)?;
        }
        Ok(found.map(|(mapping, _)| mapping).filter(|mapping| mapping.matches(session)))
    }

    /// Writes what a session was on, under its name of today.
    pub fn save(&self, mapping: &Mapping, write: Write<'_>) -> Result<()> {
        let path = self.path(mapping.session());
        self.check_dir()?;
        make_dirs(&*self.disk, &self.dir, Access::Private)?;
        self.check_file(&path)?;
        write(&path, &mapping.to_bytes())
    }

    /// All session files, by name.
    pub fn list(&self) -> Result<Vec<(PathBuf, Result<Mapping>)>> {
        let mut found = Vec::new();
        let files = match self.files() {
            Err(Error::InTheWay { .. }) => Vec::new(),
            files => files?,
        };
        for path in files {
            match self.read(&path) {
                Ok(None) => {}
                Ok(Some((mapping, _))) => found.push((path, Ok(mapping))),
                Err(error) => found.push((path, Err(error))),
            }
        }
        Ok(found)
    }

    /// What is in the place of session files or of their directory. It is left alone.
    pub fn in_the_way(&self) -> Result<Vec<Error>> {
        match self.check_dir() {
            Ok(true) => {}
            Ok(false) => return Ok(Vec::new()),
            Err(error) => return Ok(vec![error]),
        }
        let entries = self.disk.list(&self.dir).context("list", &self.dir)?;
        let paths = entries.into_iter().map(|entry| self.dir.join(entry.name));
        let mut paths: Vec<_> = paths.filter(|path| is_json(path)).collect();
        paths.sort();
        Ok(paths.iter().filter_map(|path| self.check_file(path).err()).collect())
    }

    /// Deletes the files of terminals that are gone, takes conversations that are gone out of the others, and gives
    /// files of old their name of today. What fails for one file is no reason to leave the others.
    pub fn clean(&self, world: &World<'_>, write: Write<'_>) -> Result<Cleaned> {
        let mut cleaned = Cleaned::default();
        for path in self.files()? {
            if let Err(error) = self.clean_one(&path, world, write, &mut cleaned) {
                cleaned.failed.push((path, error));
            }
        }
        Ok(cleaned)
    }

    fn clean_one(&self, path: &Path, world: &World<'_>, write: Write<'_>, cleaned: &mut Cleaned) -> Result<()> {
        let Some((mut mapping, bytes)) = self.read(path)? else {
            return Ok(());
        };
        let any = |is: &dyn Fn(ConversationId) -> bool| mapping.history().iter().any(|entry| is(entry.id()));
        let session = mapping.session();
        let alive = (world.alive)(session);
        if stale(&session.source, alive, any(world.on_disk), any(world.locked)) {
            if self.is_unchanged(path, &bytes) {
                self.remove(path)?;
                cleaned.deleted.push(path.to_owned());
            }
            return Ok(());
        }

        let pruned = mapping.prune(&|id| (world.on_disk)(id) || (world.locked)(id));
        let home = if mapping.is_legacy() { self.path(mapping.session()) } else { path.to_owned() };
        if home == path {
            if pruned > 0 && self.is_unchanged(path, &bytes) {
                write(path, &mapping.to_bytes())?;
                cleaned.pruned.push((path.to_owned(), pruned));
            }
            return Ok(());
        }
        match self.read(&home) {
            Ok(None) => {
                write(&home, &mapping.to_bytes())?;
                if pruned > 0 {
                    cleaned.pruned.push((home.clone(), pruned));
                }
            }
            // The file of today is the newer one: nothing writes the old name.
            Ok(Some((newer, _))) if newer.matches(mapping.session()) => {}
            // Another session's, or unreadable and reported under its own name. The old file is all there is.
            Ok(Some(_)) | Err(_) => return Ok(()),
        }
        if self.is_unchanged(path, &bytes) {
            self.remove(path)?;
            cleaned.migrated.push((path.to_owned(), home));
        }
        Ok(())
    }

    /// The bytes of a session file and what they mean; `None` if there is no such file.
    fn read(&self, path: &Path) -> Result<Option<(Mapping, Vec<u8>)>> {
        if !self.check_dir()? || !self.check_file(path)? {
            return Ok(None);
        }
        match self.disk.read(path) {
            Ok(contents) => Ok(Some((Mapping::parse(path, &contents.bytes)?, contents.bytes))),
            // A value of old may be longer than a name can be.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename) => Ok(None),
            Err(error) => Err(error).context("read", path),
        }
    }

    /// Whether a session file is there. Anything else in its place is an error.
    fn check_file(&self, path: &Path) -> Result<bool> {
        self.check(path, Kind::File, "a session file")
    }

    /// Whether the directory is there. Anything else in its place is an error.
    fn check_dir(&self) -> Result<bool> {
        self.check(&self.dir, Kind::Dir, "a directory of session files")
    }

    fn check(&self, path: &Path, kind: Kind, wanted: &'static str) -> Result<bool> {
        match self.disk.stat(path) {
            Ok(stat) if stat.kind == kind => Ok(true),
            Ok(stat) => Err(Error::InTheWay { path: path.to_owned(), kind: stat.kind, wanted }),
            // A value of old may be longer than a name can be.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename) => Ok(false),
            Err(error) => Err(error).context("look at", path),
        }
    }

    /// Nobody locks session files, so a look right before the change is what there is.
    fn is_unchanged(&self, path: &Path, bytes: &[u8]) -> bool {
        self.disk.read(path).is_ok_and(|contents| contents.bytes == bytes)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        match self.disk.remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.context("remove", path),
        }
    }

    /// Where the file of a session was when it was named for the bare value, if that can be a name.
    fn legacy_path(&self, session: &Session) -> Option<PathBuf> {
        let value = session.value.as_str();
        let is_name = !matches!(value, "" | "." | "..") && !value.contains(['/', '\\', '\0', ':']);
        is_name.then(|| self.dir.join(format!("{value}.json")))
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        if !self.check_dir()? {
            return Ok(Vec::new());
        }
        let entries = match self.disk.list(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.context("list", &self.dir)?,
        };
        let mut files: Vec<_> = entries
            .into_iter()
            .filter(|entry| entry.kind == Kind::File)
            .map(|entry| self.dir.join(entry.name))
            .filter(|path| is_json(path))
            .collect();
        files.sort();
        Ok(files)
    }
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

impl std::fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("World")
    }
}
