//! Directories are listed, and paths followed, while names in them change.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use jp_tests::{Mounted, TestEnv, User, have, ids, skip, until};
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::geteuid;

use super::lines;

const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

fn names(dir: &Path) -> BTreeSet<String> {
    let listed = fs::read_dir(dir).expect("listed").map(|entry| entry.expect("listed").file_name());
    listed.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// Does something while `ls` loops over a directory.
fn while_listed(dir: &Path, act: impl FnOnce()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let listed = Command::new("ls").arg(dir).output().expect("ls runs");
                    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
                }
            });
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        done.store(true, Ordering::SeqCst);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn a_file_that_is_saved_again_and_again_stays_listed() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    m.sh("mkdir \"$D/sub\"; for i in $(seq 300); do : > \"$D/sub/file-$i\"; done; echo first > \"$D/sub/notes.md\"");
    let dir = m.point().join(m.sh("printf %s \"$D\"").stdout).join("sub");
    let (notes, backup, other) = (dir.join("notes.md"), dir.join("notes.md~"), dir.join("other"));
    while_listed(&dir, || {
        for round in 0..150 {
            match round % 3 {
                0 => {
                    fs::rename(&notes, &backup).expect("renamed");
                    fs::write(&notes, format!("{round}")).expect("written");
                    fs::remove_file(&backup).expect("removed");
                }
                1 => {
                    fs::remove_file(&notes).expect("removed");
                    fs::write(&notes, format!("{round}")).expect("written");
                }
                _ => {
                    fs::rename(&notes, &other).expect("renamed");
                    fs::write(&notes, format!("{round}")).expect("written");
                }
            }
            assert!(names(&dir).contains("notes.md"), "after {round} saves it is not listed");
            assert_eq!(fs::read_to_string(&notes).expect("read"), format!("{round}"));
        }
    });
    m.end(&[]);
    let real = m.point().join(dir.strip_prefix(m.point()).expect("in the mount")).join("notes.md");
    assert_eq!(fs::read_to_string(real).expect("a real file after the end"), "149");
}

/// Two readers of one directory in pieces. The first began before names were made or removed, the second after; the kernel would
/// let the second go on in what the first has left in its cache.
const READERS: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def piece(fd, size):
    buffer = ctypes.create_string_buffer(size)
    got = libc.syscall(SYS_getdents64, fd, buffer, size)
    if got < 0:
        raise OSError(ctypes.get_errno(), "getdents64")
    names, at = [], 0
    while at < got:
        length = struct.unpack_from("QqH", buffer.raw, at)[2]
        names.append(buffer.raw[at + 19:at + length].split(b"\0")[0].decode())
        at += length
    return names
SYS_getdents64 = {"x86_64": 217}.get(os.uname().machine, 61)
os.chdir(sys.argv[1])
for i in range(600):
    open(f"file-{i}", "w").close()
for round in range(12):
    first = os.open(".", os.O_RDONLY)
    for _ in range(round % 4 + 1):
        piece(first, 8192)
    made = [f"round-{round}-{i}" for i in range(30 if sys.argv[2] == "make" else 0)]
    for name in made:
        open(name, "w").close()
    removed = [f"file-{round * 10 + i}" for i in range(10 if sys.argv[2] == "remove" else 0)]
    for name in removed:
        os.remove(name)
    second = os.open(".", os.O_RDONLY)
    met = piece(second, 4096)
    while piece(first, 8192):
        pass
    while True:
        more = piece(second, 4096)
        if not more:
            break
        met += more
    missing = [name for name in made if name not in met]
    ghosts = [name for name in removed if name in met]
    if missing or ghosts or len(met) != len(set(met)):
        sys.exit(f"round {round}: missing {missing}, removed {ghosts}, {len(met) - len(set(met))} twice")
    os.close(first)
    os.close(second)
"#;

#[track_caller]
fn two_readers(act: &str) {
    for flags in [&[][..], &["--compat-open"]] {
        let Some(m) = Mounted::new(User::Own, flags).filter(|_| have(&["python3"])) else { return };
        super::put(&m, "readers.py", READERS);
        m.sh(&format!("mkdir \"$D/sub\" && python3 \"$T/readers.py\" \"$D/sub\" {act}"));
    }
}

