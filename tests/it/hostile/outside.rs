//! Everything that a command has no business with, before and after: names, bytes, modes, owners, times, link targets.
//! Nothing here follows a link.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// What is to be done with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Care {
    /// Nothing below it is looked at.
    Skip,
    /// It stays as it is, in every respect.
    Strict,
    /// It stays as it is, and nobody reads it either.
    Unread,
    /// It stays; names may come and go in it, so its time says nothing.
    Holder,
    /// A command may change it. It is searched for the secret.
    Free,
}

/// A tree at one moment.
#[derive(Debug, Default)]
pub(super) struct Look {
    entries: BTreeMap<PathBuf, Entry>,
    /// Free files that hold the secret.
    pub(super) leaks: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    body: Body,
    mode: u32,
    owner: (u32, u32),
    mtime: Option<i128>,
    atime: Option<i128>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    Dir,
    File(Vec<u8>),
    Link(PathBuf),
    Other(&'static str, u64),
}

impl Look {
    /// Looks at everything below `base`. `care` is asked with paths relative to it. Where `secret` is found in free
    /// files, that is noted.
    pub(super) fn at(base: &Path, secret: &[u8], care: &dyn Fn(&Path) -> Care) -> Self {
        let mut look = Self::default();
        look.collect(base, Path::new(""), secret, care);
        look
    }

    /// What became different, one line for each path. A read is named as such.
    pub(super) fn diff(&self, after: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, old) in &self.entries {
            match after.entries.get(path) {
                None => lines.push(format!("removed: {}", show(path))),
                Some(new) if old != new => lines.push(format!("{}: {}", show(path), change(old, new))),
                Some(_) => {}
            }
        }
        for (path, new) in &after.entries {
            if !self.entries.contains_key(path) {
                lines.push(format!("created: {} ({})", show(path), kind(&new.body)));
            }
        }
        lines
    }

    fn collect(&mut self, base: &Path, relative: &Path, secret: &[u8], care: &dyn Fn(&Path) -> Care) {
        let how = care(relative);
        let path = base.join(relative);
        // Whatever vanishes meanwhile is gone; the comparison says so.
        let Ok(meta) = fs::symlink_metadata(&path) else { return };
        if how == Care::Skip {
            return;
        }
        let kind = meta.file_type();
        let body = if kind.is_dir() {
            for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
                self.collect(base, &relative.join(entry.file_name()), secret, care);
            }
            Body::Dir
        } else if kind.is_symlink() {
            Body::Link(fs::read_link(&path).unwrap_or_default())
        } else if kind.is_file() {
            let bytes = read(&path);
            if how == Care::Free && contains(&bytes, secret) {
                self.leaks.push(relative.to_owned());
            }
            Body::File(bytes)
        } else if kind.is_fifo() {
            Body::Other("pipe", 0)
        } else if kind.is_socket() {
            Body::Other("socket", 0)
        } else {
            Body::Other("device", meta.rdev())
        };
        if how == Care::Free {
            return;
        }
        let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        let entry = Entry {
            body,
            mode: meta.mode() & 0o7777,
            owner: (meta.uid(), meta.gid()),
            mtime: (how != Care::Holder).then(|| nanoseconds(meta.mtime(), meta.mtime_nsec())),
            // Listing a directory leaves a trace, and the comparison lists all of them.
            atime: (how == Care::Unread && kind.is_file()).then(|| nanoseconds(meta.atime(), meta.atime_nsec())),
        };
        self.entries.insert(relative.to_owned(), entry);
    }
}

/// Whether `bytes` holds `needle`.
pub(super) fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    memchr::memmem::find(bytes, needle).is_some()
}

/// A path as a failure message has it: on one line, without control characters.
pub(super) fn show(path: &Path) -> String {
    let text = format!("{:?}", path.as_os_str());
    let plain = text.trim_matches('"');
    if plain.contains('\\') { text } else { plain.to_owned() }
}

/// Reads without following a link, waiting for anybody, or leaving a trace in the access time.
fn read(path: &Path) -> Vec<u8> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let open = |flags| OpenOptions::new().read(true).custom_flags(flags).open(path);
    // Only the owner may leave no trace.
    let Ok(mut file) = open(flags | libc::O_NOATIME).or_else(|_| open(flags)) else { return Vec::new() };
    let mut bytes = Vec::new();
    let _ = file.read_to_end(&mut bytes);
    bytes
}

fn kind(body: &Body) -> String {
    match body {
        Body::Dir => "directory".to_owned(),
        Body::File(bytes) => format!("file of {} bytes", bytes.len()),
        Body::Link(target) => format!("link to {}", show(target)),
        Body::Other(what, _) => (*what).to_owned(),
    }
}

fn change(old: &Entry, new: &Entry) -> String {
    let mut parts = Vec::new();
    if old.body != new.body {
        parts.push(match (&old.body, &new.body) {
            (Body::File(before), Body::File(after)) => {
                format!("other bytes ({} before, {} now)", before.len(), after.len())
            }
            (old, new) => format!("{} is now {}", kind(old), kind(new)),
        });
    }
    if old.mode != new.mode {
        parts.push(format!("mode {:o} is now {:o}", old.mode, new.mode));
    }
    if old.owner != new.owner {
        parts.push(format!("owner {:?} is now {:?}", old.owner, new.owner));
    }
    if old.mtime != new.mtime {
        parts.push("other modification time".to_owned());
    }
    if old.atime != new.atime {
        parts.push("was read".to_owned());
    }
    parts.join(", ")
}

