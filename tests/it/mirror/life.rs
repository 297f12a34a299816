//! A mirror begins, is ended, dies, and is begun again. Its workspace may go away beneath it; the store stays.

use std::fs;
use std::path::Path;

use jp_tests::{LIMIT, Mirrored, Mounted, TestEnv, User, have, ids, is_alive, wait_for};
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use serde_json::Value;

use super::{place, real_meta};

#[test]
fn it_begins_is_told_of_and_ends() {
    let m = Mirrored::not_yet();
    let told = m.begin(&[]);
    assert_eq!(told.line(), m.point().to_str().expect("UTF-8"));
    let pid = m.daemon().expect("mount.json has the process");
    let mounts = m.status("mounts");
    let [mount] = mounts.as_slice() else { panic!("one mirror: {mounts:#?}") };
    assert_eq!((&mount["kind"], &mount["pid"], &mount["alive"]), (&"mirror".into(), &pid.into(), &true.into()));
    assert_eq!((&mount["staleness"], &mount["shown"]), (&"watching".into(), &5.into()));
    assert_eq!((&mount["held"], &mount["waiting"]), (&Value::Array(Vec::new()), &Value::Array(Vec::new())));
    let told = m.jp(&["status"]);
    assert!(
        told.stdout.lines().any(|line| line.starts_with("mirror ") && line.contains("watching")),
        "{}",
        told.told()
    );

    // The files are real, and commands treat them so.
    assert!(!m.is_mounted());
    assert_eq!(m.says(ids::D, "path"), m.point().join("17528862001-weekend-plans").to_str().expect("UTF-8"));

    let again = m.begin(&[]);
    assert!(again.stderr.contains("already"), "{}", again.told());
    assert_eq!(m.daemon(), Some(pid), "twice is once");
    m.sh("sed -i 's/Weekend/Last words/' \"$D/metadata.json\"");
    m.end(&[]);
    assert_eq!(m.value(ids::D, "metadata.json")["title"], "Last words plans", "both sides are in step at the end");
    assert_eq!(m.status("mounts"), [] as [Value; 0]);
    let nothing = m.jp(&["unmount"]).fails_with(1);
    assert!(nothing.stderr.contains("nothing is mounted"), "{}", nothing.told());
    m.check_store();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let m = Mirrored::not_yet();
    for flag in ["--read-only", "--all", "--allow-other", "--strict", "--xattrs", "--compat-open"] {
        m.mount(&["--mirror", flag]).fails_with(2).says(flag);
    }
    m.mount(&["--mirror", "elsewhere"]).fails_with(2).says("mount point");
    m.mount(&["--mirror", ".jp/conversations"]).ok();
    m.end(&[]);
    assert_eq!(m.status("mounts"), [] as [Value; 0]);
}

#[test]
fn a_mount_and_a_mirror_keep_out_of_each_others_way() {
    let Some(mounted) = Mounted::new(User::Own, &[]) else { return };
    let told = mounted.mount(&["--mirror"]).fails_with(1);
    assert!(told.stderr.contains("jp unmount"), "{}", told.told());
    assert!(mounted.is_mounted());
    mounted.end(&[]);
    mounted.mount(&["--mirror"]).ok();
    let told = mounted.mount(&[]).fails_with(1);
    assert!(told.stderr.contains("mirrored") && told.stderr.contains("jp unmount"), "{}", told.told());
    assert!(!mounted.is_mounted());
    let elsewhere = mounted.workspace().env().root().join("tmp/elsewhere");
    mounted.mount(&[elsewhere.to_str().expect("UTF-8")]).fails_with(1);
    mounted.jp(&["unmount"]).ok();
    mounted.begin(&[]);
}

#[test]
fn signals_end_it_in_step() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let m = Mirrored::new();
        let pid = m.daemon().expect("mount.json has the process");
        m.sh("sed -i 's/Weekend/Last words/' \"$D/metadata.json\"");
        m.signal(signal);
        wait_for("the daemon's end", LIMIT, || !is_alive(pid));
        assert_eq!(m.value(ids::D, "metadata.json")["title"], "Last words plans");
        assert_eq!(m.status("mounts"), [] as [Value; 0]);
        m.check_store();
    }
}

