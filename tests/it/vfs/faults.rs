//! Every call that a change through the tree makes fails in turn, and the process stops at each: calls of the mount and
//! calls of the store. Afterwards nothing in the store is half, and doing it again ends where an undisturbed run ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use jp_store::beneath::AllowedDirs;
use jp_store::disk::{Contents, DirEntry, Disk, Kind, Stat};
use jp_tests::driver::{Done, How};
use jp_tests::{FaultBacking, FaultDisk};

use super::*;

const LENA: &str = "17528872001-lena";
const NORA: &str = "17528862001-dora/conversations/17528892001-nora";
const MOVED: &str = "17528862001-dora/conversations/17528842001-berta";

/// A change. It can be made again, whatever became of it the first time.
struct Story {
    name: &'static str,
    prepare: fn(&mut dyn Driver) -> Done<()>,
    act: fn(&mut dyn Driver) -> Done<()>,
    /// What must be found somewhere afterwards, in the tree or among what was kept.
    found: fn() -> Vec<Vec<u8>>,
}

/// What goes wrong, by the number of the call.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Mount,
    Store,
    MountStops,
    StoreStops(fn(usize) -> FaultDisk),
}

/// A disk that is the real one until another takes its place. It dies with the mount.
#[derive(Debug)]
pub(super) struct Ground {
    disk: Mutex<Arc<dyn Disk>>,
    mount: Arc<FaultBacking>,
    allowed: AllowedDirs,
}

impl Ground {
    pub(super) fn new(mount: Arc<FaultBacking>, allowed: AllowedDirs) -> Self {
        let disk = Mutex::new(Arc::new(RealDisk::new(allowed.clone())) as Arc<dyn Disk>);
        Self { disk, mount, allowed }
    }

    /// Nothing goes wrong any more.
    pub(super) fn heal(&self) {
        self.put(Arc::new(RealDisk::new(self.allowed.clone())));
    }

    fn now(&self) -> io::Result<Arc<dyn Disk>> {
        if self.mount.is_dead() {
            return Err(io::Error::other("the process is dead"));
        }
        Ok(self.disk.lock().expect("nobody panics while holding it").clone())
    }

    pub(super) fn put(&self, disk: Arc<dyn Disk>) {
        *self.disk.lock().expect("nobody panics while holding it") = disk;
    }
}

impl Disk for Ground {
    fn allowed(&self) -> &AllowedDirs {
        &self.allowed
    }
    fn filesystem(&self, path: &Path) -> io::Result<Option<u64>> {
        self.now()?.filesystem(path)
    }
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.now()?.stat(path)
    }
    fn read(&self, path: &Path) -> io::Result<Contents> {
        self.now()?.read(path)
    }
    fn read_from(&self, path: &Path, offset: u64) -> io::Result<Contents> {
        self.now()?.read_from(path, offset)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.now()?.list(path)
    }
    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.now()?.read_link(path)
    }
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.now()?.create_dir(path, mode)
    }
    fn write_new(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.now()?.write_new(path, bytes, mode)
    }
    fn write_one_of_many(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.now()?.write_one_of_many(path, bytes, mode)
    }
    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        self.now()?.sync_all(dir)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.now()?.rename(from, to)
    }
    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        self.now()?.exchange(a, b)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.now()?.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.now()?.remove_dir(path)
    }
    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.now()?.set_mode(path, mode)
    }
    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.now()?.symlink(target, link)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.now()?.sync_dir(path)
    }
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.now()?.append(path, bytes)
    }
    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.now()?.sync_file(path)
    }
    fn open_lock(&self, path: &Path) -> io::Result<File> {
        self.now()?.open_lock(path)
    }
    fn open_existing_lock(&self, path: &Path) -> io::Result<File> {
        self.now()?.open_existing_lock(path)
    }
}

/// Everything that the tree shows and the store has.
#[derive(Clone, Debug, PartialEq)]
struct Look {
    shown: BTreeMap<String, Vec<u8>>,
    stored: BTreeMap<PathBuf, String>,
}

