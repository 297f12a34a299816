//! Managed files that are no such documents. The good copy is used where there is one; the bad bytes are never written
//! over, and never enter the store.

use std::fs;
use std::path::{Path, PathBuf};

use jp_tests::{Place, Workspace, dirname};
use serde_json::Value;

use super::{A, B, assert_same, holds, jp, listed, problems, roots, sample, shots, workspace};

const BROKEN: [(&str, &[&[u8]]); 3] = [
    (
        "metadata.json",
        &[
            b"",
            b"{",
            b"[]",
            b"null",
            b"5",
            b"\xff\xfe",
            b"\xef\xbb\xbf{\"last_activated_at\": \"2025-07-19 00:00:00.1\"}",
            b"{\"last_activated_at\": \"2025-07-19 00:00:00.1\"} x",
            b"{\"title\": \"a\"}",
            b"{\"last_activated_at\": 1752883200}",
            b"{\"last_activated_at\": \"yesterday\"}",
            b"{\"last_activated_at\": \"2025-07-19 00:00:00.1\", \"labels\": null}",
            b"{\"last_activated_at\": \"2025-07-19 00:00:00.1\", \"pinned_at\": 5}",
            b"{\"last_activated_at\": \"2025-07-19 00:00:00.1\", \"title\": []}",
        ],
    ),
    (
        "events.json",
        &[
            b"",
            b"[",
            b"{}",
            b"null",
            b"5",
            b"\xff",
            b"\xef\xbb\xbf[]",
            b"[5]",
            b"[{}]",
            b"[{\"type\": \"turn_start\"}]",
            b"[] []",
        ],
    ),
    ("base_config.json", &[b"", b"{", b"[]", b"null", b"\xef\xbb\xbf{}"]),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Store,
    Work,
    Both,
}

/// Breaks a file of `A`, which is in both roots beside a sound `B`. Returns the broken paths.
fn break_file(work: &Workspace, side: Side, file: &str, bytes: &[u8]) -> Vec<PathBuf> {
    sample(A, "Good").write(work, Place::Both);
    sample(B, "Sound").write(work, Place::Both);
    let [store, project] = roots(work).map(|root| root.join(dirname(A, Some("Good"))).join(file));
    let paths = match side {
        Side::Store => vec![store],
        Side::Work => vec![project],
        Side::Both => vec![store, project],
    };
    for path in &paths {
        fs::write(path, bytes).expect("written");
    }
    paths
}

#[test]
fn a_broken_document_is_named_and_hides_nothing() {
    for (file, table) in BROKEN {
        for bytes in table {
            for side in [Side::Store, Side::Work, Side::Both] {
                let work = workspace().known();
                let paths = break_file(&work, side, file, bytes);
                let told = format!("{file} on {side:?}: {:?}", String::from_utf8_lossy(bytes));
                let before = shots(&work);

                let (code, found) = problems(&work);
                assert_eq!((code, found.len()), (4, paths.len()), "{told}: {found:#?}");
                for path in &paths {
                    let one = found.iter().find(|one| one["path"] == path.to_string_lossy().as_ref()).expect("named");
                    assert_eq!((&one["kind"], &one["damage"]), (&Value::from("broken"), &Value::from(true)), "{told}");
                    assert!(one["line"].as_u64() >= Some(1) && one["column"].as_u64() >= Some(1), "{told}: {one:#}");
                }
                jp(&work, &["doctor"]).fails_with(4);
                let (one, sound) = (listed(&work, A), listed(&work, B));
                assert_eq!((&sound["title"], &sound["problem"]), (&Value::from("Sound"), &Value::Null), "{told}");
                let lost = side == Side::Both;
                let title = if lost && file == "metadata.json" { Value::Null } else { Value::from("Good") };
                let events = if lost && file != "metadata.json" { Value::Null } else { Value::from(3) };
                assert_eq!((&one["title"], &one["events"]), (&title, &events), "{told}: {one:#}");
                assert!(!lost || one["problem"].is_string(), "{told}: {one:#}");
                let code = if events.is_null() { 4 } else { 0 };
                jp(&work, &["c", "print", &A.to_string()]).fails_with(code);
                assert_same(&before, &work);
            }
        }
    }
}

