//! Where a mount, a ledger, a mode or a name leads: never into the store by another way, never to where somebody would have to
//! wait, and one thing that cannot be read does not keep the others.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jp_tests::{Mounted, Output, Shot, TestEnv, User, Workspace, ids, skip, until};
use nix::sys::signal::Signal;
use nix::unistd::geteuid;

use crate::story::{digits, family, in_store, jp, new, presence, store_file, work_file, workspace};

/// More than any command needs, and less than one takes that waits for somebody who does not answer.
const SOON: Duration = Duration::from_secs(25);

/// A directory that is seen at a second place. Taken away when dropped.
struct Bind(PathBuf);

impl Bind {
    #[track_caller]
    fn new(from: &Path, to: &Path) -> Self {
        let status = Command::new("mount").arg("--bind").args([from, to]).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot bind {}", from.display());
        Self(to.to_owned())
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        // What this does not manage goes with the machine.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn is_root() -> bool {
    if !geteuid().is_root() {
        skip("only root can bind directories");
    }
    geteuid().is_root()
}

/// Two worktrees of a store that has something of its own.
fn two_worktrees() -> (Workspace, Workspace, String) {
    let w = workspace();
    let [a, ..] = family(&w);
    fs::write(store_file(&w, &a, "notes.md"), "only here").expect("written");
    let second = w.env().init_workspace("second", "otvo8");
    fs::create_dir_all(second.storage().join("conversations")).expect("made");
    (w, second, a)
}

#[test]
fn a_store_bound_into_a_worktree() {
    if !is_root() {
        return;
    }
    let (w, second, a) = two_worktrees();
    let silo = w.silo();
    let in_silo =
        ["", "conversations", "conversations/.archive", "vfs", "locks", "sessions"].map(|name| silo.join(name));
    for dir in &in_silo {
        fs::create_dir_all(dir).expect("made");
    }
    for from in in_silo.into_iter().chain([in_store(&w, &a).expect("stored")]) {
        let at = second.storage().join("conversations");
        let _bind = Bind::new(&from, &at);
        let before = Shot::of(&silo);
        for args in [
            &["c", "edit", "--local=true", &a] as &[&str],
            &["c", "ls"],
            &["export"],
            &["import"],
            &["mount"],
            &["mount", "--mirror"],
            &["doctor", "--fix"],
        ] {
            let told = second.jp(args);
            assert!(
                told.code == 1 && told.stderr.contains("nothing was changed"),
                "{}: {}",
                from.display(),
                told.told()
            );
            before.assert_same(&Shot::of(&silo));
        }
    }
    // The other way around.
    let _bind = Bind::new(&second.storage().join("conversations"), &silo.join("conversations/.archive"));
    second.jp(&["c", "ls"]).fails_with(1).says("nothing was changed");
}

#[test]
fn a_store_bound_to_a_target_or_a_mount_point() {
    if !is_root() {
        return;
    }
    let (w, second, a) = two_worktrees();
    let silo = w.silo();
    let at = w.env().project("bound");
    let work = w.storage().join("conversations");
    for from in [silo.clone(), silo.join("conversations"), in_store(&w, &a).expect("stored"), work.clone()] {
        let _bind = Bind::new(&from, &at);
        let (before, shown) = (Shot::of(&silo).without(&["vfs"]), Shot::of(&work));
        for place in [at.clone(), at.join("new")] {
            let place = place.to_str().expect("UTF-8");
            for args in [["export", "--to", place].as_slice(), &["mount", place]] {
                let told = w.jp(args);
                assert_eq!(told.code, 1, "{}", told.told());
                before.assert_same(&Shot::of(&silo).without(&["vfs"]));
                shown.assert_same(&Shot::of(&work));
            }
        }
    }
    let _bind = Bind::new(&w.env().project("backup"), &at);
    jp(&w, &["export", "--to", at.to_str().expect("UTF-8")]);
    jp(&second, &["export"]);
}

#[test]
fn another_worktree_on_a_filesystem_that_does_not_answer() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let w = workspace();
    let [a, ..] = family(&w);
    let private = new(&w, "Private", &["--local"]);
    // A worktree in somebody else's mount.
    let far = m.point().join(format!("{}-weekend-plans/far", ids::D));
    fs::create_dir_all(far.join(".jp")).expect("made");
    fs::copy(w.storage().join(".id"), far.join(".jp/.id")).expect("copied");
    w.env().jp(&far, &["c", "edit", "--local=false", &a]).ok();
    let clone = w.env().init_workspace("clone", "otvo8");
    for w in [&w, &clone] {
        let planted = w.storage().join("conversations").join(format!("{}-x", digits(&private)));
        fs::create_dir_all(&planted).expect("made");
        fs::write(planted.join("events.json"), "[]").expect("written");
    }
    m.signal(Signal::SIGSTOP);
    let told: Vec<Result<Output, String>> = [&w, &clone]
        .iter()
        .flat_map(|w| {
            [&["c", "ls"] as &[&str], &["status"], &["import"], &["export", "--for-commit"]].map(|args| (w, args))
        })
        .map(|(w, args)| {
            let mut running = w.call(args).start();
            if until(SOON, || !running.is_alive()) {
                return Ok(running.finish());
            }
            running.signal(Signal::SIGKILL);
            Err(format!("hangs: {args:?}"))
        })
        .collect();
    m.signal(Signal::SIGCONT);
    for told in told {
        let told = told.expect("it does not hang");
        assert!(told.code < 2, "{}", told.told());
    }
    assert_eq!(presence(&w, &private), "local");
}

