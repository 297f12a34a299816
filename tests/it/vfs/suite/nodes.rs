//! Numbers, listings, attributes and locks.

use std::collections::BTreeSet;

use super::super::*;

pub(super) fn chmod_and_utimens(world: &mut World) {
    for (n, dir, name) in [(D, D_PATH, "events.json"), (B, B_PATH, "notes.md")] {
        let path = join(dir, name);
        world.driver.chmod(&path, 0o600).expect("set");
        world.driver.set_mtime(&path, BEFORE + 5).expect("set");
        let stat = world.driver.stat(&path).expect("there");
        assert_eq!((stat.mode, stat.mtime), (0o600, BEFORE + 5), "{path}");
        let real = world.stored(n).join(name);
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&real).expect("there")) & 0o7777;
        assert_eq!((mode, jp_tests::mtime(&real)), (0o600, BEFORE + 5), "{path}");
    }
    // Of the bits beyond reading, writing and executing none can be set, and none is set.
    for mode in [0o4600, 0o2600, 0o1600] {
        assert_eq!(world.driver.chmod(&join(B_PATH, "notes.md"), mode), Err(libc::EPERM), "{mode:o}");
    }
    assert_eq!(world.driver.stat(&join(B_PATH, "notes.md")).map(|stat| stat.mode), Ok(0o600));
    // A save leaves the mode alone.
    world.driver.write(&join(D_PATH, "events.json"), &events("saved")).expect("written");
    assert_eq!(world.driver.stat(&join(D_PATH, "events.json")).map(|stat| stat.mode), Ok(0o600));
    // Of a draft the time is the draft's, and the file behind keeps the mode.
    let path = join(C_PATH, "events.json");
    world.driver.write(&path, b"[").expect("taken as a draft");
    world.driver.set_mtime(&path, BEFORE + 9).expect("set");
    world.driver.chmod(&path, 0o640).expect("set");
    assert_eq!(world.driver.stat(&path).map(|stat| (stat.mode, stat.mtime, stat.size)), Ok((0o640, BEFORE + 9, 1)));
    world.driver.chmod(&join(D_PATH, "nothing"), 0o600).expect_err("there is nothing");
    // A directory that something is made in has changed.
    world.driver.set_mtime(D_PATH, BEFORE).expect("set");
    assert_eq!(world.driver.stat(D_PATH).map(|stat| stat.mtime), Ok(BEFORE));
    world.driver.create(&join(D_PATH, "new")).expect("made");
    assert!(world.driver.stat(D_PATH).is_ok_and(|stat| stat.mtime > BEFORE));
}

pub(super) fn numbers(world: &mut World) {
    let paths = [A_PATH, B_PATH, D_PATH, ".archive", O_PATH, "17528832001-anna/conversations"];
    let files =
        paths.iter().flat_map(|path| ["", "/metadata.json", "/events.json"].map(|file| format!("{path}{file}")));
    let ask = |world: &mut World| -> Vec<u64> {
        let asked = files.clone().chain([join(B_PATH, "notes.md"), C_PATH.to_owned(), join(C_PATH, "events.json")]);
        asked.filter_map(|path| world.driver.stat(&path).ok()).map(|stat| stat.ino).collect()
    };
    let before = ask(world);
    assert_eq!(before.iter().collect::<BTreeSet<_>>().len(), before.len(), "no two are the same");
    world.driver.remount();
    assert_eq!(ask(world), before, "the same after mounting again");
    // They go along when the conversation moves.
    let (c, notes) = (before[before.len() - 2], before[before.len() - 3]);
    let moved = format!("{D_PATH}/conversations/17528842001-berta");
    world.driver.rename(B_PATH, &moved).expect("moved");
    world.sees("the number goes along", |driver| {
        let ino = |driver: &mut dyn Driver, path: &str| driver.stat(&join(&moved, path)).map(|stat| stat.ino);
        ino(driver, "notes.md") == Ok(notes) && ino(driver, "conversations/17528852001-clara") == Ok(c)
    });
    // A new file in the place of one that somebody knows is another.
    let path = join(D_PATH, "events.json");
    let old = world.driver.stat(&path).expect("there").ino;
    let mut held = world.driver.hold(&path).expect("open");
    let bytes = held.read().expect("read");
    world.driver.save(&path, "events.json.tmp", &events("replaced")).expect("saved");
    let new = world.driver.stat(&path).expect("there").ino;
    assert_ne!(new, old);
    assert_eq!(held.read(), Ok(bytes), "whoever has it open goes on reading it");
    drop(held);
    // In place it is the same.
    world.driver.write(&path, &events("in place")).expect("written");
    if world.which != Which::Forgetful {
        assert_eq!(world.driver.stat(&path).map(|stat| stat.ino), Ok(new));
    }
    world.driver.remount();
    assert_eq!(
        world.driver.stat(&path).map(|stat| stat.ino),
        Ok(old),
        "and after mounting again it follows from the id"
    );
}

