//! A single request that fails has happened or has not: the tree shows the old state or the new one, and the next mount shows
//! the same. Each call that it makes fails in turn.

use std::collections::BTreeMap;
use std::sync::Arc;

use jp_store::beneath::AllowedDirs;
use jp_store::disk::Disk as _;
use jp_tests::driver::Done;
use jp_tests::{FaultBacking, FaultDisk};

use super::faults::{Ground, walk};
use super::*;

/// A request, and what comes before it.
struct Request {
    name: &'static str,
    prepare: fn(&mut InProcess) -> Done<()>,
    act: fn(&mut InProcess) -> Done<()>,
}

fn at(name: &str) -> String {
    join(D_PATH, name)
}

fn made_and_removed(it: &mut InProcess, names: &[&str]) -> Done<()> {
    for name in names {
        it.write(&at(name), b"hidden\n")?;
        it.unlink(&at(name))?;
    }
    Ok(())
}

const REQUESTS: [Request; 9] = [
    Request {
        name: "a file over a hidden one",
        prepare: |it| it.write(&at("f.md"), b"f\n").and_then(|()| made_and_removed(it, &["h.md"])),
        act: |it| it.rename(&at("f.md"), &at("h.md")),
    },
    Request {
        name: "a directory with hidden files",
        prepare: |it| {
            it.mkdir(&at("s"))?;
            it.write(&at("s/keep.md"), b"keep\n")?;
            made_and_removed(it, &["s/x.md", "s/y.md"])
        },
        act: |it| it.rename(&at("s"), &at("t")),
    },
    Request {
        name: "a directory over a hidden one",
        prepare: |it| {
            it.mkdir(&at("s"))?;
            it.write(&at("s/keep.md"), b"keep\n")?;
            it.mkdir(&at("t"))?;
            made_and_removed(it, &["s/x.md", "t/x.md", "t/z.md"])?;
            it.rmdir(&at("t"))
        },
        act: |it| it.rename(&at("s"), &at("t")),
    },
    Request {
        name: "a file made again",
        prepare: |it| made_and_removed(it, &["h.md"]),
        act: |it| it.create(&at("h.md")),
    },
    Request {
        name: "a link made again",
        prepare: |it| made_and_removed(it, &["h.md"]),
        act: |it| it.symlink("metadata.json", &at("h.md")),
    },
    Request {
        name: "a managed file made again",
        prepare: |it| it.unlink(&at("events.json")),
        act: |it| it.create(&at("events.json")),
    },
    Request {
        name: "a save over a hidden file",
        prepare: |it| it.unlink(&at("events.json")).and_then(|()| it.write(&at("x.tmp"), &events("new"))),
        act: |it| it.rename(&at("x.tmp"), &at("events.json")),
    },
    Request {
        name: "a file out of the store",
        prepare: |it| it.write(&at("f.md"), b"f\n").and_then(|()| it.write(&at("f.tmp"), b"old\n")),
        act: |it| it.rename(&at("f.md"), &at("f.tmp")),
    },
    Request {
        name: "a managed file away",
        prepare: |it| it.write(&at("f.md"), b"old\n"),
        act: |it| it.rename(&at("events.json"), &at("f.md")),
    },
];

type Shown = BTreeMap<String, Vec<u8>>;

fn shown(it: &mut InProcess) -> Shown {
    let mut found = BTreeMap::new();
    walk(it, "", &mut found);
    found
}

fn stage(request: &Request) -> (Workspace, InProcess, Arc<Ground>, Arc<FaultBacking>) {
    let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
    write_bare_sample(&workspace);
    let allowed = AllowedDirs::default();
    let mount = Arc::new(FaultBacking::new(allowed.clone()));
    let ground = Arc::new(Ground::new(mount.clone(), allowed));
    let driver = InProcess::over(&workspace, Rules::default(), Memory::Long, ground.clone(), mount.clone(), clock());
    let mut driver = driver.unwrap_or_else(|error| panic!("{}: {error}", request.name));
    (request.prepare)(&mut driver).unwrap_or_else(|errno| panic!("{}: errno {errno}", request.name));
    (workspace, driver, ground, mount)
}

#[test]
fn a_request_that_fails_has_happened_or_has_not() {
    let mut wrong = Vec::new();
    for request in &REQUESTS {
        let (_workspace, mut driver, ..) = stage(request);
        let old = shown(&mut driver);
        (request.act)(&mut driver).unwrap_or_else(|errno| panic!("{}: errno {errno}", request.name));
        let new = shown(&mut driver);
        assert_ne!(old, new, "{}", request.name);
        for in_store in [false, true] {
            for n in 1.. {
                let (workspace, mut driver, ground, mount) = stage(request);
                let disk = if in_store { FaultDisk::fail(n, libc::ENOSPC) } else { FaultDisk::new() };
                let disk = Arc::new(disk.sharing(ground.allowed()));
                ground.put(disk.clone());
                if !in_store {
                    mount.arm(n, libc::ENOSPC);
                }
                let done = (request.act)(&mut driver);
                let struck = if in_store { disk.struck() } else { mount.struck() };
                let calls = if in_store { disk.log() } else { mount.log() };
                let told = format!("{} in store: {in_store} at {n}: {done:?}\n{calls:#?}", request.name);
                mount.disarm();
                ground.heal();
                let now = shown(&mut driver);
                let fits = if done.is_ok() { now == new } else { now == old || now == new };
                driver.vfs().tend_drafts();
                drop(driver);
                let after = shown(&mut InProcess::new(&workspace, Rules::default(), Memory::Long));
                if !fits || after != now {
                    let names: Vec<_> = after.keys().filter(|path| path.starts_with(D_PATH)).collect();
                    wrong.push(format!("{told}\nfits: {fits}, the next mount agrees: {}\n{names:?}", after == now));
                }
                if !struck {
                    break;
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n\n"));
}
