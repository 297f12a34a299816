//! What is around the conversations: the workspace's id, the link to the workspace, sessions, locks, and our own state.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use jp_tests::{Place, Shot, Workspace, jp_binary};
use serde_json::{Value, json};

use super::{A, B, assert_same, holds, jp, listed, problems, roots, sample, shots, workspace};

#[test]
fn a_malformed_workspace_id_is_an_error_and_stays_as_it_is() {
    let table: [(&str, Option<&[u8]>); 9] = [
        ("empty", Some(b"")),
        ("capitals", Some(b"preamble\nZZZZZ\n")),
        ("short", Some(b"preamble\nabc\n")),
        ("long", Some(b"preamble\nab1cde\n")),
        ("a blank last line", Some(b"preamble\nab1cd\n\n")),
        ("spaces", Some(b"preamble\n ab1cd\n")),
        ("not UTF-8", Some(b"pre\xffamble\nab1cd\n")),
        ("a path", Some(b"preamble\n../..\n")),
        ("missing", None),
    ];
    for (what, bytes) in table {
        let work = workspace();
        sample(A, "Safe").write(&work, Place::Both);
        let file = work.storage().join(".id");
        match bytes {
            Some(bytes) => fs::write(&file, bytes).expect("written"),
            None => fs::remove_file(&file).expect("removed"),
        }
        refuses_everything(&work, what);
    }
    let work = workspace();
    sample(A, "Safe").write(&work, Place::Both);
    let file = work.storage().join(".id");
    fs::remove_file(&file).expect("removed");
    fs::create_dir(&file).expect("made");
    refuses_everything(&work, "a directory");
}

fn refuses_everything(work: &Workspace, what: &str) {
    let before = Shot::of(work.env().root());
    let id = A.to_string();
    for args in [
        &["c", "ls"][..],
        &["c", "show", &id],
        &["status"],
        &["doctor", "--fix"],
        &["c", "new"],
        &["c", "edit", "--title", "New", &id],
        &["c", "rm", "-y", &id],
        &["migrate"],
        &["gc"],
        &["session", "clean"],
        &["lock", "clear"],
    ] {
        let output = jp(work, args).fails_with(4).says(".jp/.id");
        assert_eq!(output.stdout, "", "{what}: {}", output.told());
        before.assert_same(&Shot::of(work.env().root()));
    }
}

#[test]
fn without_a_store_there_is_nothing_to_see_and_nothing_is_made() {
    let work = workspace();
    fs::remove_dir(work.env().data()).expect("empty");
    let before = Shot::of(work.env().root());
    assert_eq!(jp(&work, &["c", "ls", "--json"]).json(), json!([]));
    for (args, code) in [
        (&["status"][..], 0),
        (&["doctor"], 0),
        (&["lock", "ls"], 0),
        (&["session", "ls"], 0),
        (&["session", "show"], 0),
        (&["c", "show", "17528832001"], 1),
        (&["c", "print", "last"], 1),
        (&["c", "grep", "x"], 1),
    ] {
        jp(&work, args).fails_with(code);
    }
    before.assert_same(&Shot::of(work.env().root()));
    jp(&work, &["c", "new", "--title", "First"]).line();
    assert_eq!(jp(&work, &["c", "ls", "--json"]).json().as_array().map(Vec::len), Some(1));
}

