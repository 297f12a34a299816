//! Every call of an export and of an import fails in turn, and the process stops around each. Afterwards every file of the
//! store is old or new, and doing it again ends where an undisturbed run ends, in both roots.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use jp_store::disk::{Disk, RealDisk};
use jp_store::lock::Wait;
use jp_store::plan::{Direction, Wanted};
use jp_store::reconcile::ManagedFile;
use jp_store::store::{Store, Surroundings};
use jp_store::writer::{Reconciled, Writer};
use jp_store::{ConversationId, Result};
use jp_tests::{Contents, FaultDisk, Place, Sample, TestEnv, Workspace, contents, set_mtime};

const BEFORE: i64 = 1_750_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;
/// No process has this number, so what it leaves behind is swept by the next writer.
const DEAD: u32 = 4_000_000;

const A: u64 = 17_528_832_001;
const B: u64 = 17_528_842_001;
const C: u64 = 17_528_852_001;
const D: u64 = 17_528_862_001;
const ARRIVED: u64 = 17_528_802_001;

fn id(n: u64) -> ConversationId {
    ConversationId::new(n).expect("an id")
}

fn store_on(workspace: &Workspace, disk: Arc<dyn Disk>, pid: u32) -> Result<Store> {
    let around = Surroundings {
        disk,
        data_dir: Some(workspace.env().data()),
        pid,
        session: None,
        clock: Arc::new(|| "2026-08-20T12:00:00Z".parse().expect("a time")),
        covered: Arc::new(|_| false),
    };
    Store::open(around, workspace.root())
}

fn writer(workspace: &Workspace) -> Writer {
    let store = store_on(workspace, Arc::new(RealDisk::default()), std::process::id()).expect("opened");
    store.writer().expect("ready").0
}

/// A, with B beneath it and C beneath B, and D: all in both roots, and remembered as such.
fn family() -> Workspace {
    let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
    for sample in [
        Sample::new(A).title("Anna"),
        Sample::new(B).title("Berta").parent(A).file("notes.md", "keep me\n"),
        Sample::new(C).title("Clara").parent(B),
        Sample::new(D).title("Dora"),
    ] {
        sample.mtime(BEFORE).write(&workspace, Place::Both);
    }
    reconcile(&writer(&workspace), Direction::Both).expect("in step");
    workspace
}

fn reconcile(writer: &Writer, direction: Direction) -> Result<Reconciled> {
    writer.reconcile(&Wanted::all(direction), &Wait::none(), &mut |_| true)
}

/// Another worktree of the same store changes it.
fn elsewhere(workspace: &Workspace, change: impl FnOnce(&Writer) -> Result<()>) {
    let other = workspace.env().init_workspace("other", "otvo8");
    change(&writer(&other)).expect("changed");
}

/// The real copy of a conversation.
fn real(workspace: &Workspace, n: u64) -> PathBuf {
    let snapshot = writer(workspace).store().snapshot().expect("seen");
    snapshot.get(id(n)).and_then(|found| found.work.clone()).expect("shown").dir
}

/// What there is afterwards: the store's conversations, the real ones, and what lost a decision.
#[derive(Debug, PartialEq)]
struct World {
    store: Contents,
    work: Contents,
    losers: BTreeSet<Vec<u8>>,
}

fn look(workspace: &Workspace) -> World {
    World {
        store: contents(&workspace.silo().join("conversations")),
        work: contents(&workspace.storage().join("conversations")),
        losers: contents(&workspace.silo().join("vfs/conflicts")).into_values().collect(),
    }
}

/// Files of the store, whatever the titles of their conversations are.
fn by_id(store: &Contents) -> Contents {
    let named = |path: &PathBuf| {
        let (dir, inner) = path.to_str().and_then(|path| path.split_once('/')).expect("a file in a directory");
        PathBuf::from(dir.split('-').next().unwrap_or(dir)).join(inner)
    };
    let found: Contents = store.iter().map(|(path, bytes)| (named(path), bytes.clone())).collect();
    assert_eq!(found.len(), store.len(), "each conversation is there once");
    found
}

/// Makes a disk on which call number n goes wrong.
type Fault = fn(usize) -> FaultDisk;