#[test]
fn a_write_uses_the_good_copy_and_keeps_the_bad_bytes() {
    for (file, table) in BROKEN {
        for bytes in table {
            for side in [Side::Store, Side::Work, Side::Both] {
                let work = workspace().known();
                break_file(&work, side, file, bytes);
                let told = format!("{file} on {side:?}: {:?}", String::from_utf8_lossy(bytes));
                let before = shots(&work);
                let output = jp(&work, &["c", "edit", "--title", "New", &A.to_string()]);
                if side == Side::Both && file == "metadata.json" {
                    output.fails_with(4).says("metadata.json: line ");
                    assert_same(&before, &work);
                    continue;
                }
                output.ok();
                assert_eq!(listed(&work, A)["title"], "New", "{told}");
                let [store, project] = roots(&work).map(|root| root.join(dirname(A, Some("New"))));
                let sound = |dir: &Path| fs::read(dir.join(file)).expect("there") != *bytes;
                match side {
                    Side::Store => {
                        assert!(sound(&store) && sound(&project), "{told}: restored");
                        assert!(
                            holds(&work.silo().join("vfs/conflicts"), file, bytes),
                            "{told}: the bad bytes are gone"
                        );
                        assert_eq!(problems(&work), (0, Vec::new()), "{told}");
                    }
                    Side::Work => {
                        assert!(sound(&store) && !sound(&project), "{told}: the workspace's copy is somebody's edit");
                        assert!(
                            listed(&work, A)["problem"].is_string() || file != "metadata.json",
                            "{told}: still shown"
                        );
                        assert_eq!(problems(&work).0, 4, "{told}: still named");
                    }
                    Side::Both => {
                        assert!(!sound(&store) && !sound(&project), "{told}: neither is touched");
                        assert_eq!(problems(&work).0, 4, "{told}: still named");
                    }
                }
            }
        }
    }
}

#[test]
fn merge_markers_wait_for_a_person() {
    let work = workspace().known();
    sample(A, "Good").write(&work, Place::Both);
    let marked = "{\n<<<<<<< HEAD\n  \"title\": \"Ours\",\n=======\n  \"title\": \"Theirs\",\n>>>>>>> other\n  \
                  \"last_activated_at\": \"2025-07-19 00:00:00.1\"\n}\n";
    let real = |title| roots(&work)[1].join(dirname(A, Some(title))).join("metadata.json");
    fs::write(real("Good"), marked).expect("written");
    let is_named = |title| {
        let place = format!("{}:2:1: unresolved merge conflict marker", real(title).display());
        for command in ["status", "doctor"] {
            let output = jp(&work, &[command]).fails_with(4);
            assert!(output.stdout.contains(&place), "{}", output.told());
        }
        let one = listed(&work, A);
        assert_eq!(one["title"], title);
        assert!(one["problem"].as_str().is_some_and(|text| text.contains("line 2")), "{one:#}");
        assert_eq!(fs::read_to_string(real(title)).expect("read"), marked);
    };
    is_named("Good");
    jp(&work, &["doctor", "--fix"]).fails_with(4);
    is_named("Good");
    jp(&work, &["c", "edit", "--title", "New", &A.to_string()]).ok();
    is_named("New");
    jp(&work, &["c", "edit", "--title", "Newer", &A.to_string()]).ok();
    is_named("Newer");

    let stored = fs::read(roots(&work)[0].join(dirname(A, Some("Newer"))).join("metadata.json")).expect("read");
    fs::write(
        real("Newer"),
        marked.replace("<<<<<<< HEAD\n", "").replace("=======\n  \"title\": \"Theirs\",\n>>>>>>> other\n", ""),
    )
    .expect("written");
    assert_eq!(problems(&work), (0, Vec::new()), "a person has decided");
    assert_eq!(listed(&work, A)["title"], "Ours");
    jp(&work, &["c", "edit", "--pin", &A.to_string()]).ok();
    assert_eq!(listed(&work, A)["title"], "Ours");
    assert!(holds(&work.silo().join("vfs/conflicts"), "metadata.json", &stored), "the losing title is gone");
    jp(&work, &["doctor"]).ok();
}

#[test]
fn a_missing_document_is_damage_and_mended_from_the_other_copy() {
    for file in ["metadata.json", "events.json"] {
        let work = workspace().known();
        sample(A, "Good").without(file).without("base_config.json").write(&work, Place::User);
        sample(A, "Good").without("base_config.json").write(&work, Place::Workspace);
        let (code, found) = problems(&work);
        assert_eq!((code, &found[0]["kind"]), (4, &Value::from("missing")), "{file}: {found:#?}");
        jp(&work, &["c", "edit", "--title", "New", &A.to_string()]).ok();
        assert_eq!(problems(&work), (0, Vec::new()), "{file}");
        assert!(roots(&work)[0].join(dirname(A, Some("New"))).join(file).is_file(), "{file}");
    }
    let work = workspace().known();
    fs::create_dir_all(roots(&work)[0].join(A.to_string())).expect("made");
    assert_eq!(listed(&work, A)["title"], Value::Null);
    let before = shots(&work);
    jp(&work, &["c", "edit", "--title", "New", &A.to_string()]).fails_with(4);
    assert_same(&before, &work);
}
