//! A snapshot of a directory tree, byte for byte, and the difference between two in words.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::sample::mtime;

/// Files longer than this are kept as a hash.
const KEPT: usize = 64 * 1024;

/// Everything below a directory, the directory itself included: kind, contents, permission bits, modification time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shot {
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    body: Body,
    mode: u32,
    mtime: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    Dir,
    File(Vec<u8>),
    Long { size: usize, hash: [u8; 32] },
    Link(PathBuf),
    Other(&'static str),
}

impl Shot {
    /// Looks at everything below `root`. Reading it changes no modification time.
    #[track_caller]
    pub fn of(root: &Path) -> Self {
        let mut entries = BTreeMap::new();
        collect(root, Path::new(""), &mut entries);
        Self { entries }
    }

    /// The same without modification times.
    pub fn without_mtimes(mut self) -> Self {
        for entry in self.entries.values_mut() {
            entry.mtime = None;
        }
        self
    }

    /// The same without permission bits, for copies that have modes of their own.
    pub fn without_modes(mut self) -> Self {
        for entry in self.entries.values_mut() {
            entry.mode = 0;
        }
        self
    }

    /// The same without these paths (relative to the root) and all that is below them. A directory that holds one keeps
    /// its place and loses its time, which says nothing but that something was made or removed in it.
    pub fn without(mut self, paths: &[&str]) -> Self {
        self.entries.retain(|path, _| !paths.iter().any(|gone| path.starts_with(gone)));
        for path in paths {
            let holder = Path::new(path).parent().unwrap_or(Path::new(""));
            if let Some(entry) = self.entries.get_mut(holder) {
                entry.mtime = None;
            }
        }
        self
    }

    /// The relative paths, in order. The root is the empty path.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.entries.keys().map(PathBuf::as_path)
    }

    /// What has to happen to `self` to become `after`, one line per path; empty when nothing has.
    pub fn diff(&self, after: &Self) -> String {
        let mut lines = String::new();
        let mut paths: Vec<&PathBuf> = self.entries.keys().chain(after.entries.keys()).collect();
        paths.sort();
        paths.dedup();
        for path in paths {
            let name = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            let change = match (self.entries.get(path), after.entries.get(path)) {
                (Some(old), None) => format!("- {} ({})", name.display(), kind(&old.body)),
                (None, Some(new)) => format!("+ {} ({})", name.display(), kind(&new.body)),
                (Some(old), Some(new)) if old != new => {
                    format!("~ {}: {}", name.display(), change(old, new))
                }
                (Some(_), Some(_)) | (None, None) => continue,
            };
            let _ = writeln!(lines, "{change}");
        }
        lines
    }

    /// Panics with the difference if there is one.
    #[track_caller]
    pub fn assert_same(&self, after: &Self) {
        let diff = self.diff(after);
        assert!(diff.is_empty(), "the tree has changed:\n{diff}");
    }
}

#[track_caller]
fn collect(root: &Path, relative: &Path, entries: &mut BTreeMap<PathBuf, Entry>) {
    let path = if relative.as_os_str().is_empty() { root.to_owned() } else { root.join(relative) };
    let fail = |verb: &str, err: std::io::Error| -> ! { panic!("cannot {verb} {}: {err}", path.display()) };
    let meta = fs::symlink_metadata(&path).unwrap_or_else(|err| fail("stat", err));
    let kind = meta.file_type();
    let body = if kind.is_dir() {
        for entry in fs::read_dir(&path).unwrap_or_else(|err| fail("list", err)) {
            let entry = entry.unwrap_or_else(|err| fail("list", err));
            collect(root, &relative.join(entry.file_name()), entries);
        }
        Body::Dir
    } else if kind.is_file() {
        let bytes = fs::read(&path).unwrap_or_else(|err| fail("read", err));
        if bytes.len() <= KEPT {
            Body::File(bytes)
        } else {
            Body::Long { size: bytes.len(), hash: Sha256::digest(&bytes).into() }
        }
    } else if kind.is_symlink() {
        Body::Link(fs::read_link(&path).unwrap_or_else(|err| fail("read the link", err)))
    } else if kind.is_socket() {
        Body::Other("socket")
    } else if kind.is_fifo() {
        Body::Other("pipe")
    } else {
        Body::Other("device")
    };
    let entry = Entry { body, mode: meta.permissions().mode() & 0o7777, mtime: Some(mtime(&path)) };
    entries.insert(relative.to_owned(), entry);
}

