//! Drafts and hidden files, by command: with a live mount, after it has ended, and after its daemon was killed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use jp_tests::{LIMIT, Mounted, Output, Running, TestEnv, User, ids, skip, until, wait_for};
use nix::unistd::geteuid;
use serde_json::{Value, json};

// What removing in a mount hides, and how it comes back.
mod hidden;

/// What has become of the mount that the drafts were saved through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Live,
    Ended,
    Killed,
}

const ID: &str = "jp-c17528862001";

/// A mount with "Größe 🎉" in it, under `$D`'s id.
#[track_caller]
fn mounted() -> Option<Mounted> {
    let m = Mounted::not_yet(User::Own, TestEnv::in_memory)?;
    m.jp(&["c", "edit", ID, "--title", "Größe 🎉 plans"]).ok();
    m.begin(&[]);
    Some(m)
}

/// Runs a story for each way that a mount can be after something was saved through it.
#[track_caller]
fn each(save: impl Fn(&Mounted), story: impl Fn(&Mounted, Then)) {
    for then in [Then::Live, Then::Ended, Then::Killed] {
        let Some(m) = mounted() else { return };
        save(&m);
        match then {
            Then::Live => {}
            Then::Ended => drop(m.end(&[])),
            Then::Killed => {
                wait_for("the draft on disk", LIMIT, || !on_disk(&m).is_empty());
                m.crash();
            }
        }
        story(&m, then);
    }
}

/// The files beneath the worktree's drafts.
fn on_disk(m: &Mounted) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![m.state().join("drafts")];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found
}

#[track_caller]
fn prints(told: &Output, text: &str) {
    assert!(told.stdout.contains(text), "expected {text:?} on stdout\n{}", told.told());
}

#[track_caller]
fn drafts(m: &Mounted) -> Vec<Value> {
    m.jp(&["draft", "ls", "--json"]).ok().json().as_array().expect("an array").clone()
}

/// Where `$D` is in the mount, whatever its title.
fn dir(m: &Mounted) -> PathBuf {
    let name = m.stored(ids::D).file_name().expect("a directory has a name").to_owned();
    m.point().join(name)
}

#[track_caller]
fn doctor_names(m: &Mounted, expected: &[&str]) {
    let told: Value = serde_json::from_slice(&m.jp(&["doctor", "--json"]).raw).unwrap();
    let found = told["findings"].as_array().expect("an array").iter();
    let found: Vec<_> = found.filter(|it| it["kind"] == "draft").map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(found, expected, "{told}");
}

/// Nothing is wrong, and the real files are in step or follow the mount.
#[track_caller]
fn all_is_well(m: &Mounted, then: Then) {
    if then == Then::Killed {
        // The exit code is 1 where the real files have not followed.
        let cleared = m.jp(&["unmount"]);
        assert!(cleared.code <= 1 && !m.is_mounted(), "{}", cleared.told());
    }
    m.jp(&["doctor"]).ok().says("All is well.");
    m.jp(&["export"]).ok();
    m.jp(&["export", "--check"]).ok();
    assert_eq!(m.status("drafts"), [] as [Value; 0]);
}

fn save_broken(m: &Mounted) {
    fs::write(dir(m).join("events.json"), "[\n  {,").unwrap();
    fs::write(dir(m).join("metadata.json"), "{ \"title\": \u{1b}[31m").unwrap();
}

