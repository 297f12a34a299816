//! Session files in a temporary directory. The world they are cleaned by is made up.

use std::cell::Cell;
use std::fs;

use tempfile::TempDir;

use super::*;
use crate::disk::RealDisk;
use crate::time;

fn getsid(value: &str) -> Session {
    Session { source: Source::Getsid, value: value.to_owned() }
}

fn env(value: &str) -> Session {
    Session { source: Source::Env("JP_SESSION".to_owned()), value: value.to_owned() }
}

fn id(number: u64) -> ConversationId {
    ConversationId::new(number).unwrap()
}

fn mapping(session: Session, ids: &[u64]) -> Mapping {
    let mut mapping = Mapping::new(session);
    for number in ids.iter().rev() {
        mapping.activate(id(*number), time::parse("2026-01-01T00:00:00Z").unwrap());
    }
    mapping
}

fn ids(mapping: &Mapping) -> Vec<u64> {
    mapping.history().iter().map(|entry| entry.id().deciseconds()).collect()
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).context("write", path)
}

struct Ground {
    dir: TempDir,
    sessions: SessionDir,
}

impl Ground {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let sessions = SessionDir::new(Arc::new(RealDisk::beneath(dir.path()).unwrap()), dir.path().join("sessions"));
        Self { dir, sessions }
    }

    fn put(&self, name: &str, text: &str) {
        fs::create_dir_all(&self.sessions.dir).unwrap();
        fs::write(self.sessions.dir.join(name), text).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.sessions.dir).unwrap();
        let mut names: Vec<_> = entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn legacy(ids: &[u64]) -> String {
    let entry = |id: &u64| format!(r#"{{"id":{id},"activated_at":"2026-01-01T00:00:00Z"}}"#);
    let entries: Vec<_> = ids.iter().map(entry).collect();
    format!(r#"{{"history":[{}],"source":{{"type":"getsid"}}}}"#, entries.join(","))
}

#[test]
fn saved_and_loaded() {
    let ground = Ground::new();
    assert_eq!(ground.sessions.load(&env("a")).unwrap(), None);
    assert!(ground.sessions.list().unwrap().is_empty());
    assert_eq!(fs::read_dir(ground.dir.path()).unwrap().count(), 0);
    let saved = mapping(env("a"), &[2, 1]);
    ground.sessions.save(&saved, &write).unwrap();
    assert_eq!(ground.sessions.load(&env("a")).unwrap().map(|it| ids(&it)), Some(vec![2, 1]));
    assert_eq!(ground.sessions.load(&env("b")).unwrap(), None);
    assert_eq!(ground.names(), [format!("{}.json", env("a").key())]);
}

#[test]
fn another_sessions_file_is_none() {
    let ground = Ground::new();
    let text = String::from_utf8(mapping(getsid("7"), &[1]).to_bytes()).unwrap();
    ground.put(&format!("{}.json", env("a").key()), &text);
    assert_eq!(ground.sessions.load(&env("a")).unwrap(), None);
    ground.put("getsid-9.json", "nonsense");
    assert!(matches!(ground.sessions.load(&getsid("9")), Err(Error::Invalid { .. })));
}

#[test]
fn a_legacy_file_is_found() {
    let ground = Ground::new();
    ground.put("12057.json", &legacy(&[5]));
    assert_eq!(ground.sessions.load(&getsid("12057")).unwrap().map(|it| ids(&it)), Some(vec![5]));
    let other = Session { source: Source::Hwnd, ..getsid("12057") };
    assert_eq!(ground.sessions.load(&other).unwrap(), None);
    fs::write(ground.dir.path().join("up.json"), legacy(&[5])).unwrap();
    let long = "x".repeat(300);
    for value in ["../up", "..", ".", "", "a\0b", &long] {
        assert_eq!(ground.sessions.load(&getsid(value)).ok().flatten(), None, "{value:?}");
    }
}

#[test]
fn staleness() {
    let process = [Source::Getsid, Source::Hwnd];
    let variable = Source::Env("A".to_owned());
    let check = |source: &Source, alive, on_disk, locked, expected| {
        let got = stale(source, alive, on_disk, locked);
        assert_eq!(got, expected, "{source:?} alive {alive:?} on disk {on_disk} locked {locked}");
    };
    for source in &process {
        check(source, Some(true), false, false, false);
        check(source, Some(true), false, true, false);
        check(source, Some(true), true, false, false);
        check(source, Some(true), true, true, false);
        check(source, Some(false), false, false, true);
        check(source, Some(false), false, true, true);
        check(source, Some(false), true, false, true);
        check(source, Some(false), true, true, true);
        check(source, None, false, false, true);
        check(source, None, false, true, false);
        check(source, None, true, false, false);
        check(source, None, true, true, false);
    }
    for alive in [Some(true), Some(false), None] {
        check(&variable, alive, false, false, true);
        check(&variable, alive, false, true, false);
        check(&variable, alive, true, false, false);
        check(&variable, alive, true, true, false);
    }
}

/// Process 1 is alive, 2 is dead; conversation 10 is on disk, 20 is locked.
fn world() -> World<'static> {
    World {
        alive: &|session| match (&session.source, session.value.as_str()) {
            (Source::Getsid, "1" | "legacy" | "both") => Some(true),
            (Source::Getsid, _) => Some(false),
            (Source::Hwnd | Source::Env(_), _) => None,
        },
        on_disk: &|it| it == id(10),
        locked: &|it| it == id(20),
    }
}

#[test]
fn cleaning() {
    let ground = Ground::new();
    let save = |mapping: &Mapping| ground.sessions.save(mapping, &write).unwrap();
    save(&mapping(getsid("1"), &[30, 10, 20]));
    save(&mapping(getsid("2"), &[10]));
    save(&mapping(env("kept"), &[20]));
    save(&mapping(env("gone"), &[30]));
    save(&mapping(getsid("both"), &[10]));
    ground.put("both.json", &legacy(&[20]));
    ground.put("legacy.json", &legacy(&[30, 10]));
    ground.put("broken.json", "{");
    ground.put("notes.txt", "{");
    let cleaned = ground.sessions.clean(&world(), &write).unwrap();

    let at = |session: &Session| ground.sessions.path(session);
    let named = |name: &str| ground.sessions.dir.join(name);
    let migrated = at(&getsid("legacy"));
    assert_eq!(cleaned.deleted, [at(&env("gone")), at(&getsid("2"))]);
    assert_eq!(cleaned.pruned, [(at(&getsid("1")), 1), (migrated.clone(), 1)]);
    assert_eq!(cleaned.migrated, [(named("both.json"), at(&getsid("both"))), (named("legacy.json"), migrated)]);
    assert_eq!(cleaned.failed.len(), 1);
    assert_eq!(cleaned.failed[0].0, named("broken.json"));
    let loaded = |session| ground.sessions.load(&session).unwrap().map(|it| ids(&it));
    assert_eq!(loaded(getsid("1")), Some(vec![10, 20]));
    assert_eq!(loaded(getsid("both")), Some(vec![10]));
    assert_eq!(loaded(getsid("legacy")), Some(vec![10]));
    assert_eq!(loaded(env("kept")), Some(vec![20]));
    let kept = format!("{}.json", env("kept").key());
    assert_eq!(
        ground.names(),
        ["broken.json", &kept, "getsid-1.json", "getsid-both.json", "getsid-legacy.json", "notes.txt"]
    );

    let again = ground.sessions.clean(&world(), &|_, _| panic!("nothing is left to write")).unwrap();
    assert!(again.deleted.is_empty() && again.pruned.is_empty() && again.migrated.is_empty());
}

#[test]
fn a_file_that_changes_meanwhile_is_left() {
    let ground = Ground::new();
    ground.sessions.save(&mapping(env("a"), &[30]), &write).unwrap();
    let path = ground.sessions.path(&env("a"));
    let asked = Cell::new(false);
    let locked = |_| {
        if !asked.replace(true) {
            fs::write(&path, mapping(env("a"), &[10]).to_bytes()).unwrap();
        }
        false
    };
    let world = World { locked: &locked, ..world() };
    let cleaned = ground.sessions.clean(&world, &write).unwrap();
    assert!(cleaned.deleted.is_empty() && path.exists());
}

#[test]
fn a_failed_write_keeps_the_old_file() {
    let ground = Ground::new();
    ground.put("legacy.json", &legacy(&[10]));
    let fail = |path: &Path, _: &[u8]| Err(io::Error::other("full")).context("write", path);
    let cleaned = ground.sessions.clean(&world(), &fail).unwrap();
    assert_eq!(cleaned.failed.len(), 1);
    assert_eq!(ground.names(), ["legacy.json"]);
}

#[test]
fn a_legacy_file_stays_where_its_new_name_is_taken() {
    let ground = Ground::new();
    ground.put("legacy.json", &legacy(&[10]));
    ground.put("getsid-legacy.json", "{");
    let cleaned = ground.sessions.clean(&world(), &write).unwrap();
    assert_eq!((cleaned.migrated.len(), cleaned.failed.len()), (0, 1));
    ground.sessions.save(&mapping(getsid("1"), &[10]), &write).unwrap();
    fs::rename(ground.sessions.path(&getsid("1")), ground.sessions.path(&getsid("legacy"))).unwrap();
    let cleaned = ground.sessions.clean(&world(), &write).unwrap();
    assert_eq!((cleaned.migrated.len(), cleaned.failed.len()), (0, 0));
    assert_eq!(ground.names(), ["getsid-legacy.json", "legacy.json"]);
}
