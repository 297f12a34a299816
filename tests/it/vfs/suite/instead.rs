//! What real files that are kept in step do instead, where they are not like a mount. `docs/SEMANTICS.md` has the reasons,
//! and its list is exact.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;

use jp_store::disk::Kind;
use jp_tests::driver::How;
use jp_tests::repository;

use super::super::*;

type Scenario = fn(&mut World);

/// What is different, by the name of the scenario it takes the place of.
const INSTEAD: &[(&str, Scenario)] = &[
    ("reads_what_the_store_has", reads_what_the_store_has),
    ("backup_and_create", backup_and_create),
    ("strict_says_so", nothing_is_refused),
    ("overtaken_is_kept", overtaken_is_kept),
    ("circle_is_a_draft", a_circle_is_cut),
    ("title_edited", title_edited),
    ("other_names", other_names),
    ("renamed_is_retitled", renamed_is_retitled),
    ("former_names_and_those_who_claim_them", former_names),
    ("refused_moves", moves_that_mean_nothing),
    ("managed_file_unlinked", managed_file_unlinked),
    ("rmdir_rules", rmdir_rules),
    ("shown_beside", shown_beside),
    ("known_is_shown_again", known_is_shown_again),
    ("unknown_names", unknown_names),
    ("another_parent_in_the_file", another_parent_in_the_file),
    ("children_before_parents", children_before_parents),
    ("symlinks", symlinks),
    ("across_conversations", across_conversations),
    ("scratch_never_enters_the_store", scratch_never_enters_the_store),
    ("no_replace_and_exchange", no_replace_and_exchange),
    ("at_the_top", at_the_top),
    ("chmod_and_utimens", chmod_and_utimens),
    ("numbers", numbers),
    ("listings", listings),
    ("read_only", read_only),
    ("locked", locked),
    ("stale_and_orphans", stale_and_orphans),
    ("all_of_them", all_of_them),
];

/// Scenarios that ask in the midst of it whether files are real.
const IN_PART: &[&str] = &[
    "moved_to_the_archive_and_back",
    "hidden_and_made_again",
    "changed_while_hidden",
    "hidden_directory_is_kept_whole",
    "over_a_directory_that_shows_nothing",
    "real_files_follow",
];

/// What takes the place of a scenario, if something does.
pub(super) fn of(name: &str) -> Option<Scenario> {
    INSTEAD.iter().find(|(other, _)| *other == name).map(|(_, scenario)| *scenario)
}

impl World {
    /// Whether files are real, in a scenario that asks.
    #[track_caller]
    pub(super) fn is_mirror(&self, scenario: &str) -> bool {
        assert!(IN_PART.contains(&scenario), "{scenario} is not among those that ask");
        self.which == Which::Mirror
    }
}

#[test]
fn the_document_says_where() {
    let text = fs::read_to_string(repository().join("docs/SEMANTICS.md")).expect("the document is there");
    let table = text.split("### The mirror, where it differs").nth(1).unwrap_or_default();
    let rows = table.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = rows.skip(2).filter_map(|row| row.split('|').nth(1));
    let told: BTreeSet<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let done: BTreeSet<&str> = INSTEAD.iter().map(|(name, _)| *name).chain(IN_PART.iter().copied()).collect();
    assert_eq!(told, done, "the table and the suite differ");
    assert_eq!(done.len(), INSTEAD.len() + IN_PART.len(), "none twice");
    let all: BTreeSet<&str> = super::ALL.iter().copied().collect();
    assert!(done.is_subset(&all), "no such scenario: {:?}", done.difference(&all));
}

fn reads_what_the_store_has(world: &mut World) {
    for (n, path) in [(A, A_PATH), (B, B_PATH), (C, C_PATH), (D, D_PATH), (O, O_PATH)] {
        for name in ["metadata.json", "events.json", "base_config.json"] {
            let bytes = world.bytes(n, name);
            assert_eq!(world.driver.read(&join(path, name)).as_deref(), Ok(&bytes[..]), "{path} {name}");
        }
    }
    world.lists("", &[".archive", A_PATH, D_PATH]);
    world.lists(B_PATH, &["base_config.json", "conversations", "events.json", "metadata.json", "notes.md"]);
    world.lists(".archive", &["17528882001-olga"]);
    // Nobody enters what is not there.
    assert_eq!(world.driver.list(&join(D_PATH, "conversations")), Err(libc::ENOENT));
    assert_eq!(world.driver.stat("17528872001-lena"), Err(libc::ENOENT));
}