#[test]
fn listed_printed_and_given_up() {
    each(save_broken, |m, then| {
        let found = drafts(m);
        let told: Vec<_> = found.iter().map(|it| [&it["id"], &it["file"], &it["state"], &it["kind"]]).collect();
        let one = |file| [json!(ID), json!(file), json!("invalid"), json!("draft")];
        assert_eq!(json!(told), json!([one("events.json"), one("metadata.json")]), "{then:?}");
        assert_eq!((&found[0]["line"], &found[0]["column"], &found[0]["bytes"]), (&json!(2), &json!(4), &json!(6)));
        assert_eq!((&found[0]["title"], &found[0]["moved_on"]), (&json!("Größe 🎉 plans"), &json!(false)));
        assert!(found[0]["since"].is_string() && found[0]["reason"].is_string(), "{found:?}");
        assert_eq!(json!(found), json!(m.status("drafts")));
        doctor_names(m, &[ID, ID]);
        prints(&m.jp(&["doctor"]).fails_with(1), "jp draft drop");

        m.jp(&["draft", "show", ID]).fails_with(2).says("events.json, metadata.json");
        let shown = m.jp(&["draft", "show", ID, "metadata.json"]).ok();
        assert_eq!(shown.raw, b"{ \"title\": \x1b[31m", "byte for byte in a pipe");
        let diff = m.jp(&["draft", "show", "17528862001", "events.json", "--diff"]).ok().stdout;
        assert!(diff.contains("\n+  {,\n") && diff.contains("\n-  {\n"), "{diff}");
        m.jp(&["draft", "show", ID, "base_config.json"]).fails_with(1).says("no draft of base_config.json");
        m.jp(&["draft", "show", "jp-c17528832001"]).fails_with(1).says("has no draft");

        m.jp(&["draft", "apply", ID, "events.json"]).fails_with(1).says("events.json:2:4:");
        m.jp(&["draft", "drop", ID]).fails_with(1).says("--yes");
        assert_eq!(drafts(m).len(), 2);

        let before = m.store();
        let dropped = m.jp(&["draft", "drop", ID, "metadata.json", "--yes", "--json"]).ok().json();
        let kept = dropped[0]["kept"].as_str().expect("its bytes are kept");
        assert!(kept.contains("/vfs/conflicts/17528862001/"), "{kept}");
        assert_eq!(fs::read(kept).unwrap(), b"{ \"title\": \x1b[31m");
        assert_eq!(drafts(m).len(), 1);
        if then == Then::Live {
            let shown = fs::read_to_string(dir(m).join("metadata.json")).unwrap();
            assert_eq!(shown, m.text(ids::D, "metadata.json"));
        }
        m.jp(&["draft", "drop", ID, "metadata.json", "--yes"]).fails_with(1).says("no draft of metadata.json");
        m.jp(&["draft", "drop", ID, "-y"]).ok().says("its bytes are in");
        assert_eq!(drafts(m), [] as [Value; 0]);
        assert_eq!(on_disk(m), [] as [PathBuf; 0]);
        assert_eq!(m.store(), before);
        all_is_well(m, then);
    });
}

/// What was saved is on disk before it is listed, however short a time ago that was.
#[test]
fn an_empty_draft_is_listed_and_goes() {
    let Some(m) = mounted() else { return };
    fs::write(dir(&m).join("events.json"), "").unwrap();
    let found = drafts(&m);
    assert_eq!((found.len(), &found[0]["bytes"]), (1, &json!(0)), "{found:?}");
    m.jp(&["draft", "drop", ID, "-y"]).ok().says("was empty");
    assert_eq!(fs::read_to_string(dir(&m).join("events.json")).unwrap(), m.text(ids::D, "events.json"));
}

/// A power loss can leave an empty file in place of a draft. It is listed until it is dropped.
#[test]
fn a_draft_file_without_bytes_is_listed() {
    let Some(m) = mounted() else { return };
    save_broken(&m);
    m.jp(&["status"]);
    m.crash();
    for path in on_disk(&m) {
        fs::write(path, "").unwrap();
    }
    m.begin(&[]);
    assert_eq!(m.log().matches("a draft cannot be read").count(), 2, "{}", m.log());
    let found = m.status("drafts");
    let told: Vec<_> = found.iter().map(|it| [&it["id"], &it["file"]]).collect();
    assert_eq!(json!(told), json!([[ID, "events.json"], [ID, "metadata.json"]]), "{found:?}");
    assert!(found.iter().all(|it| it["reason"].is_string()), "{found:?}");
    doctor_names(&m, &[ID, ID]);
    for file in ["events.json", "metadata.json"] {
        assert_eq!(
            fs::read_to_string(dir(&m).join(file)).unwrap(),
            m.text(ids::D, file),
            "the store's version is shown"
        );
    }
    m.jp(&["draft", "drop", ID, "-y"]).ok();
    assert_eq!(on_disk(&m), [] as [PathBuf; 0]);
    all_is_well(&m, Then::Live);
}

/// A file that the store does not have goes with its draft.
#[test]
fn a_new_file_goes_with_its_draft() {
    let Some(m) = mounted() else { return };
    let config = dir(&m).join("base_config.json");
    if config.exists() {
        fs::remove_file(m.stored(ids::D).join("base_config.json")).unwrap();
        wait_for("the file to go", LIMIT, || !config.exists());
    }
    fs::write(&config, "{").unwrap();
    m.jp(&["draft", "drop", ID, "base_config.json", "-y"]).ok();
    assert!(!config.exists());
    assert!(!fs::read_dir(dir(&m)).unwrap().any(|entry| entry.unwrap().file_name() == "base_config.json"));
}

