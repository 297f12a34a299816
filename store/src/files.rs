//! Changes to files and directories that either happen or do not. Every one is prepared in a scratch directory on the same
//! filesystem and put into place by a single rename.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::disk::{DirEntry, Disk, Kind, Stat};
use crate::error::{Context as _, Result};
use crate::modes::{Access, PERMISSIONS, narrower};
use crate::scan::is_absent;
use crate::temporaries::Temporaries;
use crate::writer::Later;

/// A file to be made: a path relative to its directory, its bytes, its permission bits.
#[derive(Clone, Debug)]
pub(crate) struct NewFile {
    pub(crate) path: PathBuf,
    pub(crate) content: NewContent,
}

/// What a new name stands for.
#[derive(Clone, Debug)]
pub(crate) enum NewContent {
    File { bytes: Vec<u8>, mode: u32 },
    Dir,
    Link(PathBuf),
}

impl NewFile {
    pub(crate) fn bytes(name: impl AsRef<Path>, bytes: Vec<u8>) -> Self {
        Self { path: name.as_ref().to_owned(), content: NewContent::File { bytes, mode: Access::Shared.file() } }
    }
}

/// How a new file gets its bytes and its permission bits.
type WriteFile<'a> = dyn Fn(&Path, &[u8], u32) -> std::io::Result<()> + 'a;

/// Where a file that replaces another, or is new, has its permission bits from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bits {
    /// These exactly, as the file has them that is replaced.
    Kept(u32),
    /// These, as far as the umask allows.
    New(u32),
}

/// A scratch directory. What is in it matters to nobody once the process that put it there is gone.
#[derive(Clone, Debug)]
pub(crate) struct Scratch<'a> {
    disk: &'a dyn Disk,
    temporaries: &'a Temporaries,
    access: Access,
    later: Option<&'a Later>,
}

impl<'a> Scratch<'a> {
    /// `access` says who may reach what is prepared here and gets a place.
    pub(crate) fn new(disk: &'a dyn Disk, temporaries: &'a Temporaries, access: Access) -> Self {
        Self { disk, temporaries, access, later: None }
    }

    /// The same, for files whose names can reach the disk later.
    pub(crate) fn putting_off(self, later: Option<&'a Later>) -> Self {
        Self { later, ..self }
    }

    /// Makes the file's content these bytes, durably. `false` when they already are, and nothing was touched.
    pub(crate) fn replace(&self, path: &Path, bytes: &[u8]) -> Result<bool> {
        self.replace_like(path, bytes, None)
    }

    /// As [`Scratch::replace`], for a copy of a file with these permission bits: the result has no bits that either does
    /// not have. `None` for what is not a copy: a file that is there keeps its own.
    pub(crate) fn replace_like(&self, path: &Path, bytes: &[u8], source: Option<u32>) -> Result<bool> {
        let bits = match self.disk.stat(path) {
            // Another size is news enough; a long file is not read to be replaced.
            Ok(stat) if stat.kind == Kind::File && stat.size != bytes.len() as u64 => kept(stat.mode, source),
            _ => match self.disk.read(path) {
                Ok(contents) if contents.bytes == bytes => return Ok(false),
                Ok(contents) => kept(contents.stat.mode, source),
                Err(error) if is_absent(&error) => self.bits_of_new(source),
                Err(error) => return Err(error).context("read", path),
            },
        };
        self.put(path, bytes, bits, &|_| ())?;
        Ok(true)
    }

    /// The permission bits of a file that is not there yet.
    pub(crate) fn bits_of_new(&self, source: Option<u32>) -> Bits {
        Bits::New(source.map_or(self.access.file(), |mode| self.access.copy_of(mode)))
    }

    /// Makes the file's content these bytes, whatever it was. What the new file looks like is told before it gets its
    /// name.
    pub(crate) fn put(&self, path: &Path, bytes: &[u8], bits: Bits, about: &dyn Fn(&Stat)) -> Result<()> {
        let (Bits::Kept(mode) | Bits::New(mode)) = bits;
        let tmp = self.write_aside(bytes, mode)?;
        let placed = self.stat_with(&tmp, bits).and_then(|stat| {
            about(&stat);
            self.disk.rename(&tmp, path).context("rename into place", path)
        });
        self.or_clean_up(placed, &tmp)?;
        self.bring_name_to_disk(path)
    }