fn backup_and_create(world: &mut World) {
    let (path, backup) = (join(D_PATH, "events.json"), join(D_PATH, "events.json~"));
    let before = world.bytes(D, "events.json");
    // Whoever is quicker than a look never notices one.
    world.driver.rename(&path, &backup).expect("set aside");
    world.shows(&path, &before);
    world.shows(&backup, &before);
    let after = events("anew");
    world.driver.write(&path, &after).expect("written");
    assert_eq!(world.bytes(D, "events.json"), after);
    world.shows(&path, &after);
    world.shows(&backup, &before);
    assert!(!world.stored(D).join("events.json~").exists());
    world.driver.unlink(&backup).expect("removed");
    world.lists(D_PATH, &["base_config.json", "events.json", "metadata.json"]);
    world.driver.rename(&path, &backup).expect("set aside");
    world.driver.rename(&backup, &path).expect("put back");
    assert_eq!(world.bytes(D, "events.json"), after);
    world.shows(&path, &after);
    assert_eq!(world.kept(D).len(), 0);
}

fn nothing_is_refused(world: &mut World) {
    let path = join(C_PATH, "events.json");
    let before = world.bytes(C, "events.json");
    world.driver.save(&path, "events.json.tmp", b"[1").expect("a disk takes anything");
    world.driver.sync(&path).expect("and brings it to disk");
    assert_eq!(world.bytes(C, "events.json"), before);
    assert_eq!(world.drafts()[&format!("{C}/events.json")].1, b"[1");
    world.driver.write(&path, &events("good")).expect("written");
    assert_eq!((world.bytes(C, "events.json"), world.drafts().len()), (events("good"), 0));
}

fn overtaken_is_kept(world: &mut World) {
    let path = join(D_PATH, "events.json");
    let mine = events("mine");
    world.driver.write(&path, &mine[..mine.len() - 3]).expect("begun");
    let theirs = events("theirs");
    let beside = world.stored(D).join("events.json");
    fs::write(&beside, &theirs).expect("written beside it");
    jp_tests::set_mtime(&beside, BEFORE + 1);
    world.driver.look();
    world.driver.append(&path, &mine[mine.len() - 3..]).expect("finished");
    assert_eq!(world.bytes(D, "events.json"), mine, "the later save counts");
    assert!(world.kept(D).contains(&theirs), "the other one is kept, with what belongs to it");
    world.shows(&path, &mine);
}

fn a_circle_is_cut(world: &mut World) {
    let (path, bytes) = (join(A_PATH, "metadata.json"), metadata("Anna", Some(C)));
    world.driver.write(&path, &bytes).expect("written");
    // What a file says is taken at its word; the tree has the circle cut at its smallest id.
    assert_eq!(world.bytes(A, "metadata.json"), bytes);
    world.lists("", &[".archive", A_PATH, D_PATH]);
    world.shows(&path, &bytes);
    assert!(world.driver.stat(C_PATH).is_ok());
    world.driver.write(&path, &metadata("Anna", Some(D))).expect("written");
    world.sees("it is beneath another", |driver| driver.stat(&format!("{D_PATH}/conversations/{C_PATH}")).is_ok());
    assert_eq!(world.meta(A, "parent_id"), json!(D));
}

fn title_edited(world: &mut World) {
    let bytes = metadata("Dora's Day", None);
    world.driver.write(&join(D_PATH, "metadata.json"), &bytes).expect("written");
    assert_eq!(world.stored(D).file_name(), Some("17528862001-dora-s-day".as_ref()));
    world.lists("", &[".archive", A_PATH, "17528862001-dora-s-day"]);
    world.shows("17528862001-dora-s-day/metadata.json", &bytes);
    assert_eq!(world.driver.stat(D_PATH), Err(libc::ENOENT), "the old name leads nowhere");
    assert_eq!(world.driver.write(&join(D_PATH, "metadata.json"), &bytes), Err(libc::ENOENT));
    // An editor that makes the directory anew brings its file back to where it belongs.
    let again = metadata("Dora", None);
    world.driver.save("17528862001-dora-s-day/metadata.json", "metadata.json.tmp", &again).expect("saved");
    world.lists("", &[".archive", A_PATH, D_PATH]);
    assert_eq!(world.bytes(D, "metadata.json"), again);
}

