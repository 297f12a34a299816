//! The form of the real files: where children lie, and whether there is text for people. A worktree keeps it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use jp_tests::{Contents, Mounted, TestEnv, User, Workspace, contents, ids};

use super::{assert_exported, expected};
use crate::story::{family, jp};

fn tree(w: &Workspace) -> Contents {
    contents(&w.storage().join("conversations"))
}

/// The same files with every conversation at the top.
fn flattened(nested: &Contents) -> Contents {
    let flat = |path: &Path| {
        let mut parts: Vec<&OsStr> = path.iter().collect();
        if let Some(last) = parts.iter().rposition(|part| *part == "conversations") {
            parts.drain(..=last);
        }
        parts.into_iter().collect::<PathBuf>()
    };
    nested.iter().map(|(path, bytes)| (flat(path), bytes.clone())).collect()
}

/// The files without transcripts, and how many of those there were.
fn without_transcripts(mut tree: Contents) -> (Contents, usize) {
    let all = tree.len();
    tree.retain(|path, _| !path.ends_with("transcript.md"));
    let rest = tree.len();
    (tree, all - rest)
}

#[test]
fn flat_until_told_otherwise() {
    let w = TestEnv::in_memory().init_workspace("main", "otvo8");
    let [_, b, _] = family(&w);
    jp(&w, &["export"]);
    let store = contents(&w.silo().join("conversations"));
    let told = w.jp(&["export", "--check", "--layout", "flat"]).fails_with(1);
    assert_eq!(told.stdout.lines().filter(|line| line.starts_with("move ")).count(), 2, "{}", told.told());
    assert_exported(&w);
    assert_eq!(jp(&w, &["export", "--layout", "flat"]).stdout, told.stdout);
    assert_eq!(tree(&w), flattened(&expected(&w)));
    assert_eq!(contents(&w.silo().join("conversations")), store, "the tree is the same");

    jp(&w, &["export", "--check"]);
    jp(&w, &["c", "edit", &b, "--title", "Aunt"]);
    jp(&w, &["export", "--check"]);
    jp(&w, &["import"]);
    assert_eq!(tree(&w), flattened(&expected(&w)), "no parent is lost by lying beside one");

    let store = contents(&w.silo().join("conversations"));
    jp(&w, &["export", "--transcripts"]);
    assert_eq!(without_transcripts(tree(&w)), (flattened(&expected(&w)), 3), "what is not said stays as it is");
    assert_eq!(contents(&w.silo().join("conversations")), store, "text for people is not the store's business");
    jp(&w, &["export", "--layout", "nested"]);
    assert_eq!(without_transcripts(tree(&w)), (expected(&w), 3));
    jp(&w, &["export", "--transcripts=false"]);
    assert_exported(&w);
}

#[test]
fn a_mount_keeps_it() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    m.jp(&["export"]).ok();
    let nested = contents(&m.point());
    m.jp(&["export", "--layout", "flat"]).ok();
    m.begin(&[]);
    assert_eq!(contents(&m.point()), nested, "a mount is always a tree");
    m.jp(&["export", "--check"]).ok();
    m.sh("sed -i 's/Question 0/Question zero/' \"$C/events.json\"");
    let shown = contents(&m.point());
    m.end(&[]);
    let archived = |tree: &Contents| tree.keys().filter(|path| path.starts_with(".archive")).count();
    assert_eq!(archived(&contents(&m.point())), archived(&shown));
    let live =
        |tree: Contents| tree.into_iter().filter(|(path, _)| !path.starts_with(".archive")).collect::<Contents>();
    assert_eq!(live(contents(&m.point())), flattened(&live(shown.clone())));

    m.begin(&[]);
    m.jp(&["export", "--layout", "nested"]).ok();
    m.end(&["--no-export"]);
    assert_eq!(contents(&m.point()), shown, "the form is changed beneath a mount, too");
    assert!(m.text(ids::C, "events.json").contains("Question zero"));
    m.check_store();
}
