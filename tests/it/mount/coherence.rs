//! Two worktrees of one store, both mounted. What changes in one, or behind both, is seen in each within a bound.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jp_tests::{Bulk, Mounted, TestEnv, User, contents, ids, setting, until};

use super::{lines, said};

/// Two mounts, and how old what they show may be.
struct Pair {
    main: Mounted,
    feature: Mounted,
    bound: Duration,
}

impl Pair {
    #[track_caller]
    fn new(flags: &[&str], bound: Duration) -> Option<Self> {
        let main = Mounted::not_yet(User::Own, TestEnv::new)?;
        main.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=one").ok();
        let feature = main.worktree("feature");
        main.begin(flags);
        feature.begin(flags);
        Some(Self { main, feature, bound })
    }

    /// Asserts that something holds before what is shown may be no older.
    #[track_caller]
    fn soon(&self, what: &str, cond: impl FnMut() -> bool) {
        let start = Instant::now();
        assert!(until(self.bound * 20, cond), "{what}: never seen\n{}", self.feature.log());
        // The bound is the mount's, on a machine that has nothing else to do; whoever has one says so.
        let (took, limit) = (start.elapsed(), self.bound + Duration::from_millis(500));
        assert!(took < limit || setting("JP_IDLE").is_none(), "{what}: seen after {took:?}");
    }

    #[track_caller]
    fn agree(&self) {
        self.saves_arrive();
        self.alike_changes_arrive();
        self.commands_arrive();
        self.shapes_arrive();
        for m in [&self.main, &self.feature] {
            m.check_store();
        }
    }

    #[track_caller]
    fn saves_arrive(&self) {
        let (here, there) = (file(&self.main, "$C"), file(&self.feature, "$C"));
        for (round, size) in [10, 20_000, 100].into_iter().enumerate() {
            // Both have it in their caches before it changes.
            assert_eq!(fs::read(&here).expect("read"), fs::read(&there).expect("read"));
            let document = said(&format!("round {round}"), size);
            let (from, to) = if round % 2 == 0 { (&here, &there) } else { (&there, &here) };
            fs::write(from, &document).expect("written");
            assert_eq!(self.main.text(ids::C, "events.json"), document);
            self.soon("a save in the other worktree", || fs::read(to).is_ok_and(|bytes| bytes == document.as_bytes()));
            assert_eq!(fs::metadata(to).expect("there").len(), document.len() as u64);
        }

        // Behind both, as the real jp writes: a temporary elsewhere, renamed into place.
        let document = said("behind", 300);
        let beside = self.main.workspace().env().root().join("beside");
        fs::write(&beside, &document).expect("written");
        fs::rename(&beside, self.main.stored(ids::C).join("events.json")).expect("renamed");
        self.soon("a save behind both", || {
            [&here, &there].iter().all(|path| fs::read(path).is_ok_and(|bytes| bytes == document.as_bytes()))
        });
    }

    /// As fast as they can be made, of the same size, and so within one tick of the clock that files are stamped by.
    #[track_caller]
    fn alike_changes_arrive(&self) {
        let shown = [file(&self.main, "$C"), file(&self.feature, "$C")];
        let beside = self.main.workspace().env().root().join("beside");
        for round in 0..20 {
            let document = said(&format!("alike {round:03}"), 300);
            fs::write(&beside, &document).expect("written");
            fs::rename(&beside, self.main.stored(ids::C).join("events.json")).expect("renamed");
            for path in &shown {
                self.soon("a change that looks like the last", || {
                    fs::read(path).is_ok_and(|bytes| bytes == document.as_bytes())
                });
            }
        }
    }