fn other_names(world: &mut World) {
    for path in
        ["17528862001", "jp-c17528862001", "17528832001-anna/conversations/17528842001", ".archive/jp-c17528882001"]
    {
        assert_eq!(world.driver.stat(path), Err(libc::ENOENT), "{path}");
    }
    world.lists("", &[".archive", A_PATH, D_PATH]);
}

fn renamed_is_retitled(world: &mut World) {
    world.driver.rename(D_PATH, "17528862001-New Words").expect("renamed");
    assert_eq!(world.meta(D, "title"), json!("New Words"));
    world.lists("", &[".archive", A_PATH, "17528862001-new-words"]);
    // Another place and another title at once.
    let path = format!("{A_PATH}/conversations/17528862001-both");
    world.driver.rename("17528862001-new-words", &path).expect("renamed");
    assert_eq!((world.meta(D, "title"), world.meta(D, "parent_id")), (json!("both"), json!(A)));
    world.lists(&join(A_PATH, "conversations"), &["17528842001-berta", "17528862001-both"]);
}

fn former_names(world: &mut World) {
    world.driver.write(&join(D_PATH, "metadata.json"), &metadata("Later", None)).expect("written");
    let later = name(D, "Later");
    world.lists("", &[".archive", A_PATH, &later]);
    // A former name is as free as any other, and means what it says.
    world.driver.rename(&later, D_PATH).expect("renamed");
    world.lists("", &[".archive", A_PATH, D_PATH]);
    assert_eq!(world.stored(D).file_name(), Some(D_PATH.as_ref()));
}

/// A disk lets everything be moved anywhere. Whatever comes of it, the store keeps what it has.
fn moves_that_mean_nothing(world: &mut World) {
    let before = world.store();
    for (from, to) in [
        (D_PATH, "dora"),
        (D_PATH, "17528832001-anna/17528862001-dora"),
        ("17528832001-anna/conversations", "17528862001-dora/children"),
    ] {
        world.driver.rename(from, to).unwrap_or_else(|errno| panic!("{from} to {to}: {errno}"));
        for (path, bytes) in &before {
            assert_eq!(world.store().get(path), Some(bytes), "{} after {from} to {to}", path.display());
        }
        // Back where it was it is shown as before.
        world.driver.rename(to, from).unwrap_or_else(|errno| panic!("{to} to {from}: {errno}"));
        world.lists("", &[".archive", A_PATH, D_PATH]);
    }
    assert_eq!(world.driver.rename("nothing", "17528862001-dora"), Err(libc::ENOENT));
    // Under another number it is another conversation.
    world.driver.rename(D_PATH, "17528862002-dora").expect("renamed");
    assert_eq!(world.bytes(D + 1, "events.json"), before[Path::new("17528862001-dora/events.json")]);
    assert_eq!(world.bytes(D, "events.json"), before[Path::new("17528862001-dora/events.json")]);
    world.lists("", &[".archive", A_PATH, "17528862002-dora"]);
}

fn managed_file_unlinked(world: &mut World) {
    let path = join(D_PATH, "events.json");
    let before = world.store();
    world.driver.unlink(&path).expect("removed");
    world.shows(&path, &before[Path::new("17528862001-dora/events.json")]);
    assert_eq!(world.store(), before);
    // Also where the file that was removed was no document.
    world.driver.write(&path, b"[ half").expect("held");
    world.driver.unlink(&path).expect("removed");
    world.shows(&path, &before[Path::new("17528862001-dora/events.json")]);
    assert_eq!((world.store(), world.drafts().len()), (before.clone(), 0));
    // Without any file the directory is no copy: the conversation is hidden.
    let dir = world.workspace.storage().join("conversations").join(D_PATH);
    for name in ["base_config.json", "events.json", "metadata.json"] {
        fs::remove_file(dir.join(name)).expect("removed");
    }
    world.driver.look();
    world.lists(D_PATH, &[]);
    world.driver.remount();
    world.lists(D_PATH, &[]);
    assert_eq!(world.store(), before);
}

