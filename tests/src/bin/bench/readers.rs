//! Reading every file of a tree with several threads, as a program of its own.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// The argument with which this program runs itself as the readers.
pub(crate) const READERS: &str = "--read-tree";

const COUNT: usize = 4;

/// Directories that nobody has looked into yet, and how many are looked into or to be.
struct Open {
    dirs: Vec<PathBuf>,
    left: usize,
}

/// Reads all files beneath a directory and tells how many bytes they have.
pub(crate) fn read_tree(dir: &Path) -> io::Result<u64> {
    let open = Mutex::new(Open { dirs: vec![dir.to_owned()], left: 1 });
    let bell = Condvar::new();
    thread::scope(|scope| {
        let readers: Vec<_> = (0..COUNT).map(|_| scope.spawn(|| reader(&open, &bell))).collect();
        let totals = readers.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))));
        totals.sum()
    })
}

fn reader(open: &Mutex<Open>, bell: &Condvar) -> io::Result<u64> {
    let lock = || open.lock().unwrap_or_else(PoisonError::into_inner);
    let mut total = 0;
    let mut buffer = vec![0; 128 * 1024];
    loop {
        let mut waiting = lock();
        let dir = loop {
            match waiting.dirs.pop() {
                Some(dir) => break dir,
                None if waiting.left == 0 => return Ok(total),
                None => waiting = bell.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(waiting);
        let read = read_dir(&dir, &mut buffer);
        let mut done = lock();
        done.left -= 1;
        match read {
            Ok((below, bytes)) => {
                done.left += below.len();
                done.dirs.extend(below);
                total += bytes;
            }
            // The others have nothing left to do, so that they end too.
            Err(err) => {
                done.dirs.clear();
                done.left = 0;
                bell.notify_all();
                return Err(io::Error::new(err.kind(), format!("{}: {err}", dir.display())));
            }
        }
        bell.notify_all();
    }
}

fn read_dir(dir: &Path, buffer: &mut [u8]) -> io::Result<(Vec<PathBuf>, u64)> {
    let mut below = Vec::new();
    let mut total = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            below.push(entry.path());
            continue;
        }
        let mut file = File::open(entry.path())?;
        loop {
            match file.read(buffer)? {
                0 => break,
                count => total += count as u64,
            }
        }
    }
    Ok((below, total))
}
