//! Who holds a conversation, who waits for it, and who is let through.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jp_tests::{Call, Output, Running, Shot, Workspace, jp_binary, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::story::{assert_twins, jp, new, says, stored, workspace};

const LIMIT: Duration = Duration::from_secs(20);

fn lock_file(main: &Workspace, id: &str) -> PathBuf {
    main.silo().join(format!("locks/{id}.lock"))
}

/// Holds a conversation until its standard input is closed.
#[track_caller]
fn hold(main: &Workspace, id: &str) -> Running {
    let holder = main.call(&["lock", "run", id, "--", "cat"]).start();
    wait_for("the lock", LIMIT, || fs::read(lock_file(main, id)).is_ok_and(|text| !text.is_empty()));
    holder
}

fn retitle(main: &Workspace, id: &str, patience: &str) -> Call {
    main.call(&["c", "edit", id, "--title", "Waited"]).var("JP_LOCK_DURATION", patience)
}

#[test]
fn exit_codes_of_what_runs() {
    let main = workspace();
    let id = new(&main, "A", &[]);
    let run = |command: &[&str]| main.jp(&[&["lock", "run", &id, "--"], command].concat());
    run(&["true"]).ok();
    run(&["sh", "-c", "exit 7"]).fails_with(7);
    run(&["sh", "-c", "kill -TERM $$"]).fails_with(143);
    run(&["no-such-command"]).fails_with(127).says("cannot run no-such-command");
    run(&["/"]).fails_with(126);
    assert_eq!(run(&["echo", "data"]).ok().stdout, "data\n");
    main.jp(&["lock", "run", "jp-c1", "--", "true"]).fails_with(1);
    assert!(!lock_file(&main, &id).exists(), "nothing stays behind");
}

