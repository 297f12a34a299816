//! A merge leaves its markers in a `metadata.json`. They never reach the store, they are named with their line, and a
//! resolution is an edit like any other.

use std::fs;
use std::path::PathBuf;

use jp_tests::{Contents, LIMIT, Mounted, ids, wait_for};
use serde_json::Value;

use super::{assert_clean, commit, git, kept, repository, tree};

fn file(m: &Mounted) -> PathBuf {
    m.point().join("17528862001-weekend-plans/metadata.json")
}

/// Adds a key to D's metadata, by hand.
#[track_caller]
fn add_key(m: &Mounted, text: &str) {
    let text = fs::read_to_string(file(m)).expect("read").replace("{\n", &format!("{{\n  {text},\n"));
    fs::write(file(m), text).expect("written");
}

/// Two branches that do not agree about a line. Ours is checked out.
#[track_caller]
fn disagree(m: &Mounted) {
    git(m, "checkout --quiet -b theirs");
    add_key(m, "\"mood\": \"theirs\"");
    commit(m, "theirs");
    git(m, "checkout --quiet main");
    add_key(m, "\"mood\": \"ours\"");
    commit(m, "ours");
}

/// Merges, and gives what the store has of D.
#[track_caller]
fn merge(m: &Mounted) -> Contents {
    let before = kept(m, ids::D);
    let told = m.script("cd \"$P\" && git merge theirs").fails_with(1);
    assert!(told.stdout.contains("CONFLICT"), "{}", told.told());
    assert!(fs::read_to_string(file(m)).expect("read").contains("<<<<<<<"));
    before
}

/// Takes their side.
#[track_caller]
fn resolve(m: &Mounted) {
    m.script("cd \"$P\" && sed -i '/^<<<<<<</,/^=======/d; /^>>>>>>>/d' .jp/conversations/17528862001-*/metadata.json")
        .ok();
    let text = fs::read_to_string(file(m)).expect("read");
    assert!(text.contains("theirs") && !text.contains("ours\"") && !text.contains("<<<<"), "{text}");
}

#[track_caller]
fn assert_resolved(m: &Mounted) {
    assert_eq!(m.value(ids::D, "metadata.json")["mood"], "theirs");
    assert_eq!(fs::read_to_string(file(m)).expect("read"), m.text(ids::D, "metadata.json"));
    assert_eq!(m.status("problems"), [] as [Value; 0]);
    assert_eq!(m.status("drafts"), [] as [Value; 0]);
    assert_clean(m);
    m.check_store();
}

/// The problem that `jp status` has with D.
#[track_caller]
fn problem(m: &Mounted) -> Option<Value> {
    m.status("problems").into_iter().find(|problem| problem["id"] == format!("jp-c{}", ids::D))
}

#[test]
fn with_nothing_mounted() {
    let Some(m) = repository() else { return };
    m.jp(&["export"]).ok();
    disagree(&m);
    m.jp(&["import"]).ok();
    assert_eq!(m.value(ids::D, "metadata.json")["mood"], "ours");
    let before = merge(&m);
    let (shown, path) = (tree(&m), file(&m));

    let problem = problem(&m).expect("the markers are named");
    assert_eq!((&problem["line"], &problem["path"]), (&2.into(), &path.display().to_string().into()), "{problem}");
    for args in [&["import"][..], &["export"], &["export", "--check"]] {
        m.jp(args).fails_with(1).says(&format!("{}: line 2", path.display()));
        assert_eq!(kept(&m, ids::D), before, "the store keeps the good one");
        assert_eq!(tree(&m), shown, "the markers stay for whoever resolves them");
    }
    resolve(&m);
    m.jp(&["import"]).ok();
    commit(&m, "merged");
    assert_resolved(&m);
    m.jp(&["export", "--check"]).ok();
}

#[test]
fn beneath_a_mount() {
    let Some(m) = repository() else { return };
    m.begin(&[]);
    disagree(&m);
    let before = merge(&m);
    assert_eq!(kept(&m, ids::D), before, "the store keeps the good one");
    let drafts = m.status("drafts");
    assert!(drafts.len() == 1 && drafts[0]["line"] == 2 && drafts[0]["file"] == "metadata.json", "{drafts:#?}");
    // What is no document is not written out either.
    m.jp(&["export"]).ok();
    assert_eq!(kept(&m, ids::D), before);
    resolve(&m);
    commit(&m, "merged");
    assert_resolved(&m);
    m.end(&[]);
    assert_resolved(&m);
}

#[test]
fn beneath_a_mirror() {
    let Some(m) = repository() else { return };
    m.jp(&["mount", "--mirror"]).ok();
    disagree(&m);
    let ours = || m.value(ids::D, "metadata.json")["mood"] == "ours";
    wait_for("our side in the store", LIMIT, ours);
    let before = merge(&m);
    let named = || problem(&m).is_some_and(|problem| problem["line"] == 2);
    wait_for("the markers to be named", LIMIT, named);
    assert_eq!(kept(&m, ids::D), before, "the store keeps the good one");
    resolve(&m);
    wait_for("the resolution in the store", LIMIT, || m.value(ids::D, "metadata.json")["mood"] == "theirs");
    wait_for("the markers to be forgotten", LIMIT, || problem(&m).is_none());
    commit(&m, "merged");
    m.jp(&["unmount"]).ok();
    assert_eq!(fs::read_to_string(file(&m)).expect("read"), m.text(ids::D, "metadata.json"));
    assert_clean(&m);
    m.check_store();
}