    #[track_caller]
    fn commands_arrive(&self) {
        let id = |number: u64| format!("jp-c{number}");
        let has = |m: &Mounted, name: &str| m.point().join(name).is_dir();
        self.main.jp(&["c", "edit", &id(ids::D), "--title", "Told"]).ok();
        assert!(has(&self.main, "17528862001-told"), "a command's change is seen when it returns");
        assert_eq!(lines(&self.main.sh("ls").stdout)[1], "17528862001-told");
        self.soon("a title", || has(&self.feature, "17528862001-told"));
        self.soon("a listing", || self.feature.sh("ls").stdout.contains("17528862001-told"));
        // The former name was cached as a directory and is a link now.
        assert!(self.feature.point().join("17528862001-weekend-plans/events.json").is_file());

        let new = self.main.jp(&["c", "new", "--title", "Fresh", "--parent", &id(ids::D)]).line().to_owned();
        let place = format!("17528862001-told/conversations/{}-fresh", new.trim_start_matches("jp-c"));
        assert!(has(&self.main, &place), "{place}");
        assert!(!has(&self.feature, &place), "what is new in one worktree is not shown in another");
        self.feature.jp(&["c", "edit", &new, "--local=false"]).ok();
        assert!(has(&self.feature, &place));

        self.main.jp(&["c", "archive", &id(ids::D)]).ok();
        assert!(has(&self.main, &format!(".archive/{place}")) && !has(&self.main, "17528862001-told"));
        self.soon("an archive", || {
            has(&self.feature, ".archive/17528862001-told") && !has(&self.feature, "17528862001-told")
        });
        self.feature.jp(&["c", "unarchive", &id(ids::D)]).ok();
        assert!(has(&self.feature, &place));
        self.soon("an unarchive", || has(&self.main, &place));

        self.main.jp(&["c", "mv", &new, "--root"]).ok();
        let root = place.rsplit('/').next().expect("a name");
        assert!(has(&self.main, root) && !has(&self.main, &place));
        self.soon("a move", || has(&self.feature, root) && !has(&self.feature, &place));

        // An open file outlives its conversation; its name does not.
        let path = self.main.point().join(root).join("metadata.json");
        let mut open = fs::File::open(&path).expect("opened");
        let before = fs::read_to_string(&path).expect("read");
        self.main.jp(&["c", "rm", "--yes", &new]).ok();
        let mut after = String::new();
        std::io::Read::read_to_string(&mut open, &mut after).expect("reads of open files go on");
        assert_eq!(after, before);
        assert!(!has(&self.main, root));
        self.soon("a removal", || !has(&self.feature, root));
    }

    /// Moves and removals through one mount; what is hidden in one worktree stays in the other.
    #[track_caller]
    fn shapes_arrive(&self) {
        self.main.sh("mv 17528862001-told \"$A/conversations/\"");
        let place = self.feature.point().join("17528832001-refactor-error-handling/conversations/17528862001-told");
        self.soon("a move through the mount", || place.is_dir());
        self.main.sh("rm -r \"$B\"");
        self.soon("nothing else", || file(&self.feature, "$C").is_file());
        assert_eq!(self.main.says(ids::B, "presence"), "local");
        assert_eq!(self.feature.says(ids::B, "presence"), "projected");
    }
}

/// Whoever moves something back and forth, and has its metadata in the cache, reads each time where it is now.
#[test]
fn metadata_follows_a_move() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::new) else { return };
    m.begin(&[]);
    let places = ["$D", "$A/conversations/$D", "$B/conversations/$D"];
    let places = places.map(|place| m.point().join(m.sh(&format!("printf %s \"{place}\"")).stdout));
    let parents = [None, Some(ids::A), Some(ids::B)];
    for round in 0..30 {
        let (from, to) = (round % 3, (round + 1) % 3);
        fs::read(places[from].join("metadata.json")).expect("read");
        fs::rename(&places[from], &places[to]).expect("moved");
        let path = places[to].join("metadata.json");
        let says = || fs::read_to_string(&path).expect("read");
        let right = |text: &str| match parents[to] {
            Some(parent) => text.contains(&format!("\"parent_id\": {parent}")),
            None => !text.contains("\"parent_id\": 1"),
        };
        assert!(until(Duration::from_secs(10), || right(&says())), "{round}: {}", says());
    }
    m.check_store();
}

/// A file and a directory are removed from the store and made again while a program has the old ones open: the kernel still
/// knows those, and has heard that the names are free.
#[test]
fn made_again_while_the_old_one_is_open() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let (shown, stored) = (m.point().join(m.sh("printf %s \"$D\"").stdout), m.stored(ids::D));
    let limit = Duration::from_secs(10);
    let make = |text: &str| {
        fs::write(stored.join("a.md"), text).expect("written");
        fs::create_dir(stored.join("sub")).expect("made");
        fs::write(stored.join("sub/b.md"), text).expect("written");
    };
    let reads = |text: &str| {
        ["a.md", "sub/b.md"].iter().all(|name| fs::read_to_string(shown.join(name)).is_ok_and(|seen| seen == text))
    };
    make("one");
    assert!(until(limit, || reads("one")), "new files are seen");
    let open = ["a.md", "sub"].map(|name| fs::File::open(shown.join(name)).expect("opened"));
    fs::remove_file(stored.join("a.md")).expect("removed");
    fs::remove_dir_all(stored.join("sub")).expect("removed");
    assert!(until(limit, || ["a.md", "sub"].iter().all(|name| !shown.join(name).exists())), "removals are seen");
    make("two");
    assert!(until(limit, || reads("two")), "what was made again is seen");
    drop(open);
}