/// Keeps a conversation locked until its standard input is closed.
#[track_caller]
fn hold(m: &Mounted, command: &str) -> Running {
    let holder = m.start(&format!("exec jp lock run {ID} -- {command}"));
    let file = m.workspace().silo().join(format!("locks/{ID}.lock"));
    wait_for("the lock", LIMIT, || fs::read(&file).is_ok_and(|text| !text.is_empty()));
    holder
}

const SAVED: &str = "[]\n";

/// Saves a good document in two pieces; another process takes the lock between them and runs a command.
#[track_caller]
fn waiting(m: &Mounted, command: &str) -> Running {
    m.script("rm -f \"$T/half\" \"$T/go\"").ok();
    let path = dir(m).join("events.json");
    let writer = m.start(&format!(
        "exec 3> '{}'; printf '[' >&3; touch \"$T/half\"
         until test -e \"$T/go\"; do sleep 0.01; done
         printf ']\\n' >&3 || true",
        path.display()
    ));
    let tmp = m.workspace().env().root().join("tmp");
    wait_for("half a save", LIMIT, || tmp.join("half").exists());
    let holder = hold(m, command);
    fs::write(tmp.join("go"), "").unwrap();
    writer.finish().ok();
    holder
}

#[test]
fn waiting_for_a_lock() {
    let Some(m) = mounted() else { return };
    let holder = waiting(&m, "cat");
    let [draft] = &drafts(&m)[..] else { panic!("one draft") };
    assert_eq!((&draft["state"], &draft["reason"]), (&json!("locked"), &Value::Null), "{draft}");
    assert!(draft["holder"]["pid"].is_number(), "{draft}");
    prints(&m.jp(&["draft", "ls"]).ok(), "waiting for the lock, held by process");
    doctor_names(&m, &[ID]);
    m.script(&format!("JP_LOCK_DURATION=0 jp draft apply {ID}")).fails_with(3);
    assert_eq!(drafts(&m).len(), 1);
    // Giving up changes nothing in the store, and waits for nobody.
    m.jp(&["draft", "drop", ID, "-y"]).ok();
    assert_eq!(fs::read_to_string(dir(&m).join("events.json")).unwrap(), m.text(ids::D, "events.json"));
    holder.finish().ok();
    assert_ne!(m.text(ids::D, "events.json"), SAVED);
}

/// Whoever is beneath the holder of the lock is let through, and the mount's process with it.
#[test]
fn applied_beneath_a_lock() {
    let Some(m) = mounted() else { return };
    let script = format!(
        "bash -ec 'until test -e \"$T/now\"; do sleep 0.01; done
            jp draft apply {ID} events.json --json > \"$T/said\" 2> \"$T/err\"; echo $? > \"$T/code\"'"
    );
    let holder = waiting(&m, &script);
    let tmp = m.workspace().env().root().join("tmp");
    wait_for("a draft that waits", LIMIT, || drafts(&m).iter().any(|it| it["state"] == "locked"));
    fs::write(tmp.join("now"), "").unwrap();
    holder.finish().ok();
    let err = fs::read_to_string(tmp.join("err")).unwrap();
    assert_eq!(fs::read_to_string(tmp.join("code")).unwrap(), "0\n", "{err}");
    assert_eq!(m.text(ids::D, "events.json"), SAVED);
    assert_eq!(fs::read_to_string(dir(&m).join("events.json")).unwrap(), SAVED);
    assert_eq!(drafts(&m), [] as [Value; 0]);
}

/// Leaves a good draft behind a daemon that was killed, and perhaps cleared away.
#[track_caller]
fn left_waiting(then: Then) -> Option<Mounted> {
    let m = mounted()?;
    let holder = waiting(&m, "cat");
    wait_for("the draft on disk", LIMIT, || drafts(&m).iter().any(|it| it["state"] == "locked"));
    m.crash();
    holder.finish().ok();
    if then == Then::Ended {
        m.jp(&["unmount"]).ok();
    }
    Some(m)
}

#[test]
fn applied_without_a_mount() {
    for then in [Then::Ended, Then::Killed] {
        let Some(m) = left_waiting(then) else { return };
        assert_eq!(drafts(&m)[0]["state"], "waiting", "{then:?}");
        m.jp(&["draft", "apply", ID]).ok().says("is committed");
        assert_eq!(m.text(ids::D, "events.json"), SAVED);
        if then == Then::Ended {
            assert_eq!(fs::read_to_string(dir(&m).join("events.json")).unwrap(), SAVED, "the real file follows");
        }
        all_is_well(&m, then);
        m.begin(&[]);
        assert_eq!(fs::read_to_string(dir(&m).join("events.json")).unwrap(), SAVED);
    }
}

