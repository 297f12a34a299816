//! What hangs beneath a private conversation does not show it: where it hangs may be the word of whoever planted it.

use std::fs;

use super::*;
use crate::story::{in_work, nesting, presence};

/// A copy of a conversation that nobody knows, whose metadata names a parent.
const CHILD: &str = "jp-c17000000001";

/// Writes a child of a conversation into a worktree, as a commit would bring it, and has it taken in.
#[track_caller]
fn plant_beneath(workspace: &Workspace, parent: &str) {
    let dir = plant(&conversations(workspace), CHILD, &events("planted", 1));
    let parent: u64 = digits(parent).parse().expect("a number");
    let metadata = json!({"last_activated_at": "2025-07-19T00:00:00Z", "title": "Planted", "parent_id": parent});
    put(&dir.join("metadata.json"), &metadata);
    workspace.jp(&["import"]).ok();
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
}
