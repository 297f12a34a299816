//! Ordinary clones and worktrees: file times do not decide, and nothing is asked.

use std::fs;
use std::os::unix::fs::symlink;

use jp_tests::{Shot, set_mtime};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::story::{SECOND, conflicts, kept, presence, says, store_file, work_file};

/// Nanoseconds in 2040.
const FAR: i64 = 2_208_988_800_000_000_000;

#[track_caller]
fn event_count(workspace: &Workspace, id: &str) -> Value {
    says(workspace, id, "events")
}

#[test]
fn clones_and_worktrees_join_silently() {
    let it = Project::new();
    it.write_store(&it.shared, "shared", 5);
    it.main.jp(&["export"]).ok();
    it.commit("two");
    let path = it.env.root().join("feature");
    git(&it.env, it.main.root(), &["worktree", "add", "--quiet", path.to_str().expect("UTF-8")]);
    let all = [it.clone("second"), it.clone_at("old", "HEAD~1"), it.env.workspace("feature")];
    for workspace in &all {
        assert_eq!(event_count(workspace, &it.shared), 5);
        assert_eq!(presence(workspace, &it.shared), "projected");
        let told = workspace.jp(&["import", "--json"]).ok();
        assert_eq!(held(&told), [], "{}", told.told());
        let told = workspace.jp(&["export"]).ok();
        assert_eq!(named_by_status(workspace), Vec::<String>::new(), "{}", told.told());
        crate::story::assert_twins(workspace, &it.shared);
        assert_eq!(event_count(workspace, &it.shared), 5);
        assert_eq!(presence(workspace, &it.private), "local");
    }
}

#[test]
fn an_old_commit_does_not_win_by_its_times() {
    let it = Project::new();
    it.write_store(&it.shared, "shared", 5);
    it.main.jp(&["c", "edit", &it.shared, "--title", "New title"]).ok();
    it.commit("two");
    let old = it.clone_at("old", "HEAD~1");
    for name in ["metadata.json", "events.json", "base_config.json"] {
        set_mtime(&work_file(&old, &it.shared, name), FAR);
    }
    let before = it.stored(&it.shared);
    // What reads shows what a write would choose, and changes nothing.
    let shot = Shot::of(it.env.root());
    assert_eq!(event_count(&old, &it.shared), 5);
    assert_eq!(says(&old, &it.shared, "title"), "New title");
    prints(old.jp(&["c", "show", &it.shared]).ok(), "New title");
    prints(old.jp(&["import", "--dry-run"]).ok(), "store wins");
    shot.assert_same(&Shot::of(it.env.root()));

    prints(old.jp(&["import"]).ok(), "store wins");
    assert_eq!(it.stored(&it.shared), before);
    assert_eq!(event_count(&old, &it.shared), 5);
    // The loser is kept and named.
    assert!(kept(&old, &it.shared, "events.json")[0].contains("shared 2"));
    assert!(conflicts(&old).iter().any(|(id, _)| *id == it.shared));
    crate::story::assert_twins(&old, &it.shared);
}

#[test]
fn a_longer_stream_wins_whatever_its_times() {
    let it = Project::new();
    it.write_store(&it.shared, "shared", 5);
    it.main.jp(&["c", "edit", &it.shared, "--title", "New title"]).ok();
    it.commit("two");
    let clone = it.clone("second");
    // The store went back, and claims to be newer.
    it.write_store(&it.shared, "shared", 2);
    for name in ["metadata.json", "events.json", "base_config.json"] {
        set_mtime(&store_file(&it.main, &it.shared, name), FAR);
        set_mtime(&work_file(&clone, &it.shared, name), SECOND);
    }
    rewrite_title(&store_file(&it.main, &it.shared, "metadata.json"), "New title", "Elsewhere");
    set_mtime(&store_file(&it.main, &it.shared, "metadata.json"), FAR);
    assert_eq!(event_count(&clone, &it.shared), 5);
    assert_eq!(says(&clone, &it.shared, "title"), "New title", "metadata follows the stream");
    prints(clone.jp(&["import"]).ok(), "workspace wins");
    assert_eq!(event_count(&clone, &it.shared), 5);
    assert_eq!(crate::story::stored(&clone, &it.shared)["title"], "New title");
    assert!(kept(&clone, &it.shared, "metadata.json")[0].contains("Elsewhere"));
}

#[track_caller]
fn rewrite_title(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).expect("read");
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).expect("written");
}

/// Streams that part after a common beginning: the later last event wins, unless it is in the future.
#[test]
fn the_later_last_event_wins_unless_it_is_in_the_future() {
    for (last, winner) in
        [("2025-07-20T00:00:00Z", "work"), ("2024-01-01T00:00:00Z", "store"), ("2200-01-01T00:00:00Z", "store")]
    {
        let it = Project::new();
        let clone = it.clone("second");
        let mut parted = events("shared", 2);
        let event = json!({"timestamp": last, "type": "chat_request", "content": "parted"});
        parted.as_array_mut().expect("an array").push(event);
        put(&work_file(&clone, &it.shared, "events.json"), &parted);
        let shown = clone.jp(&["c", "print", &it.shared]).ok().stdout;
        let told = clone.jp(&["import", "--json"]).ok().json();
        let winners: Vec<_> = told["steps"].as_array().expect("steps").iter().map(|step| &step["winner"]).collect();
        assert!(winners.iter().all(|by| *by == winner) && !winners.is_empty(), "{last}: {told}");
        assert_eq!(clone.jp(&["c", "print", &it.shared]).ok().stdout, shown, "{last}: shown as it was decided");
    }
}

