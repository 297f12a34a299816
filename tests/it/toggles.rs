//! Hiding conversations from a worktree and showing them again. Nothing leaves the store either way.

use std::fs;

use jp_tests::Shot;

use crate::story::{
    SECOND, assert_twins, conflicts, family, in_store, in_work, jp, nesting, new, number, presence, rewrite, says,
    store_file, stored, work_file, workspace,
};

#[test]
fn hiding_takes_the_subtree_and_loses_nothing() {
    let main = workspace();
    let [a, b, c] = family(&main);
    // Edits below, not yet in the store, and files that are nobody's.
    rewrite(&work_file(&main, &c, "metadata.json"), "Daughter", "Heiress", SECOND);
    let events = "[\n  { \"type\": \"note\", \"timestamp\": \"2026-01-01 00:00:00.0\" }\n]\n";
    fs::write(work_file(&main, &c, "events.json"), events).expect("written");
    fs::create_dir(work_file(&main, &b, "assets")).expect("made");
    fs::write(work_file(&main, &b, "assets/plan.md"), "a plan").expect("written");

    let told = jp(&main, &["c", "edit", &a, "--local"]);
    assert!(told.stderr.contains("2 conversations beneath it are hidden with it"), "{}", told.told());
    for id in [&a, &b, &c] {
        assert_eq!((presence(&main, id).as_str(), in_work(&main, id)), ("local", None));
    }
    assert_eq!(stored(&main, &c)["title"], "Heiress");
    assert_eq!(fs::read_to_string(store_file(&main, &c, "events.json")).expect("there"), events);
    assert_eq!(fs::read_to_string(store_file(&main, &b, "assets/plan.md")).expect("there"), "a plan");
    assert_eq!(conflicts(&main), []);

    let told = jp(&main, &["c", "edit", &a, "--local=false"]);
    assert!(told.stderr.contains("2 conversations beneath it are shown with it"), "{}", told.told());
    assert_eq!(nesting(&main, &c), ["grandmother", "mother", "heiress"]);
    for id in [&a, &b, &c] {
        assert_twins(&main, id);
    }
    assert_eq!(fs::read_to_string(work_file(&main, &b, "assets/plan.md")).expect("there"), "a plan");
}

#[test]
fn a_differing_file_of_nobody_is_kept() {
    let main = workspace();
    let id = new(&main, "Upload", &[]);
    fs::write(store_file(&main, &id, "notes.txt"), "of the store").expect("written");
    let work = work_file(&main, &id, "notes.txt");
    fs::write(&work, "of the workspace").expect("written");
    jp_tests::set_mtime(&work, jp_tests::mtime(&store_file(&main, &id, "notes.txt")) + crate::story::SECOND);
    jp(&main, &["c", "edit", &id, "--local"]);
    assert_eq!(fs::read_to_string(store_file(&main, &id, "notes.txt")).expect("the newer"), "of the workspace");
    assert_eq!(crate::story::kept(&main, &id, "notes.txt"), ["of the store"]);
}

#[test]
fn showing_takes_the_ancestors() {
    let main = workspace();
    let [a, b, c] = family(&main);
    let sister = new(&main, "Sister", &["--parent", &b]);
    jp(&main, &["c", "edit", &a, "--local"]);
    jp(&main, &["c", "edit", &sister, "--local=true"]);
    let told = jp(&main, &["c", "edit", &c, "--local=false"]);
    assert!(told.stderr.contains("2 conversations above it are shown with it"), "{}", told.told());
    assert_eq!(nesting(&main, &c), ["grandmother", "mother", "daughter"]);
    assert_eq!(presence(&main, &sister), "local");
    let told = jp(&main, &["c", "edit", &c, "--local=false"]);
    assert!(told.stderr.contains("is shown here already"), "{}", told.told());
    // Without a value it is the opposite of what is.
    jp(&main, &["c", "edit", &c, "--local"]);
    assert_eq!((presence(&main, &c).as_str(), presence(&main, &b).as_str()), ("local", "projected"));
    jp(&main, &["c", "edit", &c, "--local"]);
    assert_eq!(presence(&main, &c), "projected");
}

#[test]
fn a_child_keeps_its_own_intent() {
    let main = workspace();
    let [a, b, c] = family(&main);
    let sister = new(&main, "Sister", &["--parent", &a]);
    jp(&main, &["c", "edit", &b, "--local"]);
    jp(&main, &["c", "edit", &a, "--local"]);
    let told = jp(&main, &["c", "edit", &a, "--local=false"]);
    assert!(told.stderr.contains("1 conversation beneath it is shown with it"), "{}", told.told());
    assert_eq!((presence(&main, &a).as_str(), presence(&main, &sister).as_str()), ("projected", "projected"));
    assert_eq!((presence(&main, &b).as_str(), presence(&main, &c).as_str()), ("local", "local"));
    jp(&main, &["c", "edit", &b, "--local=false"]);
    assert_eq!(presence(&main, &c), "projected", "it was hidden with its parent only");
}

#[test]
fn a_child_of_a_hidden_parent_waits() {
    let main = workspace();
    let parent = new(&main, "Parent", &["--local"]);
    let made = main.jp(&["c", "new", "--title", "Child", "--parent", &parent]);
    let child = made.line().to_owned();
    assert!(made.stderr.contains("hidden with its parent"), "{}", made.told());
    assert_eq!((presence(&main, &child).as_str(), in_work(&main, &child)), ("local", None));
    jp(&main, &["c", "edit", &child, "--pin"]);
    assert_eq!(in_work(&main, &child), None, "still");
    jp(&main, &["c", "edit", &parent, "--local=false"]);
    assert_eq!(nesting(&main, &child), ["parent", "child"]);
    assert_twins(&main, &child);
}

#[test]
fn reparenting_beneath_a_hidden_parent_is_refused() {
    let main = workspace();
    let [_, _, c] = family(&main);
    let hidden = new(&main, "Hidden", &["--local"]);
    let before = Shot::of(&main.silo().join("conversations"));
    let work = Shot::of(&main.storage());
    main.jp(&["c", "mv", &c, "--parent", &hidden]).fails_with(1).says("local here");
    before.assert_same(&Shot::of(&main.silo().join("conversations")));
    work.assert_same(&Shot::of(&main.storage()));
    assert_ne!(says(&main, &c, "parent"), hidden);
    jp(&main, &["c", "edit", &c, "--local"]);
    jp(&main, &["c", "mv", &c, "--parent", &hidden]);
    assert_eq!(says(&main, &c, "parent"), hidden);
    assert!(in_store(&main, &c).is_some());
}

#[test]
fn what_merely_lies_beneath_keeps_its_intent() {
    let main = workspace();
    let a = new(&main, "Shown", &[]);
    let x = new(&main, "Guest", &["--parent", &a]);
    let p = new(&main, "Hidden", &["--local"]);
    // Another worktree hangs it beneath a conversation that is not shown here.
    let (from, to) = (format!("\"parent_id\": {}", number(&a)), format!("\"parent_id\": {}", number(&p)));
    rewrite(&store_file(&main, &x, "metadata.json"), &from, &to, SECOND);
    jp(&main, &["c", "edit", &a, "--local"]);
    assert_eq!(presence(&main, &x), "local");
    jp(&main, &["c", "edit", &p, "--local=false"]);
    assert_eq!(presence(&main, &x), "projected", "it was hidden for want of a place");
}