#[test]
fn another_worktree_that_cannot_be_looked_at() {
    let Some(m) = Mounted::not_yet(User::Nobody, TestEnv::in_memory) else { return };
    m.script(
        "jp export > /dev/null; cd \"$P/..\"; mkdir deep other; for d in deep/far other; do mkdir -p $d/.jp; cp \"$P/.jp/.id\" $d/.jp/; done
         cd deep/far; jp c edit --local=false jp-c17528832001; chmod 000 ../../deep",
    )
    .ok();
    let told = m.script(
        "for d in \"$P\" ../other; do cd $d; mkdir -p .jp/conversations/17528872001-x; echo '[]' > .jp/conversations/17528872001-x/events.json
         jp c ls > /dev/null; jp import || test $? = 1; jp export || test $? = 1; done; chmod 755 ../deep",
    );
    told.ok();
}

/// Each with another thing of one conversation that its user cannot read.
const UNREADABLE: [&str; 6] = [
    "\"$M/$D/events.json\"",
    "\"$M/$D/metadata.json\"",
    "\"$M/$D\"",
    "\"$U/conversations/$D/events.json\"",
    "\"$U/conversations/$D/metadata.json\"",
    "\"$U/conversations/$D\"",
];

#[test]
fn one_conversation_that_cannot_be_read_keeps_no_other() {
    for unreadable in UNREADABLE {
        let Some(m) = Mounted::not_yet(User::Nobody, TestEnv::in_memory) else { return };
        m.script("jp export > /dev/null; echo note > \"$U/conversations/$A/notes.md\"").ok();
        m.script(&format!("touch -d 2021-01-01 {unreadable}; chmod 000 {unreadable}")).ok();
        let told = m.jp(&["export"]).fails_with(1);
        assert!(told.stderr.contains(&ids::D.to_string()), "{unreadable}: {}", told.told());
        m.script("test -e \"$M/$A/notes.md\"; echo more > \"$M/$A/more.md\"").ok();
        let told = m.jp(&["import"]).fails_with(1);
        assert!(told.stderr.contains(&ids::D.to_string()), "{unreadable}: {}", told.told());
        m.script("test -e \"$U/conversations/$A/more.md\"; jp c edit --title Other jp-c17528832001").ok();
        let told = m.jp(&["doctor"]);
        assert!(told.code != 0 && told.stdout.contains(&ids::D.to_string()), "{unreadable}: {}", told.told());
        m.jp(&["mount"]).ok();
        m.script("cat \"$M\"/17528832001-*/more.md && cat \"$M\"/17528832001-*/events.json > /dev/null").ok();
        let told = m.jp(&["unmount"]);
        assert!(told.code < 2, "{unreadable}: {}", told.told());
        m.script(&format!(
            "chmod 700 {unreadable}; jp export; cat \"$M/$D/events.json\" \"$U/conversations/$D/events.json\""
        ))
        .ok();
    }
}

