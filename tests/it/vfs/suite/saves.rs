//! Managed files are read and saved: whole in the store, or not there at all.

use super::super::*;

pub(super) fn reads_what_the_store_has(world: &mut World) {
    let table = [(A, A_PATH), (B, B_PATH), (C, C_PATH), (D, D_PATH), (O, O_PATH)];
    for (n, path) in table {
        for name in ["metadata.json", "events.json", "base_config.json"] {
            let bytes = world.bytes(n, name);
            assert_eq!(world.driver.read(&join(path, name)).as_deref(), Ok(&bytes[..]), "{path} {name}");
            let stat = world.driver.stat(&join(path, name)).expect("what can be read is there");
            let real = jp_tests::mtime(&world.stored(n).join(name));
            assert_eq!((stat.size, stat.mtime), (bytes.len() as u64, real), "{path} {name}");
        }
    }
    world.lists("", &[".archive", A_PATH, D_PATH]);
    world.lists(A_PATH, &["base_config.json", "conversations", "events.json", "metadata.json"]);
    world.lists(B_PATH, &["base_config.json", "conversations", "events.json", "metadata.json", "notes.md"]);
    world.lists(D_PATH, &["base_config.json", "events.json", "metadata.json"]);
    world.lists(".archive", &["17528882001-olga"]);
    // It is not listed while there is nothing in it, and can be entered all the same.
    world.lists(&join(D_PATH, "conversations"), &[]);
    for (path, errno) in [
        ("nothing", libc::ENOENT),
        ("17528872001-lena", libc::ENOENT),
        ("17528862001-dora/nothing", libc::ENOENT),
        ("17528862001-dora/events.json/x", libc::ENOTDIR),
    ] {
        assert_eq!(world.driver.stat(path), Err(errno), "{path}");
    }
    assert_eq!(world.driver.read(D_PATH), Err(libc::EISDIR));
}

pub(super) fn in_place(world: &mut World) {
    let path = join(C_PATH, "events.json");
    for text in ["short", &"long ".repeat(30_000), "short again"] {
        let bytes = events(text);
        world.driver.write(&path, &bytes).expect("written");
        assert!(world.bytes(C, "events.json") == bytes, "the store has what was written");
        world.shows(&path, &bytes);
    }
    assert_eq!(world.driver.stat(&path).map(|stat| stat.size), Ok(events("short again").len() as u64));
    assert_eq!((world.drafts().len(), world.kept(C).len()), (0, 0));
    let config = b"{\"a\": 1}";
    world.driver.write(&join(C_PATH, "base_config.json"), config).expect("written");
    assert_eq!(world.bytes(C, "base_config.json"), config, "unaltered, without a newline");
}

pub(super) fn append(world: &mut World) {
    let path = join(D_PATH, "events.json");
    let mut bytes = world.bytes(D, "events.json");
    world.driver.append(&path, b"\n \n").expect("still a document");
    bytes.extend_from_slice(b"\n \n");
    assert_eq!(world.bytes(D, "events.json"), bytes);
    world.driver.append(&path, b"x").expect("taken as a draft");
    assert_eq!(world.bytes(D, "events.json"), bytes, "the store keeps what is good");
    let draft = [&bytes[..], b"x"].concat();
    world.shows(&path, &draft);
    world.driver.truncate(&path, bytes.len() as u64).expect("a document again");
    world.shows(&path, &bytes);
    assert_eq!(world.drafts().len(), 0);
}

pub(super) fn truncate(world: &mut World) {
    let path = join(D_PATH, "metadata.json");
    let before = world.bytes(D, "metadata.json");
    world.driver.truncate(&path, 0).expect("emptied");
    world.shows(&path, b"");
    assert_eq!(world.bytes(D, "metadata.json"), before);
    world.driver.write_at(&path, 0, &before).expect("written");
    assert_eq!((world.bytes(D, "metadata.json"), world.drafts().len()), (before.clone(), 0));
    // Longer than it was: what is added is zeros, which is no document.
    world.driver.truncate(&path, before.len() as u64 + 3).expect("made longer");
    world.shows(&path, &[&before[..], &[0; 3]].concat());
    assert_eq!(world.bytes(D, "metadata.json"), before);
    let notes = join(B_PATH, "notes.md");
    world.driver.truncate(&notes, 3).expect("cut");
    assert_eq!(world.bytes(B, "notes.md"), b"a n");
    world.driver.truncate(&notes, 5).expect("made longer");
    assert_eq!(world.bytes(B, "notes.md"), b"a n\0\0");
    world.shows(&notes, b"a n\0\0");
    let at = world.driver.truncate(A_PATH, 0);
    assert_eq!(at, Err(libc::EISDIR));
}

