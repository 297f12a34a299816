//! Programs that look, copy, move, remove and rewrite, by root and by a user without rights. After each, what the store
//! holds.

use std::fs;

use jp_tests::{Mounted, Sample, ids, mtime};
use serde_json::Value;

use super::{everyone, everyone_with, lines, put, said};

const A_DIR: &str = "17528832001-refactor-error-handling";
const D_DIR: &str = "17528862001-weekend-plans";

#[test]
fn looking() {
    everyone_with(&["tree", "rg"], &[], |m| {
        let before = m.store();
        assert_eq!(lines(&m.sh("ls").stdout), [A_DIR, D_DIR]);
        assert_eq!(lines(&m.sh("ls -A").stdout), [".archive", A_DIR, D_DIR]);
        let found = m.sh("find . -name metadata.json").stdout;
        let shown = m.sh("for x in \"$O\" \"$A\" \"$B\" \"$C\" \"$D\"; do echo \"./$x/metadata.json\"; done").stdout;
        assert_eq!(lines(&found), lines(&shown));
        assert_eq!(m.sh("find . -type f | wc -l").stdout.trim(), "15");
        assert_eq!(m.sh("find . ! -type f ! -type d").stdout, "", "links of convenience are not listed");
        // Children directories are listed where there are children, and can be entered anywhere.
        assert_eq!(
            lines(&m.sh("ls \"$A\"").stdout),
            ["base_config.json", "conversations", "events.json", "metadata.json"]
        );
        assert_eq!(lines(&m.sh("ls \"$D\"").stdout), ["base_config.json", "events.json", "metadata.json"]);
        assert_eq!(m.sh("ls -A \"$D/conversations\"").stdout, "");

        let all = m.sh("ls -R").stdout;
        assert!(all.contains("17528852001-third-thoughts") && !all.contains("secret"), "{all}");
        let drawn = m.sh("tree -a .").stdout;
        assert!(drawn.contains("17528852001-third-thoughts") && drawn.contains("9 directories, 15 files"), "{drawn}");
        for name in ["metadata.json", "events.json", "base_config.json"] {
            assert_eq!(m.sh(&format!("cat \"$C/{name}\"")).stdout, m.text(ids::C, name));
        }
        let question = "Question 0 of jp-c17528852001";
        let place = m.sh("echo \"./$C/events.json\"").stdout;
        assert_eq!(m.sh(&format!("grep -rl '{question}' .")).stdout, place);
        assert_eq!(m.sh(&format!("rg -l '{question}' .")).stdout, place);
        assert_eq!(m.sh("rg -l --hidden 'Old talk'").stdout, m.sh("echo \"$O/metadata.json\"").stdout);
        assert_eq!(m.store(), before, "looking changes nothing");
        m.check_store();
    });
}

#[test]
fn copying_out() {
    everyone_with(&["rsync"], &[], |m| {
        let before = m.store();
        m.sh("mkdir \"$T/cp\" \"$T/tar\" \"$T/rsync\"
              cp -r . \"$T/cp\"
              tar cf - . | tar xf - -C \"$T/tar\"
              rsync -a ./ \"$T/rsync/\"
              for way in cp tar rsync; do diff -r . \"$T/$way\"; done");
        assert_eq!(m.sh("rsync -ain ./ \"$T/rsync/\"").stdout, "", "size, time and mode are those of the mount");
        let events = m.sh("cat \"$T/tar/$C/events.json\"").stdout;
        assert_eq!(events, m.text(ids::C, "events.json"));
        assert_eq!(m.store(), before);
    });
}

/// Conversations that no store has seen: a parent with a note, and its child, which names no parent.
#[track_caller]
fn bring(m: &Mounted, id: u64) -> [Sample; 2] {
    let parent =
        Sample::new(id).title("Brought in").events(6).file("notes.md", "a note\n").file("sub/plan.md", "a plan\n");
    let child = Sample::new(id + 1).title("Its child").events(12);
    let dir = parent.write_below(&m.workspace().env().root().join("tmp/from"));
    child.write_below(&dir.join("conversations"));
    m.give();
    [parent, child]
}

/// Asserts that the store has exactly the bytes that were brought, and the tree the place they were brought to.
#[track_caller]
fn assert_brought(m: &Mounted, id: u64, samples: &[Sample; 2]) {
    for (id, sample) in [(id, &samples[0]), (id + 1, &samples[1])] {
        for (name, bytes) in sample.contents() {
            assert_eq!(m.text(id, &name), String::from_utf8_lossy(&bytes), "{name} of {id}");
        }
        assert_eq!(m.says(id, "presence"), "projected");
    }
    assert_eq!(m.says(id, "parent"), Value::Null);
    assert_eq!(m.says(id + 1, "parent"), format!("jp-c{id}"));
    assert!(!m.stored(id).join("conversations").exists(), "the store is flat");
    m.check_store();
}

