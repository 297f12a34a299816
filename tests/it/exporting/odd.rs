//! What people do to real files that no tool would: copies beside the original, one within another, directories where files
//! belong, links. What is planned is what is done, and what is done is done once.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use jp_tests::{Mounted, Output, TestEnv, User, Workspace, contents};

use serde_json::{Value, json};

use crate::story::{
    assert_twins, conflicts, digits, family, in_work, jp, kept, new, presence, says, store_file, stored, work_file,
    workspace,
};

/// Runs a command that has a plan, and asserts that it does what it planned, once.
#[track_caller]
fn as_planned(w: &Workspace, code: i32, args: &[&str]) -> Output {
    let parse = |told: &Output| -> Value { serde_json::from_str(&told.stdout).expect("JSON") };
    let planned = parse(&w.jp(&[args, &["--dry-run", "--json"]].concat()));
    let done = w.jp(&[args, &["--json"]].concat()).fails_with(code);
    for key in ["steps", "held"] {
        assert_eq!(parse(&done)[key], planned[key], "{key}");
    }
    let again = parse(&w.jp(&[args, &["--json"]].concat()));
    assert_eq!(again["steps"], json!([]), "once is enough");
    assert_eq!(again["held"], planned["held"]);
    done
}

/// `cp -r`.
#[track_caller]
fn copy(from: &Path, to: &Path) {
    for (path, bytes) in contents(from) {
        let path = to.join(path);
        fs::create_dir_all(path.parent().expect("files lie in directories")).expect("a new directory");
        fs::write(path, bytes).expect("a new file");
    }
}

fn memory() -> Workspace {
    TestEnv::in_memory().init_workspace("main", "otvo8")
}

#[test]
fn a_copy_of_a_family_beside_it() {
    let w = memory();
    let [a, b, c] = family(&w);
    jp(&w, &["export"]);
    let original = in_work(&w, &a).expect("it is shown");
    let before = contents(&original);
    // Its name comes before the original's.
    let second = original.with_file_name(format!("{}-AAA", digits(&a)));
    copy(&original, &second);
    as_planned(&w, 1, &["export"]).says("a second copy beside");
    assert_eq!(contents(&original), before);
    assert_eq!(contents(&second), before, "it is somebody's, and named");
    for id in [&a, &b, &c] {
        assert_eq!(presence(&w, id), "projected");
    }
}

#[test]
fn one_within_its_own_child() {
    let w = memory();
    let [a, b, c] = family(&w);
    jp(&w, &["export", "--layout", "flat"]);
    let (outer, inner) = (in_work(&w, &a).expect("shown"), in_work(&w, &b).expect("shown"));
    fs::create_dir(inner.join("conversations")).expect("a new directory");
    let moved = inner.join("conversations").join(outer.file_name().expect("a name"));
    fs::rename(&outer, &moved).expect("it moves");
    as_planned(&w, 1, &["export"]).says("cannot be beneath");
    assert!(moved.is_dir());
    for (id, parent) in [(&b, &a), (&c, &b)] {
        assert_eq!(says(&w, id, "parent"), parent.as_str());
    }
    assert!(stored(&w, &a).get("parent_id").is_none_or(Value::is_null));
}

#[test]
fn a_new_name_and_what_lies_beneath_it() {
    let w = memory();
    let [a, b, c] = family(&w);
    jp(&w, &["export"]);
    let dir = in_work(&w, &b).expect("it is shown");
    fs::rename(&dir, dir.with_file_name(format!("{}-The Aunt", digits(&b)))).expect("it moves");
    assert_eq!(says(&w, &b, "title"), "The Aunt", "what a name says is shown at once");
    as_planned(&w, 0, &["export"]);
    assert_eq!(says(&w, &b, "title"), "The Aunt");
    assert_eq!(stored(&w, &b)["title"], "The Aunt");
    for id in [&a, &b, &c] {
        assert_eq!(presence(&w, id), "projected");
    }
}

#[test]
fn moved_and_laid_out_anew() {
    let w = memory();
    let [a, b, _] = family(&w);
    let other = new(&w, "Neighbour", &[]);
    jp(&w, &["export"]);
    let dir = in_work(&w, &b).expect("it is shown");
    let home = work_file(&w, &other, "conversations");
    fs::create_dir(&home).expect("a new directory");
    fs::rename(&dir, home.join(dir.file_name().expect("a name"))).expect("it moves");
    assert_eq!(says(&w, &b, "parent"), other.as_str());
    as_planned(&w, 0, &["export", "--layout", "flat"]);
    assert_eq!(says(&w, &b, "parent"), other.as_str(), "not {a}");
    assert_eq!(in_work(&w, &b).expect("shown").parent(), Some(&*w.storage().join("conversations")));
}

