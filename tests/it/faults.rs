//! Every I/O call of every kind of change fails in turn, and the process stops around each. Afterwards every conversation
//! is whole, old or new, never missing, never mixed; and doing it again ends where an undisturbed run ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jp_store::disk::{Disk, RealDisk};
use jp_store::journal::Change;
use jp_store::layout::Partition;
use jp_store::lock::Wait;
use jp_store::meta::Meta;
use jp_store::presence::Projection;
use jp_store::store::{Store, Surroundings};
use jp_store::writer::{Seed, Strategy};
use jp_store::{ConversationId, Error, Result};
use jp_tests::{FaultDisk, Place, Sample, TestEnv, Workspace};

const NOW: &str = "2026-08-20T12:00:00Z";
const BEFORE: i64 = 1_750_000_000_000_000_000;
/// No process has this number, so what it leaves behind is swept by the next writer.
const DEAD: u32 = 4_000_000;

const A: u64 = 17_528_832_001;
const B: u64 = 17_528_842_001;
const C: u64 = 17_528_852_001;
const D: u64 = 17_528_862_001;
const ARRIVED: u64 = 17_528_802_001;

fn id(n: u64) -> ConversationId {
    ConversationId::new(n).unwrap()
}

fn store_on(workspace: &Workspace, disk: Arc<dyn Disk>, pid: u32) -> Result<Store> {
    let around = Surroundings {
        disk,
        data_dir: Some(workspace.env().data()),
        pid,
        session: None,
        clock: Arc::new(|| NOW.parse().unwrap()),
        covered: Arc::new(|_| false),
    };
    Store::open(around, workspace.root())
}

fn real(workspace: &Workspace) -> Store {
    store_on(workspace, Arc::new(RealDisk::default()), std::process::id()).unwrap()
}

/// What a conversation is, as far as a user can tell.
#[derive(Clone, Debug, PartialEq)]
struct Whole {
    metadata: Option<Meta>,
    stream: (Option<String>, Option<String>),
    parent: Option<ConversationId>,
    partition: Partition,
}

/// Makes a disk on which call number n goes wrong.
type Fault = fn(usize) -> FaultDisk;

type World = BTreeMap<ConversationId, Whole>;

