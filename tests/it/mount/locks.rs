//! Somebody holds a conversation while programs save into it through the mount.

use std::fs;

use jp_tests::{LIMIT, Mounted, Running, ids, wait_for};
use serde_json::Value;

use super::{everyone, everyone_with, put, said};

/// Holds a conversation until its standard input is closed.
#[track_caller]
fn hold(m: &Mounted, id: u64) -> Running {
    let holder = m.start(&format!("exec jp lock run jp-c{id} -- cat"));
    let file = m.workspace().silo().join(format!("locks/jp-c{id}.lock"));
    wait_for("the lock", LIMIT, || fs::read(&file).is_ok_and(|text| !text.is_empty()));
    holder
}

#[test]
fn what_is_held_is_busy() {
    everyone(|m| {
        let before = m.store();
        put(m, "new.json", &said("while held", 100));
        m.sh("cp \"$T/new.json\" \"$D/x.tmp\"");
        let holder = hold(m, ids::D);
        for script in [
            ": > \"$D/events.json\"",
            "truncate -s 3 \"$D/metadata.json\"",
            "echo x >> \"$D/events.json\"",
            "mv \"$D/x.tmp\" \"$D/events.json\"",
            "rm \"$D/events.json\"",
            "mv \"$D\" \"$A/conversations/\"",
            "mv \"$D\" '17528862001-Other title'",
            "mv \"$D\" .archive/",
        ] {
            let told = m.try_sh(script);
            assert_ne!(told.code, 0, "{}", told.told());
            assert!(told.stderr.contains("busy"), "{}", told.told());
        }
        // Nothing happened, and whoever reads or writes elsewhere is not concerned.
        assert_eq!(m.store(), before);
        m.sh("cat \"$D/events.json\" \"$D/metadata.json\" > /dev/null; cmp \"$T/new.json\" \"$D/x.tmp\"");
        m.sh("cmp \"$D/events.json\" \"$U/conversations/$D/events.json\"; cat \"$T/new.json\" > \"$C/events.json\"");
        assert_eq!(m.text(ids::C, "events.json"), said("while held", 100));
        holder.finish().ok();
        m.sh("mv \"$D/x.tmp\" \"$D/events.json\"");
        assert_eq!(m.text(ids::D, "events.json"), said("while held", 100));
        assert_eq!(m.status("drafts"), [] as [Value; 0]);
        m.check_store();
    });
}

/// Writes half, waits for the word, writes the rest, and says how that ended.
const HALVES: &str = r#"
import errno, os, select, sys
path, document, here = sys.argv[1], open(sys.argv[2]).read().encode(), sys.argv[3]
file = os.open(path, os.O_WRONLY | os.O_TRUNC)
os.write(file, document[:50])
open(here + "/half", "w").close()
while not os.path.exists(here + "/go"):
    select.select([], [], [], 0.005)
try:
    assert os.write(file, document[50:]) == len(document) - 50
    print("saved")
except OSError as err:
    print(errno.errorcode[err.errno])
"#;

/// Begins a save, has the conversation taken in the middle of it, and ends the save.
#[track_caller]
fn interrupted(m: &Mounted, document: &str) -> Running {
    put(m, "new.json", document);
    put(m, "halves.py", HALVES);
    m.script("rm -f \"$T/half\" \"$T/go\"").ok();
    let writer = m.start("exec python3 \"$T/halves.py\" \"$M/$D/events.json\" \"$T/new.json\" \"$T\"");
    let half = m.workspace().env().root().join("tmp/half");
    wait_for("half a save", LIMIT, || half.exists());
    let holder = hold(m, ids::D);
    m.script("touch \"$T/go\"").ok();
    let told = writer.finish().ok();
    assert_eq!(told.stdout, "EBUSY\n", "{}", told.told());
    holder
}

#[test]
fn a_save_that_was_overtaken_commits_by_itself() {
    everyone_with(&["python3"], &[], |m| {
        let before = m.store();
        let document = said("overtaken", 100);
        let holder = interrupted(m, &document);
        assert_eq!(m.store(), before);
        assert_eq!(m.sh("cat \"$D/events.json\"").stdout, document, "the bytes are kept");
        let drafts = m.status("drafts");
        assert_eq!(drafts.len(), 1, "{drafts:#?}");
        holder.finish().ok();
        let file = m.stored(ids::D).join("events.json");
        wait_for("the draft in the store", LIMIT, || fs::read_to_string(&file).is_ok_and(|t| t == document));
        wait_for("no draft", LIMIT, || m.status("drafts").is_empty());
        assert_eq!(m.status("conflicts"), [] as [Value; 0]);
        m.check_store();
    });
}

#[test]
fn a_save_that_was_outdated_is_a_conflict() {
    everyone_with(&["python3"], &[], |m| {
        let holder = interrupted(m, &said("mine", 100));
        // The holder goes on to write, as a program does that has the lock.
        put(m, "theirs.json", &said("theirs", 100));
        m.script("cp \"$T/theirs.json\" \"$T/theirs.new\"; mv \"$T/theirs.new\" \"$U/conversations/$D/events.json\"")
            .ok();
        holder.finish().ok();
        let conflicts = || m.status("conflicts");
        wait_for("the conflict", LIMIT, || !conflicts().is_empty());
        assert_eq!(conflicts()[0]["id"], format!("jp-c{}", ids::D));
        // One of the two is the store's, and both are there.
        let everything =
            m.script("cat \"$U/conversations/$D/events.json\"; cat $(find \"$U/vfs\" -type f)").ok().stdout;
        assert!(everything.contains("\"mine\"") && everything.contains("\"theirs\""), "{everything}");
        m.check_store();
    });
}

#[test]
fn whoever_holds_it_is_let_through() {
    everyone(|m| {
        put(m, "new.json", &said("beneath", 100));
        put(
            m,
            "inside.sh",
            "cat \"$T/new.json\" > \"$M/$D/events.json\"\nsed -i s/Weekend/Held/ \"$M/$D/metadata.json\"\n\
             mv \"$M/17528862001-held-plans\" \"$M/$A/conversations/\"\n",
        );
        m.script("exec jp lock run jp-c17528862001 -- bash -eu \"$T/inside.sh\"").ok();
        assert_eq!(m.text(ids::D, "events.json"), said("beneath", 100));
        assert_eq!(m.value(ids::D, "metadata.json")["title"], "Held plans");
        assert_eq!(m.value(ids::D, "metadata.json")["parent_id"], ids::A);
        assert_eq!(m.status("drafts"), [] as [Value; 0]);
        assert!(!m.workspace().silo().join("locks/jp-c17528862001.lock").exists(), "nothing stays behind");
        m.check_store();
    });
}
