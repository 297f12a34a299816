//! Ways to use the tree of conversations as a program does: by paths, with numbers for errors. One runs in this process,
//! others go through the kernel, one has real files that are kept in step. None knows what an answer should be.

mod files;
mod in_process;
mod mirror;
mod real;

pub use files::Files;
pub use in_process::{InProcess, Memory, clock};
pub use mirror::Mirror;
pub use real::RealMount;

use jp_store::disk::Kind;

/// What a request comes to: an answer, or the system's number for why there is none.
pub type Done<T> = Result<T, i32>;

/// What `lstat` tells, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// What it is.
    pub kind: Kind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Last change of the content, in nanoseconds since the epoch.
    pub mtime: i64,
    /// The inode number.
    pub ino: u64,
}

/// What a rename does to what has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It goes.
    Replace,
    /// There must be nothing.
    NoReplace,
    /// It gets the old name.
    Exchange,
}

/// A file that is open, whatever becomes of its name.
pub trait Held {
    /// Its bytes as they are now.
    fn read(&mut self) -> Done<Vec<u8>>;
    /// Makes it so long and writes at its end.
    fn cut_and_write(&mut self, size: u64, bytes: &[u8]) -> Done<()>;
}

/// A tree of files. Paths are relative to its top, which is the empty path. Links are followed as the system does.
pub trait Driver {
    /// The bytes of a file.
    fn read(&mut self, path: &str) -> Done<Vec<u8>>;
    /// Makes a file if there is none, empties it if there is one, and writes the bytes in pieces of this size.
    fn write_in_pieces(&mut self, path: &str, bytes: &[u8], piece: usize) -> Done<()>;
    /// Writes into a file that is there.
    fn write_at(&mut self, path: &str, offset: u64, bytes: &[u8]) -> Done<()>;
    /// Writes at the end of a file that is there.
    fn append(&mut self, path: &str, bytes: &[u8]) -> Done<()>;
    /// Makes a file so long.
    fn truncate(&mut self, path: &str, size: u64) -> Done<()>;
    /// Makes an empty file where there is none.
    fn create(&mut self, path: &str) -> Done<()>;
    /// Renames.
    fn rename_how(&mut self, from: &str, to: &str, how: How) -> Done<()>;
    /// Removes a file or a link.
    fn unlink(&mut self, path: &str) -> Done<()>;
    /// Removes an empty directory.
    fn rmdir(&mut self, path: &str) -> Done<()>;
    /// Makes a directory.
    fn mkdir(&mut self, path: &str) -> Done<()>;
    /// Makes a directory by way of a program that has ended when this returns.
    fn mkdir_and_leave(&mut self, path: &str) -> Done<()>;
    /// Makes a symbolic link.
    fn symlink(&mut self, target: &str, path: &str) -> Done<()>;
    /// Where a symbolic link points.
    fn readlink(&mut self, path: &str) -> Done<String>;
    /// The names in a directory, sorted, without the dots.
    fn list(&mut self, path: &str) -> Done<Vec<String>>;
    /// What a path is like; a link at its end is not followed.
    fn stat(&mut self, path: &str) -> Done<Attributes>;
    /// Sets permission bits.
    fn chmod(&mut self, path: &str, mode: u32) -> Done<()>;
    /// Sets the time of the last change, in nanoseconds since the epoch.
    fn set_mtime(&mut self, path: &str, mtime: i64) -> Done<()>;
    /// Brings a file to disk.
    fn sync(&mut self, path: &str) -> Done<()>;
    /// Opens a file and keeps it open.
    fn hold(&mut self, path: &str) -> Done<Box<dyn Held>>;
    /// Looks at the store again, after a change beside the tree.
    fn look(&mut self);
    /// Whether a change that makes other names stale is seen under them at once, or only in a while.
    fn is_prompt(&self) -> bool;
    /// Ends it and begins it anew.
    fn remount(&mut self);

    /// What is not in step and waits for a person, and why.
    fn held(&self) -> Vec<String> {
        Vec::new()
    }

    /// Writes a whole file in place.
    fn write(&mut self, path: &str, bytes: &[u8]) -> Done<()> {
        self.write_in_pieces(path, bytes, usize::MAX)
    }

    /// Renames, replacing what is there.
    fn rename(&mut self, from: &str, to: &str) -> Done<()> {
        self.rename_how(from, to, How::Replace)
    }

    /// Saves as careful programs do: a temporary in the same directory, brought to disk and renamed into place.
    fn save(&mut self, path: &str, temporary: &str, bytes: &[u8]) -> Done<()> {
        let temporary = match path.rsplit_once('/') {
            Some((dir, _)) => format!("{dir}/{temporary}"),
            None => temporary.to_owned(),
        };
        self.create(&temporary)?;
        self.write(&temporary, bytes)?;
        self.sync(&temporary)?;
        self.rename(&temporary, path)
    }

    /// Removes a directory and everything in it, as `rm -r` does.
    fn remove_all(&mut self, path: &str) -> Done<()> {
        for name in self.list(path)? {
            let inner = format!("{path}/{name}");
            match self.stat(&inner)?.kind {
                Kind::Dir => self.remove_all(&inner)?,
                Kind::File | Kind::Link | Kind::Other => self.unlink(&inner)?,
            }
        }
        self.rmdir(path)
    }
}
