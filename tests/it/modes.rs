//! Who can read what: everything in the data directory is its owner's alone, and a copy is never wider than the file it was
//! made from.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use jp_tests::{Call, Output, Place, Running, Sample, Workspace, jp_binary, mtime, set_mtime};
use serde_json::Value;

use crate::story::{MANAGED, SECOND, in_store, jp, new, store_file, work_file, workspace};

const A: u64 = 17_528_832_001;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap_or_else(|err| panic!("{}: {err}", path.display())).mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .unwrap_or_else(|err| panic!("{}: {err}", path.display()));
}

/// Runs `jp` with this umask.
fn jp_with_umask(workspace: &Workspace, umask: &str, args: &[&str]) -> Output {
    let mut command = workspace.env().command(OsStr::new("sh"), workspace.root());
    command.arg("-c").arg("umask \"$0\"; exec \"$@\"").arg(umask).arg(jp_binary()).args(args);
    Running::start(command).finish()
}

/// Everything beneath a directory but links, with its mode.
fn modes(dir: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = vec![(dir.to_owned(), mode(dir))];
    for entry in fs::read_dir(dir).expect("a directory can be listed").map(|entry| entry.expect("listed")) {
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            found.extend(modes(&entry.path()));
        } else if !kind.is_symlink() {
            found.push((entry.path(), mode(&entry.path())));
        }
    }
    found
}

