//! Watches run out while a mount is live, or the system loses track of what they saw. What is shown is what is stored
//! all the same.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jp_tests::{Mounted, TestEnv, User, have, ids, skip, until};
use nix::sys::signal::Signal;

use super::said;

/// Far more than a look takes that is taken every second.
const LIMIT: Duration = Duration::from_secs(30);

/// A mount in namespaces of its own, where the number of watches is its own too.
struct Scarce {
    m: Mounted,
    daemon: i32,
}

impl Scarce {
    /// Mounted, and watching. `None` where there can be no such thing, which is said.
    #[track_caller]
    fn new(prepare: impl FnOnce(&Mounted)) -> Option<Self> {
        let m = Mounted::not_yet(User::Own, TestEnv::in_memory).filter(|_| have(&["unshare", "nsenter"]))?;
        prepare(&m);
        let mut unshare = m.command("unshare");
        unshare.args(["--user", "--map-root-user", "--mount", "bash", "-euc"]);
        unshare.arg("echo 100000 > /proc/sys/user/max_inotify_watches; exec jp mount");
        let told = m.run(unshare);
        if told.stderr.contains("unshare") || told.stderr.contains("max_inotify_watches") {
            skip("this system gives nobody a number of watches of their own");
            return None;
        }
        let daemon = m.daemon().unwrap_or_else(|| panic!("nothing is mounted\n{}", told.told()));
        let scarce = Self { m, daemon };
        assert_eq!(scarce.staleness(), "watching", "{}", told.told());
        Some(scarce)
    }

    /// A path in the mount, as it is seen from outside.
    fn shown(&self, path: impl AsRef<Path>) -> PathBuf {
        let point = self.m.point();
        let point = point.strip_prefix("/").expect("it is absolute");
        Path::new("/proc").join(self.daemon.to_string()).join("root").join(point).join(path)
    }

    /// Runs a script in the project, where the mount is.
    #[track_caller]
    fn inside(&self, script: &str) -> String {
        let mut enter = self.m.command("nsenter");
        enter.args(["--target", &self.daemon.to_string(), "--user", "--mount", "--preserve-credentials"]);
        enter.args(["bash", "-euc", &format!("cd \"$P\"\n{script}")]);
        self.m.run(enter).ok().stdout
    }

    /// No more watches from now on.
    #[track_caller]
    fn exhaust(&self) {
        self.inside("echo 0 > /proc/sys/user/max_inotify_watches");
    }

    #[track_caller]
    fn staleness(&self) -> String {
        self.m.status("mounts")[0]["staleness"].as_str().expect("it is told").to_owned()
    }

    #[track_caller]
    fn soon(&self, what: &str, cond: impl FnMut() -> bool) {
        assert!(until(LIMIT, cond), "{what}: never seen\n{}", self.m.log());
    }

    /// Another process changes a directory of the store in every way there is, and each is seen in the mount, though the
    /// kernel has just been told how it was.
    #[track_caller]
    fn follows(&self, stored: &Path, shown: &str) {
        let (there, here) = (|name: &str| stored.join(name), |name: &str| self.shown(shown).join(name));
        let reads = |name: &str, text: &str| fs::read_to_string(here(name)).is_ok_and(|read| read == text);
        for (round, name) in ["own.md", "sub/own.md", "sub/deep/own.md"].into_iter().enumerate() {
            let what = |kind: &str| format!("{kind} of {name} in {shown}");
            assert!(!here(name).exists());
            fs::create_dir_all(there(name).parent().expect("it has one")).expect("made");
            fs::write(there(name), "one\n").expect("written");
            self.soon(&what("a new name"), || reads(name, "one\n"));
            let is_listed = || {
                let above = here(name).parent().expect("it has one").to_owned();
                fs::read_dir(above).expect("listed").any(|entry| entry.expect("named").file_name() == "own.md")
            };
            self.soon(&what("a listing"), is_listed);
            // Of the same size, and perhaps within one tick of the clock that files are stamped by.
            fs::write(there(name), "two\n").expect("written");
            self.soon(&what("other bytes"), || reads(name, "two\n"));
            let bits = 0o640 | u32::try_from(round).expect("a few");
            fs::set_permissions(there(name), fs::Permissions::from_mode(bits)).expect("set");
            self.soon(&what("another mode"), || mode(&here(name)) == Some(bits));
            fs::remove_file(there(name)).expect("removed");
            self.soon(&what("a removal"), || fs::symlink_metadata(here(name)).is_err() && !is_listed());
        }
        self.follows_kinds(stored, shown);
        self.follows_modes(stored, shown);
        fs::remove_dir_all(there("sub")).expect("removed");
        self.soon("a directory removed", || fs::symlink_metadata(here("sub")).is_err());
        for round in 0..3 {
            let document = said(&format!("round {round} in {shown}"), 300);
            let beside = self.m.root().join("beside");
            fs::write(&beside, &document).expect("written");
            fs::rename(&beside, there("events.json")).expect("renamed");
            self.soon("a save", || reads("events.json", &document));
        }
        // What was saved here looks as it was left, but for this.
        fs::write(here("events.json"), said("here", 300)).expect("written");
        assert_ne!(mode(&here("events.json")), Some(0o640));
        fs::set_permissions(there("events.json"), fs::Permissions::from_mode(0o640)).expect("set");
        self.soon("the mode of what was saved here", || mode(&here("events.json")) == Some(0o640));
    }

