//! The hook with the real `jp` behind it.

use std::os::unix::fs::symlink;

use jp_tests::{LIMIT, Output, Running, Workspace, jp_binary, wait_for};

use super::*;
use crate::story::{in_work, new, store_file, work_file};

/// Git behind a worktree that shares its store with another one.
struct Pair {
    it: Repository,
    other: Workspace,
}

impl Pair {
    /// Two worktrees with a conversation that both show.
    #[track_caller]
    fn new() -> (Self, String) {
        let it = Repository::new();
        symlink(jp_binary(), it.env.root().join("bin/jp")).expect("linked");
        let id = new(&it.work, "First title", &[]);
        it.jp(&["hooks", "install"]).ok();
        it.git(&["add", "--all"]).ok();
        it.git(&["commit", "--quiet", "--message=one"]).ok();
        let path = it.env.root().join("other");
        it.git(&["worktree", "add", "--quiet", path.to_str().expect("UTF-8")]).ok();
        let other = it.env.workspace("other");
        (Self { it, other }, id)
    }

    #[track_caller]
    fn commit(&self) -> Output {
        self.it.git(&["commit", "--quiet", "--allow-empty", "--message=more"])
    }

    /// Asserts that the commit has the store's bytes of a conversation, where the worktree shows it.
    #[track_caller]
    fn assert_committed(&self, id: &str) {
        let dir = in_work(&self.it.work, id).expect("shown");
        let dir = dir.strip_prefix(self.it.root()).expect("in the worktree").to_str().expect("UTF-8");
        for name in ["metadata.json", "base_config.json", "events.json"] {
            let committed = self.it.committed(&format!("{dir}/{name}"));
            assert_eq!(committed.as_deref(), Some(&*read(&store_file(&self.it.work, id, name))), "{dir}/{name}");
        }
    }
}

#[test]
fn a_commit_holds_what_the_store_has() {
    let (pair, id) = Pair::new();
    pair.assert_committed(&id);
    pair.other.jp(&["c", "edit", &id, "--title", "Second title"]).ok();
    assert!(read(&work_file(&pair.it.work, &id, "metadata.json")).contains("First title"));
    let told = pair.commit().ok();
    assert_eq!(told.stderr, "");
    pair.assert_committed(&id);
    assert!(pair.it.tree().iter().all(|path| path.contains("-second-title/")), "{:?}", pair.it.tree());
    assert_eq!(pair.it.git(&["status", "--porcelain"]).ok().stdout, "");

    // Here the directory moved before the commit began.
    pair.it.jp(&["c", "edit", &id, "--title", "Third title"]).ok();
    let unknown = new(&pair.it.work, "Not for git yet", &[]);
    pair.commit().ok();
    pair.assert_committed(&id);
    assert!(pair.it.tree().iter().all(|path| path.contains("-third-title/")), "{:?}", pair.it.tree());
    let left = pair.it.git(&["status", "--porcelain"]).ok().stdout;
    assert!(left.starts_with("?? ") && left.lines().count() == 1 && left.contains(&unknown[4..]), "{left}");
}

#[test]
fn merge_markers_stop_the_commit() {
    let (pair, id) = Pair::new();
    let file = work_file(&pair.it.work, &id, "events.json");
    fs::write(&file, "[\n<<<<<<< HEAD\n]\n").expect("written");
    pair.it.git(&["add", "--all"]).ok();
    let before = pair.it.git(&["rev-parse", "HEAD"]).ok().stdout;
    let told = pair.commit();
    assert!(told.code != 0 && told.stderr.contains("--no-verify"), "{}", told.told());
    assert!(told.stderr.contains(&id) || told.stderr.contains("events.json"), "{}", told.told());
    assert_eq!(pair.it.git(&["rev-parse", "HEAD"]).ok().stdout, before);
    pair.it.git(&["commit", "--quiet", "--no-verify", "--message=as it is"]).ok();
    assert_ne!(pair.it.git(&["rev-parse", "HEAD"]).ok().stdout, before);
}

