//! What no program should have written, and what a system refuses: each gives a clear error or a sane view, with the exit
//! code that is documented, and nothing is lost. One file for each thing that can be bad.

mod documents;
mod names;
mod refusals;
mod state;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use jp_tests::{Output, Sample, Shot, TestEnv, Workspace};
use serde_json::Value;

const A: u64 = 17_528_832_001;
const B: u64 = 17_528_842_001;
const C: u64 = 17_528_852_001;

fn workspace() -> Workspace {
    TestEnv::new().init_workspace("main", "ab1cd")
}

/// A conversation with a title and a past.
fn sample(id: u64, title: &str) -> Sample {
    Sample::new(id).title(title).mtime(1_750_000_000_000_000_000)
}

/// Runs `jp`, which may fail, but in a civil way.
#[track_caller]
fn jp(work: &Workspace, args: &[&str]) -> Output {
    civil(work.jp(args))
}

/// No panic, no crash, no control character on stdout.
#[track_caller]
fn civil(output: Output) -> Output {
    assert!(!output.stderr.contains("panicked") && output.code < 100, "{}", output.told());
    let raw = |char: char| char.is_control() && !matches!(char, '\n' | '\t');
    assert!(!output.stdout.contains(raw), "{}", output.told());
    output
}

/// What `jp c ls --json` says of a conversation.
#[track_caller]
fn listed(work: &Workspace, id: u64) -> Value {
    let listing = jp(work, &["c", "ls", "--json"]).json();
    let mut all = listing.as_array().expect("an array").iter().filter(|one| one["id"] == format!("jp-c{id}"));
    match (all.next(), all.next()) {
        (Some(one), None) => one.clone(),
        _ => panic!("jp-c{id} is not listed once: {listing:#}"),
    }
}

/// What `jp status` finds wrong, with its exit code.
#[track_caller]
fn problems(work: &Workspace) -> (i32, Vec<Value>) {
    let output = jp(work, &["status", "--json"]);
    let report: Value = serde_json::from_slice(&output.raw).unwrap_or_else(|err| panic!("{err}\n{}", output.told()));
    (output.code, report["problems"].as_array().expect("an array").clone())
}

/// Whether a file with these bytes lies anywhere beneath a directory.
fn holds(dir: &Path, name: &str, bytes: &[u8]) -> bool {
    fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => holds(&path, name, bytes),
            false => entry.file_name() == name && fs::read(&path).is_ok_and(|found| found == bytes),
        }
    })
}

/// Where conversations lie, in the store and in the workspace.
fn roots(work: &Workspace) -> [PathBuf; 2] {
    [work.silo().join("conversations"), work.storage().join("conversations")]
}

/// All conversations as they are now, in both roots.
fn shots(work: &Workspace) -> [Shot; 2] {
    roots(work).map(|root| {
        fs::create_dir_all(&root).expect("made");
        Shot::of(&root)
    })
}

#[track_caller]
fn assert_same(before: &[Shot; 2], work: &Workspace) {
    for (before, after) in before.iter().zip(&shots(work)) {
        before.assert_same(after);
    }
}
