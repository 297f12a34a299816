//! Programs work on the real files, in ways of their own, and the store has it soon after.

use std::fs;

use jp_tests::{Mirrored, Sample, have, ids};
use serde_json::Value;

use super::{place, real, real_meta};

const NEW: u64 = 17_600_000_001;

/// Asserts that both sides have the same bytes of a conversation's managed files.
#[track_caller]
fn agree(m: &Mirrored, id: u64) {
    let dir = place(m, id).unwrap_or_else(|| panic!("{id} is not among the real files"));
    for name in ["metadata.json", "events.json", "base_config.json"] {
        let stored = m.text(id, name);
        assert_eq!(real(m, dir.join(name).to_str().expect("UTF-8")), stored, "{name} of {id}");
    }
}

#[test]
fn a_save_is_seen_by_itself() {
    let m = Mirrored::new();
    m.sh("sed -i 's/Question 0/Question zero/' \"$C/events.json\"");
    m.soon("an edit", || m.text(ids::C, "events.json").contains("Question zero"));
    m.sh("printf '%s' \"$(sed 's/Weekend/Later/' \"$D/metadata.json\")\" > \"$D/metadata.json\"");
    m.soon("a title", || m.value(ids::D, "metadata.json")["title"] == "Later plans");
    m.soon("a name", || place(&m, ids::D).is_some_and(|dir| dir.ends_with("17528862001-later-plans")));
    m.refresh();
    for id in [ids::A, ids::B, ids::C, ids::D] {
        agree(&m, id);
    }
    m.check_store();
}

#[test]
fn editors() {
    if !have(&["vim", "ed"]) {
        return;
    }
    let m = Mirrored::new();
    let edits: [(&str, &str); 4] = [
        ("vim -Nu NONE -es -c '%s/Question 0/By vim/' -c wq \"$D/events.json\"", "By vim"),
        ("vim -Nu NONE -es -c 'set backupcopy=yes' -c '%s/By vim/In place/' -c wq \"$D/events.json\"", "In place"),
        ("printf '%s\\n' '1,$s/In place/By ed/' w q | ed -s \"$D/events.json\"", "By ed"),
        ("sed 's/By ed/By mv/' \"$D/events.json\" > \"$T/x\" && mv \"$T/x\" \"$D/events.json\"", "By mv"),
    ];
    for (script, text) in edits {
        m.sh(script);
        m.soon(text, || m.text(ids::D, "events.json").contains(text));
    }
    m.refresh();
    agree(&m, ids::D);
    m.check_store();
}

#[test]
fn conversations_arrive() {
    for how in [
        "cp -r \"$T/new/\"* .",
        "cd \"$T/new\" && tar c . | tar x -C \"$M\"",
        "mkdir \"$A/conversations/late\" && rmdir \"$A/conversations/late\" && mv \"$T/new/\"* \"$A/conversations/\"",
    ] {
        let m = Mirrored::new();
        let new = Sample::new(NEW).title("Pulled").events(6).file("notes/plan.md", "a plan\n");
        new.write_below(&m.workspace().env().root().join("tmp/new"));
        m.sh(how);
        m.soon(how, || m.find_stored(NEW).is_some_and(|dir| dir.join("notes/plan.md").is_file()));
        m.refresh();
        for (name, bytes) in new.contents() {
            // A place gives a parent, without a word in the file.
            assert_eq!(m.text(NEW, &name).as_bytes(), bytes, "{name} after {how}");
        }
        assert_eq!(m.text(NEW, "notes/plan.md"), "a plan\n");
        let parent = if how.contains("$A") { Value::from(format!("jp-c{}", ids::A)) } else { Value::Null };
        assert_eq!(m.says(NEW, "parent"), parent, "{how}");
        assert_eq!(m.says(NEW, "presence"), "projected");
        // What comes later into directories that came by themselves is noticed as well.
        let notes = place(&m, NEW).expect("it is there").join("notes");
        m.sh(&format!(
            "echo more >> {notes}/plan.md; mkdir {notes}/deep; echo deep > {notes}/deep/x",
            notes = notes.display()
        ));
        m.soon("a file in a directory that arrived", || m.stored(NEW).join("notes/deep/x").is_file());
        m.refresh();
        assert_eq!(
            (m.text(NEW, "notes/plan.md"), m.text(NEW, "notes/deep/x")),
            ("a plan\nmore\n".into(), "deep\n".into())
        );
        m.check_store();
    }
}