fn rmdir_rules(world: &mut World) {
    let before = world.store();
    for path in [A_PATH, D_PATH, B_PATH, ".archive", "17528832001-anna/conversations"] {
        assert_eq!(world.driver.rmdir(path), Err(libc::ENOTEMPTY), "{path}");
    }
    assert_eq!(world.driver.rmdir(&join(D_PATH, "events.json")), Err(libc::ENOTDIR));
    assert_eq!(world.driver.unlink(D_PATH), Err(libc::EISDIR));
    world.driver.remove_all(C_PATH).expect("removed");
    world.gone(C_PATH);
    // Somebody may be about to put something into a directory that has become empty.
    world.lists(&join(B_PATH, "conversations"), &[]);
    world.driver.rmdir(&join(B_PATH, "conversations")).expect("it has nothing in it");
    world.lists(B_PATH, &["base_config.json", "events.json", "metadata.json", "notes.md"]);
    assert_eq!(world.store(), before);
    world.driver.remount();
    world.gone(C_PATH);
}

fn shown_beside(world: &mut World) {
    fs::write(world.stored(D).join("events.json"), events("beside")).expect("written");
    fs::write(world.stored(D).join("new.md"), "new").expect("written");
    Sample::new(N).title("Nora").parent(D).write(&world.workspace, Place::User);
    world.driver.look();
    world.shows(&join(D_PATH, "events.json"), &events("beside"));
    world.shows(&join(D_PATH, "new.md"), b"new");
    world.lists(D_PATH, &["base_config.json", "events.json", "metadata.json", "new.md"]);
    // What is shown and hidden is said by commands, which look at real files as everybody does.
    let (local, shown) = ("--local", "--local=false");
    for (n, how) in [(N, shown), (A, local)] {
        world.workspace.jp(&["c", "edit", how, &format!("jp-c{n}")]).ok();
    }
    world.driver.look();
    world.lists(&join(D_PATH, "conversations"), &["17528892001-nora"]);
    world.lists("", &[".archive", D_PATH]);
    world.workspace.jp(&["c", "edit", shown, &format!("jp-c{A}")]).ok();
    world.workspace.jp(&["c", "edit", "--title", "Clarissa", &format!("jp-c{C}")]).ok();
    world.driver.look();
    world.lists(&join(B_PATH, "conversations"), &["17528852001-clarissa"]);
    // Nothing says that these were removed, and the copies may be the last. They stay, and the store does not get them back.
    let before = (world.driver.read(&join(O_PATH, "events.json")), world.driver.read(&join(D_PATH, "new.md")));
    for n in [O, D] {
        fs::remove_dir_all(world.stored(n)).expect("removed");
    }
    world.driver.look();
    let after = (world.driver.read(&join(O_PATH, "events.json")), world.driver.read(&join(D_PATH, "new.md")));
    assert!(before.0.is_ok() && before.1.is_ok());
    assert_eq!(after, before);
    assert_eq!((world.find_stored(O), world.find_stored(D)), (None, None));
}

fn known_is_shown_again(world: &mut World) {
    let before = world.store();
    // An empty directory is nothing yet; whoever made it may be about to fill it.
    world.driver.mkdir_and_leave("17528872001-lena").expect("made");
    world.lists("17528872001-lena", &[]);
    let dir = world.workspace.storage().join("conversations/17528872001-lena");
    for name in ["base_config.json", "events.json", "metadata.json"] {
        fs::write(dir.join(name), &before[&Path::new("17528872001-lena").join(name)]).expect("written");
    }
    world.driver.look();
    world.lists("17528872001-lena", &["base_config.json", "events.json", "metadata.json"]);
    assert_eq!(world.store(), before);
    world.driver.remount();
    world.lists("", &[".archive", A_PATH, D_PATH, "17528872001-lena"]);
    // What was hidden is brought back by whoever copies it.
    world.driver.remove_all(B_PATH).expect("hidden");
    world.driver.remount();
    world.gone(B_PATH);
    world.driver.mkdir(B_PATH).expect("made");
    for file in ["metadata.json", "events.json"] {
        world.driver.write(&join(B_PATH, file), &before[&Path::new("17528842001-berta").join(file)]).expect("written");
    }
    world.driver.write(&join(B_PATH, "notes.md"), b"another note").expect("written");
    world.lists(B_PATH, &["base_config.json", "events.json", "metadata.json", "notes.md"]);
    assert_eq!(world.bytes(B, "notes.md"), b"another note");
    world.gone(C_PATH);
}

