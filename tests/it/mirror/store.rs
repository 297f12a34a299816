//! What commands, other programs and other worktrees do to the store is in the real files soon after.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use jp_tests::{LIMIT, Mirrored, have, ids, skip, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{place, real, real_meta};

#[test]
fn what_commands_do_is_in_the_files() {
    let m = Mirrored::new();
    m.jp(&["c", "edit", "--title", "Later plans", &format!("jp-c{}", ids::D)]).ok();
    assert_eq!(real_meta(&m, "17528862001-later-plans")["title"], "Later plans");
    m.jp(&["c", "mv", &format!("jp-c{}", ids::B), "--root"]).ok();
    assert_eq!(place(&m, ids::B).expect("it is there").to_str(), Some("17528842001-alternative-approach"));
    let new = m.jp(&["c", "new", "--title", "Brand new", "--parent", &format!("jp-c{}", ids::D)]).ok();
    let id: u64 = new.line().trim_start_matches("jp-c").parse().expect("a new id");
    let dir = place(&m, id).expect("it is there");
    assert!(dir.starts_with("17528862001-later-plans/conversations"), "{}", dir.display());
    m.jp(&["c", "archive", &format!("jp-c{}", ids::D)]).ok();
    assert!(place(&m, id).expect("it is there").starts_with(".archive/17528862001-later-plans"));
    m.jp(&["c", "rm", "--yes", "--cascade", &format!("jp-c{}", ids::A)]).ok();
    assert_eq!(place(&m, ids::A), None);
    m.refresh();
    assert_eq!((place(&m, ids::A), m.find_stored(ids::A)), (None, None), "it does not come back");
    m.check_store();
}

#[test]
fn what_is_written_into_the_store_is_in_the_files() {
    let m = Mirrored::new();
    let file = m.stored(ids::C).join("events.json");
    let text = fs::read_to_string(&file).expect("read").replace("Question 0", "Asked elsewhere");
    // As another program saves: a temporary beside it, renamed into place.
    let temporary = file.with_extension("tmp");
    fs::write(&temporary, &text).and_then(|()| fs::rename(&temporary, &file)).expect("written");
    let path = format!("{}/events.json", place(&m, ids::C).expect("it is there").display());
    m.soon("the store's bytes", || real(&m, &path) == text);
    fs::write(m.stored(ids::C).join("notes.md"), "a note\n").expect("written");
    m.soon("a new file", || {
        fs::read(m.point().join(&path).with_file_name("notes.md")).is_ok_and(|it| it == b"a note\n")
    });
    m.check_store();
}

#[test]
fn another_worktree_is_heard_of() {
    let m = Mirrored::not_yet();
    m.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=one").ok();
    let feature = m.worktree("feature");
    m.begin(&[]);
    feature.begin(&[]);
    feature.sh("sed -i 's/Weekend/Shared/' \"$D/metadata.json\"");
    m.soon("the other worktree's edit", || real_meta(&m, "17528862001-shared-plans")["title"] == "Shared plans");
    m.sh("mv 17528862001-shared-plans \"$A/conversations/\"");
    let beneath = "17528832001-refactor-error-handling/conversations";
    feature.soon("the other worktree's move", || place(&feature, ids::D).is_some_and(|dir| dir.starts_with(beneath)));
    assert_eq!(m.status("mounts").len(), 1);
    m.sh_in_step("rm -r \"$A\"");
    assert!(place(&feature, ids::A).is_some(), "hidden there is not hidden here");
    // Neither keeps the other busy.
    let counts = [m.rest(), feature.rest()];
    feature.refresh();
    assert_eq!([m.rest(), feature.rest()], [counts[0], counts[1] + 1]);
    feature.end(&[]);
    m.check_store();
}

#[test]
fn what_another_worktree_removes_stays_removed() {
    let m = Mirrored::not_yet();
    m.sh("echo note > \"$D/notes.md\"; mkdir \"$C/docs\"; echo doc > \"$C/docs/x\"");
    m.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=one").ok();
    let feature = m.worktree("feature");
    m.begin(&[]);
    feature.begin(&[]);
    m.jp(&["c", "rm", "--yes", &format!("jp-c{}", ids::D)]).ok();
    m.jp(&["c", "rm", "--yes", "--cascade", &format!("jp-c{}", ids::A)]).ok();
    for _ in 0..2 {
        feature.refresh();
        m.refresh();
    }
    for id in [ids::A, ids::B, ids::C, ids::D] {
        assert_eq!((m.find_stored(id), place(&m, id), place(&feature, id)), (None, None, None), "{id}");
    }
    m.check_store();
}