/// A name that was left by a rename through the mount is made in the store and removed from it: the mount once expected that
/// it is gone, and hears of it all the same.
#[test]
fn left_here_and_then_removed_elsewhere() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let (shown, stored) = (m.point().join(m.sh("printf %s \"$D\"").stdout), m.stored(ids::D));
    let limit = Duration::from_secs(10);
    fs::create_dir(shown.join("sub")).expect("made");
    fs::rename(shown.join("sub"), shown.join("elsewhere")).expect("renamed");
    for round in 0..3 {
        fs::create_dir(stored.join("sub")).expect("made");
        assert!(until(limit, || shown.join("sub").is_dir()), "{round}: a new directory is seen");
        fs::remove_dir(stored.join("sub")).expect("removed");
        assert!(until(limit, || !shown.join("sub").exists()), "{round}: its removal is seen");
    }
}

/// What was made through the mount goes from the store and comes back as it was: the mount once expected it to look so, and
/// hears of it all the same, also where nobody has asked for it meanwhile.
#[test]
fn made_here_and_then_taken_and_brought_back_elsewhere() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let (shown, stored) = (m.point().join(m.sh("printf %s \"$D\"").stdout), m.stored(ids::D));
    let limit = Duration::from_secs(10);
    let has = |dir: &str, name: &str| {
        let listed = fs::read_dir(shown.join(dir)).into_iter().flatten();
        listed.flatten().any(|entry| entry.file_name() == *name)
    };
    fs::create_dir_all(shown.join("sub/deep")).expect("made");
    for file in ["a.md", "sub/deep/b.md"] {
        fs::write(shown.join(file), file).expect("written");
    }
    let reads = || ["a.md", "sub/deep/b.md"].iter().all(|name| fs::read_to_string(shown.join(name)).is_ok());
    let lists = || has("", "a.md") && has("", "sub") && has("sub", "deep") && has("sub/deep", "b.md");
    let names = [("a.md", "b.md"), ("sub", "moved"), ("sub/deep", "sub/other")];
    for round in 0..6 {
        for (name, other) in names {
            let (dir, last) = name.rsplit_once('/').unwrap_or(("", name));
            fs::rename(stored.join(name), stored.join(other)).expect("taken");
            let is_gone = || !shown.join(name).exists() && !has(dir, last);
            assert!(until(limit, is_gone), "{round}: that {name} is gone is seen");
            fs::rename(stored.join(other), stored.join(name)).expect("brought back");
            assert!(until(limit, || reads() && lists()), "{round}: that {name} is back is seen");
        }
    }
}

/// A directory that is made in the store, in one that was made through the mount a moment before, is listed.
#[test]
fn a_directory_made_elsewhere_in_one_made_here() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let (shown, stored) = (m.point().join(m.sh("printf %s \"$D\"").stdout), m.stored(ids::D));
    for round in 0..40 {
        let (here, there) = (shown.join(format!("sub-{round}")), stored.join(format!("sub-{round}")));
        fs::create_dir(&here).expect("made");
        fs::write(here.join("c.tmp"), "c").expect("written");
        fs::rename(here.join("c.tmp"), here.join("c.md")).expect("renamed");
        let listed = || fs::read_dir(&here).expect("listed").count();
        assert_eq!(listed(), 1, "{round}");
        fs::create_dir(there.join("deep")).expect("made");
        fs::write(there.join("deep/d.md"), "d").expect("written");
        assert!(until(Duration::from_secs(10), || fs::read(here.join("deep/d.md")).is_ok()), "{round}: it is seen");
        assert!(until(Duration::from_secs(10), || listed() == 2), "{round}: it is listed");
    }
}

/// What was made through the mount in a directory that is just as new, and is removed from the store at once, is gone.
#[test]
fn removed_elsewhere_from_a_directory_made_here() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let (shown, stored) = (m.point().join(m.sh("printf %s \"$D\"").stdout), m.stored(ids::D));
    let (here, there) = (shown.join("sub/deep"), stored.join("sub/deep"));
    for round in 0..60 {
        fs::create_dir_all(&here).expect("made");
        fs::write(here.join("d.md"), "0").expect("written");
        for _ in 0..=round % 8 {
            // The kernel remembers what it is like. The directory is watched a moment sooner or later.
            fs::read(here.join("d.md")).expect("read");
        }
        fs::remove_file(there.join("d.md")).expect("removed");
        assert!(until(Duration::from_secs(10), || !here.join("d.md").exists()), "{round}: it is gone");
        fs::rename(shown.join("sub"), shown.join(format!("moved-{round}"))).expect("renamed");
    }
}

