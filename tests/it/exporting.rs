//! `jp export` and `jp import`: what they say, what they leave alone, and what becomes of the files. The tree that is
//! expected is computed from the store's files alone.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use jp_tests::{Contents, Mounted, Sample, Shot, TestEnv, User, Workspace, contents, ids, mtime, set_mtime};
use serde_json::{Value, json};

use crate::story::{
    SECOND, assert_twins, conflicts, digits, family, in_work, jp, new, presence, rewrite, store_file, stored,
    work_file, workspace,
};

// Another directory gets them.
mod elsewhere;
// Every call fails, and the process stops around each.
mod faults;
// How the files lie, and which there are.
mod forms;
// The disk is full.
mod full;
// What no tool would do to files.
mod odd;
// The process is stopped.
mod stopped;
// What commands say of it.
mod told;

/// The real files as they should be when everything is shown: each conversation of the store, children beneath parents.
#[track_caller]
fn expected(workspace: &Workspace) -> Contents {
    let mut found: BTreeMap<u64, (String, Option<u64>, Contents)> = BTreeMap::new();
    let all = workspace.silo().join("conversations");
    for entry in fs::read_dir(&all).expect("a store has conversations") {
        let dir = entry.expect("a store can be listed").path();
        let name = dir.file_name().and_then(OsStr::to_str).expect("names are UTF-8").to_owned();
        let Some(id) = name.split('-').next().and_then(|digits| digits.parse().ok()) else { continue };
        let files = contents(&dir);
        let meta: Value = serde_json::from_slice(&files[&PathBuf::from("metadata.json")]).expect("metadata is JSON");
        found.insert(id, (name, meta["parent_id"].as_u64(), files));
    }
    let place = |mut id: u64| {
        let mut place = PathBuf::from(&found[&id].0);
        while let Some(parent) = found[&id].1 {
            place = PathBuf::from(&found[&parent].0).join("conversations").join(place);
            id = parent;
        }
        place
    };
    let files = found.iter().flat_map(|(&id, (_, _, files))| {
        let place = place(id);
        files.iter().map(move |(path, bytes)| (place.join(path), bytes.clone()))
    });
    files.collect()
}

#[track_caller]
fn assert_exported(workspace: &Workspace) {
    let (real, expected) = (contents(&workspace.storage().join("conversations")), expected(workspace));
    let names = |tree: &Contents| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&real), names(&expected));
    for (path, bytes) in &expected {
        assert!(real[path] == *bytes, "{} differs from the store's", path.display());
    }
}

/// Everything a command could change.
fn roots(workspace: &Workspace) -> [Shot; 2] {
    [workspace.storage(), workspace.env().data()].map(|dir| Shot::of(&dir))
}

#[track_caller]
fn assert_untouched(workspace: &Workspace, before: &[Shot; 2]) {
    for (before, after) in before.iter().zip(&roots(workspace)) {
        before.assert_same(after);
    }
}

/// Changes a file of the store, as the real tool does.
#[track_caller]
fn edit_store(workspace: &Workspace, id: &str, name: &str, from: &str, to: &str) {
    rewrite(&store_file(workspace, id, name), from, to, SECOND);
}

/// Where a file of a conversation is in the worktree's conversations.
#[track_caller]
fn place(workspace: &Workspace, id: &str, name: &str) -> String {
    let path = work_file(workspace, id, name);
    let inside = path.strip_prefix(workspace.storage().join("conversations")).expect("it lies there");
    inside.to_str().expect("names are UTF-8").to_owned()
}

#[test]
fn nothing_to_do() {
    let w = workspace();
    family(&w);
    let before = roots(&w);
    for args in [&["export", "--check"][..], &["export", "--dry-run"], &["import", "--dry-run"]] {
        let told = jp(&w, args).says("Nothing to do; 3 in step.");
        assert_eq!(told.stdout, "");
        assert_untouched(&w, &before);
    }
    let told = jp(&w, &["export"]).says("Nothing to do; 3 in step.");
    assert_eq!(told.stdout, "");
    let nothing = json!({ "steps": [], "held": [], "busy": [], "changed": false });
    for args in [&["export", "--json"][..], &["export", "--check", "--json"], &["import", "--json"]] {
        assert_eq!(jp(&w, args).json(), nothing);
    }
    assert_exported(&w);
}