/// Asserts that nobody but the owner can do anything with what is beneath a directory.
#[track_caller]
fn assert_private(dir: &Path) {
    let wide: Vec<_> = modes(dir).into_iter().filter(|(_, mode)| mode & 0o077 != 0).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

/// Changes a file by hand, later than anything else.
fn edit_by_hand(path: &Path, text: &str) {
    let before = mtime(path);
    fs::write(path, text).expect("written");
    set_mtime(path, before + 10 * SECOND);
}

fn metadata(title: &str) -> String {
    format!("{{\"title\": \"{title}\", \"last_activated_at\": \"2025-07-19 00:00:00.0\"}}\n")
}

#[test]
fn everything_new_in_the_data_directory_is_private() {
    for umask in ["0000", "0022"] {
        let main = workspace();
        fs::remove_dir(main.env().data()).expect("empty");
        let run = |args: &[&str]| jp_with_umask(&main, umask, args).ok();
        let a = run(&["c", "new", "--title", "A"]).line().to_owned();
        let b = run(&["c", "new", "--title", "B", "--parent", &a]).line().to_owned();
        run(&["c", "fork", &a]);
        run(&["c", "use", &b]);
        fs::write(work_file(&main, &a, "notes.md"), "x").expect("written");
        fs::create_dir(work_file(&main, &a, "more")).expect("made");
        fs::write(work_file(&main, &a, "more/deep.md"), "x").expect("written");
        run(&["import"]);
        // Both sides change: the loser is kept.
        edit_by_hand(&store_file(&main, &b, "metadata.json"), &metadata("Store"));
        edit_by_hand(&work_file(&main, &b, "metadata.json"), &metadata("Work"));
        run(&["export"]);
        assert!(main.silo().join("vfs/conflicts").is_dir(), "there is a loser");
        run(&["c", "archive", &b, "--yes"]);
        run(&["lock", "run", &a, "--", "true"]);
        run(&["export", "--to", main.root().join("../out").to_str().expect("UTF-8")]);
        run(&["doctor", "--fix"]);
        assert_private(&main.env().data());
        // The state of a mount, while it lives and after it.
        run(&["mount", "--mirror"]);
        let while_it_lives = modes(&main.env().data());
        run(&["unmount"]);
        let wide: Vec<_> = while_it_lives.iter().filter(|(_, mode)| mode & 0o077 != 0).collect();
        assert!(wide.is_empty(), "{wide:#?}");
        assert!(while_it_lives.iter().any(|(path, _)| path.ends_with("control.sock")), "the mount was there");
        assert_private(&main.env().data());
    }
}

#[test]
fn the_worktree_and_an_export_follow_the_umask() {
    for (umask, file, dir) in [("0022", 0o644, 0o755), ("0002", 0o664, 0o775), ("0077", 0o600, 0o700)] {
        let main = workspace();
        let id = jp_with_umask(&main, umask, &["c", "new", "--title", "A"]).line().to_owned();
        let out = main.root().join("../out");
        jp_with_umask(&main, umask, &["export", "--to", out.to_str().expect("UTF-8")]).ok();
        let exported = fs::read_dir(&out).expect("listed").next().expect("one").expect("listed").path();
        for copy in [crate::story::in_work(&main, &id).expect("there"), exported] {
            assert_eq!(mode(&copy), dir, "umask {umask}: {}", copy.display());
            for name in MANAGED {
                assert_eq!(mode(&copy.join(name)), file, "umask {umask}: {name} in {}", copy.display());
            }
        }
    }
}

#[test]
fn an_import_is_private_and_keeps_the_execute_bit_alone() {
    let main = workspace();
    let sample = Sample::new(A).title("Came by git").file("notes.md", "x").file("run.sh", "x").file("deep/odd", "x");
    sample.write(&main, Place::Workspace);
    let work = main.storage().join("conversations").join(sample.dirname());
    chmod(&work.join("metadata.json"), 0o600);
    chmod(&work.join("run.sh"), 0o755);
    chmod(&work.join("deep/odd"), 0o6751);
    chmod(&work.join("deep"), 0o3775);
    jp(&main, &["import"]);
    let store = in_store(&main, &format!("jp-c{A}")).expect("imported");
    for (name, expected) in
        [("metadata.json", 0o600), ("events.json", 0o600), ("notes.md", 0o600), ("run.sh", 0o700), ("deep/odd", 0o700)]
    {
        assert_eq!(mode(&store.join(name)), expected, "{name}");
    }
    assert_private(&store);
    // Without the special bits it came with it is copied out to another worktree, no wider than it is in the store.
    jp(&main, &["export", "--to", main.root().join("../out").to_str().expect("UTF-8")]);
    assert_eq!(mode(&main.root().join("../out").join(sample.dirname()).join("deep/odd")), 0o700);
}

#[test]
fn a_copy_that_is_replaced_gets_the_narrower_mode() {
    for (store_mode, work_mode, expected) in
        [(0o644, 0o600, 0o600), (0o640, 0o666, 0o640), (0o600, 0o644, 0o600), (0o664, 0o664, 0o664)]
    {
        let main = workspace();
        let id = new(&main, "A", &[]);
        fs::write(work_file(&main, &id, "notes.md"), "x").expect("written");
        jp(&main, &["import"]);
        for name in ["metadata.json", "notes.md"] {
            chmod(&store_file(&main, &id, name), store_mode);
            chmod(&work_file(&main, &id, name), work_mode);
        }
        edit_by_hand(&work_file(&main, &id, "metadata.json"), &metadata("By hand"));
        edit_by_hand(&work_file(&main, &id, "notes.md"), "more");
        jp(&main, &["import"]);
        for name in ["metadata.json", "notes.md"] {
            assert_eq!(fs::read(store_file(&main, &id, name)).ok(), fs::read(work_file(&main, &id, name)).ok());
            let found = mode(&store_file(&main, &id, name));
            assert_eq!(found, expected, "{name}: {store_mode:o} and {work_mode:o} became {found:o}");
        }
    }
}

#[test]
fn an_export_keeps_the_mode_of_a_file_that_is_there() {
    for work_mode in [0o600, 0o640, 0o644] {
        let main = workspace();
        let id = new(&main, "A", &[]);
        let out = main.root().join("../out");
        let export_to = || jp(&main, &["export", "--to", out.to_str().expect("UTF-8")]);
        fs::write(work_file(&main, &id, "notes.md"), "x").expect("written");
        jp(&main, &["import"]);
        export_to();
        let exported = fs::read_dir(&out).expect("listed").next().expect("one").expect("listed").path();
        for name in ["events.json", "notes.md"] {
            chmod(&work_file(&main, &id, name), work_mode);
            chmod(&exported.join(name), work_mode);
        }
        let events = "[{\"timestamp\": \"2026-01-01 00:00:00.0\", \"type\": \"turn_start\"}]\n";
        edit_by_hand(&store_file(&main, &id, "events.json"), events);
        edit_by_hand(&store_file(&main, &id, "notes.md"), "more");
        jp(&main, &["export"]);
        export_to();
        for name in ["events.json", "notes.md"] {
            for path in [work_file(&main, &id, name), exported.join(name)] {
                assert_eq!(fs::read(&path).ok(), fs::read(store_file(&main, &id, name)).ok(), "{}", path.display());
                assert_eq!(mode(&path), work_mode, "{}", path.display());
            }
        }
    }
}

#[test]
fn a_chmod_of_a_file_in_the_store_stays() {
    for umask in ["0000", "0022", "0077"] {
        let main = workspace();
        let id = new(&main, "A", &[]);
        for (at, wanted) in [0o644, 0o660, 0o600].into_iter().enumerate() {
            chmod(&store_file(&main, &id, "metadata.json"), wanted);
            jp_with_umask(&main, umask, &["c", "edit", &id, "--title", &format!("Title {at}")]).ok();
            assert_eq!(mode(&store_file(&main, &id, "metadata.json")), wanted, "umask {umask}");
        }
    }
}

#[test]
fn losers_are_private() {
    let main = workspace();
    let id = new(&main, "A", &[]);
    fs::write(work_file(&main, &id, "notes.md"), "x").expect("written");
    jp(&main, &["import"]);
    for name in ["metadata.json", "notes.md"] {
        for path in [store_file(&main, &id, name), work_file(&main, &id, name)] {
            chmod(&path, 0o666);
            let text = if name == "notes.md" { path.display().to_string() } else { metadata("Another") };
            edit_by_hand(&path, &format!("{text} "));
        }
        let both = fs::read_to_string(work_file(&main, &id, name)).expect("there");
        edit_by_hand(&work_file(&main, &id, name), &format!("{both} "));
    }
    jp(&main, &["export"]);
    let kept = modes(&main.silo().join("vfs/conflicts"));
    assert!(kept.iter().filter(|(path, _)| path.is_file()).count() >= 2, "{kept:#?}");
    for (path, mode) in kept {
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
}

#[test]
fn doctor_names_wide_modes_once_and_narrows_them() {
    let main = workspace();
    let a = new(&main, "A", &[]);
    new(&main, "B", &["--parent", &a]);
    jp(&main, &["doctor"]);
    let (run, notes) = (store_file(&main, &a, "run.sh"), store_file(&main, &a, "notes.md"));
    fs::write(&run, "x").expect("written");
    fs::write(&notes, "x").expect("written");
    for (path, mode) in modes(&main.silo()) {
        chmod(&path, if mode & 0o100 != 0 || path == run { 0o755 } else { 0o644 });
    }
    let before = modes(&main.silo());
    let output = main.jp(&["doctor", "--json"]).fails_with(1);
    let report: Value = serde_json::from_slice(&output.raw).expect("JSON");
    let findings = report["findings"].as_array().expect("an array");
    assert_eq!(findings.len(), 1, "{report:#}");
    assert_eq!(findings[0]["kind"], "exposed", "{report:#}");
    let what = findings[0]["what"].as_str().expect("a text");
    assert!(what.contains(&before.len().to_string()), "{what} does not count {}", before.len());
    // Other commands leave modes that are there alone.
    jp(&main, &["c", "edit", &a, "--title", "New"]);
    jp(&main, &["export"]);
    assert_eq!(mode(&main.silo()), 0o755);
    assert_eq!(mode(&store_file(&main, &a, "metadata.json")), 0o644);

    let wide = modes(&main.silo()).into_iter().filter(|(_, mode)| mode & 0o077 != 0).count();
    let fixed = main.jp(&["doctor", "--fix"]).ok();
    assert!(fixed.stdout.contains(&format!("{wide} modes narrowed")), "{}", fixed.told());
    assert_private(&main.silo());
    assert_eq!(mode(&store_file(&main, &a, "run.sh")), 0o700);
    assert_eq!(mode(&store_file(&main, &a, "notes.md")), 0o600);
    jp(&main, &["doctor"]);
}

#[test]
fn editors_get_private_copies() {
    for args in [&["c", "edit", "--metadata"][..], &["c", "edit", "--metadata", "--events"]] {
        let main = workspace();
        let id = new(&main, "A", &[]);
        let told = main.root().join("../told");
        let editor = format!(
            "sh -c 'find \"$1\" \"$(dirname \"$1\")\" -path \"*jp-edit-*\" -printf \"%m %p\\n\" > \"{}\"' sh",
            told.display()
        );
        let call: Call = main.call(&[args, &[id.as_str()]].concat()).var("JP_EDITOR", &editor);
        call.run().ok();
        let lines = fs::read_to_string(&told).expect("the editor ran");
        assert!(lines.lines().count() >= 2, "{lines}");
        for line in lines.lines() {
            let (mode, path) = line.split_once(' ').expect("a mode and a path");
            let expected = if path.ends_with(".json") { "600" } else { "700" };
            assert_eq!(mode, expected, "{line}");
            assert!(!Path::new(path).exists(), "{path} is gone afterwards");
        }
    }
}