#[test]
fn copying_in_what_is_new() {
    everyone_with(&["rsync"], &[], |m| {
        let ways = [
            "cp -r \"$T/from\"/* .",
            "tar cf - -C \"$T/from\" . | tar xf -",
            "rsync -a \"$T/from/\" ./",
            "mv \"$T/from\"/* .",
        ];
        for (way, id) in ways.iter().zip((17_600_000_001..).step_by(100)) {
            let samples = bring(m, id);
            m.sh(&format!("{way}; rm -rf \"$T/from\""));
            assert_brought(m, id, &samples);
            assert_eq!(m.sh(&format!("ls -d {id}-*")).stdout.trim(), format!("{id}-brought-in"), "{way}");
        }
        assert_eq!(m.status("drafts"), [] as [Value; 0]);
    });
}

#[test]
fn copying_in_beneath_another() {
    everyone(|m| {
        // One names no parent, one names another: the place has the last word, and costs the second one edit.
        let from = m.workspace().env().root().join("tmp/from");
        let plain = Sample::new(17_600_000_001).title("Plain").events(6);
        let other = Sample::new(17_600_000_011).title("Other").events(6).parent(ids::A);
        plain.write_below(&from);
        other.write_below(&from);
        m.give();
        m.sh("cp -r \"$T/from\"/* \"$D/conversations/\"");
        for id in [17_600_000_001, 17_600_000_011] {
            assert_eq!(m.says(id, "parent"), format!("jp-c{}", ids::D));
        }
        let bytes = plain.contents().into_iter().find(|(name, _)| name == "metadata.json").expect("written").1;
        assert_eq!(m.text(17_600_000_001, "metadata.json").as_bytes(), bytes, "no saved byte is changed");
        assert_eq!(m.value(17_600_000_011, "metadata.json")["parent_id"], ids::D);
        m.check_store();
    });
}

#[test]
fn copying_back_what_was_removed() {
    everyone_with(&["rsync"], &[], |m| {
        let before = m.store();
        for way in [
            "cp -r \"$T/kept/$D\" .",
            "tar cf - -C \"$T/kept\" . | tar xf -",
            "rsync -a \"$T/kept/\" ./",
            "mv \"$T/kept/$D\" .",
        ] {
            m.sh("rm -rf \"$T/kept\"; mkdir \"$T/kept\"; cp -rp \"$D\" \"$T/kept/\"; rm -r \"$D\"; test ! -e \"$D\"");
            assert_eq!(m.says(ids::D, "presence"), "local");
            m.sh(&format!("{way}; cat \"$D\"/*.json > /dev/null"));
            assert_eq!(m.says(ids::D, "presence"), "projected", "{way}");
            assert_eq!(m.store(), before, "{way}");
        }
        m.check_store();
    });
}

#[test]
fn moving_is_reparenting() {
    everyone(|m| {
        let events = m.text(ids::B, "events.json");
        m.sh("mv \"$D\" \"$A/conversations/\"; test -d \"$A/conversations/$D\"; test ! -e \"$D\"");
        assert_eq!(m.value(ids::D, "metadata.json")["parent_id"], ids::A);
        assert_eq!(m.says(ids::D, "parent"), format!("jp-c{}", ids::A));

        // To the root, with what is beneath it.
        m.sh("mv \"$B\" .; test -d 17528842001-alternative-approach/conversations/17528852001-third-thoughts");
        assert_eq!(m.says(ids::B, "parent"), Value::Null);
        assert_eq!(m.says(ids::C, "parent"), format!("jp-c{}", ids::B));

        // To where nothing has been before.
        m.sh("mv 17528842001-alternative-approach \"$A/conversations/$D/conversations/\"");
        assert_eq!(m.says(ids::B, "parent"), format!("jp-c{}", ids::D));
        assert_eq!(m.text(ids::B, "events.json"), events);
        let circle = m.try_sh("mv \"$A\" \"$A/conversations/$D/conversations/\"");
        assert_ne!(circle.code, 0, "{}", circle.told());
        assert_eq!(m.says(ids::A, "parent"), Value::Null);
        assert!(m.says(ids::C, "path").as_str().is_some_and(|path| path.contains(D_DIR)));
        m.check_store();
    });
}

