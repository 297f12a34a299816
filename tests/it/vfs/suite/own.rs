//! Files, directories and links of the user's own, and programs' scratch.

use jp_store::disk::Kind;
use jp_tests::driver::{Driver, How};

use super::super::*;

pub(super) fn files_and_directories(world: &mut World) {
    let at = |name: &str| join(D_PATH, name);
    world.driver.create(&at("plan.md")).expect("made");
    assert_eq!(world.driver.create(&at("plan.md")), Err(libc::EEXIST));
    assert_eq!(world.bytes(D, "plan.md"), b"");
    world.driver.write(&at("plan.md"), b"one two").expect("written");
    world.driver.write_at(&at("plan.md"), 4, b"TWO three").expect("written");
    world.driver.append(&at("plan.md"), b"!").expect("written");
    assert_eq!(world.bytes(D, "plan.md"), b"one TWO three!");
    world.driver.mkdir(&at("docs")).expect("made");
    assert_eq!(world.driver.mkdir(&at("docs")), Err(libc::EEXIST));
    world.driver.mkdir(&at("docs/deep")).expect("made");
    world.driver.write(&at("docs/deep/events.json"), b"no document, and need not be").expect("written");
    assert_eq!(world.bytes(D, "docs/deep/events.json"), b"no document, and need not be");
    assert_eq!(world.driver.rename(&at("plan.md"), &at("docs/plan.md")), Ok(()));
    assert_eq!(world.driver.rename(&at("docs"), &at("papers")), Ok(()));
    assert_eq!(world.bytes(D, "papers/plan.md"), b"one TWO three!");
    world.shows(&at("papers/deep/events.json"), b"no document, and need not be");
    world.lists(D_PATH, &["base_config.json", "events.json", "metadata.json", "papers"]);
    world.lists(&at("papers"), &["deep", "plan.md"]);
    for (from, to, errno) in [
        ("papers/plan.md", "papers/deep", libc::EISDIR),
        ("papers/deep", "papers/plan.md", libc::ENOTDIR),
        ("papers", "papers/deep/papers", libc::EINVAL),
    ] {
        assert_eq!(world.driver.rename(&at(from), &at(to)), Err(errno), "{from} to {to}");
    }
    world.driver.mkdir(&at("full")).expect("made");
    world.driver.create(&at("full/x")).expect("made");
    assert_eq!(world.driver.rename(&at("papers"), &at("full")), Err(libc::ENOTEMPTY));
    assert_eq!(world.driver.rmdir(&at("papers")), Err(libc::ENOTEMPTY));
    // Another program's conversations are not ours, even when they are called so.
    world.driver.remount();
    world.shows(&at("papers/plan.md"), b"one TWO three!");
}

pub(super) fn symlinks(world: &mut World) {
    let link = join(D_PATH, "link");
    world.driver.symlink("events.json", &link).expect("linked");
    assert_eq!(world.driver.readlink(&link).as_deref(), Ok("events.json"));
    assert_eq!(world.driver.read(&link), Ok(world.bytes(D, "events.json")));
    assert_eq!(world.driver.stat(&link).map(|stat| (stat.kind, stat.size)), Ok((Kind::Link, 11)));
    assert_eq!(fs::read_link(world.stored(D).join("link")).ok(), Some("events.json".into()));
    world.driver.symlink("nowhere", &join(D_PATH, "broken")).expect("linked");
    assert_eq!(world.driver.read(&join(D_PATH, "broken")), Err(libc::ENOENT));
    assert_eq!(world.driver.symlink("x", &link), Err(libc::EEXIST));
    assert_eq!(world.driver.symlink("x", &join(D_PATH, "events.json")), Err(libc::EEXIST));
    assert_eq!(world.driver.readlink(&join(D_PATH, "events.json")), Err(libc::EINVAL));
    assert_eq!(world.driver.symlink("x", "17528892001"), Err(libc::EPERM));
    world.driver.rename(&link, &join(D_PATH, "renamed")).expect("renamed");
    world.driver.unlink(&join(D_PATH, "broken")).expect("removed");
    world.lists(D_PATH, &["base_config.json", "events.json", "metadata.json", "renamed"]);
    // Emacs' lock is a link that points nowhere.
    world.driver.symlink("ada@host.123:456", &join(D_PATH, ".#events.json")).expect("linked");
    assert_eq!(world.driver.readlink(&join(D_PATH, ".#events.json")).as_deref(), Ok("ada@host.123:456"));
    assert!(fs::symlink_metadata(world.stored(D).join(".#events.json")).is_err());
    world.driver.unlink(&join(D_PATH, ".#events.json")).expect("removed");
    world.lists(D_PATH, &["base_config.json", "events.json", "metadata.json", "renamed"]);
}