#[test]
fn a_directory_that_is_called_transcript() {
    let w = memory();
    let a = new(&w, "Mine", &[]);
    jp(&w, &["export"]);
    let dir = work_file(&w, &a, "transcript.md");
    fs::create_dir(&dir).expect("a new directory");
    fs::write(dir.join("part one"), "Hello.").expect("a new file");
    as_planned(&w, 0, &["export", "--transcripts"]);
    assert_eq!(fs::read(store_file(&w, &a, "transcript.md/part one")).expect("it is durable"), b"Hello.");
    as_planned(&w, 0, &["export", "--transcripts=false"]);
    assert_eq!(fs::read(dir.join("part one")).expect("it is still there"), b"Hello.");
}

#[test]
fn a_link_among_children() {
    let w = memory();
    let a = new(&w, "Parent", &[]);
    jp(&w, &["export"]);
    let among = work_file(&w, &a, "conversations");
    fs::create_dir(&among).expect("a new directory");
    symlink("../notes", among.join("see")).expect("a new link");
    as_planned(&w, 0, &["export"]);
    assert_eq!(fs::read_link(among.join("see")).expect("it stays"), Path::new("../notes"));
    assert!(fs::symlink_metadata(store_file(&w, &a, "conversations")).is_err(), "it is no conversation's");
}

#[test]
fn a_transcript_beside_what_is_held() {
    let w = memory();
    let a = new(&w, "Parent", &[]);
    jp(&w, &["export", "--transcripts"]);
    let config = work_file(&w, &a, "base_config.json");
    fs::write(&config, "{\n<<<<<<< HEAD\n").expect("a file can be written again");
    as_planned(&w, 1, &["export"]).says("merge conflict marker");
    super::edit_store(&w, &a, "events.json", "[", "[{\"type\": \"chat_request\", \"content\": \"Hello\"}");
    as_planned(&w, 1, &["export"]);
    let text = fs::read_to_string(work_file(&w, &a, "transcript.md")).expect("it is there");
    assert!(text.contains("Hello"), "it says what the store has: {text}");
}

#[test]
fn a_link_where_a_copy_belongs() {
    let w = workspace();
    let a = new(&w, "One", &[]);
    jp(&w, &["export"]);
    let outside = w.env().root().join("outside");
    fs::create_dir(&outside).expect("a new directory");
    fs::write(outside.join("mine"), "Mine.").expect("a new file");
    let place = in_work(&w, &a).expect("it is shown");
    let aside = place.with_file_name(digits(&a));
    fs::rename(&place, &aside).expect("it moves");
    symlink(&outside, &place).expect("a new link");
    w.jp(&["export"]).fails_with(1).says("is in the way");
    assert_eq!(fs::read_link(&place).expect("the link stays"), outside);
    assert_eq!(fs::read(outside.join("mine")).expect("a file"), b"Mine.");
    assert_eq!(contents(&outside).len(), 1);
    assert!(aside.join("events.json").is_file());
    assert_eq!(conflicts(&w), []);
}

#[test]
fn a_file_that_an_edited_copy_lacks() {
    let w = memory();
    let a = new(&w, "One", &[]);
    jp(&w, &["export"]);
    let config = fs::read_to_string(store_file(&w, &a, "base_config.json")).expect("it is there");
    fs::remove_file(work_file(&w, &a, "base_config.json")).expect("it can be removed");
    let said = "[{\"timestamp\": \"2025-07-19 00:00:00.0\", \"type\": \"chat_request\", \"content\": \"Hello\"}]";
    fs::write(work_file(&w, &a, "events.json"), said).expect("a file can be written again");
    as_planned(&w, 0, &["export"]);
    assert_eq!(fs::read_to_string(store_file(&w, &a, "events.json")).expect("a file"), said);
    assert_eq!(kept(&w, &a, "base_config.json"), [config], "no byte of the store is lost");
}

#[test]
fn one_that_arrives_with_a_file_among_its_children() {
    let w = memory();
    let a = new(&w, "One", &[]);
    jp(&w, &["export"]);
    let original = in_work(&w, &a).expect("it is shown");
    let arrived = original.with_file_name("17528832001-arrived");
    copy(&original, &arrived);
    fs::create_dir_all(arrived.join("conversations/figures")).expect("a new directory");
    fs::write(arrived.join("conversations/figures/one"), "1").expect("a new file");
    as_planned(&w, 0, &["import"]);
    let id = "jp-c17528832001";
    assert_eq!(fs::read(store_file(&w, id, "conversations/figures/one")).expect("it is durable"), b"1");
    jp(&w, &["c", "edit", "--local", id]);
    jp(&w, &["c", "edit", "--local=false", id]);
    assert_eq!(fs::read(work_file(&w, id, "conversations/figures/one")).expect("it is shown"), b"1");
}

