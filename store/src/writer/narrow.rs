//! Finds what other users can reach in a store, and closes it to them. Only `jp doctor --fix` changes modes that are there.

use std::path::{Path, PathBuf};

use super::Writer;
use crate::disk::{Disk, Kind};
use crate::error::Result;
use crate::modes::{is_wide, private_dir, private_file};
use crate::store::Store;

/// A file or a directory of the store that other users can reach.
struct Exposed {
    path: PathBuf,
    /// The mode that closes it.
    wanted: u32,
}

impl Store {
    /// How many files and directories of the store other users can reach. What is in a directory that only its owner can
    /// enter is not counted, whatever its own mode. In the worktree modes are the user's affair.
    pub fn count_exposed(&self) -> usize {
        self.exposed().len()
    }

    fn exposed(&self) -> Vec<Exposed> {
        let mut found = Vec::new();
        let (disk, root) = (self.disk(), &self.layout.store);
        if self.layout.is_single_root() || !push_if_wide(disk, &root.dir, &mut found) {
            return found;
        }
        // What else lies in there is somebody else's.
        for dir in [root.conversations(), root.locks(), root.sessions(), root.vfs()] {
            collect(disk, &dir, &mut found);
        }
        found
    }
}

impl Writer {
    /// Closes the store to other users: files become 0600 and keep an owner's execute bit, directories become 0700. Returns
    /// how many were changed. What cannot be changed is passed over.
    pub fn narrow(&self) -> Result<usize> {
        let disk = self.store.disk();
        let mut changed = 0;
        // The innermost first: as long as a directory is open, what is in it is found again after an interruption.
        for Exposed { path, wanted } in self.store.exposed().into_iter().rev() {
            match disk.set_mode(&path, wanted) {
                Ok(()) => changed += 1,
                Err(error) => tracing::warn!(path = %path.display(), %error, "the mode stays as it is"),
            }
        }
        Ok(changed)
    }
}

/// Collects a directory and what is in it, each before what is in it. What cannot be looked at is named elsewhere.
fn collect(disk: &dyn Disk, dir: &Path, found: &mut Vec<Exposed>) {
    if !push_if_wide(disk, dir, found) {
        return;
    }
    for entry in disk.list(dir).unwrap_or_default() {
        let path = dir.join(&entry.name);
        match entry.kind {
            Kind::Dir => collect(disk, &path, found),
            Kind::File => {
                let stat = disk.stat(&path).ok().filter(|stat| stat.kind == Kind::File && is_wide(stat.mode));
                found.extend(stat.map(|stat| Exposed { wanted: private_file(stat.mode), path }));
            }
            Kind::Link | Kind::Other => {}
        }
    }
}

/// Adds a directory that others can enter; `false` if it is none.
fn push_if_wide(disk: &dyn Disk, dir: &Path, found: &mut Vec<Exposed>) -> bool {
    let stat = disk.stat(dir).ok().filter(|stat| stat.kind == Kind::Dir && is_wide(stat.mode));
    found.extend(stat.map(|stat| Exposed { path: dir.to_owned(), wanted: private_dir(stat.mode) }));
    stat.is_some()
}