pub(super) fn across_conversations(world: &mut World) {
    let notes = join(B_PATH, "notes.md");
    world.driver.rename(&notes, &join(D_PATH, "notes.md")).expect("moved");
    assert_eq!(world.bytes(D, "notes.md"), b"a note\n");
    assert!(!world.stored(B).join("notes.md").exists());
    world.gone(&notes);
    world.driver.mkdir(&join(D_PATH, "dir")).expect("made");
    world.driver.write(&join(D_PATH, "dir/x"), b"x").expect("written");
    world.driver.rename(&join(D_PATH, "dir"), &join(C_PATH, "dir")).expect("moved");
    assert_eq!(world.bytes(C, "dir/x"), b"x");
    world.shows(&join(C_PATH, "dir/x"), b"x");
    // A managed file of one over the same of another: its bytes are saved there, and hidden here.
    let (from, to) = (join(D_PATH, "events.json"), join(C_PATH, "events.json"));
    let bytes = world.bytes(D, "events.json");
    world.driver.rename(&from, &to).expect("moved");
    assert_eq!((world.bytes(C, "events.json"), world.bytes(D, "events.json")), (bytes.clone(), bytes.clone()));
    world.gone(&from);
    world.shows(&to, &bytes);
    // Out of the way under a name of one's own, and back.
    world.driver.rename(&to, &join(C_PATH, "old.json")).expect("moved");
    assert_eq!(world.bytes(C, "old.json"), bytes);
    world.driver.rename(&join(C_PATH, "old.json"), &from).expect("moved");
    world.shows(&from, &bytes);
    assert!(!world.stored(C).join("old.json").exists());
    assert_eq!(world.bytes(D, "events.json"), bytes);
}

