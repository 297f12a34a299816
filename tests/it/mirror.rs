//! Real files that are kept in step with the store by the real command, used by real programs. The store is read from its
//! own files.

use std::fs;
use std::path::PathBuf;

use jp_tests::Mirrored;
use serde_json::Value;

// What is done to the real files reaches the store.
mod files;
// A mirror begins, ends, dies, and loses its workspace.
mod life;
// Anything on both sides.
mod random;
// What is done to the store reaches the real files.
mod store;

/// The bytes of a real file, by its path among the conversations.
#[track_caller]
fn real(m: &Mirrored, path: &str) -> String {
    let path = m.point().join(path);
    fs::read_to_string(&path).unwrap_or_else(|err| panic!("cannot read {}: {err}", path.display()))
}

/// The metadata in a real file, or nothing while there is none.
fn real_meta(m: &Mirrored, dir: &str) -> Value {
    let bytes = fs::read(m.point().join(dir).join("metadata.json")).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Where the directory of a conversation is among the real files, wherever that is.
fn place(m: &Mirrored, id: u64) -> Option<PathBuf> {
    let mut open = vec![m.point()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name().to_string_lossy().split('-').next() == Some(&id.to_string()) {
                return path.strip_prefix(m.point()).ok().map(PathBuf::from);
            }
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    None
}