#[test]
fn a_moved_directory_moves_the_conversation() {
    let m = Mirrored::new();
    m.sh("mkdir -p \"$D/conversations\" && mv \"$B\" \"$D/conversations/\"");
    m.soon("another parent", || m.says(ids::B, "parent") == format!("jp-c{}", ids::D));
    m.refresh();
    assert_eq!(m.value(ids::B, "metadata.json")["parent_id"], ids::D);
    assert_eq!(m.says(ids::C, "parent"), format!("jp-c{}", ids::B), "what was beneath it came along");
    let names = "17528862001-weekend-plans/conversations/17528842001-alternative-approach";
    assert!(place(&m, ids::C).expect("it is there").starts_with(names));
    // What moved is watched where it is.
    m.sh(&format!(
        "sed -i 's/Question 0/After the move/' {names}/conversations/17528852001-third-thoughts/events.json"
    ));
    m.soon("an edit after the move", || m.text(ids::C, "events.json").contains("After the move"));

    m.sh_in_step("mkdir -p .archive && mv \"$D\" .archive/");
    assert_eq!((m.says(ids::D, "archived"), m.says(ids::C, "archived")), (true.into(), true.into()));
    m.sh_in_step("mv .archive/17528862001-weekend-plans .");
    assert_eq!((m.says(ids::D, "archived"), m.says(ids::C, "archived")), (false.into(), false.into()));
    for id in [ids::A, ids::B, ids::C, ids::D] {
        agree(&m, id);
    }
    m.check_store();
}

#[test]
fn what_is_removed_is_hidden_here_and_nothing_else() {
    let m = Mirrored::new();
    let before = m.store();
    m.sh("rm -r \"$A\"");
    m.soon("hidden", || m.says(ids::A, "presence") == "local");
    m.refresh();
    assert_eq!((m.says(ids::B, "presence"), m.says(ids::C, "presence")), ("local".into(), "local".into()));
    assert_eq!(m.says(ids::D, "presence"), "projected");
    assert_eq!(m.store(), before);
    assert_eq!(place(&m, ids::A), None, "it does not come back");
    m.jp(&["c", "edit", "--local=false", &format!("jp-c{}", ids::A)]).ok();
    m.soon("shown again", || {
        real_meta(&m, "17528832001-refactor-error-handling")["title"] == "Refactor error handling"
    });
    assert_eq!(m.store(), before);
    m.check_store();
}

/// Removes a tree one thing at a time, for much longer than any other burst of changes is waited for.
const SLOWLY: &str = r#"
import os, select, sys
for path, dirs, files in os.walk(sys.argv[1], topdown=False):
    # What would be brought back goes first.
    for name in sorted(files, reverse=True):
        os.unlink(os.path.join(path, name))
        select.select([], [], [], 0.1)
    for name in dirs:
        os.rmdir(os.path.join(path, name))
os.rmdir(sys.argv[1])
"#;

#[test]
fn whoever_removes_slowly_is_not_in_its_way() {
    if !have(&["python3"]) {
        return;
    }
    let m = Mirrored::new();
    m.sh("for number in $(seq 9); do echo note > \"$A/$number.md\"; done");
    m.refresh();
    let before = m.store();
    fs::write(m.workspace().env().root().join("tmp/slowly.py"), SLOWLY).expect("written");
    m.sh("python3 \"$T/slowly.py\" \"$A\"");
    m.soon("hidden", || m.says(ids::A, "presence") == "local");
    m.refresh();
    assert_eq!((place(&m, ids::A), place(&m, ids::C)), (None, None));
    assert_eq!(m.store(), before);
    m.check_store();
}