#[test]
fn a_copy_of_what_was_edited_goes_once_it_is_safe() {
    let w = memory();
    let a = new(&w, "One", &[]);
    jp(&w, &["export"]);
    fs::write(work_file(&w, &a, "events.json"), "[ ]").expect("a file can be written again");
    let original = in_work(&w, &a).expect("it is shown");
    copy(&original, &original.with_file_name(digits(&a)));
    as_planned(&w, 0, &["export"]);
    assert_eq!(fs::read(store_file(&w, &a, "events.json")).expect("it is durable"), b"[ ]");
    assert_eq!(in_work(&w, &a), Some(original));
}

#[test]
fn a_copy_from_before_is_not_taken_for_news() {
    let w = memory();
    let a = new(&w, "One", &[]);
    jp(&w, &["export"]);
    let original = in_work(&w, &a).expect("it is shown");
    let second = original.with_file_name(format!("{}-AAA", digits(&a)));
    copy(&original, &second);
    fs::write(second.join("mine"), "Mine.").expect("a new file");
    super::edit_store(&w, &a, "events.json", "[", "[ ");
    w.jp(&["export"]).fails_with(1).says("a second copy beside");
    let news = fs::read(store_file(&w, &a, "events.json")).expect("a file");
    as_planned(&w, 1, &["export", "--layout", "flat"]);
    assert_eq!(fs::read(store_file(&w, &a, "events.json")).expect("a file"), news);
    assert_eq!(fs::read(original.join("events.json")).expect("a file"), news);
}

#[test]
fn one_file_that_came_back_alone() {
    let w = memory();
    let a = new(&w, "One", &[]);
    jp(&w, &["export"]);
    let (dir, before) = (in_work(&w, &a).expect("it is shown"), contents(&w.silo().join("conversations")));
    let events = fs::read(dir.join("events.json")).expect("a file");
    fs::remove_dir_all(&dir).expect("it can be removed");
    jp(&w, &["export"]);
    fs::create_dir(&dir).expect("a new directory");
    fs::write(dir.join("events.json"), events).expect("a new file");
    jp(&w, &["export"]);
    assert_eq!(contents(&w.silo().join("conversations")), before, "what it lacks is not removed");
    assert_eq!(contents(&dir).len(), 3, "the others come back");
}

#[test]
fn names_change_in_another_worktree_meanwhile() {
    let w = memory();
    let [_, b, _] = family(&w);
    let other = w.env().init_workspace("other", "otvo8");
    std::thread::scope(|scope| {
        let retitled = scope.spawn(|| {
            for round in 0..60 {
                jp(&other, &["c", "edit", "--title", &format!("Round {round}"), &b]);
            }
        });
        while !retitled.is_finished() {
            // Somebody may be at it for longer than anybody waits, but what moves is never taken for damaged.
            let told = w.jp(&["export"]);
            assert!(matches!(told.code, 0 | 3), "{}", told.told());
        }
    });
    jp(&w, &["export"]);
    assert_eq!(says(&w, &b, "title"), "Round 59");
}

#[test]
fn a_hidden_file_that_was_put_back() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    m.sh("cp \"$D/base_config.json\" \"$P/kept\" && rm \"$D/base_config.json\"");
    m.end(&[]);
    m.script("cd \"$M\" && test ! -e \"$D/base_config.json\" && cp \"$P/kept\" \"$D/base_config.json\"").ok();
    as_planned(m.workspace(), 0, &["export"]);
    m.script("cmp \"$P/kept\" \"$M/$D/base_config.json\"").ok();
    m.check_store();
}

#[test]
fn the_last_copies_there_are() {
    let w = workspace();
    let ids = family(&w);
    jp(&w, &["export"]);
    let before = contents(&w.storage().join("conversations"));
    fs::remove_dir_all(w.silo().join("conversations")).expect("removed");
    for args in [&["export", "--check"][..], &["export"]] {
        w.jp(args).fails_with(1).says("jp import");
    }
    jp(&w, &["c", "new", "--title", "Another"]);
    let mut after = contents(&w.storage().join("conversations"));
    after.retain(|path, _| before.contains_key(path));
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "nothing went");
    let told = jp(&w, &["import"]);
    assert_eq!(told.stdout.lines().filter(|line| line.starts_with("import ")).count(), 3, "{}", told.told());
    for id in &ids {
        assert_twins(&w, id);
    }
}
