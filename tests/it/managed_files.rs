//! The files of a conversation: opened in an editor, rewritten by other programs, or of an older layout.

use std::fs;

use jp_tests::{Output, Place, Sample, Shot, Workspace, pretty};
use serde_json::{Value, json};

use crate::story::{
    assert_twins, family, in_store, in_work, jp, json as read_json, nesting, new, number, says, store_file, stored,
    work_file, workspace,
};

const LEGACY: &str = "jp-c17528832001";

/// Runs `jp c edit` with this as the editor's command line.
#[track_caller]
fn edit(main: &Workspace, id: &str, flag: &str, editor: &str) -> Output {
    let temporary = main.env().project("tmp");
    main.call(&["c", "edit", id, flag]).var("JP_EDITOR", editor).var("TMPDIR", temporary).run()
}

#[test]
fn an_editor_changes_both_copies_at_once() {
    let main = workspace();
    Sample::new(17_528_832_001).title("Upload").write(&main, Place::Both);
    let check = |flag: &str, name: &str, from: &str, to: &str| {
        edit(&main, LEGACY, flag, &format!("sed -i s/{from}/{to}/")).ok();
        assert_twins(&main, LEGACY);
        assert!(fs::read_to_string(store_file(&main, LEGACY, name)).expect("there").contains(to), "{name}");
    };
    check("--events", "events.json", "turn_start", "turn_edited");
    check("--base-config", "base_config.json", "ask", "unattended");
    check("--metadata", "metadata.json", "Upload", "Download");
    assert_eq!(nesting(&main, LEGACY), ["download"]);
    let before = Shot::of(&main.storage());
    edit(&main, LEGACY, "--events", "true").ok().says("unchanged");
    before.assert_same(&Shot::of(&main.storage()));
}

#[test]
fn what_an_editor_spoils_is_kept() {
    let main = workspace();
    let id = new(&main, "Upload", &[]);
    let before = (Shot::of(&main.silo().join("conversations")), Shot::of(&main.storage()));
    let told =
        edit(&main, &id, "--events", "sh -c 'echo \"[ oops\" > \"$1\"' sh").fails_with(4).says("events.json:1:3");
    before.0.assert_same(&Shot::of(&main.silo().join("conversations")));
    before.1.assert_same(&Shot::of(&main.storage()));
    let place =
        told.stderr.lines().find_map(|line| line.split_once("the text is kept in ")).expect("the place is told").1;
    assert_eq!(fs::read_to_string(format!("{place}/events.json")).expect("kept"), "[ oops\n");
    // An editor that fails has not spoilt anything.
    edit(&main, &id, "--events", "false").fails_with(1).says("the editor failed");
    before.1.assert_same(&Shot::of(&main.storage()));
}

/// What a program does that knows nothing of parents.
#[track_caller]
fn erase_parent(main: &Workspace, id: &str) {
    for path in [store_file(main, id, "metadata.json"), work_file(main, id, "metadata.json")] {
        let mut meta = read_json(&path);
        let keys = meta.as_object_mut().expect("an object");
        assert!(keys.remove("parent_id").is_some() && keys.remove("origin").is_some());
        fs::write(&path, pretty(&meta)).expect("written");
    }
}

#[test]
fn a_link_erased_by_another_program_survives() {
    let main = workspace();
    let [a, b, c] = family(&main);
    erase_parent(&main, &b);
    assert_eq!(says(&main, &b, "parent"), a);
    assert_eq!(says(&main, &b, "origin"), "main");
    assert_eq!(stored(&main, &b).get("parent_id"), None, "reading heals nothing");
    jp(&main, &["c", "edit", &b, "--pin"]);
    assert_eq!(stored(&main, &b)["parent_id"], number(&a));
    assert_eq!(stored(&main, &b)["origin"], "main");
    assert_eq!(nesting(&main, &c), ["grandmother", "mother", "daughter"]);
    assert_twins(&main, &b);
}

