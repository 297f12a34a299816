//! Who is let through a lock: every thread of its holder, and no process of another container, whatever its number is there.

use std::fs;
use std::path::PathBuf;

use jp_tests::{LIMIT, Mounted, Running, TestEnv, User, have, ids, skip, wait_for};
use nix::unistd::geteuid;

use super::{everyone_with, put, said};

/// Holds a lock as the real tool does. `mine`: writes a file from a second thread meanwhile; else waits for the end of its
/// input.
const HOLD: &str = r#"
import fcntl, json, os, sys, threading
lock, held = sys.argv[1], sys.argv[2]
os.makedirs(os.path.dirname(lock), exist_ok=True)
file = open(lock, "a+")
fcntl.flock(file, fcntl.LOCK_EX)
file.truncate(0)
file.write(json.dumps({"pid": os.getpid()}))
file.flush()
open(held, "w").close()
def write():
    try:
        with open(sys.argv[3], "wb") as out:
            out.write(open(sys.argv[4], "rb").read())
        print("saved")
    except OSError as err:
        print(err)
if len(sys.argv) > 3:
    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
else:
    sys.stdin.read()
os.remove(lock)
"#;

#[test]
fn every_thread_of_the_holder_is_let_through() {
    everyone_with(&["python3"], &[], |m| {
        put(m, "hold.py", HOLD);
        put(m, "new.json", &said("by a thread", 100));
        let script = "exec python3 \"$T/hold.py\" \"$U/locks/jp-c17528862001.lock\" \"$T/held\" \"$D/events.json\" \
                      \"$T/new.json\"";
        assert_eq!(m.sh(script).stdout, "saved\n");
        assert_eq!(m.text(ids::D, "events.json"), said("by a thread", 100));
    });
}

/// Whether processes can be given numbers of their own here.
fn has_containers() -> bool {
    if !geteuid().is_root() {
        skip("only root can make a container");
        return false;
    }
    have(&["unshare", "python3"])
}

/// Starts a program in a container: its first process, with a table of processes of its own.
#[track_caller]
fn contained(m: &Mounted, script: &str) -> Running {
    let mut unshare = m.command("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-euo", "pipefail", "-c", script]);
    Running::start(unshare)
}

/// Takes the lock of `D` in a container, by its process number 1.
#[track_caller]
fn held_in_a_container(m: &Mounted) -> Running {
    put(m, "hold.py", HOLD);
    let holder = contained(m, "exec python3 \"$T/hold.py\" \"$U/locks/jp-c17528862001.lock\" \"$T/held\"");
    let (held, lock) = (tmp(m, "held"), m.workspace().silo().join("locks/jp-c17528862001.lock"));
    wait_for("the lock", LIMIT, || held.exists());
    assert_eq!(fs::read_to_string(lock).expect("read"), "{\"pid\": 1}");
    holder
}

fn tmp(m: &Mounted, name: &str) -> PathBuf {
    m.workspace().env().root().join("tmp").join(name)
}

#[test]
fn a_stranger_in_another_container_is_not() {
    if !has_containers() {
        return;
    }
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    let holder = held_in_a_container(&m);
    let before = m.store();
    put(&m, "new.json", &said("by a stranger", 100));
    // Here too the first process is number 1, and everything beneath it.
    let script = "jp mount; cd \"$M\"; for file in events.json notes.md; do cat \"$T/new.json\" > \"$D/$file\" || echo refused; \
                  done; JP_LOCK_DURATION=0 jp c edit --title Other jp-c17528862001 || echo $?; cd \"$P\"; jp unmount --no-export";
    let told = contained(&m, script).finish();
    assert!(told.stdout.contains("refused\nrefused\n3\n"), "{}", told.told());
    assert_eq!(m.store(), before);
    holder.finish().ok();
    m.check_store();
}

#[test]
fn a_process_beneath_the_holder_in_its_container_is() {
    if !has_containers() {
        return;
    }
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    put(&m, "new.json", &said("beneath", 100));
    // The mount is in the container as well.
    let inside =
        "jp mount; jp lock run jp-c17528862001 -- cp \"$T/new.json\" \"$M/$D/events.json\"; jp unmount --no-export";
    contained(&m, inside).finish().ok();
    assert_eq!(m.text(ids::D, "events.json"), said("beneath", 100));
    // The mount is outside, and knows the holder under another number.
    put(&m, "new.json", &said("seen from outside", 100));
    m.begin(&[]);
    contained(&m, "jp lock run jp-c17528862001 -- cp \"$T/new.json\" \"$M/$D/events.json\"").finish().ok();
    assert_eq!(m.text(ids::D, "events.json"), said("seen from outside", 100));
    m.check_store();
}

