//! A new title or parent beneath a mount, without a look at everything. A twin on which everything is looked at is the
//! measure; then what is wrong with a disk, and who comes in between.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::thread;

use jp_store::books::Books;
use jp_store::disk::{Disk, RealDisk};
use jp_store::document::Document;
use jp_store::journal::Change;
use jp_store::layout::managed;
use jp_store::lock::Wait;
use jp_store::reconcile::ManagedFile;
use jp_store::store::{Store, Surroundings};
use jp_store::writer::{Known, Reshaped, Shape, Writer};
use jp_store::{ConversationId, Error, Result};
use jp_tests::{FaultDisk, Place, Random, Sample, Shot, TestEnv, Workspace, pretty};
use serde_json::{Value, json};

const SEEDS: u64 = 12;
const STEPS: usize = 40;
const FIRST: u64 = 17_528_832_001;
const COUNT: u64 = 9;
const BEFORE: i64 = 1_750_000_000_000_000_000;
/// No process has this number, so what it leaves behind is swept by the next writer.
const DEAD: u32 = 4_000_000;

fn id(n: u64) -> ConversationId {
    ConversationId::new(FIRST + 10 * n).expect("an id")
}

fn covered(workspace: &Workspace, disk: Arc<dyn Disk>, pid: u32) -> Result<Store> {
    let around = Surroundings {
        disk,
        data_dir: Some(workspace.env().data()),
        pid,
        session: None,
        clock: Arc::new(|| "2026-08-20T12:00:00Z".parse().expect("a time")),
        covered: Arc::new(|_| true),
    };
    Store::open(around, workspace.root())
}

fn writer(workspace: &Workspace) -> Writer {
    covered(workspace, Arc::new(RealDisk::default()), std::process::id())
        .and_then(|store| store.writer())
        .expect("ready")
        .0
}

/// As a mount does it, which knows where everything is from having looked.
fn reshape(writer: &Writer, n: u64, shape: Shape<'_>) -> Result<Option<Reshaped>> {
    let (snapshot, books) = writer.store().snapshot_with_books()?;
    let dir = |id| Some(snapshot.get(id)?.store.as_ref()?.dir.clone());
    let guard = writer.lock(id(n), &Wait::none())?;
    writer.reshape(&guard, shape, Known { books: &books, dir: &dir, about: &|_, _| () })
}

/// The same by way of a look at everything.
fn slowly(writer: &Writer, n: u64, shape: Shape<'_>) -> Result<()> {
    let guard = writer.lock(id(n), &Wait::none())?;
    match shape {
        Shape::Place { parent, title } => {
            if let Some(parent) = parent {
                writer.reparent(&guard, parent)?;
            }
            match title {
                Some(title) => writer.edit(&guard, |meta| meta.set_title(title)),
                None => Ok(()),
            }
        }
        Shape::Bytes(bytes) => writer.replace(&guard, ManagedFile::Metadata, bytes),
    }
}

/// A family with what may be odd about one: hidden, archived, without a parent key, with one that is garbage or of nobody.
fn family(workspace: &Workspace) {
    for n in 0..COUNT {
        let mut sample = Sample::new(id(n).deciseconds()).title(&format!("Title {n}")).key("unknown", json!([n]));
        sample = match n {
            1 | 2 => sample.parent(id(0).deciseconds()),
            3 => sample.parent(id(2).deciseconds()),
            4 => sample.key("parent_id", json!({ "odd": true })),
            5 => sample.parent(FIRST + 7),
            6 => sample.archived(),
            _ => sample,
        };
        sample.mtime(BEFORE).write(workspace, Place::User);
    }
    fs::create_dir_all(workspace.storage().join("conversations")).expect("a workspace takes a directory");
    let writer = writer(workspace);
    let shown: Vec<_> = (0..COUNT).filter(|n| *n != 7 && *n != 8).map(|n| Change::Show(id(n))).collect();
    writer.note(&shown).expect("noted");
    writer.note(&[Change::Hide(id(7))]).expect("noted");
}

/// What is on disk, as far as it does not say when or where.
#[derive(Debug, PartialEq)]
struct Look {
    ledger: BTreeMap<ConversationId, String>,
    mirror: Value,
}

