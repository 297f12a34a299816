//! Held copies beneath a mount and beside a mirror.

use std::fs;

use jp_tests::{Mirrored, Mounted, Shot, User, contents, ids};

use super::*;
use crate::story::digits;

/// The id that no other worktree shows.
fn private() -> String {
    format!("jp-c{}", ids::L)
}

/// A worktree of the sample, with a planted copy of the local conversation. The first worktree has it in its ledger.
#[track_caller]
fn planted(m: &Mounted) -> (Mounted, PathBuf) {
    m.workspace().jp(&["c", "edit", "--local=true", &private()]).ok();
    m.workspace().jp(&["export"]).ok();
    m.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=talk").ok();
    let second = m.worktree("second");
    let dir = plant(&conversations(second.workspace()), &private(), &events("planted", 2));
    (second, dir)
}

#[test]
fn a_mount_does_not_show_it() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    let (second, dir) = planted(&m);
    let (before, stored) = (Shot::of(&dir), contents(&m.stored(ids::L)));
    let told = second.begin(&[]);
    assert!(told.stderr.contains(&format!("jp import {}", private())), "{}", told.told());
    let shown = contents(&second.point());
    assert!(!shown.is_empty() && !shown.keys().any(|path| path.starts_with(dir.file_name().expect("a name"))));
    assert!(!shown.keys().any(|path| path.to_string_lossy().contains(digits(&private()))), "{:?}", shown.keys());
    assert_eq!(second.says(ids::L, "presence"), "local");
    let told = second.jp(&["export", "--json"]);
    assert_eq!(held(&told), [unjoined(&private())], "{}", told.told());
    second.end(&[]);
    before.assert_same(&Shot::of(&dir));
    assert_eq!(contents(&m.stored(ids::L)), stored);
    assert_eq!(named_by_status(second.workspace()), [private()]);
    // Mounted again, the worktree is known.
    second.begin(&[]);
    assert_eq!(second.says(ids::L, "presence"), "local");
    let told = second.jp(&["import", "--json", &private()]).ok();
    assert_eq!(held(&told), [], "{}", told.told());
    assert_eq!(second.says(ids::L, "presence"), "projected");
    second.end(&[]);
    assert_eq!(second.says(ids::L, "presence"), "projected");
    assert_eq!(named_by_status(second.workspace()), Vec::<String>::new());
    assert!(m.stored(ids::L).is_dir());
}

/// A directory that is made for what hangs beneath a private conversation does not show that one.
#[test]
fn a_directory_that_is_made_shows_no_private_parent() {
    const CHILD: &str = "17000000001-planted";
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    m.workspace().jp(&["c", "edit", "--local=true", &private()]).ok();
    let dir = plant(&conversations(m.workspace()), "jp-c17000000001", &events("planted", 1));
    let metadata = json!({"last_activated_at": "2025-07-19T00:00:00Z", "title": "Planted", "parent_id": ids::L});
    put(&dir.join("metadata.json"), &metadata);
    m.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=talk").ok();
    m.begin(&[]);
    let is_private = |when: &str| {
        assert_eq!(m.says(ids::L, "presence"), "local", "{when}");
        let shown = contents(&m.point());
        assert!(!shown.keys().any(|path| path.to_string_lossy().contains(digits(&private()))), "{when}");
    };
    is_private("at the beginning");
    // The store does not have it, so this is a new one that arrives.
    m.sh(&format!("mkdir \"$M/{CHILD}\""));
    is_private("after mkdir");
    m.script("cd \"$P\" && git checkout --quiet .");
    is_private("after a checkout");
    // Its place makes it a root.
    assert_eq!(m.says(17_000_000_001, "parent"), Value::Null);
    m.jp(&["c", "unhide", "jp-c17000000001"]).ok();
    is_private("after a command");
    m.end(&[]);
    assert_eq!(m.says(ids::L, "presence"), "local");
}

