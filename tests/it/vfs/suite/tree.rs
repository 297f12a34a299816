//! Conversations move, get other names, are hidden. Nothing leaves the store.

use super::super::*;

pub(super) fn parent_edited(world: &mut World) {
    let bytes = metadata("Berta", Some(D));
    world.driver.write(&join(B_PATH, "metadata.json"), &bytes).expect("written");
    assert_eq!((world.bytes(B, "metadata.json"), world.mirrored(B)), (bytes, json!(D)));
    let path = format!("{D_PATH}/conversations/17528842001-berta");
    world.sees("it is where its file says", |driver| driver.stat(&path).is_ok());
    world.gone(B_PATH);
    world.lists(&join(D_PATH, "conversations"), &["17528842001-berta"]);
    world.lists(&join(&path, "conversations"), &["17528852001-clara"]);
    world.lists(A_PATH, &["base_config.json", "events.json", "metadata.json"]);
    // A parent that does not exist makes a root, and so does none.
    for parent in [json!(N), json!(null)] {
        let path = if parent.is_null() { "17528842001-berta".to_owned() } else { path.clone() };
        let meta = json!({ "title": "Berta", "last_activated_at": "2026-01-01 00:00:00.0", "parent_id": parent });
        world.driver.write(&join(&path, "metadata.json"), &pretty(&meta)).expect("written");
        world.lists("", &[".archive", A_PATH, "17528842001-berta", D_PATH]);
        world.gone(&format!("{D_PATH}/conversations/17528842001-berta"));
        assert_eq!(world.meta(B, "parent_id"), parent);
    }
}

pub(super) fn parent_key_removed(world: &mut World) {
    world.driver.write(&join(B_PATH, "metadata.json"), &metadata("Berta", None)).expect("written");
    world.lists("", &[".archive", A_PATH, "17528842001-berta", D_PATH]);
    assert_eq!(world.mirrored(B), json!(null), "who removes the key means it");
    assert_eq!(world.bytes(B, "metadata.json"), metadata("Berta", None));
}

pub(super) fn circle_is_a_draft(world: &mut World) {
    let (path, bytes) = (join(A_PATH, "metadata.json"), metadata("Anna", Some(C)));
    let before = world.bytes(A, "metadata.json");
    world.driver.write(&path, &bytes).expect("taken as a draft");
    world.driver.sync(&path).expect("on disk");
    assert_eq!(world.bytes(A, "metadata.json"), before);
    let (reason, kept) = world.drafts()[&format!("{A}/metadata.json")].clone();
    let text = reason["reason"].as_str().unwrap_or_default();
    assert!(text.contains("beneath"), "the reason is {reason}");
    assert_eq!(kept, bytes);
    world.shows(&path, &bytes);
    world.lists("", &[".archive", A_PATH, D_PATH]);
    world.driver.write(&path, &metadata("Anna", Some(D))).expect("written");
    world.sees("it is beneath another", |driver| driver.stat(&format!("{D_PATH}/conversations/{A_PATH}")).is_ok());
    assert_eq!((world.meta(A, "parent_id"), world.drafts().len()), (json!(D), 0));
}

pub(super) fn title_edited(world: &mut World) {
    let bytes = metadata("Dora's Day", None);
    world.driver.write(&join(D_PATH, "metadata.json"), &bytes).expect("written");
    assert_eq!(world.stored(D).file_name(), Some("17528862001-dora-s-day".as_ref()));
    assert_eq!(world.bytes(D, "metadata.json"), bytes);
    world.lists("", &[".archive", A_PATH, "17528862001-dora-s-day"]);
    world.sees("the old name is a link", |driver| driver.readlink(D_PATH).as_deref() == Ok("17528862001-dora-s-day"));
    world.shows(&join(D_PATH, "metadata.json"), &bytes);
    world.shows("17528862001-dora-s-day/metadata.json", &bytes);
    // Saved under the old name, as an editor does that was opened before.
    let again = metadata("Dora", None);
    world.driver.save(&join(D_PATH, "metadata.json"), "metadata.json.tmp", &again).expect("saved");
    world.lists("", &[".archive", A_PATH, D_PATH]);
    assert_eq!(world.bytes(D, "metadata.json"), again);
    world.sees("the other is a link now", |driver| driver.readlink("17528862001-dora-s-day").as_deref() == Ok(D_PATH));
    world.driver.remount();
    world
        .sees("also after mounting again", |driver| driver.readlink("17528862001-dora-s-day").as_deref() == Ok(D_PATH));
}