#[test]
fn what_another_worktree_removes_while_it_is_edited_here_comes_back() {
    let m = Mirrored::not_yet();
    m.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=one").ok();
    let feature = m.worktree("feature");
    feature.begin(&[]);
    feature.end(&[]);
    feature.sh("sed -i 's/Question 0/Not yet/' \"$C/events.json\"");
    m.jp(&["c", "rm", "--yes", "--cascade", &format!("jp-c{}", ids::A)]).ok();
    assert_eq!(m.find_stored(ids::C), None);
    feature.begin(&[]);
    feature.soon("what was edited", || m.find_stored(ids::C).is_some());
    assert!(m.text(ids::C, "events.json").contains("Not yet"));
    feature.rest();
    m.check_store();
}

#[test]
fn what_another_worktree_promotes_stays() {
    let m = Mirrored::not_yet();
    m.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=one").ok();
    let feature = m.worktree("feature");
    feature.begin(&[]);
    m.jp(&["c", "rm", "--yes", "--promote", &format!("jp-c{}", ids::B)]).ok();
    feature.refresh();
    let beneath = "17528832001-refactor-error-handling/conversations/17528852001-third-thoughts";
    assert_eq!(place(&feature, ids::C).expect("it is there").to_str(), Some(beneath));
    assert_eq!((m.find_stored(ids::B), place(&feature, ids::B)), (None, None));
    m.check_store();
}

#[test]
fn a_lock_delays_and_then_it_goes_through() {
    let m = Mirrored::new();
    let holder = m.start(&format!("exec jp lock run jp-c{} -- cat", ids::D));
    let lock = m.workspace().silo().join(format!("locks/jp-c{}.lock", ids::D));
    wait_for("the lock", LIMIT, || fs::read(&lock).is_ok_and(|text| !text.is_empty()));
    let before = m.text(ids::D, "metadata.json");
    m.sh_in_step("sed -i 's/Weekend/Later/' \"$D/metadata.json\"; sed -i 's/Refactor/Rework/' \"$A/metadata.json\"");
    assert_eq!(m.text(ids::D, "metadata.json"), before, "somebody works on it");
    assert_eq!(m.value(ids::A, "metadata.json")["title"], "Rework error handling", "it keeps nobody else");
    let mounts = m.status("mounts");
    assert_eq!(mounts[0]["waiting"][0]["id"], format!("jp-c{}", ids::D), "{mounts:#?}");
    let told = m.jp(&["status"]);
    assert!(told.stdout.lines().any(|line| line.starts_with("waiting")), "{}", told.told());
    // It is looked at the lock meanwhile, and at nothing else.
    m.refresh();
    holder.finish().ok();
    m.soon("the edit", || m.value(ids::D, "metadata.json")["title"] == "Later plans");
    m.rest();
    assert_eq!(m.status("mounts")[0]["waiting"], Value::Array(Vec::new()));
    m.check_store();
}

#[test]
fn it_comes_to_rest() {
    let m = Mirrored::new();
    // What is looked at more closely than the rest: directories of one's own, what is held, an empty one.
    m.sh("mkdir -p \"$D/notes/deep\" \"$B/empty\"; echo x > \"$D/notes/deep/x\"; ln -s events.json \"$D/link\"");
    m.sh("echo '{' > \"$A/metadata.json\"; mkdir 17528872001-secret-plans 17600000001-new; touch notes.md");
    m.sh("sed -i 's/Question 0/Question zero/' \"$C/events.json\"");
    m.soon("an edit", || m.text(ids::C, "events.json").contains("Question zero"));
    m.rest();
    m.refresh();
    let count = m.rest();
    let ledger = m.state().join("projection.json");
    let before = fs::metadata(&ledger).expect("there");
    for round in 1..=3 {
        // A look that finds nothing leaves nothing to look at, or the next number would be higher.
        m.refresh();
        assert_eq!((m.rest(), m.in_step()["resting"].clone()), (count + round, true.into()));
    }
    let after = fs::metadata(&ledger).expect("there");
    assert_eq!((after.ino(), after.mtime_nsec()), (before.ino(), before.mtime_nsec()), "it is not even written anew");
    m.sh("sed -i 's/Question zero/Question nought/' \"$C/events.json\"");
    m.soon("an edit", || m.text(ids::C, "events.json").contains("Question nought"));
    let after = m.rest();
    // One for the edit, one for what that itself changed; one more where the edit came in two bursts.
    assert!((count + 4..=count + 6).contains(&after), "{count} before, {after} after");
}

