//! Metadata that was read once: whatever is in the index, or done to it, a look with it sees what a look without it sees.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jp_store::ConversationId;
use jp_store::disk::{Disk, RealDisk};
use jp_store::layout::Partition;
use jp_store::lock::Wait;
use jp_store::meta::Meta;
use jp_store::store::{Store, Surroundings};
use jp_store::writer::Writer;
use jp_tests::driver::clock;
use jp_tests::{FaultDisk, Place, Random, Sample, TestEnv, Workspace, mtime, set_mtime, wait_for};

const A: u64 = 17_528_832_001;
const B: u64 = 17_528_842_001;
const C: u64 = 17_528_852_001;

/// What a look tells of one conversation.
type Told = (ConversationId, Partition, OsString, Option<Vec<u8>>, Option<ConversationId>);

/// Something that is done, and what it is.
type Deed<'a, T> = (&'a str, &'a dyn Fn(&T));

struct World {
    workspace: Workspace,
}

impl World {
    /// A store in which two are roots and one is beneath.
    fn new() -> Self {
        let workspace = TestEnv::new().init_workspace("project", "otvo8").known();
        Sample::new(A).title("one").write(&workspace, Place::Both);
        Sample::new(B).title("two").parent(A).write(&workspace, Place::Both);
        Sample::new(C).title("six").write(&workspace, Place::User);
        Self { workspace }
    }

    fn store(&self, disk: Arc<dyn Disk>) -> Store {
        let around = Surroundings {
            disk,
            data_dir: Some(self.workspace.env().data()),
            pid: std::process::id(),
            session: None,
            // What was written just now is as good as old: `settle` waits for what that rests on.
            clock: Arc::new(|| clock()() + Duration::from_secs(120)),
            covered: Arc::new(|_| false),
        };
        Store::open(around, self.workspace.root()).expect("a store")
    }

    fn writer(&self) -> Writer {
        self.store(Arc::new(RealDisk::default())).writer().expect("a store that can be changed").0
    }

    fn index(&self) -> PathBuf {
        self.workspace.silo().join("vfs/index")
    }

    /// Writes down what is there.
    fn keep(&self) {
        let writer = self.writer();
        self.settle();
        writer.keep_found(&writer.store().snapshot().expect("a snapshot").take_found());
        self.settle();
    }

    /// Waits until the clock of the filesystem has ticked, so that what is written next looks different.
    fn settle(&self) {
        let probe = self.workspace.env().root().join("probe");
        let ticked = || {
            fs::write(&probe, "").expect("written");
            let meta = fs::metadata(&probe).expect("there");
            (meta.ctime(), meta.ctime_nsec())
        };
        let before = ticked();
        wait_for("a tick of the clock", Duration::from_secs(10), || ticked() != before);
    }

    fn seen(&self) -> Vec<Told> {
        told(&self.store(Arc::new(RealDisk::default())))
    }

    /// What a look sees that has no index.
    fn truth(&self) -> Vec<Told> {
        let aside = self.workspace.env().root().join("aside");
        let moved = fs::rename(self.index(), &aside);
        let truth = self.seen();
        if moved.is_ok() {
            fs::rename(&aside, self.index()).expect("moved back");
        }
        truth
    }

    /// Metadata files that a look reads.
    fn reads(&self) -> usize {
        let disk = Arc::new(FaultDisk::new());
        told(&self.store(disk.clone()));
        let is_read = |line: &&String| line.starts_with("read ") && line.ends_with("metadata.json");
        disk.log().iter().filter(is_read).count()
    }

    fn dir(&self, id: u64) -> PathBuf {
        let snapshot = self.store(Arc::new(RealDisk::default())).snapshot().expect("a snapshot");
        let found = snapshot.get(ConversationId::new(id).expect("an id")).expect("there");
        found.dirs().store.expect("in the store").to_owned()
    }

    fn metadata(&self, id: u64) -> PathBuf {
        self.dir(id).join("metadata.json")
    }

    #[track_caller]
    fn check(&self, what: &str) {
        assert_eq!(self.seen(), self.truth(), "{what}");
    }
}

fn told(store: &Store) -> Vec<Told> {
    let snapshot = store.snapshot().expect("a snapshot");
    let told = snapshot.all().map(|found| {
        let name = found.dirs().store.and_then(Path::file_name).unwrap_or_default().to_owned();
        (found.id, found.partition, name, found.meta.as_ref().map(Meta::to_bytes), found.parent)
    });
    told.collect()
}

/// Other bytes of the same length, at the same time as far as anybody can set it.
fn edit_slyly(path: &Path, from: &str, to: &str) {
    let (text, time) = (fs::read_to_string(path).expect("read"), mtime(path));
    assert!(text.contains(from) && from.len() == to.len());
    fs::write(path, text.replace(from, to)).expect("written");
    set_mtime(path, time);
}

