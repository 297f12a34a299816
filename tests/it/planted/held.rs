//! What is held stays out of the store, and the store stays out of it.

use std::fs;

use jp_tests::Shot;

use super::*;
use crate::story::{in_work, kept, presence, says, store_file, work_file};

/// A clone into which somebody has committed a directory with the id of a private conversation.
struct Planted {
    it: Project,
    clone: Workspace,
    dir: PathBuf,
    planted: Shot,
    stored: Vec<Option<Vec<u8>>>,
}

impl Planted {
    #[track_caller]
    fn new(events: &Value) -> Self {
        let it = Project::new();
        let clone = it.clone("second");
        let dir = plant(&conversations(&clone), &it.private, events);
        let (planted, stored) = (Shot::of(&dir), it.stored(&it.private));
        Self { it, clone, dir, planted, stored }
    }

    /// Asserts that neither side has got anything of the other, and that the store's copy is what is shown.
    #[track_caller]
    fn assert_apart(&self) {
        assert_eq!(self.it.stored(&self.it.private), self.stored);
        self.planted.assert_same(&Shot::of(&self.dir));
        assert_eq!(says(&self.clone, &self.it.private, "title"), "Secret title");
        assert_eq!(says(&self.clone, &self.it.private, "events"), 3);
        assert_eq!(presence(&self.clone, &self.it.private), "local");
    }
}

#[test]
fn a_conversation_that_is_local_everywhere_is_held() {
    let p = Planted::new(&events("planted", 9));
    let id = p.it.private.as_str();
    p.assert_apart();
    assert_eq!(named_by_status(&p.clone), [id]);
    for args in [["import", "--dry-run"], ["import", "--json"], ["export", "--json"], ["import", "--json"]] {
        let told = p.clone.jp(&args);
        if args[1] == "--json" {
            assert_eq!(held(&told.fails_with(1)), [unjoined(id)]);
        } else {
            told.ok().says(&format!("jp import {id}"));
        }
        p.assert_apart();
    }
    // The worktree is known by now, and the conversation is held all the same.
    new(&p.clone, "Something else", &[]);
    assert_eq!(held(&p.clone.jp(&["export", "--json"])), [unjoined(id)]);
    p.assert_apart();
    p.clone.jp(&["export", "--check"]).fails_with(1);
    p.clone.jp(&["c", "edit", id, "--local=false"]).fails_with(1).says(&format!("jp import {id}"));
    p.assert_apart();
    // Editing the conversation changes the store and nothing else.
    p.clone.jp(&["c", "edit", id, "--title", "Other title"]).ok();
    p.planted.assert_same(&Shot::of(&p.dir));
    assert_eq!(crate::story::stored(&p.it.main, id)["title"], "Other title");
    prints(p.clone.jp(&["doctor"]), &format!("jp import {id}"));
    p.clone.jp(&["doctor", "--fix"]);
    p.planted.assert_same(&Shot::of(&p.dir));
    // The other worktree has nothing to do with it.
    assert_eq!(named_by_status(&p.it.main), Vec::<String>::new());
    p.it.main.jp(&["export"]).ok();
}

/// A copy that begins as the private conversation does is held as well: whoever planted it may know the beginning.
#[test]
fn a_copy_that_shares_the_first_event_is_no_excuse() {
    let p = Planted::new(&events("secret", 1));
    assert_eq!(held(&p.clone.jp(&["import", "--json"])), [unjoined(&p.it.private)]);
    p.assert_apart();
}