#[test]
fn the_store_is_newer() {
    let w = workspace();
    let [a, b, _] = family(&w);
    jp(&w, &["export"]);
    edit_store(&w, &b, "metadata.json", "\"last_activated_at\": \"2", "\"last_activated_at\": \"3");
    let line = format!("write {}\n", place(&w, &b, "metadata.json"));
    let before = roots(&w);
    for (flag, code) in [("--check", 1), ("--dry-run", 0)] {
        let told = w.jp(&["export", flag]).fails_with(code).says("1 to write; 2 in step.");
        assert_eq!(told.stdout, line);
        assert_untouched(&w, &before);
    }
    // Nothing of it is arriving.
    assert_eq!(jp(&w, &["import", "--dry-run"]).stdout, "");
    let told = jp(&w, &["export", &a]).says("Nothing to do; 1 in step.");
    assert_eq!(told.stdout, "", "another one is not asked for");
    let told = jp(&w, &["export", &b]).says("1 written.");
    assert_eq!(told.stdout, line);
    assert_twins(&w, &b);
    assert_exported(&w);
    jp(&w, &["export", "--check"]);

    edit_store(&w, &b, "metadata.json", "\"last_activated_at\": \"3", "\"last_activated_at\": \"4");
    let told = jp(&w, &["export", "--json"]).json();
    let step = json!({ "id": b, "do": "write", "path": place(&w, &b, "metadata.json") });
    assert_eq!(told, json!({ "steps": [step], "held": [], "busy": [], "changed": true }));
    assert_exported(&w);
}

#[test]
fn the_tree_has_changed_in_another_worktree() {
    let w = workspace();
    let [a, b, c] = family(&w);
    jp(&w, &["export"]);
    let other = w.env().init_workspace("other", "otvo8");
    jp(&other, &["c", "edit", &b, "--title", "Aunt"]);
    jp(&other, &["c", "mv", &c, "--root"]);
    let (from_b, from_c) = (place(&w, &b, ""), place(&w, &c, ""));
    let told = w.jp(&["export", "--check"]).fails_with(1);
    let moves = told.stdout.lines().filter(|line| line.starts_with("move ")).count();
    assert_eq!(moves, 2, "{}", told.told());
    for from in [from_b, from_c] {
        assert!(told.stdout.contains(&format!("move {} -> ", from.trim_end_matches('/'))), "{}", told.told());
    }
    assert_eq!(jp(&w, &["export"]).stdout, told.stdout, "what was planned is what is done");
    assert_exported(&w);
    assert_eq!(presence(&w, &a), "projected");
    jp(&w, &["export", "--check"]);
}

#[test]
fn an_edit_by_hand() {
    let w = workspace();
    let [a, b, _] = family(&w);
    jp(&w, &["export"]);
    rewrite(&work_file(&w, &b, "metadata.json"), "\"last_activated_at\": \"2", "\"last_activated_at\": \"3", SECOND);
    let line = format!("take {}\n", place(&w, &b, "metadata.json"));
    assert_eq!(jp(&w, &["import", "--dry-run"]).says("1 to take; 2 in step.").stdout, line);
    assert_eq!(w.jp(&["export", "--check"]).fails_with(1).stdout, line, "it reaches the store first");
    assert_eq!(jp(&w, &["import", &a]).stdout, "", "another one is not asked for");
    assert_eq!(jp(&w, &["import"]).says("1 taken; 2 in step.").stdout, line);
    assert!(stored(&w, &b)["last_activated_at"].as_str().is_some_and(|time| time.starts_with('3')));
    assert_exported(&w);
    jp(&w, &["export", "--check"]);
}