pub(super) fn listings(world: &mut World) {
    let made: BTreeSet<String> = (0..300).map(|number| format!("file-{number:03}")).collect();
    for name in &made {
        world.driver.create(&join(D_PATH, name)).expect("made");
    }
    let managed = ["base_config.json", "events.json", "metadata.json"].map(str::to_owned);
    let all: BTreeSet<String> = made.iter().cloned().chain(managed.clone()).collect();
    let listed = |world: &mut World| world.driver.list(D_PATH).expect("listed").into_iter().collect::<BTreeSet<_>>();
    assert_eq!(listed(world), all);
    world.driver.remount();
    assert_eq!(listed(world), all);
    // Names are removed while somebody reads on: it meets every other name once.
    if world.driver.is_prompt() {
        let mut driver = InProcess::new(&world.workspace, Rules::default(), Memory::Long);
        let dots = driver.list_from(D_PATH, 0, 2).expect("listed");
        assert_eq!(dots.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), [".", ".."]);
        for count in [1, 7, 50] {
            let (mut met, mut at) = (Vec::new(), 2);
            let mut removed = None;
            loop {
                let page = driver.list_from(D_PATH, at, count).expect("listed");
                let Some((cookie, name)) = page.last() else { break };
                at = *cookie;
                met.extend(page.iter().map(|(_, name)| name.clone()));
                if removed.is_none() && name.starts_with("file-") {
                    driver.unlink(&join(D_PATH, name)).expect("removed");
                    removed = Some(name.clone());
                }
            }
            let expected: BTreeSet<String> = met.iter().cloned().collect();
            assert_eq!(met.len(), expected.len(), "nothing twice");
            let removed = removed.expect("one was removed");
            assert!(driver.list(D_PATH).expect("listed").into_iter().all(|name| expected.contains(&name)));
            assert!(!driver.list(D_PATH).expect("listed").contains(&removed));
            // From any place on, again.
            let again = driver.list_from(D_PATH, at.min(1 << 62), 5);
            assert!(again.is_ok());
        }
    } else {
        let point = world.workspace.storage().join("conversations").join(D_PATH);
        let mut met = BTreeSet::new();
        for (number, entry) in fs::read_dir(&point).expect("listed").enumerate() {
            let name = entry.expect("listed").file_name().to_string_lossy().into_owned();
            if number % 2 == 0 && name.starts_with("file-") {
                fs::remove_file(point.join(&name)).expect("removed");
            }
            assert!(met.insert(name), "nothing twice");
        }
        assert_eq!(met, all);
        let left = listed(world);
        assert!(left.len() < all.len() && left.is_subset(&all));
    }
}

