//! Programs write to the memory of a file (`mmap` with `MAP_SHARED`). The kernel brings that to the daemon later, and for no
//! process: nobody could be told that it is refused.

use std::fs;

use jp_tests::{LIMIT, Mounted, Running, ids, until, wait_for};
use serde_json::Value;

use super::{everyone_with, put, said};

/// Replaces one text by another of the same length in the memory of a file.
pub(super) const WRITE: &str = r#"
import mmap, sys
path, old, new = sys.argv[1], sys.argv[2].encode(), sys.argv[3].encode()
assert len(old) == len(new)
with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
    at = memory.find(old)
    assert at >= 0, memory[:200]
    memory[at:at + len(new)] = new
    memory.flush()
print("written")
"#;

#[track_caller]
fn write(m: &Mounted, path: &str, old: &str, new: &str) {
    put(m, "write.py", WRITE);
    let told = m.sh(&format!("exec python3 \"$T/write.py\" \"{path}\" '{old}' '{new}'"));
    assert_eq!(told.stdout, "written\n", "{}", told.told());
}

/// The same without `msync`: the kernel writes the page back later, and reports an error to no process.
const WRITE_UNSYNCED: &str = r#"
import mmap, sys
path, old, new = sys.argv[1], sys.argv[2].encode(), sys.argv[3].encode()
file = open(path, "r+b")
memory = mmap.mmap(file.fileno(), 0)
at = memory.find(old)
assert at >= 0 and len(old) == len(new)
memory[at:at + len(new)] = new
"#;

/// Holds a conversation until its standard input is closed.
#[track_caller]
fn hold(m: &Mounted, id: u64) -> Running {
    let holder = m.start(&format!("exec jp lock run jp-c{id} -- cat"));
    let file = m.workspace().silo().join(format!("locks/jp-c{id}.lock"));
    wait_for("the lock", LIMIT, || fs::read(&file).is_ok_and(|text| !text.is_empty()));
    holder
}

#[test]
fn what_is_free_is_saved() {
    everyone_with(&["python3"], &[], |m| {
        for size in [10, 20_000, 3_000_000] {
            let document = said("riddle", size);
            put(m, "new.json", &document);
            m.sh("cat \"$T/new.json\" > \"$D/events.json\"; printf 'one two' > \"$D/notes.md\"");
            write(m, "$D/events.json", "riddle", "RIDDLE");
            write(m, "$D/notes.md", "two", "TWO");
            assert_eq!(m.text(ids::D, "events.json"), document.replace("riddle", "RIDDLE"));
            assert_eq!(m.text(ids::D, "notes.md"), "one TWO");
        }
        assert_eq!(m.status("drafts"), [] as [Value; 0]);
        m.check_store();
    });
}

#[test]
fn what_is_held_waits_and_commits_by_itself() {
    everyone_with(&["python3"], &[], |m| {
        let document = said("riddle", 20_000);
        put(m, "new.json", &document);
        m.sh("cat \"$T/new.json\" > \"$D/events.json\"; printf 'one two' > \"$D/notes.md\"");
        let holder = hold(m, ids::D);
        write(m, "$D/events.json", "riddle", "RIDDLE");
        let written = document.replace("riddle", "RIDDLE");
        assert_eq!(m.sh("cat \"$D/events.json\"").stdout, written, "it is shown");
        assert_eq!(m.text(ids::D, "events.json"), document, "somebody works on the conversation");
        let drafts = m.status("drafts");
        assert_eq!((drafts.len(), &drafts[0]["waiting"]), (1, &Value::from("lock")), "{drafts:#?}");
        // A file of the user's own has no drafts: what is shown is in the store.
        write(m, "$D/notes.md", "two", "TWO");
        assert_eq!(m.sh("cat \"$D/notes.md\"").stdout, "one TWO");
        assert_eq!(m.text(ids::D, "notes.md"), "one TWO");
        holder.finish().ok();
        let file = m.stored(ids::D).join("events.json");
        wait_for("the draft in the store", LIMIT, || fs::read_to_string(&file).is_ok_and(|text| text == written));
        wait_for("no draft", LIMIT, || m.status("drafts").is_empty());
        assert_eq!(m.status("conflicts"), [] as [Value; 0]);
        assert_eq!(m.sh("cat \"$D/events.json\"").stdout, written);
        m.check_store();
    });
}

/// The file shows what the store or a listed draft has.
#[test]
fn a_write_without_msync_to_a_held_conversation_becomes_a_draft() {
    everyone_with(&["python3"], &[], |m| {
        let document = said("riddle", 20_000);
        put(m, "new.json", &document);
        put(m, "write.py", WRITE_UNSYNCED);
        m.sh("cat \"$T/new.json\" > \"$D/events.json\"");
        let holder = hold(m, ids::D);
        m.try_sh("python3 \"$T/write.py\" \"$D/events.json\" riddle RIDDLE; sync -f \"$D/events.json\"");
        let written = document.replace("riddle", "RIDDLE");
        let shown = || m.sh("cat \"$D/events.json\"").stdout;
        let is_named = || m.status("drafts").len() == 1 && shown() == written;
        assert!(
            until(LIMIT, || is_named() || shown() == document),
            "the file shows the write, and neither the store nor a draft has it"
        );
        assert!(is_named(), "the write is lost");
        holder.finish().ok();
        wait_for("the draft in the store", LIMIT, || m.text(ids::D, "events.json") == written);
        wait_for("no draft", LIMIT, || m.status("drafts").is_empty());
        m.check_store();
    });
}

#[test]
fn what_waits_survives_the_daemon() {
    everyone_with(&["python3"], &[], |m| {
        let document = said("riddle", 20_000);
        put(m, "new.json", &document);
        m.sh("cat \"$T/new.json\" > \"$D/events.json\"");
        let holder = hold(m, ids::D);
        write(m, "$D/events.json", "riddle", "RIDDLE");
        m.crash();
        holder.finish().ok();
        m.begin(&[]);
        let (file, written) = (m.stored(ids::D).join("events.json"), document.replace("riddle", "RIDDLE"));
        wait_for("the draft in the store", LIMIT, || fs::read_to_string(&file).is_ok_and(|text| text == written));
    });
}

#[test]
fn what_was_outdated_is_a_conflict() {
    everyone_with(&["python3"], &[], |m| {
        put(m, "new.json", &said("riddle", 100));
        m.sh("cat \"$T/new.json\" > \"$D/events.json\"");
        let holder = hold(m, ids::D);
        write(m, "$D/events.json", "riddle", "RIDDLE");
        put(m, "theirs.json", &said("theirs", 100));
        m.script("cp \"$T/theirs.json\" \"$T/theirs.new\"; mv \"$T/theirs.new\" \"$U/conversations/$D/events.json\"")
            .ok();
        holder.finish().ok();
        wait_for("the conflict", LIMIT, || !m.status("conflicts").is_empty());
        let everything =
            m.script("cat \"$U/conversations/$D/events.json\"; cat $(find \"$U/vfs\" -type f)").ok().stdout;
        assert!(everything.contains("RIDDLE") && everything.contains("theirs"), "{everything}");
        m.check_store();
    });
}
