//! Real files edited by hand, in either root or in both: which copy counts, and what becomes of the other.

use std::fs;

use jp_tests::{Place, Sample, Shot, Workspace, mtime, set_mtime};
use serde_json::Value;

use crate::story::{
    SECOND, assert_twins, conflicts, jp, json, kept, presence, rewrite, says, store_file, stored, work_file, workspace,
};

const ID: &str = "jp-c17528832001";
const META: &str = "metadata.json";
const EVENTS: &str = "events.json";
const CONFIG: &str = "base_config.json";
/// A word of the first event, to be replaced.
const SAID: &str = "turn_start";

/// One conversation in both roots, exported by us, so that there is a base to compare with.
fn one() -> Workspace {
    let main = workspace();
    Sample::new(17_528_832_001).title("Upload").write(&main, Place::Both);
    jp(&main, &["c", "edit", ID, "--pin"]);
    assert_twins(&main, ID);
    assert_eq!(conflicts(&main), []);
    main
}

/// Any write to it.
fn touch(main: &Workspace) {
    let value = if says(main, ID, "pinned") == true { "--pin=false" } else { "--pin" };
    jp(main, &["c", "edit", ID, value]);
    assert_twins(main, ID);
}

fn title(main: &Workspace) -> Value {
    says(main, ID, "title")
}

#[test]
fn an_edit_in_the_workspace() {
    let main = one();
    rewrite(&work_file(&main, ID, META), "Upload", "By hand", SECOND);
    rewrite(&work_file(&main, ID, EVENTS), SAID, "turn_edited", SECOND);
    let before = Shot::of(main.env().root());
    assert_eq!(title(&main), "By hand");
    assert!(main.jp(&["c", "show", ID]).ok().stdout.contains("By hand"));
    before.assert_same(&Shot::of(main.env().root()));
    assert_eq!(stored(&main, ID)["title"], "Upload");
    touch(&main);
    assert_eq!(stored(&main, ID)["title"], "By hand");
    assert!(fs::read_to_string(store_file(&main, ID, EVENTS)).expect("there").contains("turn_edited"));
    assert_eq!(conflicts(&main), []);
}

#[test]
fn an_edit_in_the_store() {
    let main = one();
    rewrite(&store_file(&main, ID, META), "Upload", "By hand", SECOND);
    rewrite(&store_file(&main, ID, EVENTS), SAID, "turn_edited", SECOND);
    assert_eq!(title(&main), "By hand");
    assert!(main.jp(&["c", "show", ID]).ok().stdout.contains("By hand"));
    touch(&main);
    assert_eq!(json(&work_file(&main, ID, META))["title"], "By hand");
    assert!(fs::read_to_string(work_file(&main, ID, EVENTS)).expect("there").contains("turn_edited"));
    assert_eq!(conflicts(&main), []);
}

/// An edit counts although the other copy is newer, because that one was not edited.
#[test]
fn an_older_edit_beats_no_edit() {
    let main = one();
    rewrite(&work_file(&main, ID, META), "Upload", "By hand", -1000 * SECOND);
    assert_eq!(title(&main), "By hand");
    touch(&main);
    assert_eq!(stored(&main, ID)["title"], "By hand");
    assert_eq!(conflicts(&main), []);
}

#[test]
fn both_edited() {
    for (later_store, later_work, winner, loser) in [
        (SECOND, 2 * SECOND, "Workspace", "Store"),
        (2 * SECOND, SECOND, "Store", "Workspace"),
        (SECOND, SECOND, "Store", "Workspace"),
    ] {
        let main = one();
        let (store, work) = (store_file(&main, ID, META), work_file(&main, ID, META));
        set_mtime(&work, mtime(&store));
        rewrite(&store, "Upload", "Store", later_store);
        rewrite(&work, "Upload", "Workspace", later_work);
        assert_eq!(title(&main), winner);
        touch(&main);
        assert_eq!(title(&main), winner);
        assert_eq!(stored(&main, ID)["title"], winner);
        assert_eq!(conflicts(&main), [(ID.to_owned(), vec![META.to_owned()])]);
        let kept = kept(&main, ID, META);
        assert!(kept.len() == 1 && kept[0].contains(loser), "{kept:?}");
        assert!(main.jp(&["status"]).ok().stdout.contains("conflict"), "told to people too");
        touch(&main);
        assert_eq!(conflicts(&main).len(), 1, "it is decided once");
    }
}