#[test]
fn moving_is_retitling() {
    everyone(|m| {
        let before = m.value(ids::D, "metadata.json");
        m.sh("mv \"$D\" '17528862001-Monday plans'");
        assert_eq!(m.value(ids::D, "metadata.json")["title"], "Monday plans");
        assert_eq!(lines(&m.sh("ls").stdout), [A_DIR, "17528862001-monday-plans"]);
        assert!(m.stored(ids::D).ends_with("17528862001-monday-plans"), "the store's directory follows");
        assert_eq!(m.sh("readlink \"$D\"").stdout.trim(), "17528862001-monday-plans");
        m.sh("cat \"$D/metadata.json\" > /dev/null");

        // Words that are a slug already end where they say.
        m.sh("mv 17528862001-monday-plans 17528862001-tuesday-plans");
        assert_eq!(lines(&m.sh("ls").stdout), [A_DIR, "17528862001-tuesday-plans"]);
        let title = m.value(ids::D, "metadata.json")["title"].as_str().expect("a title").to_lowercase();
        assert_eq!(title.replace('-', " "), "tuesday plans");

        // Back to a former title: what was a link is the directory, and the other way round.
        m.sh("mv 17528862001-tuesday-plans '17528862001-Weekend plans'");
        assert_eq!(m.value(ids::D, "metadata.json"), before);
        assert_eq!(lines(&m.sh("ls").stdout), [A_DIR, D_DIR]);
        assert_eq!(m.sh("stat -c %F \"$D\"").stdout, "directory\n");
        assert_eq!(m.sh("readlink 17528862001-monday-plans").stdout.trim(), D_DIR);

        // One with children keeps them.
        m.sh("mv \"$A\" '17528832001-Changed'; test -d 17528832001-changed/conversations; cat \"$C/events.json\" > /dev/null");
        assert_eq!(m.says(ids::B, "parent"), format!("jp-c{}", ids::A));
        m.check_store();
    });
}

#[test]
fn moving_is_archiving() {
    everyone(|m| {
        let events = m.text(ids::C, "events.json");
        m.sh("mv \"$A\" .archive/; test -d \".archive/$C\"; test ! -e \"$A\"");
        for id in [ids::A, ids::B, ids::C] {
            assert_eq!(m.says(id, "archived"), true);
            assert!(m.stored(id).parent().is_some_and(|dir| dir.ends_with(".archive")), "{id}");
        }
        m.sh("mv \".archive/$A\" .; test -d \"$C\"");
        for id in [ids::A, ids::B, ids::C] {
            assert_eq!(m.says(id, "archived"), false);
            assert!(m.stored(id).parent().is_some_and(|dir| dir.ends_with("conversations")), "{id}");
        }
        assert_eq!(m.text(ids::C, "events.json"), events);
        m.sh("mv \"$O\" .; test -d 17528882001-old-talk");
        assert_eq!(m.says(ids::O, "archived"), false);
        assert_eq!(
            lines(&m.sh("ls -A").stdout),
            [A_DIR, D_DIR, "17528882001-old-talk"],
            "an empty archive is not listed"
        );
        m.sh("mv \"$D\" .archive/");
        assert_eq!(m.says(ids::D, "archived"), true);
        m.check_store();
    });
}

#[test]
fn removing_is_hiding() {
    everyone(|m| {
        let before = m.store();
        m.sh("rm -r \"$A\"");
        assert_eq!(lines(&m.sh("ls").stdout), [D_DIR]);
        assert_eq!(m.store(), before, "nothing leaves the store");
        for id in [ids::A, ids::B, ids::C] {
            assert_eq!(m.says(id, "presence"), "local");
        }
        assert_eq!(m.says(ids::D, "presence"), "projected");
        m.jp(&["c", "edit", "--local=false", &format!("jp-c{}", ids::C)]).ok();
        m.sh("cat \"$C/events.json\" > /dev/null");
        assert_eq!(m.says(ids::A, "presence"), "projected", "what is above it is shown with it");
        m.check_store();
    });
}