pub(super) fn read_only(world: &mut World) {
    let mut fixed = world.another(Rules { read_only: true, ..Rules::default() });
    let before = fixed.store();
    let events_path = join(D_PATH, "events.json");
    let driver = &mut fixed.driver;
    assert!(driver.read(&events_path).is_ok());
    let refused = [
        driver.write(&events_path, b"[]"),
        driver.write_at(&events_path, 0, b"[]"),
        driver.truncate(&events_path, 0),
        driver.create(&join(D_PATH, "new")),
        driver.create(&join(D_PATH, "new.tmp")),
        driver.mkdir("17528892001"),
        driver.mkdir("17528872001-lena"),
        driver.rename(D_PATH, &format!("{A_PATH}/conversations/{D_PATH}")),
        driver.rename(&join(B_PATH, "notes.md"), &join(B_PATH, "other.md")),
        driver.unlink(&events_path),
        driver.rmdir(D_PATH),
        driver.symlink("x", &join(D_PATH, "link")),
        driver.chmod(&events_path, 0o600),
        driver.set_mtime(&events_path, 1),
    ];
    assert_eq!(refused, [Err(libc::EROFS); 14]);
    assert_eq!(fixed.store(), before);
    fixed.lists("", &[".archive", A_PATH, D_PATH]);
    if !world.driver.is_prompt() {
        return;
    }
    // What an earlier mount left to be done waits for one that may.
    world.driver.mkdir("17528892001").expect("made");
    let left = world.state().join("drafts");
    let header = r#"{"base":null,"reason":null,"since":"","waiting":"lock","changed":0}"#;
    for (path, bytes) in [
        (format!("{D}/events.json"), [header.as_bytes(), b"\n", &events("waits")].concat()),
        ("new/17528892001/events.json".to_owned(), events("arrives")),
        ("new/17528892001/metadata.json".to_owned(), world.bytes(D, "metadata.json")),
    ] {
        fs::create_dir_all(left.join(&path).parent().expect("it is in one")).expect("made");
        fs::write(left.join(path), bytes).expect("written");
    }
    let (stored, left_before) = (world.store(), contents(&left));
    let driver = InProcess::new(&world.workspace, Rules { read_only: true, ..Rules::default() }, Memory::Short);
    driver.vfs().tend_drafts();
    driver.vfs().tend_waiting();
    driver.vfs().tend_arrivals();
    assert_eq!((world.store(), contents(&left)), (stored, left_before));
    assert_eq!(world.kept(D).len(), 0);
}

pub(super) fn locked(world: &mut World) {
    let mark = world.workspace.env().root().join("held");
    let script = format!("echo > {}; read line; exit 0", mark.display());
    let held = world.workspace.call(&["lock", "run", &format!("jp-c{B}"), "--", "sh", "-c", &script]).start();
    wait_for("the lock to be held", LIMIT, || mark.exists());
    let before = world.store();
    let (list, notes) = (join(B_PATH, "events.json"), join(B_PATH, "notes.md"));
    let driver = &mut world.driver;
    assert!(driver.read(&list).is_ok(), "readers are let through");
    driver.write(&join(B_PATH, "x.tmp"), b"x").expect("scratch is nobody's");
    let refused = [
        driver.write(&list, &events("x")),
        driver.write_at(&list, 0, b" "),
        driver.append(&list, b" "),
        driver.truncate(&list, 0),
        driver.rename(&join(B_PATH, "x.tmp"), &list),
        driver.rename(&list, &join(B_PATH, "events.json~")),
        driver.unlink(&list),
        driver.write(&notes, b"x"),
        driver.truncate(&notes, 0),
        driver.unlink(&notes),
        driver.rename(&notes, &join(D_PATH, "notes.md")),
        driver.rename(&join(D_PATH, "events.json"), &list),
        driver.create(&join(B_PATH, "new")),
        driver.mkdir(&join(B_PATH, "dir")),
        driver.symlink("x", &join(B_PATH, "link")),
        driver.rename(B_PATH, "17528842001-berta"),
        driver.rename(B_PATH, &format!("{A_PATH}/conversations/17528842001-other")),
        driver.rename(A_PATH, &format!(".archive/{A_PATH}")),
    ];
    assert_eq!(refused, [Err(libc::EBUSY); 18]);
    // A directory that is still full says that first; an empty one says who is in the way.
    driver.remove_all(C_PATH).expect("its own lock is free");
    assert_eq!(driver.rmdir(B_PATH), Err(libc::ENOTEMPTY));
    assert_eq!(world.store(), before);
    assert_eq!(world.drafts().len(), 0, "nothing was taken, so nothing is kept");
    held.finish().ok();
    world.driver.write(&list, &events("free")).expect("written");
    assert_eq!(world.bytes(B, "events.json"), events("free"));
    // An empty one that is held.
    for name in ["base_config.json", "events.json", "metadata.json", "notes.md", "x.tmp"] {
        world.driver.unlink(&join(B_PATH, name)).expect("removed");
    }
    fs::remove_file(&mark).expect("it was made");
    let held = world.workspace.call(&["lock", "run", &format!("jp-c{B}"), "--", "sh", "-c", &script]).start();
    wait_for("the lock to be held", LIMIT, || mark.exists());
    assert_eq!(world.driver.rmdir(B_PATH), Err(libc::EBUSY));
    held.finish().ok();
    world.driver.rmdir(B_PATH).expect("free");
}