fn kind(body: &Body) -> String {
    match body {
        Body::Dir => "directory".to_owned(),
        Body::File(bytes) => format!("file of {} bytes", bytes.len()),
        Body::Long { size, .. } => format!("file of {size} bytes"),
        Body::Link(target) => format!("link to {}", target.display()),
        Body::Other(what) => (*what).to_owned(),
    }
}

fn change(old: &Entry, new: &Entry) -> String {
    let mut parts = Vec::new();
    if old.body != new.body {
        parts.push(match (&old.body, &new.body) {
            (Body::File(old), Body::File(new)) => contents(old, new),
            (old, new) => format!("{} is now {}", kind(old), kind(new)),
        });
    }
    if old.mode != new.mode {
        parts.push(format!("mode {:o} is now {:o}", old.mode, new.mode));
    }
    if let (Some(old), Some(new)) = (old.mtime, new.mtime)
        && old != new
    {
        parts.push(format!("mtime {old} is now {new}"));
    }
    if parts.is_empty() {
        parts.push("one shot has a time and the other has not".to_owned());
    }
    parts.join(", ")
}

/// Names the first line that differs, which is nearly always enough.
fn contents(old: &[u8], new: &[u8]) -> String {
    let lines = |bytes: &[u8]| -> Vec<Vec<u8>> { bytes.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect() };
    let (old_lines, new_lines) = (lines(old), lines(new));
    let at = old_lines.iter().zip(&new_lines).take_while(|(old, new)| old == new).count();
    let show = |lines: &[Vec<u8>]| match lines.get(at) {
        Some(line) => format!("{:?}", OsStr::from_bytes(line)),
        None => "the end".to_owned(),
    };
    format!(
        "{} bytes are now {}; line {}: {} is now {}",
        old.len(),
        new.len(),
        at + 1,
        show(&old_lines),
        show(&new_lines),
    )
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::sample::set_mtime;

    fn tree() -> TempDir {
        let dir = TempDir::new().expect("a temporary directory");
        fs::create_dir(dir.path().join("d")).expect("made");
        for (name, text) in [("a", "one\ntwo\n"), ("b", "b"), ("d/c", "c")] {
            fs::write(dir.path().join(name), text).expect("written");
        }
        // Whatever the umask is.
        fs::set_permissions(dir.path().join("b"), fs::Permissions::from_mode(0o644)).expect("changed");
        fs::write(dir.path().join("long"), vec![0; KEPT + 1]).expect("written");
        std::os::unix::fs::symlink("a", dir.path().join("link")).expect("linked");
        dir
    }

    #[test]
    fn looking_changes_nothing() {
        let dir = tree();
        let before = Shot::of(dir.path());
        before.assert_same(&Shot::of(dir.path()));
        assert_eq!(before.paths().count(), 7);
    }

    #[test]
    fn every_kind_of_change_is_named() {
        let dir = tree();
        let path = |name: &str| dir.path().join(name);
        let before = Shot::of(dir.path());
        let time = mtime(dir.path());
        fs::write(path("a"), "one\n2\n").expect("written");
        set_mtime(&path("a"), 5);
        fs::set_permissions(path("b"), fs::Permissions::from_mode(0o600)).expect("changed");
        set_mtime(&path("d"), 7);
        let mut long = vec![0; KEPT + 1];
        long[KEPT] = 1;
        fs::write(path("long"), long).expect("written");
        fs::remove_file(path("link")).expect("removed");
        fs::write(path("new"), "").expect("written");
        set_mtime(dir.path(), time);

        let after = Shot::of(dir.path());
        let expected = "~ a: 8 bytes are now 6; line 2: \"two\\n\" is now \"2\\n\"\n\
                        ~ b: mode 644 is now 600\n\
                        - link (link to a)\n\
                        ~ long: file of 65537 bytes is now file of 65537 bytes\n\
                        + new (file of 0 bytes)\n";
        let diff = before.clone().without_mtimes().diff(&after.clone().without_mtimes());
        assert_eq!(diff, expected);
        let timed = before.diff(&after);
        assert!(timed.contains("~ d: mtime ") && timed.contains(" is now 7\n"), "{timed}");

        let others = ["a", "b", "link", "long", "new"];
        let left = before.without(&others).without_mtimes();
        left.assert_same(&after.without(&others).without_mtimes());
    }

    #[test]
    fn what_is_left_out_does_not_show_in_its_directory() {
        let dir = tree();
        let before = Shot::of(dir.path()).without(&["d/c"]);
        fs::remove_file(dir.path().join("d/c")).expect("removed");
        before.assert_same(&Shot::of(dir.path()).without(&["d/c"]));
    }
}
