//! New conversations that arrive file by file, and known ones that are brought back.

use super::super::*;

/// The name that somebody who brings "Nora" gives its directory.
const NORA: &str = "17528892001-nora";

fn nora(parent: Option<u64>) -> Vec<(String, Vec<u8>)> {
    let mut sample = Sample::new(N).title("Nora").file("notes.md", "from afar\n");
    if let Some(parent) = parent {
        sample = sample.parent(parent);
    }
    sample.contents()
}

/// Writes files into a directory, as somebody who copies them.
fn bring(world: &mut World, dir: &str, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        world.driver.write(&join(dir, name), bytes).unwrap_or_else(|errno| panic!("{name}: {errno}"));
    }
}

/// Asserts that the store has the conversation with these files.
#[track_caller]
fn arrived(world: &World, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        assert_eq!(&world.bytes(N, name), bytes, "{name}");
    }
}

pub(super) fn known_is_shown_again(world: &mut World) {
    let before = world.store();
    let writer = open(&world.workspace, true).writer().expect("writable").0;
    writer.note(&[Change::Show(id(L))]).expect("noted");
    world.driver.look();
    world.lists("", &[".archive", A_PATH, D_PATH, "17528872001-lena"]);
    world.driver.remove_all("17528872001-lena").expect("hidden");
    world.driver.mkdir_and_leave("17528872001-lena").expect("shown");
    world.lists("", &[".archive", A_PATH, D_PATH, "17528872001-lena"]);
    world.lists("17528872001-lena", &["base_config.json", "events.json", "metadata.json"]);
    world.shows("17528872001-lena/events.json", &before[Path::new("17528872001-lena/events.json")]);
    assert_eq!(world.store(), before);
    world.driver.remount();
    world.lists("", &[".archive", A_PATH, D_PATH, "17528872001-lena"]);
    // To whoever makes the directory it is empty, as any directory is that one makes.
    // Somebody may still be in the one that was removed; what is made anew is another directory.
    let inside = [B_PATH.to_owned(), join(B_PATH, "conversations")].map(|path| world.driver.hold(&path).expect("open"));
    world.driver.remove_all(B_PATH).expect("hidden");
    world.driver.mkdir(B_PATH).expect("shown");
    assert_eq!(world.driver.stat(&join(B_PATH, "notes.md")), Err(libc::ENOENT));
    assert_eq!(world.store(), before, "and the store keeps everything");
    world.driver.write(&join(B_PATH, "notes.md"), b"another note").expect("written");
    assert_eq!(world.bytes(B, "notes.md"), b"another note");
    let dir = join(B_PATH, "conversations");
    assert!(matches!(world.driver.mkdir(&dir), Ok(()) | Err(libc::EEXIST)));
    world.driver.create(&join(&dir, "x.tmp")).expect("made");
    drop(inside);
    let bytes = world.bytes(B, "events.json");
    world.driver.write(&join(B_PATH, "events.json"), &bytes).expect("written");
    world.driver.unlink(&join(&dir, "x.tmp")).expect("removed");
    world.driver.remount();
    world.lists(B_PATH, &["base_config.json", "events.json", "metadata.json", "notes.md"]);
    // One that the store has had for so short a time that nobody here has heard of it, under this name or another.
    for (id, name, title) in [(N, NORA, "Nora"), (N + 10, "17528892011-olga", "Helga")] {
        Sample::new(id).title(title).events(0).file("notes.md", "from afar\n").write(&world.workspace, Place::User);
        world.driver.mkdir_and_leave(name).expect("shown");
        let dir = format!("{id}-{}", title.to_lowercase());
        world.lists(&dir, &["base_config.json", "events.json", "metadata.json", "notes.md"]);
        world.driver.remount();
        world.lists(&dir, &["base_config.json", "events.json", "metadata.json", "notes.md"]);
    }
}

pub(super) fn unknown_names(world: &mut World) {
    for (path, errno) in [
        ("notes", libc::EPERM),
        ("17528832001-anna/conversations/notes", libc::EPERM),
        (".archive/notes", libc::EPERM),
        ("jp-c17528892001", libc::EPERM),
        ("017528892001", libc::EPERM),
        ("17528892001-nora.tmp", libc::EPERM),
        (A_PATH, libc::EEXIST),
        (B_PATH, libc::EEXIST),
        (".archive", libc::EEXIST),
        // It is somewhere else already.
        ("17528842001-berta", libc::EEXIST),
        ("17528832001-anna/conversations/17528862001-dora", libc::EEXIST),
        ("17528832001-anna/conversations", libc::EEXIST),
        ("nothing/17528892001", libc::ENOENT),
        ("17528862001-dora/events.json/x", libc::ENOTDIR),
    ] {
        assert_eq!(world.driver.mkdir(path), Err(errno), "{path}");
    }
    for path in ["17528892001", "17528892001-nora"] {
        assert_eq!(world.driver.create(path), Err(libc::EPERM), "{path}");
    }
    assert_eq!(world.driver.create("17528832001-anna/conversations/notes"), Err(libc::EPERM));
    world.lists("", &[".archive", A_PATH, D_PATH]);
}

