//! A mount begins, is ended, dies, and is cleared away. What it leaves behind are real files that look the same.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use jp_tests::{LIMIT, Mounted, TestEnv, User, ids, is_alive, wait_for};
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use serde_json::Value;

use super::{everyone, lines, put, said};

const TREE: &str = "find . -type f | sort | xargs sha256sum";

#[test]
fn a_command_returns_when_the_tree_can_be_listed() {
    for user in [User::Own, User::Nobody] {
        if user == User::Nobody && !geteuid().is_root() {
            continue;
        }
        let Some(m) = Mounted::not_yet(user, TestEnv::new) else { return };
        // A daemon that kept its caller's pipe open would never let this end.
        let told = m.script("told=$(jp mount 2>&1) && ls \"$M\"").ok();
        assert_eq!(lines(&told.stdout).len(), 2, "{}", told.told());
        let pid = m.daemon().expect("mount.json has the process");
        let mounts = m.status("mounts");
        let [mount] = mounts.as_slice() else { panic!("one mount: {mounts:#?}") };
        assert_eq!((&mount["pid"], &mount["alive"]), (&Value::from(pid), &Value::from(true)));
        assert_eq!(mount["point"].as_str().map(Path::new), Some(m.point().as_path()));
        assert!(m.state().join("mount.log").is_file() && m.state().join("mount.json").is_file());

        // It holds on to nothing of whoever started it.
        let proc = format!("/proc/{pid}");
        assert_eq!(fs::read_link(format!("{proc}/cwd")).expect("read"), Path::new("/"));
        let stat = fs::read_to_string(format!("{proc}/stat")).expect("read");
        let session = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(3)).expect("a session").to_owned();
        let own = fs::read_to_string("/proc/self/stat").expect("read");
        assert_ne!(Some(session.as_str()), own.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(3)));

        let again = m.mount(&[]).ok();
        assert!(again.stderr.contains("already") || again.stdout.contains("already"), "{}", again.told());
        assert_eq!(m.daemon(), Some(pid), "mounting twice is mounting once");
        m.end(&[]);
        wait_for("the daemon's end", LIMIT, || !is_alive(pid));
        assert_eq!(m.status("mounts"), [] as [Value; 0]);
        let nothing = m.jp(&["unmount"]);
        assert!(nothing.code <= 1 && !nothing.stderr.is_empty(), "{}", nothing.told());
    }
}

#[test]
fn a_dead_mount_is_cleared() {
    everyone(|m| {
        let shown = m.sh(TREE).stdout;
        let die = || {
            m.crash();
            // The kernel may still know what is there; it cannot make anything.
            let told = m.script("echo x > \"$M/$D/never.tmp\"");
            assert!(told.code != 0 && told.stderr.contains("not connected"), "{}", told.told());
            assert!(m.is_mounted());
        };
        die();
        let mounts = m.status("mounts");
        assert!(mounts.iter().all(|mount| mount["alive"] == false), "{mounts:#?}");
        m.begin(&[]);
        assert_eq!(m.sh(TREE).stdout, shown);
        die();
        m.end(&[]);
        m.begin(&[]);
        die();
        m.jp(&["doctor", "--fix"]).ok();
        assert!(!m.is_mounted());
        m.begin(&[]);
        assert_eq!(m.sh(TREE).stdout, shown);
        m.check_store();
    });
}

#[test]
fn a_signal_ends_it_cleanly() {
    everyone(|m| {
        m.sh("echo '{ typed' > \"$D/metadata.json\"; echo swap > \"$D/.x.swp\"");
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            let pid = m.daemon().expect("mount.json has the process");
            m.signal(signal);
            wait_for("the mount's end", LIMIT, || !m.is_mounted());
            wait_for("the daemon's end", LIMIT, || !is_alive(pid));
            assert_eq!(m.status("drafts").len(), 1, "drafts are kept, and told without a mount too");
            m.begin(&[]);
            assert_eq!(m.sh("cat \"$D/metadata.json\" \"$D/.x.swp\"").stdout, "{ typed\nswap\n");
        }
        assert_eq!(m.value(ids::D, "metadata.json")["title"], "Weekend plans");
    });
}

#[test]
fn a_draft_that_no_disk_takes_is_refused() {
    everyone(|m| {
        let before = m.text(ids::D, "metadata.json");
        // As a full disk would, but for this draft alone.
        let drafts = m.state().join("drafts").join(ids::D.to_string());
        fs::write(&drafts, "in the way").expect("written");
        let told = m.try_sh("printf '{ typed' > \"$D/metadata.json\"");
        assert!(told.code != 0 && !told.stderr.is_empty(), "{}", told.told());
        assert_eq!(m.sh("cat \"$D/metadata.json\"").stdout, before);
        // Nothing would be lost.
        m.end(&[]);
        fs::remove_file(&drafts).expect("it was in the way");
        m.begin(&[]);
        m.sh("printf '{ typed' > \"$D/metadata.json\"");
        m.end(&[]);
        m.begin(&[]);
        assert_eq!(m.sh("cat \"$D/metadata.json\"").stdout, "{ typed");
    });
}

