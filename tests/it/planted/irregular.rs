//! Files of the wrong kind, and paths that are too long: each keeps its own conversation and no other.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use jp_tests::Mounted;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;
use crate::story::{in_work, says, store_file, work_file};

#[derive(Clone, Copy, Debug)]
enum Odd {
    Link,
    LinkToNothing,
    Pipe,
    Socket,
    Dir,
}

const ALL: [Odd; 5] = [Odd::Link, Odd::LinkToNothing, Odd::Pipe, Odd::Socket, Odd::Dir];

fn says_what_it_is(text: &str) -> bool {
    ["not a regular file", "a symbolic link"].iter().any(|words| text.contains(words))
}

/// Puts something that is not a regular file in the place of one.
#[track_caller]
fn make(odd: Odd, path: &Path) {
    let _ = fs::remove_file(path);
    match odd {
        Odd::Link => {
            // To a file that would be a good one.
            let target = path.parent().and_then(Path::parent).expect("a parent").join("elsewhere.json");
            fs::write(&target, "[]").expect("written");
            symlink(&target, path).expect("linked");
        }
        Odd::LinkToNothing => symlink("nothing/at/all", path).expect("linked"),
        Odd::Pipe => mkfifo(path, Mode::S_IRWXU).expect("made"),
        // The name of a socket may be short only.
        Odd::Socket => {
            let short = tempfile::TempDir::new_in("/dev/shm").expect("made");
            drop(UnixListener::bind(short.path().join("s")).expect("bound"));
            fs::rename(short.path().join("s"), path).expect("moved");
        }
        Odd::Dir => {
            fs::create_dir(path).expect("made");
            fs::write(path.join("inner"), "x").expect("written");
        }
    }
}

fn is_still(odd: Odd, path: &Path) -> bool {
    let kind = fs::symlink_metadata(path).expect("there").file_type();
    match odd {
        Odd::Link | Odd::LinkToNothing => kind.is_symlink(),
        Odd::Pipe | Odd::Socket => !kind.is_file() && !kind.is_dir() && !kind.is_symlink(),
        Odd::Dir => kind.is_dir(),
    }
}

/// The second conversation has news in both roots, and gets through.
#[test]
fn one_irregular_file_keeps_one_conversation() {
    for odd in ALL {
        for name in ["metadata.json", "events.json", "base_config.json"] {
            let it = Project::new();
            let other = new(&it.main, "Other", &[]);
            it.main.jp(&["export"]).ok();
            let path = work_file(&it.main, &it.shared, name);
            make(odd, &path);
            put(&work_file(&it.main, &other, "events.json"), &events("edited", 2));
            let before = it.stored(&it.shared);
            let told = it.main.jp(&["import", "--json"]).fails_with(1);
            assert_eq!(held(&told), [(it.shared.clone(), "invalid".to_owned())], "{odd:?} {name}: {}", told.told());
            assert!(told.stdout.contains(name) && says_what_it_is(&told.stdout), "{}", told.told());
            assert_eq!(says(&it.main, &other, "events"), 2, "{odd:?} {name}");
            it.main.jp(&["c", "edit", &other, "--title", "Edited"]).ok();
            it.main.jp(&["export", "--json"]).fails_with(1);
            it.main.jp(&["export", "--for-commit"]).ok();
            assert_eq!(it.stored(&it.shared), before, "{odd:?} {name}");
            assert!(is_still(odd, &path), "{odd:?} {name}");
            assert_eq!(says(&it.main, &it.shared, "title"), "Shared", "{odd:?} {name}");
            it.main.jp(&["c", "print", &it.shared]).ok();
            it.main.jp(&["c", "grep", "shared"]).ok();
            let child = new(&it.main, "Child", &["--parent", &it.shared]);
            assert_eq!(says(&it.main, &child, "title"), "Child");
        }
    }
}

/// In a worktree that the store does not know, and in a conversation that the store does not have.
#[test]
fn irregular_files_that_arrive() {
    for odd in ALL {
        let it = Project::new();
        let clone = it.clone("second");
        make(odd, &work_file(&clone, &it.shared, "events.json"));
        let fresh = plant(&conversations(&clone), "jp-c17000000001", &events("fresh", 1));
        make(odd, &fresh.join("metadata.json"));
        plant(&conversations(&clone), "jp-c17000000002", &events("good", 1));
        let told = clone.jp(&["import", "--json"]).fails_with(1);
        let ids: Vec<_> = held(&told).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids.len(), 2, "{odd:?}: {}", told.told());
        assert!(ids.contains(&it.shared) && ids.contains(&"jp-c17000000001".to_owned()), "{odd:?}: {ids:?}");
        assert_eq!(says(&clone, "jp-c17000000002", "presence"), "projected", "{odd:?}");
        assert!(crate::story::in_store(&it.main, "jp-c17000000001").is_none());
        assert_eq!(says(&clone, &it.shared, "events"), 3);
        clone.jp(&["export"]).fails_with(1);
    }
}