pub(super) fn any_order(world: &mut World) {
    let all = nora(None);
    let table = [[0, 1, 2, 3], [0, 2, 1, 3], [1, 0, 3, 2], [1, 2, 0, 3], [2, 0, 1, 3], [3, 2, 1, 0]];
    for (round, order) in table.into_iter().enumerate() {
        let n = N + round as u64;
        let dir = name(n, "Nora");
        world.driver.mkdir(&dir).expect("made");
        world.lists(&dir, &[]);
        let mut done = Vec::new();
        for index in order {
            let (file, bytes) = &all[index];
            let whole = ["metadata.json", "events.json"].iter().all(|name| done.contains(name));
            assert_eq!(world.find_stored(n).is_some(), whole, "{order:?} before {file}");
            world.driver.write(&join(&dir, file), bytes).expect("written");
            world.shows(&join(&dir, file), bytes);
            done.push(file.as_str());
        }
        for (file, bytes) in &all {
            assert_eq!(&world.bytes(n, file), bytes, "{order:?} {file}");
        }
        world.lists(&dir, &["base_config.json", "events.json", "metadata.json", "notes.md"]);
    }
    assert_eq!(world.driver.list("").map(|names| names.len()), Ok(3 + table.len()));
    world.driver.remount();
    assert_eq!(world.driver.list("").map(|names| names.len()), Ok(3 + table.len()));
}

pub(super) fn parent_by_place(world: &mut World) {
    let dir = format!("{B_PATH}/conversations/{NORA}");
    world.driver.mkdir(&dir).expect("made");
    bring(world, &dir, &nora(None));
    arrived(world, &nora(None));
    assert_eq!((world.mirrored(N), world.meta(N, "parent_id")), (json!(B), json!(null)));
    world.lists(&join(B_PATH, "conversations"), &["17528852001-clara", NORA]);
    world.driver.remount();
    world.shows(&join(&dir, "notes.md"), b"from afar\n");
    assert_eq!(world.meta(N, "parent_id"), json!(null), "no saved byte is changed");
}

pub(super) fn another_parent_in_the_file(world: &mut World) {
    let dir = format!("{D_PATH}/conversations/{NORA}");
    world.driver.mkdir(&dir).expect("made");
    bring(world, &dir, &nora(Some(A)));
    assert_eq!((world.meta(N, "parent_id"), world.mirrored(N)), (json!(D), json!(D)), "rewritten once");
    world.lists(&join(D_PATH, "conversations"), &[NORA]);
    // From then on the file is the user's.
    world.driver.write(&join(&dir, "metadata.json"), &metadata("Nora", Some(A))).expect("written");
    world.sees("it follows its file", |driver| driver.stat(&format!("{A_PATH}/conversations/{NORA}")).is_ok());
    assert_eq!(world.bytes(N, "metadata.json"), metadata("Nora", Some(A)));
    // One whose file names its place is not touched.
    let dir = format!("{D_PATH}/conversations/{}", name(N + 1, "Nora"));
    world.driver.mkdir(&dir).expect("made");
    let (meta, list) = (metadata("Nora", Some(D)), events("x"));
    world.driver.write(&join(&dir, "events.json"), &list).expect("written");
    world.driver.write(&join(&dir, "metadata.json"), &meta).expect("written");
    assert_eq!((world.bytes(N + 1, "metadata.json"), world.bytes(N + 1, "events.json")), (meta, list));
}

