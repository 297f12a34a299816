//! What a mount asks of a writer, on real directories: one file saved, a directory taken in, intents noted, and real
//! files that nobody touches while they are covered.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;

use super::{ReadyFile, Seed, Writer};
use crate::disk::{RealDisk, Stat};
use crate::document::Document;
use crate::error::{Error, Result};
use crate::id::ConversationId;
use crate::journal::Change;
use crate::layout::Partition;
use crate::ledger::Ledger;
use crate::lock::{Guard, Holder, Wait};
use crate::meta::Meta;
use crate::presence::{Projection, StoragePresence};
use crate::reconcile::ManagedFile;
use crate::store::{Store, Surroundings};

struct World {
    dir: TempDir,
}

impl World {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir_all(dir.path().join("project/.jp/conversations")).unwrap();
        fs::write(dir.path().join("project/.jp/.id"), "otvo8\n").unwrap();
        Self { dir }
    }

    fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    fn work(&self) -> PathBuf {
        self.project().join(".jp/conversations")
    }

    fn store(&self, covered: bool) -> Store {
        let around = Surroundings {
            disk: Arc::new(RealDisk::default()),
            data_dir: Some(self.dir.path().join("data")),
            pid: std::process::id(),
            session: None,
            clock: Arc::new(|| "2026-08-20T12:00:00Z".parse().unwrap()),
            covered: Arc::new(move |path| covered && path.ends_with("project/.jp/conversations")),
        };
        Store::open(around, &self.project()).unwrap()
    }

    fn writer(&self, covered: bool) -> Writer {
        self.store(covered).writer().unwrap().0
    }

    /// Every path of the workspace with its bytes.
    fn shot(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        shot(&self.work())
    }

    fn arrival(&self, files: &[(&str, &str)]) -> PathBuf {
        let dir = self.store(true).layout().worktree_state().join("scratch/arrival");
        fs::create_dir_all(&dir).unwrap();
        for (name, text) in files {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }
}

fn shot(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let (mut found, mut open) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path.clone());
            }
            found.insert(path.clone(), fs::read(&path).ok());
        }
    }
    found
}

fn seed(title: &str, parent: Option<ConversationId>, projection: Projection) -> Seed {
    let mut meta = Meta::new("2025-07-19T00:00:00Z".parse().unwrap());
    meta.set_title(Some(title));
    Seed { meta, events: b"[]".to_vec(), base_config: Some(b"{}".to_vec()), parent, projection }
}

fn make(writer: &Writer, title: &str, parent: Option<ConversationId>) -> ConversationId {
    writer.create(seed(title, parent, Projection::Projected)).unwrap().id()
}

fn lock(writer: &Writer, id: ConversationId) -> Guard {
    writer.lock(id, &Wait::none()).unwrap()
}

fn dir_of(writer: &Writer, id: ConversationId) -> PathBuf {
    writer.store().snapshot().unwrap().find(id).unwrap().store.clone().unwrap().dir
}

const METADATA: &str = r#"{"last_activated_at": "2025-07-19 00:00:00.0"}"#;

#[test]
fn saving_by_handing_a_file_over() {
    let world = World::new();
    let writer = world.writer(true);
    let id = make(&writer, "A", None);
    let dir = dir_of(&writer, id);
    let guard = lock(&writer, id);
    let (from, path) = (writer.store().layout().worktree_state().join("from"), dir.join("events.json"));
    let mode = fs::metadata(&path).unwrap().permissions();
    let then = fs::metadata(&path).unwrap().modified().unwrap();
    let document = Document::of(ManagedFile::Events, b"[  ]").unwrap();
    let hand = |bytes: &[u8], change: &dyn Fn(&fs::File)| {
        fs::write(&from, bytes).unwrap();
        let file = fs::File::options().write(true).open(&from).unwrap();
        file.set_permissions(mode.clone()).unwrap();
        change(&file);
        let ready = ReadyFile { path: &from, on_disk: false };
        let done = writer.save_file(&guard, &dir, document, ready, &|_| ()).unwrap();
        assert_eq!(done, !from.exists());
        done
    };
    let before = shot(&dir);
    assert!(!hand(b"[ ]", &|_| ()), "another length");
    let second = std::time::Duration::from_secs(1);
    assert!(!hand(b"[  ]", &|file| file.set_modified(then - second).unwrap()), "an older time");
    assert_eq!(shot(&dir), before);
    let open = fs::Permissions::from_mode(0o777);
    assert!(hand(b"[  ]", &|file| file.set_permissions(open.clone()).unwrap()), "other permissions");
    assert_eq!(fs::metadata(&path).unwrap().permissions(), mode, "the file's own permissions stay");
    assert!(hand(b"[  ]", &|file| file.set_modified(then + 3600 * second).unwrap()));
    assert_eq!(fs::read(&path).unwrap(), b"[  ]");
}

