//! Twenty processes at a time fork, edit, move and remove on one store, while others look on. No update is lost, no id is
//! given out twice, no file is ever torn, no lock is ever held twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use jp_tests::{Random, TestEnv, Workspace};
use serde_json::Value;

const WORKERS: u64 = 20;
const ROUNDS: u64 = 6;

/// What one worker is sure of, because `jp` said so.
#[derive(Default)]
struct Done {
    made: Vec<String>,
    removed: BTreeSet<String>,
    titles: BTreeMap<String, String>,
    parents: BTreeMap<String, String>,
    labels: Vec<String>,
    turns: u64,
}

fn jp(workspace: &Workspace, worker: u64, args: &[&str]) -> String {
    let call = workspace.call(args).var("JP_SESSION", format!("worker-{worker}")).var("JP_LOCK_DURATION", "5m");
    call.run().ok().stdout.trim().to_owned()
}

/// One worker's share. Its own forks are its own; the root, the shared conversation and the counter are everybody's.
fn work(workspace: &Workspace, worker: u64, root: &str, shared: &str, counter: &Path) -> Done {
    let mut random = Random::new(worker + 1);
    let mut done = Done::default();
    for round in 0..ROUNDS {
        let fork = jp(workspace, worker, &["c", "fork", root, "--title", &format!("worker {worker} round {round}")]);
        let child = jp(workspace, worker, &["c", "new", "--parent", &fork, "--title", "child"]);
        let label = format!("w{worker}r{round}");
        jp(workspace, worker, &["c", "label", "--id", shared, "add", &label]);
        done.labels.push(label);
        match random.below(4) {
            0 => {
                jp(workspace, worker, &["c", "rm", "--yes", "--cascade", &fork]);
                done.removed.extend([fork.clone(), child.clone()]);
            }
            1 => {
                jp(workspace, worker, &["c", "rm", "--yes", "--promote", &fork]);
                done.removed.insert(fork.clone());
                done.parents.insert(child.clone(), root.to_owned());
            }
            2 => {
                let title = format!("retitled {worker} {round}");
                jp(workspace, worker, &["c", "edit", "--title", &title, &child]);
                done.titles.insert(child.clone(), title);
                done.parents.insert(child.clone(), fork.clone());
            }
            _ => {
                jp(workspace, worker, &["c", "mv", &child, "--parent", shared]);
                done.parents.insert(child.clone(), shared.to_owned());
            }
        }
        done.made.extend([fork, child]);
        // A critical section of our own: the directory shows a second holder, the counter a lost update.
        let script = "mkdir busy || exit 99; n=$(cat n); echo $((n + 1)) > n; rmdir busy";
        let inside = format!("cd '{}' && {{ {script}; }}", counter.display());
        jp(workspace, worker, &["lock", "run", shared, "--", "sh", "-c", &inside]);
        done.turns += 1;
    }
    done
}

/// Reads every managed file over and over; each must be a whole document whenever it is looked at.
fn watch(roots: &[PathBuf], over: &AtomicBool) -> u64 {
    fn visit(dir: &Path, seen: &mut u64) {
        let Ok(entries) = fs::read_dir(dir) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                // What is being put together or taken apart is not anybody's yet, or any more.
                if path.file_name().is_none_or(|name| name != ".tmp") {
                    visit(&path, seen);
                }
            } else if path.extension().is_some_and(|extension| extension == "json")
                && let Ok(bytes) = fs::read(&path)
            {
                let parsed = serde_json::from_slice::<Value>(&bytes);
                assert!(parsed.is_ok(), "{} is torn: {}", path.display(), String::from_utf8_lossy(&bytes));
                *seen += 1;
            }
        }
    }
    let mut seen = 0;
    while !over.load(Ordering::Relaxed) {
        for root in roots {
            visit(root, &mut seen);
        }
    }
    seen
}