#[test]
fn the_store_has_moved_on() {
    for then in [Then::Ended, Then::Killed] {
        let Some(m) = left_waiting(then) else { return };
        let newer = "[\n]\n";
        fs::write(m.stored(ids::D).join("events.json"), newer).unwrap();
        let [draft] = &drafts(&m)[..] else { panic!("one draft") };
        assert_eq!((&draft["state"], &draft["moved_on"]), (&json!("conflict"), &json!(true)), "{then:?}");
        let told = m.jp(&["draft", "apply", ID]).fails_with(1).says("was changed since this draft began");
        assert!(told.stderr.contains("has 4 bytes; the draft has 3 bytes"), "{}", told.told());
        assert!(told.stderr.contains("--force") && told.stderr.contains("--diff"), "{}", told.told());
        assert_eq!(m.text(ids::D, "events.json"), newer);
        let applied = m.jp(&["draft", "apply", ID, "--force", "--json"]).ok().json();
        assert_eq!(fs::read_to_string(applied[0]["kept"].as_str().unwrap()).unwrap(), newer);
        assert_eq!(m.text(ids::D, "events.json"), SAVED);
        all_is_well(&m, then);
    }
}

#[test]
fn the_store_has_moved_on_beneath_a_mount() {
    let Some(m) = mounted() else { return };
    let newer = "[\n]\n";
    let script = format!(
        "bash -c 'until test -e \"$T/now\"; do sleep 0.01; done
            printf \"[\\n]\\n\" > \"$U\"/conversations/17528862001-*/events.json
            jp draft apply {ID} 2> \"$T/err\"; echo $? > \"$T/code\"
            jp draft apply {ID} --force --json > \"$T/said\"; echo $? >> \"$T/code\"'"
    );
    let holder = waiting(&m, &script);
    let tmp = m.workspace().env().root().join("tmp");
    wait_for("a draft that waits", LIMIT, || drafts(&m).iter().any(|it| it["state"] == "locked"));
    fs::write(tmp.join("now"), "").unwrap();
    holder.finish().ok();
    let err = fs::read_to_string(tmp.join("err")).unwrap();
    assert_eq!(fs::read_to_string(tmp.join("code")).unwrap(), "1\n0\n", "{err}");
    assert!(err.contains("was changed since this draft began"), "{err}");
    let said: Value = serde_json::from_slice(&fs::read(tmp.join("said")).unwrap()).unwrap();
    assert_eq!(fs::read_to_string(said[0]["kept"].as_str().unwrap()).unwrap(), newer);
    assert_eq!(m.text(ids::D, "events.json"), SAVED);
    assert_eq!(fs::read_to_string(dir(&m).join("events.json")).unwrap(), SAVED);
}

#[test]
fn of_a_conversation_that_was_removed() {
    each(save_broken, |m, then| {
        m.jp(&["c", "rm", ID, "--yes"]).ok();
        let found = drafts(m);
        assert!(found.iter().all(|it| it["state"] == "gone"), "{then:?} {found:?}");
        assert_eq!(found.len(), 2, "{then:?}");
        prints(&m.jp(&["draft", "ls"]).ok(), "its conversation is not in the store");
        doctor_names(m, &[ID, ID]);
        m.jp(&["draft", "apply", ID, "events.json"]).fails_with(1).says("is not in the store");
        assert_eq!(m.jp(&["draft", "show", ID, "events.json"]).ok().raw, b"[\n  {,");
        let dropped = m.jp(&["draft", "drop", ID, "-y", "--json"]).ok().json();
        assert_eq!(fs::read(dropped[0]["kept"].as_str().unwrap()).unwrap(), b"[\n  {,");
        assert_eq!(on_disk(m), [] as [PathBuf; 0]);
        all_is_well(m, then);
    });
}

#[test]
fn another_worktree_has_its_own() {
    let Some(m) = mounted() else { return };
    m.script("cd \"$P\" && git init --quiet && git add .jp/.id && git commit --quiet -m one").ok();
    let other = m.worktree("other");
    save_broken(&m);
    assert_eq!(drafts(&m).len(), 2);
    assert_eq!(drafts(&other), [] as [Value; 0]);
    other.jp(&["doctor"]).ok();
    for act in ["show", "apply", "drop"] {
        other.jp(&["draft", act, ID]).fails_with(1).says("has no draft in this worktree");
    }
    assert_eq!(drafts(&m).len(), 2);
}