pub(super) fn scratch_never_enters_the_store(world: &mut World) {
    let before = world.store();
    let names =
        [".events.json.swp", "4913", "events.json~", "#notes#", "x.tmp", ".goutputstream-1", ".DS_Store", "._x"];
    for dir in [D_PATH, "", "17528832001-anna/conversations", ".archive"] {
        for name in names {
            let path = join(dir, name);
            world.driver.create(&path).unwrap_or_else(|errno| panic!("{path}: {errno}"));
            world.driver.write(&path, path.as_bytes()).expect("written");
            assert_eq!(world.driver.read(&path).as_deref(), Ok(path.as_bytes()));
        }
        assert_eq!(world.store(), before, "scratch in {dir:?}");
    }
    world.driver.mkdir(&join(D_PATH, "dir.tmp")).expect("made");
    world.driver.write(&join(D_PATH, "dir.tmp/inside"), b"inside").expect("written");
    world.driver.remount();
    assert_eq!(world.driver.read(&join(D_PATH, "dir.tmp/inside")).as_deref(), Ok(&b"inside"[..]));
    for name in names {
        let (path, to) = (join(D_PATH, name), join("", name));
        assert_eq!(world.driver.read(&path).as_deref(), Ok(path.as_bytes()), "scratch survives");
        world.driver.rename(&path, &to).expect("renamed");
        assert_eq!(world.driver.read(&to).as_deref(), Ok(path.as_bytes()));
        world.driver.unlink(&to).expect("removed");
    }
    assert_eq!(world.store(), before);
    // Scratch that gets a proper name becomes a file, with everything in it.
    world.driver.rename(&join(D_PATH, "dir.tmp"), &join(D_PATH, "dir")).expect("renamed");
    assert_eq!(world.bytes(D, "dir/inside"), b"inside");
    world.driver.rename(&join(D_PATH, "dir/inside"), &join(D_PATH, "inside~")).expect("renamed");
    // A file that gets a name for scratch can be removed for good, so the store keeps what it had.
    assert!(!world.stored(D).join("inside~").exists());
    world.gone(&join(D_PATH, "dir/inside"));
    world.driver.unlink(&join(D_PATH, "inside~")).expect("removed");
    assert_eq!(world.bytes(D, "dir/inside"), b"inside");
    assert_eq!(world.driver.rename(&join(D_PATH, "dir"), &join(D_PATH, "dir~")), Err(libc::EXDEV));
    world.driver.symlink("x", &join(D_PATH, "link")).expect("made");
    assert_eq!(world.driver.rename(&join(D_PATH, "link"), &join(D_PATH, "link~")), Err(libc::EXDEV));
    world.driver.create(&join(D_PATH, "dir/deep.tmp")).expect("made");
    world.lists(&join(D_PATH, "dir"), &["deep.tmp"]);
    assert!(!world.stored(D).join("dir/deep.tmp").exists());
    assert_eq!(world.driver.rmdir(&join(D_PATH, "dir")), Err(libc::ENOTEMPTY));
}

pub(super) fn hidden_and_made_again(world: &mut World) {
    // A file gets the name of a directory that is hidden.
    let dir = join(D_PATH, "dir");
    world.driver.mkdir(&dir).expect("made");
    world.driver.write(&join(&dir, "inside"), b"inside").expect("written");
    world.driver.remove_all(&dir).expect("hidden");
    world.driver.write(&join(D_PATH, "file"), b"file").expect("written");
    world.driver.rename(&join(D_PATH, "file"), &dir).expect("nothing is seen there");
    world.shows(&dir, b"file");
    assert_eq!(world.kept(D), [b"inside"], "what was there is kept");
    world.driver.unlink(&dir).expect("hidden");
    let before = world.store();
    let notes = join(B_PATH, "notes.md");
    world.driver.unlink(&notes).expect("hidden");
    world.gone(&notes);
    assert_eq!(world.store(), before, "the store keeps it");
    world.driver.remount();
    assert_eq!(world.driver.stat(&notes), Err(libc::ENOENT));
    world.driver.create(&notes).expect("made again");
    world.driver.write(&notes, b"other").expect("written");
    world.shows(&notes, b"other");
    assert_eq!(world.bytes(B, "notes.md"), b"other");
    // A directory with what it hides.
    world.driver.mkdir(&join(B_PATH, "dir")).expect("made");
    world.driver.write(&join(B_PATH, "dir/a"), b"a").expect("written");
    world.driver.write(&join(B_PATH, "dir/b"), b"b").expect("written");
    world.driver.remove_all(&join(B_PATH, "dir")).expect("hidden");
    world.gone(&join(B_PATH, "dir"));
    assert_eq!((world.bytes(B, "dir/a"), world.bytes(B, "dir/b")), (b"a".to_vec(), b"b".to_vec()));
    world.driver.mkdir(&join(B_PATH, "dir")).expect("made again");
    world.lists(&join(B_PATH, "dir"), &[]);
    world.driver.write(&join(B_PATH, "dir/a"), b"A").expect("written");
    world.lists(&join(B_PATH, "dir"), &["a"]);
    assert_eq!((world.bytes(B, "dir/a"), world.bytes(B, "dir/b")), (b"A".to_vec(), b"b".to_vec()));
    // A thing of another kind takes the name of what is hidden, and that is kept elsewhere.
    world.driver.remove_all(&join(B_PATH, "dir")).expect("hidden");
    world.driver.write(&join(B_PATH, "dir"), b"a file now").expect("written");
    world.shows(&join(B_PATH, "dir"), b"a file now");
    let mut kept = vec![b"A".to_vec(), b"b".to_vec()];
    if world.is_mirror("hidden_and_made_again") {
        // What was hidden and then written anew was kept as well.
        kept.splice(0..0, [b"a note\n".to_vec(), b"a".to_vec()]);
    }
    assert_eq!((world.bytes(B, "dir"), world.kept(B)), (b"a file now".to_vec(), kept));
    world.driver.unlink(&join(B_PATH, "dir")).expect("hidden");
    world.driver.mkdir(&join(B_PATH, "dir")).expect("made");
    assert_eq!(world.driver.stat(&join(B_PATH, "dir")).map(|stat| stat.kind), Ok(Kind::Dir));
    world.lists(&join(B_PATH, "dir"), &[]);
    assert!(world.kept(B).contains(&b"a file now".to_vec()));
    world.driver.unlink(&notes).expect("hidden");
    world.driver.symlink("events.json", &notes).expect("linked");
    assert_eq!(world.driver.readlink(&notes).as_deref(), Ok("events.json"));
    assert!(world.kept(B).contains(&b"other".to_vec()));
}