#[test]
fn saving_one_file() {
    let world = World::new();
    let writer = world.writer(true);
    let id = make(&writer, "A", None);
    let dir = dir_of(&writer, id);
    let guard = lock(&writer, id);
    let save = |dir: &Path, bytes: &[u8]| {
        let told = Cell::new(None);
        let document = Document::of(ManagedFile::Events, bytes).unwrap();
        writer.save(&guard, dir, document, &|stat| told.set(Some(*stat))).map(|()| told.get())
    };
    let told = save(&dir, b"[ ]").unwrap();
    // It is told before it has its name, and to get that is a change too.
    let timeless = |stat: Stat| Stat { ctime: 0, ..stat };
    let stat = writer.store().disk().stat(&dir.join("events.json")).unwrap();
    assert_eq!(told.map(timeless), Some(timeless(stat)));
    assert_eq!(fs::read(dir.join("events.json")).unwrap(), b"[ ]");

    let before = shot(&dir);
    assert!(Document::of(ManagedFile::Events, b"[ ").is_err() && Document::of(ManagedFile::Metadata, b"{}").is_err());
    let elsewhere = dir.with_file_name("17528832001-other");
    assert!(matches!(save(&elsewhere, b"[]"), Err(Error::Malformed { .. })));
    let gone = dir.with_file_name(format!("{}-gone", id.deciseconds()));
    match save(&gone, b"[]") {
        Err(Error::Io { source, .. }) => assert_eq!(source.kind(), std::io::ErrorKind::NotFound),
        other => panic!("{other:?}"),
    }
    assert!(!gone.exists());
    fs::remove_file(guard.path()).unwrap();
    assert!(matches!(save(&dir, b"[]"), Err(Error::Locked { .. })));
    assert_eq!(shot(&dir), before);
}

#[test]
fn notes_are_read_back_and_folded() {
    let world = World::new();
    let writer = world.writer(true);
    let (a, b) = (make(&writer, "A", None), make(&writer, "B", None));
    let layout = writer.store().layout().clone();
    let told = |writer: &Writer| {
        let ledger = writer.store().snapshot().unwrap().ledger;
        [a, b].map(|id| ledger.get(id).map(|entry| (entry.intent, entry.hidden.len())))
    };
    let before = fs::read(layout.projection_file()).unwrap();
    writer.note(&[Change::Hide(a), Change::HideFile(b, "notes.md".to_owned())]).unwrap();
    let expected = [Some((Projection::LocalOnly, 0)), Some((Projection::Projected, 1))];
    assert_eq!(told(&writer), expected);
    assert_eq!(fs::read(layout.projection_file()).unwrap(), before, "one append and nothing else");
    let journal = fs::read(layout.journal_file()).unwrap();
    writer.fold().unwrap();
    assert_eq!(told(&writer), expected);
    assert!(!layout.journal_file().exists());

    // Cut short between the ledger and its journal: what the ledger says now holds.
    writer.toggle(a, Projection::Projected, &Wait::none()).unwrap();
    fs::write(layout.journal_file(), &journal).unwrap();
    assert_eq!(told(&writer), [Some((Projection::Projected, 0)), Some((Projection::Projected, 1))]);

    // A change of the whole ledger takes the journal with it, and what was hidden stays hidden.
    writer.note(&[Change::HideFile(a, "x".to_owned())]).unwrap();
    writer.edit(&lock(&writer, b), |meta| meta.set_title(Some("Other"))).unwrap();
    writer.create(seed("C", None, Projection::LocalOnly)).map(drop).unwrap();
    assert!(!layout.journal_file().exists());
    assert_eq!(told(&writer), [Some((Projection::Projected, 1)), Some((Projection::Projected, 1))]);
}

