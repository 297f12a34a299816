//! Files on a disk, or on what the kernel takes for one, used as any program does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Command;

use jp_store::disk::Kind;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::{TimeSpec, TimeValLike as _};

use super::{Attributes, Done, Driver, Held, How};
use crate::procs::Output;

/// The files below a directory.
#[derive(Clone, Debug)]
pub struct Files {
    top: PathBuf,
}

impl Files {
    /// Those below this one.
    pub fn below(top: PathBuf) -> Self {
        Self { top }
    }

    /// Where a path of the tree is.
    pub fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.top.clone() } else { self.top.join(path) }
    }
}

impl Driver for Files {
    fn read(&mut self, path: &str) -> Done<Vec<u8>> {
        fs::read(self.path(path)).map_err(errno)
    }

    fn write_in_pieces(&mut self, path: &str, bytes: &[u8], piece: usize) -> Done<()> {
        let mut file = File::create(self.path(path)).map_err(errno)?;
        bytes.chunks(piece.max(1)).try_for_each(|piece| file.write_all(piece)).map_err(errno)
    }

    fn write_at(&mut self, path: &str, offset: u64, bytes: &[u8]) -> Done<()> {
        let file = OpenOptions::new().write(true).open(self.path(path)).map_err(errno)?;
        file.write_all_at(bytes, offset).map_err(errno)
    }

    fn append(&mut self, path: &str, bytes: &[u8]) -> Done<()> {
        let mut file = OpenOptions::new().append(true).open(self.path(path)).map_err(errno)?;
        file.write_all(bytes).map_err(errno)
    }

    fn truncate(&mut self, path: &str, size: u64) -> Done<()> {
        nix::unistd::truncate(&self.path(path), size as i64).map_err(|error| error as i32)
    }

    fn create(&mut self, path: &str) -> Done<()> {
        File::create_new(self.path(path)).map(drop).map_err(errno)
    }

    fn rename_how(&mut self, from: &str, to: &str, how: How) -> Done<()> {
        let flags = match how {
            How::Replace => RenameFlags::empty(),
            How::NoReplace => RenameFlags::RENAME_NOREPLACE,
            How::Exchange => RenameFlags::RENAME_EXCHANGE,
        };
        renameat2(AT_FDCWD, &self.path(from), AT_FDCWD, &self.path(to), flags).map_err(|error| error as i32)
    }

    fn unlink(&mut self, path: &str) -> Done<()> {
        fs::remove_file(self.path(path)).map_err(errno)
    }

    fn rmdir(&mut self, path: &str) -> Done<()> {
        fs::remove_dir(self.path(path)).map_err(errno)
    }

    fn mkdir(&mut self, path: &str) -> Done<()> {
        fs::create_dir(self.path(path)).map_err(errno)
    }

    fn mkdir_and_leave(&mut self, path: &str) -> Done<()> {
        let mut mkdir = Command::new("mkdir");
        mkdir.arg(self.path(path));
        let output = Output::of(mkdir, b"");
        if output.code != 0 {
            return Err(libc::EIO);
        }
        Ok(())
    }

    fn symlink(&mut self, target: &str, path: &str) -> Done<()> {
        symlink(target, self.path(path)).map_err(errno)
    }

    fn readlink(&mut self, path: &str) -> Done<String> {
        fs::read_link(self.path(path)).map(|target| target.to_string_lossy().into_owned()).map_err(errno)
    }

    fn list(&mut self, path: &str) -> Done<Vec<String>> {
        let listed = fs::read_dir(self.path(path)).map_err(errno)?;
        let names: io::Result<Vec<String>> =
            listed.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect();
        let mut names = names.map_err(errno)?;
        names.sort();
        Ok(names)
    }

    fn stat(&mut self, path: &str) -> Done<Attributes> {
        let meta = fs::symlink_metadata(self.path(path)).map_err(errno)?;
        let kind = match meta.file_type() {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Dir,
            kind if kind.is_symlink() => Kind::Link,
            _ => Kind::Other,
        };
        let mtime = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
        Ok(Attributes { kind, size: meta.len(), mode: meta.mode() & 0o7777, mtime, ino: meta.ino() })
    }

    fn chmod(&mut self, path: &str, mode: u32) -> Done<()> {
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).map_err(errno)
    }

    fn set_mtime(&mut self, path: &str, mtime: i64) -> Done<()> {
        let time = TimeSpec::nanoseconds(mtime);
        utimensat(AT_FDCWD, &self.path(path), &TimeSpec::UTIME_OMIT, &time, UtimensatFlags::FollowSymlink)
            .map_err(|error| error as i32)
    }

    fn sync(&mut self, path: &str) -> Done<()> {
        File::open(self.path(path)).and_then(|file| file.sync_all()).map_err(errno)
    }

    fn hold(&mut self, path: &str) -> Done<Box<dyn Held>> {
        let path = self.path(path);
        // Directories are only read.
        let file = File::options().read(true).write(path.is_file()).open(path).map_err(errno)?;
        Ok(Box::new(Open(file)))
    }

    fn look(&mut self) {
        // There is nothing beside.
    }

    fn is_prompt(&self) -> bool {
        true
    }

    fn remount(&mut self) {
        // Files stay.
    }
}

struct Open(File);

impl Held for Open {
    fn cut_and_write(&mut self, size: u64, bytes: &[u8]) -> Done<()> {
        self.0.set_len(size).and_then(|()| self.0.write_all_at(bytes, size)).map_err(errno)
    }

    fn read(&mut self) -> Done<Vec<u8>> {
        let mut bytes = Vec::new();
        self.0.rewind().and_then(|()| self.0.read_to_end(&mut bytes)).map_err(errno)?;
        Ok(bytes)
    }
}

fn errno(error: io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}