#[test]
fn what_is_known_is_not_read() {
    let world = World::new();
    assert_eq!(world.reads(), 3);
    world.keep();
    assert_eq!(world.reads(), 0);
    world.check("unchanged");
    // One that changed is read, and no other.
    fs::write(world.metadata(C), br#"{"title": "else", "last_activated_at": "2025-07-19 00:00:00.0"}"#).unwrap();
    assert_eq!(world.reads(), 1);
    world.check("one edited");
}

#[test]
fn what_is_young_is_read_again() {
    let world = World::new();
    let around = Surroundings {
        disk: Arc::new(RealDisk::default()),
        data_dir: Some(world.workspace.env().data()),
        pid: std::process::id(),
        session: None,
        clock: clock(),
        covered: Arc::new(|_| false),
    };
    let store = Store::open(around, world.workspace.root()).unwrap();
    let writer = store.writer().unwrap().0;
    writer.keep_found(&writer.store().snapshot().unwrap().take_found());
    assert!(!world.index().exists(), "a few that were written a moment ago are not worth it");
}

#[test]
fn reading_writes_no_index() {
    let world = World::new();
    world.writer();
    world.settle();
    world.seen();
    assert!(!world.index().exists());
    world.workspace.jp(&["c", "ls"]).ok();
    assert!(!world.index().exists());
}

#[test]
fn damage_is_no_difference() {
    let world = World::new();
    world.keep();
    // Without the index the title is another; whoever believes a damaged one shows the old title, or garbage.
    edit_slyly(&world.metadata(A), "one", "two");
    let truth = world.truth();
    let whole = fs::read(world.index()).unwrap();
    for at in 0..whole.len() {
        fs::write(world.index(), &whole[..at]).unwrap();
        assert_eq!(world.seen(), truth, "cut at {at}");
        let mut flipped = whole.clone();
        flipped[at] ^= 0x20;
        fs::write(world.index(), &flipped).unwrap();
        assert_eq!(world.seen(), truth, "another byte at {at}");
    }
    fs::write(world.index(), &whole).unwrap();
    assert_eq!(world.reads(), 1, "the whole one still counts");
}

#[test]
fn something_else_in_its_place() {
    let world = World::new();
    world.keep();
    let (truth, whole) = (world.truth(), fs::read(world.index()).unwrap());
    let other = World::new();
    other.keep();
    let places: [Deed<Path>; 5] = [
        ("a directory", &|path| fs::create_dir(path).unwrap()),
        ("a pipe", &|path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap()),
        ("a link to nowhere", &|path| std::os::unix::fs::symlink("nowhere", path).unwrap()),
        ("another silo's", &|path| assert!(fs::copy(other.index(), path).is_ok())),
        ("text", &|path| fs::write(path, "not an index").unwrap()),
    ];
    for (what, put) in places {
        let _ = fs::remove_file(world.index()).or_else(|_| fs::remove_dir(world.index()));
        put(&world.index());
        assert_eq!(world.seen(), truth, "{what}");
        assert_eq!(world.reads(), 3, "{what}");
        // It is in nobody's way either.
        world.keep();
        assert_eq!(world.seen(), truth, "{what}, written over");
    }
    let _ = fs::remove_file(world.index());
    fs::write(world.index(), &whole).unwrap();
    assert_eq!(world.reads(), 0);
}

#[test]
fn whatever_happens_to_a_conversation() {
    let deeds: [Deed<World>; 8] = [
        ("an edit of the same length with its time put back", &|world| {
            edit_slyly(&world.metadata(A), "one", "two");
        }),
        ("renamed", &|world| {
            let dir = world.dir(A);
            fs::rename(&dir, dir.with_file_name(format!("{A}-other"))).unwrap();
        }),
        ("archived", &|world| {
            world.writer().archive(ConversationId::new(A).unwrap(), &Wait::none()).unwrap();
        }),
        ("replaced by another directory of the same name", &|world| {
            let dir = world.dir(A);
            let (text, time) =
                (fs::read_to_string(dir.join("metadata.json")).unwrap(), mtime(&dir.join("metadata.json")));
            fs::remove_dir_all(&dir).unwrap();
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("metadata.json"), text.replace("one", "two")).unwrap();
            set_mtime(&dir.join("metadata.json"), time);
        }),
        ("two that change places", &|world| {
            let (a, c, aside) = (world.metadata(A), world.metadata(C), world.dir(A).join("aside"));
            fs::rename(&a, &aside).unwrap();
            fs::rename(&c, &a).unwrap();
            fs::rename(&aside, &c).unwrap();
        }),
        ("removed", &|world| fs::remove_dir_all(world.dir(C)).unwrap()),
        ("without metadata", &|world| fs::remove_file(world.metadata(C)).unwrap()),
        ("a link in its place", &|world| {
            let path = world.metadata(C);
            let text = fs::read_to_string(&path).unwrap().replace("six", "ten");
            fs::write(path.with_file_name("real.json"), text).unwrap();
            fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink("real.json", &path).unwrap();
        }),
    ];
    for (what, deed) in deeds {
        let world = World::new();
        world.keep();
        let before = world.seen();
        deed(&world);
        world.check(what);
        assert_ne!(world.seen(), before, "{what} makes a difference");
        world.keep();
        world.check(&format!("{what}, and written down again"));
    }
}