#[test]
fn a_conversation_arrives() {
    let w = workspace();
    let [a, ..] = family(&w);
    jp(&w, &["export"]);
    let arrived = Sample::new(17_000_000_001).title("Arrived").file("notes.md", "mine\n");
    let dir = arrived.write_below(&w.storage().join("conversations"));
    let before = roots(&w);
    let line = "import 17000000001-arrived\n";
    assert_eq!(jp(&w, &["import", "--dry-run"]).says("1 to import; 3 in step.").stdout, line);
    assert_untouched(&w, &before);
    let shot = Shot::of(&dir);
    assert_eq!(jp(&w, &["import"]).says("1 imported; 3 in step.").stdout, line);
    shot.assert_same(&Shot::of(&dir));
    assert_exported(&w);
    assert_eq!(presence(&w, "jp-c17000000001"), "projected");

    fs::remove_dir_all(in_work(&w, &a).expect("shown")).expect("removed");
    let told = jp(&w, &["import"]);
    assert!(told.stdout.lines().all(|line| line.starts_with("hide ")), "{}", told.told());
    assert_eq!(presence(&w, &a), "local");
    assert!(store_file(&w, &a, "metadata.json").is_file(), "the store keeps it");
}

/// Git removes files, and leaves directories that it never knew of.
#[test]
fn directories_without_files_are_no_copy() {
    let w = workspace();
    let [a, b, c] = family(&w);
    jp(&w, &["export"]);
    let leave_behind = |dir: PathBuf| {
        for name in crate::story::MANAGED {
            fs::remove_file(dir.join(name)).expect("removed");
        }
        fs::create_dir_all(dir.join("conversations/empty")).expect("made");
        dir
    };
    let shown = |id: &str| in_work(&w, id).expect("shown");
    let (left_c, left_b) = (leave_behind(shown(&c)), leave_behind(shown(&b)));
    for id in [&b, &c] {
        assert_eq!(presence(&w, id), "local", "what has no files was removed");
    }
    w.jp(&["export", "--check"]).fails_with(1);
    let told = jp(&w, &["import"]);
    assert!(told.stdout.lines().all(|line| line.starts_with("hide ")), "{}", told.told());
    jp(&w, &["export"]);
    assert_eq!(fs::read_dir(&left_b).expect("left alone").count(), 1);
    jp(&w, &["c", "edit", &c, "--local=false"]);
    assert_exported(&w);
    assert!(left_c.join("metadata.json").is_file(), "they are in nobody's way");

    // A copy with files is the copy, wherever the other one was left.
    let moved = w.storage().join("conversations").join(left_c.file_name().expect("a name"));
    jp_tests::copy_tree(&left_c, &moved).expect("copied");
    leave_behind(left_c);
    assert_eq!(presence(&w, &c), "projected");
    assert!(jp(&w, &["import"]).stdout.starts_with("reparent "));
    assert_eq!(stored(&w, &c)["parent_id"], Value::Null);
    jp(&w, &["export", "--check"]);
    assert_eq!(presence(&w, &a), "projected");
}

#[test]
fn what_does_not_parse_is_held() {
    let w = workspace();
    let [a, b, _] = family(&w);
    jp(&w, &["export"]);
    let broken = work_file(&w, &b, "metadata.json");
    let text = fs::read_to_string(&broken).expect("read");
    fs::write(&broken, text.replace("{\n", "{\n<<<<<<< ours\n")).expect("written");
    edit_store(&w, &a, "events.json", "[", "[ ");
    let (bytes, store) = (fs::read(&broken).expect("read"), contents(&w.silo().join("conversations")));
    for (args, verb) in [(&["export"][..], "export"), (&["import"], "import")] {
        let named = format!("not {verb}ed: {}: line 2", broken.display());
        w.jp(args).fails_with(1).says(&named).says("hint: ");
        assert_eq!(fs::read(&broken).expect("read"), bytes, "the file stays");
    }
    assert_eq!(contents(&w.silo().join("conversations")), store, "so does the store");
    assert_twins(&w, &a);
    w.jp(&["export", "--check"]).fails_with(1);
    let told = w.jp(&["export", "--json"]).fails_with(1);
    let report: Value = serde_json::from_slice(&told.raw).expect("a report");
    assert_eq!(report["held"][0]["id"], b, "{report}");
    assert!(report["held"][0]["reason"].as_str().is_some_and(|reason| reason.contains("line 2")), "{report}");
    fs::write(&broken, text).expect("written");
    jp(&w, &["export", "--check"]);
    assert_exported(&w);
}

