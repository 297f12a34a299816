//! Real files beneath a mount. While they are covered nobody touches them; when the mount ends they are what they would be
//! had there never been one. A twin that is never covered is the measure.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jp_store::ConversationId;
use jp_store::disk::{Disk, RealDisk};
use jp_store::journal::Change;
use jp_store::layout::Partition;
use jp_store::lock::{Guard, Wait};
use jp_store::meta::Meta;
use jp_store::plan::Held;
use jp_store::presence::{Projection, StoragePresence};
use jp_store::reconcile::ManagedFile;
use jp_store::store::{Store, Surroundings};
use jp_store::writer::{Seed, Strategy, Uncovered, Writer};
use jp_tests::{FaultDisk, Place, Sample, Shot, TestEnv, Workspace};

const A: u64 = 17_528_832_001;
const B: u64 = 17_528_842_001;
const C: u64 = 17_528_852_001;
const D: u64 = 17_528_862_001;
const E: u64 = 17_528_872_001;
const F: u64 = 17_528_882_001;
const BEFORE: i64 = 1_750_000_000_000_000_000;

fn id(n: u64) -> ConversationId {
    ConversationId::new(n).expect("an id")
}

struct World {
    workspace: Workspace,
    /// Reaches the real files, whatever covers them.
    real: Writer,
}

impl World {
    /// A, with B beneath it and C beneath B; D, E and F. All in both roots, and remembered as such.
    fn new() -> Self {
        let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
        for sample in [
            Sample::new(A).title("Anna").file("notes.md", "anna's\n").file("sub/list.txt", "1\n"),
            Sample::new(B).title("Berta").parent(A),
            Sample::new(C).title("Clara").parent(B),
            Sample::new(D).title("Dora"),
            Sample::new(E).title("Emil").file("draft.md", "old\n"),
            Sample::new(F).title("Fritz"),
        ] {
            sample.mtime(BEFORE).write(&workspace, Place::User);
        }
        let real = store(&workspace).writer().expect("ready").0;
        for n in [A, B, C, D, E, F] {
            real.toggle(id(n), Projection::Projected, &Wait::none()).expect("shown");
        }
        Self { workspace, real }
    }

    fn store(&self) -> Store {
        store(&self.workspace)
    }

    fn writer(&self) -> Writer {
        self.store().writer().expect("ready").0
    }

    fn beneath(&self) -> Writer {
        self.store().covered().writer().expect("ready").0
    }

    fn work(&self) -> PathBuf {
        self.workspace.storage().join("conversations")
    }

    fn shot(&self) -> Shot {
        Shot::of(&self.work())
    }

    /// Ends the mount, as the process does that began it.
    fn uncover(&self) -> Uncovered {
        self.real.uncover(&Wait::none()).expect("uncovered")
    }

    /// Where a conversation is shown, relative to `.jp/conversations`.
    fn dir(&self, n: u64) -> Option<PathBuf> {
        let snapshot = self.store().snapshot().expect("looked");
        let work = snapshot.get(id(n))?.work.clone()?;
        Some(work.dir.strip_prefix(self.work()).expect("beneath").to_owned())
    }

    fn presence(&self, n: u64) -> Option<StoragePresence> {
        self.store().snapshot().expect("looked").get(id(n)).map(|found| found.presence)
    }

    fn conflicts(&self) -> usize {
        self.store().conflicts().expect("listed").len()
    }
}

fn store(workspace: &Workspace) -> Store {
    store_on(workspace, Arc::new(RealDisk::default()))
}

fn store_on(workspace: &Workspace, disk: Arc<dyn Disk>) -> Store {
    let around = Surroundings {
        disk,
        data_dir: Some(workspace.env().data()),
        pid: std::process::id(),
        session: None,
        clock: Arc::new(|| "2099-08-20T12:00:00Z".parse().expect("a time")),
        covered: Arc::new(|_| false),
    };
    Store::open(around, workspace.root()).expect("opened")
}

fn lock(writer: &Writer, n: u64) -> Guard {
    writer.lock(id(n), &Wait::none()).expect("free")
}

fn store_dir(writer: &Writer, n: u64) -> PathBuf {
    let snapshot = writer.store().snapshot().expect("looked");
    snapshot.find(id(n)).expect("there").store.clone().expect("in the store").dir
}