#[test]
fn rewriting_by_renaming() {
    everyone_with(&["jq"], &[], |m| {
        m.sh("sed -i 's/Weekend/Holiday/' \"$D/metadata.json\"; ls \"$D\"");
        assert_eq!(m.value(ids::D, "metadata.json")["title"], "Holiday plans");
        assert_eq!(lines(&m.sh("ls").stdout), [A_DIR, "17528862001-holiday-plans"], "the name follows the title");

        m.sh("jq -c '.note = \"by jq\"' \"$D/metadata.json\" > \"$T/expected\"
              jq -c '.note = \"by jq\"' \"$D/metadata.json\" > \"$D/new.tmp\" && mv \"$D/new.tmp\" \"$D/metadata.json\"
              cmp \"$D/metadata.json\" \"$T/expected\"");
        assert_eq!(m.text(ids::D, "metadata.json"), m.sh("cat \"$T/expected\"").stdout, "the saved bytes, unaltered");

        put(m, "new.json", &said("by os.replace", 100));
        m.sh("python3 -c 'import os, sys
name = sys.argv[1]
with open(name + \".new\", \"w\") as file:
    file.write(open(sys.argv[2]).read())
    file.flush()
    os.fsync(file.fileno())
os.replace(name + \".new\", name)' \"$D/events.json\" \"$T/new.json\"");
        assert_eq!(m.text(ids::D, "events.json"), said("by os.replace", 100));
        let names = m.sh("ls -A \"$D/\"").stdout;
        assert_eq!(lines(&names), ["base_config.json", "events.json", "metadata.json"], "nothing stays behind");
        let mut stored: Vec<_> =
            fs::read_dir(m.stored(ids::D)).expect("listed").flatten().map(|e| e.file_name()).collect();
        stored.sort();
        assert_eq!(stored, lines(&names));
        m.check_store();
    });
}

#[test]
fn rewriting_in_place() {
    everyone_with(&["jq", "sponge"], &[], |m| {
        let length = |m: &Mounted| m.value(ids::D, "events.json").as_array().expect("a list").len();
        m.sh("jq '. + [.[0]]' \"$D/events.json\" | sponge \"$D/events.json\"");
        assert_eq!(length(m), 7);
        m.sh("jq '.[0:2]' \"$A/events.json\" > \"$D/events.json\"");
        assert_eq!(length(m), 2);
        assert_eq!(m.text(ids::D, "events.json"), m.sh("jq '.[0:2]' \"$A/events.json\"").stdout);
        m.sh("echo >> \"$D/events.json\"");
        assert!(m.text(ids::D, "events.json").ends_with("]\n\n"), "an appended byte is a save too");

        for (text, flags) in
            [("longer", "bs=64 conv=notrunc"), ("plain", "bs=100"), ("whole", "bs=1M"), ("slow", "bs=7")]
        {
            let document = said(text, 2_000 - 100 * text.len());
            put(m, "new.json", &document);
            // Without truncation what is longer than the new text stays; so each begins from something short.
            m.sh(&format!(
                "echo '[]' > \"$D/events.json\"; dd if=\"$T/new.json\" of=\"$D/events.json\" {flags} 2> /dev/null"
            ));
            assert_eq!(m.text(ids::D, "events.json"), document, "{flags}");
        }
        // One byte in the middle, and no other.
        m.sh("at=$(grep -obam1 slow \"$D/events.json\" | cut -d: -f1)
              printf f | dd of=\"$D/events.json\" bs=1 seek=$at conv=notrunc 2> /dev/null");
        assert_eq!(m.text(ids::D, "events.json"), said("slow", 1_600).replacen("slow", "flow", 1));
        assert_eq!(m.status("drafts"), [] as [Value; 0]);
        m.check_store();
    });
}

#[test]
fn truncating_loses_nothing() {
    everyone(|m| {
        let before = m.store();
        m.sh("cp \"$D/events.json\" \"$T/kept\"; truncate -s 0 \"$D/events.json\"; test ! -s \"$D/events.json\"");
        assert_eq!(m.store(), before);
        m.sh("truncate -s 40 \"$C/events.json\"; test $(stat -c %s \"$C/events.json\") = 40");
        assert_eq!(m.store(), before);
        let drafts = m.status("drafts");
        assert_eq!(drafts.len(), 2, "{drafts:#?}");
        m.sh("cat \"$T/kept\" > \"$D/events.json\"");
        assert_eq!(m.store(), before);
        assert_eq!(m.status("drafts").len(), 1);
        // A document that grows by zeroes is none.
        m.sh("truncate -s +10 \"$A/metadata.json\"; test $(tail -c 10 \"$A/metadata.json\" | tr -d '\\0' | wc -c) = 0");
        assert_eq!(m.store(), before);
        m.check_store();
    });
}

#[test]
fn times_are_those_of_the_store() {
    everyone(|m| {
        let shown = m.sh("stat -c %.9Y \"$C/events.json\"").stdout;
        let stored = mtime(&m.stored(ids::C).join("events.json"));
        assert_eq!(shown.trim().replace('.', ""), stored.to_string());
        let inode = m.sh("stat -c %i \"$C/events.json\" \"$C\"").stdout;
        m.end(&[]);
        m.begin(&[]);
        assert_eq!(m.sh("stat -c %i \"$C/events.json\" \"$C\"").stdout, inode, "identity outlives a mount");
        assert_eq!(m.sh("stat -c %.9Y \"$C/events.json\"").stdout, shown);
    });
}
