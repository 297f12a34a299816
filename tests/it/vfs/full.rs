//! Writes to managed files on a store that is full from some call on, and on one where any single call fails. What is shown
//! is what the store has or what a draft on disk has; what was acknowledged is shown.

use std::sync::Arc;

use jp_fs::caller::Caller;
use jp_fs::error::FsError;
use jp_store::beneath::AllowedDirs;
use jp_store::disk::Disk as _;
use jp_tests::driver::Done;
use jp_tests::{FaultBacking, FaultDisk};

use super::faults::Ground;
use super::*;

/// A way to write, and what it shows when it is acknowledged.
struct Way {
    name: &'static str,
    prepare: fn(&mut InProcess) -> Done<()>,
    act: fn(&mut InProcess) -> Done<()>,
    shows: fn() -> Vec<u8>,
}

const WAYS: [Way; 7] = [
    Way { name: "good", prepare: |_| Ok(()), act: |it| it.write(&list(), &events("new")), shows: || events("new") },
    Way {
        name: "broken",
        prepare: |_| Ok(()),
        act: |it| it.write(&list(), b"[ broken"),
        shows: || b"[ broken".to_vec(),
    },
    Way {
        name: "in pieces",
        prepare: |_| Ok(()),
        act: |it| it.write_in_pieces(&list(), &events("new"), 20),
        shows: || events("new"),
    },
    Way {
        name: "more of a draft",
        prepare: |it| it.write(&list(), b"[ 1,"),
        act: |it| it.append(&list(), b" 2,"),
        shows: || b"[ 1, 2,".to_vec(),
    },
    Way {
        name: "over a draft",
        prepare: |it| it.write(&list(), b"[ 1,").and_then(|()| it.sync(&list())),
        act: |it| it.write_at(&list(), 2, b"7"),
        shows: || b"[ 7,".to_vec(),
    },
    Way {
        name: "a draft becomes good",
        prepare: |it| it.write(&list(), &events("new")[..30]),
        act: |it| it.write_at(&list(), 30, &events("new")[30..]),
        shows: || events("new"),
    },
    Way {
        name: "broken by rename",
        prepare: |it| it.write(&join(D_PATH, "x.tmp"), b"[ broken"),
        act: |it| it.rename(&join(D_PATH, "x.tmp"), &list()),
        shows: || b"[ broken".to_vec(),
    },
];

fn list() -> String {
    join(D_PATH, "events.json")
}

struct Stage {
    driver: InProcess,
    mount: Arc<FaultBacking>,
    workspace: Workspace,
}

fn stage(way: &Way) -> Stage {
    let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
    write_bare_sample(&workspace);
    let disk = Arc::new(FaultDisk::new());
    let mount = Arc::new(FaultBacking::new(disk.allowed().clone()));
    let driver = InProcess::over(&workspace, Rules::default(), Memory::Long, disk, mount.clone(), clock());
    let mut driver = driver.unwrap_or_else(|error| panic!("cannot begin: {error}"));
    (way.prepare)(&mut driver).unwrap_or_else(|errno| panic!("{}: errno {errno}", way.name));
    Stage { driver, mount, workspace }
}

impl Stage {
    fn stored(&self) -> Vec<u8> {
        fs::read(self.workspace.silo().join("conversations").join(D_PATH).join("events.json")).expect("read")
    }

    /// The bytes of the draft on disk.
    fn kept(&self) -> Option<Vec<u8>> {
        let state = open(&self.workspace, true).layout().worktree_state();
        let text = fs::read(state.join(format!("drafts/{D}/events.json"))).ok()?;
        let end = text.iter().position(|byte| *byte == b'\n').expect("a header");
        Some(text[end + 1..].to_vec())
    }

