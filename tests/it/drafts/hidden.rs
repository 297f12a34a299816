//! Files and conversations that were removed in a mount, and how they come back.

use std::fs;
use std::path::Path;

use jp_tests::{Mounted, ids};
use serde_json::{Value, json};

use super::{ID, Then, all_is_well, dir, each, mounted, prints};

fn names(dir: &Path) -> Vec<String> {
    let listed = fs::read_dir(dir).unwrap_or_else(|err| panic!("{}: {err}", dir.display()));
    let mut names: Vec<_> = listed.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The commands agree on what is hidden, and on nothing being wrong.
#[track_caller]
fn hides(m: &Mounted, files: &[&str]) {
    let expected = if files.is_empty() { json!([]) } else { json!([{ "id": ID, "files": files }]) };
    assert_eq!(json!(m.status("hidden")), expected);
    assert_eq!(m.jp(&["c", "show", ID, "--json"]).ok().json()[0]["hidden"], json!(files));
    let doctor: Value = serde_json::from_slice(&m.jp(&["doctor", "--json"]).raw).unwrap();
    let damage: Vec<&Value> =
        doctor["findings"].as_array().unwrap().iter().filter(|it| it["kind"] != "stale-mount").collect();
    assert_eq!(damage, [] as [&Value; 0]);
}

/// `rm` of a file that has a draft: the draft is kept, the file is hidden, and all commands say so.
#[test]
fn a_file_with_a_draft_is_removed() {
    let save = |m: &Mounted| {
        fs::write(dir(m).join("metadata.json"), "{ \"x\": ").unwrap();
        fs::write(dir(m).join("notes.md"), "mine").unwrap();
        fs::remove_file(dir(m).join("metadata.json")).unwrap();
        fs::remove_file(dir(m).join("notes.md")).unwrap();
        // The next crash would have something to wait for otherwise.
        fs::write(dir(m).join("events.json"), "[").unwrap();
    };
    each(save, |m, then| {
        m.jp(&["draft", "drop", ID, "events.json", "-y"]).ok();
        let kept = m.status("conflicts");
        assert!(kept.iter().any(|it| it["path"].as_str().unwrap().contains("removed-draft")), "{kept:?}");
        assert_eq!(m.status("drafts"), [] as [Value; 0]);
        hides(m, &["metadata.json", "notes.md"]);
        prints(&m.jp(&["status"]), &format!("jp c unhide {ID}"));
        if then != Then::Killed {
            m.jp(&["export"]).ok();
            m.jp(&["export", "--check"]).ok();
            assert_eq!(names(&dir(m)), ["base_config.json", "events.json"], "{then:?}");
        }
        m.jp(&["c", "unhide", ID, "nothing.md"]).fails_with(1).says("is not hidden");
        let told = m.jp(&["c", "unhide", ID, "./metadata.json", "--json"]).ok().json();
        assert_eq!((&told["files"], &told["shown"]), (&json!(["metadata.json"]), &json!(false)));
        hides(m, &["notes.md"]);
        if then != Then::Killed {
            assert_eq!(names(&dir(m)), ["base_config.json", "events.json", "metadata.json"], "{then:?}");
            let shown = fs::read_to_string(dir(m).join("metadata.json")).unwrap();
            assert_eq!(shown, m.text(ids::D, "metadata.json"));
        }
        m.jp(&["c", "unhide", ID]).ok().says("notes.md");
        hides(m, &[]);
        all_is_well(m, then);
        assert_eq!(fs::read_to_string(dir(m).join("notes.md")).unwrap(), "mine", "{then:?}");
        m.jp(&["c", "unhide", ID]).ok().says("hides nothing");
    });
}

/// A conversation that was removed comes back with what is above it.
#[test]
fn a_conversation_comes_back_with_its_ancestors() {
    const C: &str = "jp-c17528852001";
    let save = |m: &Mounted| {
        m.sh("rm -r \"$A\"");
        fs::write(dir(m).join("events.json"), "[").unwrap();
    };
    each(save, |m, then| {
        m.jp(&["draft", "drop", ID, "-y"]).ok();
        assert_eq!(m.says(ids::C, "presence"), "local", "{then:?}");
        m.jp(&["c", "unhide", C, "metadata.json"]).fails_with(1).says("hidden here as a whole");
        let told = m.jp(&["c", "unhide", C, "--json"]).ok().json();
        assert_eq!(told["shown"], true, "{then:?}");
        let above: Vec<_> = told["ancestors"].as_array().unwrap().iter().collect();
        assert_eq!(json!(above), json!(["jp-c17528832001", "jp-c17528842001"]), "{then:?}");
        assert_eq!(m.says(ids::C, "presence"), "projected", "{then:?}");
        all_is_well(m, then);
        m.script("cat \"$M/$C/metadata.json\" > /dev/null").ok();
    });
}

/// A directory of the user's own, and one file in it.
#[test]
fn directories_come_back() {
    let save = |m: &Mounted| {
        fs::create_dir(dir(m).join("notes")).unwrap();
        for name in ["a.md", "b.md"] {
            fs::write(dir(m).join("notes").join(name), name).unwrap();
        }
        fs::remove_dir_all(dir(m).join("notes")).unwrap();
        fs::write(dir(m).join("events.json"), "[").unwrap();
    };
    each(save, |m, then| {
        m.jp(&["draft", "drop", ID, "-y"]).ok();
        let hidden = m.status("hidden");
        assert_eq!(hidden[0]["files"], json!(["notes"]), "{then:?}");
        m.jp(&["c", "unhide", ID, "notes/"]).ok();
        hides(m, &[]);
        all_is_well(m, then);
        assert_eq!(names(&dir(m).join("notes")), ["a.md", "b.md"], "{then:?}");
    });
}

/// A file that is hidden is not missing: `doctor`, `export --check` and `status` agree, beneath the mount and after it.
#[test]
fn a_removed_file_is_not_damage() {
    let Some(m) = mounted() else { return };
    fs::write(dir(&m).join("metadata.json"), "{ \"x\": ").unwrap();
    fs::remove_file(dir(&m).join("metadata.json")).unwrap();
    for mounted in [true, false] {
        if !mounted {
            m.end(&[]);
        }
        m.jp(&["doctor"]).ok().says("All is well.");
        m.jp(&["export"]).ok();
        m.jp(&["export", "--check"]).ok();
        prints(&m.jp(&["status"]).ok(), "metadata.json");
    }
}

/// `doctor` names what `status` lists.
#[test]
fn a_draft_is_a_finding() {
    let Some(m) = mounted() else { return };
    fs::write(dir(&m).join("metadata.json"), "{ \"x\": ").unwrap();
    assert_eq!(m.status("drafts").len(), 1);
    prints(&m.jp(&["doctor"]).fails_with(1), "metadata.json:1:7: a draft: ");
}