/// A user file that is a pipe, a socket or a link stays where it is.
#[test]
fn irregular_user_files() {
    for odd in [Odd::Pipe, Odd::Socket, Odd::LinkToNothing] {
        let it = Project::new();
        let notes = work_file(&it.main, &it.shared, "notes.md");
        fs::write(&notes, "first").expect("written");
        it.main.jp(&["export"]).ok();
        make(odd, &notes);
        make(odd, &work_file(&it.main, &it.shared, "another"));
        it.write_store(&it.shared, "shared", 4);
        for args in [["export", "--json"], ["import", "--json"]] {
            let told = it.main.jp(&args);
            assert!(told.code == 0 || told.code == 1, "{odd:?}: {}", told.told());
        }
        assert!(is_still(odd, &notes), "{odd:?}");
        assert_eq!(
            fs::read_to_string(store_file(&it.main, &it.shared, "notes.md")).ok().as_deref(),
            match odd {
                Odd::LinkToNothing => None,
                _ => Some("first"),
            }
        );
        new(&it.main, "Other", &[]);
    }
}

/// The directory of a copy is a link: nothing is read or written through it.
#[test]
fn a_directory_that_is_a_link() {
    let it = Project::new();
    let clone = it.clone("second");
    let dir = in_work(&clone, &it.shared).expect("cloned");
    let away = it.env.root().join("away");
    fs::rename(&dir, &away).expect("moved");
    symlink(&away, &dir).expect("linked");
    plant(&conversations(&clone), "jp-c17000000002", &events("good", 1));
    it.write_store(&it.shared, "shared", 6);
    let before = jp_tests::Shot::of(&away);
    clone.jp(&["import"]);
    clone.jp(&["export"]);
    before.assert_same(&jp_tests::Shot::of(&away));
    assert_eq!(says(&clone, "jp-c17000000002", "presence"), "projected");
}

/// A tree that is deeper than a path can be long.
#[test]
fn a_path_that_is_too_long() {
    let it = Project::new();
    let clone = it.clone("second");
    plant(&conversations(&clone), "jp-c17000000002", &events("good", 1));
    // Made step by step, because no path reaches the innermost one.
    let script = "
        cd \"$1\" && n=0 && while [ $n -lt 120 ]; do
            d=$((17000100000 + n))-a-title-that-is-rather-long-for-a-directory; mkdir -p $d/conversations
            cp -L \"$2\"/*.json $d/ && cd -P $d/conversations || exit 1; n=$((n + 1))
        done";
    let good = conversations(&clone).join("17000000002-planted");
    let mut command = it.env.command(OsStr::new("sh"), clone.root());
    command.args(["-c", script, "sh"]).arg(conversations(&clone)).arg(&good);
    Output::of(command, b"").ok();
    for args in [["import", "--json"], ["export", "--json"], ["c", "ls"]] {
        let told = clone.jp(&args);
        assert!(told.code == 0 || told.code == 1, "{}", told.told());
    }
    assert_eq!(says(&clone, "jp-c17000000002", "presence"), "projected");
    assert_eq!(says(&clone, "jp-c17000100001", "presence"), "projected");
    new(&clone, "Other", &[]);
    let mut command = it.env.command(OsStr::new("rm"), clone.root());
    command.arg("-rf").arg(conversations(&clone));
    Output::of(command, b"").ok();
}

/// A mount begins in spite of it, and says what it left.
#[test]
fn a_mount_begins_in_spite_of_them() {
    let Some(m) = Mounted::not_yet(jp_tests::User::Own, TestEnv::in_memory) else { return };
    let dir = in_work(m.workspace(), &format!("jp-c{}", jp_tests::ids::D)).expect("shown");
    make(Odd::Pipe, &dir.join("events.json"));
    let told = m.begin(&[]);
    assert!(says_what_it_is(&told.stderr), "{}", told.told());
    assert!(m.listed(jp_tests::ids::A).is_some());
    let told = m.jp(&["unmount"]).fails_with(1);
    assert!(says_what_it_is(&told.stderr) && !m.is_mounted(), "{}", told.told());
    assert!(is_still(Odd::Pipe, &dir.join("events.json")));
}