fn look(world: &mut World) -> Look {
    let mut shown = BTreeMap::new();
    walk(&mut *world.driver, "", &mut shown);
    // A stamp says when, which is another time each time.
    let text = |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).expect("samples are text");
        text.lines().filter(|line| !line.contains("archived_at")).collect::<Vec<_>>().join("\n")
    };
    let timeless = |bytes: Vec<u8>| text(bytes).into_bytes();
    let shown = shown.into_iter().map(|(path, bytes)| (path, timeless(bytes))).collect();
    Look { shown, stored: world.store().into_iter().map(|(path, bytes)| (path, text(bytes))).collect() }
}

pub(super) fn walk(driver: &mut dyn Driver, dir: &str, found: &mut BTreeMap<String, Vec<u8>>) {
    for name in driver.list(dir).expect("a directory that is there can be listed") {
        let path = join(dir, &name);
        match driver.stat(&path).expect("what is listed is there").kind {
            Kind::Dir => {
                found.insert(format!("{path}/"), Vec::new());
                walk(driver, &path, found);
            }
            Kind::File | Kind::Link | Kind::Other => {
                found.insert(path.clone(), driver.read(&path).expect("a file can be read"));
            }
        }
    }
}

struct Stage {
    world: World,
    ground: Arc<Ground>,
    mount: Arc<FaultBacking>,
}

fn stage(story: &Story) -> Stage {
    let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
    write_bare_sample(&workspace);
    let allowed = AllowedDirs::default();
    let mount = Arc::new(FaultBacking::new(allowed.clone()));
    let ground = Arc::new(Ground::new(mount.clone(), allowed));
    let driver = InProcess::over(&workspace, Rules::default(), Memory::Long, ground.clone(), mount.clone(), clock())
        .unwrap_or_else(|error| panic!("{}: {error}", story.name));
    let mut world = World { workspace, driver: Box::new(driver), which: Which::Mindful };
    (story.prepare)(&mut *world.driver).unwrap_or_else(|errno| panic!("{}: errno {errno}", story.name));
    Stage { world, ground, mount }
}

fn sweep(story: &Story) {
    let mut undisturbed = stage(story);
    let old = look(&mut undisturbed.world);
    (story.act)(&mut *undisturbed.world.driver).unwrap_or_else(|errno| panic!("{}: errno {errno}", story.name));
    let new = look(&mut undisturbed.world);
    assert_ne!(old.shown, new.shown, "{}: the story changes nothing", story.name);
    for fault in [
        Fault::Mount,
        Fault::Store,
        Fault::MountStops,
        Fault::StoreStops(|n| FaultDisk::stop_during(n).counting_mutations()),
        Fault::StoreStops(|n| FaultDisk::stop_after(n).counting_mutations()),
    ] {
        let mut n = 1;
        while disturbed(story, fault, n, &old, &new) {
            n += 1;
        }
    }
}

