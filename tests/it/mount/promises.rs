//! Nothing is lost, and nothing is half: what programs do to the tree at their worst.

use std::fs::{self, File};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use jp_tests::{Mounted, User, ids};
use serde_json::Value;

use super::{asked, everyone, everyone_with, lines, put, said};

#[test]
fn removing_the_whole_worktree() {
    everyone(|m| {
        m.sh("sed -i 's/Question 0/Question zero/' \"$C/events.json\"; echo note > \"$D/notes.md\"");
        let before = m.store();
        // The mount point itself is busy, so `rm` cannot succeed; everything in it goes all the same.
        let told = m.script("cd / && rm -rf \"$P\"");
        assert_ne!(told.code, 0, "{}", told.told());
        assert_eq!(m.store(), before);
    });
}

/// The bench for threads of the test itself, which see the mount only when it is their own.
#[track_caller]
fn own(flags: &[&str]) -> Option<(Mounted, String)> {
    let m = Mounted::new(User::Own, flags)?;
    let c = m.sh("printf %s \"$C\"").stdout;
    Some((m, c))
}

#[test]
fn a_slow_writer_is_never_seen_half() {
    let Some((m, c)) = own(&[]) else { return };
    let shown = m.point().join(&c).join("events.json");
    let stored = m.stored(ids::C).join("events.json");
    let over = AtomicBool::new(false);
    let (read, watched) = (AtomicU64::new(0), AtomicU64::new(0));
    let before = fs::read(&stored).expect("there");
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                fs::read(&shown).expect("a reader is never refused");
                read.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let bytes = fs::read(&stored).expect("the store always has it");
                assert!(bytes == before || asked(&bytes).is_some(), "the store has half a document");
                watched.fetch_add(1, Ordering::Relaxed);
            }
        });
        let done = std::panic::catch_unwind(|| {
            for (round, size) in [400_000, 1_000_000, 90_000, 3_000, 500_000].into_iter().enumerate() {
                let text = format!("round {round}");
                let document = said(&text, size);
                let mut file = File::create(&shown).expect("truncated");
                for piece in document.as_bytes().chunks(4096) {
                    file.write_all(piece).expect("written");
                }
                // Before the file is closed: the last write is the save.
                assert_eq!(asked(&fs::read(&stored).expect("there")), Some(text.clone()));
                let printed = m.jp(&["c", "print", &format!("jp-c{}", ids::C)]).ok();
                assert!(printed.stdout.contains(&text), "{}", printed.told());
                assert!(fs::read(&stored).expect("there") == document.as_bytes(), "the saved bytes, unaltered");
                assert!(fs::read(&shown).expect("there") == document.as_bytes());
            }
        });
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(read.into_inner() > 0 && watched.into_inner() > 0, "nobody looked");
    m.check_store();
}

#[test]
fn broken_text_is_kept_beside_the_last_good() {
    everyone(|m| {
        let before = m.store();
        put(m, "broken", "{\n  \"title\": \"Broken\", \"last_activated_at\": \"2026-01-01 00:00:00.0\",\n  oops\n}\n");
        m.sh("cat \"$T/broken\" > \"$D/metadata.json\"; cmp \"$T/broken\" \"$D/metadata.json\"");
        assert_eq!(m.store(), before);
        let drafts = m.status("drafts");
        let [draft] = drafts.as_slice() else { panic!("one draft: {drafts:#?}") };
        assert_eq!(draft["id"], format!("jp-c{}", ids::D));
        assert_eq!((&draft["file"], &draft["line"]), (&Value::from("metadata.json"), &Value::from(3)));
        assert!(draft["column"].is_u64() && draft["reason"].as_str().is_some_and(|why| !why.is_empty()), "{draft}");
        assert!(draft["path"].as_str().is_some_and(|path| path.ends_with("/metadata.json")), "{draft}");
        let told = m.jp(&["status"]);
        assert!(told.stdout.contains("metadata.json"), "{}", told.told());

        // It outlives the mount, and a crash of it.
        m.end(&["--no-export"]);
        m.begin(&[]);
        m.sh("cmp \"$T/broken\" \"$D/metadata.json\"");
        m.crash();
        m.begin(&[]);
        m.sh("cmp \"$T/broken\" \"$D/metadata.json\"");
        assert_eq!(m.store(), before);
        assert_eq!(m.status("drafts").len(), 1);

        m.sh("sed -i 's/oops/\"pinned\": true/' \"$D/metadata.json\"");
        assert_eq!(m.value(ids::D, "metadata.json")["title"], "Broken");
        assert_eq!(m.status("drafts"), [] as [Value; 0]);
        assert_eq!(lines(&m.sh("ls").stdout)[1], "17528862001-broken");
        m.check_store();
    });
}