pub(super) fn stale_and_orphans(world: &mut World) {
    let old = world.bytes(D, "events.json");
    let (list, notes) = (join(D_PATH, "events.json"), join(B_PATH, "notes.md"));
    // Replaced by a save, unlinked, and unlinked as a draft.
    let mut replaced = world.driver.hold(&list).expect("open");
    world.driver.save(&list, "events.json.tmp", &events("new")).expect("saved");
    assert_eq!(replaced.read(), Ok(old));
    let mut unlinked = world.driver.hold(&list).expect("open");
    world.driver.unlink(&list).expect("hidden");
    assert_eq!(unlinked.read(), Ok(events("new")));
    world.driver.write(&list, &events("newer")).expect("written again");
    assert_eq!(unlinked.read(), Ok(events("new")), "what was unlinked is not what has its name now");
    let mut own = world.driver.hold(&notes).expect("open");
    world.driver.save(&notes, "other", b"other").expect("saved");
    assert_eq!(own.read(), Ok(b"a note\n".to_vec()));
    let mut again = world.driver.hold(&notes).expect("open");
    world.driver.unlink(&notes).expect("hidden");
    world.driver.write(&notes, b"third").expect("written again");
    assert_eq!((again.read(), own.read()), (Ok(b"other".to_vec()), Ok(b"a note\n".to_vec())));
    world.driver.write(&join(C_PATH, "events.json"), b"[ draft").expect("taken as a draft");
    let mut draft = world.driver.hold(&join(C_PATH, "events.json")).expect("open");
    world.driver.unlink(&join(C_PATH, "events.json")).expect("hidden");
    assert_eq!(draft.read(), Ok(b"[ draft".to_vec()));
    // What is written to a file without a name is for whoever has it open alone.
    let (events_path, own_path) = (join(A_PATH, "events.json"), join(A_PATH, "own.md"));
    world.driver.write(&own_path, b"mine").expect("written");
    let before = world.store();
    let mut nameless = [&events_path, &own_path].map(|path| world.driver.hold(path).expect("open"));
    for (held, path) in nameless.iter_mut().zip([&events_path, &own_path]) {
        world.driver.unlink(path).expect("hidden");
        held.cut_and_write(1, b"rest").expect("written");
        assert_eq!(held.read().map(|bytes| bytes[1..].to_vec()), Ok(b"rest".to_vec()));
    }
    assert_eq!(world.store(), before, "the store keeps what is hidden");
    drop(nameless);
    let orphans = world.state().join("orphans");
    assert!(contents(&orphans).len() >= 5);
    drop((replaced, unlinked, own, again, draft));
    if world.driver.is_prompt() {
        let driver = InProcess::new(&world.workspace, Rules::default(), Memory::Short);
        for number in [0, 3, 21, 1 << 62, u64::MAX] {
            assert_eq!(driver.vfs().attr(number).map_err(|error| error.errno()).err(), Some(libc::ESTALE), "{number}");
            let read = driver.vfs().read(number, 0, 1);
            assert_eq!(read.map_err(|error| error.errno()).err(), Some(libc::ESTALE), "{number}");
        }
        // A conversation that nobody has.
        assert_eq!(driver.vfs().attr((N + 1) << 4).map_err(|error| error.errno()).err(), Some(libc::ESTALE));
    }
    world.driver.remount();
    assert_eq!(contents(&orphans).len(), 0, "nobody has them open any more");
    world.shows(&notes, b"third");
    world.shows(&list, &events("newer"));
}

pub(super) fn all_of_them(world: &mut World) {
    let mut all = world.another(Rules { all: true, ..Rules::default() });
    all.lists("", &[".archive", A_PATH, D_PATH, "17528872001-lena"]);
    let path = "17528872001-lena/events.json";
    all.driver.write(path, &events("seen")).expect("written");
    assert_eq!(all.bytes(L, "events.json"), events("seen"));
    // What is removed is gone for as long as it is mounted, though it was not meant to be here before either.
    all.driver.remove_all("17528872001-lena").expect("removed");
    all.gone("17528872001-lena");
    all.lists("", &[".archive", A_PATH, D_PATH]);
    all.driver.mkdir_and_leave("17528872001-lena").expect("brought back");
    all.shows(path, &events("seen"));
}