/// With equal streams the later activation decides about the metadata; one in the future does not count.
#[test]
fn metadata_alone_goes_by_its_activation() {
    for (activated, title) in [("2039-01-01T00:00:00Z", "Shared"), ("2001-01-01T00:00:00Z", "Shared")] {
        let it = Project::new();
        let clone = it.clone("second");
        let file = work_file(&clone, &it.shared, "metadata.json");
        let mut meta = crate::story::json(&file);
        meta["title"] = json!("Mine");
        meta["last_activated_at"] = json!(activated);
        put(&file, &meta);
        set_mtime(&file, FAR);
        assert_eq!(says(&clone, &it.shared, "title"), title);
        clone.jp(&["import"]).ok();
        assert_eq!(says(&clone, &it.shared, "title"), title);
    }
    let it = Project::new();
    let clone = it.clone("second");
    let stored = store_file(&it.main, &it.shared, "metadata.json");
    let mut meta = crate::story::json(&stored);
    meta["last_activated_at"] = json!("2001-01-01T00:00:00Z");
    put(&stored, &meta);
    let file = work_file(&clone, &it.shared, "metadata.json");
    rewrite_title(&file, "Shared", "Mine");
    set_mtime(&file, SECOND);
    assert_eq!(says(&clone, &it.shared, "title"), "Mine");
    clone.jp(&["import"]).ok();
    assert_eq!(says(&clone, &it.shared, "title"), "Mine");
}

/// A user file that both copies have differently: the store's wins, and the other is kept.
#[test]
fn user_files_do_not_win_by_their_times() {
    let it = Project::new();
    fs::write(work_file(&it.main, &it.shared, "notes.md"), "old").expect("written");
    it.main.jp(&["export"]).ok();
    it.commit("notes");
    let clone = it.clone("second");
    fs::write(store_file(&it.main, &it.shared, "notes.md"), "new").expect("written");
    set_mtime(&store_file(&it.main, &it.shared, "notes.md"), SECOND);
    clone.jp(&["import"]).ok();
    assert_eq!(fs::read_to_string(store_file(&it.main, &it.shared, "notes.md")).expect("read"), "new");
    assert_eq!(kept(&clone, &it.shared, "notes.md"), ["old"]);
}

/// The store names a worktree by its link, or by an entry in `roots/`: there the newest file wins, as ever.
#[test]
fn in_a_known_worktree_the_newest_wins() {
    for way in ["link", "roots", "another root", "nothing"] {
        let it = Project::new();
        let clone = it.clone("second");
        let silo = it.main.silo();
        match way {
            "link" => {
                fs::remove_file(silo.join("storage")).expect("removed");
                symlink(clone.storage(), silo.join("storage")).expect("linked");
            }
            "roots" | "another root" => {
                let project = clone.root().to_str().expect("UTF-8");
                let key: String = Sha256::digest(project)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
                fs::create_dir(silo.join("roots")).expect("made");
                let path = if way == "roots" { project } else { "/somewhere/else" };
                put(&silo.join(format!("roots/{key}.json")), &json!({"path": path, "last_used": "2025-07-19"}));
            }
            _ => {}
        }
        put(&work_file(&clone, &it.shared, "events.json"), &events("shared", 2));
        set_mtime(&work_file(&clone, &it.shared, "events.json"), FAR);
        let known = matches!(way, "link" | "roots");
        assert_eq!(event_count(&clone, &it.shared), if known { 2 } else { 3 }, "{way}");
        clone.jp(&["import"]).ok();
        assert_eq!(event_count(&clone, &it.shared), if known { 2 } else { 3 }, "{way}");
    }
}

/// What was decided at the first command stays decided: other commands make the worktree known before the copy is joined.
#[test]
fn a_copy_is_judged_by_when_it_was_first_seen() {
    let it = Project::new();
    it.write_store(&it.shared, "shared", 5);
    it.main.jp(&["export"]).ok();
    let old = it.clone_at("old", "HEAD");
    new(&old, "Something else", &[]);
    set_mtime(&work_file(&old, &it.shared, "events.json"), FAR);
    assert_eq!(event_count(&old, &it.shared), 5);
    old.jp(&["import"]).ok();
    assert_eq!(event_count(&old, &it.shared), 5);
    // Once it is synced, an edit is an edit.
    put(&work_file(&old, &it.shared, "events.json"), &events("shared", 1));
    old.jp(&["import"]).ok();
    assert_eq!(event_count(&old, &it.shared), 1);
}