#[test]
fn what_is_in_use_is_busy() {
    let w = workspace();
    let [a, b, _] = family(&w);
    jp(&w, &["export"]);
    for id in [&a, &b] {
        edit_store(&w, id, "events.json", "[", "[ ");
    }
    let holder = w.call(&["lock", "run", &b, "--", "cat"]).start();
    jp_tests::wait_for("the lock", jp_tests::LIMIT, || {
        w.jp(&["lock", "ls", "--json"])
            .json()
            .as_array()
            .is_some_and(|all| all.iter().any(|lock| lock["id"] == b.as_str()))
    });
    let told = w.call(&["export"]).var("JP_LOCK_DURATION", "0").run().fails_with(3).says("in use");
    assert!(told.stderr.contains(&b) && told.stderr.contains(&holder.pid().to_string()), "{}", told.told());
    assert_eq!(told.stdout, format!("write {}\n", place(&w, &a, "events.json")), "it does not keep the others");
    assert_twins(&w, &a);
    holder.finish().ok();
    jp(&w, &["export"]);
    assert_exported(&w);
}

#[test]
fn both_copies_changed() {
    let w = workspace();
    let [_, b, _] = family(&w);
    jp(&w, &["export"]);
    let path = place(&w, &b, "metadata.json");
    for (later, wins) in [(2, "workspace wins"), (-2, "store wins")] {
        let file = work_file(&w, &b, "metadata.json");
        edit_store(&w, &b, "metadata.json", "{\n", &format!("{{\n  \"theirs{later}\": 1,\n"));
        rewrite(&file, "{\n", &format!("{{\n  \"mine{later}\": 1,\n"), 0);
        set_mtime(&file, mtime(&store_file(&w, &b, "metadata.json")) + later * SECOND);
        let (store, work) = (fs::read(store_file(&w, &b, "metadata.json")), fs::read(&file));
        let told = w.jp(&["export", "--check"]).fails_with(1);
        assert_eq!(told.stdout, format!("conflict {path} ({wins})\n"), "{}", told.told());
        assert_eq!(jp(&w, &["export"]).stdout, told.stdout);
        jp(&w, &["export", "--check"]);
        assert_twins(&w, &b);
        let (winner, loser) = if later > 0 { (work, store) } else { (store, work) };
        assert_eq!(fs::read(&file).expect("read"), winner.expect("read"));
        let loser = String::from_utf8(loser.expect("read")).expect("UTF-8");
        assert!(crate::story::kept(&w, &b, "metadata.json").contains(&loser), "the loser is kept");
    }
    assert_eq!(conflicts(&w).len(), 2);
}

#[test]
fn a_local_conversation_has_no_real_files() {
    let w = workspace();
    let private = new(&w, "Private", &["--local"]);
    let before = roots(&w);
    for args in [&["export", &private][..], &["export", "--check", digits(&private)]] {
        w.jp(args).fails_with(1).says("is local here").says(&format!("jp c edit --local=false {private}"));
    }
    w.jp(&["export", "17000000009"]).fails_with(1).says("no conversation");
    assert_untouched(&w, &before);
}

#[test]
fn somewhere_else() {
    let w = workspace();
    let [_, b, _] = family(&w);
    new(&w, "Private", &["--local"]);
    jp(&w, &["export"]);
    let before = contents(&w.storage().join("conversations"));
    let dir = w.env().root().join("elsewhere");
    let to = dir.to_str().expect("UTF-8");
    assert!(!jp(&w, &["export", "--dry-run", "--to", to]).stdout.is_empty());
    assert!(!dir.exists(), "nothing is made for a plan");
    jp(&w, &["export", "--to", to]);
    assert_eq!(contents(&dir), before);
    jp(&w, &["export", "--check", "--to", to]);
    edit_store(&w, &b, "events.json", "[", "[ ");
    let work = Shot::of(&w.storage().join("conversations"));
    let told = jp(&w, &["export", "--to", to]);
    assert_eq!(told.stdout, format!("write {}\n", place(&w, &b, "events.json")));
    work.assert_same(&Shot::of(&w.storage().join("conversations")));
    jp(&w, &["export"]);
    assert_eq!(contents(&dir), contents(&w.storage().join("conversations")));
    for dir in [w.storage().join("conversations"), w.storage(), w.silo().join("x")] {
        w.jp(&["export", "--to", dir.to_str().expect("UTF-8")]).fails_with(2).says("is within");
    }
}