const NEW: &str = "jp-c17528892001";

#[test]
fn a_new_conversation_that_is_not_whole() {
    let save = |m: &Mounted| {
        let dir = m.point().join("17528892001-new-talk");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("metadata.json"), "{").unwrap();
        fs::create_dir(dir.join("notes")).unwrap();
        fs::write(dir.join("notes/größe.md"), "hello").unwrap();
    };
    each(save, |m, then| {
        let [new] = &drafts(m)[..] else { panic!("one, {then:?}") };
        let told = json!([new["id"], new["kind"], new["state"], new["file"]]);
        assert_eq!(told, json!([NEW, "new", "arriving", null]), "{then:?}");
        assert_eq!((&new["files"], &new["bytes"]), (&json!(["metadata.json", "notes/größe.md"]), &json!(6)));
        prints(&m.jp(&["status"]).ok(), "arriving");
        doctor_names(m, &[NEW]);
        m.jp(&["draft", "apply", NEW]).fails_with(1).says("it needs metadata.json: line 1");
        assert_eq!(m.jp(&["draft", "show", NEW, "notes/größe.md"]).ok().stdout, "hello");
        m.jp(&["draft", "drop", NEW, "metadata.json", "-y"]).fails_with(2);
        let dropped = m.jp(&["draft", "drop", NEW, "-y", "--json"]).ok().json();
        let kept = Path::new(dropped[0]["kept"].as_str().unwrap()).to_owned();
        assert_eq!(fs::read_to_string(kept.join("notes/größe.md")).unwrap(), "hello");
        if then == Then::Live {
            assert!(!m.point().join("17528892001-new-talk").exists());
            let listed: Vec<_> = fs::read_dir(m.point()).unwrap().map(|it| it.unwrap().file_name()).collect();
            assert!(!listed.iter().any(|name| name.to_string_lossy().starts_with("17528892001")), "{listed:?}");
        }
        assert_eq!(on_disk(m), [] as [PathBuf; 0]);
        all_is_well(m, then);
        if then == Then::Live {
            // The id is free again.
            fs::create_dir(m.point().join("17528892001-again")).unwrap();
        }
    });
}

#[test]
fn a_new_conversation_is_taken_in_without_a_mount() {
    for then in [Then::Ended, Then::Killed] {
        let Some(m) = mounted() else { return };
        m.sh("mkdir -p \"$A/conversations/17528892001-new-talk\"
              cp \"$U\"/conversations/17528862001-*/metadata.json \"$A/conversations/17528892001-new-talk/\"");
        if then == Then::Ended {
            m.end(&[]);
        } else {
            m.crash();
        }
        m.jp(&["draft", "apply", NEW]).fails_with(1).says("needs events.json");
        fs::write(m.state().join("drafts/new/17528892001/events.json"), "[]").unwrap();
        assert_eq!(drafts(&m)[0]["state"], "waiting");
        m.jp(&["draft", "apply", NEW]).ok();
        assert_eq!(m.says(17528892001, "parent"), "jp-c17528832001", "its place gives its parent");
        assert_eq!(on_disk(&m), [] as [PathBuf; 0]);
        all_is_well(&m, then);
    }
}

/// What is planted among the drafts is not a draft, and what it points to is left alone.
#[test]
fn planted_links() {
    for then in [Then::Live, Then::Ended] {
        let Some(m) = mounted() else { return };
        let outside = m.workspace().env().root().join("tmp/outside");
        fs::create_dir(&outside).unwrap();
        for name in ["events.json", "metadata.json"] {
            fs::write(outside.join(name), "{}\n[]").unwrap();
        }
        let planted = m.state().join("drafts/17528862001");
        if then == Then::Ended {
            m.end(&[]);
        }
        fs::create_dir_all(&planted).unwrap();
        symlink(outside.join("events.json"), planted.join("events.json")).unwrap();
        symlink(&outside, m.state().join("drafts/17528832001")).unwrap();
        symlink(&outside, m.state().join("drafts/new/17528892001")).unwrap();
        assert_eq!(drafts(&m), [] as [Value; 0], "{then:?}");
        for (act, id) in [("apply", ID), ("drop", ID), ("show", ID), ("apply", "jp-c17528832001"), ("drop", NEW)] {
            let told = m.jp(&["draft", act, id]);
            assert_eq!(told.code, 1, "{}", told.told());
        }
        // A file in its place is a draft again.
        fs::remove_file(planted.join("events.json")).unwrap();
        fs::write(planted.join("events.json"), "{}\n[]").unwrap();
        assert_eq!(drafts(&m).len(), 1);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 2);
        assert!(fs::symlink_metadata(m.state().join("drafts/new/17528892001")).unwrap().is_symlink());
    }
}