#[test]
fn a_listing_has_what_was_made_before_it_was_opened() {
    two_readers("make");
}

#[test]
fn a_listing_has_nothing_that_was_removed_before_it_was_opened() {
    two_readers("remove");
}

/// An entry that cannot be looked at, here the mount point of a daemon that died, is not left out of the listing.
#[test]
fn a_listing_fails_if_it_cannot_look_at_an_entry() {
    if !geteuid().is_root() {
        skip("only root can bind a directory");
        return;
    }
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    let Some(dead) = Mounted::new(User::Own, &[]) else { return };
    let sub = m.stored(ids::D).join("sub");
    fs::create_dir_all(sub.join("dead")).expect("made");
    fs::write(sub.join("file"), "x").expect("written");
    let bound = Command::new("mount").arg("--bind").arg(dead.point()).arg(sub.join("dead")).status();
    assert!(bound.is_ok_and(|status| status.success()), "cannot bind {}", sub.display());
    dead.crash();
    let errno = fs::metadata(sub.join("dead")).err().and_then(|error| error.raw_os_error());
    assert_eq!(errno, Some(libc::ENOTCONN));
    m.begin(&[]);
    let told = m.try_sh("ls \"$D/sub\"");
    assert!(told.code != 0 && told.stderr.contains("not connected"), "{}", told.told());
    // Once it can be looked at again, it is listed.
    let freed = Command::new("umount").arg("-l").arg(sub.join("dead")).status();
    assert!(freed.is_ok_and(|status| status.success()), "cannot unmount {}", sub.display());
    assert!(
        until(LIMIT, || m.try_sh("ls \"$D/sub\"").stdout == "dead\nfile\n"),
        "{}",
        m.try_sh("ls \"$D/sub\"").told()
    );
}

/// Reads by path while another process moves and removes the directories on the way. Nothing but `ENOENT` may be the answer.
const FOLLOWERS: &str = r#"
import errno, os, sys, threading
os.chdir(sys.argv[1])
os.makedirs("sub/deep")
with open("sub/deep/file", "w") as file:
    file.write("x")
done, wrong = threading.Event(), []
def attempt(what, path, act):
    try:
        return act()
    except OSError as err:
        if err.errno != errno.ENOENT:
            wrong.append(f"{what} {path}: {err}")
def read(path):
    with open(path) as file:
        return file.read()
def follow():
    while not done.is_set():
        for path in ("sub/deep/file", "moved/deep/file", "x/y/z", "x2/y/z"):
            attempt("stat", path, lambda: os.stat(path))
            attempt("list", path, lambda: os.listdir(os.path.dirname(path)))
            attempt("utime", path, lambda: os.utime(path))
            # The second file is made empty and then written.
            if attempt("read", path, lambda: read(path)) not in (None, "x", "x" if path.endswith("file") else ""):
                wrong.append(f"{path} has other bytes")
threads = [threading.Thread(target=follow) for _ in range(3)]
for thread in threads:
    thread.start()
for round in range(250):
    os.rename("sub", "moved")
    os.rename("moved", "sub")
    os.makedirs("x/y")
    with open("x/y/z", "w") as file:
        file.write("x")
    os.rename("x", "x2")
    os.remove("x2/y/z")
    os.rmdir("x2/y")
    os.rmdir("x2")
done.set()
for thread in threads:
    thread.join()
# What was not there for a moment is there for good.
if not os.path.exists("sub/deep/file") or read("sub/deep/file") != "x":
    wrong.append("sub/deep/file is gone")
if wrong:
    sys.exit("\n".join(sorted(set(wrong))))
"#;

#[test]
fn paths_that_are_followed_while_directories_move_are_there_or_not() {
    let Some(m) = Mounted::new(User::Own, &[]).filter(|_| have(&["python3"])) else { return };
    super::put(&m, "followers.py", FOLLOWERS);
    m.sh("python3 \"$T/followers.py\" \"$D\"");
}