#[test]
fn the_units_are_independent() {
    let main = one();
    for (name, from) in [(META, "Upload"), (EVENTS, SAID)] {
        let (store, work) = (store_file(&main, ID, name), work_file(&main, ID, name));
        set_mtime(&work, mtime(&store));
        let (later_store, later_work) = if name == META { (SECOND, 2 * SECOND) } else { (2 * SECOND, SECOND) };
        rewrite(&store, from, "in_store", later_store);
        rewrite(&work, from, "in_work", later_work);
    }
    assert_eq!(title(&main), "in_work");
    touch(&main);
    assert_eq!(stored(&main, ID)["title"], "in_work");
    assert!(fs::read_to_string(store_file(&main, ID, EVENTS)).expect("there").contains("in_store"));
    assert!(kept(&main, ID, META)[0].contains("in_store"));
    assert!(kept(&main, ID, EVENTS)[0].contains("in_work"));
}

#[test]
fn a_configuration_carries_the_stream() {
    let main = one();
    rewrite(&work_file(&main, ID, CONFIG), "\"ask\"", "\"unattended\"", SECOND);
    touch(&main);
    assert!(fs::read_to_string(store_file(&main, ID, CONFIG)).expect("there").contains("unattended"));

    // The newer configuration takes its own events along, although the others are edited too.
    let events = fs::read_to_string(work_file(&main, ID, EVENTS)).expect("there");
    let now = mtime(&store_file(&main, ID, EVENTS));
    rewrite(&store_file(&main, ID, EVENTS), SAID, "turn_edited", SECOND);
    let config = work_file(&main, ID, CONFIG);
    rewrite(&config, "\"unattended\"", "\"never\"", 0);
    set_mtime(&config, now + 2 * SECOND);
    touch(&main);
    assert_eq!(fs::read_to_string(store_file(&main, ID, EVENTS)).expect("there"), events);
    assert!(fs::read_to_string(store_file(&main, ID, CONFIG)).expect("there").contains("never"));
    assert!(kept(&main, ID, EVENTS)[0].contains("turn_edited"));
}

#[test]
fn a_new_time_is_no_edit() {
    let main = one();
    for name in [META, EVENTS, CONFIG] {
        let work = work_file(&main, ID, name);
        set_mtime(&work, mtime(&work) + 100 * SECOND);
    }
    rewrite(&store_file(&main, ID, META), "Upload", "Store", SECOND);
    assert_eq!(title(&main), "Store");
    touch(&main);
    assert_eq!(stored(&main, ID)["title"], "Store");
    assert_eq!(conflicts(&main), []);
}

#[test]
fn a_checkout_of_older_content_is_an_edit() {
    let main = one();
    let old = fs::read(work_file(&main, ID, META)).expect("there");
    jp(&main, &["c", "edit", ID, "--title", "Second"]);
    let path = work_file(&main, ID, META);
    let second = fs::read(&path).expect("there");
    // What is checked out is what is there already.
    fs::remove_file(&path).expect("removed");
    fs::write(&path, &second).expect("written");
    rewrite(&store_file(&main, ID, META), "Second", "Third", -SECOND);
    assert_eq!(title(&main), "Third", "only the store was edited");
    touch(&main);
    assert_eq!(stored(&main, ID)["title"], "Third");
    // Another version is checked out.
    let path = work_file(&main, ID, META);
    fs::remove_file(&path).expect("removed");
    fs::write(&path, &old).expect("written");
    assert_eq!(title(&main), "Upload");
    touch(&main);
    assert_eq!(stored(&main, ID)["title"], "Upload");
    assert_eq!(conflicts(&main), []);
}

