//! The filesystem that holds the store is full, or read-only. What cannot be kept is refused, and what is shown is what the
//! store has or a draft that `jp status` names.

use std::cell::RefCell;
use std::fs;

use jp_tests::{Mounted, SmallDisk, TestEnv, User, ids, skip};
use nix::unistd::geteuid;
use serde_json::Value;

use super::{put, said};

/// The sample with its store on a small disk, mounted.
#[track_caller]
fn on_small_disk(make: fn(&TestEnv) -> Option<SmallDisk>) -> Option<(Mounted, SmallDisk)> {
    if !geteuid().is_root() {
        skip("only root can make a small disk");
        return None;
    }
    let disk = RefCell::new(None);
    let mounted = Mounted::not_yet(User::Own, || {
        let env = TestEnv::in_memory();
        *disk.borrow_mut() = make(&env);
        env
    })?;
    let Some(disk) = disk.into_inner() else {
        skip("there is no ext4 here");
        return None;
    };
    mounted.begin(&[]);
    Some((mounted, disk))
}

fn tmpfs(env: &TestEnv) -> Option<SmallDisk> {
    Some(SmallDisk::new(&env.data(), "8m"))
}

/// What is shown is what the store has, or what a draft on disk has that is named.
#[track_caller]
fn check_shown(m: &Mounted, what: &str) {
    for file in ["events.json", "metadata.json"] {
        // Drafts are on disk, or given up, when the status is told.
        let drafts: Vec<Value> = m.status("drafts").into_iter().filter(|draft| draft["file"] == file).collect();
        let shown = m.sh(&format!("cat \"$D/{file}\"")).stdout;
        match &drafts[..] {
            [] => assert_eq!(shown, m.text(ids::D, file), "{what}: {file} is shown, and neither stored nor named"),
            [_] => {
                let text = fs::read_to_string(m.state().join(format!("drafts/{}/{file}", ids::D))).expect("read");
                let kept = text.split_once('\n').expect("a header").1;
                assert_eq!(shown, kept, "{what}: {file} is shown, and not what the draft on disk has");
            }
            _ => panic!("{what}: {drafts:#?}"),
        }
    }
}

const WAYS: [(&str, &str); 6] = [
    ("a good save", "cat \"$T/new.json\" > \"$D/events.json\""),
    ("a broken save", "cat \"$T/broken.json\" > \"$D/events.json\""),
    ("a broken save over the old bytes", "dd if=\"$T/broken.json\" of=\"$D/events.json\" conv=notrunc status=none"),
    ("an append", "cat \"$T/broken.json\" >> \"$D/metadata.json\""),
    ("a save by rename", "cp \"$T/new.json\" \"$D/x.tmp\" && mv \"$D/x.tmp\" \"$D/events.json\""),
    ("a broken save by rename", "cp \"$T/broken.json\" \"$D/x.tmp\" && mv \"$D/x.tmp\" \"$D/events.json\""),
];

#[track_caller]
fn refuses_what_it_cannot_keep(m: &Mounted, message: &str) {
    put(m, "new.json", &said("new", 200_000));
    put(m, "broken.json", &said("broken", 200_000)[..150_000]);
    let before = m.store();
    for (what, script) in WAYS {
        let told = m.try_sh(script);
        assert!(told.code != 0 && told.stderr.contains(message), "{what}: acknowledged\n{}", told.told());
        check_shown(m, what);
        assert_eq!(m.store(), before, "{what}");
    }
    // Written to the memory of the file: the kernel tells later, and drops what was refused.
    put(m, "write.py", super::mmap::WRITE);
    let told = m.try_sh("exec python3 \"$T/write.py\" \"$D/events.json\" turn_start TURN_START");
    assert!(told.code != 0, "in memory: acknowledged\n{}", told.told());
    check_shown(m, "in memory");
    // Emptied, and no more: either that is kept, or it is refused.
    m.try_sh(": > \"$D/events.json\"");
    check_shown(m, "emptied");
    m.try_sh("truncate -s 10 \"$D/metadata.json\"");
    check_shown(m, "cut");
    assert_eq!(m.store(), before);
}