/// One run with one fault; `false` when the change has no such call.
fn disturbed(story: &Story, fault: Fault, n: usize, old: &Look, new: &Look) -> bool {
    let Stage { mut world, ground, mount } = stage(story);
    let errno = if n.is_multiple_of(2) { libc::EIO } else { libc::ENOSPC };
    let disk = match fault {
        Fault::Mount | Fault::MountStops => FaultDisk::new(),
        Fault::Store => FaultDisk::fail(n, errno),
        Fault::StoreStops(stop) => stop(n),
    };
    let disk = Arc::new(disk.sharing(ground.allowed()));
    match fault {
        Fault::Mount => mount.arm(n, errno),
        Fault::MountStops => mount.arm_stop(n),
        Fault::Store => {}
        Fault::StoreStops(_) => mount.die_with(disk.clone()),
    }
    ground.put(disk.clone());
    let result = catch_unwind(AssertUnwindSafe(|| (story.act)(&mut *world.driver)));
    let told = format!(
        "{}: {fault:?} at {n}\nmount:\n{}\nstore:\n{}",
        story.name,
        mount.log().join("\n"),
        disk.log().join("\n")
    );
    let result = result.unwrap_or_else(|_| panic!("{told}\npanicked"));
    let struck = match fault {
        Fault::Mount | Fault::MountStops => mount.struck(),
        Fault::Store | Fault::StoreStops(_) => disk.struck(),
    };
    if !struck {
        assert_eq!(result, Ok(()), "{told}");
        return false;
    }
    if matches!(fault, Fault::MountStops | Fault::StoreStops(_)) {
        let workspace = world.workspace.clone();
        drop(world);
        let driver = Box::new(InProcess::new(&workspace, Rules::default(), Memory::Long));
        world = World { workspace, driver, which: Which::Mindful };
    } else {
        mount.disarm();
        ground.heal();
        // A watch tells of what was done before the fault.
        world.driver.look();
    }
    whole(&world, old, new, &told);
    let now = look(&mut world);
    let stopped = matches!(fault, Fault::MountStops | Fault::StoreStops(_));
    if stopped && now.stored == new.stored && old.stored != new.stored {
        for (path, bytes) in new.shown.iter().filter(|(path, _)| path.ends_with("events.json")) {
            assert_eq!(now.shown.get(path), Some(bytes), "{told}\nthe store has it, and {path} is older");
        }
    }
    if result.is_ok() {
        // What a program was told is done is done.
        same(&now, new, &format!("{told}\nacknowledged, and not there"), false);
    }
    let somewhere: Vec<Vec<u8>> = now
        .shown
        .into_values()
        .chain([A, B, C, D].into_iter().flat_map(|n| world.kept(n)).map(|bytes| timeless(&bytes)))
        .collect();
    for bytes in (story.found)() {
        assert!(somewhere.contains(&timeless(&bytes)), "{told}\nlost: {}", String::from_utf8_lossy(&bytes));
    }
    let again = (story.act)(&mut *world.driver);
    assert_eq!(again, Ok(()), "{told}\nand again");
    same(&look(&mut world), new, &format!("{told}\nnot as after an undisturbed run"), true);
    true
}

/// Asserts that two looks are the same, and names what is not.
fn same(now: &Look, expected: &Look, told: &str, everywhere: bool) {
    let shown =
        now.shown.keys().chain(expected.shown.keys()).filter(|path| now.shown.get(*path) != expected.shown.get(*path));
    let shown: BTreeSet<_> = shown.collect();
    let stored = now.stored.keys().chain(expected.stored.keys());
    let stored: BTreeSet<_> = stored.filter(|path| now.stored.get(*path) != expected.stored.get(*path)).collect();
    assert!(shown.is_empty(), "{told}\nshown otherwise: {shown:#?}");
    assert!(!everywhere || stored.is_empty(), "{told}\nstored otherwise: {stored:#?}");
}

/// As a look has it.
fn timeless(bytes: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(bytes).lines().collect::<Vec<_>>().join("\n").into_bytes()
}

/// Each conversation is in the store once, and each managed file is a document that is old or new.
fn whole(world: &World, old: &Look, new: &Look, told: &str) {
    let texts = |n: u64, file: &str| -> Vec<String> {
        let of = |look: &Look| {
            let mine = look.stored.iter().filter(|(path, _)| {
                let dir = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
                path.ends_with(file) && dir.is_some_and(|dir| dir.split('-').next() == Some(&n.to_string()))
            });
            mine.map(|(_, text)| text.clone()).collect::<Vec<_>>()
        };
        [of(old), of(new)].concat()
    };
    for n in [A, B, C, D, L, O, N] {
        let known = !texts(n, "metadata.json").is_empty();
        let dir = world.find_stored(n);
        assert!(dir.is_some() || n == N || !known, "{told}\n{n} is not in the store");
        let Some(dir) = dir else { continue };
        for file in ["metadata.json", "events.json", "base_config.json"] {
            let candidates = texts(n, file);
            let Ok(text) = fs::read_to_string(dir.join(file)) else {
                assert!(candidates.len() < 2, "{told}\n{n} has no {file}");
                continue;
            };
            serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{told}\n{n} {file}: {error}"));
            let text = text.lines().filter(|line| !line.contains("archived_at")).collect::<Vec<_>>().join("\n");
            assert!(candidates.contains(&text), "{told}\n{n} {file} is neither old nor new: {text}");
        }
    }
}

