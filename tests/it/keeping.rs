//! Whatever loses its place keeps its bytes: second copies, files that do not parse, names that clash, trees where the
//! workspace is the only root.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use jp_store::ConversationId;
use jp_store::disk::RealDisk;
use jp_store::layout::Partition;
use jp_store::lock::Wait;
use jp_store::store::{Store, Surroundings};
use jp_store::writer::{Strategy, Writer};
use jp_tests::{Sample, Workspace, mtime, set_mtime};

use crate::story::{
    SECOND, digits, in_store, in_work, jp, kept, new, number, presence, rewrite, says, store_file, work_file, workspace,
};

const A: u64 = 17_528_832_001;
const B: u64 = 17_528_842_001;

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("listed").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).expect("copied");
            set_mtime(&target, mtime(&entry.path()));
        }
    }
}

/// A second directory of a shown conversation, older, with a title of its own.
fn second_copy(main: &Workspace, id: &str, beneath: &Path) -> std::path::PathBuf {
    let first = in_work(main, id).expect("shown");
    let second = beneath.join(format!("{}-second", digits(id)));
    fs::create_dir_all(&second).expect("made");
    for name in crate::story::MANAGED {
        fs::copy(first.join(name), second.join(name)).expect("copied");
        set_mtime(&second.join(name), mtime(&first.join(name)) - 60 * SECOND);
    }
    rewrite(&second.join("metadata.json"), "Upload", "Second thoughts", -SECOND);
    second
}

#[test]
fn hiding_keeps_what_does_not_parse() {
    let main = workspace();
    let id = new(&main, "Upload", &[]);
    fs::write(work_file(&main, &id, "events.json"), "<<<<<<< ours\n[]\n").expect("written");
    jp(&main, &["c", "edit", &id, "--local"]);
    assert_eq!(in_work(&main, &id), None);
    assert_eq!(kept(&main, &id, "events.json"), ["<<<<<<< ours\n[]\n"]);
}

#[test]
fn hiding_keeps_second_copies() {
    let main = workspace();
    let id = new(&main, "Upload", &[]);
    second_copy(&main, &id, &main.storage().join("conversations"));
    jp(&main, &["c", "edit", &id, "--local"]);
    assert_eq!(in_work(&main, &id), None);
    assert!(kept(&main, &id, "metadata.json").iter().any(|text| text.contains("Second thoughts")), "lost");
}

#[test]
fn removing_keeps_second_copies_of_others() {
    let main = workspace();
    let id = new(&main, "Upload", &[]);
    let doomed = new(&main, "Doomed", &[]);
    second_copy(&main, &id, &work_file(&main, &doomed, "conversations"));
    jp(&main, &["c", "rm", &doomed, "--yes"]);
    assert_eq!(presence(&main, &doomed), "gone");
    assert!(kept(&main, &id, "metadata.json").iter().any(|text| text.contains("Second thoughts")), "lost");
}

#[test]
fn a_leftover_of_a_trashed_conversation_stays() {
    let main = workspace();
    let (id, other) = (new(&main, "Upload", &[]), new(&main, "Other", &[]));
    // As the real tool does with what it cannot read.
    fs::write(store_file(&main, &id, "events.json"), "[").expect("written");
    let from = in_store(&main, &id).expect("there");
    let trash = main.silo().join("conversations/.trash");
    fs::create_dir_all(&trash).expect("made");
    fs::rename(&from, trash.join(from.file_name().expect("a name"))).expect("moved");
    jp(&main, &["c", "archive", &other]);
    assert_eq!(presence(&main, &id), "external", "the only good copy is still there");
}

#[test]
fn a_file_where_the_other_root_has_a_directory() {
    let main = workspace();
    let id = new(&main, "Upload", &[]);
    let file = store_file(&main, &id, "notes");
    fs::write(&file, "a file").expect("written");
    set_mtime(&file, mtime(&file) - 60 * SECOND);
    fs::create_dir(work_file(&main, &id, "notes")).expect("made");
    fs::write(work_file(&main, &id, "notes/one.md"), "one").expect("written");
    jp(&main, &["c", "edit", &id, "--title", "Still works"]);
    assert_eq!(fs::read_to_string(store_file(&main, &id, "notes/one.md")).expect("the newer one counts"), "one");
    assert_eq!(kept(&main, &id, "notes"), ["a file"]);
    jp(&main, &["c", "edit", &id, "--local"]);
    assert_eq!(fs::read_to_string(store_file(&main, &id, "notes/one.md")).expect("there"), "one");
}

#[test]
fn a_script_stays_a_script() {
    let main = workspace();
    let id = new(&main, "Upload", &[]);
    let script = work_file(&main, &id, "run.sh");
    fs::write(&script, "#!/bin/sh\n").expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("set");
    jp(&main, &["c", "edit", &id, "--pin"]);
    let mode = fs::metadata(store_file(&main, &id, "run.sh")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "its owner can execute it; others cannot reach it");
}

#[test]
fn the_doctor_prefers_a_second_copy_that_is_sound() {
    let main = workspace();
    let id = new(&main, "Upload", &["--local"]);
    let first = in_store(&main, &id).expect("there");
    let second = first.with_file_name(format!("{}-second", digits(&id)));
    copy_dir(&first, &second);
    for name in ["metadata.json", "events.json"] {
        let time = mtime(&first.join(name)) + 60 * SECOND;
        fs::write(first.join(name), "{").expect("written");
        set_mtime(&first.join(name), time);
    }
    let told = main.jp(&["doctor", "--fix"]).told();
    assert_eq!(says(&main, &id, "title"), "Upload", "{told}");
    assert!(second.is_dir(), "{told}");
}