#[test]
fn temporaries_of_another_container_are_not_swept() {
    if !has_containers() {
        return;
    }
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    put(&m, "new.json", &said("inside", 100));
    let script =
        "jp mount; cat \"$T/new.json\" > \"$M/$D/events.json\"; touch \"$T/ready\"; cat; jp unmount --no-export";
    let inside = contained(&m, script);
    wait_for("a mount that has saved something", LIMIT, || tmp(&m, "ready").exists());
    // What it would be writing just now.
    let dir = m.workspace().silo().join("vfs/tmp");
    let names = fs::read_dir(&dir).expect("there").map(|entry| entry.expect("listed").file_name());
    let names: Vec<String> = names.map(|name| name.into_string().expect("UTF-8")).collect();
    let token = names.iter().find_map(|name| name.strip_prefix("owner-")?.rsplit_once('-')).expect("a record").1;
    let temporary = dir.join(format!("jp-tmp-{token}-4711"));
    fs::write(&temporary, "half").expect("written");
    for title in ["One", "Two"] {
        m.jp(&["c", "edit", "--title", title, &format!("jp-c{}", ids::A)]).ok();
        assert!(temporary.exists(), "it was swept while its maker lives");
    }
    inside.finish().ok();
    m.jp(&["c", "edit", "--title", "Three", &format!("jp-c{}", ids::A)]).ok();
    assert!(!temporary.exists(), "its maker is gone");
    m.check_store();
}

/// Runs a command in a container and stops it after its `nth` `fsync`, when a temporary file may be written but not yet renamed.
/// It continues when the container's standard input is closed.
#[track_caller]
fn stopped_after_sync(m: &Mounted, nth: usize, command: &str) -> Running {
    // Low process numbers are in use in every container, so they are used up first.
    let script = format!(
        "for i in $(seq 50); do /bin/true; done
         strace -q -o \"$T/trace\" -e trace=fsync,fdatasync -e inject=fsync,fdatasync:signal=STOP:when={nth} {command} &
         cat; kill -CONT -1 || true; wait $!"
    );
    contained(m, &script)
}

/// As [`temporaries_of_another_container_are_not_swept`], with temporary files that the program itself has made.
#[test]
fn a_stopped_command_in_another_container_keeps_its_temporaries() {
    if !has_containers() || !have(&["strace"]) {
        return;
    }
    let mut found = 0;
    for nth in 1..20 {
        let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
        m.jp(&["c", "edit", "--title", "Before", &format!("jp-c{}", ids::A)]).ok();
        let mut inside = stopped_after_sync(&m, nth, "jp c edit --title Slow jp-c17528862001");
        let trace = || fs::read_to_string(tmp(&m, "trace")).unwrap_or_default();
        let has_ended = || trace().contains("+++ exited");
        wait_for("a stop or the end", LIMIT, || trace().contains("stopped by SIGSTOP") || has_ended());
        if has_ended() {
            inside.finish().ok();
            break;
        }
        assert!(inside.is_alive());
        let dirs = [m.workspace().silo().join("vfs/tmp"), m.workspace().storage().join(".tmp")];
        let list = || -> Vec<PathBuf> {
            let all = dirs.iter().flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
            let paths = all.map(|entry| entry.path());
            // Owner records are not temporary files.
            paths
                .filter(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("owner-")))
                .collect()
        };
        let before = list();
        if before.is_empty() {
            inside.finish().ok();
            continue;
        }
        // It sweeps first. Then it may wait for a lock that the stopped command holds.
        contained(&m, "JP_LOCK_DURATION=0 timeout 2 jp c edit --title Other jp-c17528832001").finish();
        let after = list();
        let swept: Vec<_> = before.iter().filter(|path| !after.contains(path)).collect();
        assert!(swept.is_empty(), "swept while their owner lives: {swept:?}");
        found += before.len();
        inside.finish().ok();
        assert_eq!(m.value(ids::D, "metadata.json")["title"], "Slow");
        m.check_store();
    }
    assert!(found > 0, "the command was never stopped with a temporary file");
}
