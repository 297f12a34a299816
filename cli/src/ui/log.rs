//! A log file that does not grow without end: what is old goes to a second file, what is older is gone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// How much one file holds.
const FULL: u64 = 1 << 20;

/// An open log.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    written: u64,
    full: u64,
}

impl Log {
    /// Goes on with the log at a path, in a new file if the old one is full.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::with_limit(path, FULL)
    }

    fn with_limit(path: &Path, full: u64) -> io::Result<Self> {
        let file = append(path)?;
        let written = file.metadata()?.len();
        let mut log = Self { path: path.to_owned(), file, written, full };
        log.rotate()?;
        Ok(log)
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        self.file.write_all(format!("{text}\n").as_bytes())?;
        self.written += text.len() as u64 + 1;
        self.rotate()
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.written <= self.full {
            return Ok(());
        }
        let mut old = self.path.clone().into_os_string();
        old.push(".1");
        fs::rename(&self.path, old)?;
        self.file = append(&self.path)?;
        self.written = 0;
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_makes_room() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mount.log");
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        let mut log = Log::with_limit(&path, 10).unwrap();
        log.line("one").unwrap();
        log.line("two").unwrap();
        assert_eq!((read("mount.log").as_str(), read("mount.log.1").as_str()), ("one\ntwo\n", ""));
        log.line("three").unwrap();
        log.line("four").unwrap();
        assert_eq!((read("mount.log").as_str(), read("mount.log.1").as_str()), ("four\n", "one\ntwo\nthree\n"));
        drop(log);
        fs::write(&path, "much longer than ten\n").unwrap();
        Log::with_limit(&path, 10).unwrap().line("five").unwrap();
        assert_eq!((read("mount.log").as_str(), read("mount.log.1").as_str()), ("five\n", "much longer than ten\n"));
    }
}