/// A way to make a file, or something else that has these bytes.
type Make = fn(&mut dyn Driver, &str, &[u8]);

pub(super) fn changed_while_hidden(world: &mut World) {
    let ways: [(&str, Make); 2] = [
        ("written", |driver, path, bytes| driver.write(path, bytes).expect("written")),
        ("renamed", |driver, path, bytes| {
            driver.write(&join(D_PATH, "aside"), bytes).expect("written");
            driver.rename(&join(D_PATH, "aside"), path).expect("renamed");
        }),
    ];
    let mirror = world.is_mirror("changed_while_hidden");
    for (name, make) in ways {
        let path = join(D_PATH, name);
        world.driver.write(&path, b"shown").expect("written");
        world.driver.unlink(&path).expect("hidden");
        world.gone(&path);
        make(&mut *world.driver, &path, b"mine");
        world.shows(&path, b"mine");
        assert!(mirror || !world.kept(D).contains(&b"shown".to_vec()), "{name}: what was shown here is known");
        world.driver.unlink(&path).expect("hidden");
        world.gone(&path);
        let theirs = format!("theirs, before it is {name}").into_bytes();
        let beside = world.stored(D).join(name);
        fs::write(&beside, &theirs).expect("written beside it");
        jp_tests::set_mtime(&beside, BEFORE + 1);
        world.driver.remount();
        world.gone(&path);
        make(&mut *world.driver, &path, b"mine again");
        world.shows(&path, b"mine again");
        assert_eq!(world.bytes(D, name), b"mine again");
        assert!(world.kept(D).contains(&theirs), "{name}: nobody here has seen it");
    }
    // A link has no bytes but those of its target.
    let link = join(D_PATH, "link");
    world.driver.symlink("shown", &link).expect("linked");
    world.driver.unlink(&link).expect("hidden");
    world.gone(&link);
    let beside = world.stored(D).join("link");
    fs::remove_file(&beside).expect("removed");
    std::os::unix::fs::symlink("theirs", &beside).expect("linked beside it");
    world.driver.look();
    world.driver.symlink("mine", &link).expect("linked");
    assert_eq!(world.driver.readlink(&link).as_deref(), Ok("mine"));
    assert_eq!(world.kept_links(D), ["link -> theirs"]);
    if mirror {
        // A managed file that is removed while others stay comes back.
        return;
    }
    // A managed one.
    let path = join(C_PATH, "events.json");
    let save: Make = |driver, path, bytes| driver.save(path, "events.json.tmp", bytes).expect("saved");
    for (name, make) in [("written", ways[0].1), ("renamed", save)] {
        world.driver.unlink(&path).expect("hidden");
        world.gone(&path);
        let before = world.kept(C).len();
        make(&mut *world.driver, &path, &events("mine"));
        world.shows(&path, &events("mine"));
        assert_eq!(world.kept(C).len(), before, "{name}: what was shown here is known");
        world.driver.unlink(&path).expect("hidden");
        world.gone(&path);
        let theirs = events(&format!("theirs, before it is {name}"));
        fs::write(world.stored(C).join("events.json"), &theirs).expect("written beside it");
        world.driver.remount();
        make(&mut *world.driver, &path, &events("mine again"));
        assert_eq!(world.bytes(C, "events.json"), events("mine again"));
        assert!(world.kept(C).contains(&theirs), "{name}: nobody here has seen it");
    }
    // A whole conversation, by a program that copies it back.
    world.driver.remove_all(D_PATH).expect("hidden");
    world.gone(D_PATH);
    let theirs = [("events.json", events("theirs")), ("written", b"theirs at last".to_vec())];
    for (name, bytes) in &theirs {
        fs::write(world.stored(D).join(name), bytes).expect("written beside it");
    }
    world.driver.remount();
    let before = world.kept(D).len();
    world.driver.mkdir(D_PATH).expect("brought back");
    world.driver.write(&join(D_PATH, "metadata.json"), &metadata("Dora", None)).expect("written");
    world.driver.write(&join(D_PATH, "events.json"), &events("mine")).expect("written");
    for (name, bytes) in [("written", b"mine"), ("renamed", b"also")] {
        world.driver.write(&join(D_PATH, name), bytes).expect("written");
    }
    for (name, bytes) in &theirs {
        assert!(world.kept(D).contains(bytes), "{name}: nobody here has seen it");
    }
    assert_eq!(world.kept(D).len(), before + theirs.len(), "the rest was shown here");
}

