//! When the daemon syncs drafts and renamed files to disk, seen in its system calls.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use jp_tests::{LIMIT, Mounted, Running, TestEnv, User, have, ids, skip, wait_for};
use nix::unistd::geteuid;

/// Records the `fsync` calls of a daemon until it is dropped.
struct Trace {
    file: PathBuf,
    _strace: Running,
}

/// The sample, mounted, with its daemon traced.
#[track_caller]
fn traced() -> Option<(Mounted, Trace)> {
    if !geteuid().is_root() {
        skip("only root can trace every process");
        return None;
    }
    if !have(&["strace"]) {
        return None;
    }
    let m = Mounted::not_yet(User::Own, TestEnv::in_memory)?;
    m.begin(&[]);
    let pid = m.daemon().expect("mount.json names the daemon");
    let calls = "trace=fsync,fdatasync,syncfs,sync";
    let strace = m.start(&format!("exec strace -f -y -qq -e signal=none -e {calls} -o \"$T/trace\" -p {pid}"));
    wait_for("all threads to be traced", LIMIT, || is_traced(pid));
    let file = m.workspace().env().root().join("tmp/trace");
    Some((m, Trace { file, _strace: strace }))
}

fn is_traced(pid: i32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    tasks.map(|task| fs::read_to_string(task.path().join("status")).unwrap_or_default()).all(|status| {
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.is_some_and(|pid| pid.trim() != "0")
    })
}

impl Trace {
    /// The paths of all calls that returned, in order. A call is one line, `PID fsync(3</path>) = 0`, or two if others are between:
    /// `PID fsync(3</path> <unfinished ...>` and `PID <... fsync resumed>) = 0`.
    fn synced(&self) -> Vec<PathBuf> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        let (mut waiting, mut done) = (BTreeMap::new(), Vec::new());
        for line in text.lines() {
            let Some((pid, call)) = line.split_once(' ') else { continue };
            if let Some((_, rest)) = call.split_once("</")
                && let Some((path, end)) = rest.split_once('>')
            {
                let path = Path::new("/").join(path);
                if end.contains("unfinished") {
                    waiting.insert(pid.to_owned(), path);
                } else if end.contains(" = 0") {
                    done.push(path);
                }
            } else if call.contains("resumed") && call.ends_with(" = 0") {
                done.extend(waiting.remove(pid));
            }
        }
        done
    }
}

/// The directories on the way to a draft of `D`.
fn draft_dirs(m: &Mounted) -> [PathBuf; 2] {
    let drafts = m.state().join("drafts");
    [drafts.join(ids::D.to_string()), drafts]
}

fn has_draft(m: &Mounted, synced: &[PathBuf]) -> bool {
    let [dir, drafts] = draft_dirs(m);
    let is_bytes = |path: &PathBuf| {
        path.starts_with(&drafts) && path.file_name().is_some_and(|name| name.to_string_lossy().contains("events.json"))
    };
    synced.iter().any(is_bytes) && synced.contains(&dir) && synced.contains(&drafts)
}

fn events(m: &Mounted) -> PathBuf {
    m.point().join("17528862001-weekend-plans/events.json")
}

/// Saves drafts one after the other. Each has to be synced, with its directories, without an `fsync` by the caller.
#[track_caller]
fn are_synced(drafts: &[&str]) {
    let Some((m, trace)) = traced() else { return };
    for text in drafts {
        let from = trace.synced().len();
        fs::write(events(&m), text).expect("written");
        wait_for(&format!("the draft {text:?} on disk"), LIMIT, || has_draft(&m, &trace.synced()[from..]));
    }
}

#[test]
fn drafts_are_synced_without_fsync() {
    are_synced(&["[ broken", "[ more", ""]);
}

#[test]
fn emptied_files_are_synced_without_fsync() {
    are_synced(&["", "[ broken", ""]);
}

#[test]
fn drafts_are_synced_when_fsync_returns() {
    let Some((m, trace)) = traced() else { return };
    let from = trace.synced().len();
    let mut file = File::create(events(&m)).expect("opened");
    file.write_all(b"[ broken").expect("written");
    file.sync_all().expect("synced");
    let synced = trace.synced();
    assert!(has_draft(&m, &synced[from..]), "its bytes and both directories: {synced:#?}");
}

#[test]
fn directories_of_a_renamed_user_file_are_synced() {
    let Some((m, trace)) = traced() else { return };
    m.sh("cd \"$D\"; mkdir from to; echo text > from/one");
    let (shown, stored) = (m.point().join("17528862001-weekend-plans"), m.stored(ids::D));
    let from = trace.synced().len();
    fs::rename(shown.join("from/one"), shown.join("to/two")).expect("renamed");
    wait_for("both directories on disk", LIMIT, || {
        let synced = &trace.synced()[from..];
        ["from", "to"].iter().all(|name| synced.contains(&stored.join(name)))
    });
}