#[test]
fn parent_and_child_swap_places() {
    let main = workspace();
    let a = new(&main, "Parent", &[]);
    let b = new(&main, "Child", &["--parent", &a]);
    // By hand: the child becomes the root, and the parent hangs beneath it.
    rewrite(
        &work_file(&main, &b, "metadata.json"),
        &format!("\"parent_id\": {}", number(&a)),
        "\"parent_id\": null",
        SECOND,
    );
    rewrite(&work_file(&main, &a, "metadata.json"), "{\n", &format!("{{\n  \"parent_id\": {},\n", number(&b)), SECOND);
    jp(&main, &["c", "edit", &a, "--pin"]);
    assert_eq!(crate::story::nesting(&main, &a), ["child", "parent"]);
}

#[test]
fn a_second_copy_with_children_is_in_nobodys_way() {
    let main = workspace();
    let a = new(&main, "Upload", &[]);
    let b = new(&main, "Child", &["--parent", &a]);
    let other = new(&main, "Other", &[]);
    // A merge of two branches left the directory twice: the newer metadata under an old name, the children at the right one.
    let first = in_work(&main, &a).expect("shown");
    let second = first.with_file_name(format!("{}-old", digits(&a)));
    fs::create_dir(&second).expect("made");
    for name in crate::story::MANAGED {
        fs::copy(first.join(name), second.join(name)).expect("copied");
        set_mtime(&second.join(name), mtime(&first.join(name)) + SECOND);
    }
    rewrite(&first.join("events.json"), "[", "[ ", -60 * SECOND);
    jp(&main, &["c", "archive", &other]);
    jp(&main, &["c", "edit", &a, "--pin"]);
    assert_eq!(presence(&main, &b), "projected");
    assert_eq!(crate::story::nesting(&main, &b), ["upload", "child"]);
}

#[test]
fn leftovers_of_a_process_with_our_number() {
    let main = workspace();
    new(&main, "Upload", &[]);
    let store = single_or_both(&main, Some(main.env().data()));
    let tmp = main.silo().join("vfs/tmp");
    for serial in 0..2_000 {
        let dir = tmp.join(format!("{}-{serial}", std::process::id()));
        fs::create_dir_all(dir.join("inside")).expect("made");
    }
    let id = ConversationId::new(number(&new(&main, "Doomed", &["--local"]))).expect("an id");
    store.remove(id, Strategy::Refuse, &Wait::none()).expect("nothing is in its way");
}

fn single_or_both(main: &Workspace, data_dir: Option<std::path::PathBuf>) -> Writer {
    let around = Surroundings {
        disk: Arc::new(RealDisk::default()),
        data_dir,
        pid: std::process::id(),
        session: None,
        clock: Arc::new(|| "2026-08-20T12:00:00Z".parse().expect("a time")),
        covered: Arc::new(|_| false),
    };
    Store::open(around, main.root()).expect("opened").writer().expect("ready").0
}

/// A workspace without a store, in which B lies beneath A.
fn nested(parent: Option<u64>) -> (Workspace, Writer, [ConversationId; 2]) {
    let main = workspace();
    let conversations = main.storage().join("conversations");
    let outer = Sample::new(A).title("Outer").write_below(&conversations);
    let inner = Sample::new(B).title("Inner");
    match parent {
        Some(parent) => inner.parent(parent),
        None => inner.key("parent_id", serde_json::Value::Null),
    }
    .write_below(&outer.join("conversations"));
    let writer = single_or_both(&main, None);
    (main, writer, [A, B].map(|n| ConversationId::new(n).expect("an id")))
}

#[test]
fn a_nested_child_survives_its_parent_in_the_only_root() {
    let (_main, writer, [a, b]) = nested(Some(A));
    writer.remove(a, Strategy::Promote, &Wait::none()).expect("removed");
    let now = writer.store().snapshot().expect("a snapshot");
    assert!(now.get(a).is_none());
    assert!(now.get(b).is_some_and(|found| found.meta.is_some()), "the child went with its parent");
}

#[test]
fn what_lies_beneath_by_chance_survives_in_the_only_root() {
    let (_main, writer, [a, b]) = nested(None);
    writer.remove(a, Strategy::Refuse, &Wait::none()).expect("removed");
    let now = writer.store().snapshot().expect("a snapshot");
    assert!(now.get(b).is_some_and(|found| found.meta.is_some()), "it is not a's child");
}

#[test]
fn what_lies_beneath_by_chance_is_not_archived_along() {
    let (_main, writer, [a, b]) = nested(None);
    writer.archive(a, &Wait::none()).expect("archived");
    let now = writer.store().snapshot().expect("a snapshot");
    assert_eq!(now.get(a).map(|found| found.partition), Some(Partition::Archived));
    assert_eq!(now.get(b).map(|found| found.partition), Some(Partition::Live));
}

#[test]
fn the_doctor_leaves_what_lies_beneath_a_broken_one() {
    let (main, writer, [_, b]) = nested(Some(A));
    fs::write(main.storage().join("conversations").join(format!("{A}-outer")).join("events.json"), "{")
        .expect("written");
    writer.fix().expect("mended as far as it goes");
    let now = writer.store().snapshot().expect("a snapshot");
    assert!(now.get(b).is_some(), "a sound conversation went to the trash with a broken one");
}