fn look(writer: &Writer) -> Look {
    let ledger = writer.store().read_ledger().expect("read");
    let mirror = writer.store().mirror().expect("read");
    Look {
        ledger: ledger.entries().map(|(id, entry)| (id, format!("{entry:?}"))).collect(),
        mirror: serde_json::to_value(mirror).expect("plain values"),
    }
}

fn conversations(workspace: &Workspace) -> Shot {
    Shot::of(&workspace.silo().join("conversations")).without_mtimes()
}

fn stored(writer: &Writer, n: u64) -> PathBuf {
    writer.store().snapshot().expect("looked").find(id(n)).expect("there").store.clone().expect("in the store").dir
}

fn metadata(writer: &Writer, n: u64) -> Value {
    let bytes = fs::read(managed(&stored(writer, n), ManagedFile::Metadata)).expect("read");
    serde_json::from_slice(&bytes).expect("metadata is JSON")
}

#[test]
fn ends_as_a_look_at_everything_does() {
    let (mut quick, mut all) = (0, 0);
    for seed in 0..SEEDS {
        let envs = [(); 2].map(|()| TestEnv::in_memory());
        let [fast, slow] = envs.each_ref().map(|env| env.init_workspace("project", "otvo8"));
        family(&fast);
        family(&slow);
        let (one, other) = (writer(&fast), writer(&slow));
        let mut random = Random::new(seed + 1);
        for step in 0..STEPS {
            let told = format!("seed {seed}, step {step}");
            let n = random.below(COUNT);
            if random.below(6) == 0 {
                // Another program drops what it does not know.
                for writer in [&one, &other] {
                    let mut meta = metadata(writer, n);
                    let keys = meta.as_object_mut().expect("an object");
                    keys.remove("parent_id");
                    keys.remove("origin");
                    let path = managed(&stored(writer, n), ManagedFile::Metadata);
                    fs::write(path, pretty(&meta)).expect("written");
                }
            }
            let parent = match random.below(4) {
                0 => None,
                _ => Some(id(random.below(COUNT))),
            };
            let title = ["Other", "A b", "", "Other"][random.below(4) as usize];
            let title = (!title.is_empty()).then_some(title);
            let bytes = {
                let mut meta = metadata(&one, n);
                match random.below(5) {
                    0 => meta["parent_id"] = json!(parent),
                    1 => drop(meta.as_object_mut().expect("an object").remove("parent_id")),
                    2 => meta["origin"] = json!("elsewhere"),
                    3 => meta["parent_id"] = json!([1]),
                    _ => meta["labels"] = json!({ "step": step.to_string() }),
                }
                meta["title"] = json!(title);
                pretty(&meta)
            };
            let shape = match random.below(4) {
                0 => Shape::Place { parent: Some(parent), title: None },
                1 => Shape::Place { parent: None, title: Some(title) },
                2 => Shape::Place { parent: Some(parent), title: Some(title) },
                _ => Shape::Bytes(&bytes),
            };
            let before = conversations(&fast);
            let result = match reshape(&one, n, shape) {
                Ok(Some(done)) => {
                    let snapshot = one.store().snapshot().expect("looked");
                    let found = snapshot.find(id(n)).expect("there");
                    assert_eq!(found.store.as_ref().map(|place| &place.dir), Some(&done.dir), "{told}: {shape:?}");
                    assert_eq!(
                        (found.title(), found.parent),
                        (done.title.as_deref(), done.parent),
                        "{told}: {shape:?}"
                    );
                    quick += 1;
                    Ok(())
                }
                Ok(None) => {
                    before.assert_same(&conversations(&fast));
                    slowly(&one, n, shape)
                }
                Err(error) => Err(error),
            };
            all += 1;
            let expected = slowly(&other, n, shape);
            let text = |result: Result<()>| result.map_err(|error| error.to_string());
            assert_eq!(text(result), text(expected), "{told}: {shape:?}");
            conversations(&slow).assert_same(&conversations(&fast));
            assert_eq!(look(&one), look(&other), "{told}: {shape:?}");
        }
        one.fold().expect("folded");
        assert_eq!(look(&one), look(&other), "seed {seed}: folded");
        assert!(!fast.silo().join("vfs/tree.journal").exists());
    }
    assert!(quick * 3 > all, "the quick way is taken {quick} times of {all}");
}

