//! The tree through the kernel: the real command mounts it, and this process uses it as any other does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jp_store::disk::Kind;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::{TimeSpec, TimeValLike as _};

use super::{Attributes, Done, Driver, Held, How};
use crate::asked::setting;
use crate::env::Workspace;
use crate::fixture::skip;
use crate::procs::Output;
use crate::wait::wait_for;

/// How long a change may take to be seen everywhere.
const LIMIT: Duration = Duration::from_secs(20);

/// A mounted workspace. Taken down when dropped, also by a panic.
#[derive(Debug)]
pub struct RealMount {
    workspace: Workspace,
    point: PathBuf,
    flags: Vec<String>,
}

impl RealMount {
    /// Mounts a workspace with these flags. `None` where there is nothing to mount with, which is said.
    #[track_caller]
    pub fn new(workspace: &Workspace, flags: &[&str]) -> Option<Self> {
        let helper = nix::unistd::geteuid().is_root() || Path::new("/usr/bin/fusermount3").exists();
        if !Path::new("/dev/fuse").exists() || !helper {
            assert!(setting("JP_REQUIRE_MOUNT").is_none(), "mounts have to be tested, and nothing can be mounted here");
            skip("nothing can be mounted here");
            return None;
        }
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let point = workspace.storage().join("conversations");
        let mount = Self { workspace: workspace.clone(), point, flags };
        mount.begin();
        Some(mount)
    }

    #[track_caller]
    fn begin(&self) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        self.workspace.jp(&[&["mount"], flags.as_slice()].concat()).ok();
        assert!(self.is_mounted(), "jp mount says it is done, and nothing is mounted");
    }

    fn is_mounted(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        table.lines().filter_map(|line| line.split(' ').nth(4)).any(|point| Path::new(point) == self.point)
    }

    fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.point.clone() } else { self.point.join(path) }
    }
}

impl Drop for RealMount {
    fn drop(&mut self) {
        // What this does not manage is done by force below.
        let _ = self.workspace.jp(&["unmount", "--lazy", "--no-export"]);
        if self.is_mounted() {
            let _ = Output::of(detach(&self.point), b"");
        }
    }
}

fn detach(point: &Path) -> Command {
    let (program, flags) = if nix::unistd::geteuid().is_root() { ("umount", "-l") } else { ("fusermount3", "-uz") };
    let mut command = Command::new(program);
    command.arg(flags).arg(point);
    command
}

impl Driver for RealMount {
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
        // The mount looks by itself; whoever cares waits for what is to be seen.
    }

    fn is_prompt(&self) -> bool {
        false
    }

    fn remount(&mut self) {
        wait_for("the end of the mount", LIMIT, || self.workspace.jp(&["unmount"]).code == 0 || !self.is_mounted());
        self.begin();
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