/// What an export must not be pointed at.
#[test]
fn targets_that_are_somebodys_own() {
    let (w, second, _) = two_worktrees();
    let other = w.env().init_workspace("other", "zz999");
    new(&other, "Other", &[]);
    fs::create_dir_all(w.root().join(".git/x")).expect("made");
    let targets = [
        w.env().data(),
        w.env().data().join("new"),
        w.env().data().join("workspace"),
        other.silo(),
        other.silo().join("conversations"),
        second.storage(),
        second.storage().join("conversations"),
        other.storage().join("new"),
        w.root().join(".git"),
        w.root().join(".git/x"),
        w.root().join(".git/new/deep"),
        w.env().root().join("not/yet/.jp"),
    ];
    let linked = w.env().root().join("linked");
    symlink(other.storage(), &linked).expect("linked");
    let before = Shot::of(w.env().root());
    for target in targets.iter().chain([&linked]) {
        let told = w.jp(&["export", "--to", target.to_str().expect("UTF-8")]);
        assert!((1..=2).contains(&told.code), "{}", told.told());
        assert!(told.stderr.contains("export"), "{}", told.told());
        before.assert_same(&Shot::of(w.env().root()));
    }
    jp(&w, &["export", "--to", w.env().root().join("jp.git").to_str().expect("UTF-8")]);
}

/// A umask that takes from the owner takes nothing here.
#[test]
fn umasks_that_take_from_the_owner() {
    for (umask, file, dir) in
        [("0177", 0o600, 0o700), ("0277", 0o600, 0o700), ("0722", 0o644, 0o755), ("0777", 0o600, 0o700)]
    {
        let Some(m) = Mounted::not_yet(User::Nobody, TestEnv::in_memory) else { return };
        m.script(&format!("umask {umask}; jp c new --title Narrow > \"$T/id\"; jp export; jp export --to \"$T/out\""))
            .ok();
        let odd = "\\( -type d ! -perm 0700 -o -type f ! -perm 0600 \\)";
        let told = m.script(&format!("find \"$U/vfs\" \"$U/locks\" \"$U\"/conversations/*-narrow {odd}")).ok();
        assert_eq!(told.stdout, "", "umask {umask}");
        let odd = format!("\\( -type d ! -perm {dir:04o} -o -type f ! -perm {file:04o} \\)");
        let told = m.script(&format!("find \"$M\"/*-narrow \"$T\"/out/*-narrow {odd}")).ok();
        assert_eq!(told.stdout, "", "umask {umask}");
        m.script("jp c new --title After").ok();
    }
}

#[test]
fn a_record_of_temporaries_that_may_not_be_opened() {
    let Some(m) = Mounted::not_yet(User::Nobody, TestEnv::in_memory) else { return };
    let record = "\"$U/vfs/tmp/owner-store-0123456789abcdef\"";
    m.script(&format!("jp export > /dev/null; mkdir -p \"$U/vfs/tmp\"; touch {record}; chmod 000 {record}")).ok();
    m.script("jp c new --title After; jp export; jp gc").ok();
    let told = m.jp(&["doctor"]).fails_with(1);
    assert!(told.stdout.contains("owner-store-0123456789abcdef"), "{}", told.told());
    m.script(&format!("chmod 600 {record}; jp c new --title Again; test ! -e {record}")).ok();
    m.jp(&["doctor"]).ok();
}

#[test]
fn a_note_that_came_with_what_goes_to_the_trash() {
    let w = workspace();
    family(&w);
    let top = w.storage().join("conversations");
    for name in ["aaa", "bbb", "ccc", "ddd"] {
        fs::create_dir(top.join(name)).expect("made");
    }
    symlink("/tmp/nowhere-at-all", top.join("aaa/TRASHED.md")).expect("linked");
    fs::write(top.join("bbb/TRASHED.md"), "mine").expect("written");
    fs::create_dir(top.join("ccc/TRASHED.md")).expect("made");
    jp_tests::set_mtime(&top.join("bbb/TRASHED.md"), 0);
    jp(&w, &["doctor", "--fix"]);
    for name in ["aaa", "bbb", "ccc", "ddd"] {
        let there = top.join(".trash").join(name);
        let note = if name == "ddd" { "TRASHED.md" } else { "TRASHED.md-1" };
        assert!(fs::read_to_string(there.join(note)).expect("a note").contains("moved here"), "{name}");
    }
    assert_eq!(fs::read(top.join(".trash/bbb/TRASHED.md")).expect("kept"), b"mine");
    // An old note does not make it old.
    jp(&w, &["gc", "--trash"]);
    assert!(top.join(".trash/bbb").exists());
    jp(&w, &["doctor"]);
}

