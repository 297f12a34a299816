//! Names that two programs want at once, and directories that get other names while a program is at work in them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use jp_tests::{LIMIT, Mounted, TestEnv, User, ids, until};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

/// Two worktrees of one store, both mounted.
struct Pair {
    main: Mounted,
    feature: Mounted,
}

impl Pair {
    #[track_caller]
    fn new() -> Option<Self> {
        let main = Mounted::not_yet(User::Own, TestEnv::in_memory)?;
        main.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=one").ok();
        let feature = main.worktree("feature");
        main.begin(&[]);
        feature.begin(&[]);
        Some(Self { main, feature })
    }

    /// The conversation `D` as both show it.
    fn dirs(&self) -> [PathBuf; 2] {
        [shown(&self.main), shown(&self.feature)]
    }
}

fn shown(m: &Mounted) -> PathBuf {
    m.point().join("17528862001-weekend-plans")
}

/// Does something again and again while somebody else has the conversation's lock.
fn once_free<T>(mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut done = work();
    until(LIMIT, || {
        if done.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
            done = work();
        }
        !done.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
    });
    done
}

fn create_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = once_free(|| OpenOptions::new().write(true).create_new(true).open(path))?;
    once_free(|| file.write_all(bytes))
}

fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let flags = RenameFlags::RENAME_NOREPLACE;
    once_free(|| renameat2(AT_FDCWD, from, AT_FDCWD, to, flags).map_err(io::Error::from))
}

/// Both do the same at once, again and again, each for its directory and with its mark. In every round one wins, and the other
/// is told that the name is taken.
#[track_caller]
fn one_wins(rounds: usize, dirs: &[PathBuf; 2], work: impl Fn(usize, &Path, u8) -> io::Result<()> + Sync) -> Vec<u8> {
    let start = Barrier::new(2);
    let play = |dir: &Path, mark: u8| -> Vec<io::Result<()>> {
        let round = |round| {
            start.wait();
            work(round, dir, mark)
        };
        (0..rounds).map(round).collect()
    };
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| play(&dirs[1], b'B'));
        (play(&dirs[0], b'A'), second.join().expect("it ran"))
    });
    let winner = |(round, done): (usize, (io::Result<()>, io::Result<()>))| match done {
        (Ok(()), Err(error)) if error.kind() == io::ErrorKind::AlreadyExists => b'A',
        (Err(error), Ok(())) if error.kind() == io::ErrorKind::AlreadyExists => b'B',
        done => panic!("round {round}: {done:?}"),
    };
    first.into_iter().zip(second).enumerate().map(winner).collect()
}

#[test]
fn one_of_two_mounts_makes_a_file() {
    let Some(pair) = Pair::new() else { return };
    let stored = pair.main.stored(ids::D);
    let winners =
        one_wins(100, &pair.dirs(), |round, dir, mark| create_new(&dir.join(format!("file{round}")), &[mark]));
    for (round, mark) in winners.into_iter().enumerate() {
        assert_eq!(fs::read(stored.join(format!("file{round}"))).expect("made"), [mark], "file{round}");
    }
}

#[test]
fn one_of_two_mounts_makes_a_directory_or_a_link() {
    let Some(pair) = Pair::new() else { return };
    one_wins(60, &pair.dirs(), |round, dir, _| {
        let path = dir.join(format!("dir{round}"));
        once_free(|| fs::create_dir(&path))
    });
    let winners = one_wins(60, &pair.dirs(), |round, dir, mark| {
        let path = dir.join(format!("link{round}"));
        once_free(|| symlink(char::from(mark).to_string(), &path))
    });
    for (round, mark) in winners.into_iter().enumerate() {
        let link = pair.main.stored(ids::D).join(format!("link{round}"));
        assert_eq!(fs::read_link(link).expect("made"), PathBuf::from(char::from(mark).to_string()));
    }
}