/// A small disk in memory that holds the store, gone when dropped.
struct Small(PathBuf);

impl Small {
    fn mount(&self, options: &str) {
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", options, "jp-test"]).arg(&self.0).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot mount {} with {options}", self.0.display());
    }

    /// Fills it to the last block. What other processes free meanwhile is filled too.
    fn fill(&self) {
        let dir = self.0.join("fill");
        let mut number = 0;
        let mut full = |size: usize| {
            number += 1;
            fs::create_dir_all(&dir).is_err() || fs::write(dir.join(number.to_string()), vec![1; size]).is_err()
        };
        while !full(1 << 20) {}
        while !full(1) {}
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // What this does not manage goes with the machine.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn the_disk_is_full() {
    if !geteuid().is_root() {
        return skip("only root can make a small disk");
    }
    let mut small = None;
    let env = || {
        let env = TestEnv::in_memory();
        fs::create_dir_all(env.data()).unwrap();
        let disk = Small(env.data());
        disk.mount("size=4m");
        small = Some(disk);
        env
    };
    let Some(m) = Mounted::not_yet(User::Own, env) else { return };
    let small = small.expect("the environment was made");
    m.begin(&[]);
    let holder = waiting(&m, "cat");
    wait_for("the draft on disk", LIMIT, || drafts(&m).iter().any(|it| it["state"] == "locked"));
    m.crash();
    holder.finish().ok();
    m.jp(&["unmount"]).ok();
    let before = m.text(ids::D, "events.json");
    small.fill();
    let told = m.jp(&["draft", "apply", ID]);
    assert_eq!(told.code, 4, "{}", told.told());
    small.fill();
    let drop = m.jp(&["draft", "drop", ID, "-y"]);
    assert_eq!(drop.code, 4, "what cannot be kept is not given up\n{}", drop.told());
    assert_eq!(m.text(ids::D, "events.json"), before);
    fs::remove_dir_all(small.0.join("fill")).unwrap();
    assert_eq!(drafts(&m).len(), 1);
    assert_eq!(m.jp(&["draft", "show", ID]).ok().stdout, SAVED);
    m.jp(&["draft", "apply", ID]).ok();
    assert_eq!(m.text(ids::D, "events.json"), SAVED);
}

/// A draft that the tree has no place for is refused with that reason.
#[test]
fn the_tree_has_no_place() {
    let save = |m: &Mounted| {
        let meta = m.text(ids::D, "metadata.json").replacen('{', "{ \"parent_id\": 17528862001,", 1);
        fs::write(dir(m).join("metadata.json"), meta).unwrap();
    };
    each(save, |m, then| {
        let [draft] = &drafts(m)[..] else { panic!("one draft, {then:?}") };
        assert_eq!(draft["state"], "refused", "{draft}");
        let told = m.jp(&["draft", "apply", ID]).fails_with(1);
        assert!(told.stderr.contains(ID), "{}", told.told());
        assert_eq!(drafts(m).len(), 1);
        m.jp(&["draft", "drop", ID, "-y"]).ok();
        all_is_well(m, then);
    });
}

/// The output of a command that must end although the daemon is stopped.
#[track_caller]
fn while_stopped(m: &Mounted, args: &[&str]) -> Output {
    m.signal(nix::sys::signal::Signal::SIGSTOP);
    let told = m.jp(args);
    m.signal(nix::sys::signal::Signal::SIGCONT);
    told
}

#[test]
fn a_daemon_that_does_not_answer() {
    let Some(m) = mounted() else { return };
    save_broken(&m);
    assert_eq!(drafts(&m).len(), 2);
    let listed = while_stopped(&m, &["draft", "ls", "--json"]).ok();
    assert_eq!(listed.json().as_array().map(Vec::len), Some(2), "what is on disk is listed");
    while_stopped(&m, &["draft", "drop", ID, "-y"]).fails_with(4).says("does not answer");
    assert!(until(LIMIT, || drafts(&m).len() == 2));
}