/// Whether reading a file is visible in its access time here.
pub(super) fn reads_are_visible(dir: &Path) -> bool {
    let path = dir.join("read-me");
    let atime = || fs::metadata(&path).map(|meta| meta.atime()).unwrap_or_default();
    let made = fs::write(&path, "x").is_ok();
    jp_tests::set_mtime(&path, 0);
    let seen = made && fs::read(&path).is_ok() && atime() != 0;
    let _ = fs::remove_file(&path);
    seen
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use jp_tests::set_mtime;
    use tempfile::TempDir;

    use super::*;

    const SECRET: &[u8] = b"hidden-word";

    fn tree() -> TempDir {
        let dir = TempDir::new().expect("a temporary directory");
        fs::create_dir_all(dir.path().join("out/d")).expect("made");
        fs::create_dir(dir.path().join("free")).expect("made");
        for (name, text) in [("out/a", "hidden-word"), ("out/d/b", "b"), ("out/c", "c"), ("free/x", "x")] {
            fs::write(dir.path().join(name), text).expect("written");
        }
        fs::set_permissions(dir.path().join("out/c"), fs::Permissions::from_mode(0o644)).expect("set");
        symlink("a", dir.path().join("out/link")).expect("linked");
        dir
    }

    fn look(dir: &TempDir, outside: Care) -> Look {
        Look::at(dir.path(), SECRET, &|path| match path.iter().next().and_then(OsStr::to_str) {
            Some("out") => outside,
            Some(_) => Care::Free,
            None => Care::Holder,
        })
    }

    #[track_caller]
    fn check(change: impl FnOnce(&Path), expected: &[&str]) {
        let dir = tree();
        let time = 1_000_000_000;
        for name in ["out", "out/d", "out/a", "out/c", "out/d/b", "out/link"] {
            set_mtime(&dir.path().join(name), time);
        }
        let before = look(&dir, Care::Strict);
        change(dir.path());
        for name in ["out", "out/d"] {
            set_mtime(&dir.path().join(name), time);
        }
        assert_eq!(before.diff(&look(&dir, Care::Strict)), expected);
    }

    #[test]
    fn looking_changes_nothing() {
        check(|_| {}, &[]);
        check(|dir| fs::write(dir.join("free/new"), "new").expect("written"), &[]);
    }

    #[test]
    fn every_kind_of_change_is_noticed() {
        let old = 1_000_000_000;
        check(|dir| fs::remove_file(dir.join("out/d/b")).expect("removed"), &["removed: out/d/b"]);
        check(|dir| fs::remove_file(dir.join("out/link")).expect("removed"), &["removed: out/link"]);
        check(|dir| fs::write(dir.join("out/new"), "1").expect("written"), &["created: out/new (file of 1 bytes)"]);
        check(|dir| set_mtime(&dir.join("out/c"), 5), &["out/c: other modification time"]);
        check(
            |dir| fs::set_permissions(dir.join("out/c"), fs::Permissions::from_mode(0o600)).expect("set"),
            &["out/c: mode 644 is now 600"],
        );
        let rewrite = |dir: &Path| {
            fs::write(dir.join("out/c"), "C").expect("written");
            set_mtime(&dir.join("out/c"), old);
        };
        check(rewrite, &["out/c: other bytes (1 before, 1 now)"]);
        let relink = |dir: &Path| {
            fs::remove_file(dir.join("out/link")).expect("removed");
            symlink("c", dir.join("out/link")).expect("linked");
            set_mtime(&dir.join("out/link"), old);
        };
        check(relink, &["out/link: link to a is now link to c"]);
    }

    #[test]
    fn a_secret_is_found_where_it_does_not_belong() {
        let dir = tree();
        assert!(look(&dir, Care::Strict).leaks.is_empty());
        fs::copy(dir.path().join("out/a"), dir.path().join("free/copy")).expect("copied");
        assert_eq!(look(&dir, Care::Strict).leaks, [PathBuf::from("free/copy")]);
        // A link to it is no copy of it.
        fs::remove_file(dir.path().join("free/copy")).expect("removed");
        symlink("../out/a", dir.path().join("free/copy")).expect("linked");
        assert!(look(&dir, Care::Strict).leaks.is_empty());
    }

    #[test]
    fn a_read_is_noticed() {
        let dir = tree();
        if !reads_are_visible(dir.path()) {
            return;
        }
        set_mtime(&dir.path().join("out/a"), 0);
        let before = look(&dir, Care::Unread);
        assert!(before.diff(&look(&dir, Care::Unread)).is_empty(), "looking leaves no trace");
        fs::read(dir.path().join("out/a")).expect("readable");
        assert_eq!(before.diff(&look(&dir, Care::Unread)), ["out/a: was read"]);
    }
}