/// The name that somebody who brings "Nora" gives its directory.
const NORA: &str = "17528892001-nora";

fn another_parent_in_the_file(world: &mut World) {
    let dir = format!("{D_PATH}/conversations/{NORA}");
    world.driver.mkdir(&dir).expect("made");
    // It stays where it is until it is whole, whatever its file says.
    world.driver.write(&join(&dir, "metadata.json"), &metadata("Nora", Some(A))).expect("written");
    world.driver.look();
    world.lists(&dir, &["metadata.json"]);
    world.driver.write(&join(&dir, "events.json"), &events("x")).expect("written");
    assert_eq!(world.bytes(N, "metadata.json"), metadata("Nora", Some(A)), "no byte is changed");
    world.lists(&join(A_PATH, "conversations"), &["17528842001-berta", NORA]);
    world.gone(&dir);
}

fn children_before_parents(world: &mut World) {
    let child = name(N + 1, "Nora's child");
    let dir = format!("{NORA}/conversations/{child}");
    world.driver.mkdir(NORA).expect("made");
    world.driver.mkdir(&dir).expect("made");
    world.driver.write(&join(&dir, "metadata.json"), &metadata("Nora's child", None)).expect("written");
    world.driver.write(&join(&dir, "events.json"), &events("child")).expect("written");
    // It is safe in the store already, and stays where it is until its parent is.
    assert_eq!(world.bytes(N + 1, "events.json"), events("child"));
    world.shows(&join(&dir, "events.json"), &events("child"));
    world.driver.write(&join(NORA, "metadata.json"), &metadata("Nora", None)).expect("written");
    world.driver.write(&join(NORA, "events.json"), &events("x")).expect("written");
    assert_eq!((world.bytes(N, "events.json"), world.mirrored(N + 1)), (events("x"), json!(N)));
    world.driver.remount();
    world.shows(&join(&dir, "events.json"), &events("child"));
}

fn unknown_names(world: &mut World) {
    let before = world.store();
    for path in ["notes", "17528832001-anna/conversations/notes", ".archive/notes", "jp-c17528892001", "017528892001"] {
        world.driver.mkdir(path).unwrap_or_else(|errno| panic!("{path}: {errno}"));
        world.driver.write(&join(path, "x"), b"x").expect("written");
        world.shows(&join(path, "x"), b"x");
        assert_eq!(world.store(), before, "{path} is nobody's, and stays where it is");
    }
    assert_eq!(world.driver.mkdir(A_PATH), Err(libc::EEXIST));
    world.driver.create("17528892001").expect("a file is no conversation");
    world.driver.look();
    assert_eq!((world.store(), world.driver.stat("17528892001").map(|stat| stat.kind)), (before, Ok(Kind::File)));
}

fn symlinks(world: &mut World) {
    let link = join(D_PATH, "link");
    world.driver.symlink("events.json", &link).expect("linked");
    assert_eq!(world.driver.readlink(&link).as_deref(), Ok("events.json"));
    assert_eq!(fs::read_link(world.stored(D).join("link")).ok(), Some("events.json".into()));
    world.driver.symlink("nowhere", &join(D_PATH, "broken")).expect("linked");
    world.driver.unlink(&join(D_PATH, "broken")).expect("removed");
    world.lists(D_PATH, &["base_config.json", "events.json", "link", "metadata.json"]);
    world.driver.symlink("ada@host.123:456", &join(D_PATH, ".#events.json")).expect("linked");
    assert!(fs::symlink_metadata(world.stored(D).join(".#events.json")).is_err());
    // Among conversations a link is passed over.
    let before = world.store();
    world.driver.symlink(A_PATH, "17528892001").expect("linked");
    assert_eq!((world.store(), world.driver.readlink("17528892001").as_deref()), (before, Ok(A_PATH)));
}