    /// A file with these bytes, brought to disk, under a name of our own.
    fn write_aside(&self, bytes: &[u8], mode: u32) -> Result<PathBuf> {
        let dir = self.temporaries.dir();
        loop {
            let tmp = self.temporaries.next(self.disk)?;
            match self.disk.write_new(&tmp, bytes, mode) {
                Ok(()) => return Ok(tmp),
                Err(error) if is_absent(&error) && !exists(self.disk, dir)? => make_dirs(self.disk, dir, self.access)?,
                Err(error) => return self.or_clean_up(Err(error).context("write", &tmp), &tmp).map(|()| tmp),
            }
        }
    }

    /// What a new file looks like once it has the bits that it is meant to have, which the umask may have taken from it.
    fn stat_with(&self, tmp: &Path, bits: Bits) -> Result<Stat> {
        let stat = self.disk.stat(tmp).context("look at", tmp)?;
        match bits {
            Bits::Kept(mode) if stat.mode & PERMISSIONS != mode => {
                self.disk.set_mode(tmp, mode).context("set the mode of", tmp)?;
                self.disk.stat(tmp).context("look at", tmp)
            }
            Bits::Kept(_) | Bits::New(_) => Ok(stat),
        }
    }

    /// Makes a file another one's content, by giving it that one's name.
    pub(crate) fn hand_over(&self, from: &Path, path: &Path) -> Result<()> {
        self.disk.rename(from, path).context("rename into place", path)?;
        self.bring_name_to_disk(path)
    }

    /// Now, or when somebody catches up.
    fn bring_name_to_disk(&self, path: &Path) -> Result<()> {
        match (self.later, path.parent()) {
            (Some(later), Some(dir)) => {
                later.put_off_dir(dir);
                Ok(())
            }
            (Some(_) | None, _) => sync_parent(self.disk, path),
        }
    }

    /// As [`Scratch::replace_like`], where somebody may write to the file at any moment. What was there when it was
    /// replaced is returned if it is not what the caller has seen.
    pub(crate) fn swap(
        &self,
        path: &Path,
        bytes: &[u8],
        source: Option<u32>,
        seen: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Option<Vec<u8>>> {
        let bits = match self.disk.read(path) {
            Ok(contents) if contents.bytes == bytes => return Ok(None),
            Ok(contents) => kept(contents.stat.mode, source),
            Err(error) if is_absent(&error) => return self.replace_like(path, bytes, source).map(|_| None),
            Err(error) => return Err(error).context("read", path),
        };
        let (Bits::Kept(mode) | Bits::New(mode)) = bits;
        let tmp = self.name()?;
        let written = self.disk.write_new(&tmp, bytes, mode).context("write", &tmp);
        let written = written.and_then(|()| self.stat_with(&tmp, bits));
        let placed = written.and_then(|_| match self.disk.exchange(&tmp, path) {
            // Not every filesystem can, and then what is written in that very moment is lost.
            Err(error) if !cannot_exchange(&error) => Err(error).context("exchange", path),
            Err(_) => self.disk.rename(&tmp, path).context("rename into place", path).map(|()| None),
            Ok(()) => self.disk.read(&tmp).context("read", &tmp).map(|old| Some(old.bytes)),
        });
        let old = match placed {
            Ok(old) => old,
            Err(error) => return self.or_clean_up(Err(error), &tmp).map(|()| None),
        };
        sync_parent(self.disk, path)?;
        if old.is_some() {
            self.disk.remove_file(&tmp).context("remove", &tmp)?;
        }
        Ok(old.filter(|old| !seen(old)))
    }

    /// Removes a file that somebody may write to at any moment, and returns what was in it.
    pub(crate) fn take_away(&self, path: &Path) -> Result<Vec<u8>> {
        let aside = self.set_aside(path)?;
        let contents = self.disk.read(&aside).context("read", &aside)?;
        self.disk.remove_file(&aside).context("remove", &aside)?;
        Ok(contents.bytes)
    }

    /// Makes a directory with these contents appear whole at a path where nothing is.
    pub(crate) fn place(&self, target: &Path, files: &[NewFile]) -> Result<()> {
        let tmp = self.name()?;
        let built = self.build(&tmp, &with_dirs(files));
        let placed = built.and_then(|()| self.disk.rename(&tmp, target).context("rename into place", target));
        self.or_clean_up(placed, &tmp)?;
        sync_parent(self.disk, target)
    }

    /// Makes a directory with these contents aside, one of many that are brought to disk together.
    pub(crate) fn prepare(&self, files: &[NewFile]) -> Result<PathBuf> {
        let tmp = loop {
            let tmp = self.temporaries.next(self.disk)?;
            match self.disk.create_dir(&tmp, self.access.dir()) {
                Ok(()) => break tmp,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    make_dirs(self.disk, self.temporaries.dir(), self.access)?;
                }
                Err(error) => return Err(error).context("make directory", &tmp),
            }
        };
        let write = |path: &Path, bytes: &[u8], mode| self.disk.write_one_of_many(path, bytes, mode);
        let built = self.fill(&tmp, &with_dirs(files), &write);
        self.or_clean_up(built, &tmp)?;
        Ok(tmp)
    }

