//! The tree as a filesystem, used by real programs and by real processes that die. Whatever a mount shows, the store is
//! read from its own files.

use std::fs;

use jp_tests::{Mounted, User, have};
use nix::unistd::geteuid;
use serde_json::{Value, json};

// Programs that write at the end of a file that others write to.
mod append;
// A change made elsewhere is seen here.
mod coherence;
// A suite for filesystems at large.
mod conformance;
// The daemon dies while programs save.
mod crash;
// Programs that save in ways of their own.
mod editors;
// What is said at the beginning and at the end.
mod ended;
// The store is full or read-only.
mod full;
// The real git on the tree.
mod git;
// The helper of mount(8).
mod helper;
// A mount begins, ends, and is left behind.
mod life;
// Directories are listed, and paths followed, while names change.
mod listings;
// Somebody holds a conversation.
mod locks;
// What was hidden here and changed elsewhere is made again.
mod made_again;
// Programs that write to the memory of a file.
mod mmap;
// Names that two want at once, and names that change meanwhile.
mod names;
// Threads of a holder, and processes of other containers.
mod processes;
// Programs that look, copy, move, remove and rewrite.
mod programs;
// Nothing is lost.
mod promises;
// The store is where others change it unheard.
mod remote;
// What was hidden is made again.
mod restored;
// What is refused, and what names mean.
mod rules;
// Very many processes at once.
mod stress;
// When drafts and renamed files are synced to disk.
mod synced;
// Random operations on two mounts of one store.
mod two_mounts;
// The same by a user without rights.
mod unprivileged;
// Nothing more can be watched.
mod watches;

/// Runs a story on a fresh mount by each kind of user.
#[track_caller]
fn everyone(story: impl Fn(&Mounted)) {
    everyone_with(&[], &[], story);
}

/// The same for a story that needs programs, or flags for the mount.
#[track_caller]
fn everyone_with(programs: &[&str], flags: &[&str], story: impl Fn(&Mounted)) {
    if !have(programs) {
        return;
    }
    // Whoever has no rights to begin with is the other kind already.
    let users: &[User] = if geteuid().is_root() { &[User::Own, User::Nobody] } else { &[User::Own] };
    for user in users {
        let Some(mounted) = Mounted::new(*user, flags) else { return };
        story(&mounted);
    }
}

/// An `events.json` in which this was asked, and answered at length.
fn said(text: &str, size: usize) -> String {
    let answer = "so it is. ".repeat(size.div_ceil(10));
    let time = "2026-01-01 00:00:00.0";
    let events = json!([
        { "timestamp": time, "type": "turn_start" },
        { "timestamp": time, "type": "chat_request", "content": text },
        { "timestamp": time, "type": "chat_response", "message": answer },
    ]);
    serde_json::to_string_pretty(&events).expect("a value is always JSON") + "\n"
}

/// What is asked first in a document of [`said`].
fn asked(document: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(document).ok()?;
    Some(value[1]["content"].as_str()?.to_owned())
}

/// Puts a file into `$T`, for scripts to take from.
#[track_caller]
fn put(mounted: &Mounted, name: &str, text: &str) {
    let path = mounted.workspace().env().root().join("tmp").join(name);
    fs::write(&path, text).unwrap_or_else(|err| panic!("cannot write {}: {err}", path.display()));
}

/// The names in a listing, in order.
fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}