#[test]
fn a_document_of_the_wrong_shape_is_a_draft() {
    everyone(|m| {
        let before = m.store();
        m.sh("echo '[]' > \"$A/metadata.json\"; echo '{}' > \"$A/events.json\"; echo '\"x\"' > \"$A/base_config.json\"
              : > \"$D/events.json\"");
        assert_eq!(m.store(), before, "and `: >` is no save");
        let drafts = m.status("drafts");
        assert_eq!(drafts.len(), 4, "{drafts:#?}");
        let printed = m.jp(&["c", "print", &format!("jp-c{}", ids::D)]).ok();
        assert!(printed.stdout.contains("Question 0"), "{}", printed.told());

        // A parent that would make a circle is the right shape and still no save.
        m.sh("sed -i 's/\"title\"/\"parent_id\": 17528852001, \"title\"/' \"$D/metadata.json\"");
        assert_eq!(m.value(ids::D, "metadata.json")["parent_id"], ids::C, "this one is none");
        m.sh("cp \"$B/metadata.json\" \"$T/kept\"
              sed -i 's/17528832001/17528852001/' \"$B/metadata.json\"; grep -q 17528852001 17528832001/conversations/17528842001/metadata.json");
        assert_eq!(m.value(ids::B, "metadata.json")["parent_id"], ids::A);
        let drafts = m.status("drafts");
        let circle = drafts.iter().find(|draft| draft["id"] == format!("jp-c{}", ids::B)).expect("a draft");
        assert!(circle["reason"].as_str().is_some_and(|why| !why.is_empty()), "{circle}");
        m.sh("cat \"$T/kept\" > \"$B/metadata.json\"");
        assert_eq!(m.status("drafts").len(), 4);
        m.check_store();
    });
}

