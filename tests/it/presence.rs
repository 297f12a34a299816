//! What both roots have after each kind of change, and where.

use std::fs;
use std::path::Path;

use jp_tests::{Place, Sample, Shot, Workspace};

use crate::story::{
    SECOND, assert_twins, bytes, digits, family, in_store, in_work, jp, nesting, new, presence, rewrite, says,
    store_file, stored, work_file, workspace,
};

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().into_string().expect("UTF-8"))
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

#[test]
fn a_new_conversation_is_in_both_roots() {
    let main = workspace();
    let id = new(&main, "Upload", &[]);
    assert_eq!(presence(&main, &id), "projected");
    assert_twins(&main, &id);
    assert_eq!(says(&main, &id, "origin"), "main");
}

#[test]
fn a_local_one_is_in_the_store_alone() {
    let main = workspace();
    let id = new(&main, "Secret", &["--local"]);
    assert_eq!(presence(&main, &id), "local");
    assert_eq!(in_work(&main, &id), None);
    jp(&main, &["c", "edit", &id, "--title", "Still secret"]);
    assert_eq!(in_work(&main, &id), None);
    assert_eq!(stored(&main, &id)["title"], "Still secret");
}

#[test]
fn every_property_is_written_to_both() {
    let main = workspace();
    let other = new(&main, "Other", &[]);
    let id = new(&main, "Upload", &[]);
    let mut last = bytes(&in_store(&main, &id).expect("stored"));
    for args in [
        &["c", "edit", &id, "--title", "Download"][..],
        &["c", "edit", &id, "--pin"],
        &["c", "edit", &id, "--tmp=7d"],
        &["c", "edit", &id, "--no-tmp"],
        &["c", "edit", &id, "--pin=false"],
        &["c", "label", "add", "-i", &id, "branch=fix"],
        &["c", "label", "rm", "-i", &id, "branch"],
        &["c", "mv", &id, "--parent", &other],
        &["c", "mv", &id, "--root"],
        &["c", "edit", &id, "--no-title"],
        &["c", "use", &id],
    ] {
        jp(&main, args);
        assert_twins(&main, &id);
        let now = bytes(&in_store(&main, &id).expect("stored"));
        assert_ne!(now, last, "{args:?}");
        assert_eq!(now[1..], last[1..], "{args:?} is about metadata");
        last = now;
    }
}

#[test]
fn directories_follow_the_title_in_each_root() {
    let main = workspace();
    let other = new(&main, "Other", &[]);
    let id = new(&main, "Upload", &[]);
    let hidden = new(&main, "Hidden", &["--local"]);
    let (store, work) = (main.silo().join("conversations"), main.storage().join("conversations"));
    jp(&main, &["c", "edit", &id, "--title", "Download"]);
    jp(&main, &["c", "edit", &hidden, "--title", "Cellar"]);
    let name = |id: &str, slug: &str| format!("{}-{slug}", digits(id));
    let mut expected = vec![name(&other, "other"), name(&id, "download")];
    assert_eq!(names(&work), expected);
    expected.push(name(&hidden, "cellar"));
    assert_eq!(names(&store), expected);

    jp(&main, &["c", "mv", &id, "--parent", &other]);
    assert_eq!(names(&work), [name(&other, "other")], "it moved beneath its parent");
    assert_eq!(names(&store), expected, "the store is flat");
    assert_eq!(nesting(&main, &id), ["other", "download"]);
}

#[test]
fn the_other_worktree_is_left_alone() {
    let main = workspace();
    let feature = main.env().init_workspace("feature", main.id());
    let [a, b, c] = family(&main);
    let own = new(&feature, "Own", &[]);
    assert_eq!(presence(&main, &own), "local", "what another worktree shows is not shown here");
    let before = Shot::of(&main.storage());
    jp(&feature, &["c", "edit", &a, "--title", "Renamed"]);
    jp(&feature, &["c", "mv", &c, "--parent", &a]);
    before.assert_same(&Shot::of(&main.storage()));
    assert_eq!(nesting(&main, &c), ["grandmother", "mother", "daughter"], "until something is written here");
    jp(&main, &["c", "edit", &a, &c, "--pin"]);
    assert_eq!(nesting(&main, &c), ["renamed", "daughter"]);
    for id in [&a, &b, &c] {
        assert_twins(&main, id);
    }
}

#[test]
fn a_directory_removed_by_hand_stays_away() {
    let main = workspace();
    let [a, b, _] = family(&main);
    fs::remove_dir_all(in_work(&main, &b).expect("shown")).expect("removed");
    assert_eq!(presence(&main, &b), "local");
    jp(&main, &["c", "edit", &b, "--title", "Aunt"]);
    jp(&main, &["c", "edit", &a, "--pin"]);
    jp(&main, &["c", "edit", &b, "--pin"]);
    assert_eq!((presence(&main, &b).as_str(), in_work(&main, &b)), ("local", None));
    assert_eq!(stored(&main, &b)["title"], "Aunt");
    jp(&main, &["c", "edit", &b, "--local=false"]);
    assert_eq!(nesting(&main, &b), ["grandmother", "aunt"]);
    assert_twins(&main, &b);
}

#[test]
fn a_file_removed_by_hand_comes_back() {
    for name in ["metadata.json", "base_config.json", "events.json"] {
        let main = workspace();
        let id = new(&main, "Upload", &[]);
        fs::remove_file(work_file(&main, &id, name)).expect("removed");
        assert_eq!(says(&main, &id, "title"), "Upload", "{name}");
        jp(&main, &["c", "edit", &id, "--pin"]);
        assert_eq!(presence(&main, &id), "projected", "{name}");
        assert_twins(&main, &id);
    }
}