pub(super) fn pieces(world: &mut World) {
    let path = join(A_PATH, "events.json");
    let before = world.bytes(A, "events.json");
    let after = events(&"piece by piece ".repeat(5_000));
    let (last, rest) = (after.len() % 4096, after.len() / 4096 * 4096);
    assert!(last > 0, "the last piece is a short one");
    world.driver.write_in_pieces(&path, &after[..rest], 4096).expect("written");
    assert!(world.bytes(A, "events.json") == before, "the store never has a part");
    world.driver.write_at(&path, rest as u64, &after[rest..]).expect("written");
    assert!(world.bytes(A, "events.json") == after, "the last piece is the save");
    // From the last piece to the first.
    let after = events(&"the other way round ".repeat(2_000));
    world.driver.truncate(&path, 0).expect("emptied");
    for start in (0..after.len()).step_by(4096).collect::<Vec<_>>().into_iter().rev() {
        assert!(world.bytes(A, "events.json") != after, "saved before the last byte was there");
        let end = after.len().min(start + 4096);
        world.driver.write_at(&path, start as u64, &after[start..end]).expect("written");
    }
    assert!(world.bytes(A, "events.json") == after, "the last missing piece is the save");
    assert_eq!(world.drafts().len(), 0);
}

pub(super) fn by_rename(world: &mut World) {
    let names =
        ["events.json.tmp", ".goutputstream-AB12CD", "events.json~", ".events.json.swp", "___jb_tmp___", "4913"];
    let others = ["new-events", ".events.json.Xy12Zw", "sedAbC1d2"];
    for temporary in names.into_iter().chain(others) {
        let bytes = events(temporary);
        world.driver.save(&join(B_PATH, "events.json"), temporary, &bytes).expect("saved");
        assert_eq!(world.bytes(B, "events.json"), bytes, "{temporary}");
        world.shows(&join(B_PATH, "events.json"), &bytes);
        assert_eq!(world.driver.stat(&join(B_PATH, temporary)), Err(libc::ENOENT), "{temporary}");
        assert!(!world.stored(B).join(temporary).exists(), "{temporary} is in the store");
    }
    world.lists(B_PATH, &["base_config.json", "conversations", "events.json", "metadata.json", "notes.md"]);
    // Not a document: renamed into place all the same, and kept durably.
    let bytes = world.bytes(B, "events.json");
    world.driver.save(&join(B_PATH, "events.json"), "events.json.tmp", b"[{").expect("kept");
    assert_eq!(world.bytes(B, "events.json"), bytes);
    assert_eq!(world.drafts()[&format!("{B}/events.json")].1, b"[{");
    world.shows(&join(B_PATH, "events.json"), b"[{");
}

pub(super) fn backup_and_create(world: &mut World) {
    let (path, backup) = (join(D_PATH, "events.json"), join(D_PATH, "events.json~"));
    let before = world.bytes(D, "events.json");
    world.driver.rename(&path, &backup).expect("set aside");
    assert_eq!(world.driver.stat(&path), Err(libc::ENOENT));
    world.lists(D_PATH, &["base_config.json", "events.json~", "metadata.json"]);
    assert_eq!(world.bytes(D, "events.json"), before, "the store keeps it");
    world.shows(&backup, &before);
    world.driver.create(&path).expect("the name is free");
    assert_eq!(world.driver.read(&path), Ok(vec![]));
    assert_eq!(world.bytes(D, "events.json"), before, "an empty file is no document");
    let after = events("anew");
    world.driver.write(&path, &after).expect("written");
    assert_eq!(world.bytes(D, "events.json"), after);
    world.shows(&path, &after);
    world.shows(&backup, &before);
    world.driver.unlink(&backup).expect("removed");
    world.lists(D_PATH, &["base_config.json", "events.json", "metadata.json"]);
    assert!(!world.stored(D).join("events.json~").exists());
    // Or back again, as after a failed write.
    world.driver.rename(&path, &backup).expect("set aside");
    world.driver.rename(&backup, &path).expect("put back");
    assert_eq!(world.bytes(D, "events.json"), after);
    world.shows(&path, &after);
    assert_eq!((world.drafts().len(), world.kept(D).len()), (0, 0));
}