#[test]
fn whatever_is_in_the_place_of_the_link_does_not_matter() {
    let table: [fn(&Path); 5] = [
        |path| fs::create_dir(path).expect("made"),
        |path| {
            fs::create_dir(path).expect("made");
            fs::write(path.join("mine"), "x").expect("written");
        },
        |path| fs::write(path, "x").expect("written"),
        |path| symlink("/nowhere/at/all", path).expect("linked"),
        |path| symlink("storage", path).expect("linked"),
    ];
    for (at, make) in table.iter().enumerate() {
        let work = workspace();
        sample(A, "Safe").write(&work, Place::Both);
        let link = work.silo().join("storage");
        make(&link);
        let before = Shot::of(work.env().root());
        assert_eq!(listed(&work, A)["title"], "Safe");
        let output = jp(&work, &["doctor", "--json"]).fails_with(1);
        let report: Value = serde_json::from_slice(&output.raw).expect("JSON");
        assert_eq!(report["findings"][0]["kind"], "storage-link", "{at}: {report:#}");
        before.assert_same(&Shot::of(work.env().root()));
        let mine = Shot::of(&link);
        jp(&work, &["c", "edit", "--title", "New", &A.to_string()]).ok();
        assert_eq!(listed(&work, A)["title"], "New");
        if at < 3 {
            mine.assert_same(&Shot::of(&link));
        } else {
            assert_eq!(fs::read_link(&link).expect("a link"), work.storage());
        }
    }
}

const GARBAGE: [&[u8]; 7] =
    [b"", b"garbage{", b"\xff\xfe", b"[]", b"null", b"{\"history\": 5}", b"{\"conversations\": 7}"];

#[test]
fn garbage_in_a_session_file_is_told_and_left_alone() {
    for bytes in GARBAGE {
        let work = workspace();
        sample(A, "Safe").write(&work, Place::Both);
        let shown = jp(&work, &["session", "show", "--json"]).json();
        let file = PathBuf::from(shown["path"].as_str().expect("a path"));
        let sessions = file.parent().expect("a directory").to_owned();
        fs::create_dir_all(&sessions).expect("made");
        for path in [&file, &sessions.join("getsid-1.json"), &sessions.join("strange.json")] {
            fs::write(path, bytes).expect("written");
        }
        fs::create_dir(sessions.join("getsid-2.json")).expect("made");
        let before = Shot::of(work.env().root());
        for args in super::super::real_store::readers(&A.to_string()) {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            assert!(jp(&work, &args).code <= 1, "{args:?}");
        }
        jp(&work, &["c", "show"]).fails_with(1);
        jp(&work, &["doctor"]).fails_with(1);
        before.assert_same(&Shot::of(work.env().root()));
        jp(&work, &["c", "edit", "--title", "New", &A.to_string()]).ok();
        jp(&work, &["session", "clean"]).ok();
        assert_eq!(fs::read(&file).expect("still there"), bytes, "it is not ours to judge");
        // Whoever turns to a conversation is told why that cannot be remembered.
        let output = jp(&work, &["c", "use", &A.to_string()]);
        assert!(output.code == 4 && output.stderr.contains("sessions/"), "{}", output.told());
        fs::remove_file(&file).expect("removed");
        jp(&work, &["c", "use", &A.to_string()]).ok();
        jp(&work, &["c", "show"]).ok();
    }
}

#[test]
fn garbage_in_a_lock_file_locks_nobody_out() {
    for bytes in GARBAGE {
        let work = workspace();
        sample(A, "Safe").write(&work, Place::Both);
        let locks = work.silo().join("locks");
        fs::create_dir_all(locks.join("jp-c17528842001.lock")).expect("made");
        let names = ["jp-cX.lock", "stranger.lock", "README.md"];
        for name in names.into_iter().chain(["jp-c17528832001.lock"]) {
            fs::write(locks.join(name), bytes).expect("written");
        }
        let before = Shot::of(work.env().root());
        assert_eq!(listed(&work, A)["locked"], false);
        jp(&work, &["lock", "ls"]).ok();
        jp(&work, &["lock", "ls", "--json"]).ok();
        jp(&work, &["status"]).ok();
        before.assert_same(&Shot::of(work.env().root()));
        jp(&work, &["c", "edit", "--title", "New", &A.to_string()]).ok();
        jp(&work, &["lock", "clear"]).ok();
        assert!(!locks.join("jp-c17528832001.lock").exists());
        for name in names {
            assert_eq!(fs::read(locks.join(name)).expect("still there"), bytes, "{name} is not ours");
        }
    }
}