pub(super) fn broken_then_good(world: &mut World) {
    world.driver.mkdir(NORA).expect("made");
    let files = nora(None);
    world.driver.write(&join(NORA, "metadata.json"), b"{ \"title\": ").expect("written");
    world.driver.write(&join(NORA, "events.json"), &files[2].1).expect("written");
    assert_eq!(world.find_stored(N), None);
    world.shows(&join(NORA, "metadata.json"), b"{ \"title\": ");
    world.driver.remount();
    world.lists(NORA, &["events.json", "metadata.json"]);
    assert_eq!(world.find_stored(N), None);
    world.driver.save(&join(NORA, "metadata.json"), ".metadata.json.Xyz123", &files[0].1).expect("saved");
    assert_eq!(
        (world.bytes(N, "metadata.json"), world.bytes(N, "events.json")),
        (files[0].1.clone(), files[2].1.clone())
    );
    world.lists(NORA, &["events.json", "metadata.json"]);
    world.lists("", &[".archive", A_PATH, D_PATH, NORA]);
}

pub(super) fn children_before_parents(world: &mut World) {
    let child = name(N + 1, "Nora's child");
    let dir = format!("{NORA}/conversations/{child}");
    world.driver.mkdir(NORA).expect("made");
    // A copier makes every directory that it finds.
    assert!(matches!(world.driver.mkdir(&join(NORA, "conversations")), Ok(()) | Err(libc::EEXIST)));
    world.driver.mkdir(&dir).expect("made");
    world.driver.write(&join(&dir, "metadata.json"), &metadata("Nora's child", None)).expect("written");
    world.driver.write(&join(&dir, "events.json"), &events("child")).expect("written");
    assert_eq!(world.find_stored(N + 1), None, "its parent is not there yet");
    bring(world, NORA, &nora(None));
    arrived(world, &nora(None));
    assert_eq!((world.bytes(N + 1, "events.json"), world.mirrored(N + 1)), (events("child"), json!(N)));
    world.driver.remount();
    world.shows(&join(&dir, "events.json"), &events("child"));
}

pub(super) fn given_up(world: &mut World) {
    let before = world.store();
    world.driver.mkdir(NORA).expect("made");
    world.driver.write(&join(NORA, "metadata.json"), &metadata("Nora", None)).expect("written");
    world.driver.write(&join(NORA, "notes.md"), b"note").expect("written");
    assert_eq!(world.driver.rmdir(NORA), Err(libc::ENOTEMPTY));
    world.driver.remove_all(NORA).expect("removed");
    world.gone(NORA);
    world.driver.remount();
    world.lists("", &[".archive", A_PATH, D_PATH]);
    assert_eq!(world.store(), before);
    // The name is as free as before.
    world.driver.mkdir(NORA).expect("made");
    world.lists(NORA, &[]);
    bring(world, NORA, &nora(None));
    arrived(world, &nora(None));
}

pub(super) fn into_the_archive(world: &mut World) {
    let dir = format!(".archive/{NORA}");
    world.driver.mkdir(&dir).expect("made");
    bring(world, &dir, &nora(None)[..2]);
    bring(world, &dir, &nora(None)[2..]);
    world.lists(".archive", &["17528882001-olga", NORA]);
    assert_eq!(world.stored(N).parent(), Some(&*world.workspace.silo().join("conversations/.archive")));
    assert_eq!(world.bytes(N, "notes.md"), b"from afar\n");
    // And beneath one that is archived.
    let child = name(N + 1, "Nora's child");
    assert!(matches!(world.driver.mkdir(&join(&dir, "conversations")), Ok(()) | Err(libc::EEXIST)));
    let dir = format!("{dir}/conversations/{child}");
    world.driver.mkdir(&dir).expect("made");
    world.driver.write(&join(&dir, "events.json"), &events("child")).expect("written");
    world.driver.write(&join(&dir, "metadata.json"), &metadata("Nora's child", None)).expect("written");
    world.lists(&format!(".archive/{NORA}/conversations"), &[&child]);
    assert_eq!((world.mirrored(N + 1), world.bytes(N + 1, "events.json")), (json!(N), events("child")));
    assert_eq!(world.stored(N + 1).parent(), Some(&*world.workspace.silo().join("conversations/.archive")));
}

pub(super) fn outlives_the_mount(world: &mut World) {
    let dir = format!("{D_PATH}/conversations/{NORA}");
    world.driver.mkdir(&dir).expect("made");
    let files = nora(None);
    world.driver.write(&join(&dir, "notes.md"), b"from afar\n").expect("written");
    world.driver.write(&join(&dir, "events.json"), &files[2].1).expect("written");
    world.driver.remount();
    world.lists(&dir, &["events.json", "notes.md"]);
    world.driver.write(&join(&dir, "metadata.json"), &files[0].1).expect("written");
    assert_eq!((world.bytes(N, "notes.md"), world.mirrored(N)), (b"from afar\n".to_vec(), json!(D)));
    world.lists(&dir, &["events.json", "metadata.json", "notes.md"]);
}