#[test]
fn a_file_lost_by_the_store_comes_back() {
    for name in ["metadata.json", "base_config.json", "events.json"] {
        let main = workspace();
        let id = new(&main, "Upload", &[]);
        let before = bytes(&in_work(&main, &id).expect("shown"));
        fs::remove_file(store_file(&main, &id, name)).expect("removed");
        assert_eq!(says(&main, &id, "title"), "Upload", "{name}");
        jp(&main, &["c", "label", "add", "-i", &id, "x"]);
        assert_twins(&main, &id);
        assert_eq!(bytes(&in_store(&main, &id).expect("stored"))[1..], before[1..], "{name}");
    }
}

/// One conversation that another worktree removed from the store while this one shows it.
fn removed_elsewhere(touch: impl FnOnce(&Workspace, &str)) -> (Workspace, String, String) {
    let main = workspace();
    let feature = main.env().init_workspace("feature", main.id());
    let (gone, other) = (new(&main, "Gone", &[]), new(&main, "Other", &[]));
    touch(&main, &gone);
    jp(&feature, &["c", "rm", &gone, "-y"]);
    assert_eq!(in_store(&main, &gone), None);
    assert_eq!(presence(&main, &gone), "external");
    (main, gone, other)
}

#[test]
fn a_leftover_goes_with_the_next_change_of_shape() {
    let (main, gone, other) = removed_elsewhere(|_, _| {});
    jp(&main, &["c", "edit", &other, "--pin"]);
    assert_eq!(presence(&main, &gone), "external", "a change of properties looks at nothing else");
    let child = new(&main, "Child", &[]);
    jp(&main, &["c", "mv", &child, "--parent", &other]);
    assert_eq!((presence(&main, &gone).as_str(), in_work(&main, &gone)), ("gone", None));
}

#[test]
fn an_edited_leftover_stays_and_is_imported() {
    let (main, gone, other) = removed_elsewhere(|main, gone| {
        rewrite(&work_file(main, gone, "metadata.json"), "Gone", "Not gone", SECOND);
    });
    let child = new(&main, "Child", &[]);
    jp(&main, &["c", "mv", &child, "--parent", &other]);
    assert_eq!(presence(&main, &gone), "external");
    assert_eq!(says(&main, &gone, "title"), "Not gone");
    jp(&main, &["c", "edit", &gone, "--pin"]);
    assert_eq!(presence(&main, &gone), "projected");
    assert_twins(&main, &gone);
    assert_eq!(stored(&main, &gone)["title"], "Not gone");
}

#[test]
fn a_leftover_with_files_of_its_own_stays() {
    let (main, gone, other) = removed_elsewhere(|main, gone| {
        fs::write(work_file(main, gone, "notes.txt"), "mine").expect("written");
    });
    let child = new(&main, "Child", &[]);
    jp(&main, &["c", "mv", &child, "--parent", &other]);
    assert_eq!(fs::read_to_string(work_file(&main, &gone, "notes.txt")).expect("kept"), "mine");
}

#[test]
fn paths() {
    let main = workspace();
    let check = |id: &str, dir: &Path| {
        assert_eq!(Path::new(main.jp(&["c", "path", id]).line()), dir);
        let events = main.jp(&["c", "path", id, "--events"]);
        assert_eq!(Path::new(events.line()), dir.join("events.json"));
    };
    let [_, projected, _] = family(&main);
    let local = new(&main, "Local", &["--local"]);
    let sample = Sample::new(17_528_832_001).title("External");
    let external = sample.write(&main, Place::Workspace);
    check(&projected, &in_work(&main, &projected).expect("shown"));
    check(&local, &in_store(&main, &local).expect("stored"));
    check("jp-c17528832001", &external);
    assert!(store_file(&main, &local, "metadata.json").is_file());
    jp(&main, &["c", "edit", "17528832001", "--pin"]);
    check("jp-c17528832001", &external);
    assert_twins(&main, "jp-c17528832001");
}

#[test]
fn files_of_the_users_own_become_durable() {
    let main = workspace();
    let id = new(&main, "Upload", &[]);
    let (store, work) = (in_store(&main, &id).expect("stored"), in_work(&main, &id).expect("shown"));
    fs::create_dir(work.join("notes")).expect("made");
    fs::write(work.join("notes/idea.md"), "one\n").expect("written");
    fs::write(work.join(".metadata.json.swp"), "vim\n").expect("written");
    fs::write(work.join("#notes#"), "unsaved\n").expect("written");
    jp(&main, &["c", "edit", &id, "--pin"]);
    assert_eq!(fs::read_to_string(store.join("notes/idea.md")).expect("taken in"), "one\n");
    assert!(!store.join(".metadata.json.swp").exists() && !store.join("#notes#").exists());

    // What only one side changed counts; scratch is kept when the copies part.
    fs::write(work.join("notes/idea.md"), "two\n").expect("written");
    jp(&main, &["c", "edit", &id, "--pin=false"]);
    assert_eq!(fs::read_to_string(store.join("notes/idea.md")).expect("there"), "two\n");
    fs::write(store.join("notes/idea.md"), "three\n").expect("written");
    jp(&main, &["c", "edit", &id, "--pin"]);
    assert_eq!(fs::read_to_string(work.join("notes/idea.md")).expect("there"), "three\n");
    jp(&main, &["c", "edit", &id, "--local"]);
    assert!(!work.exists());
    let kept = main.silo().join("vfs/conflicts").join(digits(&id));
    let kept = fs::read_dir(kept).expect("kept").next().expect("one").expect("listed").path();
    assert!(!kept.join("notes").exists(), "nobody lost anything there");
    assert_eq!(fs::read_to_string(kept.join("#notes#")).expect("kept"), "unsaved\n");
}
