//! What stories look at: what a workspace says of its conversations, and what really lies in its two roots. Paths are
//! found by walking the directories, so that the command is not its own witness.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use jp_tests::{Output, TestEnv, Workspace, mtime, set_mtime};
use serde_json::Value;

pub(crate) const SECOND: i64 = 1_000_000_000;
pub(crate) const MANAGED: [&str; 3] = ["metadata.json", "base_config.json", "events.json"];

/// A workspace with nothing in it.
pub(crate) fn workspace() -> Workspace {
    TestEnv::new().init_workspace("main", "otvo8")
}

/// Makes a conversation with this title and returns its id.
#[track_caller]
pub(crate) fn new(workspace: &Workspace, title: &str, more: &[&str]) -> String {
    let args = [&["c", "new", "--title", title], more].concat();
    workspace.jp(&args).line().to_owned()
}

/// Three generations, all shown.
#[track_caller]
pub(crate) fn family(workspace: &Workspace) -> [String; 3] {
    let a = new(workspace, "Grandmother", &[]);
    let b = new(workspace, "Mother", &["--parent", &a]);
    let c = new(workspace, "Daughter", &["--parent", &b]);
    [a, b, c]
}

/// Runs `jp` and asserts that it worked.
#[track_caller]
pub(crate) fn jp(workspace: &Workspace, args: &[&str]) -> Output {
    workspace.jp(args).ok()
}

/// What the listing says of a conversation; archived ones are found too.
#[track_caller]
pub(crate) fn listed(workspace: &Workspace, id: &str) -> Option<Value> {
    let pick = |args: &[&str]| {
        let all = workspace.jp(args).json();
        let mut rows = all.as_array().expect("a listing is an array").iter().filter(|row| row["id"] == id);
        let found = rows.next().cloned();
        assert!(rows.next().is_none(), "{id} is listed twice");
        found
    };
    pick(&["c", "ls", "--json"]).or_else(|| pick(&["c", "ls", "--archived", "--json"]))
}

/// One key of what the listing says.
#[track_caller]
pub(crate) fn says(workspace: &Workspace, id: &str, key: &str) -> Value {
    listed(workspace, id).unwrap_or_else(|| panic!("{id} is not listed"))[key].clone()
}

/// `projected`, `local`, `external`, or `gone`.
#[track_caller]
pub(crate) fn presence(workspace: &Workspace, id: &str) -> String {
    listed(workspace, id).map_or("gone".into(), |row| row["presence"].as_str().expect("a word").to_owned())
}

/// The id as directories spell it.
pub(crate) fn digits(id: &str) -> &str {
    id.trim_start_matches("jp-c")
}

/// The id as files spell it.
pub(crate) fn number(id: &str) -> u64 {
    digits(id).parse().expect("ids are numbers")
}

/// The conversation's directory in the store.
#[track_caller]
pub(crate) fn in_store(workspace: &Workspace, id: &str) -> Option<PathBuf> {
    only(&workspace.silo().join("conversations"), id)
}

/// The conversation's directory in the workspace.
#[track_caller]
pub(crate) fn in_work(workspace: &Workspace, id: &str) -> Option<PathBuf> {
    only(&workspace.storage().join("conversations"), id)
}

/// A file in the store.
#[track_caller]
pub(crate) fn store_file(workspace: &Workspace, id: &str, name: &str) -> PathBuf {
    in_store(workspace, id).unwrap_or_else(|| panic!("{id} is not in the store")).join(name)
}

/// A file in the workspace.
#[track_caller]
pub(crate) fn work_file(workspace: &Workspace, id: &str, name: &str) -> PathBuf {
    in_work(workspace, id).unwrap_or_else(|| panic!("{id} is not in the workspace")).join(name)
}

/// Where a conversation lies in the workspace, as the titles' slugs from the root down.
#[track_caller]
pub(crate) fn nesting(workspace: &Workspace, id: &str) -> Vec<String> {
    let root = workspace.storage().join("conversations");
    let Some(dir) = in_work(workspace, id) else { return Vec::new() };
    let inside = dir.strip_prefix(root).expect("found beneath it").to_str().expect("names are UTF-8");
    let slug = |name: &str| name.split_once('-').map_or(name, |(_, slug)| slug).to_owned();
    inside.split('/').filter(|part| *part != "conversations").map(slug).collect()
}

/// The bytes of the managed files.
#[track_caller]
pub(crate) fn bytes(dir: &Path) -> Vec<Option<Vec<u8>>> {
    MANAGED.iter().map(|name| fs::read(dir.join(name)).ok()).collect()
}

/// Asserts that both roots have the conversation, with the same bytes.
#[track_caller]
pub(crate) fn assert_twins(workspace: &Workspace, id: &str) {
    for name in MANAGED {
        let read = |path: PathBuf| fs::read_to_string(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
        let (store, work) = (read(store_file(workspace, id, name)), read(work_file(workspace, id, name)));
        assert_eq!(store, work, "{name} of {id}");
    }
}

/// The metadata in the store.
#[track_caller]
pub(crate) fn stored(workspace: &Workspace, id: &str) -> Value {
    json(&store_file(workspace, id, "metadata.json"))
}

#[track_caller]
pub(crate) fn json(path: &Path) -> Value {
    let bytes = fs::read(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

/// Changes the text of a file, as a person with an editor does, `later` nanoseconds after it was written.
#[track_caller]
pub(crate) fn rewrite(path: &Path, from: &str, to: &str, later: i64) {
    let text = fs::read_to_string(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    assert!(text.contains(from), "{from:?} is not in {text}");
    let time = mtime(path) + later;
    fs::write(path, text.replace(from, to)).expect("a file can be written again");
    set_mtime(path, time);
}

/// What lost a decision: the conversation it was of and the names of the files kept.
#[track_caller]
pub(crate) fn conflicts(workspace: &Workspace) -> Vec<(String, Vec<String>)> {
    let status = workspace.jp(&["status", "--json"]).json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kept = status["conflicts"].as_array().expect("an array");
    kept.iter()
        .map(|kept| (text(&kept["id"]), kept["files"].as_array().expect("files").iter().map(text).collect()))
        .collect()
}

/// Every copy that was kept of a file, as text.
#[track_caller]
pub(crate) fn kept(workspace: &Workspace, id: &str, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    walk(&workspace.silo().join("vfs/conflicts").join(digits(id)), &mut |path| {
        if path.file_name() == Some(OsStr::new(name)) {
            found.push(fs::read_to_string(path).expect("kept files can be read"));
        }
    });
    found
}

#[track_caller]
fn only(root: &Path, id: &str) -> Option<PathBuf> {
    let mut found = Vec::new();
    walk(root, &mut |path| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if path.is_dir() && name.split('-').next() == Some(digits(id)) {
            found.push(path.to_owned());
        }
    });
    assert!(found.len() < 2, "{id} is there more than once: {found:#?}");
    found.pop()
}

fn walk(dir: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        visit(&path);
        if path.is_dir() && !path.is_symlink() {
            walk(&path, visit);
        }
    }
}
