//! Several silos of one workspace, left by older releases and by other worktrees, are read as one and become one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jp_tests::{Running, Sample, Shot, Workspace, wait_for};
use serde_json::{Value, json};

use crate::story::{conflicts, in_store, jp, kept, listed, presence, says, stored, workspace};

const OURS: &str = "jp-c17528832001";
const THEIRS: &str = "jp-c17528832002";
const BARE: &str = "jp-c17528832003";
const SHARED: &str = "jp-c17528832004";
const AT: i64 = 1_750_000_000_000_000_000;
/// `JP_SESSION=test`, as files name it.
const SESSION: &str = "sessions/env-JP_SESSION-9f86d081884c7d65.json";

fn silo(main: &Workspace, name: &str) -> PathBuf {
    main.env().data().join("workspace").join(name)
}

fn session(steps: &[(u64, &str)]) -> Vec<u8> {
    let history: Vec<Value> = steps.iter().map(|(id, at)| json!({ "id": id, "activated_at": at })).collect();
    let source = json!({ "type": "env", "key": "JP_SESSION" });
    jp_tests::pretty(&json!({ "history": history, "id": "test", "source": source }))
}

/// Three silos: the project's own, a worktree's, and a bare one. One conversation is in two of them.
fn scattered() -> Workspace {
    let main = workspace();
    let put = |name: &str, sample: Sample| sample.write_below(&silo(&main, name).join("conversations"));
    put("main-otvo8", Sample::new(17_528_832_001).title("Ours"));
    put("main-otvo8", Sample::new(17_528_832_004).title("Older").mtime(AT));
    put("feature-a-otvo8", Sample::new(17_528_832_002).title("Theirs").file("notes.txt", "mine"));
    put("feature-a-otvo8", Sample::new(17_528_832_004).title("Newer").mtime(AT + 1_000_000_000));
    put("otvo8", Sample::new(17_528_832_003).title("Bare").archived());
    for (name, steps) in [
        ("main-otvo8", &[(17_528_832_001, "2026-01-01T00:00:00Z"), (17_528_832_004, "2026-01-03T00:00:00Z")][..]),
        ("feature-a-otvo8", &[(17_528_832_002, "2026-01-04T00:00:00Z"), (17_528_832_001, "2026-01-02T00:00:00Z")]),
    ] {
        let mut steps = steps.to_vec();
        steps.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
        fs::create_dir_all(silo(&main, name).join("sessions")).expect("made");
        fs::write(silo(&main, name).join(SESSION), session(&steps)).expect("written");
    }
    fs::write(silo(&main, "feature-a-otvo8").join("approvals.json"), "{\"mounts\":[]}").expect("written");
    fs::write(silo(&main, "otvo8").join("config.toml"), "a = 1\n").expect("written");
    main
}

#[track_caller]
fn assert_whole(main: &Workspace) {
    for (id, title) in [(OURS, "Ours"), (THEIRS, "Theirs"), (BARE, "Bare"), (SHARED, "Newer")] {
        assert_eq!(says(main, id, "title"), title);
        assert_eq!(presence(main, id), "local");
    }
    assert_eq!(says(main, BARE, "archived"), true);
}

#[track_caller]
fn assert_merged(main: &Workspace) {
    assert_whole(main);
    assert!(silo(main, "main-otvo8").is_dir());
    for gone in ["feature-a-otvo8", "otvo8"] {
        assert!(!silo(main, gone).exists(), "{gone}");
    }
    for id in [OURS, THEIRS, BARE, SHARED] {
        assert!(in_store(main, id).expect("moved").starts_with(silo(main, "main-otvo8")));
    }
    let theirs = in_store(main, THEIRS).expect("moved");
    assert_eq!(fs::read_to_string(theirs.join("notes.txt")).expect("moved along"), "mine");
    assert_eq!(stored(main, SHARED)["title"], "Newer");
    assert!(kept(main, SHARED, "metadata.json")[0].contains("Older"));
    assert_eq!(conflicts(main).len(), 1);
    let history = crate::story::json(&silo(main, "main-otvo8").join(SESSION))["history"].clone();
    let ids: Vec<&Value> = history.as_array().expect("an array").iter().map(|step| &step["id"]).collect();
    assert_eq!(ids, [17_528_832_002_u64, 17_528_832_004, 17_528_832_001], "one history, the latest first");
    let read = |name: &str| fs::read_to_string(silo(main, "main-otvo8").join(name)).expect("kept");
    assert_eq!((read("approvals.json").as_str(), read("config.toml").as_str()), ("{\"mounts\":[]}", "a = 1\n"));
}