fn look(workspace: &Workspace) -> World {
    let store = real(workspace);
    let snapshot = store.snapshot().unwrap();
    let world = snapshot.all().map(|conversation| {
        let stream = store.stream(&snapshot, conversation).unwrap();
        let whole = Whole {
            metadata: conversation.meta.clone(),
            stream: (stream.events.map(text), stream.base_config.map(text)),
            parent: conversation.parent,
            partition: conversation.partition,
        };
        (conversation.id, whole)
    });
    world.collect()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

struct Story {
    name: &'static str,
    prepare: fn(&Workspace),
    change: fn(&Store) -> Result<()>,
}

/// Runs the story once without a fault, then with every fault there is.
fn sweep(story: &Story) {
    let fresh = || {
        let env = TestEnv::in_memory();
        let workspace = env.init_workspace("project", "otvo8");
        (story.prepare)(&workspace);
        workspace
    };
    let workspace = fresh();
    let old = look(&workspace);
    (story.change)(&real(&workspace)).unwrap_or_else(|error| panic!("{}: {error}", story.name));
    let new = look(&workspace);
    let files = work_files(&workspace);
    assert_ne!(old, new, "{}: the story changes nothing", story.name);

    let faults: [(&str, Fault); 5] = [
        ("EIO at", |n| FaultDisk::fail(n, libc::EIO)),
        ("ENOSPC at", |n| FaultDisk::fail(n, libc::ENOSPC)),
        ("stopped before", |n| FaultDisk::stop_before(n).counting_mutations()),
        ("stopped during", |n| FaultDisk::stop_during(n).counting_mutations()),
        ("stopped after", |n| FaultDisk::stop_after(n).counting_mutations()),
    ];
    for (fault, disk) in faults {
        for n in 1.. {
            let workspace = fresh();
            let disk = Arc::new(disk(n));
            let result = store_on(&workspace, disk.clone(), DEAD).and_then(|store| (story.change)(&store));
            if !disk.struck() {
                assert!(n > 5, "{}: {fault} {n} never happens", story.name);
                result.unwrap();
                break;
            }
            let told = format!("{}: {fault} call {n}\n{}", story.name, disk.log().join("\n"));
            whole(&look(&workspace), &old, &new, &told);
            again(&workspace, story, &told);
            assert_eq!(
                settled(look(&workspace), &old),
                settled(new.clone(), &old),
                "{told}\nnot as after an undisturbed run"
            );
            assert_eq!(
                named(work_files(&workspace), &old),
                named(files.clone(), &old),
                "{told}\nthe workspace differs"
            );
        }
    }
}

/// Each conversation is there and each unit is old or new.
fn whole(now: &World, old: &World, new: &World, told: &str) {
    let ids: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    for id in ids {
        let candidates: Vec<_> = [old.get(id), new.get(id)].into_iter().flatten().collect();
        let Some(found) = now.get(id) else {
            assert!(candidates.len() == 1, "{told}\n{id} is missing");
            continue;
        };
        let any = |same: &dyn Fn(&Whole) -> bool| candidates.iter().any(|candidate| same(candidate));
        assert!(any(&|c| c.stream == found.stream), "{told}\n{id} has a stream that is neither old nor new: {found:?}");
        assert!(found.metadata.is_some(), "{told}\n{id} has no metadata");
        assert!(any(&|c| c.parent == found.parent), "{told}\n{id} has the parent {:?}", found.parent);
        assert!(any(&|c| c.partition == found.partition), "{told}\n{id} is {:?}", found.partition);
        // A stamp that goes on before a move and comes off after it may be there without the move.
        let plain = |meta: &Option<Meta>| {
            let mut meta = meta.clone().unwrap();
            meta.set_archived_at(None);
            meta
        };
        assert!(
            any(&|c| plain(&c.metadata) == plain(&found.metadata)),
            "{told}\n{id} has metadata that is neither old nor new: {:?}",
            found.metadata
        );
    }
}

/// The world with new ids left out of it: one that was given out to a change that failed is not given out again.
fn settled(world: World, old: &World) -> (World, Vec<Whole>) {
    let (known, fresh): (Vec<_>, Vec<_>) = world.into_iter().partition(|(id, _)| old.contains_key(id));
    (known.into_iter().collect(), fresh.into_iter().map(|(_, whole)| whole).collect())
}

/// Files with new ids left out of their paths.
fn named(files: BTreeMap<PathBuf, String>, old: &World) -> BTreeMap<String, String> {
    let known = |part: &str| old.keys().any(|id| part.starts_with(&id.deciseconds().to_string()));
    let plain = |part: &str| match part.split_once('-') {
        Some((digits, slug)) if digits.bytes().all(|byte| byte.is_ascii_digit()) && !known(part) => slug.to_owned(),
        _ => part.to_owned(),
    };
    let rename = |path: PathBuf| path.to_str().unwrap().split('/').map(plain).collect::<Vec<_>>().join("/");
    files.into_iter().map(|(path, bytes)| (rename(path), bytes)).collect()
}

/// Does it again without a fault. That it is done already is fine.
fn again(workspace: &Workspace, story: &Story, told: &str) {
    match (story.change)(&real(workspace)) {
        Ok(()) | Err(Error::NotFound { .. } | Error::Refused(_)) => {}
        Err(error) => panic!("{told}\nand again: {error}: {:?}", std::error::Error::source(&error)),
    }
    let store = real(workspace);
    let (writer, _) = store.writer().unwrap();
    for conversation in store.snapshot().unwrap().all() {
        let guard = writer.lock(conversation.id, &Wait::none()).unwrap();
        writer.sync(&guard).unwrap_or_else(|error| panic!("{told}\nand sync: {error}"));
    }
    writer.tidy().unwrap();
}

/// The workspace's conversation files, with their bytes.
fn work_files(workspace: &Workspace) -> BTreeMap<PathBuf, String> {
    fn walk(dir: &Path, base: &Path, files: &mut BTreeMap<PathBuf, String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, base, files);
            } else {
                files.insert(path.strip_prefix(base).unwrap().to_owned(), fs::read_to_string(&path).unwrap());
            }
        }
    }
    let base = workspace.storage().join("conversations");
    let mut files = BTreeMap::new();
    if base.exists() {
        walk(&base, &base, &mut files);
    }
    files
}