#[track_caller]
fn works_again(m: &Mounted) {
    m.sh("cat \"$T/new.json\" > \"$D/events.json\"");
    let metadata = m.text(ids::D, "metadata.json");
    put(m, "metadata.json", &metadata);
    m.sh("cat \"$T/metadata.json\" > \"$D/metadata.json\"");
    assert_eq!(m.text(ids::D, "events.json"), said("new", 200_000));
    assert_eq!(m.status("drafts"), [] as [Value; 0]);
    m.check_store();
}

#[test]
fn a_full_store() {
    let Some((m, disk)) = on_small_disk(tmpfs) else { return };
    disk.fill();
    refuses_what_it_cannot_keep(&m, "No space left on device");
    disk.clear();
    works_again(&m);
    drop(m);
}

#[test]
fn a_store_that_becomes_read_only() {
    let ext4 = |env: &TestEnv| SmallDisk::ext4(&env.data(), &env.root().join("image"));
    let Some((m, disk)) = on_small_disk(ext4) else { return };
    m.sh("printf 'a note' > \"$D/notes.md\"");
    disk.abort();
    refuses_what_it_cannot_keep(&m, "Read-only file system");
    for script in ["truncate -s 10 \"$D/metadata.json\"", "echo x > \"$D/notes.md\"", "echo x >> \"$D/notes.md\""] {
        let told = m.try_sh(script);
        assert!(told.code != 0 && told.stderr.contains("Read-only file system"), "{}", told.told());
    }
    assert_eq!(m.sh("cat \"$D/notes.md\"").stdout, "a note");
    let told = m.jp(&["unmount"]).fails_with(4);
    assert!(told.stderr.contains("jp export"), "{}", told.told());
    drop(m);
}

#[test]
fn the_end_on_a_full_store() {
    let Some((m, disk)) = on_small_disk(tmpfs) else { return };
    m.sh("rm -r \"$D\"");
    disk.fill();
    let told = m.jp(&["unmount"]).fails_with(4);
    assert!(told.stderr.contains("jp export"), "{}", told.told());
    m.script("ls \"$M/$D/metadata.json\"").ok();
    disk.clear();
    m.jp(&["export"]).ok();
    m.script("test ! -e \"$M/$D\"").ok();
    drop(m);
}

#[test]
fn a_draft_that_no_longer_fits_is_what_it_was() {
    let Some((m, disk)) = on_small_disk(tmpfs) else { return };
    m.sh("printf '[ 1,' > \"$D/events.json\"");
    assert_eq!(m.status("drafts").len(), 1);
    disk.fill();
    put(&m, "more.json", &" 2,".repeat(100_000));
    let told = m.try_sh("cat \"$T/more.json\" >> \"$D/events.json\"");
    assert!(told.code != 0 && told.stderr.contains("No space left"), "{}", told.told());
    check_shown(&m, "a draft that grows");
    disk.clear();
    m.crash();
    m.begin(&[]);
    assert!(m.sh("cat \"$D/events.json\"").stdout.starts_with("[ 1,"));
    check_shown(&m, "after a crash");
    drop(m);
}

/// An acknowledged save survives a crash of the daemon, also if it is kept as a draft.
#[test]
fn acknowledged_saves_on_a_full_store_survive_a_crash() {
    for (what, script) in WAYS {
        let Some((m, disk)) = on_small_disk(tmpfs) else { return };
        put(&m, "new.json", &said("new", 200_000));
        put(&m, "broken.json", &said("broken", 200_000)[..150_000]);
        disk.fill();
        let told = m.try_sh(script);
        let shown = || m.sh("cat \"$D/events.json\" \"$D/metadata.json\"").stdout;
        let before = shown();
        m.crash();
        disk.clear();
        m.begin(&[]);
        if told.code == 0 {
            assert!(shown() == before, "{what}: acknowledged, and lost in the crash");
        } else {
            assert!(told.stderr.contains("No space left on device"), "{what}: {}", told.told());
        }
        check_shown(&m, what);
        drop(m);
    }
}