pub(super) fn other_names(world: &mut World) {
    for (dir, n, name) in [
        ("", D, "17528862001-dora"),
        ("17528832001-anna/conversations", B, "17528842001-berta"),
        (".archive", O, "17528882001-olga"),
    ] {
        for other in [n.to_string(), format!("jp-c{n}")] {
            let path = join(dir, &other);
            assert_eq!(world.driver.readlink(&path).as_deref(), Ok(name), "{path}");
            assert_eq!(world.driver.read(&join(&path, "events.json")), Ok(world.bytes(n, "events.json")), "{path}");
        }
    }
    for path in ["17528862001-nora", "17528842001", "jp-c017528862001", "jp-c", "017528862001", ".archive/17528862001"]
    {
        assert_eq!(world.driver.stat(path), Err(libc::ENOENT), "{path}");
    }
    assert_eq!(world.driver.unlink("17528862001"), Err(libc::EPERM), "another name is not a thing to remove");
    world.lists("", &[".archive", A_PATH, D_PATH]);
}

pub(super) fn moved(world: &mut World) {
    let before = world.bytes(B, "events.json");
    let path = format!("{D_PATH}/conversations/17528842001-berta");
    world.driver.rename(B_PATH, &path).expect("moved");
    assert_eq!((world.meta(B, "parent_id"), world.mirrored(B)), (json!(D), json!(D)));
    assert_eq!((world.meta(C, "parent_id"), world.bytes(B, "events.json")), (json!(B), before));
    world.lists(&join(&path, "conversations"), &["17528852001-clara"]);
    world.gone(B_PATH);
    world.driver.rename(&path, "17528842001-berta").expect("moved to the top");
    assert_eq!((world.meta(B, "parent_id"), world.meta(A, "unknown")), (json!(null), json!(7)));
    world.lists("", &[".archive", A_PATH, "17528842001-berta", D_PATH]);
    // Beneath itself: the kernel refuses that on its own, and so do we.
    let within = "17528842001-berta/conversations/17528852001-clara/conversations/17528842001-berta";
    assert_eq!(world.driver.rename("17528842001-berta", within), Err(libc::EINVAL));
    let itself = "17528842001-berta/conversations/17528842001-berta";
    assert_eq!(world.driver.rename("17528842001-berta", itself), Err(libc::EINVAL));
    assert_eq!(world.meta(B, "parent_id"), json!(null));
    world.driver.remount();
    world.lists("", &[".archive", A_PATH, "17528842001-berta", D_PATH]);
}

pub(super) fn moved_to_the_archive_and_back(world: &mut World) {
    let all = world.store().len();
    world.driver.rename(A_PATH, &format!(".archive/{A_PATH}")).expect("archived");
    world.lists("", &[".archive", D_PATH]);
    world.lists(".archive", &[A_PATH, "17528882001-olga"]);
    let archived = format!(".archive/{C_PATH}");
    assert_eq!(world.driver.read(&join(&archived, "events.json")), Ok(world.bytes(C, "events.json")));
    for n in [A, B, C] {
        assert_eq!(world.stored(n).parent(), Some(&*world.workspace.silo().join("conversations/.archive")), "{n}");
        assert!(world.meta(n, "archived_at").is_string(), "{n}");
    }
    // One of them comes out to a place of its own.
    world.driver.rename(&archived, &format!("{D_PATH}/conversations/17528852001-clara")).expect("unarchived");
    assert_eq!((world.meta(C, "parent_id"), world.meta(C, "archived_at")), (json!(D), json!(null)));
    world.lists(&join(D_PATH, "conversations"), &["17528852001-clara"]);
    world.driver.rename(&format!(".archive/{A_PATH}"), A_PATH).expect("unarchived");
    world.driver.rename(O_PATH, "17528882001-olga").expect("unarchived");
    if world.is_mirror("moved_to_the_archive_and_back") {
        world.lists("", &[".archive", A_PATH, D_PATH, "17528882001-olga"]);
    } else {
        world.lists("", &[A_PATH, D_PATH, "17528882001-olga"]);
    }
    world.lists(&join(A_PATH, "conversations"), &["17528842001-berta"]);
    world.lists(".archive", &[]);
    assert_eq!((world.meta(B, "archived_at"), world.store().len()), (json!(null), all));
}

/// Renames to a name that leads to the conversation already. The kernel takes that for a link in the way, unless it is told
/// otherwise for the sake of a program that is known to mean it.
fn retitle(world: &mut World, from: &str, to: &str) {
    if world.driver.is_prompt() {
        return world.driver.rename(from, to).expect("renamed");
    }
    let point = world.workspace.storage().join("conversations");
    let mut mv = std::process::Command::new("mv");
    mv.arg("-T").arg(point.join(from)).arg(point.join(to));
    jp_tests::Output::of(mv, b"").ok();
}