    /// A name that was seen to be one thing becomes another at once, so that it is hardly ever seen not to be there.
    #[track_caller]
    fn follows_kinds(&self, stored: &Path, shown: &str) {
        let (there, here) = (stored.join("odd"), self.shown(shown).join("odd"));
        let is = |kind: fn(&fs::FileType) -> bool| match fs::symlink_metadata(&here) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{}: {error}", here.display()),
            found => found.is_ok_and(|meta| kind(&meta.file_type())),
        };
        let reads = |name: &str, text: &str| fs::read_to_string(here.join(name)).is_ok_and(|read| read == text);
        fs::write(&there, "").expect("written");
        self.soon("a file", || is(fs::FileType::is_file));
        fs::remove_file(&there).expect("removed");
        std::os::unix::fs::symlink("own.md", &there).expect("linked");
        self.soon("a link where there was a file", || is(fs::FileType::is_symlink));
        fs::remove_file(&there).expect("removed");
        fs::create_dir(&there).expect("made");
        self.soon("a directory where there was a link", || is(fs::FileType::is_dir));
        fs::write(there.join("inner"), "inner\n").expect("written");
        self.soon("what is in it", || reads("inner", "inner\n"));
        fs::remove_dir_all(&there).expect("removed");
        fs::write(&there, "odd\n").expect("written");
        self.soon("a file where there was a directory", || is(fs::FileType::is_file));
        self.soon("what it says", || fs::read_to_string(&here).is_ok_and(|read| read == "odd\n"));
        fs::remove_file(&there).expect("removed");
        self.soon("nothing", || fs::symlink_metadata(&here).is_err());
    }

    /// The directory itself gets another mode, which is also what its children's directory is told to have.
    #[track_caller]
    fn follows_modes(&self, stored: &Path, shown: &str) {
        let before = mode(stored).expect("there");
        for (bits, name) in [(0o750, ""), (before, "conversations"), (0o710, "conversations"), (before, "")] {
            let here = self.shown(shown).join(name);
            assert_ne!(mode(&here), Some(bits));
            fs::set_permissions(stored, fs::Permissions::from_mode(bits)).expect("set");
            self.soon("the mode of its directory", || mode(&here) == Some(bits));
        }
    }

    /// Another process gives a conversation another title. What the store's directory is called is none of its business.
    #[track_caller]
    fn follows_title(&self, stored: &Path, shown: &str, title: &str) {
        let path = stored.join("metadata.json");
        let text = fs::read_to_string(&path).expect("read");
        let mut value: serde_json::Value = serde_json::from_str(&text).expect("a document");
        value["title"] = title.into();
        let text = serde_json::to_string_pretty(&value).expect("a document");
        fs::write(&path, &text).expect("written");
        self.soon("a title", || {
            fs::read_to_string(self.shown(shown).join("metadata.json")).is_ok_and(|read| read == text)
        });
    }

    #[track_caller]
    fn end(self) {
        self.inside("jp unmount");
        self.m.check_store();
    }
}

