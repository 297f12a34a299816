//! What is told is what is so: every command names what an export holds, and an import prints the moves that it does.

use std::fs::{self, File};

use jp_tests::TestEnv;
use serde_json::Value;

use crate::story::{family, in_work, jp};

/// A user file that is too large stays where it is, and `export`, `import`, `status` and `doctor` all name it.
#[test]
fn everybody_names_what_is_held() {
    let w = TestEnv::new().init_workspace("main", "otvo8");
    let [a, ..] = family(&w);
    jp(&w, &["export"]);
    let path = in_work(&w, &a).expect("it is shown").join("huge.bin");
    File::create(&path).and_then(|file| file.set_len((1 << 30) + 1)).expect("a sparse file");
    let parse = |told: jp_tests::Output| -> Value { serde_json::from_slice(&told.raw).expect("JSON") };
    let told = [
        parse(w.jp(&["export", "--json"]).fails_with(1))["held"].clone(),
        parse(w.jp(&["import", "--json"]).fails_with(1))["held"].clone(),
        parse(w.jp(&["status", "--json"]).ok())["problems"].clone(),
        parse(w.jp(&["doctor", "--json"]).fails_with(1))["findings"].clone(),
    ];
    for held in &told {
        let held = held.as_array().expect("an array");
        let named = held.iter().filter(|it| it["id"] == *a && it.to_string().contains("huge.bin"));
        assert_eq!(named.count(), 1, "{held:?}");
    }
    assert!(told[2][0]["kind"] == "held" && told[3][0]["kind"] == "held", "{told:?}");
    fs::remove_file(&path).expect("it is ours");
    w.jp(&["doctor"]).ok().says("All is well.");
}

/// The rest of its conversation goes both ways, and so does the rest of a conversation that is new.
#[test]
fn what_is_too_large_keeps_nothing_else() {
    let w = TestEnv::new().init_workspace("main", "otvo8");
    let [a, ..] = family(&w);
    jp(&w, &["export"]);
    let huge = |dir: &std::path::Path| {
        File::create(dir.join("huge.bin")).and_then(|file| file.set_len((1 << 30) + 1)).expect("a sparse file");
        fs::write(dir.join("notes.md"), "mine").expect("a new file");
    };
    huge(&in_work(&w, &a).expect("it is shown"));
    let new = jp_tests::Sample::new(17_600_000_001).title("Pulled").write(&w, jp_tests::Place::Workspace);
    huge(&new);
    let told = w.jp(&["import"]).fails_with(1);
    assert_eq!(told.stderr.matches("huge.bin: larger than 1 GiB").count(), 2, "{}", told.told());
    let find = |name: &str| {
        let dirs = fs::read_dir(w.silo().join("conversations")).expect("the store");
        dirs.filter(|dir| dir.as_ref().is_ok_and(|dir| dir.path().join(name).exists())).count()
    };
    assert_eq!((find("notes.md"), find("huge.bin")), (2, 0));
    // It is not taken for removed, nor are the files beside it.
    w.jp(&["export"]).fails_with(1);
    w.jp(&["import"]).fails_with(1);
    assert!(new.join("huge.bin").exists() && new.join("notes.md").exists());
    let to = w.env().root().join("elsewhere");
    fs::rename(new.join("huge.bin"), w.silo().join("conversations/17600000001-pulled/huge.bin")).expect("moved");
    let told = w.jp(&["export", "--to", to.to_str().expect("text")]).fails_with(1);
    assert!(told.stderr.contains("huge.bin: larger than 1 GiB"), "{}", told.told());
    assert!(to.join("17600000001-pulled/notes.md").exists());
}

/// What is broken is named once.
#[test]
fn what_is_broken_is_named_once() {
    let w = TestEnv::in_memory().init_workspace("main", "otvo8");
    let [a, ..] = family(&w);
    jp(&w, &["export"]);
    fs::write(in_work(&w, &a).expect("it is shown").join("metadata.json"), "{").expect("a file can be written");
    let told = w.jp(&["status", "--json"]).fails_with(4);
    let status: Value = serde_json::from_slice(&told.raw).expect("JSON");
    assert_eq!(status["problems"].as_array().map(Vec::len), Some(1), "{}", told.told());
}

/// An import moves a copy beneath its parent's copy as that is: the parent is not moved for it.
#[test]
fn an_import_prints_the_moves_that_it_does() {
    let w = TestEnv::in_memory().init_workspace("main", "otvo8");
    let other = w.env().init_workspace("other", "otvo8");
    let [a, b, _] = family(&w);
    jp(&w, &["export"]);
    for (id, title) in [(&a, "Another parent"), (&b, "Another child")] {
        jp(&other, &["c", "edit", id, "--title", title]);
    }
    let dir = in_work(&w, &b).expect("it is shown");
    fs::write(dir.join("notes.md"), "mine").expect("a new file");
    let planned = w.jp(&["import", "--dry-run"]).ok().stdout;
    let done = w.jp(&["import"]).ok().stdout;
    assert_eq!(done, planned);
    let root = w.storage().join("conversations");
    let now = in_work(&w, &b).expect("it is shown");
    let relative = |path: &std::path::Path| path.strip_prefix(&root).expect("it is in there").display().to_string();
    assert!(done.contains(&format!("move {} -> {}\n", relative(&dir), relative(&now))), "{done}{}", now.display());
    w.jp(&["import", "--dry-run"]).ok().says("Nothing to do");
}