pub(super) fn renamed_is_retitled(world: &mut World) {
    world.driver.rename(D_PATH, "17528862001-New Words").expect("renamed");
    assert_eq!(world.meta(D, "title"), json!("New Words"));
    world.lists("", &[".archive", A_PATH, "17528862001-new-words"]);
    world.sees("what was typed leads there", |driver| {
        driver.readlink("17528862001-New Words").as_deref() == Ok("17528862001-new-words")
    });
    // The name it had before stands for the title it had before.
    retitle(world, "17528862001-new-words", D_PATH);
    assert_eq!(world.meta(D, "title"), json!("Dora"));
    retitle(world, D_PATH, "17528862001");
    assert_eq!(world.meta(D, "title"), json!(null));
    world.lists("", &[".archive", A_PATH, "17528862001"]);
    // Another place and another title at once.
    let path = format!("{A_PATH}/conversations/17528862001-both");
    world.driver.rename("17528862001", &path).expect("renamed");
    assert_eq!((world.meta(D, "title"), world.meta(D, "parent_id")), (json!("both"), json!(A)));
    world.lists(&join(A_PATH, "conversations"), &["17528842001-berta", "17528862001-both"]);
}

pub(super) fn former_names_and_those_who_claim_them(world: &mut World) {
    world.driver.write(&join(D_PATH, "metadata.json"), &metadata("Later", None)).expect("written");
    let later = name(D, "Later");
    world.sees("the old name is a link", |driver| driver.readlink(D_PATH).as_deref() == Ok(&later));
    // A program that asks for a name in order to take it is told that it is free.
    if world.driver.is_prompt() {
        let dir = world.workspace.env().root().join("bin");
        fs::create_dir(&dir).expect("made");
        std::os::unix::fs::symlink("/bin/cat", dir.join("git")).expect("linked");
        let mut claimant = std::process::Command::new(dir.join("git"))
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("there is a cat");
        let comm = format!("/proc/{}/comm", claimant.id());
        wait_for("the program to be itself", LIMIT, || fs::read_to_string(&comm).is_ok_and(|name| name == "git\n"));
        let mut driver = InProcess::new(&world.workspace, Rules::default(), Memory::Short);
        driver.write(&join(&later, "metadata.json"), &metadata("Dora", None)).expect("written");
        driver.write(&join(D_PATH, "metadata.json"), &metadata("Later", None)).expect("written");
        for name in [D_PATH, "17528862001", "jp-c17528862001"] {
            assert_eq!(driver.lookup_by(claimant.id(), "", name), Ok(None), "{name}");
            assert!(driver.lookup_by(std::process::id(), "", name).is_ok_and(|found| found.is_some()), "{name}");
        }
        assert!(driver.lookup_by(claimant.id(), "", &later).is_ok_and(|found| found.is_some()));
        drop(claimant.stdin.take());
        claimant.wait().expect("it ends with its input");
    } else {
        retitle(world, &later, D_PATH);
        assert_eq!(world.meta(D, "title"), json!("Dora"));
        world.lists("", &[".archive", A_PATH, D_PATH]);
    }
}

pub(super) fn refused_moves(world: &mut World) {
    let before = world.store();
    for (from, to, errno) in [
        (D_PATH, "17528862002-dora", libc::EPERM),
        (D_PATH, "dora", libc::EPERM),
        (D_PATH, "17528832001-anna/17528862001-dora", libc::EPERM),
        (D_PATH, "17528832001-anna/conversations/dora", libc::EPERM),
        (D_PATH, "17528862001-dora.tmp", libc::EPERM),
        ("17528832001-anna/conversations", "17528862001-dora/conversations", libc::EPERM),
        ("17528832001-anna/events.json", "17528892001", libc::EPERM),
        ("17528832001-anna/events.json", ".archive/x", libc::EPERM),
        (".archive", "archive", libc::EPERM),
        ("nothing", "17528862001-dora", libc::ENOENT),
        ("17528872001-lena", "17528862001-dora", libc::ENOENT),
    ] {
        assert_eq!(world.driver.rename(from, to), Err(errno), "{from} to {to}");
    }
    // To the kernel another name is a link, and so no directory.
    let other = world.driver.rename(D_PATH, "jp-c17528862001");
    assert!(matches!(other, Err(libc::EPERM | libc::ENOTDIR)), "{other:?}");
    assert_eq!(world.store(), before);
    world.lists("", &[".archive", A_PATH, D_PATH]);
    world.lists(A_PATH, &["base_config.json", "conversations", "events.json", "metadata.json"]);
}