#[test]
fn a_doubt_leaves_everything_alone() {
    let doubt = |what: &str, n: u64, shape: Shape<'_>, spoil: &dyn Fn(&Workspace, &Writer)| {
        let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
        family(&workspace);
        let writer = writer(&workspace);
        let (snapshot, books) = writer.store().snapshot_with_books().expect("looked");
        let dir = |id| Some(snapshot.get(id)?.store.as_ref()?.dir.clone());
        spoil(&workspace, &writer);
        let before = conversations(&workspace);
        let guard = writer.lock(id(n), &Wait::none()).expect("free");
        let done =
            writer.reshape(&guard, shape, Known { books: &books, dir: &dir, about: &|_, _| () }).expect("no failure");
        assert_eq!(done, None, "{what}");
        before.assert_same(&conversations(&workspace));
    };
    let beneath = |n| Shape::Place { parent: Some(Some(id(n))), title: None };
    let titled = Shape::Place { parent: None, title: Some(Some("Other")) };
    let nothing: &dyn Fn(&Workspace, &Writer) = &|_, _| {};
    doubt("beneath itself", 0, beneath(3), nothing);
    doubt("beneath one that is archived", 1, beneath(6), nothing);
    doubt("beneath one that is hidden", 1, beneath(7), nothing);
    doubt("beneath one whose parent is not there", 1, beneath(5), nothing);
    doubt("one that the ledger does not know", 8, titled, nothing);
    doubt("the books have moved on", 1, titled, &|_, writer| {
        writer.note(&[Change::Hide(id(2))]).expect("noted");
    });
    doubt("its directory has another name", 1, titled, &|_, writer| {
        let dir = stored(writer, 1);
        fs::rename(&dir, dir.with_file_name(format!("{}-elsewhere", id(1).deciseconds()))).expect("renamed");
    });
    doubt("something has the name it gets", 1, titled, &|_, writer| {
        let dir = stored(writer, 1);
        fs::create_dir(dir.with_file_name(format!("{}-other", id(1).deciseconds()))).expect("made");
    });
    doubt("the parent's metadata is broken", 1, beneath(4), &|_, writer| {
        fs::write(managed(&stored(writer, 4), ManagedFile::Metadata), "{").expect("written");
    });
    doubt("its own metadata is broken", 1, titled, &|_, writer| {
        fs::write(managed(&stored(writer, 1), ManagedFile::Metadata), "{").expect("written");
    });
    doubt("the mirror is broken", 1, titled, &|workspace, _| {
        fs::write(workspace.silo().join("vfs/tree.json"), "{").expect("written");
    });
}

#[test]
fn a_lock_that_is_gone_stops_it() {
    let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
    family(&workspace);
    let writer = writer(&workspace);
    let (snapshot, books) = writer.store().snapshot_with_books().expect("looked");
    let dir = |id| Some(snapshot.get(id)?.store.as_ref()?.dir.clone());
    let guard = writer.lock(id(1), &Wait::none()).expect("free");
    fs::remove_file(guard.path()).expect("removed");
    let before = conversations(&workspace);
    let shape = Shape::Place { parent: Some(None), title: None };
    let refused = writer.reshape(&guard, shape, Known { books: &books, dir: &dir, about: &|_, _| () });
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    before.assert_same(&conversations(&workspace));
}

/// What a user can tell of a conversation: where it hangs and what it is called.
fn told(workspace: &Workspace, n: u64) -> (Option<ConversationId>, Option<String>) {
    let store = covered(workspace, Arc::new(RealDisk::default()), std::process::id()).expect("opened");
    let snapshot = store.snapshot().expect("looked");
    assert_eq!(snapshot.all().count() as u64, COUNT);
    let found = snapshot.find(id(n)).expect("there");
    (found.parent, found.title().map(ToOwned::to_owned))
}