#[test]
fn beneath_a_mount() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    m.jp(&["export"]).ok();
    m.jp(&["export", "--check"]).ok().says("Nothing to do; 5 in step.");
    m.sh("sed -i 's/Question 0/Question zero/' \"$C/events.json\"
          sed -i 's/Weekend plans/Plans/' \"$D/metadata.json\"
          rm -r \"$O\"");
    let shown = contents(&m.point());
    let told = m.jp(&["export", "--check"]).fails_with(1);
    assert!(told.stdout.lines().count() >= 3, "{}", told.told());
    assert_eq!(m.jp(&["export", "-n", &ids::A.to_string()]).ok().stdout, "", "another one is not asked for");
    assert_eq!(m.jp(&["export"]).ok().stdout, told.stdout, "what was planned is what is done");
    m.jp(&["export", "--check"]).ok();
    assert_eq!(contents(&m.point()), shown);
    m.end(&["--no-export"]);
    assert_eq!(contents(&m.point()), shown, "the real files were written beneath the mount");
    m.check_store();
}

#[test]
fn a_lock_beneath_a_mount() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    m.jp(&["export"]).ok();
    m.sh("sed -i 's/Question 0/Question zero/' \"$C/events.json\"");
    let id = format!("jp-c{}", ids::C);
    let holder = m.start(&format!("jp lock run {id} -- cat"));
    jp_tests::wait_for("the lock", jp_tests::LIMIT, || {
        m.jp(&["lock", "ls", "--json"]).json().as_array().is_some_and(|all| all.iter().any(|lock| lock["id"] == id))
    });
    let told = m.script("JP_LOCK_DURATION=0 jp export").fails_with(3).says("in use").says(&id);
    assert_eq!(told.stdout, "", "nothing was done: {}", told.told());
    holder.finish();
    m.script(&format!("jp lock run {id} -- env JP_LOCK_DURATION=0 jp export")).ok().says("1 written");
    let shown = contents(&m.point());
    m.end(&["--no-export"]);
    assert_eq!(contents(&m.point()), shown);
}

#[test]
fn arrivals_beneath_a_mount() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    m.jp(&["export"]).ok();
    m.begin(&[]);
    let report = m.jp(&["import", "--json"]).json();
    assert_eq!(report, json!({ "steps": [], "held": [], "busy": [], "changed": false }));
    // Somebody who has the real directory open from before writes into it.
    m.end(&[]);
    let writer = m.start("cd .jp/conversations; read -r; cp -r \"$T/17000000001-arrived\" .; cd /");
    let arrived = Sample::new(17_000_000_001).title("Arrived");
    arrived.write_below(&m.workspace().env().root().join("tmp"));
    m.begin(&[]);
    writer.finish();
    let told = m.jp(&["import"]).ok();
    assert!(matches!(told.stdout.as_str(), "import 17000000001-arrived\n" | ""), "{}", told.told());
    m.jp(&["export", "--check"]).ok();
    m.check_store();
}

#[test]
fn one_whose_parents_have_no_copy_yet() {
    let w = workspace();
    let [a, b, c] = family(&w);
    let d = new(&w, "Another", &["--parent", &a]);
    jp(&w, &["c", "edit", "--local", &a]);
    // Meant to be here, as what was made through a mount is before its first export.
    let ledger = fs::read_dir(w.silo().join("vfs")).expect("listed").map(|entry| entry.expect("listed").path());
    let ledger = ledger.map(|dir| dir.join("projection.json")).find(|file| file.exists()).expect("a ledger");
    let mut remembered: Value = serde_json::from_slice(&fs::read(&ledger).expect("read")).expect("JSON");
    for entry in remembered["conversations"].as_object_mut().expect("an object").values_mut() {
        *entry = json!({ "intent": "projected" });
    }
    fs::write(&ledger, remembered.to_string()).expect("written");
    let told = jp(&w, &["export", &c]);
    assert_eq!(told.stdout.lines().filter(|line| line.starts_with("copy ")).count(), 3, "{}", told.told());
    for id in [&a, &b, &c] {
        assert_twins(&w, id);
    }
    assert_eq!(in_work(&w, &d), None, "nobody asked for it");
    jp(&w, &["export"]);
    assert_exported(&w);
}
