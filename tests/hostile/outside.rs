//! Snapshots of a file tree, compared before and after a command: names, bytes, modes, owners, modification times, link
//! targets, and reads of secret files. No function here follows a link.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How a path is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Care {
    /// Not visited.
    Skip,
    /// Must not change in any recorded attribute.
    Strict,
    /// Must not change, and regular files must not be read.
    Unread,
    /// Like `Strict`, but the modification time may change because entries may be added and removed.
    Holder,
    /// May change. Files are searched for the secret.
    Free,
}

/// How paths are treated, relative to the top of the tree. Paths that are not in it are treated like their parent; below a
/// `Holder` they are `Strict`.
pub(super) type Rules = HashMap<PathBuf, Care>;

/// A snapshot.
#[derive(Debug, Default)]
pub(super) struct Look {
    entries: BTreeMap<PathBuf, Entry>,
    /// `Free` files that contain the secret.
    pub(super) leaks: Vec<PathBuf>,
    /// File contents by path, so that the next snapshot need not read unchanged files.
    read: HashMap<PathBuf, (Stamp, Rc<[u8]>)>,
}

/// If it is equal, the bytes are equal: no program can set a ctime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

struct Scan<'a> {
    base: &'a Path,
    secret: &'a [u8],
    rules: &'a Rules,
    last: &'a Look,
}

/// A difference between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) path: PathBuf,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Removed,
    /// With its kind.
    Created(String),
    /// With a description of all attributes that differ.
    Changed(String),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = show(&self.path);
        match &self.what {
            What::Removed => write!(f, "removed: {path}"),
            What::Created(kind) => write!(f, "created: {path} ({kind})"),
            What::Changed(how) => write!(f, "{path}: {how}"),
        }
    }
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
    File(Rc<[u8]>),
    Link(PathBuf),
    Other(&'static str, u64),
}

impl Look {
    /// Scans everything below `base`. Takes the bytes of files that have not changed since `self` from `self`.
    pub(super) fn again(&self, base: &Path, secret: &[u8], rules: &Rules) -> Self {
        let mut look = Self::default();
        look.collect(&Scan { base, secret, rules, last: self }, Path::new(""), Care::Strict);
        look
    }

    /// The paths that differ.
    pub(super) fn diff(&self, after: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (path, old) in &self.entries {
            let what = match after.entries.get(path) {
                None => What::Removed,
                Some(new) if old != new => What::Changed(change(old, new)),
                Some(_) => continue,
            };
            changes.push(Change { path: path.clone(), what });
        }
        for (path, new) in &after.entries {
            if !self.entries.contains_key(path) {
                changes.push(Change { path: path.clone(), what: What::Created(kind(&new.body)) });
            }
        }
        changes
    }

    fn collect(&mut self, scan: &Scan<'_>, relative: &Path, inherited: Care) {
        let how = scan.rules.get(relative).copied().unwrap_or(inherited);
        let path = scan.base.join(relative);
        // An entry that vanishes during the scan shows up as removed.
        let Ok(meta) = fs::symlink_metadata(&path) else { return };
        if how == Care::Skip {
            return;
        }
        let kind = meta.file_type();
        let body = if kind.is_dir() {
            let inherited = if how == Care::Holder { Care::Strict } else { how };
            for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
                self.collect(scan, &relative.join(entry.file_name()), inherited);
            }
            Body::Dir
        } else if kind.is_symlink() {
            Body::Link(fs::read_link(&path).unwrap_or_default())
        } else if kind.is_file() {
            let stamp =
                Stamp { inode: (meta.dev(), meta.ino()), size: meta.len(), changed: (meta.ctime(), meta.ctime_nsec()) };
            let bytes = match scan.last.read.get(relative) {
                Some((then, bytes)) if *then == stamp => Rc::clone(bytes),
                _ => Rc::from(read(&path)),
            };
            self.read.insert(relative.to_owned(), (stamp, Rc::clone(&bytes)));
            if how == Care::Free && contains(&bytes, scan.secret) {
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
            // The scan itself lists directories, which changes their access times.
            atime: (how == Care::Unread && kind.is_file()).then(|| nanoseconds(meta.atime(), meta.atime_nsec())),
        };
        self.entries.insert(relative.to_owned(), entry);
    }
}

pub(super) fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    memchr::memmem::find(bytes, needle).is_some()
}

/// Formats a path on one line, with control characters escaped.
pub(super) fn show(path: &Path) -> String {
    let text = format!("{:?}", path.as_os_str());
    let plain = text.trim_matches('"');
    if plain.contains('\\') { text } else { plain.to_owned() }
}

/// Reads a file without following a link, blocking, or changing the access time.
fn read(path: &Path) -> Vec<u8> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let open = |flags| OpenOptions::new().read(true).custom_flags(flags).open(path);
    // O_NOATIME fails for a file of another user.
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

/// The description of a change of the modification time alone.
pub(super) const OTHER_TIME: &str = "other modification time";

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
        parts.push(OTHER_TIME.to_owned());
    }
    if old.atime != new.atime {
        parts.push("was read".to_owned());
    }
    parts.join(", ")
}

/// Whether the filesystem updates access times.
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
        let rules = [("", Care::Holder), ("out", outside), ("free", Care::Free)];
        let rules = rules.map(|(path, care)| (PathBuf::from(path), care)).into_iter().collect();
        Look::default().again(dir.path(), SECRET, &rules)
    }

    fn lines(changes: &[Change]) -> Vec<String> {
        changes.iter().map(Change::to_string).collect()
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
        assert_eq!(lines(&before.diff(&look(&dir, Care::Strict))), expected);
    }

    #[test]
    fn equal_trees_have_no_difference() {
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
    fn copies_of_the_secret_are_found() {
        let dir = tree();
        assert!(look(&dir, Care::Strict).leaks.is_empty());
        fs::copy(dir.path().join("out/a"), dir.path().join("free/copy")).expect("copied");
        assert_eq!(look(&dir, Care::Strict).leaks, [PathBuf::from("free/copy")]);
        // A link to the secret is not a copy.
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
        assert!(before.diff(&look(&dir, Care::Unread)).is_empty(), "a snapshot must not change access times");
        fs::read(dir.path().join("out/a")).expect("readable");
        assert_eq!(lines(&before.diff(&look(&dir, Care::Unread))), ["out/a: was read"]);
    }
}
