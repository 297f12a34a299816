//! The two seams to the filesystem with a memory behind them: one answers from it, and both make it forget what they
//! change.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jp_store::beneath::AllowedDirs;
use jp_store::disk::{self, Contents, DirEntry, Disk, Kind};

use crate::backing::{Backing, Space, Stat};
use crate::memory::Memory;

/// The mount's seam. It looks at nothing twice that nobody has changed.
#[derive(Debug)]
pub struct Remembering<B> {
    real: B,
    memory: Arc<Memory>,
}

impl<B: Backing> Remembering<B> {
    /// With this memory.
    pub fn new(real: B, memory: Arc<Memory>) -> Self {
        Self { real, memory }
    }

    /// Makes a change, and forgets what these paths were before it, whether or not it succeeds.
    fn change<T>(&self, paths: &[&Path], work: impl FnOnce(&B) -> io::Result<T>) -> io::Result<T> {
        let done = work(&self.real);
        paths.iter().for_each(|path| self.memory.forget(path));
        done
    }
}

impl<B: Backing> Backing for Remembering<B> {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        if let Some(known) = self.memory.stat(path) {
            return known;
        }
        let age = self.memory.age();
        let stat = self.real.stat(path)?;
        self.memory.note_stat(age, path, &stat);
        Ok(stat)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Kind)>> {
        if let Some(scratch) = self.memory.wants_scratch(path) {
            let age = self.memory.age();
            if let Ok(names) = self.real.list(scratch) {
                self.memory.note_list(age, scratch, &names);
            }
        }
        if let Some(known) = self.memory.list(path) {
            return known;
        }
        let age = self.memory.age();
        let names = self.real.list(path)?;
        self.memory.note_list(age, path, &names);
        Ok(names)
    }

    fn read(&self, path: &Path, offset: u64, size: usize) -> io::Result<Vec<u8>> {
        self.real.read(path, offset, size)
    }

    fn read_all(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.real.read_all(path)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.real.read_link(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.real.space(path)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.real.sync(path)
    }

    fn fetch(&self, path: &Path) -> io::Result<()> {
        self.real.fetch(path)
    }

    fn doubt(&self, path: &Path) {
        self.memory.forget(path);
        self.real.doubt(path);
    }

    fn remembers_nothing(&self, path: &Path) -> bool {
        self.memory.stat(path).is_some_and(|known| known.is_err())
    }

    fn write(&self, path: &Path, offset: u64, data: &[u8]) -> io::Result<usize> {
        self.change(&[path], |real| real.write(path, offset, data))
    }

    fn append(&self, path: &Path, data: &[u8]) -> io::Result<(u64, usize)> {
        self.change(&[path], |real| real.append(path, data))
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.change(&[path], |real| real.create(path, mode))
    }

    fn truncate(&self, path: &Path, size: u64) -> io::Result<()> {
        self.change(&[path], |real| real.truncate(path, size))
    }

    fn replace(&self, path: &Path, beside: &Path, bytes: &[u8]) -> io::Result<()> {
        self.change(&[path, beside], |real| real.replace(path, beside, bytes))
    }

    fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.change(&[path], |real| real.put(path, bytes))
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.change(&[path], |real| real.set_mode(path, mode))
    }

    fn set_times(&self, path: &Path, atime: Option<i64>, mtime: Option<i64>) -> io::Result<()> {
        self.change(&[path], |real| real.set_times(path, atime, mtime))
    }

    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.change(&[path], |real| real.make_dir(path, mode))
    }

    fn make_dirs(&self, path: &Path) -> io::Result<()> {
        self.change(&[path], |real| real.make_dirs(path))
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.change(&[link], |real| real.symlink(target, link))
    }

    fn link(&self, path: &Path, name: &Path) -> io::Result<()> {
        self.change(&[path, name], |real| real.link(path, name))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(&[from, to], |real| real.rename(from, to))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(&[from, to], |real| real.rename_new(from, to))
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.change(&[one, other], |real| real.exchange(one, other))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(&[path], |real| real.remove(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.change(&[path], |real| real.remove_dir(path))
    }
}

/// The store's seam. It answers from the disk alone.
#[derive(Debug)]
pub struct Forgetting {
    real: Arc<dyn Disk>,
    memory: Arc<Memory>,
}

impl Forgetting {
    /// With this memory.
    pub fn new(real: Arc<dyn Disk>, memory: Arc<Memory>) -> Self {
        Self { real, memory }
    }

    fn change<T>(&self, paths: &[&Path], work: impl FnOnce(&dyn Disk) -> io::Result<T>) -> io::Result<T> {
        let done = work(&*self.real);
        paths.iter().for_each(|path| self.memory.forget(path));
        done
    }
}

impl Disk for Forgetting {
    fn allowed(&self) -> &AllowedDirs {
        self.real.allowed()
    }

    fn stat(&self, path: &Path) -> io::Result<disk::Stat> {
        self.real.stat(path)
    }

    fn filesystem(&self, path: &Path) -> io::Result<Option<u64>> {
        self.real.filesystem(path)
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

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.real.sync_dir(path)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.real.sync_file(path)
    }

    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        self.real.sync_all(dir)
    }

    fn open_lock(&self, path: &Path) -> io::Result<File> {
        self.real.open_lock(path)
    }

    fn open_existing_lock(&self, path: &Path) -> io::Result<File> {
        self.real.open_existing_lock(path)
    }

    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.change(&[path], |real| real.create_dir(path, mode))
    }

    fn write_new(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.change(&[path], |real| real.write_new(path, bytes, mode))
    }

    fn write_one_of_many(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.change(&[path], |real| real.write_one_of_many(path, bytes, mode))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(&[from, to], |real| real.rename(from, to))
    }

    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        self.change(&[a, b], |real| real.exchange(a, b))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change(&[path], |real| real.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.change(&[path], |real| real.remove_dir(path))
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.change(&[path], |real| real.set_mode(path, mode))
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.change(&[link], |real| real.symlink(target, link))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.change(&[path], |real| real.append(path, bytes))
    }
}