pub(super) fn hidden_directory_is_kept_whole(world: &mut World) {
    let dir = join(D_PATH, "dir");
    for (kind, n) in [("file", 1), ("directory", 2)] {
        world.driver.mkdir(&dir).expect("made");
        world.driver.mkdir(&join(&dir, "deep")).expect("made");
        for (name, bytes) in [("dir/x", "x"), ("dir/deep/x", "deep x")] {
            world.driver.write(&join(D_PATH, name), bytes.as_bytes()).expect("written");
        }
        world.driver.symlink("x", &join(&dir, "link")).expect("linked");
        world.driver.remove_all(&dir).expect("hidden");
        world.gone(&dir);
        let aside = join(D_PATH, "aside");
        if kind == "file" {
            world.driver.write(&aside, b"file").expect("written");
        } else {
            world.driver.mkdir(&aside).expect("made");
        }
        world.driver.rename(&aside, &dir).expect("nothing is seen there");
        if world.is_mirror("hidden_directory_is_kept_whole") && kind == "directory" {
            world.lists(&dir, &[]);
            assert_eq!((world.bytes(D, "dir/x"), world.bytes(D, "dir/deep/x")), (b"x".to_vec(), b"deep x".to_vec()));
            return;
        }
        let kept = contents(&world.workspace.silo().join("vfs/conflicts").join(D.to_string()));
        let ends =
            |end: &str| kept.iter().filter(|(path, _)| path.ends_with(end)).map(|(_, bytes)| &bytes[..]).collect();
        let (x, deep): (Vec<&[u8]>, Vec<&[u8]>) = (ends("dir/x"), ends("dir/deep/x"));
        assert_eq!((x, deep), (vec![&b"x"[..]; n], vec![&b"deep x"[..]; n]), "by their paths: {:?}", kept.keys());
        assert_eq!(world.kept_links(D), vec!["link -> x"; n]);
        world.driver.remove_all(&dir).or_else(|_| world.driver.unlink(&dir)).expect("hidden");
        world.gone(&dir);
    }
}