    /// Lets what was prepared appear at a path where nothing is. The names are brought to disk with all others.
    pub(crate) fn appear(&self, prepared: &Path, target: &Path) -> Result<()> {
        let place = || self.disk.rename(prepared, target);
        let placed = match (place(), target.parent()) {
            (Err(error), Some(parent)) if error.kind() == std::io::ErrorKind::NotFound => {
                make_dirs(self.disk, parent, self.access)?;
                place()
            }
            (placed, _) => placed,
        };
        placed.context("rename into place", target)
    }

    /// Puts a file or a link into place, one of many that are brought to disk together. A file that is there keeps its
    /// permission bits.
    pub(crate) fn put_one_of_many(&self, path: &Path, content: NewContent) -> Result<()> {
        let tmp = self.name()?;
        let made = match content {
            NewContent::File { bytes, mode } => {
                let there = stat(self.disk, path)?.filter(|stat| stat.kind == Kind::File);
                let mode = there.map_or(self.access.copy_of(mode), |stat| stat.mode & PERMISSIONS);
                self.disk.write_one_of_many(&tmp, &bytes, mode).context("write", &tmp)
            }
            NewContent::Link(to) => self.disk.symlink(&to, &tmp).context("link", &tmp),
            NewContent::Dir => return make_dirs(self.disk, path, self.access),
        };
        let placed = made.and_then(|()| self.disk.rename(&tmp, path).context("rename into place", path));
        self.or_clean_up(placed, &tmp)
    }

    /// Takes apart what was prepared and is not wanted.
    pub(crate) fn abandon(&self, prepared: &Path) {
        if let Err(error) = remove_tree(self.disk, prepared) {
            tracing::debug!(%error, "a temporary stays behind");
        }
    }

    /// Makes a directory vanish as one, then takes it apart.
    pub(crate) fn discard(&self, dir: &Path) -> Result<()> {
        let aside = self.set_aside(dir)?;
        remove_tree(self.disk, &aside)
    }

    /// Makes a directory vanish as one. Where it is now, nobody else looks for it.
    pub(crate) fn set_aside(&self, dir: &Path) -> Result<PathBuf> {
        let tmp = self.name()?;
        self.disk.rename(dir, &tmp).context("move aside", dir)?;
        sync_parent(self.disk, dir)?;
        Ok(tmp)
    }

    /// Points a symbolic link at a target, replacing one that points elsewhere.
    pub(crate) fn link(&self, target: &Path, link: &Path) -> Result<()> {
        let tmp = self.name()?;
        self.disk.symlink(target, &tmp).context("link", &tmp)?;
        let placed = self.disk.rename(&tmp, link).context("rename into place", link);
        self.or_clean_up(placed, &tmp)
    }

    /// Removes the scratch directory itself if nothing is in it.
    pub(crate) fn close(&self) {
        // Another process may be using it, or it may never have been made: both are fine.
        let _ = self.disk.remove_dir(self.temporaries.dir());
    }

    /// A name of our own in the scratch directory, which is made on the way.
    fn name(&self) -> Result<PathBuf> {
        make_dirs(self.disk, self.temporaries.dir(), self.access)?;
        self.temporaries.next(self.disk)
    }

