//! `jp export --to`: another directory gets what the worktree shows, and what is not ours in it stays.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use jp_tests::{Shot, TestEnv, Workspace, contents};

use super::{edit_store, place};
use crate::story::{family, jp, store_file};

/// Three generations, written to another directory.
#[track_caller]
fn written() -> (Workspace, [String; 3], PathBuf) {
    let w = TestEnv::in_memory().init_workspace("main", "otvo8");
    let all = family(&w);
    let dir = w.env().root().join("elsewhere");
    jp(&w, &["export", "--to", text(&dir)]);
    (w, all, dir)
}

fn text(dir: &Path) -> &str {
    dir.to_str().expect("UTF-8")
}

#[test]
fn what_was_edited_there_stays() {
    let (w, [a, b, _], dir) = written();
    let edited = dir.join(place(&w, &b, "events.json"));
    fs::write(&edited, "[ ]").expect("a file can be written again");
    edit_store(&w, &a, "events.json", "[", "[ ");
    edit_store(&w, &b, "events.json", "[", "[  ");
    for _ in 0..2 {
        let told = w.jp(&["export", "--to", text(&dir)]).fails_with(1).says("not as an export left it");
        assert!(!told.stderr.contains("has no place any more"), "{}", told.told());
        assert_eq!(fs::read(&edited).expect("it is there"), b"[ ]");
    }
    assert_eq!(
        fs::read(dir.join(place(&w, &a, "events.json"))).expect("the others follow"),
        fs::read(store_file(&w, &a, "events.json")).expect("a file"),
    );
}

#[test]
fn what_has_no_place_any_more_is_named_until_it_is_gone() {
    let (w, [_, _, c], dir) = written();
    let edited = dir.join(place(&w, &c, "events.json"));
    fs::write(&edited, "[ ]").expect("a file can be written again");
    jp(&w, &["c", "rm", &c, "--yes"]);
    for _ in 0..2 {
        w.jp(&["export", "--to", text(&dir)]).fails_with(1).says("was changed; it stays");
        assert_eq!(fs::read(&edited).expect("it is there"), b"[ ]");
    }
    fs::remove_file(&edited).expect("it can be removed");
    jp(&w, &["export", "--to", text(&dir)]);
}

#[test]
fn what_cannot_be_read_is_not_taken_for_gone() {
    let (w, [_, b, _], dir) = written();
    let before = contents(&dir);
    let config = store_file(&w, &b, "base_config.json");
    fs::remove_file(&config).expect("it can be removed");
    fs::create_dir(&config).expect("a new directory");
    let planned = w.jp(&["export", "--dry-run", "--to", text(&dir)]);
    let told = w.jp(&["export", "--to", text(&dir)]).fails_with(1).says("base_config.json");
    assert_eq!(told.stdout, "");
    assert_eq!(planned.stdout, "");
    assert_eq!(contents(&dir), before);
}

#[test]
fn nothing_is_written_behind_a_link() {
    let (w, [a, b, _], dir) = written();
    let outside = w.env().root().join("outside");
    let home = dir.join(place(&w, &b, "events.json")).parent().expect("a directory").to_owned();
    fs::rename(&home, &outside).expect("it moves");
    symlink(&outside, &home).expect("a new link");
    let before = Shot::of(&outside);
    edit_store(&w, &b, "events.json", "[", "[ ");
    w.jp(&["export", "--to", text(&dir)]).fails_with(1).says("lies behind a link");
    before.assert_same(&Shot::of(&outside));
    jp(&w, &["c", "rm", &a, "--cascade", "--yes"]);
    w.jp(&["export", "--to", text(&dir)]);
    before.assert_same(&Shot::of(&outside));
}
