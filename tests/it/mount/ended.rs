//! What a mount says when it begins a second time and when it ends: the truth, and an exit code that goes with it.

use std::fs;

use jp_tests::{LIMIT, Mounted, TestEnv, User, ids, is_alive, wait_for};

use super::everyone;

#[test]
fn real_files_that_do_not_follow_are_named() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    m.script("JP_LOCK_DURATION=100ms jp mount > /dev/null").ok();
    m.sh("sed -i 's/Weekend/Later/' \"$D/metadata.json\"; sed -i 's/Third/Fourth/' \"$C/metadata.json\"");
    let holder = m.start(&format!("exec jp lock run jp-c{} -- cat", ids::D));
    let lock = m.workspace().silo().join(format!("locks/jp-c{}.lock", ids::D));
    wait_for("the lock", LIMIT, || fs::read(&lock).is_ok_and(|text| !text.is_empty()));
    let told = m.jp(&["unmount"]).fails_with(3);
    assert!(told.stderr.contains(&format!("jp-c{}", ids::D)), "{}", told.told());
    assert!(!told.stderr.contains(&format!("jp-c{}", ids::C)), "only what is held: {}", told.told());
    assert!(!m.is_mounted(), "it is unmounted all the same");
    m.script("cd \"$M\" && grep -q Weekend 17528862001-*/metadata.json && find . -path '*fourth-thoughts/metadata.json' | grep -q .").ok();
    holder.finish().ok();
    m.jp(&["export"]).ok();
    m.script("cd \"$M\" && grep -q Later 17528862001-*/metadata.json").ok();
    m.begin(&[]);
    m.end(&[]);
}

#[test]
fn several_mounts_end_and_one_of_them_does_not_follow() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    m.script("JP_LOCK_DURATION=100ms jp mount > /dev/null").ok();
    m.sh("sed -i 's/Weekend/Later/' \"$D/metadata.json\"");
    let holder = m.start(&format!("exec jp lock run jp-c{} -- cat", ids::D));
    let lock = m.workspace().silo().join(format!("locks/jp-c{}.lock", ids::D));
    wait_for("the lock", LIMIT, || fs::read(&lock).is_ok_and(|text| !text.is_empty()));
    let told = m.jp(&["unmount", "--all", "--json"]).fails_with(3);
    let report: serde_json::Value = serde_json::from_str(&told.stdout).expect("JSON");
    assert_eq!(report[0]["how"], "unmounted", "{}", told.told());
    assert_eq!(report[0]["left"][0]["id"], format!("jp-c{}", ids::D), "{}", told.told());
    assert_eq!(report[0]["left"][0]["kind"], "busy", "{}", told.told());
    holder.finish().ok();
}

/// Whether `jp status` says that the real files are behind, and what to do.
fn is_told_behind(m: &Mounted) -> bool {
    let told = m.jp(&["status"]).stdout;
    told.lines().any(|line| line.starts_with("behind") && line.contains("jp export"))
}

#[test]
fn a_process_that_dies_while_the_real_files_follow() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    m.script("JP_LOCK_DURATION=1h jp mount > /dev/null").ok();
    m.sh("sed -i 's/Weekend/Later/' \"$D/metadata.json\"; echo note > \"$A/notes.md\"");
    let holder = m.start(&format!("exec jp lock run jp-c{} -- cat", ids::D));
    let lock = m.workspace().silo().join(format!("locks/jp-c{}.lock", ids::D));
    wait_for("the lock", LIMIT, || fs::read(&lock).is_ok_and(|text| !text.is_empty()));
    // The process behind the mount waits for the lock when it is killed.
    let [one, other] = [0, 1].map(|_| m.start("exec jp unmount"));
    wait_for("the unmount", LIMIT, || !m.is_mounted());
    m.crash();
    for told in [one.finish(), other.finish()] {
        let told = told.fails_with(1);
        assert!(told.stderr.contains("jp export"), "{}", told.told());
    }
    assert!(is_told_behind(&m));
    holder.finish().ok();
    m.jp(&["export"]).ok();
    m.script("cd \"$M\" && grep -q Later 17528862001-*/metadata.json && cat \"$A/notes.md\"").ok();
    assert!(!is_told_behind(&m));
}

