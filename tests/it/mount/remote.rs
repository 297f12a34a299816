//! A store on a filesystem that others change without this kernel hearing of it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jp_tests::{LIMIT, Mounted, TestEnv, User, copy_tree, have, ids, skip, wait_for};
use nix::unistd::geteuid;

/// A directory that is served by another program, gone when dropped.
struct Served(PathBuf);

impl Served {
    #[track_caller]
    fn new(from: &Path, point: &Path) -> Self {
        let status = Command::new("bindfs").arg(from).arg(point).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot serve {}", from.display());
        Self(point.to_owned())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // What this does not manage goes with the machine.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_store_on_fuse_is_polled() {
    if !have(&["bindfs"]) {
        return;
    }
    for mirror in [false, true] {
        let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
        let (data, behind) = (m.workspace().env().data(), m.workspace().env().root().join("behind"));
        fs::rename(&data, &behind).expect("moved");
        fs::create_dir(&data).expect("made");
        let _served = Served::new(&behind, &data);
        if mirror {
            m.mount(&["--mirror"]).ok();
        } else {
            m.begin(&[]);
        }
        let mount = &m.status("mounts")[0];
        assert_eq!(mount["staleness"], "polling");
        assert!(mount["why_polled"].as_str().is_some_and(|why| why.contains("FUSE")), "{mount}");
        let told = m.jp(&["status"]);
        assert!(format!("{}{}", told.stdout, told.stderr).contains("is on FUSE"), "{}", told.told());
        // Another host changes the store, and no event comes of it here.
        let dir = format!("workspace/main-otvo8/conversations/{}", "17528862001-weekend-plans");
        let file = behind.join(dir).join("notes.md");
        fs::write(&file, "from elsewhere").expect("written");
        let shown = m.point().join("17528862001-weekend-plans/notes.md");
        wait_for("the change", LIMIT, || fs::read(&shown).is_ok_and(|bytes| bytes == b"from elsewhere"));
        assert!(m.listed(ids::D).is_some());
        m.jp(&["unmount"]).ok();
    }
}

fn run(program: &str, args: &[&OsStr]) {
    let status = Command::new(program).args(args).status();
    assert!(status.is_ok_and(|status| status.success()), "{program} {args:?} fails");
}

/// The same where `bindfs` is missing. Another mount of `jp` serves the store, except for `vfs`, which needs a socket.
#[test]
fn a_store_on_another_mount_is_polled() {
    if !geteuid().is_root() {
        skip("only root can bind a directory");
        return;
    }
    let Some(server) = Mounted::new(User::Own, &[]) else { return };
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    let (silo, behind) = (m.workspace().silo(), server.stored(ids::D).join("store"));
    copy_tree(&silo, &behind).expect("copied");
    fs::create_dir_all(behind.join("vfs")).expect("made");
    let served = server.point().join(server.stored(ids::D).file_name().expect("a name")).join("store");
    wait_for("the store in the other mount", LIMIT, || {
        served.join("conversations").is_dir() && served.join("vfs").is_dir()
    });
    run("mount", &["--bind".as_ref(), served.as_ref(), silo.as_ref()]);
    run("mount", &["-t".as_ref(), "tmpfs".as_ref(), "jp-test".as_ref(), silo.join("vfs").as_ref()]);
    m.begin(&[]);
    let mount = &m.status("mounts")[0];
    assert_eq!(mount["staleness"], "polling");
    assert!(mount["why_polled"].as_str().is_some_and(|why| why.contains("FUSE")), "{mount}");
    // The server's store changes, and no event comes of it in the store that it serves.
    let name = m.stored(ids::C).file_name().expect("a name").to_owned();
    fs::write(behind.join("conversations").join(name).join("notes.md"), "from elsewhere").expect("written");
    wait_for("the change", LIMIT, || m.try_sh("cat \"$C/notes.md\"").stdout == "from elsewhere");
}

/// A local store, with its conversations or one of them on another filesystem.
#[test]
fn a_part_of_the_store_on_another_mount_is_polled() {
    if !geteuid().is_root() {
        skip("only root can bind a directory");
        return;
    }
    for mirror in [false, true] {
        for whole in [true, false] {
            let Some(server) = Mounted::new(User::Own, &[]) else { return };
            let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
            let all = m.workspace().silo().join("conversations");
            let (part, behind) = (if whole { all } else { m.stored(ids::D) }, server.stored(ids::D).join("part"));
            copy_tree(&part, &behind).expect("copied");
            let served = server.point().join(server.stored(ids::D).file_name().expect("a name")).join("part");
            wait_for("the part in the other mount", LIMIT, || served.is_dir());
            run("mount", &["--bind".as_ref(), served.as_ref(), part.as_ref()]);
            m.mount(if mirror { &["--mirror"] } else { &[] }).ok();
            let mount = &m.status("mounts")[0];
            assert_eq!(mount["staleness"], "polling", "{mount}");
            assert!(mount["why_polled"].as_str().is_some_and(|why| why.contains("is on FUSE")), "{mount}");
            m.jp(&["unmount"]);
        }
    }
}

#[test]
fn a_local_store_is_watched_and_one_that_is_asked_to_poll_says_so() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let mount = &m.status("mounts")[0];
    assert_eq!((&mount["staleness"], &mount["why_polled"]), (&"watching".into(), &serde_json::Value::Null));
    m.end(&[]);
    m.begin(&["--poll"]);
    let mount = &m.status("mounts")[0];
    assert_eq!(mount["staleness"], "polling");
    assert!(mount["why_polled"].as_str().is_some_and(|why| why.contains("--poll")), "{mount}");
}