#[test]
fn an_import_by_name_joins() {
    let p = Planted::new(&events("secret", 5));
    let id = p.it.private.as_str();
    p.clone.jp(&["import"]).fails_with(1);
    prints(p.clone.jp(&["import", "--dry-run", id]).ok(), "workspace wins");
    p.assert_apart();
    p.clone.jp(&["import", id]).ok();
    assert_eq!(says(&p.clone, id, "events"), 5, "the longer stream wins");
    assert_eq!(presence(&p.clone, id), "projected");
    assert!(kept(&p.clone, id, "events.json").iter().any(|text| text.contains("secret 2")), "the loser is kept");
    assert_eq!(named_by_status(&p.clone), Vec::<String>::new());
    p.clone.jp(&["export"]).ok();
    crate::story::assert_twins(&p.clone, id);
    // In a worktree that sees it for the first time it is not private any more.
    let third = p.it.clone("third");
    plant(&conversations(&third), id, &events("secret", 2));
    third.jp(&["import"]).ok();
    assert_eq!(says(&third, id, "events"), 5);
}

/// In the first command of the worktree, too.
#[test]
fn an_import_by_name_joins_at_once() {
    let p = Planted::new(&events("other", 2));
    let id = p.it.private.as_str();
    prints(p.clone.jp(&["import", id]).ok(), "store wins");
    assert_eq!(p.it.stored(id), p.stored);
    assert_eq!(kept(&p.clone, id, "metadata.json").len(), 1);
    assert_eq!(presence(&p.clone, id), "projected");
}

/// A clone of another project that has this project's id and the ids of its conversations.
#[test]
fn an_unrelated_copy_is_held() {
    let it = Project::new();
    let before = it.stored(&it.shared);
    let broken = [
        "[\n<<<<<<< HEAD\n]\n".to_owned(),
        "[]".to_owned(),
        "".to_owned(),
        "{}".to_owned(),
        events("other", 30).to_string(),
        format!("{}]", "[".repeat(200_000)),
    ];
    for (at, text) in broken.iter().enumerate() {
        let name = format!("other{at}");
        let other = it.env.init_workspace(&name, it.main.id());
        let dir = plant(&conversations(&other), &it.shared, &events("other", 1));
        fs::write(dir.join("events.json"), text).expect("written");
        let planted = Shot::of(&dir);
        assert_eq!(says(&other, &it.shared, "events"), 3, "{name}");
        for args in [["import", "--json"], ["export", "--json"]] {
            assert_eq!(held(&other.jp(&args).fails_with(1)), [unjoined(&it.shared)], "{name}");
        }
        assert_eq!(it.stored(&it.shared), before, "{name}");
        planted.assert_same(&Shot::of(&dir));
    }
}

#[test]
fn a_copy_without_events_is_held_and_an_empty_conversation_is_joined() {
    let it = Project::new();
    let empty = new(&it.main, "Nothing said yet", &[]);
    let other = it.env.init_workspace("other", it.main.id());
    let dir = plant(&conversations(&other), &it.shared, &events("shared", 1));
    fs::remove_file(dir.join("events.json")).expect("removed");
    plant(&conversations(&other), &empty, &events("first words", 2));
    assert_eq!(held(&other.jp(&["import", "--json"]).fails_with(1)), [unjoined(&it.shared)]);
    assert_eq!(says(&other, &empty, "events"), 2);
}

/// Whatever lies in a held copy is held with it: new conversations, and copies that would be joined elsewhere.
#[test]
fn what_lies_in_a_held_copy_is_held_with_it() {
    let p = Planted::new(&events("planted", 1));
    let inside = p.dir.join("conversations");
    let shared = in_work(&p.clone, &p.it.shared).expect("cloned");
    fs::remove_dir_all(&shared).expect("removed");
    plant(&inside, &p.it.shared, &events("shared", 3));
    plant(&inside, "jp-c17000000001", &events("a new one", 2));
    let planted = Shot::of(&p.dir);
    let told = p.clone.jp(&["import", "--json"]).fails_with(1);
    let mut named = held(&told);
    named.sort();
    let mut expected = [&*p.it.private, &*p.it.shared, "jp-c17000000001"].map(unjoined);
    expected.sort();
    assert_eq!(named, expected);
    p.clone.jp(&["export"]).fails_with(1);
    p.clone.jp(&["c", "edit", &p.it.shared, "--title", "New title"]).ok();
    planted.assert_same(&Shot::of(&p.dir));
    assert!(crate::story::in_store(&p.it.main, "jp-c17000000001").is_none());
    // Once the outer one is joined, each is what it is by itself.
    p.clone.jp(&["import", &p.it.private]).ok();
    p.clone.jp(&["import"]).ok();
    assert_eq!(named_by_status(&p.clone), Vec::<String>::new());
    assert!(crate::story::in_store(&p.it.main, "jp-c17000000001").is_some());
    assert_eq!(says(&p.clone, &p.it.shared, "title"), "New title", "the stream is the same, and the store is later");
}