pub(super) fn managed_file_unlinked(world: &mut World) {
    let path = join(D_PATH, "events.json");
    let before = world.store();
    world.driver.unlink(&path).expect("hidden");
    world.gone(&path);
    world.lists(D_PATH, &["base_config.json", "metadata.json"]);
    assert_eq!(world.driver.unlink(&path), Err(libc::ENOENT));
    assert_eq!(world.store(), before);
    world.driver.remount();
    world.lists(D_PATH, &["base_config.json", "metadata.json"]);
    assert_eq!(world.store(), before);
    let bytes = events("again");
    world.driver.write(&path, &bytes).expect("written again");
    world.shows(&path, &bytes);
    assert_eq!(world.bytes(D, "events.json"), bytes);
    world.lists(D_PATH, &["base_config.json", "events.json", "metadata.json"]);
    // A draft that goes with its file is kept.
    world.driver.write(&path, b"[ half").expect("taken as a draft");
    world.driver.unlink(&path).expect("hidden");
    assert_eq!((world.kept(D), world.drafts().len()), (vec![b"[ half".to_vec()], 0));
    world.driver.save(&path, "x.tmp", &bytes).expect("saved again");
    world.shows(&path, &bytes);
    assert_eq!(world.bytes(D, "events.json"), bytes);
}

pub(super) fn rmdir_rules(world: &mut World) {
    let before = world.store();
    for path in [A_PATH, D_PATH, B_PATH, ".archive", "17528832001-anna/conversations"] {
        assert_eq!(world.driver.rmdir(path), Err(libc::ENOTEMPTY), "{path}");
    }
    assert_eq!(world.driver.rmdir(&join(D_PATH, "events.json")), Err(libc::ENOTDIR));
    assert_eq!(world.driver.unlink(D_PATH), Err(libc::EISDIR));
    assert_eq!(world.driver.rmdir("nothing"), Err(libc::ENOENT));
    for name in ["base_config.json", "events.json", "metadata.json"] {
        world.driver.unlink(&join(C_PATH, name)).expect("hidden");
    }
    world.lists(C_PATH, &[]);
    world.driver.rmdir(C_PATH).expect("it shows nothing");
    world.gone(C_PATH);
    world.lists(&join(B_PATH, "conversations"), &[]);
    world.driver.rmdir(&join(B_PATH, "conversations")).expect("it has nothing in it");
    world.lists(B_PATH, &["base_config.json", "events.json", "metadata.json", "notes.md"]);
    assert_eq!(world.store(), before);
    world.driver.remount();
    world.gone(C_PATH);
}

pub(super) fn removed_recursively(world: &mut World) {
    let before = world.store();
    world.driver.remove_all(A_PATH).expect("removed");
    world.lists("", &[".archive", D_PATH]);
    world.driver.remove_all(".archive").expect("removed");
    world.driver.remove_all(D_PATH).expect("removed");
    world.lists("", &[]);
    assert_eq!(world.store(), before, "nothing leaves the store");
    world.driver.remount();
    world.lists("", &[]);
    assert_eq!(world.store(), before);
}

pub(super) fn shown_beside(world: &mut World) {
    // Somebody else writes to the store.
    fs::write(world.stored(D).join("events.json"), events("beside")).expect("written");
    fs::write(world.stored(D).join("new.md"), "new").expect("written");
    Sample::new(N).title("Nora").parent(D).write(&world.workspace, Place::User);
    world.driver.look();
    world.shows(&join(D_PATH, "events.json"), &events("beside"));
    world.shows(&join(D_PATH, "new.md"), b"new");
    world.lists(&join(D_PATH, "conversations"), &[]);
    let writer = open(&world.workspace, true).writer().expect("writable").0;
    writer.note(&[Change::Show(id(N))]).expect("noted");
    writer.note(&[Change::Hide(id(A))]).expect("noted");
    world.driver.look();
    world.lists(&join(D_PATH, "conversations"), &["17528892001-nora"]);
    world.lists("", &[".archive", D_PATH]);
    // What is hidden with its parent comes back with it.
    writer.note(&[Change::Show(id(A))]).expect("noted");
    let guard = writer.lock(id(C), &Wait::none()).expect("free");
    writer.edit(&guard, |meta| meta.set_title(Some("Clarissa"))).expect("edited");
    drop(guard);
    world.driver.look();
    world.lists(&join(B_PATH, "conversations"), &["17528852001-clarissa"]);
    fs::remove_dir_all(world.stored(D)).expect("removed");
    world.driver.look();
    world.gone(D_PATH);
    world.lists("", &[".archive", A_PATH, "17528892001-nora"]);
}
