//! Directories that are listed in pieces, as kernels do, while the names in them change.

use std::collections::BTreeMap;
use std::sync::Arc;

use jp_fs::backing::Backing;
use jp_store::disk::Disk;
use jp_tests::FaultBacking;
use jp_tests::driver::Done;

use super::*;

const STAY: usize = 40;

/// A change of the names in `sub`; the round makes it another one each time.
type Act = fn(&mut InProcess, usize) -> Done<()>;

const ACTS: [(&str, Act); 9] = [
    ("removed", |driver, round| driver.unlink(&sub(&format!("goes-{round}")))),
    ("made", |driver, round| driver.create(&sub(&format!("new-{round}")))),
    ("renamed", |driver, round| driver.rename(&sub(&format!("goes-{round}")), &sub(&format!("to-{round}")))),
    ("renamed over another", |driver, round| {
        driver.create(&sub("fresh"))?;
        driver.rename(&sub("fresh"), &sub(&format!("goes-{round}")))
    }),
    ("saved by way of a backup", |driver, round| {
        let (name, backup) = (sub(&format!("goes-{round}")), sub(&format!("goes-{round}~")));
        driver.rename(&name, &backup)?;
        driver.create(&name)?;
        driver.unlink(&backup)
    }),
    ("removed and made again", |driver, round| {
        driver.unlink(&sub(&format!("goes-{round}")))?;
        driver.create(&sub(&format!("goes-{round}")))
    }),
    ("a directory made", |driver, round| driver.mkdir(&sub(&format!("dir-{round}")))),
    ("a directory made and removed", |driver, round| {
        driver.mkdir(&sub(&format!("dir-{round}")))?;
        driver.rmdir(&sub(&format!("dir-{round}")))
    }),
    ("the directory itself moved there and back", |driver, _| {
        driver.rename(&join(D_PATH, "sub"), &join(D_PATH, "moved"))?;
        driver.rename(&join(D_PATH, "moved"), &join(D_PATH, "sub"))
    }),
];

fn sub(name: &str) -> String {
    join(D_PATH, &format!("sub/{name}"))
}

/// A directory with names that stay and names that go.
fn furnished() -> InProcess {
    let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
    write_bare_sample(&workspace);
    let mut driver = InProcess::new(&workspace, Rules::default(), Memory::Long);
    driver.mkdir(&join(D_PATH, "sub")).expect("made");
    for number in 0..STAY {
        driver.create(&sub(&format!("stays-{number}"))).expect("made");
        driver.create(&sub(&format!("goes-{number}"))).expect("made");
    }
    driver
}

/// The next names of a directory, each of which is told to the kernel as readdirplus does, and where to go on.
fn page(driver: &InProcess, number: u64, after: u64, count: usize) -> (Vec<String>, Option<u64>) {
    let listing = driver.vfs().list(number, after).expect("listed");
    let (mut names, mut at) = (Vec::new(), None);
    for (position, listed) in listing.rest().take(count) {
        at = Some(position);
        let entered =
            listed.is_dots() || driver.vfs().enter_listed(number, listed, after == 0).expect("looked at").is_some();
        if entered {
            names.push(listed.name.to_string_lossy().into_owned());
        }
    }
    (names, at)
}

#[test]
fn a_name_that_stays_is_listed_once_whatever_changes_meanwhile() {
    for (what, act) in ACTS {
        for count in [1, 7, 30] {
            let mut driver = furnished();
            let number = driver.know(&join(D_PATH, "sub")).expect("there");
            let (mut met, mut at, mut round) = (BTreeMap::<String, usize>::new(), 0, 0);
            loop {
                let (names, next) = page(&driver, number, at, count);
                names.into_iter().for_each(|name| *met.entry(name).or_default() += 1);
                let Some(next) = next else { break };
                at = next;
                if round < STAY {
                    act(&mut driver, round).unwrap_or_else(|errno| panic!("{what}: {errno}"));
                    round += 1;
                }
            }
            for name in (0..STAY).map(|number| format!("stays-{number}")).chain([".".to_owned(), "..".to_owned()]) {
                assert_eq!(met.get(&name), Some(&1), "{name}, while others are {what}, {count} at a time");
            }
            assert!(met.values().all(|&times| times == 1), "{what}: {met:?}");
        }
    }
}