/// A, with B beneath it and C beneath B, and D: all in both roots, and remembered as such.
fn family(workspace: &Workspace) {
    for sample in [
        Sample::new(A).title("Anna").mtime(BEFORE).key("unknown", 7.into()),
        Sample::new(B).title("Berta").parent(A).mtime(BEFORE).file("notes.md", "keep me\n"),
        Sample::new(C).title("Clara").parent(B).mtime(BEFORE),
        Sample::new(D).title("Dora").mtime(BEFORE),
    ] {
        sample.write(workspace, Place::Both);
    }
    let store = real(workspace);
    let (writer, _) = store.writer().unwrap();
    for n in [A, B, C, D] {
        let guard = writer.lock(id(n), &Wait::none()).unwrap();
        writer.sync(&guard).unwrap();
    }
}

fn work_dir(workspace: &Workspace, n: u64) -> PathBuf {
    real(workspace).snapshot().unwrap().get(id(n)).unwrap().work.clone().unwrap().dir
}

fn with_guard(
    store: &Store,
    n: u64,
    change: impl FnOnce(&jp_store::writer::Writer, &jp_store::lock::Guard) -> Result<()>,
) -> Result<()> {
    let (writer, _) = store.writer()?;
    let guard = writer.lock(id(n), &Wait::none())?;
    change(&writer, &guard)
}

#[test]
fn a_new_title() {
    sweep(&Story {
        name: "retitle",
        prepare: family,
        change: |store| {
            with_guard(store, B, |writer, guard| writer.edit(guard, |meta| meta.set_title(Some("Beatrix"))))
        },
    });
}

#[test]
fn both_files_of_a_stream_edited_in_the_workspace() {
    sweep(&Story {
        name: "stream import",
        prepare: |workspace| {
            family(workspace);
            let dir = work_dir(workspace, B);
            fs::write(dir.join("events.json"), "[]\n").unwrap();
            fs::write(dir.join("base_config.json"), "{\n  \"edited\": true\n}\n").unwrap();
            // The store's copy is what the old state shows until the edit is looked at; it never mixes with it.
        },
        change: |store| {
            with_guard(store, B, |writer, guard| writer.edit(guard, |meta| meta.set_title(Some("Beatrix"))))
        },
    });
}

#[test]
fn both_sides_edited() {
    sweep(&Story {
        name: "conflict",
        prepare: |workspace| {
            family(workspace);
            let (store, work) = {
                let snapshot = real(workspace).snapshot().unwrap();
                let found = snapshot.get(id(B)).unwrap();
                (found.store.clone().unwrap().dir, found.work.clone().unwrap().dir)
            };
            for (dir, text, at) in [(store, "[]\n", 2), (work, "[\n]\n", 3)] {
                fs::write(dir.join("events.json"), text).unwrap();
                fs::write(dir.join("base_config.json"), format!("{{\"side\": {at}}}\n")).unwrap();
                for name in ["events.json", "base_config.json"] {
                    jp_tests::set_mtime(&dir.join(name), BEFORE + at * 1_000_000_000);
                }
            }
        },
        change: |store| {
            with_guard(store, B, |writer, guard| writer.edit(guard, |meta| meta.set_title(Some("Beatrix"))))
        },
    });
}