/// What a program brings back of a conversation that was hidden with its parent does not show that one.
#[test]
fn a_file_that_is_brought_back_shows_no_parent_that_was_made_local() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    m.workspace().jp(&["c", "edit", "--local=true", &format!("jp-c{}", ids::A)]).ok();
    m.begin(&[]);
    m.script(&format!("mkdir -p \"$M/{}-planted\" && echo n > \"$M/{0}-planted/n.md\"", ids::B)).fails_with(1);
    let shown = contents(&m.point());
    assert!(!shown.keys().any(|path| path.to_string_lossy().contains(&ids::A.to_string())), "{:?}", shown.keys());
    assert_eq!(m.says(ids::A, "presence"), "local");
    // Its user may say so.
    m.jp(&["c", "unhide", &format!("jp-c{}", ids::B)]).ok();
    assert_eq!(m.says(ids::A, "presence"), "projected");
    m.end(&[]);
}

/// What is shown does not vanish because its file names a parent that is hidden here: that is a draft, until it can be shown.
#[test]
fn a_hidden_parent_in_the_file_is_a_draft() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    let private = private();
    m.workspace().jp(&["c", "edit", "--local=true", &private]).ok();
    m.begin(&[]);
    m.sh(&format!("sed -i 's/^{{/{{\"parent_id\": {}, /' \"$D/metadata.json\"", digits(&private)));
    m.sh("test -e \"$D/events.json\" && grep -q parent_id \"$D/metadata.json\"");
    assert_eq!(m.says(ids::D, "parent"), Value::Null);
    let drafts = m.jp(&["draft", "ls", "--json"]).ok().json();
    assert!(drafts.to_string().contains(&format!("{private} is hidden here")), "{drafts}");
    // Shown, it has a place for the draft.
    m.jp(&["c", "edit", "--local=false", &private]).ok();
    m.jp(&["draft", "apply", &format!("jp-c{}", ids::D)]);
    assert_eq!(m.says(ids::D, "parent"), private.as_str());
    m.end(&[]);
}

/// A mount that died leaves the worktree as it was, and the copy held.
#[test]
fn a_mount_that_dies_joins_nothing() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    let (second, dir) = planted(&m);
    let (before, stored) = (Shot::of(&dir), contents(&m.stored(ids::L)));
    second.begin(&[]);
    second.crash();
    second.jp(&["unmount"]);
    second.jp(&["export"]);
    before.assert_same(&Shot::of(&dir));
    assert_eq!(contents(&m.stored(ids::L)), stored);
    assert_eq!(second.says(ids::L, "presence"), "local");
}

#[test]
fn a_mirror_leaves_it_alone() {
    let first = Mirrored::not_yet();
    first.workspace().jp(&["c", "edit", "--local=true", &private()]).ok();
    first.workspace().jp(&["export"]).ok();
    first.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=talk").ok();
    let second = first.worktree("second");
    let dir = plant(&conversations(second.workspace()), &private(), &events("planted", 2));
    let (before, stored) = (Shot::of(&dir), contents(&first.stored(ids::L)));
    second.begin(&[]);
    let named = second.in_step()["held"].to_string();
    assert!(named.contains(&private()), "{named}");
    // Edits on either side do not cross.
    fs::write(dir.join("notes.md"), "mine").expect("written");
    first.workspace().jp(&["c", "edit", &private(), "--title", "Other title"]).ok();
    second.refresh();
    fs::remove_file(dir.join("notes.md")).expect("removed");
    second.refresh();
    before.without_mtimes().assert_same(&Shot::of(&dir).without_mtimes());
    assert_eq!(contents(&first.stored(ids::L)).len(), stored.len());
    second.end(&[]);
    assert_eq!(second.says(ids::L, "presence"), "local");
}