#[test]
fn read_as_one_before_any_write() {
    let main = scattered();
    let before = Shot::of(main.env().root());
    assert_whole(&main);
    assert!(main.jp(&["c", "show", THEIRS]).ok().stdout.contains("Theirs"));
    main.jp(&["migrate", "--dry-run"]).ok().says("merge 2 other silos");
    before.assert_same(&Shot::of(main.env().root()));
}

#[test]
fn merged_by_the_command() {
    let main = scattered();
    let report = main.jp(&["migrate", "--json"]).json();
    assert_eq!((&report["silos"], &report["refused"]), (&json!(2), &json!([])));
    assert_eq!(report["conflicts"], json!([SHARED]));
    assert_merged(&main);
    let before = Shot::of(main.env().root());
    main.jp(&["migrate"]).ok().says("nothing to migrate");
    before
        .without(&["data/workspace/main-otvo8/vfs"])
        .assert_same(&Shot::of(main.env().root()).without(&["data/workspace/main-otvo8/vfs"]));
}

#[test]
fn merged_by_the_first_write() {
    let main = scattered();
    jp(&main, &["c", "edit", OURS, "--pin"]).says("Migration");
    assert_merged(&main);
}

#[test]
fn one_in_use_is_merged_later() {
    let main = scattered();
    let lock = silo(&main, "feature-a-otvo8").join(format!("locks/{THEIRS}.lock"));
    fs::create_dir_all(lock.parent().expect("a directory")).expect("made");
    let mut flock = main.env().command("flock".as_ref(), main.root());
    flock.arg(&lock).args(["sh", "-c", "echo held > \"$0\"; cat"]).arg(&lock);
    let holder = Running::start(flock);
    wait_for("the lock", Duration::from_secs(20), || fs::read(&lock).is_ok_and(|text| !text.is_empty()));

    main.jp(&["migrate"]).fails_with(1).says(THEIRS);
    assert!(silo(&main, "feature-a-otvo8").is_dir() && !silo(&main, "otvo8").exists());
    assert!(in_store(&main, THEIRS).is_none(), "it stays where it is in use");
    assert_eq!(presence(&main, THEIRS), "local", "and is listed all the same");
    assert_eq!(listed(&main, SHARED).expect("listed")["title"], "Newer");
    holder.finish().ok();
    main.jp(&["migrate"]).ok();
    assert_merged(&main);
}

#[test]
fn an_id_given_out_in_a_merged_silo_is_not_given_out_again() {
    let main = scattered();
    let vfs = silo(&main, "feature-a-otvo8").join("vfs");
    fs::create_dir_all(&vfs).expect("made");
    fs::write(vfs.join("last-id"), "19999999999\n").expect("written");
    let id = crate::story::new(&main, "Next", &[]);
    assert_eq!(id, "jp-c20000000000");
}

/// What the worktrees of a store are called in it.
#[track_caller]
fn worktree_key(silo: &Path) -> String {
    let listed = fs::read_dir(silo.join("vfs")).expect("listed").map(|entry| entry.expect("listed").path());
    let mut keys = listed.filter(|path| path.join("projection.json").exists());
    keys.next().and_then(|path| Some(path.file_name()?.to_str()?.to_owned())).expect("a worktree")
}

/// A temporary, a directory with a file in it.
#[track_caller]
fn temporary(dir: &Path, token: &str) -> PathBuf {
    let path = dir.join(format!("jp-tmp-{token}-0"));
    fs::create_dir_all(&path).expect("made");
    fs::write(path.join("events.json"), "[").expect("written");
    path
}