const RENAMES: &str = r#"
import os, sys
where, filling = sys.argv[1], os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
def fill():
    for size in (4096, 1):
        try:
            while os.write(filling, b"x" * size):
                pass
        except OSError:
            pass
for n in range(40):
    # What a rename replaces leaves room.
    fill()
    old, new = f"{where}/f{n}", f"{where}/h{n}-" + 150 * "x"
    try:
        os.rename(old, new)
        old, new = new, old
    except OSError as error:
        print("refused", error.errno)
    there = os.listdir(where)
    assert os.path.basename(old) in there and os.path.basename(new) not in there, (n, there)
    assert open(old).read() == f"file {n}\n", n
    assert not os.path.exists(new), n
fill()
try:
    os.rename(f"{where}/s", f"{where}/t")
    at = "t"
except OSError as error:
    print("refused", error.errno)
    at = "s"
print(at, sorted(os.listdir(f"{where}/{at}")), sorted(set(os.listdir(where)) & {"s", "t"}))
"#;

/// Lines of the journal say what is hidden, and one of them has no room.
#[test]
fn a_rename_on_a_full_store_happens_or_does_not() {
    let Some((m, disk)) = on_small_disk(tmpfs) else { return };
    put(&m, "renames.py", RENAMES);
    m.sh("cd \"$D\"; x=$(printf '%0150d' 0 | tr 0 x)
          for n in $(seq 0 39); do echo \"file $n\" > f$n; echo hidden > h$n-$x; done; rm h*; mkdir s;
          for n in $(seq 60); do echo hidden > s/h$n; done; rm s/*; echo keep > s/keep");
    disk.fill();
    let filling = disk.filling();
    let told = m.sh(&format!("exec python3 \"$T/renames.py\" \"$D\" \"{}\"", filling.display())).stdout;
    let refused = told.matches("refused 28").count();
    assert!(refused > 2 && told.contains("['keep'] ['s']"), "{told}");
    let shown = || m.sh("cd \"$D\"; find . -type f | sort; cat f* h* s/*").stdout;
    let before = shown();
    disk.clear();
    assert!(shown() == before, "another one once there is room");
    m.crash();
    m.begin(&[]);
    assert!(shown() == before, "another one after a crash: {}", shown());
    drop(m);
}

const APPEND: &str = r#"
import os, sys
path, size = sys.argv[1], int(sys.argv[2])
file = os.open(path, os.O_WRONLY | (os.O_APPEND if sys.argv[3] == "append" else 0))
before, written = os.stat(path).st_size, 0
os.lseek(file, before, os.SEEK_SET)
try:
    while written < size:
        written += os.write(file, b"x" * (size - written))
except OSError as error:
    print("errno", error.errno)
print(os.stat(path).st_size - before == written, 0 < written < size)
"#;

/// As on any disk: what fitted is counted.
#[test]
fn as_much_is_written_as_is_said() {
    let Some((m, disk)) = on_small_disk(tmpfs) else { return };
    put(&m, "append.py", APPEND);
    m.sh("printf 'a note' > \"$D/notes.md\"; printf 'a note' > \"$D/other.md\"");
    for (file, how) in [("notes.md", "append"), ("other.md", "write")] {
        disk.fill();
        disk.clear_some(20_000);
        let told = m.sh(&format!("exec python3 \"$T/append.py\" \"$D/{file}\" 100000 {how}")).stdout;
        assert_eq!(told, "errno 28\nTrue True\n", "{how}");
        disk.clear();
    }
    drop(m);
}