#[test]
fn a_busy_mount_says_who() {
    everyone(|m| {
        let stay = || {
            let guest = m.start("cd \"$M/$A\" && touch \"$T/inside\" && exec cat");
            let inside = m.workspace().env().root().join("tmp/inside");
            wait_for("a guest", LIMIT, || inside.exists());
            fs::remove_file(inside).expect("removed");
            guest
        };
        let guest = stay();
        let told = m.workspace().env().root().join("tmp/told");
        let ending = m.start("exec jp unmount 2> \"$T/told\"");
        let who = guest.pid().to_string();
        let named = || fs::read_to_string(&told).is_ok_and(|text| text.contains(&who) && text.contains("cat"));
        wait_for("the name of the guest", LIMIT, named);
        assert!(m.is_mounted());
        let daemon = format!("process {} ", m.daemon().expect("it is there"));
        let text = fs::read_to_string(&told).expect("read");
        assert!(!text.contains(&daemon), "the process behind the mount is in nobody's way: {text}");
        guest.finish().ok();
        ending.finish().ok();
        assert!(!m.is_mounted());

        m.begin(&[]);
        let pid = m.daemon().expect("mount.json has the process");
        let guest = stay();
        m.end(&["--lazy"]);
        assert!(m.script("ls \"$M\"").ok().stdout.contains("17528832001"), "the real files are there");
        guest.finish().ok();
        wait_for("the daemon's end", LIMIT, || !is_alive(pid));
    });
}

#[test]
fn a_place_is_made_when_missing() {
    everyone(|m| {
        m.end(&[]);
        let told = m.script("jp mount \"$T/far/away\" > /dev/null && ls \"$T/far/away\"").ok();
        assert_eq!(lines(&told.stdout).len(), 2, "{}", told.told());
        assert!(!m.is_mounted(), "there, not here");
        let mounts = m.status("mounts");
        let elsewhere = m.workspace().env().root().join("tmp/far/away");
        assert_eq!(mounts[0]["point"].as_str().map(Path::new), Some(elsewhere.as_path()));
        put(m, "new.json", &said("far away", 10));
        m.script("cat \"$T/new.json\" > \"$T/far/away/$C/events.json\"").ok();
        assert_eq!(m.text(ids::C, "events.json"), said("far away", 10));
        m.jp(&["unmount"]).ok();
        assert_eq!(m.script("ls -A \"$T/far/away\"").ok().stdout, "");

        // The usual place of a project that has never had a conversation.
        m.script("mkdir \"$T/new\" && cd \"$T/new\" && jp init && rm -rf .jp/conversations && jp mount && ls .jp/conversations
                  jp c new --title First && ls .jp/conversations | grep first && jp unmount && ls .jp/conversations | grep first")
            .ok();
    });
}

#[test]
fn a_failure_says_why() {
    everyone(|m| {
        m.end(&[]);
        let check = |script: &str, codes: &[i32], words: &[&str]| {
            let told = m.script(script);
            assert!(codes.contains(&told.code), "{}", told.told());
            assert!(words.iter().any(|word| told.stderr.contains(word)), "{}", told.told());
            assert!(!m.is_mounted());
            assert_eq!(m.status("mounts"), [] as [Value; 0]);
        };
        check("touch \"$T/file\"; jp mount \"$T/file\"", &[1, 4], &["tmp/file"]);
        check("touch \"$T/file\"; jp mount \"$T/file/deeper\"", &[1, 4], &["tmp/file"]);
        check("cd \"$T\" && jp mount", &[1], &["workspace"]);
        check("jp mount --no-such-flag", &[2], &["--no-such-flag"]);
        if m.user() == User::Nobody {
            let allowed = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
            if !allowed.lines().any(|line| line.trim() == "user_allow_other") {
                check("jp mount --allow-other", &[1, 4], &["allow_other", "allow-other"]);
            }
            fs::create_dir(m.workspace().env().root().join("closed")).expect("made");
            check("jp mount \"$T/../closed\"", &[1, 4], &["closed"]);
        }
        let id = m.workspace().storage().join(".id");
        let before = fs::read(&id).expect("read");
        fs::write(&id, "nonsense, and long\n").expect("written");
        let told = m.mount(&[]);
        assert!(told.code != 0 && told.stderr.contains(".id"), "{}", told.told());
        fs::write(&id, before).expect("written");
        m.begin(&[]);
    });
}

#[test]
fn in_the_foreground() {
    everyone(|m| {
        m.end(&[]);
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            let socket = m.workspace().env().root().join("tmp/notify");
            let listener = UnixDatagram::bind(&socket).expect("bound");
            listener.set_read_timeout(Some(LIMIT)).expect("set");
            m.give();
            let mut running = m.start("export NOTIFY_SOCKET=\"$T/notify\"; exec jp mount --foreground");
            let mut word = [0; 256];
            let length = loop {
                match listener.recv(&mut word) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    length => break length.expect("a word from the daemon"),
                }
            };
            let word = String::from_utf8_lossy(&word[..length]).into_owned();
            assert!(word.lines().any(|line| line == "READY=1"), "{word:?}");
            assert_eq!(lines(&m.sh("ls").stdout).len(), 2, "ready is ready");
            assert!(running.is_alive());
            assert_eq!(m.daemon().and_then(|pid| u32::try_from(pid).ok()), Some(running.pid()));
            running.signal(signal);
            let told = running.finish();
            assert!([0, 130, 143].contains(&told.code), "{}", told.told());
            assert!(!m.is_mounted());
            fs::remove_file(socket).expect("removed");
        }
    });
}