/// A mount over the sample, with a private conversation that has a file of the user's own. Returns its digits.
fn with_private(m: &Mounted) -> String {
    let private = m.jp(&["c", "new", "--local", "--title", "Private plans"]).ok().stdout.trim().to_owned();
    m.script(&format!("echo SECRET > \"$U\"/conversations/{}-private-plans/notes.md", digits(&private))).ok();
    digits(&private).to_owned()
}

/// Asserts that neither the name nor the files of a private conversation are anywhere in the worktree.
#[track_caller]
fn assert_out_of_sight(m: &Mounted, private: &str) {
    let found = m.script("cd \"$M\" && find . && grep -rl SECRET . || true").ok().stdout;
    assert!(!found.contains("private-plans") && !found.contains("notes.md"), "{found}");
    assert_eq!(m.says(private.parse().expect("digits"), "presence"), "local");
}

/// A program that lays out a conversation that was hidden, whose metadata names a private parent.
const NAME_PARENT: &str = "import json, sys
with open(sys.argv[1]) as file: meta = json.load(file)
meta['parent_id'] = int(sys.argv[2])
with open(sys.argv[1], 'w') as file: json.dump(meta, file)";

#[test]
fn a_pulled_parent_that_is_private_is_a_draft() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    let private = with_private(&m);
    m.jp(&["export"]).ok();
    fs::write(m.workspace().env().root().join("tmp/name.py"), NAME_PARENT).expect("written");
    m.script(&format!(
        "cd \"$P\" && git init --quiet --initial-branch=main && git add --all && git commit --quiet --message=talk
         git checkout --quiet -b planted && python3 \"$T/name.py\" \"$M/$D/metadata.json\" {private}
         git commit --quiet --all --message=planted
         git checkout --quiet -b none main && git rm -r --quiet .jp/conversations && git commit --quiet --message=none
         git checkout --quiet main"
    ))
    .ok();
    m.begin(&[]);
    m.script("cd \"$P\" && git checkout --quiet none && git checkout --quiet planted && git status").ok();
    // Git has ended, and whatever it left is in sight from now on.
    m.script("ls -R \"$M\"").ok();
    assert_out_of_sight(&m, &private);
    m.sh("test -f \"$D/events.json\"");
    let drafts = m.jp(&["draft", "ls", "--json"]).ok().stdout;
    assert!(drafts.contains(&format!("jp-c{private}")) && drafts.contains("refused"), "{drafts}");
    m.end(&[]);
    assert_out_of_sight(&m, &private);
    m.script("test -f \"$M/$D/events.json\"").ok();
}

/// Real files that name a private parent stay when a mount comes and goes, and are named.
#[test]
fn a_planted_parent_hides_no_real_files() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    let private = with_private(&m);
    m.jp(&["export"]).ok();
    fs::write(m.workspace().env().root().join("tmp/name.py"), NAME_PARENT).expect("written");
    m.script(&format!("python3 \"$T/name.py\" \"$M/$D/metadata.json\" {private}")).ok();
    let before = contents(&conversations(m.workspace()));
    let told = m.begin(&[]);
    assert!(told.stderr.contains(&private), "{}", told.told());
    m.sh("test -f \"$D/events.json\"");
    assert_out_of_sight(&m, &private);
    m.jp(&["unmount"]).fails_with(1).says(&private);
    assert_eq!(contents(&conversations(m.workspace())), before);
}