pub(super) fn scratch_moves_with_its_directory(world: &mut World) {
    let at = |name: &str| join(D_PATH, name);
    world.driver.mkdir(&at("old")).expect("made");
    world.driver.mkdir(&at("old/deep")).expect("made");
    for name in ["note", ".note.swp", "deep/note~"] {
        world.driver.write(&at(&format!("old/{name}")), name.as_bytes()).expect("written");
    }
    let mut held = world.driver.hold(&at("old/.note.swp")).expect("opened");
    world.driver.rename(&at("old"), &at("new")).expect("renamed");
    world.lists(&at("new"), &[".note.swp", "deep", "note"]);
    world.lists(&at("new/deep"), &["note~"]);
    assert_eq!(held.read().as_deref(), Ok(&b".note.swp"[..]));
    drop(held);
    world.driver.mkdir(&at("old")).expect("made");
    world.lists(&at("old"), &[]);
    // To another conversation, and back.
    world.driver.rename(&at("new"), &join(C_PATH, "new")).expect("moved");
    world.shows(&join(C_PATH, "new/deep/note~"), b"deep/note~");
    world.driver.rename(&join(C_PATH, "new"), &at("again")).expect("moved");
    world.shows(&at("again/.note.swp"), b".note.swp");
    world.driver.remount();
    world.lists(&at("again"), &[".note.swp", "deep", "note"]);
    // A directory that has nothing but scratch is not empty.
    world.driver.mkdir(&at("other")).expect("made");
    world.driver.write(&at("other/.x.swp"), b"x").expect("written");
    assert_eq!(world.driver.rename(&at("again"), &at("other")), Err(libc::ENOTEMPTY));
    world.shows(&at("other/.x.swp"), b"x");
    world.driver.unlink(&at("other/.x.swp")).expect("removed");
    world.driver.rename(&at("again"), &at("other")).expect("nothing is there any more");
    world.lists(&at("other"), &[".note.swp", "deep", "note"]);
}

pub(super) fn over_a_directory_that_shows_nothing(world: &mut World) {
    let at = |name: &str| join(D_PATH, name);
    for name in ["from", "to", "to/deep"] {
        world.driver.mkdir(&at(name)).expect("made");
    }
    world.driver.write(&at("from/x"), b"x").expect("written");
    world.driver.write(&at("to/deep/y"), b"y").expect("written");
    assert_eq!(world.driver.rename(&at("from"), &at("to")), Err(libc::ENOTEMPTY));
    world.driver.remove_all(&at("to/deep")).expect("hidden");
    world.lists(&at("to"), &[]);
    world.driver.rename(&at("from"), &at("to")).expect("it is empty to whoever looks");
    world.lists(&at("to"), &["x"]);
    world.driver.remount();
    world.lists(D_PATH, &["base_config.json", "events.json", "metadata.json", "to"]);
    world.lists(&at("to"), &["x"]);
    if world.is_mirror("over_a_directory_that_shows_nothing") {
        assert_eq!(world.bytes(D, "to/deep/y"), b"y", "it stays hidden");
    } else {
        assert_eq!(world.kept(D), [b"y"], "what is hidden there is kept");
    }
}

