//! The disk that the project is on is full.

use std::fs;

use jp_tests::{Contents, Place, Sample, SmallDisk, TestEnv, Workspace, contents, skip};
use nix::unistd::geteuid;

use super::assert_exported;
use crate::story::jp;

/// Every file is what it was or what it is to be.
#[track_caller]
fn assert_old_or_new(w: &Workspace, old: &Contents) {
    let new = super::expected(w);
    for (path, bytes) in contents(&w.storage().join("conversations")) {
        let whole = old.get(&path) == Some(&bytes) || new.get(&path) == Some(&bytes);
        assert!(whole, "{} is neither old nor new", path.display());
    }
}

#[test]
fn the_store_is_whole_and_the_next_export_completes() {
    if !geteuid().is_root() {
        return skip("only root can make a small disk");
    }
    let env = TestEnv::in_memory();
    let small = SmallDisk::new(&env.project("main"), "1m");
    let w = env.init_workspace("main", "otvo8");
    let ids: Vec<u64> = (0..20).map(|n| 17_528_832_001 + n * 10_000).collect();
    let sample = |id: u64, events: usize| Sample::new(id).title("Growing").events(events);
    for &id in &ids {
        sample(id, 3).write(&w, Place::Both);
    }
    jp(&w, &["export"]);
    assert_exported(&w);
    let old = contents(&w.storage().join("conversations"));
    // The store grows beyond what the project has room for.
    for &id in &ids {
        sample(id, 600).write(&w, Place::User);
    }
    let store = contents(&w.silo().join("conversations"));
    let told = w.jp(&["export"]).fails_with(4).says("No space left on device");
    assert!(told.stderr.contains(w.storage().to_str().expect("UTF-8")), "the path is named\n{}", told.told());
    assert_eq!(contents(&w.silo().join("conversations")), store, "the store is untouched");
    assert_old_or_new(&w, &old);
    w.jp(&["export", "--check"]).fails_with(1);

    small.resize("64m");
    jp(&w, &["export"]);
    assert_exported(&w);
    assert_eq!(contents(&w.silo().join("conversations")), store);
    jp(&w, &["export", "--check"]);
    fs::remove_dir_all(w.storage().join("conversations")).expect("removed");
    jp(&w, &["import"]);
    assert_eq!(contents(&w.silo().join("conversations")), store, "removing it all hides it all");
}