#[test]
fn twenty_at_once() {
    let env = TestEnv::in_memory();
    let workspace = env.init_workspace("project", "otvo8");
    let new = |title: &str| workspace.jp(&["c", "new", "--title", title]).ok().stdout.trim().to_owned();
    let (root, shared) = (new("root"), new("shared"));
    let counter = env.root().join("counter");
    fs::create_dir(&counter).unwrap();
    fs::write(counter.join("n"), "0\n").unwrap();
    let roots = [workspace.silo().join("conversations"), workspace.storage().join("conversations")];
    let over = AtomicBool::new(false);

    let (done, seen) = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&roots, &over));
        let lister = scope.spawn(|| {
            let mut times = 0;
            while !over.load(Ordering::Relaxed) {
                let listed = workspace.jp(&["c", "ls", "--json"]).json();
                let broken = listed.as_array().unwrap().iter().find(|entry| !entry["problem"].is_null());
                assert!(broken.is_none(), "{broken:?}");
                times += 1;
            }
            times
        });
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (workspace, root, shared, counter) = (&workspace, &root, &shared, &counter);
                scope.spawn(move || work(workspace, worker, root, shared, counter))
            })
            .collect();
        let done: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        let done: Vec<Done> = done.into_iter().map(|done| done.expect("every worker gets through")).collect();
        assert!(lister.join().unwrap() > 0);
        (done, watcher.join().unwrap())
    });
    assert!(seen > 0, "nobody watched");

    let made: Vec<_> = done.iter().flat_map(|done| &done.made).collect();
    assert_eq!(made.len() as u64, WORKERS * ROUNDS * 2);
    assert_eq!(made.iter().collect::<BTreeSet<_>>().len(), made.len(), "an id was given out twice");

    let removed: BTreeSet<_> = done.iter().flat_map(|done| &done.removed).collect();
    let mut expected: BTreeSet<_> = made.iter().filter(|id| !removed.contains(*id)).map(|id| id.as_str()).collect();
    expected.extend([root.as_str(), shared.as_str()]);
    let listed = workspace.jp(&["c", "ls", "--json"]).json();
    let by_id: BTreeMap<_, _> =
        listed.as_array().unwrap().iter().map(|entry| (entry["id"].as_str().unwrap(), entry)).collect();
    assert_eq!(by_id.keys().copied().collect::<BTreeSet<_>>(), expected);
    for done in &done {
        for (id, title) in &done.titles {
            assert_eq!(by_id[id.as_str()]["title"], title.as_str());
        }
        for (id, parent) in &done.parents {
            assert_eq!(by_id[id.as_str()]["parent"], parent.as_str());
        }
    }
    let labels = by_id[shared.as_str()]["labels"].as_object().unwrap();
    let wanted: BTreeSet<_> = done.iter().flat_map(|done| done.labels.iter().map(String::as_str)).collect();
    assert_eq!(labels.keys().map(String::as_str).collect::<BTreeSet<_>>(), wanted, "a label was lost");

    let turns: u64 = done.iter().map(|done| done.turns).sum();
    assert_eq!(fs::read_to_string(counter.join("n")).unwrap().trim(), turns.to_string(), "a lock was held twice");

    // Both roots agree file by file, and nothing is left over.
    for entry in by_id.values() {
        let id = entry["id"].as_str().unwrap().trim_start_matches("jp-c");
        let stored = fs::read_dir(&roots[0]).unwrap().map(|entry| entry.unwrap().path());
        let stored: Vec<_> =
            stored.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(id)).collect();
        assert_eq!(stored.len(), 1, "{id} has {stored:?}");
        for name in ["metadata.json", "events.json", "base_config.json"] {
            let shown = Path::new(entry["path"].as_str().unwrap()).join(name);
            assert_eq!(fs::read(&shown).unwrap(), fs::read(stored[0].join(name)).unwrap(), "{}", shown.display());
        }
    }
    workspace.jp(&["doctor"]).ok();
    let locks = fs::read_dir(workspace.silo().join("locks")).unwrap().count();
    assert_eq!(locks, 0, "lock files stay behind");
    let leftovers: Vec<_> = fs::read_dir(workspace.silo().join("vfs/tmp")).unwrap().collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}
