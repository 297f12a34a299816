//! A system that refuses: pipes and directories in place of files, permissions, a store that cannot be written, a disk that
//! is full. Whoever cannot play a system that refuses here says so.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::time::Duration;

use jp_tests::{Output, Place, Shot, Workspace, copy_tree, dirname, jp_binary, skip, wait_for};
use nix::sys::stat::Mode;
use nix::unistd::{Uid, mkfifo};
use serde_json::Value;

use super::{A, B, assert_same, civil, listed, problems, roots, sample, shots, workspace};

/// Runs `jp`, which must come back.
#[track_caller]
fn returns(work: &Workspace, args: &[&str]) -> Output {
    let mut running = work.call(args).start();
    wait_for(&args.join(" "), Duration::from_secs(20), || !running.is_alive());
    civil(running.finish())
}

#[test]
fn a_pipe_or_a_directory_in_place_of_a_file_hides_and_hangs_nothing() {
    for file in ["metadata.json", "events.json", "base_config.json"] {
        for is_pipe in [true, false] {
            for root in [0, 1] {
                let work = workspace().known();
                sample(A, "Odd").write(&work, Place::Both);
                sample(B, "Sound").write(&work, Place::Both);
                let path = roots(&work)[root].join(dirname(A, Some("Odd"))).join(file);
                fs::remove_file(&path).expect("removed");
                if is_pipe {
                    mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).expect("made");
                } else {
                    fs::create_dir(&path).expect("made");
                }
                let told = path.display();
                let before = shots(&work);
                let (id, other) = (A.to_string(), B.to_string());
                for args in super::super::real_store::readers(&id) {
                    let args: Vec<&str> = args.iter().map(String::as_str).collect();
                    returns(&work, &args);
                }
                let (code, found) = problems(&work);
                assert_eq!((code, found.len()), (4, 1), "{told}: {found:#?}");
                assert_eq!(
                    (&found[0]["kind"], &found[0]["path"]),
                    (&"unreadable".into(), &path.to_string_lossy().into())
                );
                assert_eq!(listed(&work, B)["problem"], Value::Null);
                assert!(listed(&work, A)["problem"].is_string() || file != "metadata.json", "{told}");
                // Nothing is written to it that rests on not having been able to look.
                for args in [&["c", "edit", "--title", "New", &id][..], &["c", "archive", "-y", &id]] {
                    returns(&work, args).fails_with(4).says(path.to_str().expect("UTF-8"));
                }
                assert_same(&before, &work);
                returns(&work, &["c", "edit", "--title", "New", &other]).ok();
            }
        }
    }
}

/// Runs `jp` as somebody who owns nothing here; `None` where that cannot be.
fn as_nobody(work: &Workspace, args: &[&str]) -> Option<Output> {
    if !Uid::effective().is_root() {
        skip("only root can become somebody else");
        return None;
    }
    fs::set_permissions(work.env().root(), fs::Permissions::from_mode(0o755)).expect("changed");
    let command = |args: &[&str]| {
        let mut command = work.env().command(jp_binary().as_os_str(), work.root());
        command.args(args).uid(65534).gid(65534);
        command
    };
    if command(&["--version"]).output().is_err() {
        skip("others may not run the jp that was built");
        return None;
    }
    Some(civil(Output::of(command(args), b"")))
}

#[test]
fn what_may_not_be_read_does_not_hide_the_rest() {
    for (root, inside) in [(0, ""), (0, "events.json"), (0, "metadata.json"), (1, ""), (1, "metadata.json")] {
        let work = workspace();
        sample(A, "Closed").write(&work, Place::Both);
        sample(B, "Open").write(&work, Place::Both);
        let path = roots(&work)[root].join(dirname(A, Some("Closed"))).join(inside);
        // Another user looks at it.
        fs::set_permissions(work.silo(), fs::Permissions::from_mode(0o755)).expect("changed");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("changed");
        let before = Shot::of(work.env().root()).without(&[""]);
        let Some(output) = as_nobody(&work, &["c", "ls", "--json"]) else { return };
        let listing = output.json();
        let listing = listing.as_array().expect("an array");
        let open = listing.iter().find(|one| one["title"] == "Open").expect("listed");
        assert_eq!((listing.len(), &open["problem"]), (2, &Value::Null), "{}", path.display());
        for command in ["status", "doctor"] {
            let Some(output) = as_nobody(&work, &[command]) else { return };
            let output = output.fails_with(4);
            let place = format!("{}", path.display());
            assert!(output.stdout.contains(place.trim_end_matches('/')), "{}", output.told());
            assert!(output.stdout.contains("Permission denied"), "{}", output.told());
        }
        for args in [&["c", "print", "17528842001"][..], &["c", "show", "17528842001"], &["c", "grep", "Question"]] {
            let Some(output) = as_nobody(&work, args) else { return };
            output.ok();
        }
        let Some(output) = as_nobody(&work, &["c", "edit", "--title", "New", "17528842001"]) else { return };
        output.fails_with(4);
        before.assert_same(&Shot::of(work.env().root()).without(&[""]));
    }
}

