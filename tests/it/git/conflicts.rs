//! The store was edited in one worktree, the real file by hand in another, and nothing is mounted. The newer counts, the
//! older is kept and named.

use std::fs;
use std::path::PathBuf;

use jp_tests::{Mounted, contents, ids, mtime, set_mtime};

use super::{assert_stored, git, repository, tree};

const SECOND: i64 = 1_000_000_000;

/// The real copy of D in a worktree, whatever its directory is called by now.
#[track_caller]
fn metadata(m: &Mounted) -> PathBuf {
    let digits = ids::D.to_string();
    let dirs = fs::read_dir(m.point()).expect("listed").map(|entry| entry.expect("listed").path());
    let mut found = dirs.filter(|dir| dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&digits)));
    found.next().expect("D is here").join("metadata.json")
}

/// Everything that lost a decision about D.
#[track_caller]
fn losers(m: &Mounted) -> Vec<Vec<u8>> {
    let dir = m.workspace().silo().join("vfs/conflicts").join(ids::D.to_string());
    contents(&dir).into_iter().filter(|(path, _)| path.ends_with("metadata.json")).map(|(_, bytes)| bytes).collect()
}

/// Edits D in both places, `later` seconds apart, and lets the real files follow.
#[track_caller]
fn edited(later: i64, wins: &str) {
    let Some(m) = repository() else { return };
    let feature = m.worktree("feature");
    m.jp(&["export"]).ok();
    feature.jp(&["c", "edit", &ids::D.to_string(), "--title", "From the store"]).ok();
    let file = metadata(&m);
    let text = fs::read_to_string(&file).expect("read");
    fs::write(&file, text.replace("Weekend plans", "By hand")).expect("written");
    let stored = m.stored(ids::D).join("metadata.json");
    set_mtime(&file, mtime(&stored) + later * SECOND);
    let (store, work) = (fs::read(&stored).expect("read"), fs::read(&file).expect("read"));

    let told = m.jp(&["export", "--check"]).fails_with(1);
    let line = format!("conflict 17528862001-weekend-plans/metadata.json ({wins})");
    assert!(told.stdout.lines().any(|told| told == line), "{}", told.told());
    assert_eq!((fs::read(&stored).expect("read"), fs::read(&file).expect("read")), (store.clone(), work.clone()));
    m.jp(&["export"]).ok();
    m.jp(&["export", "--check"]).ok();

    let (winner, loser) = if later > 0 { (work, store) } else { (store, work) };
    assert_eq!(fs::read(metadata(&m)).expect("read"), winner);
    assert_eq!(fs::read(m.stored(ids::D).join("metadata.json")).expect("read"), winner);
    assert_eq!(losers(&m), [loser]);
    let conflicts = m.status("conflicts");
    assert!(conflicts.len() == 1 && conflicts[0]["id"] == format!("jp-c{}", ids::D), "{conflicts:#?}");
    let told = m.jp(&["status"]).ok();
    let named = |line: &str| line.starts_with("conflict ") && line.contains(&ids::D.to_string());
    assert!(told.stdout.lines().any(named), "{}", told.told());
    let title = if later > 0 { "By hand" } else { "From the store" };
    assert_eq!(m.says(ids::D, "title"), title);
    assert_stored(&m, &tree(&m));
    assert_ne!(git(&m, "status --porcelain"), "", "git sees what is new");
    m.jp(&["gc"]).ok();
    m.check_store();
}

#[test]
fn the_hand_was_later() {
    edited(5, "workspace wins");
}

#[test]
fn the_store_was_later() {
    edited(-5, "store wins");
}