/// What no ledger mentions is joined with a copy that begins alike, as another program writes it to both roots, and with no
/// other. Files of the user's own that only the store has stay hidden.
#[test]
fn what_arrives_is_joined_if_it_begins_alike() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    m.begin(&[]);
    m.script("echo SECRET > \"$U/conversations/$L/notes.md\"").ok();
    let stored = contents(&m.stored(ids::L));
    m.script(
        "mkdir \"$T/other\" && cp \"$U/conversations/$L\"/*.json \"$T/other\" && echo '[]' > \"$T/other/events.json\"
              cp -r \"$T/other\" \"$M/$L\"",
    )
    .ok();
    m.script("ls -R \"$M\"").ok();
    assert_eq!((m.says(ids::L, "presence"), contents(&m.stored(ids::L))), (Value::from("local"), stored.clone()));
    m.script("test ! -e \"$M/$L/notes.md\" && test \"$(cat \"$M/$L/events.json\")\" = '[]'").ok();
    let status = m.jp(&["status"]).stdout;
    assert!(status.contains(&private()) && status.contains("first event"), "{status}");
    assert!(m.jp(&["draft", "ls", "--json"]).ok().stdout.contains("refused"));
    // Also in the next mount.
    m.end(&[]);
    m.begin(&[]);
    assert_eq!((m.says(ids::L, "presence"), contents(&m.stored(ids::L))), (Value::from("local"), stored.clone()));
    m.jp(&["draft", "drop", "--yes", &private()]).ok();
    m.script("test ! -e \"$M/$L\"").ok();
    m.script("mkdir \"$M/$L\" && for file in metadata base_config events; do cp \"$U/conversations/$L/$file.json\" \"$M/$L\"; done").ok();
    m.script("test ! -e \"$M/$L/notes.md\" && cmp \"$M/$L/events.json\" \"$U/conversations/$L/events.json\"").ok();
    assert_eq!((m.says(ids::L, "presence"), contents(&m.stored(ids::L))), (Value::from("projected"), stored));
    m.end(&[]);
    m.script("test ! -e \"$M/$L/notes.md\" && test -f \"$M/$L/events.json\"").ok();
}

/// Git brings a conversation in the other partition. Files of the user's own that it does not have stay hidden.
#[test]
fn git_shows_no_files_of_the_user_in_the_archive() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    m.begin(&[]);
    m.sh("cp -r \"$D\" \"$T/saved\" && echo mine > \"$D/notes.md\" && rm -r \"$D\"");
    m.script("cp \"$(command -v cp)\" \"$T/git\" && \"$T/git\" -r \"$T/saved\" \"$M/.archive/$D\"").ok();
    assert_eq!(m.sh("ls \".archive/$D\"").stdout, "base_config.json\nevents.json\nmetadata.json\n");
}

/// What hangs beneath a private conversation in the store is not brought back by a program: its path would name that.
#[test]
fn nothing_beneath_what_is_private_is_brought_back() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    let private = with_private(&m);
    fs::write(m.workspace().env().root().join("tmp/name.py"), NAME_PARENT).expect("written");
    m.begin(&[]);
    m.sh("cp -r \"$D\" \"$T/saved\" && rm -r \"$D\"");
    m.script(&format!("python3 \"$T/name.py\" \"$U/conversations/$D/metadata.json\" {private}")).ok();
    m.jp(&["status"]).ok();
    let told = m.script("cp -r \"$T/saved\" \"$M/$D\"");
    assert!(told.code != 0 && told.stderr.contains("not permitted"), "{}", told.told());
    m.script("ls -R \"$M\"").ok();
    assert_out_of_sight(&m, &private);
    m.end(&[]);
    assert_out_of_sight(&m, &private);
}

/// A command shows the store's conversation in the place of a copy that is held, and the copy stays apart.
#[test]
fn a_command_shows_the_stores_in_place_of_a_held_copy() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    m.begin(&[]);
    let stored = contents(&m.stored(ids::L));
    m.script(
        "mkdir \"$M/$L\" && cp \"$U/conversations/$L/metadata.json\" \"$M/$L\" && echo '[]' > \"$M/$L/events.json\"",
    )
    .ok();
    m.jp(&["c", "unhide", &private()]).ok();
    m.script("cmp \"$M/$L/events.json\" \"$U/conversations/$L/events.json\"").ok();
    assert_eq!(contents(&m.stored(ids::L)), stored);
    m.jp(&["draft", "drop", "--yes", &private()]).ok();
    m.script("test -f \"$M/$L/events.json\"").ok();
    m.end(&[]);
    assert_eq!(contents(&m.stored(ids::L)), stored);
}
