//! What is known of the store's directories is not looked for again, until somebody tells that it changed.

use std::sync::Arc;

use jp_fs::remembering::Remembering;
use jp_store::disk::Disk;
use jp_tests::FaultBacking;

use super::*;

struct Stage {
    driver: InProcess,
    asked: FaultBacking,
    memory: Arc<jp_fs::memory::Memory>,
    silo: PathBuf,
    seen: usize,
}

fn stage() -> Stage {
    let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
    write_bare_sample(&workspace);
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::default());
    let (asked, memory) = (FaultBacking::new(disk.allowed().clone()), Arc::<jp_fs::memory::Memory>::default());
    let backing = Arc::new(Remembering::new(asked.clone(), memory.clone()));
    let driver = InProcess::over(&workspace, Rules::default(), Memory::Long, disk, backing, clock());
    let driver = driver.unwrap_or_else(|error| panic!("cannot begin: {error}"));
    // As when the watches stand.
    let silo = workspace.silo();
    let partitions = ["conversations", "conversations/.archive"].map(|dir| silo.join(dir));
    memory.wake(partitions, driver.vfs().writer().store().layout().worktree_state().join("scratch"));
    // It keeps a log for whoever waits for a fault; this one never comes.
    asked.arm(usize::MAX, libc::EIO);
    Stage { driver, asked, memory, silo, seen: 0 }
}

impl Stage {
    /// Lists a conversation, and looks at what is in it and at what is not, as git does.
    fn walk(&mut self) {
        let names = self.driver.list(D_PATH).expect("listed");
        assert!(names.iter().any(|name| name == "events.json"), "{names:?}");
        for name in &names {
            self.driver.stat(&join(D_PATH, name)).expect("there");
        }
        for name in [".gitignore", "absent"] {
            assert_eq!(self.driver.stat(&join(D_PATH, name)).err(), Some(libc::ENOENT));
        }
    }

    /// What the disk was asked about the conversation since this was last asked.
    fn since(&mut self) -> Vec<String> {
        let (log, about) = (self.asked.log(), format!("conversations/{D}"));
        let new = log[self.seen..].iter().filter(|line| line.contains(&about)).cloned().collect();
        self.seen = log.len();
        new
    }
}

#[test]
fn names_that_are_not_there_cost_nothing_that_is_known() {
    let mut stage = stage();
    stage.walk();
    assert!(stage.since().iter().any(|line| line.ends_with("events.json")));
    stage.walk();
    assert_eq!(stage.since(), Vec::<String>::new());
    stage.memory.forget(&stage.silo.join("conversations").join(D_PATH));
    stage.walk();
    assert!(stage.since().iter().any(|line| line.ends_with("events.json")));
}

#[test]
fn a_directory_that_was_renamed_unnoticed_is_found_all_the_same() {
    let mut stage = stage();
    stage.walk();
    let file = join(D_PATH, "events.json");
    let before = stage.driver.read(&file).expect("read");
    let dir = stage.silo.join("conversations");
    fs::rename(dir.join(D_PATH), dir.join(format!("{D}"))).expect("renamed");
    // Nobody has told the memory. What it says is not there is still not there; what it says is there is looked for.
    assert_eq!(stage.driver.stat(&join(D_PATH, "absent")).err(), Some(libc::ENOENT));
    stage.since();
    assert_eq!(stage.driver.read(&file).expect("read"), before);
    assert!(stage.since().iter().any(|line| line.contains(&format!("/{D}/events.json"))));
}
