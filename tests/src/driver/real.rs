//! The tree through the kernel: the real command mounts it, and this process uses it as any other does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Attributes, Done, Driver, Files, Held, How};
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
    files: Files,
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
        let mount = Self { workspace: workspace.clone(), files: Files::below(point.clone()), point, flags };
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
        self.files.read(path)
    }

    fn write_in_pieces(&mut self, path: &str, bytes: &[u8], piece: usize) -> Done<()> {
        self.files.write_in_pieces(path, bytes, piece)
    }

    fn write_at(&mut self, path: &str, offset: u64, bytes: &[u8]) -> Done<()> {
        self.files.write_at(path, offset, bytes)
    }

    fn append(&mut self, path: &str, bytes: &[u8]) -> Done<()> {
        self.files.append(path, bytes)
    }

    fn truncate(&mut self, path: &str, size: u64) -> Done<()> {
        self.files.truncate(path, size)
    }

    fn create(&mut self, path: &str) -> Done<()> {
        self.files.create(path)
    }

    fn rename_how(&mut self, from: &str, to: &str, how: How) -> Done<()> {
        self.files.rename_how(from, to, how)
    }

    fn unlink(&mut self, path: &str) -> Done<()> {
        self.files.unlink(path)
    }

    fn rmdir(&mut self, path: &str) -> Done<()> {
        self.files.rmdir(path)
    }

    fn mkdir(&mut self, path: &str) -> Done<()> {
        self.files.mkdir(path)
    }

    fn mkdir_and_leave(&mut self, path: &str) -> Done<()> {
        self.files.mkdir_and_leave(path)
    }

    fn symlink(&mut self, target: &str, path: &str) -> Done<()> {
        self.files.symlink(target, path)
    }

    fn readlink(&mut self, path: &str) -> Done<String> {
        self.files.readlink(path)
    }

    fn list(&mut self, path: &str) -> Done<Vec<String>> {
        self.files.list(path)
    }

    fn stat(&mut self, path: &str) -> Done<Attributes> {
        self.files.stat(path)
    }

    fn chmod(&mut self, path: &str, mode: u32) -> Done<()> {
        self.files.chmod(path, mode)
    }

    fn set_mtime(&mut self, path: &str, mtime: i64) -> Done<()> {
        self.files.set_mtime(path, mtime)
    }

    fn sync(&mut self, path: &str) -> Done<()> {
        self.files.sync(path)
    }

    fn hold(&mut self, path: &str) -> Done<Box<dyn Held>> {
        self.files.hold(path)
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