#[test]
fn a_listing_that_begins_later_has_what_was_made_before() {
    let mut driver = furnished();
    let number = driver.know(&join(D_PATH, "sub")).expect("there");
    for round in 0..20 {
        // Another reader is somewhere in the middle, and goes on meanwhile.
        let (_, first) = page(&driver, number, 0, 5 * round);
        driver.create(&sub(&format!("new-{round}"))).expect("made");
        let (mut met, begun) = page(&driver, number, 0, 3);
        if let Some(first) = first {
            page(&driver, number, first, 1000);
        }
        met.extend(page(&driver, number, begun.expect("there is more"), 1000).0);
        assert!(met.contains(&format!("new-{round}")), "{met:?}");
    }
}

#[test]
fn a_name_that_is_hidden_is_not_told_by_a_listing_from_before() {
    let mut driver = furnished();
    let number = driver.know(&join(D_PATH, "sub")).expect("there");
    let listing = driver.vfs().list(number, 0).expect("listed");
    driver.unlink(&sub("goes-0")).expect("removed");
    let (_, gone) = listing.rest().find(|(_, listed)| listed.name == "goes-0").expect("it was there");
    assert!(driver.vfs().enter_listed(number, gone, false).expect("looked at").is_none());
    assert!(driver.list(&join(D_PATH, "sub")).expect("listed").iter().all(|name| name != "goes-0"));
    driver.create(&sub("goes-0")).expect("made again");
    assert!(driver.list(&join(D_PATH, "sub")).expect("listed").iter().any(|name| name == "goes-0"));
}

#[test]
fn a_directory_that_moves_is_listed_to_the_end() {
    let mut driver = furnished();
    let number = driver.know(&join(D_PATH, "sub")).expect("there");
    let (mut met, at) = page(&driver, number, 0, 10);
    driver.rename(&join(D_PATH, "sub"), &join(D_PATH, "moved")).expect("moved");
    met.extend(page(&driver, number, at.expect("there is more"), 1000).0);
    assert_eq!(met.len(), 2 * STAY + 2);
}

/// What cannot be looked at is not gone: the listing fails, and is never a shorter one.
#[test]
fn a_listing_that_cannot_look_fails() {
    let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
    write_bare_sample(&workspace);
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::default());
    let backing = FaultBacking::new(disk.allowed().clone());
    let shared: Arc<dyn Backing> = Arc::new(backing.clone());
    let mut driver = InProcess::over(&workspace, Rules::default(), Memory::Long, disk, shared, clock())
        .unwrap_or_else(|error| panic!("cannot begin: {error}"));
    driver.create(&join(D_PATH, "notes.md")).expect("made");
    let number = driver.know(D_PATH).expect("there");
    let all = |driver: &InProcess| -> Result<Vec<String>, i32> {
        let listing = driver.vfs().list(number, 0).map_err(|error| error.errno())?;
        let mut names = Vec::new();
        for (_, listed) in listing.rest().filter(|(_, listed)| !listed.is_dots()) {
            let entered = driver.vfs().enter_listed(number, listed, false).map_err(|error| error.errno())?;
            names.extend(entered.map(|_| listed.name.to_string_lossy().into_owned()));
        }
        Ok(names)
    };
    let whole = all(&driver).expect("listed");
    assert_eq!(whole.len(), 4, "{whole:?}");
    for nth in 1.. {
        backing.arm(nth, libc::EIO);
        let listed = all(&driver);
        if !backing.struck() {
            assert!(nth > 5, "too little is looked at");
            break;
        }
        assert_eq!(listed, Err(libc::EIO), "call {nth}: {:?}", backing.log());
    }
}