/// The permission bits of a file or directory that is there.
fn mode(path: &Path) -> Option<u32> {
    fs::metadata(path).map(|meta| meta.permissions().mode() & 0o777).ok()
}

/// The name of a conversation's directory in the store.
fn named(stored: &Path) -> &str {
    stored.file_name().and_then(|name| name.to_str()).expect("it has one")
}

/// What appears that cannot be watched, how things are before, and how it appears.
type Way = (&'static str, fn(&Mounted), fn(&Scarce));

/// Something new cannot be watched any more. Neither it nor anything else, which the kernel was told that it may remember
/// for ever, is shown as it was.
#[test]
fn they_run_out() {
    let nothing = |_: &Mounted| ();
    let without_archive = |m: &Mounted| drop(m.script("rm -r \"$U/conversations/.archive\" \"$M/.archive\"").ok());
    let ways: [Way; 3] = [
        ("a conversation", nothing, |s| drop(s.inside("jp c new --title Late"))),
        ("a directory in one", nothing, |s| fs::create_dir(s.m.stored(ids::D).join("late")).expect("made")),
        ("the archive", without_archive, |s| drop(s.inside(&format!("jp c archive jp-c{}", ids::A)))),
    ];
    for (what, prepare, change) in ways {
        let Some(s) = Scarce::new(prepare) else { return };
        let d = s.m.stored(ids::D);
        // The kernel has all of it before, and that this is not there.
        s.inside("find \"$M\" -type f -exec cat {} + > /dev/null");
        assert!(!s.shown(named(&d)).join("own.md").exists());
        s.exhaust();
        // Whoever is watched already still is.
        s.follows_title(&d, named(&d), "Weekend plans");
        assert_eq!(s.staleness(), "watching", "{what}");
        change(&s);
        s.soon(what, || s.staleness() == "polling");
        s.follows_title(&d, named(&d), "Weekend plans, again");
        fs::write(d.join("own.md"), "").expect("written");
        s.soon("a new name", || s.shown(named(&d)).join("own.md").is_file());
        s.end();
    }
}

/// What happens from the moment on that something cannot be watched, until everything is looked at for the first time, is
/// told by nobody.
#[test]
fn nothing_is_missed_between() {
    let prepare = |m: &Mounted| {
        for name in ["kept.md", "gone.md", "sub/kept.md", "sub/gone.md"] {
            let path = m.stored(ids::C).join(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            fs::write(path, "old\n").expect("written");
        }
    };
    let Some(s) = Scarce::new(prepare) else { return };
    let (c, d) = (s.m.stored(ids::C), s.m.stored(ids::D));
    s.inside("find \"$M\" -type f -exec cat {} + > /dev/null");
    let place = PathBuf::from(s.inside("printf %s \"$C\""));
    let here = |name: &str| s.shown(&place).join(name);
    for dir in ["", "sub/"] {
        let is_there = |name: &str| here(&format!("{dir}{name}")).exists();
        assert!(is_there("kept.md") && is_there("gone.md") && !is_there("new.md"));
    }
    s.exhaust();
    s.m.signal(Signal::SIGSTOP);
    fs::create_dir(d.join("late")).expect("made");
    for dir in [c.clone(), c.join("sub")] {
        fs::write(dir.join("new.md"), "new\n").expect("written");
        fs::write(dir.join("kept.md"), "new\n").expect("written");
        fs::set_permissions(dir.join("kept.md"), fs::Permissions::from_mode(0o600)).expect("set");
        fs::remove_file(dir.join("gone.md")).expect("removed");
    }
    let document = said("meanwhile", 300);
    fs::write(c.join("events.json"), &document).expect("written");
    let metadata = fs::read_to_string(d.join("metadata.json")).expect("read");
    let metadata = metadata.replace("Weekend plans", "Monday plans!");
    fs::write(d.join("metadata.json"), &metadata).expect("written");
    s.m.signal(Signal::SIGCONT);
    s.soon("an end of watching", || s.staleness() == "polling");
    let reads = |path: &Path, text: &str| fs::read_to_string(path).is_ok_and(|read| read == text);
    for name in ["new.md", "kept.md", "sub/new.md", "sub/kept.md"] {
        s.soon(name, || reads(&here(name), "new\n"));
    }
    for name in ["kept.md", "sub/kept.md"] {
        let mode = || Some(fs::metadata(here(name)).ok()?.permissions().mode() & 0o777);
        s.soon("a mode", || mode() == Some(0o600));
    }
    for name in ["gone.md", "sub/gone.md"] {
        s.soon(name, || fs::symlink_metadata(here(name)).is_err());
    }
    s.soon("events", || reads(&here("events.json"), &document));
    s.soon("metadata", || reads(&s.shown(named(&d)).join("metadata.json"), &metadata));
    s.end();
}

/// What is made where nothing can be watched any more.
#[test]
fn new_ones_are_followed() {
    let Some(s) = Scarce::new(|_| ()) else { return };
    s.exhaust();
    let mut made = Vec::new();
    for title in ["First", "Second"] {
        let new = s.inside(&format!("jp c new --title {title}"));
        let id = new.trim().trim_start_matches("jp-c").parse().expect("an id");
        let stored = s.m.stored(id);
        let shown = named(&stored).to_owned();
        assert!(s.shown(&shown).join("events.json").is_file(), "{title}: seen when the command returns");
        made.push((stored, shown));
    }
    s.soon("an end of watching", || s.staleness() == "polling");
    let d = s.m.stored(ids::D);
    made.push((d.clone(), named(&d).to_owned()));
    for (stored, shown) in &made {
        s.follows(stored, shown);
        s.follows_title(stored, shown, "Another");
    }
    // Once it has given up it tries no more, and says so once.
    let log = fs::read_to_string(s.m.state().join("mount.log")).expect("read");
    assert_eq!(log.matches("once a second").count(), 1, "{log}");
    s.inside("sed -i 's/Another/One more/' \"$M\"/*-first/metadata.json; ls \"$M\" | grep -- -one-more");
    s.end();
}

/// A mount that looked once a second from the beginning follows the same.
#[test]
fn looking_sees_all_of_it() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    m.begin(&["--poll"]);
    let daemon = m.daemon().expect("it is mounted");
    let s = Scarce { m, daemon };
    assert_eq!(s.staleness(), "polling");
    let d = s.m.stored(ids::D);
    s.follows(&d, named(&d));
    s.follows_title(&d, named(&d), "Later plans");
    s.m.end(&[]);
    s.m.check_store();
}

/// What came while the system lost track is watched from then on.
#[test]
fn they_lose_track() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("read");
    let most: usize = most.trim().parse().expect("a number");
    if most > 50_000 {
        return skip("this system keeps track of very many changes");
    }
    m.begin(&[]);
    let daemon = m.daemon().expect("it is mounted");
    let s = Scarce { m, daemon };
    assert_eq!(s.staleness(), "watching");
    let (d, b) = (s.m.stored(ids::D), s.m.stored(ids::B));
    s.m.sh("find . -type f -exec cat {} + > /dev/null");
    let own = s.shown(named(&d)).join("own.md");
    assert!(!own.exists());
    s.m.signal(Signal::SIGSTOP);
    for number in 0..most {
        fs::write(b.join(format!("{}.tmp", number % 7)), "").expect("written");
    }
    // Nobody hears of these.
    fs::write(d.join("own.md"), "x\n").expect("written");
    fs::create_dir_all(d.join("late/deep")).expect("made");
    s.m.signal(Signal::SIGCONT);
    s.soon("a file nobody heard of", || fs::read_to_string(&own).is_ok_and(|read| read == "x\n"));
    fs::remove_file(d.join("own.md")).expect("removed");
    s.soon("its removal", || fs::symlink_metadata(&own).is_err());
    let late = s.shown(named(&d)).join("late/deep/x");
    assert!(!late.exists());
    fs::write(d.join("late/deep/x"), "x").expect("written");
    s.soon("a file in a directory nobody heard of", || late.exists());
    assert_eq!(s.staleness(), "watching");
    assert!(s.m.log().contains("lost track"), "{}", s.m.log());
    s.follows(&d, named(&d));
    for number in 0..7 {
        fs::remove_file(b.join(format!("{number}.tmp"))).expect("removed");
    }
    s.m.end(&[]);
    s.m.check_store();
}