fn across_conversations(world: &mut World) {
    let notes = join(B_PATH, "notes.md");
    world.driver.rename(&notes, &join(D_PATH, "notes.md")).expect("moved");
    assert_eq!(world.bytes(D, "notes.md"), b"a note\n");
    // Nobody can tell that from a copy and a removal: the store keeps the first one too.
    assert_eq!(world.bytes(B, "notes.md"), b"a note\n");
    world.gone(&notes);
    world.driver.remount();
    world.gone(&notes);
    world.driver.mkdir(&join(D_PATH, "dir")).expect("made");
    world.driver.write(&join(D_PATH, "dir/x"), b"x").expect("written");
    world.driver.rename(&join(D_PATH, "dir"), &join(C_PATH, "dir")).expect("moved");
    assert_eq!(world.bytes(C, "dir/x"), b"x");
    world.shows(&join(C_PATH, "dir/x"), b"x");
    world.gone(&join(D_PATH, "dir/x"));
    // A managed file of one over the same of another: its bytes are saved there, and come back here.
    let (from, to) = (join(D_PATH, "events.json"), join(C_PATH, "events.json"));
    let bytes = world.bytes(D, "events.json");
    world.driver.rename(&from, &to).expect("moved");
    assert_eq!((world.bytes(C, "events.json"), world.bytes(D, "events.json")), (bytes.clone(), bytes.clone()));
    world.shows(&from, &bytes);
    world.shows(&to, &bytes);
}

fn scratch_never_enters_the_store(world: &mut World) {
    let before = world.store();
    let names =
        [".events.json.swp", "4913", "events.json~", "#notes#", "x.tmp", ".goutputstream-1", ".DS_Store", "._x"];
    for dir in [D_PATH, "", "17528832001-anna/conversations", ".archive"] {
        for name in names {
            let path = join(dir, name);
            world.driver.create(&path).unwrap_or_else(|errno| panic!("{path}: {errno}"));
            world.driver.write(&path, path.as_bytes()).expect("written");
            world.shows(&path, path.as_bytes());
        }
        assert_eq!(world.store(), before, "scratch in {dir:?}");
    }
    world.driver.mkdir(&join(D_PATH, "dir.tmp")).expect("made");
    world.driver.write(&join(D_PATH, "dir.tmp/inside"), b"inside").expect("written");
    assert_eq!(world.store(), before);
    world.driver.rename(&join(D_PATH, "dir.tmp"), &join(D_PATH, "dir")).expect("renamed");
    assert_eq!(world.bytes(D, "dir/inside"), b"inside");
    // A name for scratch hides the file here; a disk does not mind what gets one.
    world.driver.rename(&join(D_PATH, "dir"), &join(D_PATH, "dir~")).expect("renamed");
    world.shows(&join(D_PATH, "dir~/inside"), b"inside");
    world.gone(&join(D_PATH, "dir/inside"));
    assert_eq!(world.bytes(D, "dir/inside"), b"inside", "the store keeps it");
    assert!(!world.stored(D).join("dir~").exists());
}

fn no_replace_and_exchange(world: &mut World) {
    let at = |name: &str| join(D_PATH, name);
    world.driver.write(&at("one"), b"one").expect("written");
    world.driver.write(&at("two"), b"two").expect("written");
    world.driver.rename_how(&at("one"), &at("two"), How::Exchange).expect("exchanged");
    assert_eq!((world.bytes(D, "one"), world.bytes(D, "two")), (b"two".to_vec(), b"one".to_vec()));
    let (old, new) = (world.bytes(D, "events.json"), events("exchanged"));
    world.driver.write(&at("new.json"), &new).expect("written");
    world.driver.rename_how(&at("new.json"), &at("events.json"), How::Exchange).expect("exchanged");
    assert_eq!((world.bytes(D, "events.json"), world.bytes(D, "new.json")), (new, old));
    // Two managed files in each other's place are two that are no such document.
    let before = world.store();
    world.driver.rename_how(&at("events.json"), &at("metadata.json"), How::Exchange).expect("exchanged");
    assert_eq!((world.store(), world.drafts().len()), (before.clone(), 2));
    world.driver.rename_how(&at("events.json"), &at("metadata.json"), How::Exchange).expect("and back");
    assert_eq!((world.store(), world.drafts().len()), (before, 0));
}

