//! What hangs beneath a private conversation does not show it: where it hangs may be the word of whoever planted it.

use std::fs;

use super::*;
use crate::story::{in_work, nesting, presence};

/// A copy of a conversation that nobody knows, whose metadata names a parent.
const CHILD: &str = "jp-c17000000001";

/// Makes metadata name a parent.
#[track_caller]
fn name_parent(dir: &Path, parent: &str) {
    let path = dir.join("metadata.json");
    let mut metadata: Value = serde_json::from_slice(&fs::read(&path).expect("read")).expect("JSON");
    metadata["parent_id"] = digits(parent).parse::<u64>().expect("a number").into();
    put(&path, &metadata);
}

/// A conversation that came with a commit, and that the store has beneath another one since.
#[track_caller]
fn plant_beneath(workspace: &Workspace, parent: &str) {
    plant(&conversations(workspace), CHILD, &events("planted", 1));
    workspace.jp(&["import"]).ok();
    name_parent(&in_store(workspace, CHILD).expect("stored"), parent);
}

/// Asserts that one conversation, which the store has as a root or does not have, is held because of a parent, and that
/// everybody who should names it.
#[track_caller]
fn assert_held(workspace: &Workspace, id: &str, private: &str) {
    let before = [in_work(workspace, id), in_store(workspace, id)];
    for command in ["import", "export"] {
        let told = workspace.jp(&[command, "--json"]).fails_with(1);
        assert_eq!(held(&told), [(id.to_owned(), "blocked".to_owned())], "{}", told.told());
        assert!(told.stdout.contains(&format!("--local=false {private}")), "{}", told.told());
    }
    assert_eq!(named_by_status(workspace), [id]);
    assert_eq!([in_work(workspace, id), in_store(workspace, id)], before);
    if let Some(stored) = &before[1] {
        let metadata: Value =
            serde_json::from_slice(&fs::read(stored.join("metadata.json")).expect("read")).expect("JSON");
        assert_eq!(metadata.get("parent_id"), None);
    }
    assert_eq!((presence(workspace, private).as_str(), in_work(workspace, private)), ("local", None));
}

/// A pulled edit that hangs what is shown beneath what is private is not taken, and the rest of the copy goes on as ever.
#[test]
fn a_pulled_parent_that_is_private_is_held() {
    let it = Project::new();
    let dir = in_work(&it.main, &it.shared).expect("shown");
    name_parent(&dir, &it.private);
    put(&dir.join("events.json"), &events("shared", 4));
    it.main.jp(&["import"]).fails_with(1).says(&it.private);
    let stored = fs::read(in_store(&it.main, &it.shared).expect("stored").join("events.json")).expect("read");
    assert_eq!(serde_json::from_slice::<Value>(&stored).expect("JSON"), events("shared", 4));
    assert_held(&it.main, &it.shared, &it.private);
    // Whoever shows the parent has the edit taken.
    it.main.jp(&["c", "edit", &it.private, "--local=false"]).ok();
    it.main.jp(&["import"]).ok();
    it.main.jp(&["export"]).ok();
    assert_eq!(nesting(&it.main, &it.shared), ["secret-title", "shared"]);
}

/// The same for a conversation that is new, and for one that was moved.
#[test]
fn nothing_new_or_moved_hangs_beneath_what_is_private() {
    let it = Project::new();
    name_parent(&plant(&conversations(&it.main), CHILD, &events("planted", 1)), &it.private);
    assert_held(&it.main, CHILD, &it.private);
    assert_eq!(in_store(&it.main, CHILD), None);
    fs::remove_dir_all(in_work(&it.main, CHILD).expect("planted")).expect("removed");
    let guessed = conversations(&it.main).join(format!("{}-guessed", digits(&it.private))).join("conversations");
    fs::create_dir_all(&guessed).expect("made");
    let dir = in_work(&it.main, &it.shared).expect("shown");
    fs::rename(&dir, guessed.join(dir.file_name().expect("a name"))).expect("moved");
    let told = it.main.jp(&["import", "--json"]).fails_with(1);
    assert_eq!(held(&told), [unjoined(&it.private), (it.shared.clone(), "blocked".to_owned())], "{}", told.told());
    assert_eq!(it.main.jp(&["c", "show", &it.shared, "--json"]).ok().json()["parent"], Value::Null);
}

/// Asserts that no command on the child alone shows what is above it, and that each says what to do instead.
#[track_caller]
fn assert_kept_private(workspace: &Workspace, private: &str) {
    let show = ["c", "edit", CHILD, "--local=false"];
    for args in [&show[..], &["c", "unhide", CHILD]] {
        let told = workspace.jp(args).fails_with(1).says(private);
        told.says(&format!("--local=false {private} {CHILD}")).says(&format!("jp c mv {CHILD} --root"));
        assert_eq!((presence(workspace, private).as_str(), in_work(workspace, private)), ("local", None), "{args:?}");
    }
    for args in [&["import", CHILD][..], &["export"], &["c", "edit", CHILD, "--title", "Other"]] {
        workspace.jp(args).ok();
        assert_eq!((presence(workspace, private).as_str(), in_work(workspace, private)), ("local", None), "{args:?}");
    }
}