pub(super) fn broken_is_a_draft(world: &mut World) {
    let path = join(C_PATH, "metadata.json");
    let before = world.bytes(C, "metadata.json");
    let table: [&[u8]; 4] = [b"{\n  \"title\": \"Clara\",\n", b"[]", b"{\"title\": 7}", b"<<<<<<< HEAD\n{}\n"];
    for bytes in table {
        world.driver.write(&path, bytes).expect("taken as a draft");
        world.shows(&path, bytes);
        assert_eq!(world.bytes(C, "metadata.json"), before, "the store keeps the last good version");
        world.driver.sync(&path).expect("a draft can be brought to disk");
        let (reason, kept) = world.drafts()[&format!("{C}/metadata.json")].clone();
        assert_eq!(kept, bytes);
        assert!(reason["line"].as_u64().is_some() && reason["reason"].as_str().is_some_and(|text| !text.is_empty()));
    }
    let stat = world.driver.stat(&path).expect("there");
    assert_eq!(stat.size, table[3].len() as u64);
    let good = metadata("Clara", Some(B));
    world.driver.write(&path, &good).expect("written");
    assert_eq!((world.bytes(C, "metadata.json"), world.drafts().len()), (good, 0));
    assert_eq!(world.kept(C).len(), 0, "a draft that was overwritten by its own user is no conflict");
}

pub(super) fn strict_says_so(world: &mut World) {
    let mut strict = world.another(Rules { strict: true, ..Rules::default() });
    let path = join(C_PATH, "events.json");
    let before = strict.bytes(C, "events.json");
    assert_eq!(strict.driver.save(&path, "events.json.tmp", b"[1"), Err(libc::EINVAL));
    strict.driver.write(&path, b"[2").expect("half a document may become a whole one");
    assert_eq!(strict.driver.sync(&path), Err(libc::EINVAL));
    assert_eq!(strict.bytes(C, "events.json"), before);
    assert_eq!(strict.drafts()[&format!("{C}/events.json")].1, b"[2", "the bytes are kept all the same");
    strict.driver.write(&path, &events("good")).expect("written");
    strict.driver.sync(&path).expect("nothing is wrong any more");
    assert_eq!((strict.bytes(C, "events.json"), strict.drafts().len()), (events("good"), 0));
}

pub(super) fn a_draft_outlives_the_mount(world: &mut World) {
    let path = join(C_PATH, "events.json");
    let before = world.bytes(C, "events.json");
    world.driver.write(&path, b"[ 1,").expect("taken as a draft");
    world.driver.remount();
    world.shows(&path, b"[ 1,");
    assert_eq!(world.bytes(C, "events.json"), before);
    world.driver.append(&path, b" 2").expect("appended");
    world.driver.sync(&path).expect("on disk");
    world.driver.remount();
    world.shows(&path, b"[ 1, 2");
    world.driver.write(&path, &events("good")).expect("written");
    world.driver.remount();
    world.shows(&path, &events("good"));
    assert_eq!((world.bytes(C, "events.json"), world.drafts().len()), (events("good"), 0));
}

pub(super) fn overtaken_is_kept(world: &mut World) {
    let path = join(D_PATH, "events.json");
    let mine = events("mine");
    world.driver.write(&path, &mine[..mine.len() - 3]).expect("begun");
    let theirs = events("theirs");
    fs::write(world.stored(D).join("events.json"), &theirs).expect("written beside the mount");
    world.driver.look();
    world.driver.append(&path, &mine[mine.len() - 3..]).expect("finished");
    assert_eq!(world.bytes(D, "events.json"), mine, "the later save counts");
    assert_eq!(world.kept(D), [theirs], "the other one is kept");
    world.shows(&path, &mine);
}
