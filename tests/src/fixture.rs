//! Stores made by the real tool, kept outside the repository. They are only ever read; tests work on copies.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::sample::{mtime, set_mtime};

/// The store made by the real tool, with `data/` and `project/` in it. Says so when it is not there.
pub fn fixture_store() -> Option<PathBuf> {
    let path = fixtures().join("jp-store");
    if path.is_dir() {
        return Some(path);
    }
    skip(&format!("there is no fixture store at {}", path.display()));
    None
}

/// Announces that a test does not run. It goes past the capture of output, because a skip that nobody sees is a lie.
pub fn skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    // With standard error closed there is nobody to tell.
    let _ = writeln!(io::stderr(), "skipped: {name}: {reason}");
}

/// Copies a tree with its links, permission bits and modification times. Everything in the copy is writable by its owner.
pub fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(from)?;
    if meta.is_symlink() {
        symlink(fs::read_link(from)?, to)?;
    } else {
        if meta.is_dir() {
            fs::create_dir_all(to)?;
            for entry in fs::read_dir(from)? {
                let name = entry?.file_name();
                copy_tree(&from.join(&name), &to.join(&name))?;
            }
        } else {
            fs::copy(from, to)?;
        }
        let mode = meta.permissions().mode() | 0o200;
        fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    }
    set_mtime(to, mtime(from));
    Ok(())
}

/// The root of the repository. Clones may share a target directory, and with it a test executable, so what cargo says now
/// comes before what it said at compile time.
pub fn repository() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "cargo tells a test its package this way")]
    let said = std::env::var_os("CARGO_MANIFEST_DIR");
    let package = said.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let parent = Path::new(&package).parent();
    parent.expect("the tests are a folder of the repository").to_owned()
}

fn fixtures() -> PathBuf {
    repository().join("../shared/fixtures")
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::shot::Shot;

    #[test]
    fn a_copy_is_the_same() {
        let dir = TempDir::new().expect("a temporary directory");
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("d")).expect("made");
        fs::write(from.join("d/a"), "a").expect("written");
        symlink("nowhere", from.join("link")).expect("linked");
        for (name, time) in [("d/a", 1), ("d", 2), ("link", 3), ("", 4)] {
            set_mtime(&from.join(name), time);
        }
        copy_tree(&from, &to).expect("copied");
        Shot::of(&from).assert_same(&Shot::of(&to));
    }

    #[test]
    fn the_copy_of_a_fixture_is_writable() {
        let Some(store) = fixture_store() else { return };
        let dir = TempDir::new().expect("a temporary directory");
        let copy = dir.path().join("copy");
        copy_tree(&store, &copy).expect("copied");
        let modes = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o200;
        assert_eq!(modes(&copy.join("project/.jp/.id")), 0o200);
        assert_eq!(modes(&copy.join("data/workspace")), 0o200);
        assert_eq!(mtime(&copy.join("project/.jp/.id")), mtime(&store.join("project/.jp/.id")));
    }
}