#[test]
fn a_planted_child_does_not_show_a_private_parent() {
    let it = Project::new();
    let clone = it.clone("second");
    plant_beneath(&clone, &it.private);
    assert_kept_private(&clone, &it.private);
    // Its own copy may have been withdrawn by then.
    clone.jp(&["c", "edit", CHILD, "--local=true"]).ok();
    assert_kept_private(&clone, &it.private);
    clone.jp(&["c", "edit", CHILD, "--local"]).fails_with(1).says(&it.private);
    // As a root it can be shown.
    clone.jp(&["c", "mv", CHILD, "--root"]).ok();
    clone.jp(&["c", "edit", CHILD, "--local=false"]).ok();
    assert_eq!((presence(&clone, CHILD).as_str(), presence(&clone, &it.private).as_str()), ("projected", "local"));
}

/// In the worktree that the private conversation was made in, and when nobody remembers anything of it.
#[test]
fn a_known_worktree_shows_no_private_parent() {
    let it = Project::new();
    plant_beneath(&it.main, &it.private);
    assert_kept_private(&it.main, &it.private);
    // Made by another program, which writes no ledger.
    let other = "jp-c16900000001";
    let made = plant(&it.main.silo().join("conversations"), other, &events("of another program", 2));
    assert!(made.is_dir());
    it.main.jp(&["c", "mv", CHILD, "--parent", other]).fails_with(1);
    it.main.jp(&["c", "edit", CHILD, "--local=true"]).ok();
    it.main.jp(&["c", "mv", CHILD, "--parent", other]).ok();
    assert_kept_private(&it.main, other);
}

#[test]
fn whoever_names_both_shows_both() {
    for parent_first in [true, false] {
        let it = Project::new();
        plant_beneath(&it.main, &it.private);
        let mut ids = [it.private.as_str(), CHILD];
        if !parent_first {
            ids.reverse();
        }
        it.main.jp(&["c", "edit", ids[0], ids[1], "--local=false"]).ok();
        assert_eq!(nesting(&it.main, CHILD), ["secret-title", "planted"], "{ids:?}");
    }
}

/// The one above the parent counts as well, and each is named.
#[test]
fn every_private_ancestor_is_named() {
    let it = Project::new();
    let below = new(&it.main, "Below", &["--local", "--parent", &it.private]);
    plant_beneath(&it.main, &below);
    it.main.jp(&["c", "edit", CHILD, "--local=false"]).fails_with(1).says(&it.private).says(&below);
    it.main.jp(&["c", "edit", CHILD, &below, "--local=false"]).fails_with(1).says(&it.private);
    assert_eq!((in_work(&it.main, &it.private), in_work(&it.main, &below)), (None, None));
}

/// What the user made local by a command is private again. What was hidden with it was beneath it before, and shows it.
#[test]
fn what_was_made_local_is_shown_by_what_went_with_it_alone() {
    let it = Project::new();
    let child = new(&it.main, "Child", &["--parent", &it.shared]);
    it.main.jp(&["c", "edit", &it.shared, "--local=true"]).ok();
    plant_beneath(&it.main, &it.shared);
    // Saying so again makes the planted one none of those.
    it.main.jp(&["c", "edit", &it.shared, "--local=true"]).ok();
    assert_kept_private(&it.main, &it.shared);
    it.main.jp(&["c", "edit", &child, "--local=false"]).ok();
    assert_eq!(nesting(&it.main, &child), ["shared", "child"]);
    // It is shown by now, and there is nothing to keep private.
    it.main.jp(&["c", "edit", CHILD, "--local=false"]).ok();
}

/// What is shown in another worktree, or was here and is only hidden, comes along.
#[test]
fn what_is_not_private_comes_along() {
    let it = Project::new();
    let child = new(&it.main, "Child", &["--parent", &it.shared]);
    let empty = it.env.init_workspace("second", it.main.id());
    empty.jp(&["c", "edit", &child, "--local=false"]).ok().says("1 conversation above it");
    assert_eq!(nesting(&empty, &child), ["shared", "child"]);
    let dir = in_work(&it.main, &it.shared).expect("shown");
    fs::remove_dir_all(&dir).expect("removed");
    it.main.jp(&["import"]).ok();
    assert_eq!(presence(&it.main, &it.shared), "local");
    it.main.jp(&["c", "unhide", &child]).ok();
    assert_eq!(nesting(&it.main, &child), ["shared", "child"]);
    // Also where the child itself is shown all the time, and it is told.
    fs::remove_dir_all(&dir).expect("removed");
    plant_beneath(&it.main, &it.shared);
    it.main.jp(&["c", "unhide", CHILD]).ok().says("1 conversation above it");
}
