//! A teammate's commit arrives: a new child, another title, another parent, a removal. They made it in a clone of their
//! own, with a store of their own.

use jp_tests::{Contents, LIMIT, Mounted, ids, wait_for};
use serde_json::Value;

use super::{N, assert_clean, assert_stored, commit, git, hub, kept, plain, repository, tree};

/// What a teammate did.
struct Commit {
    /// The child they made.
    child: u64,
    /// What git alone makes of it.
    tree: Contents,
}

/// Lets a teammate work and push.
#[track_caller]
fn commit_of_a_teammate(ours: &Mounted) -> Commit {
    let theirs = ours.cloned(&hub(ours));
    let [b, c, d, n] = [ids::B, ids::C, ids::D, N].map(|id| id.to_string());
    let child = theirs.jp(&["c", "new", "--title", "Their child", "--parent", &d]).line().to_owned();
    theirs.jp(&["c", "edit", &b, "--title", "A better approach"]).ok();
    theirs.jp(&["c", "mv", &c, "--root"]).ok();
    theirs.jp(&["c", "edit", &n, "--local=true"]).ok();
    let before = theirs.store();
    commit(&theirs, "theirs");
    git(&theirs, "push --quiet");
    assert_eq!(theirs.store(), before);
    assert!(theirs.find_stored(N).is_some(), "they have it, too");
    let child = child.trim_start_matches("jp-c").parse().expect("an id");
    Commit { child, tree: plain(ours, &hub(ours), "origin/main") }
}

/// Asserts that the commit is what is shown and what the store has.
#[track_caller]
fn assert_arrived(ours: &Mounted, commit: &Commit, news: &Contents) {
    assert_eq!(tree(ours), commit.tree);
    assert_clean(ours);
    assert_stored(ours, &commit.tree);
    assert_eq!(ours.says(commit.child, "parent"), format!("jp-c{}", ids::D));
    assert_eq!(ours.says(commit.child, "presence"), "projected");
    assert_eq!(ours.says(ids::B, "title"), "A better approach");
    assert_eq!(ours.says(ids::C, "parent"), Value::Null);
    assert_eq!(ours.says(N, "presence"), "local", "hidden here");
    assert_eq!(&kept(ours, N), news, "and still in the store");
    assert_eq!(ours.status("conflicts"), [] as [Value; 0]);
    assert_eq!(ours.status("drafts"), [] as [Value; 0]);
}

#[test]
fn with_nothing_mounted() {
    let Some(ours) = repository() else { return };
    // Both copies are known to be alike, as they are after any export.
    ours.jp(&["export"]).ok();
    assert_clean(&ours);
    let (commit, news) = (commit_of_a_teammate(&ours), kept(&ours, N));
    git(&ours, "pull --quiet");
    assert_eq!(tree(&ours), commit.tree);
    ours.jp(&["import"]).ok();
    assert_arrived(&ours, &commit, &news);
    ours.jp(&["import", "--dry-run"]).ok().says("Nothing to do");
    ours.jp(&["export", "--check"]).ok();
    ours.jp(&["export"]).ok();
    assert_arrived(&ours, &commit, &news);
    ours.check_store();
}

#[test]
fn beneath_a_mount() {
    let Some(ours) = repository() else { return };
    ours.begin(&[]);
    let (commit, news) = (commit_of_a_teammate(&ours), kept(&ours, N));
    git(&ours, "pull --quiet");
    assert_arrived(&ours, &commit, &news);
    ours.end(&[]);
    assert_arrived(&ours, &commit, &news);
    ours.check_store();
}

#[test]
fn beneath_a_mirror() {
    let Some(ours) = repository() else { return };
    ours.jp(&["mount", "--mirror"]).ok();
    let (commit, news) = (commit_of_a_teammate(&ours), kept(&ours, N));
    git(&ours, "pull --quiet");
    wait_for("the teammate's child in the store", LIMIT, || ours.find_stored(commit.child).is_some());
    wait_for("the removal to be noticed", LIMIT, || ours.says(N, "presence") == "local");
    wait_for("the new parent", LIMIT, || ours.value(ids::C, "metadata.json")["parent_id"].is_null());
    wait_for("the new title", LIMIT, || ours.value(ids::B, "metadata.json")["title"] == "A better approach");
    assert_arrived(&ours, &commit, &news);
    ours.jp(&["unmount"]).ok();
    assert_arrived(&ours, &commit, &news);
    ours.check_store();
}