#[test]
fn one_of_two_mounts_gives_a_name_that_is_free() {
    let Some(pair) = Pair::new() else { return };
    let (dirs, stored) = (pair.dirs(), pair.main.stored(ids::D));
    let source = |round: usize, mark: u8| format!("from-{}{round}", char::from(mark));
    for round in 0..200 {
        for (dir, mark) in dirs.iter().zip(*b"AB") {
            create_new(&dir.join(source(round, mark)), &[mark]).expect("made");
        }
    }
    let winners = one_wins(200, &dirs, |round, dir, mark| {
        rename_new(&dir.join(source(round, mark)), &dir.join(format!("to{round}")))
    });
    for (round, mark) in winners.into_iter().enumerate() {
        let other = if mark == b'A' { b'B' } else { b'A' };
        assert_eq!(fs::read(stored.join(format!("to{round}"))).expect("renamed"), [mark], "to{round}");
        assert_eq!(fs::read(stored.join(source(round, other))).expect("kept"), [other], "{}", source(round, other));
    }
}

#[test]
fn two_mounts_append_to_a_file_that_neither_has_found() {
    let Some(pair) = Pair::new() else { return };
    let start = Barrier::new(2);
    let append = |dir: &Path, mark: &str| -> Vec<io::Result<()>> {
        let round = |round| {
            start.wait();
            let path = dir.join(format!("log{round}"));
            let mut file = once_free(|| OpenOptions::new().append(true).create(true).open(&path))?;
            once_free(|| file.write_all(mark.as_bytes()))
        };
        (0..100).map(round).collect()
    };
    let dirs = pair.dirs();
    let done = thread::scope(|scope| {
        let first = scope.spawn(|| append(&dirs[0], "A\n"));
        [append(&dirs[1], "B\n"), first.join().expect("it ran")]
    });
    for (round, done) in done.into_iter().flat_map(|done| done.into_iter().enumerate()) {
        done.unwrap_or_else(|error| panic!("log{round}: {error}"));
    }
    for round in 0..100 {
        let text = fs::read_to_string(pair.main.stored(ids::D).join(format!("log{round}"))).expect("made");
        assert!(["A\nB\n", "B\nA\n"].contains(&&*text), "log{round}: {text:?}");
    }
}

#[test]
fn a_file_that_somebody_has_just_made_is_opened() {
    for flags in [&[][..], &["--compat-open"]] {
        let Some(m) = Mounted::new(User::Own, flags) else { return };
        let (dir, stored) = (shown(&m), m.stored(ids::D));
        fs::write(stored.join("aim"), "aim").expect("written");
        assert!(until(LIMIT, || dir.join("aim").exists()));
        for round in 0..20 {
            let new = |kind: &str| {
                let name = format!("{kind}{round}");
                assert!(!dir.join(&name).exists(), "{name}: the kernel knows that there is none");
                (dir.join(&name), stored.join(&name))
            };
            let (path, behind) = new("append");
            fs::write(&behind, "theirs ").expect("written");
            let mut file = OpenOptions::new().append(true).create(true).open(&path).expect("opened");
            file.write_all(b"and mine").expect("appended");
            assert_eq!(fs::read_to_string(&behind).expect("read"), "theirs and mine");

            let (path, behind) = new("read");
            fs::write(&behind, "theirs").expect("written");
            let mut text = String::new();
            let mut options = OpenOptions::new();
            let mut file = options.read(true).write(true).create(true).truncate(false).open(&path).expect("opened");
            file.read_to_string(&mut text).expect("read");
            assert_eq!(text, "theirs");

            let (path, behind) = new("write");
            fs::write(&behind, "theirs, which is longer").expect("written");
            fs::write(&path, "mine").expect("written");
            assert_eq!(fs::read_to_string(&behind).expect("read"), "mine");
            assert_eq!(fs::read_to_string(&path).expect("read"), "mine");

            let (path, behind) = new("alone");
            fs::write(&behind, "theirs").expect("written");
            let made = create_new(&path, b"mine").map_err(|error| error.kind());
            assert_eq!(made, Err(io::ErrorKind::AlreadyExists));
            assert_eq!(fs::read_to_string(&behind).expect("read"), "theirs");

            let (path, behind) = new("closed");
            fs::write(&behind, "theirs").expect("written");
            fs::set_permissions(&behind, fs::Permissions::from_mode(0o400)).expect("set");
            let open = |create| OpenOptions::new().append(true).create(create).open(&path).map(drop);
            let opened = [open(true), open(false)].map(|opened| opened.map_err(|error| error.kind()));
            assert_eq!(opened[0], opened[1], "it is opened by whoever may");

            let (path, behind) = new("link");
            symlink("aim", &behind).expect("linked");
            fs::write(&path, format!("{round}")).expect("written where the link leads");
            assert_eq!(fs::read_to_string(stored.join("aim")).expect("read"), format!("{round}"));
            assert!(behind.is_symlink());

            let (path, behind) = new("dir");
            fs::create_dir(&behind).expect("made");
            let mut options = OpenOptions::new();
            let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
            assert_eq!(opened.map(drop).map_err(|error| error.kind()), Err(io::ErrorKind::IsADirectory));
        }
    }
}