    fn build(&self, dir: &Path, files: &[NewFile]) -> Result<()> {
        self.disk.create_dir(dir, self.access.dir()).context("make directory", dir)?;
        self.fill(dir, files, &|path, bytes, mode| self.disk.write_new(path, bytes, mode))?;
        for inner in files.iter().rev().filter(|file| matches!(file.content, NewContent::Dir)) {
            let inner = dir.join(&inner.path);
            self.disk.sync_dir(&inner).context("sync", &inner)?;
        }
        self.disk.sync_dir(dir).context("sync", dir)
    }

    fn fill(&self, dir: &Path, files: &[NewFile], write: &WriteFile<'_>) -> Result<()> {
        for file in files {
            let path = dir.join(&file.path);
            match &file.content {
                NewContent::File { bytes, mode } => {
                    write(&path, bytes, self.access.copy_of(*mode)).context("write", &path)?;
                }
                NewContent::Dir => self.disk.create_dir(&path, self.access.dir()).context("make directory", &path)?,
                NewContent::Link(target) => self.disk.symlink(target, &path).context("link", &path)?,
            }
        }
        Ok(())
    }

    /// On failure removes the half-made thing; the failure itself is what is reported.
    fn or_clean_up(&self, result: Result<()>, tmp: &Path) -> Result<()> {
        if result.is_err()
            && let Err(error) = remove_tree(self.disk, tmp)
        {
            tracing::debug!(%error, "a temporary stays behind");
        }
        result
    }
}

/// The permission bits of a file that replaces one with `mode`, as a copy of one with `source`.
fn kept(mode: u32, source: Option<u32>) -> Bits {
    Bits::Kept(source.map_or(mode & PERMISSIONS, |source| narrower(mode, source)))
}

/// These files with the directories they lie in, each before what is in it.
fn with_dirs(files: &[NewFile]) -> Cow<'_, [NewFile]> {
    let named: BTreeSet<_> = files.iter().map(|file| &*file.path).collect();
    let above = files.iter().flat_map(|file| file.path.ancestors().skip(1)).filter(|dir| !dir.as_os_str().is_empty());
    let missing: BTreeSet<_> = above.filter(|dir| !named.contains(dir)).collect();
    if files.iter().all(|file| file.path.iter().count() == 1) {
        return Cow::Borrowed(files);
    }
    let missing = missing.into_iter().map(|path| NewFile { path: path.to_owned(), content: NewContent::Dir });
    let mut all: Vec<_> = files.iter().cloned().chain(missing).collect();
    all.sort_by(|a, b| a.path.cmp(&b.path));
    Cow::Owned(all)
}

/// The filesystem, or the system, has no such call; or the file went meanwhile, and a rename will do.
fn cannot_exchange(error: &std::io::Error) -> bool {
    let codes = [libc::EINVAL, libc::ENOSYS, libc::EOPNOTSUPP, libc::ENOENT];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// `mkdir -p`, durable.
pub(crate) fn make_dirs(disk: &dyn Disk, dir: &Path, access: Access) -> Result<()> {
    let mut missing = Vec::new();
    for ancestor in dir.ancestors() {
        match disk.stat(ancestor) {
            Ok(_) => break,
            Err(error) if is_absent(&error) => missing.push(ancestor),
            Err(error) => return Err(error).context("look at", ancestor),
        }
    }
    for dir in missing.into_iter().rev() {
        match disk.create_dir(dir, access.dir()) {
            Ok(()) => sync_parent(disk, dir)?,
            // Somebody else was faster.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).context("make directory", dir),
        }
    }
    Ok(())
}

/// What is at a path; `None` when nothing is. A refusal to look is not an absence.
pub(crate) fn kind(disk: &dyn Disk, path: &Path) -> Result<Option<Kind>> {
    match disk.stat(path) {
        Ok(stat) => Ok(Some(stat.kind)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error).context("look at", path),
    }
}

/// What is at a path; `None` when nothing is.
pub(crate) fn stat(disk: &dyn Disk, path: &Path) -> Result<Option<Stat>> {
    match disk.stat(path) {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error).context("look at", path),
    }
}

/// Whether anything is at a path.
pub(crate) fn exists(disk: &dyn Disk, path: &Path) -> Result<bool> {
    kind(disk, path).map(|kind| kind.is_some())
}

/// A name in a directory that nothing has: the one wished for, or that with a number behind it.
pub(crate) fn unused(disk: &dyn Disk, dir: &Path, wish: &OsStr) -> Result<PathBuf> {
    let mut name = wish.to_owned();
    for serial in 1.. {
        if !exists(disk, &dir.join(&name))? {
            break;
        }
        name = wish.to_owned();
        name.push(format!("-{serial}"));
    }
    Ok(dir.join(name))
}