fn seed(title: &str, parent: Option<u64>) -> Seed {
    let mut meta = Meta::new("2025-07-19T00:00:00Z".parse().expect("a time"));
    meta.set_title(Some(title));
    let parent = parent.map(id);
    Seed { meta, events: b"[]".to_vec(), base_config: Some(b"{}".to_vec()), parent, projection: Projection::Projected }
}

/// Names and bytes of everything in the workspace, which must be the same as its twin's.
fn assert_twins(world: &World, twin: &World) {
    world.shot().without_mtimes().assert_same(&twin.shot().without_mtimes());
}

/// A change, and what to call it.
type Named = (&'static str, fn(&Writer));

/// What can be done with and without a mount.
const CHANGES: [Named; 9] = [
    ("save", |writer| {
        writer.replace(&lock(writer, D), ManagedFile::Events, b"[ ]").expect("saved");
    }),
    ("retitle", |writer| writer.edit(&lock(writer, A), |meta| meta.set_title(Some("Änne"))).expect("edited")),
    ("reparent", |writer| writer.reparent(&lock(writer, C), Some(id(D))).expect("moved")),
    ("make a root", |writer| writer.reparent(&lock(writer, B), None).expect("moved")),
    ("hide", |writer| {
        writer.toggle(id(A), Projection::LocalOnly, &Wait::none()).expect("hidden");
    }),
    ("create", |writer| drop(writer.create(seed("New", Some(D))).expect("made"))),
    ("archive", |writer| drop(writer.archive(id(A), &Wait::none()).expect("archived"))),
    ("remove", |writer| drop(writer.remove(id(F), Strategy::Refuse, &Wait::none()).expect("removed"))),
    ("adopt", |writer| {
        let from = writer.store().layout().worktree_state().join("scratch/new");
        let sample = Sample::new(17_528_800_001).title("Arrived").file("own.txt", "mine\n");
        fs::create_dir_all(&from).expect("made");
        for (name, bytes) in sample.contents() {
            fs::write(from.join(name), bytes).expect("written");
        }
        writer.adopt(&lock(writer, 17_528_800_001), &from, Some(id(E))).expect("taken in");
    }),
];

#[test]
fn the_files_follow_as_if_there_had_been_no_mount() {
    for (name, change) in CHANGES {
        let (world, twin) = (World::new(), World::new());
        assert_twins(&world, &twin);
        change(&twin.writer());
        assert_eq!(world.writer().cover().expect("covered"), Default::default(), "{name}");
        let before = world.shot();
        change(&world.beneath());
        before.assert_same(&world.shot());
        let done = world.uncover();
        assert_eq!(done.kept, Vec::<Held>::new(), "{name}");
        assert_twins(&world, &twin);
        assert_eq!((world.conflicts(), twin.conflicts()), (0, 0), "{name}");
        let settled = world.shot();
        assert_eq!(world.uncover(), Uncovered::default(), "{name}: once more");
        settled.assert_same(&world.shot());
    }
}

#[test]
fn everything_at_once() {
    let (world, twin) = (World::new(), World::new());
    let all = |writer: &Writer| {
        for at in [0, 1, 2, 5, 7, 8, 4] {
            CHANGES[at].1(writer);
        }
    };
    all(&twin.writer());
    world.writer().cover().expect("covered");
    all(&world.beneath());
    world.uncover();
    assert_twins(&world, &twin);
    // What was hidden with A comes back with it, as everywhere.
    for world in [&world, &twin] {
        world.writer().toggle(id(A), Projection::Projected, &Wait::none()).expect("shown");
    }
    assert_twins(&world, &twin);
}

/// B lies in A's real directory. It moves beneath a conversation that has no real directory yet, and A is hidden.
#[test]
fn what_lies_in_a_hidden_copy_moves_out_before_that_goes() {
    let world = World::new();
    world.writer().cover().expect("covered");
    let writer = world.beneath();
    let new = writer.create(seed("New", None)).expect("made").id();
    writer.reparent(&lock(&writer, B), Some(new)).expect("moved");
    writer.toggle(id(A), Projection::LocalOnly, &Wait::none()).expect("hidden");
    let done = world.uncover();
    assert!(done.kept.is_empty(), "nobody holds anything: {:?}", done.kept);
    assert_eq!(world.dir(A), None);
    let parent = world.dir(new.deciseconds()).expect("copied out");
    assert_eq!(world.dir(B), Some(parent.join(format!("conversations/{B}-berta"))));
    assert!(world.dir(C).expect("shown").starts_with(world.dir(B).expect("shown")));
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    let world = World::new();
    let before = world.shot();
    world.writer().cover().expect("covered");
    assert_eq!(world.uncover(), Uncovered::default());
    before.assert_same(&world.shot());
}

#[test]
fn what_the_workspace_has_alone_is_in_the_store_first() {
    let world = World::new();
    let dir = |n| world.work().join(world.dir(n).expect("shown"));
    let (d, e, f) = (dir(D), dir(E), dir(F));
    fs::write(d.join("events.json"), "[  ]").expect("edited");
    fs::write(d.join("mine.md"), "mine\n").expect("written");
    fs::write(e.join("draft.md"), "newer\n").expect("edited");
    fs::write(f.join("metadata.json"), "<<<<<<< HEAD").expect("broken");
    fs::remove_dir_all(dir(A)).expect("removed");
    Sample::new(17_528_800_001).title("Pulled").write(&world.workspace, Place::Workspace);
    let broken = Sample::new(17_528_800_002).title("Broken").write(&world.workspace, Place::Workspace);
    fs::write(broken.join("events.json"), "{").expect("broken");

    let covered = world.writer().cover().expect("covered");
    assert_eq!(covered.imported, [id(17_528_800_001)]);
    assert_eq!(covered.refused.len(), 2, "{:?}", covered.refused);
    for (refused, path) in covered.refused.iter().zip(["Broken", "metadata.json"]) {
        assert!(refused.contains(path) || refused.contains("events.json"), "{refused}");
    }
    let before = world.shot();
    let writer = world.beneath();
    let read = |n, name: &str| fs::read_to_string(store_dir(&writer, n).join(name)).expect("read");
    assert_eq!(
        (read(D, "events.json"), read(D, "mine.md"), read(E, "draft.md")),
        ("[  ]".into(), "mine\n".into(), "newer\n".into())
    );
    let snapshot = writer.store().snapshot().expect("looked");
    let presence = |n| snapshot.get(id(n)).map(|found| found.presence.word());
    assert_eq!(presence(17_528_800_001), Some("projected"));
    assert_eq!(presence(17_528_800_002), None);
    assert_eq!(presence(A), Some("local"), "it was removed by hand");
    let kept = world.store().conflicts().expect("listed");
    assert_eq!(kept, [], "nothing but the workspace had changes");

    writer.edit(&lock(&writer, F), |meta| meta.set_title(Some("Friedrich"))).expect("edited");
    before.assert_same(&world.shot());
    world.uncover();
    let markers = fs::read_to_string(world.work().join(world.dir(F).expect("shown")).join("metadata.json"));
    assert_eq!(markers.expect("still there"), "<<<<<<< HEAD");
    assert!(broken.join("events.json").exists());
}

#[test]
fn one_file_is_hidden_and_shown_again() {
    let world = World::new();
    world.writer().cover().expect("covered");
    let hide = |n, file: &str| Change::HideFile(id(n), file.to_owned());
    let changes =
        [hide(A, "notes.md"), hide(A, "sub/list.txt"), hide(A, "sub"), hide(D, "events.json"), hide(E, "draft.md")];
    world.beneath().note(&changes).expect("noted");
    // One is edited beneath the mount by somebody who should not.
    let e = world.work().join(world.dir(E).expect("shown"));
    fs::write(e.join("draft.md"), "edited\n").expect("written");
    assert_eq!(world.uncover().kept, Vec::<Held>::new());
    let dir = |n| world.work().join(world.dir(n).expect("shown"));
    let there = |n, file: &str| dir(n).join(file).exists();
    assert!(!there(A, "notes.md") && !there(A, "sub") && !there(D, "events.json"));
    assert!(there(A, "metadata.json") && there(E, "draft.md"));

    // Neither a write nor a move brings it back, and nothing takes its absence for a loss.
    let writer = world.writer();
    writer.edit(&lock(&writer, D), |meta| meta.set_title(Some("Dorothea"))).expect("edited");
    writer.sync(&lock(&writer, A)).expect("in step");
    writer.toggle(id(A), Projection::LocalOnly, &Wait::none()).expect("hidden");
    assert!(!there(D, "events.json") && store_dir(&writer, D).join("events.json").exists());
    assert_eq!(world.presence(D), Some(StoragePresence::Projected));
    // Hidden as a whole, A has no hidden files any more.
    writer.toggle(id(A), Projection::Projected, &Wait::none()).expect("shown");
    assert!(there(A, "notes.md") && there(A, "sub/list.txt"));

    // Put back by hand it is shown.
    fs::copy(store_dir(&writer, D).join("events.json"), dir(D).join("events.json")).expect("copied");
    writer.sync(&lock(&writer, D)).expect("in step");
    writer.replace(&lock(&writer, D), ManagedFile::Events, b"[   ]").expect("saved");
    assert_eq!(fs::read_to_string(dir(D).join("events.json")).expect("read"), "[   ]");
}

#[test]
fn files_of_ones_own_are_copied_out() {
    let world = World::new();
    world.writer().cover().expect("covered");
    let writer = world.beneath();
    let store = store_dir(&writer, E);
    fs::write(store.join("draft.md"), "through the mount\n").expect("written");
    fs::create_dir(store.join("more")).expect("made");
    fs::write(store.join("more/new.md"), "new\n").expect("written");
    fs::remove_file(store_dir(&writer, A).join("notes.md")).expect("removed");
    assert_eq!(world.uncover().kept, Vec::<Held>::new());
    let e = world.work().join(world.dir(E).expect("shown"));
    let read = |path: &Path| fs::read_to_string(path).expect("read");
    assert_eq!(read(&e.join("draft.md")), "through the mount\n");
    assert_eq!(read(&e.join("more/new.md")), "new\n");
    assert_eq!(world.conflicts(), 0, "an old copy is nobody's loss");
    // What the store has no more goes from a copy that nobody touched.
    assert!(!world.work().join(world.dir(A).expect("shown")).join("notes.md").exists());
}

#[test]
fn files_of_ones_own_follow_to_other_names_and_kinds() {
    let world = World::new();
    let store = store_dir(&world.real, A);
    let outside = world.workspace.env().root().join("outside");
    fs::create_dir(&outside).expect("made");
    for (target, link) in [("notes.md", "changes"), ("notes.md", "moves"), (outside.to_str().expect("text"), "turns")] {
        symlink(target, store.join(link)).expect("linked");
    }
    world.writer().cover().expect("covered");
    world.uncover();
    let work = world.work().join(world.dir(A).expect("shown"));
    assert!(work.join("turns").is_symlink(), "copied out");

    world.writer().cover().expect("covered");
    fs::rename(store.join("sub"), store.join("other")).expect("moved");
    fs::rename(store.join("notes.md"), store.join("sub.md")).expect("moved");
    fs::rename(store.join("moves"), store.join("moved")).expect("moved");
    fs::remove_file(store.join("changes")).expect("removed");
    symlink("sub.md", store.join("changes")).expect("linked");
    fs::remove_file(store.join("turns")).expect("removed");
    fs::create_dir(store.join("turns")).expect("made");
    fs::write(store.join("turns/inside"), "inside\n").expect("written");
    assert_eq!(world.uncover().kept, Vec::<Held>::new());
    let listed = |dir: &Path| {
        let names = fs::read_dir(dir).expect("listed").map(|entry| entry.expect("read").file_name());
        let mut names: Vec<_> = names.filter(|name| !name.to_string_lossy().ends_with("json")).collect();
        names.retain(|name| name != "conversations");
        names.sort();
        names
    };
    assert_eq!(listed(&work), ["changes", "moved", "other", "sub.md", "turns"]);
    assert_eq!(listed(&store), listed(&work));
    assert_eq!(fs::read_link(work.join("changes")).expect("a link"), Path::new("sub.md"));
    assert_eq!(fs::read_to_string(work.join("turns/inside")).expect("read"), "inside\n");
    assert_eq!(listed(&outside).len(), 0, "nothing is written where a link leads");
    assert_eq!(world.conflicts(), 0, "an old copy is nobody's loss");
}

#[test]
fn a_mount_that_died_is_followed_by_the_next_command() {
    let world = World::new();
    world.writer().cover().expect("covered");
    {
        let writer = world.beneath();
        writer.note(&[Change::Hide(id(A)), Change::Hide(id(E))]).expect("noted");
        writer.remove(id(F), Strategy::Refuse, &Wait::none()).expect("removed");
        writer.edit(&lock(&writer, D), |meta| meta.set_title(Some("Dorothea"))).expect("edited");
    }
    // Reading changes nothing, and says what was decided.
    let before = Shot::of(world.workspace.env().root());
    let list = world.workspace.jp(&["c", "ls", "--json"]).ok().json();
    let told = |n: u64| {
        let of = list.as_array().expect("a list").iter().find(|one| one["id"] == id(n).to_string());
        of.map(|one| one["presence"].as_str().expect("a word").to_owned())
    };
    assert_eq!(
        (told(A), told(D), told(E), told(F)),
        (Some("local".into()), Some("projected".into()), Some("local".into()), None)
    );
    before.assert_same(&Shot::of(world.workspace.env().root()));

    // A save by somebody who does not know better, after the mount died, is not lost.
    let e = fs::read_dir(world.work()).expect("listed").map(|entry| entry.expect("listed").path());
    let e = e.into_iter().find(|path| path.to_string_lossy().contains(&E.to_string())).expect("still there");
    fs::write(e.join("events.json"), "[    ]").expect("edited");
    world.workspace.jp(&["c", "edit", &D.to_string(), "--title", "Dorle"]).ok();
    assert_eq!((world.dir(A), world.dir(B), world.dir(E), world.dir(F)), (None, None, None, None));
    assert!(world.dir(D).expect("shown").to_string_lossy().ends_with("-dorle"));
    let writer = world.writer();
    assert_eq!(fs::read_to_string(store_dir(&writer, E).join("events.json")).expect("read"), "[    ]");
    assert_eq!(world.presence(F), None);
    let left: Vec<_> =
        world.store().snapshot().expect("looked").partition(Partition::Live).map(|found| found.id).collect();
    assert_eq!(left, [A, B, C, D, E].map(id));
}

#[test]
fn one_that_is_held_does_not_keep_the_others() {
    let world = World::new();
    world.writer().cover().expect("covered");
    let writer = world.beneath();
    writer.note(&[Change::Hide(id(D)), Change::Hide(id(E))]).expect("noted");
    let held = lock(&writer, D);
    let done = world.uncover();
    assert_eq!((done.kept.len(), world.dir(E)), (1, None), "{done:?}");
    assert_eq!(world.presence(D), Some(StoragePresence::UserLocalOnly), "it is still meant to go");
    assert!(fs::read_dir(world.work()).expect("listed").count() > 2);
    drop(held);
    world.writer();
    assert_eq!((world.dir(D), world.presence(D)), (None, Some(StoragePresence::UserLocalOnly)));
    assert!(
        !fs::read_dir(world.work())
            .expect("listed")
            .any(|entry| { entry.expect("listed").file_name().to_string_lossy().starts_with(&D.to_string()) })
    );
}

#[test]
fn where_nothing_is_behind_everything_is_looked_at_once() {
    for changed in [false, true] {
        let world = World::new();
        let disk = Arc::new(FaultDisk::new());
        let writer = store_on(&world.workspace, disk.clone()).writer().expect("ready").0;
        writer.cover().expect("covered");
        if changed {
            let below = world.beneath();
            below.edit(&lock(&below, D), |meta| meta.set_title(Some("Dorothea"))).expect("edited");
        }
        let all = format!("list {}", world.workspace.silo().join("conversations").display());
        let from = disk.log().len();
        writer.uncover(&Wait::none()).expect("uncovered");
        let looks = disk.log()[from..].iter().filter(|line| **line == all).count();
        assert_eq!(looks == 1, !changed, "{looks}");
        let name = if changed { "17528862001-dorothea" } else { "17528862001-dora" };
        assert_eq!(world.dir(D), Some(name.into()));
        assert_eq!(world.uncover(), Uncovered::default(), "the real files have followed");
    }
}