#[test]
fn every_call_fails_and_the_process_stops_around_each() {
    type Fault = fn(usize) -> FaultDisk;
    let faults: [(&str, Fault); 4] = [
        ("EIO at", |n| FaultDisk::fail(n, libc::EIO)),
        ("stopped before", |n| FaultDisk::stop_before(n).counting_mutations()),
        ("stopped during", |n| FaultDisk::stop_during(n).counting_mutations()),
        ("stopped after", |n| FaultDisk::stop_after(n).counting_mutations()),
    ];
    let shape = Shape::Place { parent: Some(Some(id(4))), title: Some(Some("Other")) };
    let new = (Some(id(4)), Some("Other".to_owned()));
    for (fault, disk) in faults {
        for nth in 1.. {
            let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
            family(&workspace);
            let old = told(&workspace, 3);
            let others: Vec<_> = (0..COUNT).filter(|n| *n != 3).map(|n| told(&workspace, n)).collect();
            let disk = Arc::new(disk(nth));
            let all = || -> Result<Option<Reshaped>> {
                let (writer, _) = covered(&workspace, disk.clone(), DEAD)?.writer()?;
                let writer = writer.putting_off();
                let done = reshape(&writer, 3, shape)?;
                writer.catch_up()?;
                writer.fold()?;
                Ok(done)
            };
            let result = all();
            if !disk.struck() {
                assert!(nth > 5, "{fault} {nth} never happens");
                assert!(result.expect("nothing is wrong").is_some());
                break;
            }
            let log = format!("{fault} call {nth}\n{}", disk.log().join("\n"));
            let now = told(&workspace, 3);
            let mixed = (new.0, old.1.clone());
            assert!(now == old || now == new || now == mixed, "{log}\n{now:?}");
            // A second time ends where an undisturbed run ends.
            let writer = writer(&workspace);
            let done = reshape(&writer, 3, shape).expect("the disk is well");
            assert!(done.is_some(), "{log}");
            assert_eq!(told(&workspace, 3), new, "{log}");
            assert_eq!(
                others,
                (0..COUNT).filter(|n| *n != 3).map(|n| told(&workspace, n)).collect::<Vec<_>>(),
                "{log}"
            );
            assert_eq!(writer.store().mirror().expect("read").parent(id(3)), Some(id(4)), "{log}");
            assert!(stored(&writer, 3).ends_with(format!("{}-other", id(3).deciseconds())), "{log}");
        }
    }
}

#[test]
fn two_that_move_beneath_each_other_make_no_circle() {
    for round in 0..20 {
        let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
        family(&workspace);
        let start = Arc::new(Barrier::new(2));
        let movers = [(1, 2), (2, 1)].map(|(n, parent)| {
            let (writer, start) = (writer(&workspace), start.clone());
            thread::spawn(move || {
                start.wait();
                let shape = Shape::Place { parent: Some(Some(id(parent))), title: None };
                match reshape(&writer, n, shape).expect("no failure") {
                    Some(_) => Ok(()),
                    None => slowly(&writer, n, shape),
                }
            })
        });
        let results = movers.map(|mover| mover.join().expect("no panic"));
        let refused = results.iter().filter(|result| matches!(result, Err(Error::Refused(_)))).count();
        assert_eq!(refused, 1, "round {round}: {results:?}");
        let (one, other) = (told(&workspace, 1).0, told(&workspace, 2).0);
        assert!((one, other) == (Some(id(2)), Some(id(0))) || (one, other) == (Some(id(0)), Some(id(1))));
    }
}

#[test]
fn the_books_are_followed_line_by_line() {
    let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
    family(&workspace);
    let writer = writer(&workspace);
    let store = writer.store();
    let (_, mut books) = store.snapshot_with_books().expect("looked");
    let check = |books: &mut Books, expected: &[u64]| {
        let changed = books.follow(store).expect("followed");
        assert!(expected.iter().all(|n| changed.contains(&id(*n))), "{changed:?}");
        assert_eq!(books.mirror, store.mirror().expect("read"));
        assert_eq!(books.ledger, store.read_ledger().expect("read"));
        assert!(books.is_current(store).expect("looked") && books.follow(store).expect("followed").is_empty());
    };
    check(&mut books, &[]);
    let beneath = |parent: Option<u64>| Shape::Place { parent: Some(parent.map(id)), title: None };
    assert!(reshape(&writer, 1, beneath(Some(3))).expect("moved").is_some());
    check(&mut books, &[1]);
    assert!(reshape(&writer, 3, beneath(None)).expect("moved").is_some());
    writer.note(&[Change::Hide(id(2)), Change::HideFile(id(1), "a".to_owned())]).expect("noted");
    check(&mut books, &[1, 2, 3]);
    writer.fold().expect("folded");
    check(&mut books, &[]);
    // Whoever looks at everything writes the whole file, with what the journal had.
    assert!(reshape(&writer, 1, beneath(Some(4))).expect("moved").is_some());
    slowly(&writer, 3, beneath(Some(4))).expect("moved");
    check(&mut books, &[1, 3]);
    let journal = store.layout().store.tree_journal();
    assert!(!journal.exists());
    // An append that was cut short is passed over, and what comes after it is not.
    assert!(reshape(&writer, 1, beneath(None)).expect("moved").is_some());
    let torn = fs::read(&journal).expect("read");
    fs::write(&journal, [&torn[..], &torn[..torn.len() / 2]].concat()).expect("written");
    check(&mut books, &[1]);
    assert!(reshape(&writer, 2, beneath(Some(4))).expect("moved").is_some());
    check(&mut books, &[2]);
}

