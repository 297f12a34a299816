//! An export is killed at any moment. The store is as it was, every file is whole, and the next export ends where an
//! undisturbed one ends.

use std::fs;
use std::time::{Duration, Instant};

use jp_tests::{Bulk, Layout, Random, TestEnv, Workspace, contents, until};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{assert_exported, expected};
use crate::story::jp;

const COUNT: usize = 300;

fn many() -> (Workspace, Vec<u64>) {
    let w = TestEnv::in_memory().init_workspace("main", "otvo8");
    let made = Bulk::new(COUNT).events_size(2_000).layout(Layout::Nested).write(&w).expect("written");
    jp(&w, &["export"]);
    assert_exported(&w);
    // Leaves of the forest can hang anywhere that is not beneath themselves.
    let leaf = |id: &u64| !made.iter().any(|(_, parent)| *parent == Some(*id));
    let leaves = made.iter().map(|(id, _)| *id).filter(leaf).collect();
    (w, leaves)
}

/// Changes every conversation of the store, and hangs some elsewhere.
fn edit(w: &Workspace, leaves: &[u64], random: &mut Random, round: usize) {
    let inner: Vec<u64> = fs::read_dir(w.silo().join("conversations"))
        .expect("listed")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.split('-').next()?.parse().ok())
        .filter(|id| !leaves.contains(id))
        .collect();
    for entry in fs::read_dir(w.silo().join("conversations")).expect("listed") {
        let dir = entry.expect("listed").path();
        let name = dir.file_name().expect("a name").to_string_lossy().into_owned();
        let id: u64 = name.split('-').next().and_then(|digits| digits.parse().ok()).expect("an id");
        let path = dir.join("metadata.json");
        let mut meta: Value = serde_json::from_slice(&fs::read(&path).expect("read")).expect("JSON");
        meta["round"] = round.into();
        if leaves.contains(&id) && random.below(3) == 0 {
            let parent = inner[usize::try_from(random.below(inner.len() as u64)).expect("small")];
            meta["parent_id"] = parent.into();
        }
        fs::write(&path, jp_tests::pretty(&meta)).expect("written");
        let events = dir.join("events.json");
        let text = fs::read_to_string(&events).expect("read");
        let list = text.trim_end().trim_end_matches(']').trim_end();
        fs::write(&events, format!("{list}{}]\n", "\n".repeat(round + 1))).expect("written");
    }
}

/// Every managed file is a document, whichever.
#[track_caller]
fn assert_whole(w: &Workspace, told: &str) {
    let mut real = contents(&w.storage().join("conversations"));
    // What a process that is gone has begun is swept by the next one.
    real.retain(|path, _| !path.starts_with(".tmp"));
    for (path, bytes) in real {
        let whole = serde_json::from_slice::<Value>(&bytes).is_ok();
        assert!(whole, "{told}: {} is half a file:\n{}", path.display(), String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn killed_at_any_moment() {
    stopped_by(Signal::SIGKILL, &[-1, 137, 0]);
}

#[test]
fn told_to_stop() {
    stopped_by(Signal::SIGINT, &[130, 0]);
}

#[track_caller]
fn stopped_by(signal: Signal, codes: &[i32]) {
    let (w, leaves) = many();
    let mut random = Random::new(7);
    edit(&w, &leaves, &mut random, 0);
    let begun = Instant::now();
    jp(&w, &["export"]);
    let time = u64::try_from(begun.elapsed().as_micros()).expect("not that long");
    assert_exported(&w);
    let mut stopped = 0;
    for round in 1..=20 {
        edit(&w, &leaves, &mut random, round);
        let (store, real) = (contents(&w.silo().join("conversations")), expected(&w));
        let mut running = w.call(&["export"]).start();
        let moment = Duration::from_micros(random.below(time));
        let told = format!("round {round}: {signal} after {moment:?}");
        if !until(moment, || !running.is_alive()) {
            running.signal(signal);
        }
        let output = running.finish();
        assert!(codes.contains(&output.code), "{told}: {}", output.told());
        stopped += usize::from(output.code != 0);
        assert_eq!(contents(&w.silo().join("conversations")), store, "{told}: the store is as it was");
        assert_whole(&w, &told);
        let again = jp(&w, &["export"]);
        assert!(output.code != 0 || again.stdout.is_empty(), "{told}: {}", again.told());
        assert_exported(&w);
        assert_eq!(expected(&w), real, "{told}: the store is as it was");
        jp(&w, &["export", "--check"]);
    }
    assert!(stopped > 5, "it was stopped only {stopped} times");
}