#[test]
fn a_link_taken_out_in_the_editor_is_gone() {
    let main = workspace();
    let [a, b, c] = family(&main);
    edit(&main, &b, "--metadata", "sed -i /parent_id/d").ok();
    assert_eq!(says(&main, &b, "parent"), Value::Null);
    assert_eq!(nesting(&main, &c), ["mother", "daughter"]);
    jp(&main, &["c", "edit", &b, "--pin"]);
    assert_eq!(says(&main, &b, "parent"), Value::Null, "it does not come back");
    assert_twins(&main, &b);

    // Erased by another program first: the editor shows what it was, and saving something else takes nothing out.
    erase_parent(&main, &c);
    edit(&main, &c, "--metadata", "sed -i s/Daughter/Niece/").ok();
    assert_eq!(says(&main, &c, "parent"), b);
    assert_ne!(says(&main, &c, "parent"), a);
}

#[test]
fn null_is_a_root() {
    let main = workspace();
    let [a, b, c] = family(&main);
    let parent = format!("\"parent_id\": {}", number(&a));
    crate::story::rewrite(&work_file(&main, &b, "metadata.json"), &parent, "\"parent_id\": null", 1);
    assert_eq!(says(&main, &b, "parent"), Value::Null);
    jp(&main, &["c", "edit", &b, "--pin"]);
    assert_eq!(stored(&main, &b)["parent_id"], Value::Null);
    assert!(stored(&main, &b).as_object().is_some_and(|keys| keys.contains_key("parent_id")), "it stays said");
    assert_eq!(nesting(&main, &c), ["mother", "daughter"]);
}

#[test]
fn keys_nobody_knows_survive() {
    let main = workspace();
    let sample = Sample::new(17_528_832_001).title("Upload").key("future", json!({ "b": 1.50, "a": [null] }));
    sample.write(&main, Place::Both);
    jp(&main, &["c", "edit", LEGACY, "--pin"]);
    assert_eq!(stored(&main, LEGACY)["future"], json!({ "b": 1.50, "a": [null] }));
    assert_twins(&main, LEGACY);
}

#[test]
fn the_older_layout() {
    let main = workspace();
    let delta = json!({ "assistant": { "model": { "id": { "provider": "anthropic", "name": "old" } } } });
    let events = pretty(&json!([
        { "timestamp": "2025-07-19 00:00:00.1", "type": "config_delta", "delta": delta },
        { "timestamp": "2025-07-19 00:00:01.0", "type": "turn_start" },
        { "timestamp": "2025-07-19 00:00:02.0", "type": "chat_request", "content": "How so?" },
    ]));
    let sample =
        Sample::new(17_528_832_001).title("Old").without("base_config.json").file("events.json", events.clone());
    sample.write(&main, Place::Both);
    assert_eq!(says(&main, LEGACY, "events"), 3);
    assert!(main.jp(&["c", "show", LEGACY]).ok().stdout.contains("Old"));
    assert!(main.jp(&["c", "print", LEGACY]).ok().stdout.contains("How so?"));
    jp(&main, &["c", "edit", LEGACY, "--title", "Older"]);
    for dir in [in_store(&main, LEGACY), in_work(&main, LEGACY)] {
        let dir = dir.expect("both roots have it");
        assert_eq!(fs::read(dir.join("events.json")).expect("there"), events);
        assert!(!dir.join("base_config.json").exists());
    }
    let fork = main.jp(&["c", "fork", LEGACY]).line().to_owned();
    assert_eq!(says(&main, &fork, "parent"), LEGACY);
    assert!(main.jp(&["c", "print", &fork]).ok().stdout.contains("How so?"));
    assert!(fs::read_to_string(store_file(&main, &fork, "events.json")).expect("there").contains("\"old\""));
    edit(&main, LEGACY, "--base-config", "true").fails_with(1).says("has no base_config.json");
}
