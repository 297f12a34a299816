//! The real disk with something happening at an awkward moment.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::beneath::AllowedDirs;
use crate::disk::{Contents, DirEntry, Disk, RealDisk, Stat};

/// Passes everything on, and runs its closures after the call they are named for.
pub(super) struct Hook {
    pub(super) open: Box<dyn Fn(File) -> io::Result<File> + Send + Sync>,
    /// Runs after each `stat` that found something.
    pub(super) stat: Box<dyn Fn() + Send + Sync>,
    pub(super) create_dir: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
    pub(super) real: RealDisk,
}

impl Hook {
    pub(super) fn after_open(then: impl Fn() + Send + Sync + 'static) -> Self {
        let open = move |file| {
            then();
            Ok(file)
        };
        Self { open: Box::new(open), ..Self::default() }
    }
}

impl Default for Hook {
    fn default() -> Self {
        Self { open: Box::new(Ok), stat: Box::new(|| ()), create_dir: Box::new(|| Ok(())), real: RealDisk::default() }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

impl Disk for Hook {
    fn allowed(&self) -> &AllowedDirs {
        self.real.allowed()
    }

    fn filesystem(&self, path: &Path) -> io::Result<Option<u64>> {
        self.real.filesystem(path)
    }
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let stat = self.real.stat(path)?;
        (self.stat)();
        Ok(stat)
    }

    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        (self.create_dir)()?;
        self.real.create_dir(path, mode)
    }

    fn open_lock(&self, path: &Path) -> io::Result<File> {
        (self.open)(self.real.open_lock(path)?)
    }

    fn open_existing_lock(&self, path: &Path) -> io::Result<File> {
        self.real.open_existing_lock(path)
    }

    fn read(&self, path: &Path) -> io::Result<Contents> {
        self.real.read(path)
    }

    fn read_from(&self, path: &Path, offset: u64) -> io::Result<Contents> {
        self.real.read_from(path, offset)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.real.list(path)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.real.read_link(path)
    }

    fn write_new(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.real.write_new(path, bytes, mode)
    }

    fn write_one_of_many(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.real.write_one_of_many(path, bytes, mode)
    }

    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        self.real.sync_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.real.rename(from, to)
    }

    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        self.real.exchange(a, b)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.real.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.real.remove_dir(path)
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.real.set_mode(path, mode)
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.real.symlink(target, link)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.real.sync_dir(path)
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.real.append(path, bytes)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.real.sync_file(path)
    }
}