#[test]
fn a_dead_one_is_noticed_and_the_next_catches_up() {
    let m = Mirrored::new();
    m.crash();
    let mounts = m.status("mounts");
    assert_eq!((&mounts[0]["stale"], &mounts[0]["kind"]), (&true.into(), &"mirror".into()));
    m.sh("sed -i 's/Weekend/While dead/' \"$D/metadata.json\"; rm -r \"$B\"");
    let file = m.stored(ids::A).join("events.json");
    let text = fs::read_to_string(&file).expect("read").replace("Question 0", "Asked meanwhile");
    fs::write(&file, &text).expect("written");
    let before = m.store();
    m.begin(&[]);
    assert_eq!(m.value(ids::D, "metadata.json")["title"], "While dead plans");
    assert_eq!(
        fs::read_to_string(m.point().join("17528832001-refactor-error-handling/events.json")).expect("read"),
        text
    );
    assert_eq!((m.says(ids::B, "presence"), m.says(ids::C, "presence")), ("local".into(), "local".into()));
    assert_eq!(m.store().len(), before.len());

    m.crash();
    let cleared = m.jp(&["unmount"]).ok();
    assert!(cleared.stderr.contains("cleared away"), "{}", cleared.told());
    assert_eq!(m.status("mounts"), [] as [Value; 0]);
    m.begin(&[]);
    m.crash();
    let told = m.jp(&["doctor"]).fails_with(1);
    assert!(told.stdout.contains("the process behind this mount is gone"), "{}", told.told());
    m.jp(&["doctor", "--fix"]).ok();
    assert_eq!(m.status("mounts"), [] as [Value; 0]);
    m.begin(&[]);
    m.crash();
    if Path::new("/dev/fuse").exists() && geteuid().is_root() {
        m.mount(&[]).ok();
        assert!(m.is_mounted(), "a dead mirror keeps nobody from mounting");
        m.jp(&["unmount"]).ok();
    }
    m.check_store();
}

/// It dies while it brings things in step, sooner or later after they changed.
#[test]
fn whenever_it_dies_the_next_catches_up() {
    let m = Mirrored::new();
    for round in 0..12_u32 {
        let text = format!("Round {round}");
        m.sh(&format!(
            "sed -i 's/\"content\": \"[^\"]*\"/\"content\": \"{text}\"/' \"$D/events.json\"
             sed -i 's/\"title\": \"[^\"]*\"/\"title\": \"{text}\"/' */conversations/17528842001-*/metadata.json
             mkdir -p \"$D/notes\"; echo {round} > \"$D/notes/{round}\""
        ));
        let file = m.stored(ids::C).join("notes.md");
        fs::write(&file, &text).expect("written");
        let stored = || m.value(ids::B, "metadata.json")["title"] == text;
        match round % 3 {
            0 => {}
            1 => m.soon("a part of it", stored),
            _ => m.refresh(),
        }
        m.crash();
        let begun = m.begin(&[]);
        let told = || format!("round {round}: {}\n{}\n{}\n{:#?}", begun.told(), m.in_step(), m.log(), m.listed(ids::B));
        assert!(stored(), "{}", told());
        let dir = place(&m, ids::B).expect("it is there");
        assert!(dir.ends_with(format!("17528842001-round-{round}")), "{}\n{}", dir.display(), told());
        let notes = place(&m, ids::C).expect("it is there").join("notes.md");
        assert_eq!(fs::read_to_string(m.point().join(notes)).expect("read"), text, "{}", told());
        let real = |name: &str| fs::read(m.point().join("17528862001-weekend-plans").join(name)).expect("read");
        for name in ["events.json", "metadata.json"] {
            assert_eq!(m.text(ids::D, name).as_bytes(), real(name), "{name}: {}", told());
        }
        assert_eq!(m.text(ids::D, &format!("notes/{round}")), format!("{round}\n"), "{}", told());
        assert_eq!(m.status("conflicts"), [] as [Value; 0], "nobody else was there: {}", told());
    }
    // The dead leave their locks behind, which keep nobody.
    m.jp(&["lock", "clear"]);
    m.check_store();
}

#[test]
fn in_the_foreground() {
    let m = Mirrored::not_yet();
    let running = m.start("exec jp mount --mirror --foreground");
    wait_for("a mirror", LIMIT, || m.status("mounts").first().is_some_and(|mount| !mount["resting"].is_null()));
    assert_eq!(m.daemon().and_then(|pid| u32::try_from(pid).ok()), Some(running.pid()));
    m.sh("sed -i 's/Weekend/Later/' \"$D/metadata.json\"");
    running.signal(Signal::SIGINT);
    running.finish().ok();
    assert_eq!(m.value(ids::D, "metadata.json")["title"], "Later plans");
}