#[test]
fn another_parent() {
    sweep(&Story {
        name: "reparent",
        prepare: family,
        change: |store| with_guard(store, B, |writer, guard| writer.reparent(guard, Some(id(D)))),
    });
}

#[test]
fn a_new_conversation() {
    sweep(&Story {
        name: "create",
        prepare: family,
        change: |store| {
            if store.snapshot()?.all().any(|found| found.title() == Some("New")) {
                return Ok(());
            }
            let mut meta = Meta::new(NOW.parse().unwrap());
            meta.set_title(Some("New"));
            let seed = Seed {
                meta,
                events: b"[]\n".to_vec(),
                base_config: Some(b"{}\n".to_vec()),
                parent: Some(id(C)),
                projection: Projection::Projected,
            };
            store.writer()?.0.create(seed).map(drop)
        },
    });
}

#[test]
fn hidden_after_an_edit_below() {
    sweep(&Story {
        name: "to local",
        prepare: |workspace| {
            family(workspace);
            let dir = work_dir(workspace, C);
            fs::write(dir.join("events.json"), "[]\n").unwrap();
            fs::write(dir.join("idea.txt"), "only here\n").unwrap();
        },
        change: |store| {
            let (writer, _) = store.writer()?;
            // A change that a look at the content can see, so that the sweep has an old and a new.
            let guard = writer.lock(id(D), &Wait::none())?;
            writer.edit(&guard, |meta| meta.set_title(Some("Dorothea")))?;
            drop(guard);
            writer.toggle(id(A), Projection::LocalOnly, &Wait::none())?;
            let idea = store.snapshot()?.get(id(C)).unwrap().store.clone().unwrap().dir.join("idea.txt");
            assert_eq!(fs::read(idea).unwrap(), b"only here\n");
            Ok(())
        },
    });
}

#[test]
fn shown_again() {
    sweep(&Story {
        name: "to projected",
        prepare: |workspace| {
            family(workspace);
            real(workspace).writer().unwrap().0.toggle(id(A), Projection::LocalOnly, &Wait::none()).unwrap();
        },
        change: |store| {
            let (writer, _) = store.writer()?;
            let guard = writer.lock(id(C), &Wait::none())?;
            writer.edit(&guard, |meta| meta.set_title(Some("Clarissa")))?;
            drop(guard);
            writer.toggle(id(C), Projection::Projected, &Wait::none()).map(drop)
        },
    });
}

#[test]
fn put_away_and_taken_out() {
    sweep(&Story {
        name: "archive",
        prepare: family,
        change: |store| store.writer()?.0.archive(id(B), &Wait::none()).map(drop),
    });
    sweep(&Story {
        name: "unarchive",
        prepare: |workspace| {
            family(workspace);
            real(workspace).writer().unwrap().0.archive(id(B), &Wait::none()).unwrap();
        },
        change: |store| store.writer()?.0.unarchive(id(B), &Wait::none()).map(drop),
    });
}

#[test]
fn removed() {
    sweep(&Story {
        name: "rm --promote",
        prepare: family,
        change: |store| store.writer()?.0.remove(id(B), Strategy::Promote, &Wait::none()).map(drop),
    });
    sweep(&Story {
        name: "rm --cascade",
        prepare: family,
        change: |store| store.writer()?.0.remove(id(B), Strategy::Cascade, &Wait::none()).map(drop),
    });
}

