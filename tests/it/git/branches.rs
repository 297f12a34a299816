//! Branches with different trees change places beneath a mount.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jp_tests::{Contents, Mirrored, Mounted, Sample, ids};
use serde_json::Value;

use super::{N, SHOWN, assert_clean, assert_stored, commit, git, hub, kept, plain, repository, tree};

const E: u64 = 17_600_000_001;

/// Lets three branches change places twenty times. `settle` lets the store follow what git did.
#[track_caller]
fn back_and_forth(m: &Mounted, settle: impl Fn()) {
    let sh = |script: &str| m.script(&format!("cd \"$M\"\n{script}")).ok();
    let commit = |message: &str| {
        settle();
        commit(m, message);
    };
    // Moved, retitled, one more, one less, other words.
    git(m, "checkout --quiet -b other");
    Sample::new(E).title("Elsewhere").events(6).write_below(&m.workspace().env().root().join("tmp"));
    sh("mv \"$D\" \"$B/conversations/\"
        sed -i 's/Third thoughts/Fourth thoughts/' \"$C/metadata.json\"
        cp -r \"$T\"/17600000001-elsewhere .
        sed -i 's/Question 0/Question zero/' \"$A/events.json\"
        echo note > \"$A/notes.md\"
        rm -r 17528812001-old-news");
    commit("other");
    // Nothing but one small tree, the other way up.
    git(m, "checkout --quiet -b third main");
    settle();
    sh("mv \"$C\" . && mkdir -p 17528852001-third-thoughts/conversations
        mv \"$B\" 17528852001-third-thoughts/conversations/
        rm -r \"$A\" \"$O\"");
    commit("third");
    git(m, "push --quiet origin other third");

    let branches = ["main", "other", "third"];
    let trees: BTreeMap<&str, Contents> =
        branches.iter().map(|branch| (*branch, plain(m, &hub(m), &format!("origin/{branch}")))).collect();
    assert_eq!(m.says(ids::B, "parent"), format!("jp-c{}", ids::C));
    // What is in no branch's reach at the moment is in the store all the same.
    let secret = kept(m, ids::L);
    for round in 0..20 {
        let branch = branches[[0, 1, 2, 0, 2, 1][round % 6]];
        git(m, &format!("checkout --quiet {branch}"));
        settle();
        assert_clean(m);
        assert_eq!(names(&tree(m)), names(&trees[branch]), "round {round}: {branch}");
        assert_eq!(tree(m), trees[branch], "round {round}: {branch}");
        assert_stored(m, &trees[branch]);
        for id in SHOWN.into_iter().chain([E, ids::L]) {
            assert!(m.find_stored(id).is_some(), "round {round}: {id} is gone from the store");
        }
    }
    assert_eq!(kept(m, ids::L), secret);
    assert_eq!(m.says(N, "presence"), "local", "the last branch has removed it");
    assert_eq!(m.status("drafts"), [] as [Value; 0]);
    m.jp(&["unmount"]);
    assert_clean(m);
    assert_eq!(tree(m), trees["other"]);
    m.check_store();
}

fn names(tree: &Contents) -> Vec<&Path> {
    tree.keys().map(PathBuf::as_path).collect()
}

#[test]
fn beneath_a_mount() {
    let Some(m) = repository() else { return };
    m.begin(&[]);
    back_and_forth(&m, || {});
    assert_eq!(m.status("conflicts"), [] as [Value; 0]);
}

#[test]
fn beneath_a_mirror() {
    let Some(m) = repository() else { return };
    let m = Mirrored::of(m);
    m.begin(&[]);
    back_and_forth(&m, || m.refresh());
}

#[test]
fn with_nothing_mounted() {
    let Some(m) = repository() else { return };
    m.jp(&["export"]).ok();
    back_and_forth(&m, || {
        m.jp(&["import"]).ok();
        m.jp(&["export"]).ok();
        m.jp(&["export", "--check"]).ok();
    });
}

/// Whichever of the two git writes first, the other one still hangs beneath it.
#[test]
fn a_parent_and_its_child_change_places() {
    let Some(m) = repository() else { return };
    m.begin(&[]);
    let shown = tree(&m);
    git(&m, "checkout --quiet -b turned");
    m.sh("mv \"$B\" . && mv 17528842001-alternative-approach/conversations/17528852001-third-thoughts .
          mkdir -p 17528852001-third-thoughts/conversations
          mv 17528842001-alternative-approach 17528852001-third-thoughts/conversations/");
    commit(&m, "turned");
    let turned = tree(&m);
    for _ in 0..2 {
        git(&m, "checkout --quiet main");
        assert_clean(&m);
        assert_eq!(tree(&m), shown);
        assert_eq!(m.says(ids::C, "parent"), format!("jp-c{}", ids::B));
        git(&m, "checkout --quiet turned");
        assert_clean(&m);
        assert_eq!(tree(&m), turned);
        assert_eq!(m.says(ids::B, "parent"), format!("jp-c{}", ids::C));
    }
    assert_eq!(m.status("drafts"), [] as [Value; 0]);
    m.check_store();
}

/// The store keeps one copy of a conversation for all branches, and each branch shows its own files of it.
#[test]
fn a_file_stays_on_its_branch() {
    let Some(m) = repository() else { return };
    m.begin(&[]);
    git(&m, "checkout --quiet -b noted");
    m.sh("mkdir -p \"$D/sub/dir\" && echo note | tee \"$D/notes.md\" > \"$D/sub/dir/deep.md\"");
    commit(&m, "noted");
    let noted = kept(&m, ids::D);
    git(&m, "checkout --quiet -b without");
    m.sh("rm -r \"$D\"");
    commit(&m, "without");
    for branch in ["main", "noted", "without", "noted", "main", "without", "main"] {
        git(&m, &format!("checkout --quiet {branch}"));
        assert_clean(&m);
        assert_eq!(tree(&m), plain(&m, m.root(), branch), "{branch}");
        assert_eq!(kept(&m, ids::D), noted, "the store has all of it");
    }
    m.check_store();
}

/// A branch hangs a root beneath another, the next one does not have it at all, and the first knows nothing of a parent.
#[test]
fn a_root_comes_back_as_one() {
    let Some(m) = repository() else { return };
    m.jp(&["export"]).ok();
    let shown = tree(&m);
    git(&m, "checkout --quiet -b beneath");
    m.jp(&["c", "mv", &ids::D.to_string(), "--parent", &ids::B.to_string()]).ok();
    commit(&m, "beneath");
    git(&m, "checkout --quiet -b without");
    m.script("cd \"$M\" && rm -r \"$B\"/conversations/17528862001-*").ok();
    commit(&m, "without");
    let branches =
        ["without", "main", "beneath"].map(|branch| (branch, plain(&m, m.root(), &format!("origin/{branch}"))));
    assert_eq!(branches[1].1, shown);
    for round in 0..3 {
        for (branch, tree_of) in &branches {
            git(&m, &format!("checkout --quiet {branch}"));
            m.jp(&["import"]).ok();
            m.jp(&["export"]).ok();
            assert_eq!(names(&tree(&m)), names(tree_of), "round {round}: {branch}");
            assert_clean(&m);
        }
    }
    m.check_store();
}