/// Temporaries that a process left behind in a silo and, by a record of that silo, in a worktree.
#[test]
fn recorded_temporaries_go_with_the_silo_and_others_stay() {
    let main = scattered();
    jp(&main, &["c", "new"]);
    let key = worktree_key(&silo(&main, "main-otvo8"));
    let sibling = silo(&main, "worktree-otvo8");
    let (theirs, in_work) = (sibling.join("vfs/tmp"), main.storage().join("conversations/.tmp"));
    fs::create_dir_all(&theirs).expect("made");
    Sample::new(17_528_832_009).write_below(&sibling.join("conversations"));
    let [ours, elsewhere] = ["00000000000000aa", "00000000000000bb"];
    fs::write(theirs.join(format!("owner-store-{ours}")), "").expect("written");
    fs::write(theirs.join(format!("owner-{key}-{elsewhere}")), "").expect("written");
    let gone = [temporary(&theirs, ours), temporary(&in_work, elsewhere)];
    fs::write(theirs.join("letter.txt"), "mine").expect("written");
    temporary(&theirs, "00000000000000cc");
    let unrecorded = temporary(&in_work, "00000000000000dd");
    jp(&main, &["migrate"]);
    assert!(!sibling.exists());
    for gone in gone {
        assert!(!gone.exists(), "{}", gone.display());
    }
    let tmp = silo(&main, "main-otvo8").join("vfs/tmp");
    assert_eq!(fs::read_to_string(tmp.join("letter.txt")).expect("moved along"), "mine");
    assert!(tmp.join("jp-tmp-00000000000000cc-0/events.json").exists(), "nothing says that it is ours");
    assert!(unrecorded.join("events.json").exists(), "nothing says that it is ours");
    let records = fs::read_dir(&tmp).expect("listed").map(|entry| entry.expect("listed").file_name());
    assert_eq!(records.filter(|name| name.to_string_lossy().starts_with("owner-")).count(), 0);
}

/// What a process is making in a silo stays, and so does the silo. Its temporaries in a worktree stay by their record.
#[test]
fn temporaries_in_use_outlive_a_merge() {
    let main = scattered();
    jp(&main, &["c", "new"]);
    let key = worktree_key(&silo(&main, "main-otvo8"));
    let sibling = silo(&main, "worktree-otvo8");
    let (theirs, in_work) = (sibling.join("vfs/tmp"), main.storage().join("conversations/.tmp"));
    fs::create_dir_all(&theirs).expect("made");
    Sample::new(17_528_832_009).write_below(&sibling.join("conversations"));
    let [ours, elsewhere] = ["00000000000000aa", "00000000000000bb"];
    let held = [format!("owner-store-{ours}"), format!("owner-{key}-{elsewhere}")].map(|name| {
        let record = fs::File::create(theirs.join(name)).expect("made");
        record.lock().expect("locked");
        record
    });
    let made = [temporary(&theirs, ours), temporary(&in_work, elsewhere)];
    main.jp(&["migrate"]).says("is merged later");
    jp(&main, &["c", "new"]);
    for made in &made {
        assert!(made.join("events.json").exists(), "{}", made.display());
    }
    drop(held);
    jp(&main, &["c", "new"]);
    for made in &made {
        assert!(!made.exists(), "{}", made.display());
    }
    assert!(!sibling.exists());
}

/// A project that was renamed has another key, and the records still have the former one.
#[test]
fn recorded_temporaries_of_a_renamed_project_are_swept() {
    let main = workspace();
    jp(&main, &["c", "new"]);
    let silo = main.silo();
    let key = worktree_key(&silo);
    let record = |token: &str| fs::File::create(silo.join(format!("vfs/tmp/owner-{key}-{token}"))).expect("made");
    let (dead, held) = ("00000000000000aa", "00000000000000bb");
    record(dead);
    let lock = record(held);
    lock.lock().expect("locked");
    let path = main.env().root().join("renamed");
    fs::rename(main.root(), &path).expect("renamed");
    let renamed = main.env().workspace("renamed");
    let in_work = renamed.storage().join("conversations/.tmp");
    let [gone, alive, unrecorded] = [dead, held, "00000000000000cc"].map(|token| temporary(&in_work, token));
    assert!(renamed.jp(&["doctor"]).stdout.contains("jp-tmp-00000000000000aa-0"));
    jp(&renamed, &["c", "new"]);
    assert_eq!((gone.exists(), alive.exists(), unrecorded.exists()), (false, true, true));
    drop(lock);
    jp(&renamed, &["c", "new"]);
    assert_eq!((gone.exists(), alive.exists(), unrecorded.exists()), (false, false, true));
    let left = fs::read_dir(silo.join("vfs/tmp")).expect("listed").map(|entry| entry.expect("listed").file_name());
    assert_eq!(left.filter(|name| name.to_string_lossy().contains(&key)).count(), 0);
}