pub(super) fn names_that_are_too_long(world: &mut World) {
    let (most, more) = ("x".repeat(255), "x".repeat(256));
    world.driver.write(&join(D_PATH, &most), b"x").expect("written");
    assert_eq!(world.bytes(D, &most), b"x");
    let long = join(D_PATH, &more);
    assert_eq!(world.driver.create(&long), Err(libc::ENAMETOOLONG));
    assert_eq!(world.driver.mkdir(&long), Err(libc::ENAMETOOLONG));
    assert_eq!(world.driver.stat(&long), Err(libc::ENAMETOOLONG));
    assert_eq!(world.driver.unlink(&long), Err(libc::ENAMETOOLONG));
    assert_eq!(world.driver.rename(&join(D_PATH, &most), &long), Err(libc::ENAMETOOLONG));
    assert_eq!(world.driver.symlink("x", &long), Err(libc::ENAMETOOLONG));
    assert_eq!(world.driver.rename(D_PATH, &format!("17528862001-{more}")), Err(libc::ENAMETOOLONG));
    // A title may be longer than any name.
    let title = "long words ".repeat(40);
    world.driver.write(&join(D_PATH, "metadata.json"), &metadata(&title, None)).expect("written");
    let short = name(D, &title);
    assert!(short.len() < 255);
    world.sees("the name is cut", |driver| driver.stat(&short).is_ok());
    assert_eq!(world.meta(D, "title"), json!(title));
}

pub(super) fn no_replace_and_exchange(world: &mut World) {
    let at = |name: &str| join(D_PATH, name);
    world.driver.write(&at("one"), b"one").expect("written");
    world.driver.write(&at("two"), b"two").expect("written");
    assert_eq!(world.driver.rename_how(&at("one"), &at("two"), How::NoReplace), Err(libc::EEXIST));
    assert_eq!(world.driver.rename_how(&at("one"), &at("events.json"), How::NoReplace), Err(libc::EEXIST));
    world.driver.rename_how(&at("one"), &at("three"), How::NoReplace).expect("the name is free");
    world.driver.rename_how(&at("two"), &at("three"), How::Exchange).expect("exchanged");
    assert_eq!((world.bytes(D, "two"), world.bytes(D, "three")), (b"one".to_vec(), b"two".to_vec()));
    world.shows(&at("two"), b"one");
    assert_eq!(world.driver.rename_how(&at("two"), &at("nothing"), How::Exchange), Err(libc::ENOENT));
    // With a managed file it is a save, and the old bytes are under the other name.
    let (old, new) = (world.bytes(D, "events.json"), events("exchanged"));
    for other in ["new.json", "new.json.tmp"] {
        world.driver.write(&at(other), &new).expect("written");
        world.driver.write(&at("events.json"), &old).expect("written");
        world.driver.rename_how(&at(other), &at("events.json"), How::Exchange).expect("exchanged");
        assert_eq!(world.bytes(D, "events.json"), new);
        world.shows(&at("events.json"), &new);
        world.shows(&at(other), &old);
        world.driver.rename_how(&at("events.json"), &at(other), How::Exchange).expect("and back");
        assert_eq!(world.bytes(D, "events.json"), old);
        world.shows(&at(other), &new);
    }
    let managed = world.driver.rename_how(&at("events.json"), &at("metadata.json"), How::Exchange);
    assert_eq!(managed, Err(libc::EINVAL));
    assert_eq!(world.driver.rename_how(A_PATH, D_PATH, How::Exchange), Err(libc::EINVAL));
    // The kernel looks at names first.
    let taken = world.driver.rename_how(D_PATH, A_PATH, How::NoReplace);
    assert!(matches!(taken, Err(libc::EEXIST | libc::EPERM)), "{taken:?}");
    assert_eq!(world.bytes(D, "events.json"), old);
}

pub(super) fn at_the_top(world: &mut World) {
    world.driver.write(".gitignore", b"*.log\n").expect("written");
    world.lists("", &[".archive", ".gitignore", A_PATH, D_PATH]);
    assert!(!world.workspace.silo().join("conversations/.gitignore").exists());
    world.driver.remount();
    world.shows(".gitignore", b"*.log\n");
    world.driver.rename(".gitignore", ".gitattributes").expect("renamed");
    world.lists("", &[".archive", ".gitattributes", A_PATH, D_PATH]);
    world
        .driver
        .rename(".gitattributes", &join(D_PATH, "attributes"))
        .or_else(|errno| {
            // The two may be on different filesystems.
            if errno == libc::EXDEV { Ok(()) } else { Err(errno) }
        })
        .expect("moved");
    assert_eq!(world.driver.mkdir("dir"), Err(libc::EPERM));
    // What the real tool leaves there is nobody's business.
    fs::write(world.stored(D).join("QUERY_MESSAGE.md"), "next").expect("written");
    world.driver.look();
    assert_eq!(world.driver.stat(&join(D_PATH, "QUERY_MESSAGE.md")), Err(libc::ENOENT));
    assert_eq!(world.driver.create(&join(D_PATH, "QUERY_MESSAGE.md")), Err(libc::EPERM));
}