#[test]
fn two_copies_never_seen_before() {
    let main = workspace().known();
    let sample = Sample::new(17_528_832_001);
    let at = 1_750_000_000 * SECOND;
    sample.clone().title("Older").mtime(at).write(&main, Place::User);
    sample.title("Newer").mtime(at + SECOND).write(&main, Place::Workspace);
    assert_eq!(title(&main), "Newer");
    assert_eq!(presence(&main, ID), "projected");
    touch(&main);
    assert_eq!(stored(&main, ID)["title"], "Newer");
    assert!(kept(&main, ID, META)[0].contains("Older"));
}

#[test]
fn what_does_not_parse_never_enters_the_store() {
    let main = one();
    let path = work_file(&main, ID, META);
    let broken = "{\n<<<<<<< HEAD\n  \"title\": \"a\"\n=======\n";
    fs::write(&path, broken).expect("written");
    let status = main.jp(&["status", "--json"]).fails_with(4);
    let report: Value = serde_json::from_str(&status.stdout).expect("JSON");
    assert_eq!((&report["problems"][0]["line"], &report["problems"][0]["id"]), (&2.into(), &ID.into()));
    let _ = main.jp(&["c", "edit", ID, "--title", "Meanwhile"]);
    let path = work_file(&main, ID, META);
    assert_eq!(fs::read_to_string(&path).expect("there"), broken, "somebody is in the middle of it");
    assert_ne!(stored(&main, ID)["title"], "a");
}

/// Gives the metadata in the workspace a time, syncs, and then edits the file without changing its time, size or inode, as
/// happens if both fall into one tick of the clock that stamps files. Returns the age of the time when the sync took its stamp.
#[track_caller]
fn edit_with_the_same_stamp(main: &Workspace, from: &str, to: &str, time: i64) -> i64 {
    set_mtime(&work_file(main, ID, META), time);
    jp(main, &["export"]);
    let state = fs::read_dir(main.silo().join("vfs")).expect("listed").flatten().map(|entry| entry.path());
    let ledger = state.map(|dir| dir.join("projection.json")).find(|file| file.is_file()).expect("a ledger");
    let taken =
        json(&ledger)["conversations"][ID.trim_start_matches("jp-c")]["base"]["taken"].as_i64().expect("a time");
    let file = work_file(main, ID, META);
    assert_eq!((mtime(&file), from.len()), (time, to.len()));
    rewrite(&file, from, to, 0);
    taken - time
}

/// Edits a file several times with an unchanged stamp that was `about` this old when the sync took it. An edit of a file with a stamp
/// older than `limit` may be missed.
#[track_caller]
fn assert_edits_are_seen(about: i64, limit: i64, stamp: impl Fn(i64) -> i64) {
    let main = one();
    let probe = main.env().root().join("probe");
    let (mut delay, mut met) = (0, 0);
    for round in 0..200 {
        let (from, to) = if round % 2 == 0 { ("Upload", "Sample") } else { ("Sample", "Upload") };
        // The clock that stamps files.
        fs::write(&probe, "").expect("written");
        let begun = mtime(&probe);
        let time = stamp(begun + delay - about);
        let age = edit_with_the_same_stamp(&main, from, to, time);
        if age <= limit {
            assert_eq!(
                title(&main),
                to,
                "round {round}: an edit of a file whose stamp was {age} ns old when it was taken"
            );
            met += usize::from(age > limit / 4);
        }
        if met == 5 {
            return;
        }
        // With another time every edit is seen.
        set_mtime(&work_file(&main, ID, META), time + SECOND / 7);
        jp(&main, &["export"]);
        assert_eq!(title(&main), to);
        delay = time + age - begun;
    }
    assert!(met > 0, "no sync was fast enough");
}

/// Kernels stamp files by a clock that ticks every 10 ms at the slowest.
#[test]
fn an_edit_within_a_tick_of_the_last_sync() {
    assert_edits_are_seen(12_000_000, 18_000_000, |time| time | 1);
}

/// Some filesystems keep whole seconds, FAT every other one.
#[test]
fn an_edit_within_a_second_where_times_are_whole_seconds() {
    assert_edits_are_seen(SECOND / 2, 2 * SECOND, |time| time / SECOND * SECOND);
}
