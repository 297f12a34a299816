//! A small filesystem, for tests that fill one or make it read-only.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tmpfs, or an ext4 in a file. Unmounted when dropped. Only root can have one.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of this size on a directory.
    #[track_caller]
    pub fn new(point: &Path, size: &str) -> Self {
        let disk = Self(point.to_owned());
        disk.mount(&format!("size={size}"));
        disk
    }

    /// Mounts an ext4 of 32 MB, made in a new file, on a directory. `None` where that is not possible.
    #[track_caller]
    pub fn ext4(point: &Path, image: &Path) -> Option<Self> {
        File::create(image).and_then(|file| file.set_len(32 << 20)).expect("a file can be made");
        let run = |program: &str, args: &[&OsStr]| {
            Command::new(program).args(args).status().is_ok_and(|status| status.success())
        };
        let image = image.as_os_str();
        let mounted = run("mkfs.ext4", &["-q".as_ref(), image])
            && run("mount", &["-o".as_ref(), "loop".as_ref(), image, point.as_os_str()]);
        mounted.then(|| Self(point.to_owned()))
    }

    /// Gives a tmpfs another size.
    #[track_caller]
    pub fn resize(&self, size: &str) {
        self.mount(&format!("remount,size={size}"));
    }

    /// Makes an ext4 read-only for good, as a failure of its disk does. Files that are open do not prevent it.
    #[track_caller]
    pub fn abort(&self) {
        let status = Command::new("mount").args(["-o", "remount,abort"]).arg(&self.0).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot abort {}", self.0.display());
    }

    /// Fills it with one file, until no byte fits.
    #[track_caller]
    pub fn fill(&self) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.filling()).expect("a file can be made");
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    /// Makes room for so many bytes.
    #[track_caller]
    pub fn clear_some(&self, bytes: u64) {
        let file = OpenOptions::new().write(true).open(self.filling()).expect("it was filled");
        let size = file.metadata().expect("it was filled").len();
        file.set_len(size.saturating_sub(bytes)).expect("it can be cut");
    }

    /// Removes what [`SmallDisk::fill`] wrote.
    #[track_caller]
    pub fn clear(&self) {
        fs::remove_file(self.filling()).expect("it was filled");
    }

    /// The file that fills it.
    pub fn filling(&self) -> PathBuf {
        self.0.join("filling")
    }

    #[track_caller]
    fn mount(&self, options: &str) {
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", options, "jp-test"]).arg(&self.0).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot mount {} with {options}", self.0.display());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What this does not manage goes with the machine.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