fn at_the_top(world: &mut World) {
    let before = world.store();
    world.driver.write(".gitignore", b"*.log\n").expect("written");
    world.driver.mkdir("dir").expect("made");
    world.driver.write("dir/x", b"x").expect("written");
    world.driver.remount();
    world.lists("", &[".archive", ".gitignore", A_PATH, D_PATH, "dir"]);
    world.shows(".gitignore", b"*.log\n");
    world.shows("dir/x", b"x");
    assert_eq!(world.store(), before, "what lies among conversations and is none stays where it is");
    // What the real tool leaves in the store is nobody's business.
    fs::write(world.stored(D).join("QUERY_MESSAGE.md"), "next").expect("written");
    world.driver.look();
    assert_eq!(world.driver.stat(&join(D_PATH, "QUERY_MESSAGE.md")), Err(libc::ENOENT));
}

fn chmod_and_utimens(world: &mut World) {
    let before = world.store();
    for (dir, name) in [(D_PATH, "events.json"), (B_PATH, "notes.md")] {
        let path = join(dir, name);
        world.driver.chmod(&path, 0o600).expect("set");
        world.driver.set_mtime(&path, BEFORE + 5).expect("set");
        world.driver.look();
        let stat = world.driver.stat(&path).expect("there");
        assert_eq!((stat.mode, stat.mtime), (0o600, BEFORE + 5), "{path} is left alone");
    }
    assert_eq!(world.store(), before);
    let stored = fs::metadata(world.stored(D).join("events.json")).expect("there");
    assert_eq!(stored.mode() & 0o777, 0o644, "the store's file has its own");
}

fn numbers(world: &mut World) {
    let (path, notes) = (join(D_PATH, "events.json"), join(B_PATH, "notes.md"));
    let ino = |world: &mut World, path: &str| world.driver.stat(path).map(|stat| stat.ino).expect("there");
    let before = [ino(world, &path), ino(world, &notes), ino(world, D_PATH), ino(world, C_PATH)];
    world.driver.remount();
    assert_eq!([ino(world, &path), ino(world, &notes), ino(world, D_PATH), ino(world, C_PATH)], before);
    // What moves keeps its number: it is moved, not copied.
    let moved = format!("{D_PATH}/conversations/17528842001-berta");
    world.driver.rename(B_PATH, &moved).expect("moved");
    assert_eq!(ino(world, &join(&moved, "notes.md")), before[1]);
    assert_eq!(ino(world, &join(&moved, "conversations/17528852001-clara")), before[3]);
    world.driver.write(&join(D_PATH, "metadata.json"), &metadata("Later", None)).expect("written");
    assert_eq!(ino(world, &name(D, "Later")), before[2], "also when its name follows its title");
}

fn listings(world: &mut World) {
    let made: BTreeSet<String> = (0..300).map(|number| format!("file-{number:03}")).collect();
    let dir = world.workspace.storage().join("conversations").join(D_PATH);
    for name in &made {
        fs::write(dir.join(name), name).expect("written");
    }
    world.driver.look();
    for name in &made {
        assert_eq!(world.bytes(D, name), name.as_bytes());
    }
    let managed = ["base_config.json", "events.json", "metadata.json"].map(str::to_owned);
    let all: BTreeSet<String> = made.into_iter().chain(managed).collect();
    assert_eq!(world.driver.list(D_PATH).expect("listed").into_iter().collect::<BTreeSet<_>>(), all);
}

fn read_only(world: &mut World) {
    let path = join(D_PATH, "events.json");
    world.driver.chmod(&path, 0o444).expect("set");
    // Whether a file can be written is the disk's affair. That of the store is asked by nobody.
    fs::write(world.stored(D).join("events.json"), events("beside")).expect("written");
    world.driver.look();
    world.shows(&path, &events("beside"));
}

