//! When saves reach the disk: bytes before they get their name, the name when somebody asks or within a second, nothing
//! twice.

use std::sync::Arc;

use jp_store::disk::Disk as _;
use jp_tests::{FaultBacking, FaultDisk};

use super::*;

struct Stage {
    driver: InProcess,
    disk: Arc<FaultDisk>,
    mount: Arc<FaultBacking>,
    workspace: Workspace,
    seen: (usize, usize),
}

fn stage() -> Stage {
    let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
    write_bare_sample(&workspace);
    // Directories that a first lock and a first file of the moment make are there.
    let mut before = InProcess::new(&workspace, Rules::default(), Memory::Long);
    let list = join(D_PATH, "events.json");
    before.save(&list, "events.json.tmp", &events("before")).expect("saved");
    before.vfs().tend_disk().expect("on disk");
    drop(before);
    let disk = Arc::new(FaultDisk::new());
    let mount = Arc::new(FaultBacking::new(disk.allowed().clone()));
    let driver = InProcess::over(&workspace, Rules::default(), Memory::Long, disk.clone(), mount.clone(), clock());
    let driver = driver.unwrap_or_else(|error| panic!("cannot begin: {error}"));
    // It keeps a log for whoever waits for a fault; this one never comes.
    mount.arm(usize::MAX, libc::EIO);
    let mut stage = Stage { driver, disk, mount, workspace, seen: (0, 0) };
    stage.since();
    stage
}

impl Stage {
    /// What the store and the mount did since this was last asked, as far as it counts for the disk.
    fn since(&mut self) -> Vec<String> {
        let (disk, mount) = (self.disk.log(), self.mount.log());
        let new = disk[self.seen.0..].iter().chain(&mount[self.seen.1..]);
        let counts = |line: &&String| {
            let verb = line.split(' ').next().unwrap_or_default();
            ["write_new", "sync_file", "sync_dir", "sync_all", "sync"].contains(&verb)
        };
        let short = |line: &String| {
            let (verb, path) = line.split_once(' ').unwrap_or_default();
            let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
            if verb == "write_new" { verb.to_owned() } else { format!("{verb} {name}") }
        };
        let told = new.filter(counts).map(short).collect();
        self.seen = (disk.len(), mount.len());
        told
    }

    fn stored(&self) -> Vec<u8> {
        fs::read(self.workspace.silo().join("conversations").join(D_PATH).join("events.json")).expect("read")
    }
}

fn nothing() -> Vec<String> {
    Vec::new()
}

#[test]
fn in_place() {
    let mut stage = stage();
    let path = join(D_PATH, "events.json");
    stage.driver.write(&path, &events("one")).expect("saved");
    assert_eq!(stage.since(), ["write_new"], "the bytes, before they have the name");
    assert_eq!(stage.stored(), events("one"));
    stage.driver.sync(&path).expect("synced");
    assert_eq!(stage.since(), [format!("sync_dir {D_PATH}")]);
    stage.driver.sync(&path).expect("synced");
    stage.driver.vfs().tend_disk().expect("on disk");
    assert_eq!(stage.since(), nothing());
    stage.driver.write(&path, &events("two")).expect("saved");
    stage.since();
    stage.driver.vfs().tend_disk().expect("on disk");
    assert_eq!(stage.since(), [format!("sync_dir {D_PATH}")], "without being asked");
}

#[test]
fn emptied_it_waits_for_its_bytes_without_a_lock() {
    let mut stage = stage();
    let path = join(D_PATH, "events.json");
    let (before, from) = (stage.stored(), stage.disk.log().len());
    stage.driver.truncate(&path, 0).expect("emptied");
    // The record of temporaries is a lock of its own, taken once.
    let is_lock = |line: &&String| line.contains("open_lock") && !line.contains("/owner-");
    let locks = |stage: &Stage, from: usize| stage.disk.log()[from..].iter().filter(is_lock).count();
    assert_eq!(locks(&stage, from), 0);
    assert_eq!((stage.driver.read(&path).expect("read"), stage.stored()), (Vec::new(), before));
    stage.driver.write_at(&path, 0, &events("one")).expect("saved");
    assert_eq!(locks(&stage, from), 1);
    assert_eq!(stage.stored(), events("one"));
}