/// Everything a person may do to a tree.
const CHANGES: &str = "
    sed -i 's/Weekend/Later/' \"$D/metadata.json\"
    sed -i 's/Question 0/Question zero/' \"$C/events.json\"
    mv \"$B\" .
    mv \"$O\" .
    echo note > \"$A/notes.md\"; mkdir \"$A/sub\"; echo x > \"$A/sub/x\"
    echo scratch > \"$A/x.tmp\"";

#[test]
fn real_files_follow_when_it_ends() {
    everyone(|m| {
        m.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=one").ok();
        m.sh(CHANGES);
        m.sh("rm -r 17528842001-alternative-approach/conversations/17528852001-third-thoughts; rm \"$A/x.tmp\"");
        let (shown, status) = (m.sh(TREE).stdout, m.script("cd \"$P\" && git status --porcelain -uall").ok().stdout);
        assert!(!status.is_empty());
        let store = m.store();
        m.end(&[]);
        let real = m.script(&format!("cd \"$M\" && {TREE}")).ok().stdout;
        assert_eq!(real, shown);
        assert_eq!(m.script("cd \"$P\" && git status --porcelain -uall").ok().stdout, status);
        assert_eq!(m.store(), store);
        assert_eq!(m.says(ids::C, "presence"), "local");
        assert_eq!(m.says(ids::D, "presence"), "projected");
        m.check_store();
        m.script("cd \"$P\" && git add --all && git commit --quiet --message=two").ok();
        m.begin(&[]);
        assert_eq!(m.sh(TREE).stdout, shown);
        assert_eq!(m.script("cd \"$P\" && git status --porcelain").ok().stdout, "");
    });
}

#[test]
fn real_files_stay_when_told_to() {
    everyone(|m| {
        m.end(&[]);
        let before = m.script(&format!("cd \"$M\" && {TREE}")).ok().stdout;
        m.begin(&[]);
        m.sh(CHANGES);
        let shown = m.sh(&format!("rm \"$A/x.tmp\"; {TREE}")).stdout;
        m.end(&["--no-export"]);
        assert_eq!(m.script(&format!("cd \"$M\" && {TREE}")).ok().stdout, before);
        assert_eq!(m.value(ids::D, "metadata.json")["title"], "Later plans");
        m.begin(&[]);
        assert_eq!(m.sh(TREE).stdout, shown, "old files do not win over what was saved");
        m.check_store();
    });
}

#[test]
fn what_came_with_git_is_taken_in() {
    everyone(|m| {
        m.end(&[]);
        // A worktree with a conversation that no store has, and an edit made while nothing was mounted.
        let new = jp_tests::Sample::new(17_600_000_001).title("Pulled").events(6);
        new.write_below(&m.point());
        m.give();
        m.script("cd \"$M\" && sed -i 's/Weekend/Edited/' \"$D/metadata.json\"").ok();
        m.begin(&[]);
        for (name, bytes) in new.contents() {
            assert_eq!(m.text(17_600_000_001, &name).as_bytes(), bytes);
        }
        assert_eq!(m.value(ids::D, "metadata.json")["title"], "Edited plans");
        assert_eq!(lines(&m.sh("ls").stdout).len(), 3);
        let log = m.state().join("mount.log");
        wait_for("a log", LIMIT, || log.is_file());
        m.check_store();
    });
}