    /// What is shown is durable. Then the way works, once there is room, and after a death.
    fn check(mut self, way: &Way, done: Done<()>, told: &str) {
        let shown = self.driver.read(&list()).expect("read");
        if done.is_ok() {
            assert_eq!(text(&shown), text(&(way.shows)()), "{told}: acknowledged, and not shown");
        }
        // Within 100 ms, whether or not there is room.
        self.driver.vfs().tend_drafts();
        let shown = self.driver.read(&list()).expect("read");
        let durable = self.kept().unwrap_or_else(|| self.stored());
        assert_eq!(text(&shown), text(&durable), "{told}: shown, and only in memory");
        if done.is_ok() {
            assert_eq!(text(&shown), text(&(way.shows)()), "{told}: acknowledged, and not kept");
        }
        self.mount.disarm();
        self.driver.vfs().tend_drafts();
        let shown = self.driver.read(&list()).expect("read");
        // A process that dies leaves what it has on disk.
        let workspace = self.workspace.clone();
        drop(self);
        let mut after = InProcess::new(&workspace, Rules::default(), Memory::Long);
        assert_eq!(text(&after.read(&list()).expect("read")), text(&shown), "{told}: another one after a death");
        after.write(&list(), &events("room")).expect("there is room");
        assert_eq!(after.read(&list()), Ok(events("room")));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn no_room_from_any_call_on() {
    for way in &WAYS {
        for errno in [libc::ENOSPC, libc::EROFS] {
            for n in 1.. {
                let mut stage = stage(way);
                stage.mount.arm_full(n, errno);
                let done = (way.act)(&mut stage.driver);
                let (struck, told) = (stage.mount.struck(), format!("{}, {n}, {errno}: {done:?}", way.name));
                assert!(done.is_ok() || done == Err(errno), "{told}");
                let calls = stage.mount.log().len();
                stage.check(way, done, &told);
                if !struck && n > calls {
                    break;
                }
            }
        }
    }
}

#[test]
fn any_single_call_fails() {
    for way in &WAYS {
        for n in 1.. {
            let mut stage = stage(way);
            stage.mount.arm(n, libc::EIO);
            let done = (way.act)(&mut stage.driver);
            let struck = stage.mount.struck();
            let told = format!("{}, {n}: {done:?}\n{:#?}", way.name, stage.mount.log());
            stage.mount.disarm();
            stage.check(way, done, &told);
            if !struck {
                break;
            }
        }
    }
}

/// Somebody holds the conversation while pages of it are written back, which nobody can be told about.
#[test]
fn pages_are_kept_or_dropped_while_somebody_holds_it() {
    let way = Way {
        name: "a page",
        prepare: |it| it.write(&list(), &events("old")),
        act: |it| {
            let number = it.know(&list())?;
            let done = it.vfs().write_back(number, 0, &events("new")).map(drop).map_err(|error| error.errno());
            it.forget(number);
            done
        },
        shows: || events("new"),
    };
    for full in [true, false] {
        for n in 1.. {
            let mut stage = stage(&way);
            let (writer, _) = open(&stage.workspace, true).writer().expect("the store can be written");
            let guard = writer.lock(id(D), &Wait::none()).expect("nobody holds it");
            if full {
                stage.mount.arm_full(n, libc::ENOSPC);
            } else {
                stage.mount.arm(n, libc::EIO);
            }
            let done = (way.act)(&mut stage.driver);
            let (struck, calls) = (stage.mount.struck(), stage.mount.log().len());
            let told = format!("full: {full}, {n}: {done:?}\n{:#?}", stage.mount.log());
            assert_eq!(text(&stage.stored()), text(&events("old")), "{told}");
            if !full {
                stage.mount.disarm();
            }
            if done.is_ok() {
                assert_eq!(stage.kept(), Some(events("new")), "{told}");
            }
            let workspace = stage.workspace.clone();
            drop(guard);
            stage.check(&way, done, &told);
            drop(workspace);
            if !struck && n > calls {
                break;
            }
        }
    }
}

/// The store's disk fails at one call, and the mount has no room from another on. A save that is refused is not there, now or
/// later; one that is kept is not refused, and reaches the store once there is room.
#[test]
fn a_save_is_kept_or_refused() {
    let new = || [events("new"), vec![b' '; 5000]].concat();
    type Prepare = fn(&mut InProcess) -> Done<()>;
    let ways: [(&str, Prepare, &[u8]); 2] = [
        ("emptied", |it| it.truncate(&list(), 0).map(|()| it.vfs().tend_drafts()), b""),
        ("a draft", |it| it.write(&list(), b"[ 1,").and_then(|()| it.sync(&list())), b"[ 1,"),
    ];
    for (name, prepare, before) in ways {
        let mut struck = true;
        for (n, full) in (1..).flat_map(|n| [1, 2, 3, 4, 6, 20].map(|full| (n, full))) {
            if full == 1 && !std::mem::take(&mut struck) {
                break;
            }
            let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
            write_bare_sample(&workspace);
            let allowed = AllowedDirs::default();
            let mount = Arc::new(FaultBacking::new(allowed.clone()));
            let ground = Arc::new(Ground::new(mount.clone(), allowed));
            let driver =
                InProcess::over(&workspace, Rules::default(), Memory::Long, ground.clone(), mount.clone(), clock());
            let mut driver = driver.unwrap_or_else(|error| panic!("cannot begin: {error}"));
            prepare(&mut driver).expect("there is room");
            let number = driver.know(&list()).expect("it is there");
            let disk = Arc::new(FaultDisk::fail(n, libc::ENOSPC).sharing(ground.allowed()));
            ground.put(disk.clone());
            mount.arm_full(full, libc::ENOSPC);
            let caller = Caller { pid: std::process::id() };
            let done = driver.vfs().write(caller, number, 0, &new()).map(drop);
            let told = format!("{name}, {n}, {full}: {done:?}\n{:#?}\n{:#?}", mount.log(), disk.log());
            struck |= disk.struck();
            // Whoever lost the lock is told so, and the draft waits for it.
            let is_kept = matches!(done, Ok(()) | Err(FsError::Busy));
            let expected = if is_kept { new() } else { before.to_vec() };
            let read = |driver: &mut InProcess| driver.vfs().read(number, 0, 1 << 20).expect("read");
            assert_eq!(text(&read(&mut driver)), text(&expected), "{told}");
            driver.vfs().tend_drafts();
            assert_eq!(text(&read(&mut driver)), text(&expected), "later: {told}");
            mount.disarm();
            ground.heal();
            driver.forget(number);
            drop(driver);
            let mut after = InProcess::new(&workspace, Rules::default(), Memory::Long);
            assert_eq!(text(&after.read(&list()).expect("read")), text(&expected), "after a death: {told}");
            let stored = fs::read(workspace.silo().join("conversations").join(list())).expect("read");
            assert_eq!(stored == new(), is_kept, "in the store: {told}");
        }
    }
}

#[test]
fn a_broken_page_is_synced_while_somebody_holds_it() {
    let way = Way { name: "", prepare: |it| it.write(&list(), &events("old")), act: |_| Ok(()), shows: Vec::new };
    let mut stage = stage(&way);
    let (writer, _) = open(&stage.workspace, true).writer().expect("the store can be written");
    let _guard = writer.lock(id(D), &Wait::none()).expect("nobody holds it");
    let number = stage.driver.know(&list()).expect("it is there");
    stage.driver.vfs().write_back(number, 0, b"broken").expect("it can be kept");
    let caller = Caller { pid: std::process::id() };
    assert!(stage.driver.vfs().sync(caller, number).is_ok(), "it is on disk");
    assert!(stage.kept().is_some_and(|bytes| bytes.starts_with(b"broken")));
    stage.driver.forget(number);
}