#[test]
fn a_dead_mount_has_left_the_real_files_behind() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    m.sh("sed -i 's/Weekend/Later/' \"$D/metadata.json\"");
    m.crash();
    let told = m.jp(&["unmount"]).fails_with(1);
    assert!(told.stderr.contains("jp export"), "{}", told.told());
    assert!(!m.is_mounted() && is_told_behind(&m));
    m.jp(&["export"]).ok();
    assert!(!is_told_behind(&m));
    // One that changed nothing leaves nothing behind.
    m.begin(&[]);
    m.crash();
    m.end(&[]);
    assert!(!is_told_behind(&m));
    m.begin(&[]);
    m.sh("echo note > \"$A/notes.md\"");
    m.end(&["--no-export"]);
    assert!(is_told_behind(&m));
}

/// A user file that is too large stays in the store and is named. It keeps nothing else, and nothing at all while it is
/// hidden.
#[test]
fn a_file_that_is_too_large_is_held_alone() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let new = m.jp(&["c", "new", "--title", "New"]).ok().stdout;
    let new = new.trim().trim_start_matches("jp-c");
    m.sh(&format!(
        "echo old > \"$D/aaa\"; truncate -s 1100M \"$D/huge\" {new}-new/huge; echo new > {new}-new/zzz
         echo new > \"$D/zzz\"; sed -i 's/Weekend/Later/' \"$D/metadata.json\"",
    ));
    let told = m.jp(&["unmount"]).fails_with(1);
    assert_eq!(told.stderr.matches("did not follow").count(), 2, "{}", told.told());
    assert_eq!(told.stderr.matches("/huge: larger than 1 GiB").count(), 2, "{}", told.told());
    m.script(&format!("cd \"$M\" && grep -q Later {}-*/metadata.json && cat {}-*/{{aaa,zzz}}", ids::D, ids::D)).ok();
    m.script(&format!("cd \"$M\" && cat {new}-new/zzz && test -z \"$(find . -name huge)\"")).ok();
    for command in ["status", "doctor"] {
        assert!(m.jp(&[command]).stdout.contains("/huge: "), "{command} names it");
    }
    m.jp(&["export"]).fails_with(1);
    m.begin(&[]);
    m.sh(&format!(
        "rm {}-*/huge {new}-new/huge; truncate -s 1100M \"$A/aaa\"; rm \"$A/aaa\"; echo x > \"$A/zzz\"",
        ids::D
    ));
    m.end(&[]);
    m.script("cat \"$M/$A/zzz\" && test ! -e \"$M/$A/aaa\"").ok();
    m.jp(&["export", "--check"]).ok();
}

#[test]
fn drafts_are_named() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let told = m.end(&[]);
    assert!(!told.stderr.contains("jp draft"), "{}", told.told());
    m.begin(&[]);
    m.sh("printf '[ 1,' > \"$D/events.json\"; mkdir 17600000001-new; printf '{' > 17600000001-new/metadata.json");
    let told = m.end(&[]);
    for word in [&format!("jp-c{} events.json", ids::D), "jp-c17600000001", "jp draft ls"] {
        assert!(told.stderr.contains(word), "{word}: {}", told.told());
    }
    m.begin(&[]);
    let told = m.jp(&["unmount", "--json"]).ok();
    let report: serde_json::Value = serde_json::from_str(&told.stdout).expect("JSON");
    assert_eq!(report[0]["drafts"].as_array().map(Vec::len), Some(2), "{}", told.told());
}