#[test]
fn a_mount_whose_process_does_not_answer() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let out = m.workspace().env().root().join("tmp/out");
    let out = out.to_str().expect("UTF-8");
    let inside = m.point().join("out");
    m.signal(Signal::SIGSTOP);
    let commands: [(&[&str], i32, &str); 9] = [
        (&["export"], 4, "does not answer"),
        (&["export", "--check"], 4, "does not answer"),
        (&["export", "--for-commit"], 4, "does not answer"),
        (&["import"], 4, "does not answer"),
        (&["doctor"], 1, "does not answer"),
        (&["doctor", "--fix"], 1, "does not answer"),
        (&["init"], 0, "already"),
        (&["export", "--to", out], 0, ""),
        (&["export", "--to", inside.to_str().expect("UTF-8")], 2, "is within"),
    ];
    let told: Vec<_> = commands
        .iter()
        .map(|(args, ..)| {
            let mut running = m.workspace().call(args).start();
            if until(SOON, || !running.is_alive()) {
                return Ok(running.finish());
            }
            running.signal(Signal::SIGKILL);
            Err(format!("hangs: {args:?}"))
        })
        .collect();
    m.signal(Signal::SIGCONT);
    for (told, (_, code, says)) in told.into_iter().zip(commands) {
        let told = told.expect("it does not hang");
        assert_eq!(told.code, code, "{}", told.told());
        assert!(told.stdout.contains(says) || told.stderr.contains(says), "{}", told.told());
    }
}

/// Sets a time of expiry in the past, later than anything else was written.
fn expire(metadata: &Path) {
    let text = fs::read_to_string(metadata).expect("read");
    let before = jp_tests::mtime(metadata);
    fs::write(metadata, text.replacen('{', "{\n  \"expires_at\": \"2020-01-01 00:00:00.0\",", 1)).expect("written");
    jp_tests::set_mtime(metadata, before + 10 * 1_000_000_000);
}

#[test]
fn an_expiry_that_was_pulled() {
    let w = workspace();
    let (a, b, c) = (new(&w, "A", &[]), new(&w, "B", &[]), new(&w, "C", &[]));
    jp(&w, &["export"]);
    fs::write(store_file(&w, &a, "notes.md"), "only here").expect("written");
    for id in [&a, &b, &c] {
        expire(&work_file(&w, id, "metadata.json"));
    }
    // Nothing but the pull says so.
    assert!(!jp(&w, &["gc", "--dry-run"]).stdout.contains(&a));
    let told = jp(&w, &["gc"]);
    assert!(!told.stdout.contains("expired"), "{}", told.told());
    assert!(in_store(&w, &a).is_some() && in_store(&w, &b).is_some());
    jp(&w, &["import", &a, &b, &c]);
    // The store's events go further than what was exported.
    let more = "[{\"timestamp\": \"2025-07-18T00:00:00Z\", \"type\": \"chat_request\", \"content\": \"only here\"}]";
    fs::write(store_file(&w, &c, "events.json"), more).expect("written");
    let told = jp(&w, &["gc"]);
    for id in [&a, &b, &c] {
        assert!(told.stdout.contains(&format!("expired\t{id}")) && presence(&w, id) == "gone", "{}", told.told());
    }
    assert!(told.stderr.contains(&a) && told.stderr.contains(&c) && !told.stderr.contains(&b), "{}", told.told());
    let trash = w.silo().join("conversations/.trash");
    let kept = |id: &str, slug: &str, name: &str| {
        fs::read_to_string(trash.join(format!("expired-{}-{slug}", digits(id))).join(name))
    };
    assert_eq!(kept(&a, "a", "notes.md").expect("kept"), "only here");
    assert_eq!(kept(&c, "c", "events.json").expect("kept"), more);
    assert!(kept(&b, "b", "metadata.json").is_err(), "nothing of it was only in the store");
    jp(&w, &["export"]);
    jp(&w, &["doctor"]);
    assert_eq!(presence(&w, &a), "gone");
}