/// The entries of a directory; none when it is not there.
pub(crate) fn entries(disk: &dyn Disk, dir: &Path) -> Result<Vec<DirEntry>> {
    match disk.list(dir) {
        Ok(entries) => Ok(entries),
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        Err(error) => Err(error).context("list", dir),
    }
}

/// Whether nothing but directories is beneath a directory. What cannot be looked into is something.
pub(crate) fn is_hollow(disk: &dyn Disk, dir: &Path) -> bool {
    let listed = entries(disk, dir).ok();
    listed.is_some_and(|listed| {
        listed.iter().all(|entry| entry.kind == Kind::Dir && is_hollow(disk, &dir.join(&entry.name)))
    })
}

/// Takes away a directory that holds nothing but directories, so that something can have its name.
pub(crate) fn remove_hollow(disk: &dyn Disk, dir: &Path) -> Result<()> {
    if exists(disk, dir)? && is_hollow(disk, dir) { remove_empty_dirs(disk, dir) } else { Ok(()) }
}

/// Removes a directory tree as far as it holds nothing but directories.
pub(crate) fn remove_empty_dirs(disk: &dyn Disk, dir: &Path) -> Result<()> {
    for entry in entries(disk, dir)?.iter().filter(|entry| entry.kind == Kind::Dir) {
        remove_empty_dirs(disk, &dir.join(&entry.name))?;
    }
    match disk.remove_dir(dir) {
        Err(error) if is_absent(&error) || error.kind() == std::io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed.context("remove directory", dir),
    }
}

/// Renames, making the target's parent directory and bringing both ends to disk.
pub(crate) fn move_dir(disk: &dyn Disk, from: &Path, to: &Path, access: Access) -> Result<()> {
    if let Some(parent) = to.parent() {
        make_dirs(disk, parent, access)?;
    }
    disk.rename(from, to).context("move", from)?;
    sync_parent(disk, to)?;
    if from.parent() != to.parent() {
        sync_parent(disk, from)?;
    }
    Ok(())
}

/// Removes a file, a link, or a directory with everything in it. Nothing there is fine, and so is another process that
/// removes the same.
pub(crate) fn remove_tree(disk: &dyn Disk, path: &Path) -> Result<()> {
    let or_gone = |result: std::io::Result<()>| match result {
        Err(error) if is_absent(&error) => Ok(()),
        result => result,
    };
    match disk.stat(path) {
        Ok(stat) if stat.kind == Kind::Dir => {
            for entry in entries(disk, path)? {
                let inner = path.join(&entry.name);
                match entry.kind {
                    Kind::Dir => remove_tree(disk, &inner)?,
                    Kind::File | Kind::Link | Kind::Other => {
                        or_gone(disk.remove_file(&inner)).context("remove", &inner)?;
                    }
                }
            }
            or_gone(disk.remove_dir(path)).context("remove directory", path)
        }
        Ok(_) => or_gone(disk.remove_file(path)).context("remove", path),
        Err(error) if is_absent(&error) => Ok(()),
        Err(error) => Err(error).context("look at", path),
    }
}

/// Reads what is at these relative paths of a directory, to make it again elsewhere. Sockets and pipes are passed over.
pub(crate) fn gather(disk: &dyn Disk, dir: &Path, paths: impl IntoIterator<Item = PathBuf>) -> Result<Vec<NewFile>> {
    let mut files = Vec::new();
    for path in paths {
        let full = dir.join(&path);
        let stat = disk.stat(&full).context("look at", &full)?;
        let content = match stat.kind {
            Kind::File => {
                let contents = disk.read(&full).context("read", &full)?;
                NewContent::File { bytes: contents.bytes, mode: contents.stat.mode & PERMISSIONS }
            }
            Kind::Dir => NewContent::Dir,
            Kind::Link => NewContent::Link(disk.read_link(&full).context("read link", &full)?),
            Kind::Other => continue,
        };
        files.push(NewFile { path, content });
    }
    Ok(files)
}

pub(crate) fn sync_parent(disk: &dyn Disk, path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) => disk.sync_dir(parent).context("sync", parent),
        None => Ok(()),
    }
}