/// Takes an error for success that says that it was done before.
fn done_before(done: Done<()>, errno: i32) -> Done<()> {
    if done == Err(errno) { Ok(()) } else { done }
}

fn old_events() -> Vec<u8> {
    pretty(&samples()[3].event_list())
}

fn nothing() -> Vec<Vec<u8>> {
    Vec::new()
}

#[test]
fn saves() {
    let events_path = "17528862001-dora/events.json";
    assert_eq!(events_path, join(D_PATH, "events.json"));
    sweep(&Story {
        name: "in place",
        prepare: |_| Ok(()),
        act: |driver| driver.write(&join(D_PATH, "events.json"), &events("new")),
        found: nothing,
    });
    sweep(&Story {
        name: "the last piece",
        prepare: |driver| {
            let text = events("new");
            driver.write(&join(D_PATH, "events.json"), &text[..text.len() / 2])?;
            driver.sync(&join(D_PATH, "events.json"))
        },
        act: |driver| {
            let text = events("new");
            driver.write_at(&join(D_PATH, "events.json"), text.len() as u64 / 2, &text[text.len() / 2..])
        },
        found: nothing,
    });
    sweep(&Story {
        name: "by rename",
        prepare: |_| Ok(()),
        act: |driver| {
            done_before(driver.unlink(&join(D_PATH, "events.json.tmp")), libc::ENOENT)?;
            driver.save(&join(D_PATH, "events.json"), "events.json.tmp", &events("new"))
        },
        found: nothing,
    });
    sweep(&Story {
        name: "draft",
        prepare: |driver| {
            driver.write(&join(D_PATH, "events.json"), b"[ 1,")?;
            driver.sync(&join(D_PATH, "events.json"))
        },
        act: |driver| {
            driver.write_at(&join(D_PATH, "events.json"), 0, b"[ 2,")?;
            driver.sync(&join(D_PATH, "events.json"))
        },
        found: nothing,
    });
    sweep(&Story {
        name: "good after a draft",
        prepare: |driver| {
            driver.write(&join(D_PATH, "events.json"), b"[ 1,")?;
            driver.sync(&join(D_PATH, "events.json"))
        },
        act: |driver| driver.write(&join(D_PATH, "events.json"), &events("good")),
        found: nothing,
    });
}

#[test]
fn names_and_places() {
    sweep(&Story {
        name: "retitle",
        prepare: |_| Ok(()),
        act: |driver| {
            driver.write("17528862001/metadata.json", &metadata("Later", None)).or_else(|errno| match errno {
                // The bare number is the canonical name of nothing here, so it always leads on.
                libc::ENOENT => driver.write(&join(D_PATH, "metadata.json"), &metadata("Later", None)),
                errno => Err(errno),
            })
        },
        found: nothing,
    });
    sweep(&Story {
        name: "reparent",
        prepare: |_| Ok(()),
        act: |driver| match driver.rename(B_PATH, MOVED) {
            Err(libc::ENOENT) => driver.stat(MOVED).map(drop),
            done => done,
        },
        found: nothing,
    });
    sweep(&Story {
        name: "archive",
        prepare: |_| Ok(()),
        act: |driver| match driver.rename(D_PATH, &format!(".archive/{D_PATH}")) {
            Err(libc::ENOENT) => driver.stat(&format!(".archive/{D_PATH}")).map(drop),
            done => done,
        },
        found: nothing,
    });
}

