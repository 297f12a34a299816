//! The real git around conversations: commits, clones, teammates, branches, merges, and what of it reaches the store.
//! Trees are compared with plain checkouts, which `jp` has never seen.

use std::fs;
use std::path::{Path, PathBuf};

use jp_tests::{Contents, Mounted, Sample, TestEnv, User, contents, ids};

// Branches change places beneath a mount.
mod branches;
// A commit goes around: from a mount to a clone and into another store.
mod circle;
// Both sides were edited.
mod conflicts;
// A merge leaves its markers.
mod merges;
// What git takes away is hidden, not gone.
mod removals;
// A teammate's commit arrives.
mod teammates;

/// "Old news", a root that a teammate removes.
const N: u64 = 17_528_812_001;

/// Runs git in the project.
#[track_caller]
fn git(m: &Mounted, args: &str) -> String {
    m.script(&format!("cd \"$P\" && git {args}")).ok().stdout
}

/// Commits everything there is.
#[track_caller]
fn commit(m: &Mounted, message: &str) {
    git(m, &format!("add --all && git commit --quiet --message='{message}'"));
    assert_clean(m);
}

/// Asserts that the tree is what is committed, whatever git's cache believes.
#[track_caller]
fn assert_clean(m: &Mounted) {
    assert_eq!(git(m, "status --porcelain"), "");
    git(m, "update-index --really-refresh");
    assert_eq!(git(m, "diff --stat HEAD"), "");
}

/// The sample and one more root, committed, with a repository beside it that everybody reaches. Nothing is mounted. `None`
/// where there is nothing to mount with.
#[track_caller]
fn repository() -> Option<Mounted> {
    let m = Mounted::not_yet(User::Own, TestEnv::in_memory)?;
    let news = Sample::new(N).title("Old news").events(6).mtime(1_752_883_200_000_000_000);
    for root in [m.workspace().silo(), m.workspace().storage()] {
        news.write_below(&root.join("conversations"));
    }
    git(&m, "init --quiet");
    commit(&m, "talk");
    m.script("git clone --quiet --bare \"$P\" \"$T/hub.git\"").ok();
    git(
        &m,
        "remote add origin \"$T/hub.git\" && git fetch --quiet && git branch --quiet --set-upstream-to=origin/main",
    );
    Some(m)
}

/// Where everybody's commits meet.
fn hub(m: &Mounted) -> PathBuf {
    m.workspace().env().root().join("tmp/hub.git")
}

/// A commit as git alone has it: the files of its conversations.
#[track_caller]
fn plain(m: &Mounted, repository: &Path, commit: &str) -> Contents {
    let dir = m.workspace().env().root().join("tmp/plain");
    let _ = fs::remove_dir_all(&dir);
    let (from, to) = (repository.display(), dir.display());
    m.script(&format!(
        "git clone --quiet \"{from}\" \"{to}\" && cd \"{to}\" && git checkout --quiet --detach {commit}"
    ))
    .ok();
    contents(&dir.join(".jp/conversations"))
}

/// What lies, or is shown, in the worktree's conversations.
#[track_caller]
fn tree(m: &Mounted) -> Contents {
    contents(&m.point())
}

/// The files of a conversation in the store.
#[track_caller]
fn kept(m: &Mounted, id: u64) -> Contents {
    contents(&m.stored(id))
}

/// Asserts that the store has what a tree shows, file by file, by the id that is nearest above it.
#[track_caller]
fn assert_stored(m: &Mounted, tree: &Contents) {
    for (path, bytes) in tree {
        let number = |name: &str| name.split('-').next()?.parse::<u64>().ok();
        let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
        let Some((at, id)) = parts.iter().enumerate().rev().find_map(|(at, part)| Some((at, number(part)?))) else {
            continue;
        };
        let inside: PathBuf = parts[at + 1..].iter().collect();
        let stored = kept(m, id);
        assert_eq!(stored.get(&inside), Some(bytes), "{} in the store", path.display());
    }
}

/// The ids of the sample that this worktree shows from the start.
const SHOWN: [u64; 6] = [ids::A, ids::B, ids::C, ids::D, ids::O, N];