/// A path by the descriptor of a directory, wherever that is by now.
fn by(dir: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}

/// Two directories change places until the work in them is done.
fn while_places_change<T>(dir: &Path, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    let path = |name: &str| dir.join(name);
    thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                for (from, to) in [("one", "between"), ("other", "one"), ("between", "other")] {
                    once_free(|| fs::rename(path(from), path(to))).expect("renamed");
                }
            }
        });
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::SeqCst);
        swapper.join().expect("every rename succeeds");
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn descriptors_mean_what_was_opened_while_directories_change_places() {
    const ROUNDS: usize = 30;
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let dir = shown(&m);
    let [one, other] = ["one", "other"].map(|name| {
        let path = dir.join(name);
        fs::create_dir(&path).expect("made");
        fs::write(path.join("file"), name).expect("written");
        File::open(path).expect("opened")
    });
    let mut file = OpenOptions::new().read(true).write(true).open(by(&one, "file")).expect("opened");
    while_places_change(&dir, || {
        for round in 0..ROUNDS {
            file.set_len(0).expect("truncated");
            file.sync_all().expect("synced");
            io::Seek::rewind(&mut file).expect("a position");
            file.write_all(b"one").expect("written");
            assert_eq!(fs::read_to_string(by(&other, "file")).expect("read"), "other", "round {round}");

            let made = [(&one, "one"), (&other, "other")].map(|(dir, text)| {
                let path = by(dir, &format!("made{round}"));
                create_new(&path, text.as_bytes()).expect("made");
                path
            });
            assert_eq!(fs::read_to_string(&made[1]).expect("read"), "other", "round {round}");
            fs::rename(&made[0], by(&one, &format!("kept{round}"))).expect("renamed");
            fs::create_dir(by(&one, &format!("dir{round}"))).expect("made");
            symlink("x", by(&one, &format!("link{round}"))).expect("linked");
            if round % 2 == 0 {
                fs::remove_file(by(&one, &format!("kept{round}"))).expect("removed");
                fs::remove_dir(by(&one, &format!("dir{round}"))).expect("removed");
            }
        }
    });
    let names = |dir: &File| -> Vec<String> {
        let listed = fs::read_dir(by(dir, "")).expect("listed");
        let mut names: Vec<_> =
            listed.map(|entry| entry.expect("listed").file_name().into_string().expect("text")).collect();
        names.sort();
        names
    };
    let expected = |rounds: &[(&str, usize)]| -> Vec<String> {
        let each = rounds
            .iter()
            .flat_map(|(kind, step)| (0..ROUNDS).skip(step - 1).step_by(*step).map(move |n| format!("{kind}{n}")));
        let mut names: Vec<_> = each.chain(["file".to_owned()]).collect();
        names.sort();
        names
    };
    assert_eq!(names(&one), expected(&[("kept", 2), ("dir", 2), ("link", 1)]));
    assert_eq!(names(&other), expected(&[("made", 1)]));
    for round in 0..ROUNDS {
        assert_eq!(fs::read_to_string(by(&other, &format!("made{round}"))).expect("read"), "other");
    }
}