#[test]
fn a_note_without_a_ledger() {
    let world = World::new();
    let writer = world.writer(true);
    let id = ConversationId::new(17528832001).unwrap();
    writer.note(&[Change::Show(id)]).unwrap();
    let ledger: Ledger = writer.store().snapshot().unwrap().ledger;
    assert_eq!(ledger.get(id).map(|entry| entry.intent), Some(Projection::Projected));
}

/// Puts a directory with this metadata beneath a parent; returns the parent it has then, and whether its bytes are the
/// same.
fn adopted(world: &World, metadata: &str, parent: Option<ConversationId>) -> Result<(Option<ConversationId>, bool)> {
    let writer = world.writer(true);
    let id = ConversationId::new(17528832001).unwrap();
    let from = world.arrival(&[("metadata.json", metadata), ("events.json", "[]"), ("own/notes.md", "mine")]);
    writer.adopt(&lock(&writer, id), &from, parent)?;
    assert!(!from.exists());
    let snapshot = writer.store().snapshot()?;
    let found = snapshot.find(id)?;
    assert_eq!((found.presence, found.partition), (StoragePresence::Projected, Partition::Live));
    let dir = dir_of(&writer, id);
    assert_eq!(dir.file_name().unwrap().to_str().unwrap(), id.dirname(found.title()));
    assert_eq!(fs::read_to_string(dir.join("own/notes.md")).unwrap(), "mine");
    let same = fs::read_to_string(dir.join("metadata.json")).unwrap() == metadata;
    let parent = snapshot.tree(Partition::Live).parent(id);
    writer.remove(id, super::Strategy::Refuse, &Wait::none())?;
    Ok((parent, same))
}