fn locked(world: &mut World) {
    let mark = world.workspace.env().root().join("held");
    let script = format!("echo > {}; read line; exit 0", mark.display());
    let held = world.workspace.call(&["lock", "run", &format!("jp-c{B}"), "--", "sh", "-c", &script]).start();
    wait_for("the lock to be held", LIMIT, || mark.exists());
    let before = world.store();
    let (list, notes) = (join(B_PATH, "events.json"), join(B_PATH, "notes.md"));
    // A disk asks nobody for a lock. What is saved meanwhile waits in the file.
    world.driver.write(&list, &events("meanwhile")).expect("written");
    world.driver.write(&notes, b"meanwhile").expect("written");
    world.driver.write(&join(D_PATH, "events.json"), &events("another")).expect("written");
    world.shows(&list, &events("meanwhile"));
    assert_eq!(world.bytes(B, "events.json"), before[Path::new("17528842001-berta/events.json")]);
    assert_eq!(world.bytes(B, "notes.md"), b"a note\n");
    assert_eq!(world.bytes(D, "events.json"), events("another"), "it keeps nobody else");
    let moved = format!("{D_PATH}/conversations/17528842001-New Words");
    world.driver.rename(B_PATH, &moved).expect("moved");
    world.shows(&join(&moved, "notes.md"), b"meanwhile");
    assert_eq!((world.meta(B, "title"), world.meta(B, "parent_id")), (json!("Berta"), json!(A)));
    world.driver.look();
    world.shows(&join(&moved, "notes.md"), b"meanwhile");
    held.finish().ok();
    world.driver.look();
    assert_eq!((world.meta(B, "title"), world.meta(B, "parent_id")), (json!("New Words"), json!(D)));
    world.lists(&join(D_PATH, "conversations"), &["17528842001-new-words"]);
    assert_eq!(
        (world.bytes(B, "events.json"), world.bytes(B, "notes.md")),
        (events("meanwhile"), b"meanwhile".to_vec())
    );
    assert_eq!(world.kept(B).len(), 0);
}

fn stale_and_orphans(world: &mut World) {
    let old = world.bytes(D, "events.json");
    let (list, notes) = (join(D_PATH, "events.json"), join(B_PATH, "notes.md"));
    let mut replaced = world.driver.hold(&list).expect("open");
    world.driver.save(&list, "events.json.tmp", &events("new")).expect("saved");
    assert_eq!(replaced.read(), Ok(old), "as on any disk");
    let mut own = world.driver.hold(&notes).expect("open");
    world.driver.unlink(&notes).expect("hidden");
    world.driver.write(&notes, b"third").expect("written again");
    assert_eq!(own.read(), Ok(b"a note\n".to_vec()));
    // What is written to a file without a name is for whoever has it open alone.
    let before = world.store();
    own.cut_and_write(1, b"rest").expect("written");
    replaced.cut_and_write(1, b"rest").expect("written");
    world.driver.look();
    assert_eq!(world.store(), before);
    // The store's bytes come by rename: whoever reads the old file goes on reading it.
    let mut reader = world.driver.hold(&list).expect("open");
    fs::write(world.stored(D).join("events.json"), events("beside")).expect("written");
    world.driver.look();
    assert_eq!(reader.read(), Ok(events("new")));
    world.shows(&list, &events("beside"));
}

fn all_of_them(world: &mut World) {
    // What is not meant to be here is not written out, and so not shown.
    world.lists("", &[".archive", A_PATH, D_PATH]);
    world.workspace.jp(&["c", "edit", "--local=false", &format!("jp-c{L}")]).ok();
    world.driver.look();
    let path = "17528872001-lena/events.json";
    world.driver.write(path, &events("seen")).expect("written");
    assert_eq!(world.bytes(L, "events.json"), events("seen"));
    world.driver.remove_all("17528872001-lena").expect("removed");
    world.gone("17528872001-lena");
    world.driver.remount();
    world.gone("17528872001-lena");
    assert_eq!(world.bytes(L, "events.json"), events("seen"));
}