/// A held copy inside a conversation that is joined does not move or go with it.
#[test]
fn a_copy_that_a_held_one_lies_in_is_not_taken_away() {
    let it = Project::new();
    let clone = it.clone("second");
    let shared = in_work(&clone, &it.shared).expect("cloned");
    let dir = plant(&shared.join("conversations"), &it.private, &events("planted", 1));
    let planted = Shot::of(&dir);
    assert_eq!(held(&clone.jp(&["import", "--json"]).fails_with(1)), [unjoined(&it.private)]);
    clone.jp(&["c", "edit", &it.shared, "--local"]).fails_with(1).says("held");
    clone.jp(&["c", "rm", &it.shared, "--yes"]).fails_with(1).says("held");
    planted.assert_same(&Shot::of(&dir));
    assert_eq!(presence(&clone, &it.shared), "projected");
    // A new title moves the directory, and the held copy with it, as it is.
    clone.jp(&["c", "edit", &it.shared, "--title", "Moved"]).ok();
    let moved = in_work(&clone, &it.private).expect("there");
    planted.assert_same(&Shot::of(&moved));
    assert!(moved.starts_with(in_work(&clone, &it.shared).expect("shown")));
}

#[test]
fn several_copies_of_one_id_are_all_held() {
    let it = Project::new();
    let clone = it.clone("second");
    let root = conversations(&clone);
    let first = plant(&root, &it.private, &events("secret", 5));
    let second = plant(&root.join(".archive"), &it.private, &events("planted", 5));
    let third = plant(&first.join("conversations"), &it.private, &events("planted", 2));
    // Beside a copy that would be joined: one that does not begin alike holds both.
    let unrelated = plant(&root, &it.shared, &events("unrelated", 1));
    let before = Shot::of(&root);
    let named: Vec<_> = held(&clone.jp(&["import", "--json"]).fails_with(1)).into_iter().map(|(id, _)| id).collect();
    assert!(named.contains(&it.private) && named.contains(&it.shared), "{named:?}");
    clone.jp(&["export"]).fails_with(1);
    clone.jp(&["c", "new", "--local"]).ok();
    before.assert_same(&Shot::of(&root));
    assert!([first, second, third, unrelated].iter().all(|dir| dir.is_dir()));
    assert_eq!(says(&clone, &it.private, "title"), "Secret title");
}

/// A known worktree, into which a pull brings a directory with the id of a conversation that was never there.
#[test]
fn a_pull_into_a_known_worktree_makes_nothing_public() {
    let it = Project::new();
    let clone = it.clone("second");
    clone.jp(&["import"]).ok();
    for workspace in [&it.main, &clone] {
        let before = it.stored(&it.private);
        let dir = plant(&conversations(workspace), &it.private, &events("secret", 4));
        let planted = Shot::of(&dir);
        for args in [["import", "--json"], ["export", "--json"]] {
            assert_eq!(held(&workspace.jp(&args).fails_with(1)), [unjoined(&it.private)]);
        }
        assert_eq!(it.stored(&it.private), before);
        planted.assert_same(&Shot::of(&dir));
        fs::remove_dir_all(&dir).expect("removed");
        workspace.jp(&["export"]).ok();
    }
    // What is remembered outlives the directory.
    plant(&conversations(&clone), &it.private, &events("secret", 4));
    clone.jp(&["import"]).fails_with(1);
}