#[test]
fn a_file_that_was_synced_is_not_written_again() {
    let mut stage = stage();
    let (path, beside) = (join(D_PATH, "events.json"), join(D_PATH, "events.json.tmp"));
    for text in ["one", "two"] {
        stage.driver.create(&beside).expect("made");
        stage.driver.write(&beside, &events(text)).expect("written");
        assert_eq!(stage.since(), nothing());
        stage.driver.sync(&beside).expect("synced");
        assert_eq!(stage.since(), ["sync events.json.tmp"]);
        let held = stage.driver.stat(&beside).expect("there");
        stage.driver.rename(&beside, &path).expect("saved");
        assert_eq!(stage.since(), nothing(), "all of it is on disk but the name");
        assert_eq!(stage.stored(), events(text));
        assert_eq!(stage.driver.stat(&path).expect("there").mtime, held.mtime);
        stage.driver.vfs().tend_disk().expect("on disk");
        assert_eq!(stage.since(), [format!("sync_dir {D_PATH}")]);
    }
}

#[test]
fn a_file_that_was_not_is_synced_before_it_has_the_name() {
    let mut stage = stage();
    let (path, beside) = (join(D_PATH, "events.json"), join(D_PATH, "events.json.tmp"));
    stage.driver.create(&beside).expect("made");
    stage.driver.write(&beside, &events("one")).expect("written");
    stage.driver.rename(&beside, &path).expect("saved");
    assert_eq!(stage.since(), ["sync_file events.json.tmp"]);
    assert_eq!(stage.stored(), events("one"));

    // Synced, and written to since.
    stage.driver.create(&beside).expect("made");
    stage.driver.write(&beside, &events("half")).expect("written");
    stage.driver.sync(&beside).expect("synced");
    stage.driver.write(&beside, &events("two")).expect("written");
    stage.since();
    stage.driver.rename(&beside, &path).expect("saved");
    assert_eq!(stage.since(), ["sync_file events.json.tmp"]);
    assert_eq!(stage.stored(), events("two"));
}

#[test]
fn what_a_save_would_not_leave_is_written_anew() {
    let mut stage = stage();
    let (path, beside) = (join(D_PATH, "events.json"), join(D_PATH, "events.json.tmp"));
    let before = stage.driver.stat(&path).expect("there");
    let save = |stage: &mut Stage, text: &str, done: &str, change: &dyn Fn(&mut InProcess)| {
        stage.driver.create(&beside).expect("made");
        stage.driver.write(&beside, &events(text)).expect("written");
        change(&mut stage.driver);
        stage.since();
        stage.driver.rename(&beside, &path).expect("saved");
        assert_eq!(stage.since(), [done], "{text}");
        let now = stage.driver.stat(&path).expect("there");
        assert_eq!((stage.stored(), now.mode), (events(text), before.mode));
        assert!(now.mtime > before.mtime, "{text}");
    };
    let (old, far) = (before.mtime - 1_000_000_000, before.mtime + 1_000_000_000_000_000);
    // The file itself gets the name, with the permission bits of the one that it replaces.
    save(&mut stage, "other permissions", "sync_file events.json.tmp", &|driver| {
        driver.chmod(&join(D_PATH, "events.json.tmp"), 0o600).expect("set");
    });
    for (text, time) in [("an old time", old), ("a time to come", far)] {
        save(&mut stage, text, "write_new", &|driver| {
            driver.set_mtime(&join(D_PATH, "events.json.tmp"), time).expect("set");
        });
    }
}

#[test]
fn whoever_goes_on_writing_to_it_writes_a_draft() {
    let mut stage = stage();
    let (path, beside) = (join(D_PATH, "events.json"), join(D_PATH, "events.json.tmp"));
    stage.driver.create(&beside).expect("made");
    stage.driver.write(&beside, &events("one")).expect("written");
    let mut open = stage.driver.hold(&beside).expect("open");
    stage.driver.rename(&beside, &path).expect("saved");
    open.cut_and_write(0, b"not a list").expect("written");
    assert_eq!(stage.stored(), events("one"), "the store has the last good version");
    assert!(stage.driver.read(&path).expect("read").starts_with(b"not a list"));
}

#[test]
fn a_move_reaches_it_within_a_second() {
    let mut stage = stage();
    stage.driver.rename(D_PATH, &join(A_PATH, &format!("conversations/{D_PATH}"))).expect("moved");
    assert_eq!(stage.since(), ["write_new"]);
    stage.driver.vfs().tend_disk().expect("on disk");
    let mut told = stage.since();
    told.sort();
    assert_eq!(told, [format!("sync_dir {D_PATH}"), "sync_dir vfs".to_owned(), "sync_file tree.journal".to_owned()]);
}

/// What the mount itself did since it was last asked, by verb and the end of the path.
fn mount_since(stage: &mut Stage) -> Vec<String> {
    let log = stage.mount.log();
    let new: Vec<String> = log[stage.seen.1..].to_vec();
    stage.seen.1 = log.len();
    let short = |line: &String| {
        let (verb, path) = line.split_once(' ').unwrap_or_default();
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        ["put", "write", "sync", "rename"].contains(&verb).then(|| format!("{verb} {name}"))
    };
    new.iter().filter_map(short).collect()
}