#[test]
fn a_mount_comes_and_goes() {
    sweep(&Story {
        name: "cover, change, uncover",
        prepare: |workspace| {
            Sample::new(A).title("Anna").mtime(BEFORE).write(workspace, Place::Both);
            Sample::new(B)
                .title("Berta")
                .parent(A)
                .mtime(BEFORE)
                .file("notes.md", "keep me\n")
                .write(workspace, Place::Both);
            let (writer, _) = real(workspace).writer().unwrap();
            for n in [A, B] {
                writer.sync(&writer.lock(id(n), &Wait::none()).unwrap()).unwrap();
            }
            fs::write(work_dir(workspace, A).join("events.json"), "[]\n").unwrap();
        },
        change: |store| {
            let (real, _) = store.writer()?;
            real.cover()?;
            let (writer, _) = store.covered().writer()?;
            // B lies in a directory that has to go, and has to be moved out of it first.
            writer.reparent(&writer.lock(id(B), &Wait::none())?, None)?;
            writer.note(&[Change::HideFile(id(B), "notes.md".to_owned()), Change::Hide(id(A))])?;
            real.uncover(&Wait::none()).map(drop)
        },
    });
}

#[test]
fn a_directory_is_taken_in() {
    sweep(&Story {
        name: "adopt",
        prepare: |workspace| {
            family(workspace);
            let from = real(workspace).layout().worktree_state().join("arrival");
            fs::create_dir(&from).unwrap();
            for (name, bytes) in Sample::new(ARRIVED).title("Arrived").parent(D).file("own.md", "mine\n").contents() {
                fs::write(from.join(name), bytes).unwrap();
            }
        },
        change: |store| {
            let from = store.layout().worktree_state().join("arrival");
            with_guard(store, ARRIVED, |writer, guard| writer.adopt(guard, &from, Some(id(B))).map(drop))
        },
    });
}

#[test]
fn several_silos_and_a_workspace_of_its_own() {
    sweep(&Story {
        name: "migrate",
        prepare: |workspace| {
            let silos = workspace.env().data().join("workspace");
            let flat = |silo: &str, sample: Sample| {
                let dir = silos.join(silo).join("conversations");
                fs::create_dir_all(&dir).unwrap();
                sample.write_below(&dir);
            };
            flat("project-otvo8", Sample::new(A).title("Anna").mtime(BEFORE));
            flat("feature-otvo8", Sample::new(A).title("Anna, later").mtime(BEFORE + 9).events(1));
            flat("feature-otvo8", Sample::new(B).title("Berta").parent(A).file("notes.md", "keep me\n"));
            flat("otvo8", Sample::new(C).title("Clara").mtime(BEFORE).archived());
            fs::create_dir_all(silos.join("feature-otvo8/sessions")).unwrap();
            fs::write(silos.join("feature-otvo8/approvals.json"), "{}").unwrap();
            Sample::new(D).title("Dora").write(workspace, Place::Workspace);
        },
        change: |store| {
            let (writer, _) = store.writer()?;
            writer.import_all()?;
            let guard = writer.lock(id(D), &Wait::none())?;
            writer.edit(&guard, |meta| meta.set_title(Some("Dorothea")))
        },
    });
}

#[test]
fn what_cannot_be_added_whole_is_taken_back() {
    if !nix::unistd::geteuid().is_root() {
        jp_tests::skip("only root can make a small disk");
        return;
    }
    let env = TestEnv::in_memory();
    let small = jp_tests::SmallDisk::new(&env.data(), "64k");
    let disk = RealDisk::beneath(&env.data()).expect("a directory");
    let path = env.data().join("journal");
    disk.append(&path, b"first\n").expect("there is room");
    small.fill();
    let mut whole = b"first\n".to_vec();
    let line = [vec![b'x'; 1000], vec![b'\n']].concat();
    // The rest of the block is the file's already.
    while disk.append(&path, &line).is_ok() {
        whole.extend(&line);
    }
    assert!(whole.len() > 1000 && fs::read(&path).expect("read") == whole, "a part of a line stayed behind");
    small.clear();
    disk.append(&path, b"last\n").expect("there is room");
    assert_eq!(fs::read(&path).expect("read"), [whole, b"last\n".to_vec()].concat());
}
