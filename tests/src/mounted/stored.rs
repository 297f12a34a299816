//! What the store holds, read from its files and never through the mount, so that the mount is not its own witness.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Mounted;

/// Files with their bytes, by path.
pub type Contents = BTreeMap<PathBuf, Vec<u8>>;

impl Mounted {
    /// The conversation's directory in the store, archived or not.
    #[track_caller]
    pub fn stored(&self, id: u64) -> PathBuf {
        self.find_stored(id).unwrap_or_else(|| panic!("{id} is not in the store"))
    }

    /// The conversation's directory in the store, if it is there.
    #[track_caller]
    pub fn find_stored(&self, id: u64) -> Option<PathBuf> {
        let all = self.workspace.silo().join("conversations");
        let digits = id.to_string();
        let mut found: Vec<PathBuf> = Vec::new();
        for dir in [all.join(".archive"), all] {
            let paths = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
            found.extend(paths.filter(|path| {
                let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
                name.split('-').next() == Some(&digits)
            }));
        }
        if found.len() > 1 {
            // One that is renamed meanwhile may be listed under both names.
            found.retain(|path| path.exists());
        }
        assert!(found.len() < 2, "{id} is in the store more than once: {found:#?}");
        found.pop()
    }

    /// The text of a file of a conversation in the store. A directory that is renamed while it is looked for is looked for
    /// again.
    #[track_caller]
    pub fn text(&self, id: u64, name: &str) -> String {
        let look = || fs::read_to_string(self.find_stored(id)?.join(name)).ok();
        if let Some(text) = (0..5).find_map(|_| look()) {
            return text;
        }
        let path = self.stored(id).join(name);
        fs::read_to_string(&path).unwrap_or_else(|err| panic!("cannot read {}: {err}", path.display()))
    }

    /// A managed file of a conversation in the store.
    #[track_caller]
    pub fn value(&self, id: u64, name: &str) -> Value {
        let text = self.text(id, name);
        serde_json::from_str(&text).unwrap_or_else(|err| panic!("{name} of {id} in the store: {err}\n{text}"))
    }

    /// Everything in the store but our own state, locks and sessions.
    #[track_caller]
    pub fn store(&self) -> Contents {
        let mut found = contents(&self.workspace.silo());
        found.retain(|path, _| !["vfs", "locks", "sessions"].iter().any(|other| path.starts_with(other)));
        found
    }

    /// Asserts that the store is sound: each conversation once, managed files whole and of the right shape, nobody's
    /// scratch in it, and `jp doctor` content.
    #[track_caller]
    pub fn check_store(&self) {
        let mut seen: BTreeMap<String, PathBuf> = BTreeMap::new();
        for (path, bytes) in self.store() {
            let Ok(inside) = path.strip_prefix("conversations") else { continue };
            let inside = inside.strip_prefix(".archive").unwrap_or(inside);
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let scratch = name.ends_with('~') || name.ends_with(".tmp") || name.ends_with(".swp") || name == "4913";
            assert!(!scratch, "scratch in the store: {}", path.display());
            let parts: Vec<&str> = inside.iter().filter_map(OsStr::to_str).collect();
            let [dir, rest @ ..] = parts.as_slice() else { continue };
            let id = dir.split('-').next().unwrap_or_default().to_owned();
            assert!(id.parse::<u64>().is_ok(), "no conversation's directory: {}", path.display());
            let first = seen.entry(id).or_insert_with(|| PathBuf::from(dir));
            assert_eq!(first, Path::new(dir), "one conversation in two directories");
            if let [name] = rest {
                let parsed = serde_json::from_slice::<Value>(&bytes);
                let good = match *name {
                    "metadata.json" | "base_config.json" => parsed.is_ok_and(|value| value.is_object()),
                    "events.json" => parsed.is_ok_and(|value| value.is_array()),
                    _ => true,
                };
                assert!(good, "{} is no such document:\n{}", path.display(), String::from_utf8_lossy(&bytes));
            }
        }
        // A draft may be worth a word; it is no damage.
        let doctor = self.jp(&["doctor"]);
        let expected = i32::from(doctor.code == 1 && !self.status("drafts").is_empty());
        doctor.fails_with(expected);
    }
}

/// Files with their bytes below a directory, by relative path. What goes away meanwhile is not there.
pub fn contents(root: &Path) -> Contents {
    fn visit(root: &Path, dir: &Path, found: &mut Contents) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.is_symlink() {
                visit(root, &path, found);
            } else if let (Ok(bytes), Ok(inside)) = (fs::read(&path), path.strip_prefix(root)) {
                found.insert(inside.to_owned(), bytes);
            }
        }
    }
    let mut found = Contents::new();
    visit(root, root, &mut found);
    found
}