pub(super) fn real_files_follow(world: &mut World) {
    let (one, two) = (join(D_PATH, "one.md"), join(D_PATH, "two.md"));
    world.driver.write(&one, b"first").expect("written");
    world.driver.write(&join(C_PATH, "one.md"), b"of another").expect("written");
    // Real files are what is shown from now on.
    world.driver.remount();
    world.driver.write(&one, b"second").expect("written");
    world.driver.remount();
    world.shows(&one, b"second");
    assert_eq!(world.bytes(D, "one.md"), b"second");
    world.driver.rename(&one, &two).expect("renamed");
    world.driver.remount();
    world.lists(D_PATH, &["base_config.json", "events.json", "metadata.json", "two.md"]);
    world.shows(&two, b"second");
    // Over one that has a real file of its own.
    world.driver.rename(&two, &join(C_PATH, "one.md")).expect("renamed");
    world.driver.remount();
    world.shows(&join(C_PATH, "one.md"), b"second");
    assert_eq!(world.bytes(C, "one.md"), b"second");
    world.lists(D_PATH, &["base_config.json", "events.json", "metadata.json"]);
    world.driver.mkdir(&join(D_PATH, "dir")).expect("made");
    world.driver.write(&join(D_PATH, "dir/x"), b"x").expect("written");
    world.driver.remount();
    world.driver.rename(&join(D_PATH, "dir"), &join(D_PATH, "other")).expect("renamed");
    world.driver.remount();
    world.lists(D_PATH, &["base_config.json", "events.json", "metadata.json", "other"]);
    world.shows(&join(D_PATH, "other/x"), b"x");
    // And back to a name that it has left before.
    world.driver.rename(&join(D_PATH, "other"), &join(D_PATH, "dir")).expect("renamed");
    world.driver.remount();
    world.lists(D_PATH, &["base_config.json", "dir", "events.json", "metadata.json"]);
    world.shows(&join(D_PATH, "dir/x"), b"x");
    // Written again and removed.
    world.driver.write(&join(D_PATH, "dir/z"), b"first").expect("written");
    world.driver.remount();
    world.driver.write(&join(D_PATH, "dir/z"), b"second").expect("written");
    world.driver.unlink(&join(D_PATH, "dir/z")).expect("hidden");
    world.driver.remount();
    world.lists(&join(D_PATH, "dir"), &["x"]);
    assert_eq!(world.bytes(D, "dir/z"), b"second", "the store keeps it");
    // A hidden directory is not in the way.
    world.driver.mkdir(&join(D_PATH, "other")).expect("made");
    world.driver.write(&join(D_PATH, "other/y"), b"y").expect("written");
    world.driver.remove_all(&join(D_PATH, "other")).expect("hidden");
    world.driver.rename(&join(D_PATH, "dir"), &join(D_PATH, "other")).expect("renamed");
    world.lists(&join(D_PATH, "other"), &["x"]);
    if world.is_mirror("real_files_follow") {
        assert_eq!((world.bytes(D, "other/x"), world.bytes(D, "other/y")), (b"x".to_vec(), b"y".to_vec()));
    } else {
        assert!(world.kept(D).contains(&b"y".to_vec()));
    }
    world.driver.remount();
    world.lists(D_PATH, &["base_config.json", "events.json", "metadata.json", "other"]);
}