/// A planted copy, a file that does not parse, and a link are named, and the commit goes on without them.
#[test]
fn what_is_held_does_not_stop_it() {
    let (pair, id) = Pair::new();
    let private = new(&pair.it.work, "Private", &["--local"]);
    let secret = new(&pair.it.work, "Another", &[]);
    pair.it.git(&["add", "--all"]).ok();
    pair.commit().ok();
    let planted = pair.it.root().join(format!(".jp/conversations/{}-planted", &private[4..]));
    fs::create_dir(&planted).expect("made");
    fs::write(planted.join("metadata.json"), r#"{"last_activated_at": "2025-07-19T00:00:00Z"}"#).expect("written");
    fs::write(planted.join("base_config.json"), "{}").expect("written");
    fs::write(planted.join("events.json"), "[]").expect("written");
    pair.it.git(&["add", "--all"]).ok();
    fs::write(work_file(&pair.it.work, &secret, "events.json"), "[ not JSON").expect("written");
    let told = pair.commit().ok();
    assert!(told.stderr.contains(&format!("jp import {private}")), "{}", told.told());
    assert!(told.stderr.contains("events.json"), "{}", told.told());
    // Nothing of the private conversation is in it.
    let committed = pair.it.tree().into_iter().filter(|path| path.contains(&private[4..]));
    for path in committed {
        assert!(path.contains("-planted/"), "{path}");
        assert!(!pair.it.committed(&path).unwrap_or_default().contains("Private"), "{path}");
    }
    let link = work_file(&pair.it.work, &secret, "events.json");
    fs::remove_file(&link).expect("removed");
    symlink("/etc/hostname", &link).expect("linked");
    let told = pair.commit().ok();
    assert!(told.stderr.contains("symbolic link"), "{}", told.told());
    // What can be brought in step is.
    pair.other.jp(&["c", "edit", &id, "--title", "Second title"]).ok();
    pair.commit().ok();
    pair.assert_committed(&id);
}

/// The files of what is held stay in the commit as they were: a link, a file that does not parse, and what somebody wrote
/// into a planted copy.
#[test]
fn what_is_held_is_committed_as_it_was() {
    let (pair, id) = Pair::new();
    let private = new(&pair.it.work, "Private", &["--local"]);
    let [linked, broken] = ["Linked", "Broken"].map(|title| new(&pair.it.work, title, &[]));
    let planted = pair.it.root().join(format!(".jp/conversations/{}-planted", &private[4..]));
    fs::create_dir(&planted).expect("made");
    for (name, text) in [("metadata.json", r#"{"last_activated_at": "2025-07-19T00:00:00Z"}"#), ("events.json", "[]")] {
        fs::write(planted.join(name), text).expect("written");
    }
    pair.it.git(&["add", "--all"]).ok();
    pair.commit().ok();
    let files = [
        work_file(&pair.it.work, &linked, "events.json"),
        work_file(&pair.it.work, &broken, "events.json"),
        planted.join("events.json"),
    ];
    let path = |file: &Path| file.strip_prefix(pair.it.root()).expect("beneath").to_str().expect("UTF-8").to_owned();
    let entries = |it: &Repository| files.clone().map(|file| it.git(&["ls-tree", "HEAD", &path(&file)]).ok().stdout);
    let before = entries(&pair.it);
    fs::remove_file(&files[0]).expect("removed");
    symlink("/etc/hostname", &files[0]).expect("linked");
    fs::write(&files[1], "[ not JSON").expect("written");
    fs::write(&files[2], r#"[{"content": "new"}]"#).expect("written");
    pair.other.jp(&["c", "edit", &id, "--title", "Second title"]).ok();
    let told = pair.commit().ok();
    assert!(told.stderr.contains("symbolic link") && told.stderr.contains(&private), "{}", told.told());
    assert_eq!(entries(&pair.it), before);
    pair.assert_committed(&id);
    // What is mended is staged with the next commit.
    fs::remove_file(&files[0]).expect("removed");
    pair.it.jp(&["c", "edit", &linked, "--title", "Mended"]).ok();
    pair.commit().ok();
    pair.assert_committed(&linked);
}

/// A repository tracked second directories with the numbers of two conversations, and the user has removed them. What git does
/// not track of these conversations is not committed.
#[test]
fn a_planted_directory_that_went_is_no_move() {
    let (pair, id) = Pair::new();
    let unknown = new(&pair.it.work, "Not for git yet", &[]);
    let events = r#"[{"timestamp":"2025-07-19 00:00:00.0","type":"turn_start"}]"#;
    fs::write(work_file(&pair.it.work, &unknown, "events.json"), events).expect("written");
    pair.it.jp(&["export"]).ok();
    let planted = [&id, &unknown].map(|id| pair.it.root().join(format!(".jp/conversations/{}-zzz", &id[4..])));
    let known = in_work(&pair.it.work, &id).expect("shown");
    for dir in &planted {
        fs::create_dir(dir).expect("made");
        for name in ["metadata.json", "base_config.json", "events.json"] {
            fs::copy(known.join(name), dir.join(name)).expect("copied");
        }
        if dir.ends_with(format!("{}-zzz", &unknown[4..])) {
            // It begins as any array of events does, and is none.
            fs::write(dir.join("events.json"), &events[..10]).expect("written");
        }
        fs::write(dir.join("notes.md"), "planted").expect("written");
        pair.it.git(&["add", dir.to_str().expect("UTF-8")]).ok();
    }
    pair.it.git(&["commit", "--quiet", "--no-verify", "--message=planted"]).ok();
    for (id, dir) in [&id, &unknown].into_iter().zip(&planted) {
        fs::remove_dir_all(dir).expect("removed");
        fs::write(work_file(&pair.it.work, id, "notes.md"), "secret").expect("written");
    }
    let told = pair.commit().ok();
    assert!(told.stderr.contains("not staged") && told.stderr.contains(&unknown[4..]), "{}", told.told());
    let tree = pair.it.tree();
    assert!(tree.iter().all(|path| !path.contains(&unknown[4..]) && !path.ends_with("notes.md")), "{tree:?}");
    pair.assert_committed(&id);
}

/// What git cannot stage does not stop the commit: a socket in the place of a user file, and a `.jp` that is a link.
#[test]
fn what_git_cannot_stage_does_not_stop_it() {
    let (pair, id) = Pair::new();
    let notes = work_file(&pair.it.work, &id, "notes.md");
    fs::write(&notes, "notes").expect("written");
    pair.it.git(&["add", "--all"]).ok();
    pair.commit().ok();
    fs::remove_file(&notes).expect("removed");
    let _socket = std::os::unix::net::UnixListener::bind(&notes).expect("bound");
    fs::write(pair.it.root().join("code.c"), "x").expect("written");
    pair.it.git(&["add", "code.c"]).ok();
    pair.commit().ok();
    assert!(pair.it.committed("code.c").is_some());
    let (jp, away) = (pair.it.root().join(".jp"), pair.it.env.root().join("away"));
    fs::rename(&jp, &away).expect("moved");
    symlink(&away, &jp).expect("linked");
    let before = pair.it.tree();
    pair.commit().ok();
    assert_eq!(pair.it.tree(), before);
}

/// A link in the place of all conversations takes none out of the commit.
#[test]
fn a_failed_export_stages_nothing() {
    let (pair, id) = Pair::new();
    let (shown, away) = (pair.it.root().join(".jp/conversations"), pair.it.env.root().join("away"));
    fs::rename(&shown, &away).expect("moved");
    symlink(&away, &shown).expect("linked");
    let before = pair.it.tree();
    let told = pair.commit().ok();
    assert!(told.stderr.contains("symbolic link"), "{}", told.told());
    assert_eq!(pair.it.tree(), before);
    fs::remove_file(&shown).expect("removed");
    fs::rename(&away, &shown).expect("moved");
    pair.commit().ok();
    pair.assert_committed(&id);
}

#[test]
fn what_is_in_use_does_not_stop_it() {
    let (pair, id) = Pair::new();
    pair.other.jp(&["c", "edit", &id, "--title", "Second title"]).ok();
    let held = |pair: &Pair| {
        let locks = pair.it.jp(&["lock", "ls", "--json"]).json();
        locks.as_array().is_some_and(|locks| !locks.is_empty())
    };
    let holder: Running = pair.other.call(&["lock", "run", &id, "--", "cat"]).start();
    wait_for("the lock to be taken", LIMIT, || held(&pair));
    let told = pair.commit().ok();
    assert!(told.stderr.contains("in use right now"), "{}", told.told());
    holder.finish().ok();
    pair.commit().ok();
    pair.assert_committed(&id);
}
