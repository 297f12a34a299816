//! Archives, removals and expiry: both roots and the tree come along, and nothing goes that was not asked for.

use std::fs;

use jp_tests::{Running, Shot, Workspace, wait_for};

use crate::story::{
    assert_twins, bytes, family, in_store, in_work, jp, listed, nesting, new, presence, says, store_file, stored,
    work_file, workspace,
};

#[test]
fn an_archived_subtree_comes_back_in_place() {
    let main = workspace();
    let [a, b, c] = family(&main);
    let hidden = new(&main, "Hidden", &["--parent", &b, "--local"]);
    fs::write(work_file(&main, &c, "notes.txt"), "mine").expect("written");
    let before: Vec<_> = [&b, &c, &hidden].map(|id| bytes(&in_store(&main, id).expect("stored"))).into();
    jp(&main, &["c", "archive", &b]);
    for id in [&b, &c, &hidden] {
        assert_eq!(says(&main, id, "archived"), true);
        assert!(in_store(&main, id).expect("stored").starts_with(main.silo().join("conversations/.archive")));
    }
    for id in [&b, &c] {
        let dir = in_work(&main, id).expect("the other root has it too");
        assert!(dir.starts_with(main.storage().join("conversations/.archive")), "{}", dir.display());
        assert_twins(&main, id);
    }
    assert_eq!(in_work(&main, &hidden), None);
    assert_eq!(says(&main, &a, "archived"), false);
    assert!(stored(&main, &b)["archived_at"].is_string());
    assert_eq!(listed(&main, &c).expect("listed")["presence"], "projected");

    jp(&main, &["c", "unarchive", &b]);
    assert_eq!(nesting(&main, &c), ["grandmother", "mother", "daughter"]);
    for (id, before) in [&b, &c, &hidden].into_iter().zip(before) {
        assert_eq!(says(&main, id, "archived"), false);
        assert_eq!(bytes(&in_store(&main, id).expect("stored")), before);
    }
    for id in [&a, &b, &c] {
        assert_twins(&main, id);
    }
    assert_eq!(presence(&main, &hidden), "local");
    assert_eq!(fs::read_to_string(work_file(&main, &c, "notes.txt")).expect("there"), "mine");
}

#[test]
fn a_parent_is_not_removed_by_accident() {
    let main = workspace();
    let [a, b, _] = family(&main);
    let roots = || (Shot::of(&main.silo().join("conversations")), Shot::of(&main.storage().join("conversations")));
    let before = roots();
    main.jp(&["c", "rm", &a, "-y"]).fails_with(1).says("1 child").says("--cascade").says("--promote");
    main.jp(&["c", "rm", &b]).fails_with(1);
    let after = roots();
    before.0.assert_same(&after.0);
    before.1.assert_same(&after.1);
}

#[test]
fn cascading() {
    let main = workspace();
    let [a, b, c] = family(&main);
    fs::write(work_file(&main, &c, "notes.txt"), "mine").expect("written");
    let hidden = new(&main, "Hidden", &["--parent", &b, "--local"]);
    jp(&main, &["c", "rm", &b, "-y", "--cascade"]);
    for id in [&b, &c, &hidden] {
        assert_eq!((presence(&main, id).as_str(), in_store(&main, id), in_work(&main, id)), ("gone", None, None));
    }
    assert_twins(&main, &a);
    assert!(!work_file(&main, &a, "conversations").exists(), "no empty directory stays behind");
}

#[test]
fn promoting() {
    let main = workspace();
    let [a, b, c] = family(&main);
    fs::write(work_file(&main, &c, "notes.txt"), "mine").expect("written");
    jp(&main, &["c", "rm", &b, "-y", "--promote"]);
    assert_eq!((presence(&main, &b).as_str(), in_store(&main, &b), in_work(&main, &b)), ("gone", None, None));
    assert_eq!(says(&main, &c, "parent"), a);
    assert_eq!(nesting(&main, &c), ["grandmother", "daughter"]);
    assert_eq!(fs::read_to_string(work_file(&main, &c, "notes.txt")).expect("kept"), "mine");
    assert_twins(&main, &c);
    jp(&main, &["c", "rm", &a, "-y", "--promote"]);
    assert_eq!(says(&main, &c, "parent"), serde_json::Value::Null);
    assert_eq!(nesting(&main, &c), ["daughter"]);
    assert_twins(&main, &c);
}

fn hold(main: &Workspace, id: &str) -> Running {
    let holder = main.call(&["lock", "run", id, "--", "cat"]).start();
    let file = main.silo().join(format!("locks/{id}.lock"));
    wait_for("the lock", std::time::Duration::from_secs(20), || fs::read(&file).is_ok_and(|text| !text.is_empty()));
    holder
}

#[test]
fn expiry() {
    let main = workspace();
    let [a, b, c] = family(&main);
    let active = new(&main, "Active", &["--tmp=now"]);
    let locked = new(&main, "Locked", &["--tmp=now"]);
    let later = new(&main, "Later", &["--tmp=1h"]);
    jp(&main, &["c", "edit", &a, &b, "--tmp=now"]);
    jp(&main, &["c", "use", &active]);
    let holder = hold(&main, &locked);
    let collected = |field: &str| main.jp(&["gc", "--json"]).json()[field].clone();
    let report = main.jp(&["gc", "--json"]).json();
    assert_eq!(report["removed"], serde_json::json!([]), "the youngest lives");
    for id in [&a, &b, &c, &active, &locked, &later] {
        assert_ne!(presence(&main, id), "gone");
    }
    holder.finish().ok();
    assert_eq!(collected("removed"), serde_json::json!([locked]));

    // Now there is nothing beneath them that lives on.
    jp(&main, &["c", "edit", &c, "--tmp=now"]);
    let dry = main.jp(&["gc", "--dry-run", "--json"]).json();
    let mut removed: Vec<_> = collected("removed").as_array().expect("an array").clone();
    removed.sort_by_key(ToString::to_string);
    assert_eq!(removed, [a.as_str(), b.as_str(), c.as_str()]);
    assert_eq!(dry["removed"].as_array().map(Vec::len), Some(3));
    for id in [&a, &b, &c] {
        assert_eq!((in_store(&main, id), in_work(&main, id)), (None, None));
    }
    assert!(store_file(&main, &active, "events.json").is_file() && in_work(&main, &later).is_some());
}

#[test]
fn a_subtree_may_have_more_conversations_than_files_can_be_open() {
    let main = workspace();
    let store = main.silo().join("conversations");
    jp_tests::Sample::new(17_528_832_001).write_below(&store);
    for n in 0..80 {
        jp_tests::Sample::new(17_528_842_001 + n).parent(17_528_832_001).write_below(&store);
    }
    let mut command = main.env().command("sh".as_ref(), main.root());
    command.args(["-c", "ulimit -Sn 64; exec \"$0\" c archive jp-c17528832001"]).arg(jp_tests::jp_binary());
    let out = command.output().expect("there is a shell");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(says(&main, "jp-c17528842080", "archived"), true);
}