#[test]
fn the_whole_directory_is_removed_and_comes_back() {
    for remove in ["rm -r \"$M\"", "mv \"$M\" \"$T/aside\""] {
        let m = Mirrored::new();
        let before = m.store();
        m.script(&format!("cp -r \"$M\" \"$T/copy\" && {remove}")).ok();
        m.soon("hidden", || m.says(ids::D, "presence") == "local");
        m.refresh();
        assert_eq!(m.store(), before, "{remove}");
        assert!(m.is_mirrored() && place(&m, ids::D).is_none());
        // What takes its place is watched as the first one was.
        m.script("rm -rf \"$M\" && cp -r \"$T/copy\" \"$M\"").ok();
        m.soon("shown", || m.says(ids::C, "presence") == "projected");
        m.sh("sed -i 's/Weekend/Later/' \"$D/metadata.json\"");
        m.soon("an edit", || m.value(ids::D, "metadata.json")["title"] == "Later plans");
        m.refresh();
        m.check_store();
    }
}

#[test]
fn what_does_not_parse_is_held_and_named() {
    let m = Mirrored::new();
    let good = m.text(ids::D, "metadata.json");
    m.sh_in_step("printf '{ \"title\": oops' > \"$D/metadata.json\"; sed -i 's/Refactor/Rework/' \"$A/metadata.json\"");
    assert_eq!(m.text(ids::D, "metadata.json"), good);
    assert_eq!(m.value(ids::A, "metadata.json")["title"], "Rework error handling", "it keeps nobody else");
    assert_eq!(real(&m, "17528862001-weekend-plans/metadata.json"), "{ \"title\": oops");
    let mounts = m.status("mounts");
    let held = mounts[0]["held"].as_array().expect("an array");
    let [one] = held.as_slice() else { panic!("one is held: {mounts:#?}") };
    let reason = one["reason"].as_str().expect("a reason");
    assert!(reason.contains("17528862001-weekend-plans/metadata.json") && reason.contains("line 1"), "{reason}");
    let told = m.jp(&["status"]);
    assert!(
        told.stdout.lines().any(|line| line.starts_with("held") && line.contains("metadata.json")),
        "{}",
        told.told()
    );
    assert!(m.rest() > 0, "what is held is not tried again and again");

    let better = good.replace("Weekend", "Better");
    fs::write(m.point().join("17528862001-weekend-plans/metadata.json"), &better).expect("written");
    m.soon("a good save", || m.text(ids::D, "metadata.json") == better);
    m.refresh();
    assert_eq!(m.status("mounts")[0]["held"], Value::Array(Vec::new()));
    m.check_store();
}

#[test]
fn scratch_never_enters_the_store() {
    let m = Mirrored::new();
    let before = m.store();
    m.sh_in_step("echo x > \"$D/.metadata.json.swp\"; echo x > \"$D/notes.md~\"; echo x > \"$D/new.tmp\"");
    assert_eq!(m.store(), before);
    m.sh("sed 's/Weekend/Later/' \"$D/metadata.json\" > \"$D/new.tmp\" && mv \"$D/new.tmp\" \"$D/metadata.json\"");
    m.soon("a save by rename", || m.value(ids::D, "metadata.json")["title"] == "Later plans");
    m.check_store();
}

#[test]
fn git_switches_branches_beneath_it() {
    if !have(&["git"]) {
        return;
    }
    let m = Mirrored::new();
    m.script(
        "cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=one
              git switch --quiet --create=other && sed -i 's/Weekend/Other/' \".jp/conversations/$D/metadata.json\"",
    )
    .ok();
    m.refresh();
    m.script("cd \"$P\" && git add --all && git commit --quiet --message=two && git switch --quiet main").ok();
    m.soon("the first branch", || m.value(ids::D, "metadata.json")["title"] == "Weekend plans");
    m.refresh();
    assert_eq!(m.script("cd \"$P\" && git status --porcelain").ok().stdout, "");
    m.script("cd \"$P\" && git switch --quiet other").ok();
    m.soon("the other branch", || m.value(ids::D, "metadata.json")["title"] == "Other plans");
    m.refresh();
    assert_eq!(m.script("cd \"$P\" && git status --porcelain").ok().stdout, "");
    m.check_store();
}