#[test]
fn garbage_in_our_own_state_loses_nothing() {
    for bytes in GARBAGE {
        let work = workspace();
        sample(A, "Parent").write(&work, Place::Both);
        sample(B, "Child").parent(A).write(&work, Place::Both);
        jp(&work, &["c", "edit", "--title", "Renamed", &B.to_string()]).ok();
        jp(&work, &["c", "edit", "--title", "Above", &A.to_string()]).ok();
        let own = work.silo().join("vfs");
        let ledgers =
            fs::read_dir(&own).expect("listed").map(|one| one.expect("listed").path().join("projection.json"));
        let ledger = ledgers.into_iter().find(|path| path.is_file()).expect("a ledger");
        for path in [&ledger, &own.join("tree.json"), &own.join("last-id")] {
            fs::write(path, bytes).expect("written");
        }
        let before = Shot::of(work.env().root());
        assert_eq!(
            (&listed(&work, B)["parent"], &listed(&work, B)["presence"]),
            (&json!(format!("jp-c{A}")), &json!("projected"))
        );
        assert_eq!(problems(&work).0, 0);
        before.assert_same(&Shot::of(work.env().root()));

        let kept = shots(&work);
        jp(&work, &["c", "edit", "--pin", &A.to_string()]).ok();
        let new = jp(&work, &["c", "new", "--parent", &B.to_string()]).line().to_owned();
        assert!(new > format!("jp-c{B}"), "{new}");
        // An object that says nothing of conversations is a mirror too, an empty one.
        let is_mirror = serde_json::from_slice::<Value>(bytes)
            .is_ok_and(|value| value == json!({ "history": 5 }) || value == json!([]));
        assert!(is_mirror || holds(&own.join("conflicts"), "tree.json", bytes), "what the mirror had is gone");
        assert_eq!(listed(&work, B)["parent"], format!("jp-c{A}"));
        jp(&work, &["c", "edit", "--local", &A.to_string()]).ok();
        jp(&work, &["c", "edit", "--local=false", &A.to_string()]).ok();
        jp(&work, &["doctor"]).ok();
        let name = new.trim_start_matches("jp-c");
        let above = format!("{A}-above");
        let others = |shot: Shot| shot.without(&[name, &above]);
        others(kept[0].clone()).assert_same(&others(Shot::of(&roots(&work)[0])));
    }
}

#[test]
fn a_hundred_thousand_events_are_only_many() {
    let work = workspace().known();
    let dir = sample(A, "Long").write(&work, Place::Both);
    let mut text = String::from("[\n");
    for turn in 0..25_000 {
        let at = "2025-07-19 00:00:00.1";
        let start = format!("{{\"timestamp\":\"{at}\",\"type\":\"turn_start\"}}");
        let said = |kind: &str, key: &str| {
            format!("{{\"timestamp\":\"{at}\",\"type\":\"{kind}\",\"{key}\":\"words {turn}\"}}")
        };
        let (ask, think, answer) =
            (said("chat_request", "content"), said("chat_response", "reasoning"), said("chat_response", "message"));
        text.push_str(&format!("{start},\n{ask},\n{think},\n{answer},\n"));
    }
    text.truncate(text.len() - 2);
    text.push_str("\n]\n");
    fs::write(dir.join("events.json"), &text).expect("written");
    let before = shots(&work);
    // Within a minute in all even without optimisation and beside other tests; a quadratic search would take hours.
    let start = std::time::Instant::now();
    assert_eq!(listed(&work, A)["events"], 100_000);
    let id = A.to_string();
    jp(&work, &["c", "show", &id]).ok();
    let hits = jp(&work, &["c", "grep", "words 24999"]).ok();
    assert_eq!(hits.stdout.lines().count(), 3, "{}", hits.told());
    assert_same(&before, &work);
    let fork = jp(&work, &["c", "fork", "--last", "1", &id]).line().trim_start_matches("jp-c").parse().expect("an id");
    assert_eq!(listed(&work, fork)["events"], 4);
    assert!(start.elapsed().as_secs() < 60, "{:?} with {}", start.elapsed(), jp_binary().display());
}
