//! The first command of a worktree fails or is killed at any call. What would be held is held afterwards, and what is joined
//! is joined by what the copies say.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use jp_store::disk::{Disk, RealDisk};
use jp_store::lock::Wait;
use jp_store::plan::{Direction, Wanted};
use jp_store::store::{Store, Surroundings};
use jp_tests::{FaultDisk, Shot, copy_tree, set_mtime};

use super::*;
use crate::story::work_file;

/// No process has this number.
const DEAD: u32 = 4_000_000;
/// Nanoseconds in 2040.
const FAR: i64 = 2_208_988_800_000_000_000;

fn open(workspace: &Workspace, disk: Arc<dyn Disk>) -> jp_store::Result<Store> {
    let around = Surroundings {
        disk,
        data_dir: Some(workspace.env().data()),
        pid: DEAD,
        session: None,
        clock: Arc::new(|| "2026-08-20T12:00:00Z".parse().expect("a time")),
        covered: Arc::new(|_| false),
    };
    Store::open(around, workspace.root())
}

fn import(workspace: &Workspace, disk: Arc<dyn Disk>) -> jp_store::Result<()> {
    let (writer, _) = open(workspace, disk)?.writer()?;
    writer.reconcile(&Wanted::all(Direction::In), &Wait::none(), &mut |_| true).map(drop)
}

/// Makes the store as if the worktree had never been.
#[track_caller]
fn forget(clone: &Workspace, known: &[PathBuf], link: &Path) {
    fs::remove_dir_all(clone.root()).expect("removed");
    for entry in fs::read_dir(clone.silo().join("vfs")).expect("listed") {
        let path = entry.expect("listed").path();
        if path.is_dir() && !known.contains(&path) {
            fs::remove_dir_all(path).expect("removed");
        }
    }
    let _ = fs::remove_file(clone.silo().join("storage"));
    symlink(link, clone.silo().join("storage")).expect("linked");
}

#[test]
fn a_first_command_that_is_cut_short_joins_nothing() {
    type Fault = fn(usize) -> FaultDisk;
    let faults: [(&str, Fault); 3] = [
        ("fails at", |n| FaultDisk::fail(n, libc::EIO)),
        ("stops before", |n| FaultDisk::stop_before(n).counting_mutations()),
        ("stops during", |n| FaultDisk::stop_during(n).counting_mutations()),
    ];
    let it = Project::new();
    it.write_store(&it.shared, "shared", 5);
    let template = it.clone("template");
    let silo = it.main.silo();
    let link = fs::read_link(silo.join("storage")).expect("linked");
    let known: Vec<_> =
        fs::read_dir(silo.join("vfs")).expect("listed").map(|entry| entry.expect("listed").path()).collect();
    let before = [&it.private, &it.shared].map(|id| it.stored(id));
    for (fault, disk) in faults {
        for n in 1.. {
            let name = format!("{}-{n}", fault.replace(' ', "-"));
            copy_tree(template.root(), &it.env.root().join(&name)).expect("copied");
            let clone = it.env.workspace(&name);
            let dir = plant(&conversations(&clone), &it.private, &events("secret", 9));
            // Times that would win in a worktree that is known.
            for name in ["metadata.json", "events.json", "base_config.json"] {
                set_mtime(&work_file(&clone, &it.shared, name), FAR);
                set_mtime(&dir.join(name), FAR);
            }
            let planted = Shot::of(&dir);
            let disk = Arc::new(disk(n));
            let result = import(&clone, disk.clone());
            let told = format!("{fault} {n}\n{}", disk.log().join("\n"));
            assert_eq!([&it.private, &it.shared].map(|id| it.stored(id)), before, "{told}");
            let check = |clone: &Workspace| {
                let store = open(clone, Arc::new(RealDisk::default())).expect("opened");
                let snapshot = store.snapshot().expect("looked");
                let find = |id: &str| snapshot.find(id.parse().expect("an id")).expect("found");
                assert!(find(&it.private).work.is_none(), "{told}");
                let held: Vec<_> = snapshot.held_copies().map(|(id, _)| id.to_string()).collect();
                assert_eq!(held, [&*it.private], "{told}");
                let events = store.stream(&snapshot, find(&it.shared)).expect("read").parse();
                assert_eq!(events.elements().len(), 5, "{told}");
            };
            check(&clone);
            import(&clone, Arc::new(RealDisk::default())).unwrap_or_else(|error| panic!("{error}: {told}"));
            assert_eq!([&it.private, &it.shared].map(|id| it.stored(id)), before, "{told}");
            check(&clone);
            planted.assert_same(&Shot::of(&dir));
            forget(&clone, &known, &link);
            if !disk.struck() {
                assert!(n > 5, "{fault} {n} never happens");
                result.unwrap_or_else(|error| panic!("{error}: {told}"));
                break;
            }
        }
    }
}