#[test]
fn where_watches_run_out_it_looks_every_second() {
    if !have(&["unshare"]) {
        return;
    }
    // Too few from the beginning; enough to begin with, and not for what comes.
    for (watches, staleness) in [(5, "polling"), (28, "watching")] {
        let m = Mirrored::not_yet();
        let mut unshare = m.command("unshare");
        unshare.args(["--user", "--map-root-user", "bash", "-euc"]);
        unshare.arg(format!("echo {watches} > /proc/sys/user/max_inotify_watches; exec jp mount --mirror"));
        let told = m.run(unshare);
        if told.stderr.contains("unshare") || told.stderr.contains("max_inotify_watches") {
            return skip("this system gives nobody a number of watches of their own");
        }
        assert_eq!(m.status("mounts")[0]["staleness"], staleness, "{}", told.told());
        m.sh("mkdir -p \"$D/notes/1/2/3/4/5/6/7/8\"; echo x > \"$D/notes/1/2/3/4/5/6/7/8/x\"");
        m.soon("a new file", || m.stored(ids::D).join("notes/1/2/3/4/5/6/7/8/x").is_file());
        m.soon("an end of watching", || m.status("mounts")[0]["staleness"] == "polling");
        m.sh("echo y > \"$D/notes/1/2/3/4/5/6/7/8/x\"");
        m.soon("an edit", || m.text(ids::D, "notes/1/2/3/4/5/6/7/8/x") == "y\n");
        let log = fs::read_to_string(m.state().join("mount.log")).expect("read");
        assert_eq!(log.matches("once a second").count(), 1, "{log}");
        m.end(&[]);
        m.check_store();
    }
}

#[test]
fn where_the_system_loses_track_everything_is_looked_at() {
    let m = Mirrored::new();
    let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("read");
    let most: usize = most.trim().parse().expect("a number");
    if most > 50_000 {
        return skip("this system keeps track of very many changes");
    }
    m.signal(Signal::SIGSTOP);
    m.sh(&format!("for number in $(seq {most}); do : > \"$D/$number.tmp\"; done"));
    // Nobody hears of these.
    m.sh("mkdir -p \"$C/late/deep\"; sed -i 's/Question 0/Question zero/' \"$C/events.json\"");
    m.signal(Signal::SIGCONT);
    m.soon("an edit", || m.text(ids::C, "events.json").contains("Question zero"));
    m.rest();
    m.sh("echo x > \"$C/late/deep/x\"");
    m.soon("a file in a directory nobody heard of", || m.stored(ids::C).join("late/deep/x").is_file());
    assert_eq!(m.status("mounts")[0]["staleness"], "watching");
    assert!(m.log().contains("lost track"), "{}", m.log());
}

#[test]
fn polling_sees_both_sides() {
    let m = Mirrored::not_yet();
    m.begin(&["--poll"]);
    assert_eq!(m.status("mounts")[0]["staleness"], "polling");
    m.sh("sed -i 's/Weekend/Later/' \"$D/metadata.json\"");
    m.soon("an edit", || m.value(ids::D, "metadata.json")["title"] == "Later plans");
    let file = m.stored(ids::C).join("events.json");
    let text = fs::read_to_string(&file).expect("read").replace("Question 0", "Asked elsewhere");
    fs::write(&file, &text).expect("written");
    let path = format!("{}/events.json", place(&m, ids::C).expect("it is there").display());
    m.soon("the store's bytes", || real(&m, &path) == text);
    m.end(&[]);
    m.check_store();
}
