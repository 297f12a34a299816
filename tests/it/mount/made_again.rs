//! Two worktrees of one store, both mounted. What is hidden in one and changed in the other is made again in the first.

use std::fs;

use jp_tests::{Mounted, TestEnv, User, contents, ids};
use serde_json::Value;

use super::said;

/// The sample with a note, and a branch that has neither the note nor one of the conversations. Both worktrees are mounted.
fn pair() -> Option<(Mounted, Mounted)> {
    let main = Mounted::not_yet(User::Own, TestEnv::in_memory)?;
    main.script("cd \"$M/$A\" && echo first > notes.md").ok();
    main.jp(&["import"]).ok();
    main.script(
        "cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=with
         git checkout --quiet -b without && git rm -r --quiet \".jp/conversations/$D\" \".jp/conversations/$A/notes.md\"
         git commit --quiet --message=without && git checkout --quiet -",
    )
    .ok();
    main.jp(&["import"]).ok();
    let feature = main.worktree("feature");
    main.begin(&[]);
    feature.begin(&[]);
    Some((main, feature))
}

fn kept(m: &Mounted) -> Vec<String> {
    let all = contents(&m.workspace().silo().join("vfs/conflicts")).into_values();
    all.map(|bytes| String::from_utf8(bytes).expect("samples are text")).collect()
}

#[test]
fn branches_change_places() {
    let Some((main, feature)) = pair() else { return };
    let git = |m: &Mounted, branch: &str| drop(m.script(&format!("cd \"$P\" && git checkout --quiet {branch}")).ok());
    // Nobody changes anything: both go to and fro, and nothing is kept.
    for m in [&main, &feature, &main] {
        git(m, "--detach without");
        git(m, "--detach main");
    }
    assert_eq!((kept(&main), main.status("conflicts")), (vec![], vec![] as Vec<Value>));
    git(&main, "--detach without");
    let theirs = said("a year of conversation", 100);
    feature.sh("echo 'a day of work' > \"$A/notes.md\"");
    fs::write(feature.stored(ids::D).join("notes.md"), "beside both").expect("written");
    feature.script(&format!("cd \"$M/$D\" && printf '%s' '{theirs}' > events.json")).ok();
    assert_eq!(main.text(ids::D, "events.json"), theirs);
    git(&main, "--detach main");
    assert_ne!(main.text(ids::D, "events.json"), theirs, "what git wrote last counts");
    let mut kept = kept(&main);
    kept.sort();
    let mut expected = ["a day of work\n".to_owned(), theirs];
    expected.sort();
    assert_eq!(kept, expected);
    assert_eq!(main.status("conflicts").len(), 2);
    for m in [&main, &feature] {
        m.end(&[]);
        m.check_store();
    }
}

#[test]
fn by_hand() {
    let Some((main, feature)) = pair() else { return };
    for make in ["echo mine > x", "echo mine > y && mv y x", "ln -s mine x", "mkdir x"] {
        main.sh("cd \"$A\" && rm -rf x && echo first > x && rm x");
        feature.sh(&format!("cd \"$A\" && cat x && echo 'precious, before {make}' > x"));
        main.sh(&format!("cd \"$A\" && {make}"));
        let kept = kept(&main);
        assert!(kept.contains(&format!("precious, before {make}\n")), "{make}: {kept:?}");
    }
    assert!(!kept(&main).contains(&"first\n".to_owned()), "what was shown here is known");
    for m in [&main, &feature] {
        m.end(&[]);
        m.check_store();
    }
}

/// A program that brings a conversation back may have several processes: one makes the directory, others its files.
#[test]
fn by_several_processes() {
    if !jp_tests::have(&["rsync"]) {
        return;
    }
    let Some((main, feature)) = pair() else { return };
    main.sh("cd \"$D\" && mkdir d && echo first > d/x && cp -r \"$PWD\" \"$P/backup\" && rm -r \"$PWD\"");
    let theirs = said("a year of conversation", 100);
    feature.script(&format!("cd \"$M/$D\" && printf '%s' '{theirs}' > events.json && echo precious > d/x")).ok();
    main.script("rsync --archive \"$P/backup/\" \"$M/$D/\"").ok();
    let kept = kept(&main);
    assert!(kept.contains(&theirs) && kept.contains(&"precious\n".to_owned()), "{kept:?}");
    for m in [&main, &feature] {
        m.end(&[]);
        m.check_store();
    }
}

/// A directory that is made again is empty, and what others have put into it meanwhile is kept when its name is taken.
#[test]
fn in_a_directory_that_is_made_again() {
    let Some((main, feature)) = pair() else { return };
    main.sh("cd \"$A\" && mkdir d && echo first > d/one && rm -r d");
    feature.sh("cd \"$A\" && echo precious > d/two");
    main.sh("cd \"$A\" && mkdir d && test -z \"$(ls -A d)\" && echo mine > d/two");
    assert!(kept(&main).contains(&"precious\n".to_owned()));
    // A managed name is no directory's.
    main.script("cd \"$M/$A\" && rm events.json && mkdir events.json").fails_with(1);
    main.jp(&["c", "unhide", &format!("jp-c{}", ids::A), "events.json"]).ok();
    for m in [&main, &feature] {
        m.end(&[]);
        m.check_store();
    }
}

/// Scratch in a directory that gets a name of the user's own stays scratch, and stays in sight.
#[test]
fn a_scratch_directory_gets_another_name() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    m.begin(&[]);
    m.sh("cd \"$A\" && mkdir -p out.tmp/z && echo 1 > out.tmp/x.md && echo 2 > out.tmp/z/y.tmp && mv out.tmp out");
    m.sh("cd \"$A\" && test \"$(cat out/x.md out/z/y.tmp)\" = \"$(printf '1\\n2')\" && test ! -e out.tmp");
    assert!(m.stored(ids::A).join("out/x.md").exists() && !m.stored(ids::A).join("out/z/y.tmp").exists());
    m.end(&[]);
}