/// What was brought to disk, in order, of what the log of a disk has from here on.
fn synced(disk: &FaultDisk, from: usize) -> Vec<String> {
    let log = disk.log();
    let synced = log[from..].iter().filter(|line| line.starts_with("sync_"));
    synced.map(|line| Path::new(line).file_name().unwrap_or_default().to_string_lossy().into_owned()).collect()
}

#[test]
fn names_reach_the_disk_when_somebody_catches_up() {
    let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
    family(&workspace);
    let disk = Arc::new(FaultDisk::new());
    let (writer, _) = covered(&workspace, disk.clone(), std::process::id()).and_then(|s| s.writer()).expect("ready");
    let writer = writer.putting_off();
    let dir = stored(&writer, 1);
    let mark = Cell::new(disk.log().len());
    let since = || synced(&disk, mark.replace(disk.log().len()));
    let name = |dir: &Path| dir.file_name().expect("a name").to_string_lossy().into_owned();
    let save = |text: &str| {
        let guard = writer.lock(id(1), &Wait::none()).expect("free");
        let document = Document::of(ManagedFile::Events, text.as_bytes()).expect("a document");
        writer.save(&guard, &dir, document, &|_| ()).expect("saved");
    };
    // The first lock makes the directory for locks.
    save("[  ]");
    writer.catch_up().expect("caught up");
    mark.set(disk.log().len());
    save("[]");
    assert_eq!(since(), Vec::<String>::new(), "only the file itself is brought to disk at once");
    writer.catch_up_on(&dir).expect("caught up");
    assert_eq!(since(), [name(&dir)]);
    writer.catch_up().expect("caught up");
    assert_eq!(since(), Vec::<String>::new(), "once is enough");
    save("[ ]");
    let shape = Shape::Place { parent: Some(Some(id(4))), title: Some(Some("Other")) };
    let done = reshape(&writer, 1, shape).expect("moved").expect("quickly");
    mark.set(disk.log().len());
    writer.catch_up().expect("caught up");
    let mut all = since();
    all.sort();
    let mut expected = vec![name(&done.dir), name(&dir), "conversations".into(), "tree.journal".into(), "vfs".into()];
    expected.sort();
    assert_eq!(all, expected);
}

#[test]
fn what_does_not_reach_the_disk_goes_on_waiting() {
    // The call that brings the directory to disk, counted on a disk that is well.
    let run = |disk: Arc<FaultDisk>| {
        let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
        family(&workspace);
        let (writer, _) =
            covered(&workspace, disk.clone(), std::process::id()).and_then(|s| s.writer()).expect("ready");
        let writer = writer.putting_off();
        let dir = stored(&writer, 1);
        let guard = writer.lock(id(1), &Wait::none()).expect("free");
        let document = Document::of(ManagedFile::Events, b"[ ]").expect("a document");
        writer.save(&guard, &dir, document, &|_| ()).expect("saved");
        let before = disk.calls();
        let first = writer.catch_up_on(&dir).is_ok();
        let second = writer.catch_up();
        second.expect("the second time the disk is well");
        (before, first, synced(&disk, before).len())
    };
    let (before, first, count) = run(Arc::new(FaultDisk::new()));
    assert_eq!((first, count), (true, 1));
    let (_, first, count) = run(Arc::new(FaultDisk::fail(before + 1, libc::EIO)));
    assert_eq!((first, count), (false, 2));
}