/// A directory keeps its time when somebody else changes only what a file in it holds.
#[test]
fn the_time_of_a_directory_is_that_of_its_names() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let (shown, stored) = (m.point().join(m.sh("printf %s \"$D\"").stdout).join("sub"), m.stored(ids::D).join("sub"));
    fs::create_dir(&shown).expect("made");
    fs::write(shown.join("c.md"), "0").expect("written");
    let look = || (fs::read_dir(&shown).expect("listed").count(), fs::metadata(&shown).expect("there").modified().ok());
    let before = look();
    for round in 1..20 {
        let text = round.to_string();
        fs::write(stored.join("c.md"), &text).expect("written");
        let seen = || fs::read_to_string(shown.join("c.md")).is_ok_and(|seen| seen == text);
        assert!(until(Duration::from_secs(10), seen), "{round}: it is seen");
        assert_eq!(look(), before, "{round}");
    }
    fs::write(stored.join("d.md"), "1").expect("written");
    assert!(until(Duration::from_secs(10), || look().0 == 2), "it is listed");
    assert_ne!(look().1, before.1, "and the directory has another time");
}

/// The events of a conversation as a mount shows them.
#[track_caller]
fn file(m: &Mounted, name: &str) -> PathBuf {
    m.point().join(m.sh(&format!("printf %s \"{name}\"")).stdout).join("events.json")
}

#[test]
fn two_that_watch() {
    let Some(pair) = Pair::new(&[], Duration::from_secs(1)) else { return };
    pair.agree();
}

#[test]
fn two_that_look_once_a_second() {
    let Some(pair) = Pair::new(&["--poll"], Duration::from_millis(2_500)) else { return };
    pair.agree();
}

/// Somebody edits the store from before the mount is there until after it has begun to watch, and somebody else reads all of
/// it through the mount meanwhile: in the end the kernel remembers nothing that is not so.
#[test]
fn changes_while_it_begins() {
    for flags in [&["--all"][..], &["--all", "--poll"]] {
        let Some(m) = Mounted::not_yet(User::Own, TestEnv::new) else { return };
        Bulk::new(150).seed(7).events_size(400).write(m.workspace()).expect("written");
        let conversations = m.workspace().silo().join("conversations");
        let dirs: Vec<_> =
            fs::read_dir(&conversations).expect("listed").map(|entry| entry.expect("named").path()).collect();
        let dirs: Vec<_> = dirs.into_iter().filter(|dir| dir.join("metadata.json").exists()).collect();
        let done = AtomicBool::new(false);
        let read_all = || m.script("find \"$M\" -name '*.md' -o -name '*.json' | xargs -d '\\n' cat");
        thread::scope(|scope| {
            let edits = scope.spawn(|| {
                for round in 0.. {
                    for (n, dir) in dirs.iter().enumerate() {
                        // A new file, and one that changes in place without a new length.
                        fs::write(dir.join(format!("note-{}.md", round % 3)), format!("{:09}", round * 1000 + n))
                            .expect("written");
                    }
                    if done.load(Ordering::SeqCst) {
                        return round;
                    }
                }
                0
            });
            let reads = scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    read_all();
                }
            });
            m.begin(flags);
            m.status("mounts");
            read_all();
            done.store(true, Ordering::SeqCst);
            assert!(edits.join().expect("edited") > 0);
            reads.join().expect("read");
        });
        // By conversation and name: the store is flat and the mount is not.
        let files = |root: &Path| -> BTreeMap<_, _> {
            let named = contents(root).into_iter().filter(|(path, _)| path.to_string_lossy().contains("/note-"));
            let key = |path: &Path| Some((path.parent()?.file_name()?.to_owned(), path.file_name()?.to_owned()));
            named.map(|(path, bytes)| (key(&path), bytes)).collect()
        };
        let stored = files(&conversations);
        assert!(stored.len() > 300, "{}", stored.len());
        assert!(until(Duration::from_secs(20), || files(&m.point()) == stored), "what is shown is not what is stored");
    }
}