#[track_caller]
fn sweep(direction: Direction, prepare: fn() -> Workspace) {
    let workspace = prepare();
    let old = look(&workspace);
    reconcile(&writer(&workspace), direction).expect("nothing is in the way");
    let new = look(&workspace);
    assert_ne!(old, new, "the story changes nothing");
    let faults: [(&str, Fault); 5] = [
        ("EIO at", |n| FaultDisk::fail(n, libc::EIO)),
        ("ENOSPC at", |n| FaultDisk::fail(n, libc::ENOSPC).counting_mutations()),
        ("stopped before", |n| FaultDisk::stop_before(n).counting_mutations()),
        ("stopped during", |n| FaultDisk::stop_during(n).counting_mutations()),
        ("stopped after", |n| FaultDisk::stop_after(n).counting_mutations()),
    ];
    for (fault, disk) in faults {
        for n in 1.. {
            let workspace = prepare();
            let disk = Arc::new(disk(n));
            let store = store_on(&workspace, disk.clone(), DEAD);
            let result = store.and_then(|store| reconcile(&store.writer()?.0, direction));
            if !disk.struck() {
                assert!(n > 5, "{fault} {n} never happens");
                assert!(result.is_ok_and(|done| done.held.is_empty() && done.busy.is_empty()));
                break;
            }
            let told = format!("{fault} call {n}\n{}", disk.log().join("\n"));
            let [before, now, after] = [&old, &look(&workspace), &new].map(|world| by_id(&world.store));
            for (path, bytes) in &now {
                let known = [&before, &after].iter().any(|store| store.get(path) == Some(bytes));
                assert!(known, "{told}\n{} in the store is neither old nor new", path.display());
            }
            for path in before.keys().filter(|path| after.contains_key(*path)) {
                assert!(now.contains_key(path), "{told}\n{} is gone from the store", path.display());
            }
            let again = reconcile(&writer(&workspace), direction).unwrap_or_else(|error| panic!("{told}\n{error}"));
            assert!(again.held.is_empty() && again.busy.is_empty(), "{told}\n{again:#?}");
            let end = look(&workspace);
            assert_eq!(end.store, new.store, "{told}\nthe store is not as after an undisturbed run");
            assert_eq!(end.work, new.work, "{told}\nthe real files are not as after an undisturbed run");
            // One copy more may be kept where what was known of it could not be written down; never one less.
            assert!(end.losers.is_superset(&new.losers), "{told}\nless is kept than after an undisturbed run");
        }
    }
}

#[test]
fn an_export() {
    sweep(Direction::Out, || {
        let workspace = family();
        elsewhere(&workspace, |writer| {
            let lock = |n| writer.lock(id(n), &Wait::none());
            writer.edit(&lock(B)?, |meta| meta.set_title(Some("Beatrix")))?;
            writer.reparent(&lock(C)?, Some(id(D)))?;
            writer.replace(&lock(A)?, ManagedFile::Events, b"[]\n")
        });
        // An edit by hand reaches the store first.
        fs::write(real(&workspace, D).join("events.json"), "[\n]\n").expect("written");
        workspace
    });
}

#[test]
fn an_import() {
    sweep(Direction::In, || {
        let workspace = family();
        let arrived = Sample::new(ARRIVED).title("Arrived").file("own.md", "mine\n");
        arrived.write(&workspace, Place::Workspace);
        fs::write(real(&workspace, B).join("events.json"), "[]\n").expect("written");
        fs::remove_dir_all(real(&workspace, D)).expect("removed");
        workspace
    });
}

/// The directories' names follow, in both roots, however far the store was.
#[test]
fn a_title_and_a_parent_edited_by_hand() {
    sweep(Direction::Both, || {
        let workspace = family();
        for (n, old, new) in [(B, "Berta", "Beatrix"), (C, &*B.to_string(), &*D.to_string())] {
            let path = real(&workspace, n).join("metadata.json");
            let text = fs::read_to_string(&path).expect("read");
            assert!(text.contains(old), "{text}");
            fs::write(&path, text.replace(old, new)).expect("written");
        }
        workspace
    });
}

/// A new name is a new title.
#[test]
fn renamed_by_hand() {
    sweep(Direction::Both, || {
        let workspace = family();
        for (n, name) in [(B, "beatrix"), (D, "dorothea")] {
            let dir = real(&workspace, n);
            fs::rename(&dir, dir.with_file_name(format!("{n}-{name}"))).expect("renamed");
        }
        workspace
    });
}

/// Another place is another parent. A directory that refuses to be listed may be that place, so nothing is taken for removed.
#[test]
fn moved_by_hand() {
    sweep(Direction::Both, || {
        let workspace = family();
        let (from, beneath) = (real(&workspace, C), real(&workspace, D).join("conversations"));
        fs::create_dir(&beneath).expect("made");
        fs::rename(&from, beneath.join(from.file_name().expect("a name"))).expect("moved");
        workspace
    });
}

#[test]
fn a_conflict() {
    sweep(Direction::Both, || {
        let workspace = family();
        for (n, later) in [(B, 2), (D, -2)] {
            let (work, store) = (real(&workspace, n), {
                let snapshot = writer(&workspace).store().snapshot().expect("seen");
                snapshot.get(id(n)).and_then(|found| found.store.clone()).expect("stored").dir
            });
            for (dir, text, at) in [(store, "[]\n", 0), (work, "[\n]\n", later)] {
                fs::write(dir.join("events.json"), text).expect("written");
                set_mtime(&dir.join("events.json"), BEFORE + (at + 10) * SECOND);
            }
        }
        workspace
    });
}