/// A project that is gone says nothing about its conversations.
#[test]
fn it_ends_with_its_workspace() {
    for remove in ["rm -rf \"$P\"", "mv \"$P\" \"$T/moved\"", "rm -rf \"$P/.jp\"", "mv \"$P/.jp\" \"$P/gone\""] {
        let m = Mirrored::new();
        let (pid, before) = (m.daemon().expect("mount.json has the process"), m.store());
        let mut command = m.command("bash");
        command.current_dir("/").args(["-euc", remove]);
        m.run(command).ok();
        wait_for("the daemon's end", LIMIT, || !is_alive(pid));
        assert_eq!(m.store(), before, "{remove}");
        assert!(!m.state().join("mount.json").exists() && !m.state().join("control.sock").exists(), "{remove}");
    }
}

/// Another directory in the place of `.jp` is another workspace, whatever it has or has not.
#[test]
fn it_ends_when_its_workspace_is_replaced() {
    let m = Mirrored::new();
    let (pid, before) = (m.daemon().expect("mount.json has the process"), m.store());
    m.script("mv .jp old && mkdir .jp && cp old/.id .jp/").ok();
    wait_for("the daemon's end", LIMIT, || !is_alive(pid));
    assert_eq!(m.store(), before);
    m.script("rm -r .jp && mv old .jp").ok();
    m.begin(&[]);
    assert_eq!(m.says(ids::D, "presence"), "projected", "nothing was hidden meanwhile");
    m.sh_in_step("sed -i 's/Weekend/Later/' \"$D/metadata.json\"");
    assert_eq!(m.value(ids::D, "metadata.json")["title"], "Later plans");
}

#[test]
fn git_removes_its_worktree() {
    if !have(&["git"]) {
        return;
    }
    let m = Mirrored::not_yet();
    m.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=one").ok();
    let feature = m.worktree("feature");
    feature.begin(&[]);
    m.begin(&[]);
    let (pid, before) = (feature.daemon().expect("mount.json has the process"), m.store());
    m.script("cd \"$P\" && git worktree remove ../feature").ok();
    wait_for("the daemon's end", LIMIT, || !is_alive(pid));
    m.refresh();
    assert_eq!(m.store(), before);
    assert!(m.is_mirrored() && place(&m, ids::C).is_some());
    m.check_store();
}

/// Runs a command in the project with something else in the place of the device, as containers have it.
#[track_caller]
fn without_fuse(m: &Mirrored, command: &str) -> jp_tests::Output {
    let mut unshare = m.command("unshare");
    unshare.args(["--mount", "bash", "-euo", "pipefail", "-c"]);
    unshare.arg(format!("mount --bind /dev/null /dev/fuse; {command}"));
    m.run(unshare)
}

#[test]
fn it_is_chosen_where_nothing_can_be_mounted() {
    if !geteuid().is_root() || !Path::new("/dev/fuse").exists() || !have(&["unshare"]) {
        return;
    }
    let m = Mirrored::not_yet();
    let told = without_fuse(&m, "jp mount --read-only").fails_with(2);
    assert!(told.stderr.contains("--read-only") && told.stderr.contains("/dev/fuse"), "{}", told.told());
    let told = without_fuse(&m, "jp mount").ok();
    assert_eq!(told.line(), m.point().to_str().expect("UTF-8"));
    let line = told.stderr.lines().find(|line| line.contains("instead of mounting")).expect("a line says so");
    assert!(line.contains("/dev/fuse"), "{line}");
    assert!(m.is_mirrored() && !m.is_mounted());
    let again = without_fuse(&m, "jp mount").ok();
    assert!(again.stderr.contains("already"), "{}", again.told());
    m.sh("sed -i 's/Weekend/Later/' \"$D/metadata.json\"");
    m.soon("an edit", || m.value(ids::D, "metadata.json")["title"] == "Later plans");
    m.end(&[]);
    assert_eq!(real_meta(&m, "17528862001-later-plans")["title"], "Later plans");
    m.check_store();
}

#[test]
fn it_is_chosen_where_there_is_no_helper() {
    if !geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return;
    }
    let Some(m) = Mounted::not_yet(User::Nobody, TestEnv::in_memory) else { return };
    // The helper is found by its name, and there is nothing but ours to be found.
    let told = m.script("PATH=\"$T/../bin\" jp mount").ok();
    assert!(told.stderr.contains("fusermount3"), "{}", told.told());
    assert!(!m.is_mounted());
    assert_eq!(m.status("mounts")[0]["kind"], "mirror");
    m.jp(&["unmount"]).ok();
}