const SYNCED: [&str; 3] = ["sync .17528862001-events.json.fresh", "sync 17528862001", "sync drafts"];

#[test]
fn a_draft_is_in_its_file_when_it_is_acknowledged() {
    let mut stage = stage();
    let path = join(D_PATH, "events.json");
    let text = events("one");
    stage.driver.truncate(&path, 0).expect("emptied");
    mount_since(&mut stage);
    stage.driver.write_at(&path, 0, &text[..10]).expect("written");
    let new = ".17528862001-events.json.new";
    assert_eq!(mount_since(&mut stage), [format!("put {new}"), format!("rename {new}")]);
    stage.driver.write_at(&path, 10, &text[10..20]).expect("written");
    stage.driver.append(&path, &text[20..30]).expect("written");
    assert_eq!(mount_since(&mut stage), ["write events.json", "write events.json"], "pieces are added to it");
    let file = stage.driver.vfs().writer().store().layout().worktree_state().join("drafts/17528862001/events.json");
    let kept = |file: &Path| {
        let bytes = fs::read(file).expect("read");
        bytes[bytes.iter().position(|byte| *byte == b'\n').expect("a header") + 1..].to_vec()
    };
    assert_eq!(kept(&file), &text[..30]);
    stage.driver.write_at(&path, 5, b"x").expect("written");
    assert_eq!(mount_since(&mut stage), [format!("put {new}"), format!("rename {new}")], "all of it, or nothing");
    assert_eq!(kept(&file)[5], b'x');
    stage.driver.write(&path, &text).expect("saved");
    assert!(!file.exists() && stage.stored() == text);
    // Nor does it come back after a power loss.
    stage.since();
    stage.driver.vfs().tend_disk().expect("on disk");
    assert!(stage.since().contains(&"sync_dir drafts".to_owned()));
}

#[test]
fn a_draft_reaches_the_disk_with_its_names_by_itself() {
    let mut stage = stage();
    let path = join(D_PATH, "events.json");
    let text = events("one");
    stage.driver.write_at(&path, 0, b"{").expect("written");
    mount_since(&mut stage);
    // This is done every 100 ms.
    stage.driver.vfs().tend_drafts();
    let done = mount_since(&mut stage);
    let syncs: Vec<&String> = done.iter().filter(|line| line.starts_with("sync")).collect();
    assert_eq!(syncs, SYNCED, "{done:?}");
    let at = |what: &str| done.iter().position(|line| line == what).unwrap_or_else(|| panic!("no {what} in {done:?}"));
    assert!(at(SYNCED[0]) < at("rename .17528862001-events.json.fresh"), "bytes before they get their name: {done:?}");
    assert!(at("rename .17528862001-events.json.fresh") < at(SYNCED[1]), "{done:?}");
    stage.driver.vfs().tend_drafts();
    assert_eq!(mount_since(&mut stage), nothing(), "nothing twice");
    // One that was only emptied, and one that is asked for.
    stage.driver.write(&path, &text).expect("saved");
    stage.driver.truncate(&path, 0).expect("emptied");
    mount_since(&mut stage);
    stage.driver.vfs().tend_drafts();
    let syncs = |stage: &mut Stage| -> Vec<String> {
        mount_since(stage).into_iter().filter(|line| line.starts_with("sync")).collect()
    };
    assert_eq!(syncs(&mut stage), SYNCED);
    stage.driver.write_at(&path, 0, &text[..9]).expect("written");
    mount_since(&mut stage);
    stage.driver.sync(&path).expect("synced");
    let asked = syncs(&mut stage);
    assert_eq!(asked, ["sync .17528862001-events.json.new", SYNCED[1], SYNCED[2]]);
}

#[test]
fn the_name_of_a_user_file_reaches_it_within_a_second() {
    let mut stage = stage();
    stage.driver.write(&join(B_PATH, "one.md"), b"1").expect("written");
    stage.driver.vfs().tend_disk().expect("on disk");
    stage.since();
    stage.driver.rename(&join(B_PATH, "one.md"), &join(B_PATH, "two.md")).expect("renamed");
    stage.driver.rename(&join(B_PATH, "two.md"), &join(D_PATH, "three.md")).expect("renamed");
    stage.since();
    stage.driver.vfs().tend_disk().expect("on disk");
    let told = stage.since();
    let at = |what: &str| told.iter().position(|line| line == what);
    let dirs = [at(&format!("sync_dir {}", "17528842001-berta")), at(&format!("sync_dir {D_PATH}"))];
    assert!(dirs.iter().all(Option::is_some), "{told:?}");
    // A journal never says what became of a name before the name is so.
    let journal = at("sync_file journal");
    assert!(dirs.iter().all(|dir| journal.is_none() || *dir < journal), "{told:?}");
}