#[test]
fn a_detached_mount_is_told_as_one() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let pid = m.daemon().expect("mount.json has the process");
    let guest = m.start("cd \"$M/$A\" && touch \"$T/inside\" && exec cat");
    wait_for("a guest", LIMIT, || m.workspace().env().root().join("tmp/inside").exists());
    assert!(!m.jp(&["status"]).ok().stdout.contains("detached"));
    m.sh("echo note > \"$D/notes.md\"");
    m.end(&["--lazy"]);
    let told = m.jp(&["status"]).ok();
    assert!(told.stdout.contains("detached"), "{}", told.told());
    assert_eq!(m.status("mounts")[0]["detached"], true);
    guest.finish().ok();
    wait_for("the daemon's end", LIMIT, || !is_alive(pid));
    m.script("cat \"$M/$D/notes.md\"").ok();
    assert_eq!(m.status("mounts"), [] as [serde_json::Value; 0]);
}

#[test]
fn mounted_with_other_options() {
    everyone(|m| {
        let pid = m.daemon();
        for flag in ["--read-only", "--all", "--strict", "--xattrs", "--poll"] {
            let told = m.mount(&[flag]).fails_with(1);
            for word in ["already", "jp unmount", flag] {
                assert!(told.stderr.contains(word), "{word}: {}", told.told());
            }
            assert_eq!(m.daemon(), pid);
        }
        m.sh("touch \"$D/notes.md\"");
        m.mount(&[]).ok();
        m.end(&[]);
        m.begin(&["--read-only", "--strict"]);
        let told = m.mount(&[]).fails_with(1);
        assert!(told.stderr.contains("--read-only") && told.stderr.contains("--strict"), "{}", told.told());
        m.mount(&["--strict", "--read-only"]).ok();
        m.mount(&["--strict"]).fails_with(1);
        let told = m.script("jp mount --foreground").fails_with(1);
        assert!(told.stderr.contains("--read-only"), "{}", told.told());
    });
}

/// Another worktree moves a conversation beneath one that is local here. The mount does not show it any more, nor do the real
/// files after it.
#[test]
fn what_moved_beneath_a_local_one_goes_from_the_real_files() {
    let Some(main) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    main.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=one").ok();
    let other = main.worktree("other");
    for m in [&main, &other] {
        m.jp(&["export"]).ok();
    }
    other.jp(&["c", "edit", &format!("jp-c{}", ids::D), "--local=true"]).ok();
    other.begin(&[]);
    main.jp(&["c", "mv", &format!("jp-c{}", ids::A), "--parent", &format!("jp-c{}", ids::D)]).ok();
    other.sh("test ! -e \"$A\"");
    other.end(&[]);
    other.script("cd \"$M\" && test -z \"$(find . -name '17528832001*')\"").ok();
    other.jp(&["export", "--check"]).ok();
}

/// The same where copies of conversations that were removed for good lie in what goes, and what goes in them.
#[test]
fn what_was_removed_goes_with_what_moved_beneath_a_local_one() {
    let named = |id: u64| format!("jp-c{id}");
    for (removed, by_export) in [(ids::C, true), (ids::C, false), (ids::B, true), (ids::B, false)] {
        let Some(main) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
        main.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=one").ok();
        let other = main.worktree("other");
        for m in [&main, &other] {
            m.jp(&["export"]).ok();
        }
        other.jp(&["c", "edit", &named(ids::D), "--local=true"]).ok();
        other.begin(&[]);
        let how = if removed == ids::B { vec!["c", "rm", "--yes", "--promote"] } else { vec!["c", "rm", "--yes"] };
        main.jp(&[&how[..], &[&named(removed)]].concat()).ok();
        // The one that lies innermost goes above the others.
        let inner = if removed == ids::B { ids::C } else { ids::B };
        main.jp(&["c", "mv", &named(inner), "--parent", &named(ids::D)]).ok();
        main.jp(&["c", "mv", &named(ids::A), "--parent", &named(inner)]).ok();
        if by_export {
            other.jp(&["export"]).ok();
            other.jp(&["export", "--check"]).ok();
        }
        other.end(&[]);
        let names = "-name '17528832001*' -o -name '17528842001*' -o -name '17528852001*'";
        other.script(&format!("cd \"$M\" && test -z \"$(find . {names})\"")).ok();
        other.jp(&["export", "--check"]).ok();
    }
}