#[test]
fn the_file_tells_who() {
    let main = workspace();
    let id = new(&main, "A", &[]);
    let holder = hold(&main, &id);
    let text = fs::read_to_string(lock_file(&main, &id)).expect("there");
    let line: Value = serde_json::from_str(&text).expect("one line of JSON");
    let at = line["acquired_at"].as_str().expect("a time");
    assert_eq!(text, format!(r#"{{"pid":{},"session":"test","acquired_at":"{at}"}}"#, holder.pid()));
    assert!(at.ends_with("+00:00"), "{at}");
    let listed = main.jp(&["lock", "ls", "--json"]).json();
    assert_eq!((&listed[0]["id"], &listed[0]["state"]), (&Value::from(id.as_str()), &"held".into()));
    assert_eq!((&listed[0]["pid"], &listed[0]["session"]), (&Value::from(holder.pid()), &"test".into()));
    assert_eq!(says(&main, &id, "locked"), true);
    assert_eq!(main.jp(&["lock", "clear"]).ok().stdout, "", "a held lock is nobody's to clear");
    holder.finish().ok();
    assert_eq!(says(&main, &id, "locked"), false);
}

#[test]
fn waiting() {
    let main = workspace();
    let id = new(&main, "A", &[]);
    let holder = hold(&main, &id);
    let who = format!("pid {}, session test", holder.pid());
    let at_once = retitle(&main, &id, "0").run().fails_with(3).says(&who).says("jp lock ls");
    assert!(!at_once.stderr.contains("Waiting"), "{}", at_once.told());
    retitle(&main, &id, "50ms").run().fails_with(3).says(&who);
    retitle(&main, &id, "soon").run().fails_with(2).says("JP_LOCK_DURATION");
    assert_eq!(stored(&main, &id)["title"], "A");
    // Whoever only reads or takes another one does not wait.
    main.call(&["c", "show", &id]).var("JP_LOCK_DURATION", "0").run().ok();
    let other = new(&main, "B", &[]);
    retitle(&main, &other, "0").run().ok();

    let waiter = retitle(&main, &id, "60s").start();
    holder.finish().ok();
    waiter.finish().ok();
    assert_eq!(stored(&main, &id)["title"], "Waited");
    assert_twins(&main, &id);
}

#[test]
fn an_interrupted_wait_ends_at_once() {
    let main = workspace();
    let id = new(&main, "A", &[]);
    let holder = hold(&main, &id);
    let told = main.env().root().join("told");
    let mut command = main.env().command(OsStr::new("sh"), main.root());
    command.env("JP_LOCK_DURATION", "10m").arg("-c").arg("exec \"$@\" 2> \"$0\"").arg(&told).arg(jp_binary());
    command.args(["c", "edit", &id, "--title", "Waited"]);
    let waiter = Running::start(command);
    wait_for("the waiting", LIMIT, || fs::read_to_string(&told).is_ok_and(|text| text.contains("Waiting for lock")));
    let start = Instant::now();
    waiter.signal(Signal::SIGINT);
    waiter.finish().fails_with(130);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(stored(&main, &id)["title"], "A");
    holder.finish().ok();
}

#[test]
fn an_orphan_hinders_nobody() {
    let main = workspace();
    let id = new(&main, "A", &[]);
    let orphan = || {
        let listed = main.jp(&["lock", "ls", "--json"]).json();
        let rows = listed.as_array().expect("an array").clone();
        rows.iter().map(|row| row["state"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let pid = {
        let holder = hold(&main, &id);
        let pid = holder.pid();
        holder.crash().fails_with(137);
        pid
    };
    assert_eq!(orphan(), ["orphan"]);
    let listed = main.jp(&["lock", "ls", "--json"]).json();
    assert_eq!((&listed[0]["pid"], &listed[0]["alive"]), (&Value::from(pid), &false.into()));
    assert_eq!(main.jp(&["lock", "clear"]).line(), id);
    assert_eq!(orphan(), [""; 0]);

    hold(&main, &id).crash();
    retitle(&main, &id, "0").run().ok();
    assert_eq!(orphan(), [""; 0], "a command that writes clears it too");
    let other = new(&main, "B", &[]);
    hold(&main, &id).crash();
    jp(&main, &["c", "edit", &other, "--pin"]);
    assert!(!lock_file(&main, &id).exists(), "whatever it was for");
}

#[test]
fn shared_with_flock() {
    let main = workspace();
    let id = new(&main, "A", &[]);
    let file = lock_file(&main, &id);
    fs::create_dir_all(file.parent().expect("a directory")).expect("made");
    let flock = |args: &[&str]| {
        let mut command = main.env().command(OsStr::new("flock"), main.root());
        command.arg("-n").arg(&file).args(args);
        command
    };
    let theirs = Running::start(flock(&["sh", "-c", "echo x > theirs; cat"]));
    wait_for("flock(1)", LIMIT, || main.root().join("theirs").exists());
    retitle(&main, &id, "0").run().fails_with(3);
    assert_eq!(main.jp(&["lock", "ls", "--json"]).json()[0]["state"], "held");
    theirs.finish().ok();
    retitle(&main, &id, "0").run().ok();

    let ours = hold(&main, &id);
    Output::of(flock(&["true"]), b"").fails_with(1);
    ours.finish().ok();
}

#[test]
fn what_runs_beneath_a_holder_is_let_through() {
    let main = workspace();
    let id = new(&main, "A", &[]);
    let jp_path = jp_binary();
    let jp_path = jp_path.to_str().expect("UTF-8");
    let run = |command: &[&str]| {
        main.call(&[&["lock", "run", &id, "--"], command].concat()).var("JP_LOCK_DURATION", "0").run()
    };
    run(&[jp_path, "c", "edit", &id, "--title", "Beneath"]).ok();
    assert_eq!(stored(&main, &id)["title"], "Beneath");
    assert_twins(&main, &id);
    // And beneath that.
    run(&[jp_path, "lock", "run", &id, "--", jp_path, "c", "edit", &id, "--title", "Deeper"]).ok();
    assert_eq!(stored(&main, &id)["title"], "Deeper");
    assert!(!lock_file(&main, &id).exists());
}

#[test]
fn siblings_beneath_a_holder_take_turns() {
    let main = workspace();
    let id = new(&main, "A", &[]);
    let script = "for label in a b c d; do \"$jp\" c label add -i \"$0\" $label || exit 9 & done; wait";
    let call = main.call(&["lock", "run", &id, "--", "sh", "-c", script, &id]);
    call.var("jp", jp_binary()).var("JP_LOCK_DURATION", "15s").run().ok();
    let labels = stored(&main, &id)["labels"].clone();
    let names: Vec<_> = labels.as_object().expect("labels").keys().cloned().collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    assert_twins(&main, &id);
}

/// The state of this worktree in the store.
fn worktree_state(main: &Workspace) -> PathBuf {
    let mut dirs = fs::read_dir(main.silo().join("vfs")).expect("listed").map(|entry| entry.expect("listed").path());
    dirs.find(|dir| dir.join("projection.lock").exists()).expect("a command that writes has been here")
}

/// What the path is for, the path, and a command that opens it.
type Opened = (&'static str, fn(&Workspace, &str) -> PathBuf, &'static [&'static str]);

const OPENED: [Opened; 8] = [
    ("the directory of locks", |main, _| main.silo().join("locks"), &["c", "edit", "ID", "--title", "New"]),
    ("a conversation's lock", lock_file, &["c", "edit", "ID", "--title", "New"]),
    ("ids.lock", |main, _| main.silo().join("vfs/ids.lock"), &["c", "new", "--title", "New"]),
    ("tree.lock", |main, _| main.silo().join("vfs/tree.lock"), &["c", "mv", "ID", "--root"]),
    ("sessions.lock", |main, _| main.silo().join("vfs/sessions.lock"), &["c", "use", "ID"]),
    ("projection.lock", |main, _| worktree_state(main).join("projection.lock"), &["c", "edit", "ID", "--title", "New"]),
    ("the directory of sessions", |main, _| main.silo().join("sessions"), &["c", "use", "ID"]),
    (
        "a session file",
        |main, _| {
            let shown = main.jp(&["session", "show", "--json"]).json();
            PathBuf::from(shown["path"].as_str().expect("a path"))
        },
        &["c", "use", "ID"],
    ),
];

/// What is put at a path, and how. Links lead to the second path or to nothing.
type Planted = (&'static str, fn(&Path, &Path));

const PLANTED: [Planted; 4] = [
    ("a symbolic link", |path, target| symlink(target, path).expect("linked")),
    ("a symbolic link", |path, target| symlink(target.with_file_name("nowhere"), path).expect("linked")),
    ("a directory", |path, _| fs::create_dir(path).expect("made")),
    ("a pipe, a socket or a device", |path, _| {
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o600)).expect("made");
    }),
];

#[test]
fn what_is_in_the_place_of_a_lock_is_named_and_left_alone() {
    for (name, place, command) in OPENED {
        for (at, (kind, plant)) in PLANTED.into_iter().enumerate() {
            let wants_dir = name.starts_with("the directory");
            if wants_dir && kind == "a directory" {
                continue;
            }
            let main = workspace();
            let id = new(&main, "A", &[]);
            jp(&main, &["c", "use", &id]);
            let path = place(&main, &id);
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            let target = main.env().root().join("target");
            if wants_dir {
                fs::create_dir(&target).expect("made");
                fs::write(target.join("jp-c1.lock"), "theirs").expect("written");
            } else {
                fs::write(&target, "theirs").expect("written");
            }
            plant(&path, &target);
            let (before, theirs) = (fs::symlink_metadata(&path).expect("there").ino(), Shot::of(&target));
            let command: Vec<&str> = command.iter().map(|word| if *word == "ID" { &id } else { *word }).collect();

            let output = main.call(&command).start().finish_within(LIMIT);
            assert_eq!(output.code, 4, "{name}, {kind} ({at})\n{}", output.told());
            for expected in [&*path.display().to_string(), kind, "remove it"] {
                assert!(output.stderr.contains(expected), "{name}, {kind} ({at}): no {expected:?}\n{}", output.told());
            }
            main.call(&["lock", "clear"]).start().finish_within(LIMIT);
            main.call(&["doctor", "--fix"]).start().finish_within(LIMIT);
            let doctor = main.call(&["doctor", "--json"]).start().finish_within(LIMIT);
            if wants_dir {
                // No command begins as long as a directory of the store is something else.
                let doctor = doctor.fails_with(4);
                assert!(doctor.stderr.contains(&*path.display().to_string()), "{}", doctor.told());
            } else {
                let doctor = doctor.fails_with(1);
                let report: Value = serde_json::from_slice(&doctor.raw).expect("JSON");
                let found = report["findings"].as_array().expect("an array").iter();
                let named = found.filter(|finding| finding["path"] == *path.display().to_string()).count();
                assert_eq!(named, 1, "{name}, {kind} ({at}): {report:#}");
            }
            // Neither removed nor followed.
            assert_eq!(fs::symlink_metadata(&path).expect("still there").ino(), before, "{name}, {kind} ({at})");
            theirs.assert_same(&Shot::of(&target));
            assert!(!target.with_file_name("nowhere").exists(), "{name}: nothing is made through a link");

            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
            main.jp(&command).ok();
        }
    }
}

#[test]
fn a_lock_file_of_our_own_becomes_private() {
    let main = workspace();
    let id = new(&main, "A", &[]);
    let state = worktree_state(&main);
    let locks = [main.silo().join("vfs/ids.lock"), main.silo().join("vfs/tree.lock"), state.join("projection.lock")];
    for path in &locks {
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("ours");
    }
    let lock = lock_file(&main, &id);
    fs::create_dir_all(lock.parent().expect("a directory")).expect("made");
    fs::write(&lock, "").expect("written");
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o666)).expect("ours");
    let holder = hold(&main, &id);
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&lock), 0o600, "a conversation's lock");
    holder.finish().ok();
    new(&main, "B", &[]);
    for path in &locks {
        assert_eq!(mode(path), 0o600, "{}", path.display());
    }
}

#[test]
fn a_wait_for_an_internal_lock_is_reported() {
    for json in [false, true] {
        let main = workspace();
        let id = new(&main, "A", &[]);
        let ids = main.silo().join("vfs/ids.lock");
        let mut flock = main.env().command(OsStr::new("flock"), main.root());
        // A shared lock on a descriptor for reading blocks as well.
        flock.args(["-s", "-n", "-o"]).arg(&ids).args(["sh", "-c", "echo x > held; cat"]);
        let holder = Running::start(flock);
        wait_for("flock(1)", LIMIT, || main.root().join("held").exists());
        let told = main.env().root().join("told");
        let mut command = main.env().command(OsStr::new("sh"), main.root());
        command.arg("-c").arg("exec \"$@\" 2> \"$0\"").arg(&told).arg(jp_binary()).args(["c", "new", "--title", "B"]);
        if json {
            command.arg("--json");
        }
        let waiter = Running::start(command);
        wait_for("the message", LIMIT, || fs::read_to_string(&told).is_ok_and(|text| text.ends_with('\n')));
        let text = fs::read_to_string(&told).expect("there");
        for expected in ["waiting for", &*ids.display().to_string(), "held by pid "] {
            assert!(text.contains(expected), "no {expected:?} in {text:?}");
        }
        if json {
            let line: Value = serde_json::from_str(&text).expect("one line of JSON");
            assert_eq!(line["level"], "warning");
        }
        holder.finish().ok();
        waiter.finish().ok();
        assert_eq!(fs::read_to_string(&told).expect("there"), text, "it is said once");
        jp(&main, &["c", "show", &id]);
    }
}

/// Files in the project's directory of locks that are called as locks and are none.
const FOREIGN: [&str; 4] = ["tracked by somebody\n", r#"{"pid":7,"note":"mine"}"#, r#"{"pid":"seven"}"#, "[]"];

#[test]
fn a_file_of_the_project_with_the_name_of_a_lock_stays() {
    for text in FOREIGN {
        let main = workspace();
        let ids = [new(&main, "A", &[]), "jp-c17000000001".to_owned()];
        let dir = main.storage().join("locks");
        fs::create_dir(&dir).expect("made");
        let files = ids.clone().map(|id| dir.join(format!("{id}.lock")));
        for file in &files {
            fs::write(file, text).expect("written");
        }
        let before = Shot::of(&dir);
        for args in [
            &["c", "edit", &ids[0], "--title", "B"][..],
            &["lock", "run", &ids[0], "--", "true"],
            &["c", "new"],
            &["export"],
            &["gc"],
            &["lock", "clear"],
        ] {
            jp(&main, args);
            before.assert_same(&Shot::of(&dir));
        }
        main.jp(&["doctor", "--fix"]);
        before.assert_same(&Shot::of(&dir));
        let report = main.jp(&["doctor", "--json"]).fails_with(1);
        let report: Value = serde_json::from_slice(&report.raw).expect("JSON");
        let found = report["findings"].as_array().expect("an array");
        let named: Vec<_> = found.iter().map(|finding| (&finding["path"], &finding["kind"])).collect();
        let expected = files.clone().map(|file| (Value::from(file.display().to_string()), Value::from("in-the-way")));
        assert_eq!(named, [(&expected[1].0, &expected[1].1), (&expected[0].0, &expected[0].1)]);
        assert_eq!(main.jp(&["lock", "ls", "--json"]).json(), serde_json::json!([]));
        // It is the file that other programs lock, all the same.
        let mut flock = main.env().command(OsStr::new("flock"), main.root());
        flock.args(["-n", "-o"]).arg(&files[0]).args(["sh", "-c", "echo x > held; cat"]);
        let holder = Running::start(flock);
        wait_for("flock(1)", LIMIT, || main.root().join("held").exists());
        retitle(&main, &ids[0], "0").run().fails_with(3);
        holder.finish().ok();
        retitle(&main, &ids[0], "0").run().ok();
        before.assert_same(&Shot::of(&dir));
    }
}

#[test]
fn a_lock_file_that_was_left_behind_in_the_project_goes() {
    for text in ["", r#"{"pid":4194304,"session":"x","acquired_at":"2026-08-20T14:03:11.258319251+00:00"}"#] {
        let main = workspace();
        let dir = main.storage().join("locks");
        fs::create_dir(&dir).expect("made");
        fs::write(dir.join("jp-c17000000001.lock"), text).expect("written");
        new(&main, "A", &[]);
        assert_eq!(fs::read_dir(&dir).expect("listed").count(), 0, "{text:?}");
    }
}

/// Without a home the project has the only locks.
#[test]
fn a_file_of_the_project_stays_where_the_project_is_the_store() {
    let main = workspace();
    let dir = main.storage().join("locks");
    fs::create_dir(&dir).expect("made");
    fs::write(dir.join("jp-c17000000001.lock"), FOREIGN[0]).expect("written");
    fs::write(dir.join("jp-c17000000002.lock"), "").expect("written");
    let homeless =
        |args: &[&str]| main.call(args).no_var("HOME").no_var("JP_USER_DATA_DIR").no_var("XDG_DATA_HOME").run().ok();
    let id = homeless(&["c", "new", "--title", "A"]).line().to_owned();
    homeless(&["c", "edit", &id, "--title", "B"]);
    homeless(&["lock", "clear"]);
    let left = fs::read_dir(&dir).expect("listed").map(|entry| entry.expect("listed").file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["jp-c17000000001.lock"]);
    assert_eq!(fs::read_to_string(dir.join("jp-c17000000001.lock")).expect("there"), FOREIGN[0]);
}