#[test]
fn a_directory_is_taken_in_where_it_lies() {
    let world = World::new();
    let writer = world.writer(true);
    let (a, b) = (make(&writer, "A", None), make(&writer, "B", None));
    let naming = |parent: String| METADATA.replace('}', &format!(r#", "title": "T", "parent_id": {parent}}}"#));
    let number = |id: ConversationId| id.deciseconds().to_string();
    for (metadata, parent, same) in [
        (METADATA.to_owned(), None, true),
        (METADATA.to_owned(), Some(a), true),
        (naming(number(a)), Some(a), true),
        (naming(number(a)), Some(b), false),
        (naming(number(a)), None, false),
        (naming("null".to_owned()), None, true),
        (naming("null".to_owned()), Some(b), false),
        (naming("\"?\"".to_owned()), Some(b), true),
        (naming("17528832009".to_owned()), None, false),
    ] {
        let got = adopted(&world, &metadata, parent).unwrap();
        assert_eq!(got, (parent, same), "{metadata} beneath {parent:?}");
    }
    assert_eq!(world.shot(), BTreeMap::new());
}

#[test]
fn what_is_not_taken_in_stays() {
    let world = World::new();
    let writer = world.writer(true);
    let (a, archived) = (make(&writer, "A", None), make(&writer, "B", None));
    writer.archive(archived, &Wait::none()).unwrap();
    let new = ConversationId::new(17528832001).unwrap();
    // A names the newcomer as its parent.
    writer.edit(&lock(&writer, a), |meta| meta.set_parent(crate::meta::Parent::Of(new))).unwrap();
    let trashed = ConversationId::new(17528832002).unwrap();
    fs::create_dir_all(writer.store().layout().store.trash().join("17528832002-x")).unwrap();
    let good = [("metadata.json", METADATA), ("events.json", "[]")];
    let check = |id, files: &[(&str, &str)], parent, expected: &str| {
        let from = world.arrival(files);
        let before = shot(&from);
        let error = writer.adopt(&lock(&writer, id), &from, parent).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(shot(&from), before);
        fs::remove_dir_all(from).unwrap();
    };
    check(a, &good, None, "is there already");
    check(archived, &good, None, "is there already");
    check(trashed, &good, None, "is there already");
    check(new, &good, Some(archived), "is archived");
    check(new, &good, Some(trashed), "no conversation");
    check(new, &good, Some(a), "which is beneath it");
    check(new, &[("metadata.json", METADATA)], None, "events.json: the file is missing");
    check(new, &[("events.json", "[]")], None, "metadata.json: the file is missing");
    check(new, &[("metadata.json", "{"), ("events.json", "[]")], None, "metadata.json");
    check(new, &[good[0], ("events.json", "{}")], None, "events.json");
    check(new, &[good[0], good[1], ("base_config.json", "[]")], None, "base_config.json");
}

#[test]
fn what_is_taken_in_without_a_mount_is_a_real_copy_too() {
    let world = World::new();
    let writer = world.writer(false);
    let a = make(&writer, "A", None);
    let id = ConversationId::new(17528832001).unwrap();
    let from = world.arrival(&[("metadata.json", METADATA), ("events.json", "[]"), ("notes.md", "mine")]);
    writer.adopt(&lock(&writer, id), &from, Some(a)).unwrap();
    let work = writer.store().snapshot().unwrap().find(id).unwrap().work.clone().unwrap().dir;
    assert!(work.starts_with(world.work()) && fs::read_to_string(work.join("notes.md")).unwrap() == "mine");
}

#[test]
fn covered_files_are_left_alone() {
    let world = World::new();
    let (a, b, c, d) = {
        let writer = world.writer(false);
        let a = make(&writer, "A", None);
        let b = make(&writer, "B", Some(a));
        let c = make(&writer, "C", None);
        let d = make(&writer, "D", None);
        (a, b, c, d)
    };
    let bases = |world: &World| {
        let ledger = world.store(true).snapshot().unwrap().ledger;
        [a, b, c, d].map(|id| ledger.get(id).and_then(|entry| entry.base))
    };
    let (before, remembered) = (world.shot(), bases(&world));
    assert!(remembered.iter().all(Option::is_some));
    let writer = world.writer(true);
    let wait = Wait::none();
    let presence = |id| writer.store().snapshot().unwrap().find(id).unwrap().presence;
    let shown = |id| {
        let snapshot = writer.store().snapshot().unwrap();
        let dir = snapshot.shown_dir(writer.store().layout(), id);
        dir.map(|dir| dir.strip_prefix(world.work()).unwrap().to_str().unwrap().to_owned())
    };
    let name = |id: ConversationId, title| id.dirname(Some(title));
    assert_eq!(shown(b), Some(format!("{}/conversations/{}", name(a, "A"), name(b, "B"))));

    writer.edit(&lock(&writer, a), |meta| meta.set_title(Some("Alpha"))).unwrap();
    writer.replace(&lock(&writer, c), ManagedFile::Events, b"[ ]").unwrap();
    writer.sync(&lock(&writer, c)).unwrap();
    writer.reparent(&lock(&writer, c), Some(b)).unwrap();
    assert_eq!(
        shown(c),
        Some(format!("{}/conversations/{}/conversations/{}", name(a, "Alpha"), name(b, "B"), name(c, "C")))
    );
    writer.archive(d, &wait).unwrap();
    assert_eq!(shown(d), Some(format!(".archive/{}", name(d, "D"))));

    let toggled = writer.toggle(a, Projection::LocalOnly, &wait).unwrap();
    assert!(toggled.changed);
    assert_eq!(toggled.descendants, [b, c]);
    assert_eq!(
        (presence(a), presence(b), shown(b)),
        (StoragePresence::UserLocalOnly, StoragePresence::Projected, None)
    );
    assert!(writer.reparent(&lock(&writer, b), None).is_ok());
    let refused = writer.reparent(&lock(&writer, b), Some(a)).unwrap_err().to_string();
    assert!(refused.contains("is local here"), "{refused}");
    let toggled = writer.toggle(a, Projection::Projected, &wait).unwrap();
    assert!(toggled.changed && toggled.descendants.is_empty());

    let e = make(&writer, "E", Some(a));
    let local = writer.create(seed("F", None, Projection::LocalOnly)).unwrap().id();
    assert_eq!((presence(e), presence(local)), (StoragePresence::Projected, StoragePresence::UserLocalOnly));
    writer.remove(e, super::Strategy::Refuse, &wait).unwrap();
    writer.remove(d, super::Strategy::Refuse, &wait).unwrap();
    assert!(writer.store().snapshot().unwrap().get(d).is_none());

    assert_eq!(world.shot(), before);
    assert_eq!(bases(&world), remembered, "the real files can still be measured");
}

#[test]
fn the_real_files_may_be_reached_elsewhere() {
    let world = World::new();
    let here = world.store(false);
    let elsewhere = world.dir.path().join("beneath");
    fs::create_dir_all(world.work()).unwrap();
    let work = fs::File::open(world.work()).unwrap();
    here.allowed().allow_open(&elsewhere, work.into());
    let store = Store::open_with_work(here.around.clone(), &world.project(), elsewhere.clone(), false).unwrap();
    let writer = store.writer().unwrap().0;
    let id = make(&writer, "A", None);
    let work = writer.store().snapshot().unwrap().find(id).unwrap().work.clone().unwrap().dir;
    assert!(work.starts_with(&elsewhere) && !world.shot().is_empty());
    let covered = Store::open_with_work(here.around.clone(), &world.project(), elsewhere, true).unwrap();
    assert!(covered.layout().covered && covered.snapshot().unwrap().find(id).unwrap().work.is_none());
}

#[test]
fn a_writer_is_let_through_with_whom_it_works_for() {
    let world = World::new();
    let writer = world.writer(true);
    let id = make(&writer, "A", None);
    let locks = writer.store().locks();
    let file = writer.store().layout().store.locks().join(format!("{id}.lock"));
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let mut holder = Command::new("flock").arg(&file).arg("cat").stdin(Stdio::piped()).spawn().unwrap();
    while !locks.is_held(id) {
        std::thread::yield_now();
    }
    fs::write(&file, Holder { pid: Some(holder.id()), session: None, since: None }.to_bytes()).unwrap();
    let other = writer.lock(id, &Wait::none()).map(drop);
    let ours = writer.on_behalf_of(holder.id());
    let saved = ours.lock(id, &Wait::none()).and_then(|guard| ours.replace(&guard, ManagedFile::Events, b"[ ]"));
    let toggled = ours.toggle(id, Projection::LocalOnly, &Wait::none());
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert!(matches!(other, Err(Error::Locked { .. })), "{other:?}");
    assert!(saved.is_ok() && toggled.is_ok(), "{saved:?} {toggled:?}");
}

#[test]
fn one_that_must_stay_keeps_none_of_the_others() {
    let world = World::new();
    let writer = world.writer(false);
    let [stays, goes, inside] = ["Stays", "Goes", "Inside"].map(|title| make(&writer, title, None));
    let copy = |id| writer.store().snapshot().unwrap().find(id).unwrap().work.clone().unwrap().dir;
    let beneath = copy(stays).join("conversations");
    fs::create_dir(&beneath).unwrap();
    fs::rename(copy(inside), beneath.join(copy(inside).file_name().unwrap())).unwrap();
    // Nobody holds the lock of what would have to be moved out.
    let guards = [stays, goes].map(|id| (id, lock(&writer, id))).into_iter().collect();
    let mut op = writer.begin_structural().unwrap();
    assert_eq!(op.remove_leaves(&[stays, goes], &guards).unwrap().ids, [goes].into());
    op.finish().unwrap();
    let snapshot = writer.store().snapshot().unwrap();
    assert!(snapshot.get(goes).is_none());
    for id in [stays, inside] {
        assert!(snapshot.find(id).is_ok_and(|found| found.store.is_some() && found.work.is_some()));
    }
}