#[test]
fn a_conversation_that_moved_says_so_whatever_time_its_file_is_given() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let at = |script: &str| m.point().join(m.sh(script).stdout);
    let (a, d) = (at("printf %s \"$A\""), at("printf %s \"$D\""));
    let mut from = at("printf %s \"$B\"");
    let name = from.file_name().expect("a name").to_owned();
    let stamp = TimeSpec::new(1_000_000_000, 0);
    for round in 0..20 {
        let (parent, id) = if round % 2 == 0 { (&d, ids::D) } else { (&a, ids::A) };
        // The kernel has it in its cache.
        fs::read(from.join("metadata.json")).expect("read");
        let to = parent.join("conversations").join(&name);
        fs::rename(&from, &to).expect("moved");
        let path = to.join("metadata.json");
        utimensat(AT_FDCWD, &path, &stamp, &stamp, UtimensatFlags::FollowSymlink).expect("set");
        let text = fs::read_to_string(&path).expect("read");
        assert!(text.contains(&id.to_string()), "round {round}: {text}");
        let meta = fs::metadata(&path).expect("there");
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_000_000_000, 0));
        from = to;
    }
}

#[test]
fn modes_take_effect_or_are_refused() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let modes = |paths: &str| m.sh(&format!("stat -c %a {paths}")).stdout;
    let before = modes(". .archive");
    for dir in [".", ".archive"] {
        let refused = m.try_sh(&format!("chmod 711 {dir}"));
        assert!(refused.stderr.contains("not permitted"), "{dir}: {}", refused.told());
    }
    assert_eq!(modes(". .archive"), before);
    for (dir, mode) in [("\"$A/conversations\"", "711"), ("\"$A\"", "700")] {
        m.sh(&format!("chmod {mode} {dir}"));
        let both = format!("{mode}\n{mode}\n");
        assert!(until(LIMIT, || modes("\"$A\" \"$A/conversations\"") == both), "{dir} does not follow");
    }
}

#[test]
fn a_new_directory_has_the_mode_that_the_umask_leaves() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let modes = |paths: &str| m.sh(&format!("stat -c %a {paths}")).stdout;
    m.sh("cd \"$D\"; umask 022; mkdir c; umask 077; mkdir d; umask 027; mkdir e");
    assert_eq!(lines(&modes("\"$D/c\" \"$D/d\" \"$D/e\"")), ["700", "750", "755"]);
    // One that was removed and is made again too. The store still has the removed one.
    m.sh("cd \"$D\"; umask 022; mkdir again; : > again/file; rm -r again; umask 077; mkdir again");
    assert_eq!(modes("\"$D/again\""), "700\n");
    assert_eq!(m.sh("ls -A \"$D/again\"").stdout, "");
    for (name, mode) in [("c", 0o755), ("d", 0o700), ("e", 0o750)] {
        let stored = fs::metadata(m.stored(ids::D).join(name)).expect("stored");
        assert_eq!(stored.permissions().mode() & 0o777, mode, "{name} in the store");
    }
}

/// A conversation is its owner's alone until its mode is set.
#[test]
fn a_new_conversation_is_private_whatever_the_umask() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    for (umask, id) in [("077", 17_700_000_001_u64), ("027", 17_700_000_002), ("022", 17_700_000_003)] {
        let mode = m.sh(&format!("umask {umask}; mkdir {id}-new; stat -c %a {id}-new")).stdout;
        assert_eq!(mode, "700\n", "umask {umask}");
    }
}

/// A file that another program makes under a name that a rename left is shown, and renames write nothing to the journal.
#[test]
fn a_rename_hides_nothing() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    m.sh("cd \"$D\"; echo mine > one; mkdir dir; echo mine > dir/file");
    let journal = m.state().join("journal");
    let before = fs::read_to_string(&journal).unwrap_or_default();
    m.sh("cd \"$D\"; for i in $(seq 20); do mv one two; mv two one; mv dir other; mv other dir; done; mv one two; mv dir other");
    assert_eq!(fs::read_to_string(&journal).unwrap_or_default(), before, "the journal grows with renames");
    let stored = m.stored(ids::D);
    fs::write(stored.join("one"), "theirs").expect("written");
    fs::create_dir(stored.join("dir")).expect("made");
    fs::write(stored.join("dir/file"), "theirs").expect("written");
    let shown = || m.try_sh("cat \"$D/one\" \"$D/dir/file\"").stdout;
    assert!(until(LIMIT, || shown() == "theirstheirs"), "the old names stay hidden: {}", m.sh("ls -R \"$D\"").stdout);
}

