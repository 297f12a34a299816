//! A log file that does not grow without end: what is old goes to a second file, what is older is gone.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use jp_store::beneath::AllowedDirs;

/// How much one file holds.
const FULL: u64 = 1 << 20;
/// No log is longer: a line more than it holds.
pub(crate) const LONGEST_LOG: u64 = 16 * FULL;

/// An open log.
#[derive(Debug)]
pub(crate) struct Log {
    files: AllowedDirs,
    path: PathBuf,
    file: File,
    written: u64,
    full: u64,
}

impl Log {
    /// Goes on with the log at a path, in a new file if the old one is full.
    pub(crate) fn open(files: &AllowedDirs, path: &Path) -> io::Result<Self> {
        Self::with_limit(files, path, FULL)
    }

    fn with_limit(files: &AllowedDirs, path: &Path, full: u64) -> io::Result<Self> {
        let file = append(files, path)?;
        let written = file.metadata()?.len();
        let mut log = Self { files: files.clone(), path: path.to_owned(), file, written, full };
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
        self.files.rename(&self.path, Path::new(&old))?;
        self.file = append(&self.files, &self.path)?;
        self.written = 0;
        Ok(())
    }
}

fn append(files: &AllowedDirs, path: &Path) -> io::Result<File> {
    files.open_append(path, 0o600)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_full_log_makes_room() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mount.log");
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        let files = AllowedDirs::default();
        files.allow(dir.path()).unwrap();
        let mut log = Log::with_limit(&files, &path, 10).unwrap();
        log.line("one").unwrap();
        log.line("two").unwrap();
        assert_eq!((read("mount.log").as_str(), read("mount.log.1").as_str()), ("one\ntwo\n", ""));
        log.line("three").unwrap();
        log.line("four").unwrap();
        assert_eq!((read("mount.log").as_str(), read("mount.log.1").as_str()), ("four\n", "one\ntwo\nthree\n"));
        drop(log);
        fs::write(&path, "much longer than ten\n").unwrap();
        Log::with_limit(&files, &path, 10).unwrap().line("five").unwrap();
        assert_eq!((read("mount.log").as_str(), read("mount.log.1").as_str()), ("five\n", "much longer than ten\n"));
    }
}