#[test]
fn hiding_and_showing() {
    sweep(&Story {
        name: "hide",
        prepare: |_| Ok(()),
        act: |driver| done_before(driver.remove_all(D_PATH), libc::ENOENT),
        found: nothing,
    });
    sweep(&Story {
        name: "hide a draft",
        prepare: |driver| {
            driver.write(&join(D_PATH, "events.json"), b"[ draft")?;
            driver.sync(&join(D_PATH, "events.json"))
        },
        act: |driver| done_before(driver.unlink(&join(D_PATH, "events.json")), libc::ENOENT),
        found: || vec![b"[ draft".to_vec()],
    });
    sweep(&Story {
        name: "bring back",
        prepare: |_| Ok(()),
        act: |driver| done_before(driver.mkdir_and_leave(LENA), libc::EEXIST),
        found: nothing,
    });
}

#[test]
fn arrival() {
    sweep(&Story {
        name: "arrival",
        prepare: |_| Ok(()),
        act: |driver| {
            done_before(driver.mkdir_and_leave(NORA), libc::EEXIST)?;
            driver.write(&join(NORA, "notes.md"), b"from afar\n")?;
            driver.write(&join(NORA, "metadata.json"), &metadata("Nora", None))?;
            driver.write(&join(NORA, "events.json"), &events("arrived"))
        },
        found: nothing,
    });
}

#[test]
fn own_files() {
    sweep(&Story {
        name: "own file",
        prepare: |_| Ok(()),
        act: |driver| {
            driver.write(&join(B_PATH, "new.md"), b"new\n")?;
            driver.rename(&join(B_PATH, "new.md"), &join(D_PATH, "final.md"))
        },
        found: || vec![b"a note\n".to_vec()],
    });
    sweep(&Story {
        name: "hidden and made again",
        prepare: |driver| driver.unlink(&join(B_PATH, "notes.md")),
        act: |driver| driver.write(&join(B_PATH, "notes.md"), b"again\n"),
        found: nothing,
    });
    sweep(&Story {
        name: "exchange",
        prepare: |driver| driver.write(&join(D_PATH, "other.json"), &events("other")),
        act: |driver| {
            let there = driver.read(&join(D_PATH, "events.json"))?;
            if there == events("other") {
                // Half of it was done before; whoever finds that has the other half.
                return driver.write(&join(D_PATH, "other.json"), &old_events());
            }
            driver.rename_how(&join(D_PATH, "other.json"), &join(D_PATH, "events.json"), How::Exchange)
        },
        found: || vec![events("other"), old_events()],
    });
}

#[test]
fn directories() {
    sweep(&Story {
        name: "a directory with scratch",
        prepare: |driver| {
            driver.mkdir(&join(D_PATH, "old"))?;
            driver.write(&join(D_PATH, "old/note"), b"note\n")?;
            driver.write(&join(D_PATH, "old/.note.swp"), b"scratch\n")
        },
        act: |driver| done_before(driver.rename(&join(D_PATH, "old"), &join(D_PATH, "new")), libc::ENOENT),
        found: || vec![b"note\n".to_vec(), b"scratch\n".to_vec()],
    });
    sweep(&Story {
        name: "over a directory that shows nothing",
        prepare: |driver| {
            driver.mkdir(&join(D_PATH, "old"))?;
            driver.write(&join(D_PATH, "old/note"), b"note\n")?;
            driver.mkdir(&join(D_PATH, "new"))?;
            driver.write(&join(D_PATH, "new/hidden"), b"hidden\n")?;
            driver.unlink(&join(D_PATH, "new/hidden"))
        },
        act: |driver| done_before(driver.rename(&join(D_PATH, "old"), &join(D_PATH, "new")), libc::ENOENT),
        found: || vec![b"note\n".to_vec()],
    });
}