#[test]
fn strict_refuses_and_keeps() {
    everyone_with(&["python3"], &["--strict"], |m| {
        let before = m.store();
        m.sh("python3 -c 'import errno, os, sys
with open(sys.argv[1], \"w\") as file:
    file.write(\"{ broken\")
    file.flush()
    try:
        os.fsync(file.fileno())
    except OSError as err:
        assert err.errno == errno.EINVAL, err
    else:
        sys.exit(\"fsync says that it is saved\")' \"$D/metadata.json\"
              test \"$(cat \"$D/metadata.json\")\" = '{ broken'");
        assert_eq!(m.store(), before);
        assert_eq!(m.status("drafts").len(), 1);

        m.sh("echo '{ also broken' > \"$A/x.tmp\"
              if mv \"$A/x.tmp\" \"$A/metadata.json\" 2> \"$T/told\"; then echo 'mv says that it is saved'; exit 1; fi
              { cat \"$A/x.tmp\" \"$A/metadata.json\" 2> /dev/null || true; } | grep 'also broken'");
        assert_eq!(m.store(), before);

        put(m, "new.json", &said("strictly", 100));
        m.sh("cat \"$T/new.json\" > \"$C/events.json\"; cp \"$T/new.json\" \"$B/x.tmp\"; mv \"$B/x.tmp\" \"$B/events.json\"");
        for id in [ids::B, ids::C] {
            assert_eq!(m.text(id, "events.json"), said("strictly", 100));
        }
        m.check_store();
    });
}

#[test]
fn a_removed_file_is_hidden_until_written_again() {
    everyone(|m| {
        let before = m.store();
        let gone = "test ! -e \"$D/metadata.json\"; test \"$(ls -m \"$D\")\" = 'base_config.json, events.json'; test -f \"$D/events.json\"";
        m.sh(&format!("cp \"$D/metadata.json\" \"$T/kept\"; rm \"$D/metadata.json\"; {gone}"));
        assert_eq!(m.store(), before);
        assert_eq!(m.says(ids::D, "title"), "Weekend plans");
        m.end(&["--no-export"]);
        m.begin(&[]);
        m.sh(gone);
        m.sh("sed 's/Weekend/Written/' \"$T/kept\" > \"$D/metadata.json\"; ls \"$D\" | grep metadata");
        assert_eq!(m.value(ids::D, "metadata.json")["title"], "Written plans");
        m.check_store();
    });
}

#[test]
fn files_of_ones_own_are_durable() {
    everyone(|m| {
        m.sh("echo note > \"$D/notes.md\"; mkdir -p \"$D/sub/dir\"; echo x > \"$D/sub/dir/x\"; echo more >> \"$D/notes.md\"
              head -c 300000 /dev/zero > \"$D/sub/zeroes.bin\"");
        assert_eq!(m.text(ids::D, "notes.md"), "note\nmore\n");
        assert_eq!(m.text(ids::D, "sub/dir/x"), "x\n");
        assert_eq!(m.text(ids::D, "sub/zeroes.bin").len(), 300_000);
        m.sh("mv \"$D/notes.md\" \"$D/sub/notes.md\"; mv \"$D/sub/dir\" \"$D/dir\"; rm \"$D/sub/zeroes.bin\"
              test \"$(cat \"$D/dir/x\")\" = x; if rmdir \"$D/sub\" 2> /dev/null; then exit 1; fi");
        assert_eq!(m.text(ids::D, "sub/notes.md"), "note\nmore\n");
        assert_eq!(m.text(ids::D, "dir/x"), "x\n");
        // A removed one is hidden here like everything else, and stays where it is durable.
        m.sh("rm \"$D/dir/x\"; test ! -e \"$D/dir/x\"; test -z \"$(ls -A \"$D/dir\")\"");
        assert_eq!(m.text(ids::D, "dir/x"), "x\n");
        m.sh("echo again > \"$D/dir/x\"; mv \"$D/sub/notes.md\" \"$A/notes.md\"");
        assert_eq!(m.text(ids::A, "notes.md"), "note\nmore\n");
        // They go where their conversation goes.
        m.sh("mv \"$A\" .archive/; cat \".archive/$A/notes.md\"; mv \".archive/$A\" .");
        m.end(&[]);
        m.begin(&[]);
        assert_eq!(m.sh("cat \"$A/notes.md\" \"$D/dir/x\"").stdout, "note\nmore\nagain\n");
        m.check_store();
    });
}

#[test]
fn scratch_is_the_editors_and_survives_a_crash() {
    everyone(|m| {
        let before = m.store();
        let names = [
            ".x.swp",
            ".x.swo",
            "4913",
            "notes~",
            "#auto#",
            "x.tmp",
            ".goutputstream-1",
            "___jb_tmp___",
            ".DS_Store",
            "._x",
        ];
        for name in names {
            m.sh(&format!("echo 'of {name}' > \"$D/{name}\"; test \"$(cat \"$D/{name}\")\" = 'of {name}'"));
        }
        m.sh("ln -s ada@host.1 \"$D/.#notes\"; test \"$(readlink \"$D/.#notes\")\" = ada@host.1");
        let listed = m.sh("ls -A \"$D\"").stdout;
        for name in names {
            assert!(listed.lines().any(|line| line == name), "{name} is not listed: {listed}");
        }
        assert_eq!(m.store(), before, "scratch never enters the store");
        // What the last write left is on disk within 200 ms; fsync does not wait for that.
        m.sh("sync -d \"$D/.x.swp\"");
        m.crash();
        m.begin(&[]);
        assert_eq!(m.sh("cat \"$D/.x.swp\"").stdout, "of .x.swp\n");
        m.sh("rm \"$D/.x.swp\" \"$D/4913\" \"$D/.#notes\"; test ! -e \"$D/4913\"");
        m.end(&[]);
        m.script("cd \"$M\" && test ! -e \"$D/x.tmp\" && test ! -e \"$D/notes~\"").ok();
        assert_eq!(m.store(), before);
        m.check_store();
    });
}

#[test]
fn a_kernel_that_asks_at_every_open() {
    everyone_with(&["jq"], &["--compat-open"], |m| {
        put(m, "new.json", &said("compatible", 9_000));
        m.sh("find . -type f | xargs cat > /dev/null; ls -lR > /dev/null
              dd if=\"$T/new.json\" of=\"$C/events.json\" bs=4k 2> /dev/null
              sed -i 's/Weekend/Compatible/' \"$D/metadata.json\"
              jq -c . \"$A/events.json\" > \"$A/x.tmp\"; mv \"$A/x.tmp\" \"$A/events.json\"
              echo note > \"$A/notes.md\"; echo oops > \"$B/events.json\"");
        assert_eq!(m.text(ids::C, "events.json"), said("compatible", 9_000));
        assert_eq!(m.value(ids::D, "metadata.json")["title"], "Compatible plans");
        assert_eq!(m.text(ids::A, "events.json").lines().count(), 1);
        assert_eq!(m.text(ids::A, "notes.md"), "note\n");
        assert_eq!(m.sh("cat \"$B/events.json\"").stdout, "oops\n");
        assert_eq!(m.status("drafts").len(), 1);
        m.sh("rm -r 17528862001-compatible-plans");
        assert_eq!(m.says(ids::D, "presence"), "local");
        m.check_store();
    });
}