#[test]
fn the_name_that_a_rename_left_is_free() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    m.sh("cd \"$D\"; echo mine > one; mv one two");
    fs::write(m.stored(ids::D).join("one"), "theirs").expect("written");
    let shown = || m.try_sh("cat \"$D/one\"").stdout == "theirs" && m.sh("ls \"$D\"").stdout.contains("one\n");
    assert!(until(LIMIT, shown), "the old name stays hidden: {}", m.sh("ls \"$D\"").stdout);
}

#[test]
fn a_removed_directory_stays_in_the_store() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    m.sh("cd \"$D\"; mkdir empty full; : > full/file; rmdir empty; rm -r full; test ! -e empty && test ! -e full");
    for dir in ["empty", "full"] {
        assert!(m.stored(ids::D).join(dir).is_dir(), "{dir} left the store with an rmdir in one worktree");
    }
}

/// What is renamed in one worktree leaves its name to the others; what is removed in one stays in the store.
#[test]
fn names_that_are_left_are_free_in_every_worktree() {
    let Some(main) = Mounted::not_yet(User::Own, TestEnv::new) else { return };
    main.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=one").ok();
    let other = main.worktree("other");
    main.begin(&[]);
    other.begin(&[]);
    main.sh("cd \"$D\"; echo mine > one; mkdir -p dir/inner empty; echo mine > dir/inner/file; echo gone > bye");
    assert!(until(LIMIT, || other.try_sh("cat \"$D/one\"").stdout == "mine\n"), "{}", other.log());
    main.sh("cd \"$D\"; mv one two; mv dir moved; rmdir empty; rm bye");
    // A fresh listing of the same store: empty directories and removed files are the other worktree's too.
    other.sh("cd \"$D\"; ls -d empty bye two moved/inner");
    other.sh("cd \"$D\"; echo theirs > one; mkdir dir; echo theirs > dir/file");
    assert!(
        until(LIMIT, || main.try_sh("cat \"$D/one\" \"$D/dir/file\"").stdout == "theirs\ntheirs\n"),
        "a name that was renamed away stays hidden: {}",
        main.try_sh("ls -R \"$D\"").stdout,
    );
    assert!(!main.sh("ls -A \"$D\"").stdout.contains("empty"));
    main.end(&[]);
    let real = |name: &str| main.point().join(main.stored(ids::D).file_name().expect("a name")).join(name);
    assert_eq!(fs::read_to_string(real("one")).expect("a real file"), "theirs\n");
    assert!(real("moved/inner/file").is_file() && !real("bye").exists() && !real("empty").exists());
}

#[test]
fn hiding_ends_with_the_file() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    m.sh("cd \"$D\"; echo mine > one; rm one");
    let stored = m.stored(ids::D).join("one");
    assert!(stored.is_file());
    fs::remove_file(&stored).expect("removed");
    let journal = m.state().join("journal");
    let shown = || fs::read_to_string(&journal).is_ok_and(|text| text.contains("show-file"));
    assert!(until(LIMIT, shown), "the name stays hidden though its file is gone\n{}", m.log());
    fs::write(&stored, "theirs").expect("written");
    assert!(until(LIMIT, || m.try_sh("cat \"$D/one\"").stdout == "theirs"), "{}", m.log());
}

#[test]
fn the_longest_name_that_is_not_text_can_be_removed() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let dir = m.point().join(m.sh("printf %s \"$D\"").stdout);
    let name = std::ffi::OsString::from_vec(vec![0xff; 255]);
    fs::write(dir.join(&name), "x").expect("written");
    fs::remove_file(dir.join(&name)).expect("removed");
    assert!(fs::read_dir(&dir).expect("listed").all(|entry| entry.expect("listed").file_name() != name));
    assert_eq!(fs::read(m.stored(ids::D).join(&name)).expect("the store keeps it"), b"x");
    assert_eq!(fs::metadata(m.stored(ids::D).join(&name)).expect("there").permissions().mode() & 0o777, 0o644);
}