/// What was here and was hidden by removing its directory comes back when git brings it back.
#[test]
fn what_was_hidden_here_comes_back() {
    let it = Project::new();
    let dir = in_work(&it.main, &it.shared).expect("shown");
    fs::remove_dir_all(&dir).expect("removed");
    it.main.jp(&["import"]).ok();
    assert_eq!(presence(&it.main, &it.shared), "local");
    git(&it.env, it.main.root(), &["checkout", "--quiet", "."]);
    it.main.jp(&["import"]).ok();
    assert_eq!(presence(&it.main, &it.shared), "projected");
    it.main.jp(&["c", "edit", &it.private, "--local=false"]).ok();
    let private = in_work(&it.main, &it.private).expect("shown");
    let away = it.env.root().join("away");
    fs::rename(&private, &away).expect("moved");
    it.main.jp(&["import"]).ok();
    assert_eq!(presence(&it.main, &it.private), "local");
    fs::rename(&away, &private).expect("moved");
    it.main.jp(&["import"]).ok();
    assert_eq!(presence(&it.main, &it.private), "projected");
}

/// What the user made local by a command stays so, in whatever way its directory comes back, until the user shows it.
#[test]
fn what_was_made_local_stays_local() {
    let it = Project::new();
    it.main.jp(&["c", "edit", &it.shared, "--local=true"]).ok();
    let before = it.stored(&it.shared);
    git(&it.env, it.main.root(), &["checkout", "--quiet", "."]);
    let dir = in_work(&it.main, &it.shared).expect("brought back");
    let planted = Shot::of(&dir);
    for args in [["import", "--json"], ["export", "--json"]] {
        assert_eq!(held(&it.main.jp(&args).fails_with(1)), [unjoined(&it.shared)]);
        assert_eq!(presence(&it.main, &it.shared), "local");
    }
    assert_eq!(it.stored(&it.shared), before);
    planted.assert_same(&Shot::of(&dir));
    it.main.jp(&["import", &it.shared]).ok();
    assert_eq!(presence(&it.main, &it.shared), "projected");
    // Shown by the user's word, it is hidden and comes back as any other.
    let dir = in_work(&it.main, &it.shared).expect("shown");
    fs::remove_dir_all(&dir).expect("removed");
    it.main.jp(&["import"]).ok();
    git(&it.env, it.main.root(), &["checkout", "--quiet", "."]);
    it.main.jp(&["import"]).ok();
    assert_eq!(presence(&it.main, &it.shared), "projected");
}

/// Merge markers in what is synced are told from everything else that is held.
#[test]
fn an_export_for_a_commit_fails_for_merge_markers_alone() {
    let p = Planted::new(&events("planted", 1));
    p.clone.jp(&["export", "--for-commit"]).ok().says(&format!("jp import {}", p.it.private));
    p.assert_apart();
    let file = work_file(&p.clone, &p.it.shared, "events.json");
    let good = fs::read(&file).expect("read");
    fs::write(&file, "[ not JSON").expect("written");
    let told = p.clone.jp(&["export", "--json"]).fails_with(1);
    assert!(held(&told).contains(&(p.it.shared.clone(), "invalid".to_owned())), "{}", told.told());
    p.clone.jp(&["export", "--for-commit"]).ok().says("events.json");
    fs::write(&file, "[\n<<<<<<< HEAD\n]\n").expect("written");
    let told = p.clone.jp(&["export", "--json", "--for-commit"]).fails_with(1);
    assert!(held(&told).contains(&(p.it.shared.clone(), "merge-markers".to_owned())), "{}", told.told());
    fs::write(&file, good).expect("written");
    p.clone.jp(&["export", "--for-commit"]).ok();
    assert!(fs::read(store_file(&p.it.main, &p.it.shared, "events.json")).is_ok());
}
