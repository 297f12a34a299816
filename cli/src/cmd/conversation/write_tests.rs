//! The commands that write, on a small store. What the store does is tested with the store; here it is what is said, what
//! is printed where, and the exit codes.

use std::process::ExitCode;

use serde_json::Value;

use crate::testing::{Answer, Project};

/// A parent with two children, and one apart.
fn family() -> Project {
    let project = Project::new();
    project
        .conversation("17528832001-first", "First", "20 11:00", r#", "future": [1], "origin": "elsewhere""#)
        .conversation("17528832002-second", "Second", "20 09:00", r#", "parent_id": 17528832001"#)
        .conversation("17528832003-third", "Third", "20 10:00", r#", "parent_id": 17528832001"#)
        .conversation("17528832004-fourth", "Fourth", "18 12:00", r#", "pinned_at": "2025-07-18 12:00:00.0""#);
    project
}

fn json(answer: &Answer) -> Value {
    serde_json::from_str(&answer.out).unwrap_or_else(|_| panic!("{answer:?}"))
}

fn metadata(project: &Project, id: &str) -> Value {
    let path = project.jp(&format!("c path --metadata {id}")).out;
    serde_json::from_slice(&std::fs::read(path.trim_end()).unwrap()).unwrap()
}

#[test]
fn exit_codes_and_advice() {
    let check = |line: &str, code: u8, said: &str| {
        let answer = family().jp(line);
        assert_eq!(answer.code, ExitCode::from(code), "{line}: {answer:?}");
        assert!(answer.err.contains(said), "{line}: {}", answer.err);
    };
    check("c rm 17528832004", 1, "--yes");
    check("c rm 17528832004 -y", 0, "Removed jp-c17528832004 “Fourth”.");
    check("c rm 17528832001 -y", 1, "2 children; remove them too with --cascade, or move them up with --promote");
    check("c rm 17528832001 -y --cascade", 0, "Removed jp-c17528832001 “First” and 2 beneath it.");
    check("c rm 17528832001 -y --promote", 0, "Removed jp-c17528832001");
    check("c rm --from 2025-07-19 -y", 0, "Removed jp-c17528832001");
    check("c rm --until 2025-07-19 -y", 1, "no conversation is meant");
    check("c archive 17528832004", 1, "which is pinned");
    check("c archive 17528832001", 0, "beneath it.");
    check("c archive --inactive-since 1h", 1, "3 conversations");
    check("c archive --inactive-since 1d", 1, "which is pinned");
    check("c unarchive 17528832001", 1, "is not archived");
    check("c unarchive", 1, "jp c ls --archived");
    check("c mv 17528832001 --parent 17528832002", 1, "itself or beneath it");
    check("c mv 17528832001", 2, "--root");
    check("c mv 17528832002 --root", 0, "is a root now");
    check("c edit 17528832001", 2, "--title");
    check("c edit 17528832001 --title= --pin", 2, "--no-title");
    check("c edit 17528832001 --pin --events", 2, "cannot be used with");
    check("c edit 17528832004 --pin", 0, "is like that already");
    check("c edit 17528832001 17528832002 --pin", 0, "jp-c17528832002 is changed");
    check("c edit 17528832001 --tmp=soon", 2, "7d");
    check("c edit 17528832002 --local=false", 1, "lies beneath what is private: jp-c17528832001");
    check("c edit 17528832002 17528832001 --local=false", 0, "1 conversation above it is shown with it");
    check("c label add -i 17528832001 1x", 2, "letter");
    check("c use", 1, "no previous one");
    check("c use 17528832001", 0, "“First” now");
    check("c use --grep second", 0, "“Second” now");
    check("c use --grep Nowhere", 1, "no conversation is like that");
    check("c use --from 2025-07-19", 1, "did you mean jp-c17528832001  First");
    check("c use --from 17528832004 --until 17528832002", 1, "no conversation is like that");
    check("c use --from 17528832004 --until jp-c17528832005", 0, "“Fourth” now");
    check("c use 17528832001 --grep x", 2, "cannot be used with");
    check("c new --title=", 2, "jp c edit --no-title");
    check("-w zzzzz c ls", 1, "--workspace PATH");
    check("migrate", 0, "nothing to migrate");
    check("gc", 0, "nothing to remove");
    check("status", 0, "");
    check("init", 0, "is a workspace already, with the id otvo8");
}

#[test]
fn one_failure_does_not_keep_the_others() {
    let project = family();
    let answer = project.jp("c rm 17528832001 17528832004 -y --json");
    assert_eq!(answer.code, ExitCode::from(1));
    assert_eq!(json(&answer)["removed"], serde_json::json!(["jp-c17528832004"]));
    assert!(answer.err.contains("has 2 children"), "{}", answer.err);
}

#[test]
fn new_conversations() {
    let project = family();
    let answer = project.jp("c new --title T --label wip --label a=b=c --pin --tmp=1h --parent 17528832001 -a");
    let id = answer.out.trim_end().to_owned();
    assert_eq!((answer.code, answer.out.lines().count()), (ExitCode::SUCCESS, 1));
    // The parent is in the store alone, so it cannot be shown beneath it.
    assert!(answer.err.contains("hidden with its parent"), "{}", answer.err);
    let expected = serde_json::json!({
        "title": "T",
        "last_activated_at": "2025-07-20 12:00:00.0",
        "pinned_at": "2025-07-20 12:00:00.0",
        "expires_at": "2025-07-20 13:00:00.0",
        "labels": { "a": "b=c", "wip": "" },
        "parent_id": 17_528_832_001_u64,
        "origin": "project",
    });
    assert_eq!(metadata(&project, &id), expected);
    assert_eq!(project.jp("c use").code, ExitCode::from(1), "it is active, and nothing was before it");
    assert_ne!(json(&project.jp("c new --json"))["id"], Value::from(id));
}

#[test]
fn forks() {
    let project = family();
    let events = r#"[ {"type":"turn_start","timestamp":"2025-07-19 00:00:00.0"},{"type":"turn_start","timestamp":"2025-07-20 00:00:00.0"}]"#;
    project.events("17528832001-first", events);
    let fork = |flags: &str| {
        let answer = project.jp(format!("c fork 17528832001 {flags}").trim_end());
        assert_eq!(answer.code, ExitCode::SUCCESS, "{flags}: {}", answer.err);
        let id = answer.out.trim_end().to_owned();
        let path = project.jp(&format!("c path --events {id}")).out;
        (metadata(&project, &id), std::fs::read_to_string(path.trim_end()).unwrap())
    };
    let (meta, copy) = fork("");
    assert_eq!(copy, events, "verbatim");
    assert_eq!(meta["parent_id"], 17_528_832_001_u64);
    assert_eq!(
        (&meta["title"], &meta["origin"], &meta["future"]),
        (&"First".into(), &"project".into(), &serde_json::json!([1]))
    );
    assert_eq!(fork("--first 5").1, events, "nothing was dropped");
    assert_eq!(fork("--last").1.matches("turn_start").count(), 1);
    assert_eq!(fork("--until 2025-07-20").1.matches("turn_start").count(), 1);
    assert_eq!(fork("-N").1, "[]\n");
    assert_eq!(fork("--root").0.get("parent_id"), None);
    assert_eq!(fork("-t Other --label x").0["title"], "Other");
}

#[test]
fn collection() {
    let project = family();
    assert_eq!(project.jp("c edit 17528832003 17528832004 --tmp=now").code, ExitCode::SUCCESS);
    assert_eq!(project.jp("c use 17528832003").code, ExitCode::SUCCESS);
    let dry = json(&project.jp("gc --dry-run --json"));
    let wet = json(&project.jp("gc --json"));
    for report in [dry, wet] {
        assert_eq!(report["removed"], serde_json::json!(["jp-c17528832004"]));
        assert_eq!(report["in_use"], serde_json::json!(["jp-c17528832003"]));
    }
}

#[test]
fn damage() {
    let project = family();
    project.events("17528832004-fourth", "[\n  oops\n]");
    let status = project.jp("status --json");
    assert_eq!(status.code, ExitCode::from(4));
    let problem = &json(&status)["problems"][0];
    assert_eq!((&problem["line"], &problem["column"], &problem["damage"]), (&2.into(), &3.into(), &true.into()));
    assert_eq!(project.jp("doctor").code, ExitCode::from(4));
    let fixed = project.jp("doctor --fix");
    assert_eq!(fixed.code, ExitCode::SUCCESS, "{fixed:?}");
    assert!(fixed.out.contains(".trash"), "{}", fixed.out);
    assert_eq!(project.jp("doctor").err, "All is well.\n");
}

/// What goes into the archive together comes back together, by the same word.
#[test]
fn the_archive_is_undone_by_a_word() {
    let project = family();
    assert_eq!(project.jp("c archive 17528832001").code, ExitCode::SUCCESS);
    let back = json(&project.jp("c unarchive archived --json"));
    assert_eq!(back["unarchived"], serde_json::json!(["jp-c17528832001", "jp-c17528832002", "jp-c17528832003"]));
}

/// With `--json`, every line that is said is JSON too.
#[test]
fn talk_for_machines() {
    let project = family();
    let answer = project.jp("c rm 17528832004 -y --json");
    assert_eq!(
        serde_json::from_str::<Value>(&answer.err).unwrap(),
        serde_json::json!({ "level": "note", "message": "Removed jp-c17528832004 “Fourth”." })
    );
    assert_eq!(project.jp("c rm 17528832003 -y --json -q").err, "");
    let nothing: Value = serde_json::from_str(&project.jp("c --json").err).unwrap();
    assert_eq!(nothing["code"], 2);
    assert!(json(&project.jp("c show help --json")).is_string());
}

/// What the advice says happens: a leftover goes with the next write, and what would stay is not called one.
#[test]
fn leftovers() {
    let project = family();
    assert_eq!(project.jp("c edit 17528832001 --pin").code, ExitCode::SUCCESS);
    let tmp = project.silo().join("vfs/tmp");
    std::fs::create_dir_all(&tmp).unwrap();
    // The user's own files look like nothing of ours, and have no record.
    for name in ["2147483647-0", "notes", "jp-tmp-0000000000000002-0"] {
        std::fs::write(tmp.join(name), "").unwrap();
    }
    for name in ["owner-store-0000000000000001", "jp-tmp-0000000000000001-0"] {
        std::fs::write(tmp.join(name), "").unwrap();
    }
    let found = json(&project.jp("doctor --json"));
    let leftovers: Vec<_> =
        found["findings"].as_array().unwrap().iter().filter(|finding| finding["kind"] == "leftover").collect();
    assert_eq!(leftovers.len(), 1, "{found}");
    assert_eq!(project.jp("doctor --fix").code, ExitCode::SUCCESS);
    let left = |name: &str| tmp.join(name).exists();
    assert!(!left("jp-tmp-0000000000000001-0") && !left("owner-store-0000000000000001"));
    assert!(left("2147483647-0") && left("notes") && left("jp-tmp-0000000000000002-0"));
}