#[test]
fn no_failing_call_makes_a_difference() {
    let world = World::new();
    world.keep();
    let truth = world.truth();
    // Reading it: each call that is about the index fails, and the look is the same.
    let disk = Arc::new(FaultDisk::new());
    told(&world.store(disk.clone()));
    let about: Vec<_> = disk.log().iter().map(|line| line.ends_with("/vfs/index")).collect();
    assert_eq!(about.iter().filter(|about| **about).count(), 2, "{:?}", disk.log());
    for nth in (1..).zip(about).filter_map(|(nth, about)| about.then_some(nth)) {
        let disk = Arc::new(FaultDisk::fail(nth, libc::EIO));
        assert_eq!(told(&world.store(disk.clone())), truth, "call {nth}");
        assert!(disk.struck(), "call {nth}");
    }
    // Writing it: whichever call fails, or is the last one, every look is the same.
    for (errno, kind) in [(libc::EIO, 0), (libc::ENOSPC, 0), (libc::EROFS, 0), (0, 1), (0, 2), (0, 3)] {
        for nth in 1.. {
            fs::remove_file(world.index()).ok();
            let found = world.store(Arc::new(RealDisk::default())).snapshot().unwrap().take_found();
            let disk = Arc::new(match kind {
                0 => FaultDisk::fail(nth, errno).counting_mutations(),
                1 => FaultDisk::stop_before(nth).counting_mutations(),
                2 => FaultDisk::stop_during(nth).counting_mutations(),
                _ => FaultDisk::stop_after(nth).counting_mutations(),
            });
            let Ok((writer, _)) = world.store(disk.clone()).writer() else { continue };
            writer.keep_found(&found);
            assert_eq!(world.seen(), truth, "{kind} {errno} at {nth}");
            if !disk.struck() {
                break;
            }
        }
    }
}

/// Changes by command and by hand, with an index that is written now and then and is mostly behind.
#[test]
fn random_changes() {
    for seed in 0..8 {
        let (world, mut random) = (World::new(), Random::new(seed));
        let mut log = Vec::new();
        for step in 0..40 {
            let ids: Vec<_> = world.seen().into_iter().map(|(id, ..)| id).collect();
            let id = ids[random.below(ids.len() as u64) as usize];
            let metadata = world.metadata(id.deciseconds());
            let text = fs::read_to_string(&metadata).unwrap();
            let what = random.below(7);
            log.push((what, id));
            let wait = Wait::none();
            match what {
                0 | 1 => world.keep(),
                2 => {
                    // The first letter of the title.
                    let (time, at) = (mtime(&metadata), text.find("\"title\": \"").unwrap() + 10);
                    let letter = if text[at..].starts_with('x') { "y" } else { "x" };
                    fs::write(&metadata, [&text[..at], letter, &text[at + 1..]].concat()).unwrap();
                    set_mtime(&metadata, time);
                }
                3 => {
                    let writer = world.writer();
                    let guard = writer.lock(id, &wait).unwrap();
                    let title = format!("title {}", random.below(100));
                    writer.edit(&guard, |meta| meta.set_title(Some(&title))).unwrap();
                }
                4 => {
                    let archived = world.seen().iter().any(|told| told.0 == id && told.1 == Partition::Archived);
                    let writer = world.writer();
                    if archived { writer.unarchive(id, &wait) } else { writer.archive(id, &wait) }.unwrap();
                }
                5 => {
                    let dir = world.dir(id.deciseconds());
                    let name = format!("{}-renamed-{step}", id.deciseconds());
                    fs::rename(&dir, dir.with_file_name(name)).unwrap();
                }
                _ => {
                    let new = 17_528_860_000 + seed * 100 + step;
                    Sample::new(new).title("new one").write(&world.workspace, Place::User);
                }
            }
            world.check(&format!("seed {seed}: {log:?}"));
        }
    }
}