/// Runs a script in a mount namespace of its own, with `$jp` and `$data`; `None` where that cannot be.
fn in_namespace(work: &Workspace, script: &str) -> Option<Output> {
    let unshare = |script: &str| {
        let mut command = work.env().command(OsStr::new("unshare"), work.root());
        command.args(["-m", "sh", "-c", script]).env("jp", jp_binary()).env("data", work.env().data());
        command.env("out", work.env().root().join("out"));
        command
    };
    let trial = "mount -t tmpfs -o size=64k none \"$data\"";
    if !unshare(trial).output().is_ok_and(|output| output.status.success()) {
        skip("nothing can be mounted here");
        return None;
    }
    Some(civil(Output::of(unshare(script), b"")))
}

#[test]
fn a_store_that_is_read_only_can_be_read() {
    let work = workspace();
    sample(A, "Fixed").write(&work, Place::Both);
    let before = Shot::of(work.env().root());
    let mounted = "mount --bind \"$data\" \"$data\" && mount -o remount,ro,bind \"$data\" && exec \"$jp\"";
    for args in super::super::real_store::readers(&A.to_string()) {
        let Some(output) = in_namespace(&work, &format!("{mounted} {}", args.join(" "))) else { return };
        assert!(output.code <= 1, "{}", output.told());
    }
    for line in [
        "c edit --title New 17528832001",
        "c new",
        "c fork 17528832001",
        "c use 17528832001",
        "c archive -y 17528832001",
        "c rm -y 17528832001",
        "doctor --fix",
        "migrate",
    ] {
        let Some(output) = in_namespace(&work, &format!("{mounted} {line}")) else { return };
        let output = output.fails_with(4).says("Read-only file system");
        assert_eq!(output.stdout, "", "{}", output.told());
    }
    before.assert_same(&Shot::of(work.env().root()));
}

#[test]
fn a_full_disk_changes_nothing_and_says_so() {
    let work = workspace();
    sample(A, "Old").events(30).write(&work, Place::Both);
    let seed = work.env().root().join("seed");
    copy_tree(&work.env().data(), &seed).expect("copied");
    let before = Shot::of(&work.storage());
    let script = "mount -t tmpfs -o size=256k none \"$data\" && cp -a \"$data/../seed/.\" \"$data\" || exit 99
        \"$jp\" c edit --pin 17528832001 || exit 98
        cp -a \"$data\" \"$out-before\"
        dd if=/dev/zero of=\"$data/fill\" bs=1k 2>/dev/null
        for args in 'c new --title x' 'c edit --title New 17528832001' 'c fork 17528832001' 'c archive -y 17528832001'; do
            \"$jp\" $args; echo \"code $?\"
        done
        \"$jp\" c ls
        cp -a \"$data\" \"$out-full\"
        rm \"$data/fill\"
        \"$jp\" doctor; echo \"code $?\"
        \"$jp\" c edit --title New 17528832001; echo \"code $?\"
        cp -a \"$data\" \"$out-after\"";
    let Some(output) = in_namespace(&work, script) else { return };
    let said: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(said[..4], ["code 4"; 4], "{}", output.told());
    assert!(said[4].ends_with("\tOld") && said[5..] == ["code 0", "code 0"], "{}", output.told());
    assert_eq!(output.stderr.matches("No space left on device").count(), 4, "{}", output.told());
    let shot = |name: &str| {
        let data = work.env().root().join(name);
        Shot::of(&data.join("workspace/main-ab1cd/conversations"))
    };
    shot("out-before").without_mtimes().assert_same(&shot("out-full").without_mtimes());
    assert!(shot("out-after").paths().any(|path| path == Path::new("17528832001-new/events.json")));
    // The workspace's copy was followed up in the end, and only then.
    assert!(before.paths().any(|path| path.ends_with("17528832001-old")));
    assert!(roots(&work)[1].join("17528832001-new").is_dir());
}

#[test]
fn a_workspace_that_is_full_leaves_the_change_in_the_store() {
    let work = workspace();
    sample(A, "Old").write(&work, Place::Both);
    let script = "mount -t tmpfs -o size=256k none .jp && cp -a \"$out/.\" .jp || exit 99
        dd if=/dev/zero of=.jp/fill bs=1k 2>/dev/null
        \"$jp\" c edit --title New 17528832001; echo \"code $?\"
        \"$jp\" c ls --json > \"$out-listing\"
        rm .jp/fill
        \"$jp\" c edit --pin 17528832001; echo \"code $?\"
        cp -a .jp/. \"$out-after\"";
    let out = work.env().root().join("out");
    copy_tree(&work.storage(), &out).expect("copied");
    fs::create_dir(work.env().root().join("out-after")).expect("made");
    let Some(output) = in_namespace(&work, script) else { return };
    assert_eq!(output.stdout, "code 4\ncode 0\n", "{}", output.told());
    assert!(output.stderr.contains("is safe in the store") && output.stderr.contains("No space left on device"));
    let listing = fs::read(work.env().root().join("out-listing")).expect("read");
    let listing: Value = serde_json::from_slice(&listing).expect("JSON");
    assert_eq!(listing[0]["title"], "New");
    assert!(work.env().root().join("out-after/conversations/17528832001-new/metadata.json").is_file());
}
