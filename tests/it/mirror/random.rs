//! Random changes on both sides of a mirror, in this process. Whatever happens, nothing that was saved is lost, no
//! conversation leaves the store, and what is in step is left alone.
//!
//! `JP_MIRROR_SEEDS` says how many sequences there are to be, `JP_MIRROR_SEED` which one comes first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use jp_tests::driver::{Driver as _, Mirror};
use jp_tests::{Place, Random, Sample, TestEnv, Workspace, contents, pretty, setting};
use serde_json::{Value, json};

const SEEDS: u64 = 12;
const STEPS: usize = 40;
const FIRST: u64 = 17_528_832_001;
const COUNT: u64 = 6;
const OWN: [&str; 3] = ["a.md", "b.md", "dir/c.md"];

/// A project, and everything that was ever saved in it.
struct Bench {
    workspace: Workspace,
    mirror: Mirror,
    random: Random,
    /// Bytes that somebody saved, by what they are; each is there only once.
    saved: BTreeMap<String, Vec<u8>>,
    /// What was removed since anybody looked.
    removed: BTreeMap<PathBuf, Vec<u8>>,
    number: u64,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
        for n in 0..COUNT {
            let mut sample = Sample::new(FIRST + n * 10).title(&format!("Number {n}"));
            if n % 3 != 0 {
                sample = sample.parent(FIRST + (n - 1) * 10);
            }
            sample.write(&workspace, if n == 4 { Place::User } else { Place::Both });
        }
        let mirror = Mirror::new(&workspace);
        Self {
            workspace,
            mirror,
            random: Random::new(seed),
            saved: BTreeMap::new(),
            removed: BTreeMap::new(),
            number: 0,
        }
    }

    fn work(&self) -> PathBuf {
        self.workspace.storage().join("conversations")
    }

    fn store(&self) -> PathBuf {
        self.workspace.silo().join("conversations")
    }

    /// Every conversation's directory below a root, wherever it lies.
    fn dirs(&self, root: &Path) -> Vec<(u64, PathBuf)> {
        let (mut open, mut found) = (vec![root.to_owned()], Vec::new());
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
                if !path.is_dir() || name == ".tmp" || name == ".trash" {
                    continue;
                }
                let id = name.split('-').next().and_then(|digits| digits.parse().ok());
                found.extend(id.filter(|id| *id >= FIRST).map(|id| (id, path.clone())));
                open.push(path);
            }
        }
        found.sort();
        found
    }

    fn pick(&mut self, from: &[(u64, PathBuf)]) -> Option<PathBuf> {
        let at = self.random.below(from.len().max(1) as u64) as usize;
        from.get(at).map(|(_, dir)| dir.clone())
    }

    /// Bytes that nobody has saved before.
    fn fresh(&mut self, kind: &str) -> String {
        self.number += 1;
        format!("{kind} number {}", self.number)
    }

    fn save(&mut self, path: &Path, what: &str, bytes: Vec<u8>) {
        let before = fs::read(path).ok().or_else(|| self.removed.remove(path));
        fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("made");
        if fs::write(path, &bytes).is_ok() {
            // Whoever writes over something means it.
            self.saved.retain(|_, bytes| Some(&*bytes) != before.as_ref());
            self.saved.insert(what.to_owned(), bytes);
        }
    }

    /// One change on one side; says which.
    fn change(&mut self) -> String {
        let root = if self.random.below(3) == 0 { self.store() } else { self.work() };
        let (dirs, work) = (self.dirs(&root), self.dirs(&self.work()));
        let Some(dir) = self.pick(&dirs) else { return "nothing is there".to_owned() };
        let here = dir.display().to_string();
        match self.random.below(10) {
            0..=2 => {
                let text = self.fresh("events");
                let event = json!([{ "timestamp": "2026-01-01 00:00:00.0", "type": "chat_request", "content": text }]);
                self.save(&dir.join("events.json"), &text, pretty(&event));
                format!("{text} into {here}")
            }
            3 => {
                let title = self.fresh("Title");
                let file = dir.join("metadata.json");
                let Ok(mut meta) = serde_json::from_slice::<Value>(&fs::read(&file).unwrap_or_default()) else {
                    return "no metadata to edit".to_owned();
                };
                meta["title"] = json!(title);
                fs::write(&file, pretty(&meta)).expect("written");
                format!("{title} into {here}")
            }
            4 | 5 => {
                let (text, name) = (self.fresh("own"), OWN[self.random.below(3) as usize]);
                self.save(&dir.join(name), &text, text.clone().into_bytes());
                format!("{text} into {here}/{name}")
            }
            6 => {
                let name = OWN[self.random.below(3) as usize];
                // What is removed from the store by hand is gone if nobody else has it, and nobody's fault.
                let file = self.pick(&work).map(|dir| dir.join(name));
                let Some((file, bytes)) = file.and_then(|file| Some((file.clone(), fs::read(file).ok()?))) else {
                    return "nothing to remove".to_owned();
                };
                fs::remove_file(&file).expect("removed");
                let told = format!("removed {}", file.display());
                self.removed.insert(file, bytes);
                told
            }
            7 => {
                let (Some(from), Some(to)) = (self.pick(&work), self.pick(&work)) else { return "nowhere".to_owned() };
                let to = if self.random.below(3) == 0 { self.work() } else { to.join("conversations") };
                let to = to.join(from.file_name().expect("a conversation has a name"));
                if to.starts_with(&from) || to.exists() {
                    return "no such move".to_owned();
                }
                fs::create_dir_all(to.parent().expect("it lies in one")).expect("made");
                fs::rename(&from, &to).expect("moved");
                format!("moved {} to {}", from.display(), to.display())
            }
            8 => {
                let Some(dir) = self.pick(&work) else { return "nothing to hide".to_owned() };
                fs::remove_dir_all(&dir).expect("removed");
                format!("removed {}", dir.display())
            }
            _ => {
                let Some(dir) = self.pick(&work) else { return "nothing to break".to_owned() };
                fs::write(dir.join("metadata.json"), "{ broken").expect("written");
                format!("broke {}", dir.display())
            }
        }
    }

    /// Everything that can be found anywhere.
    fn everything(&self) -> BTreeSet<Vec<u8>> {
        let places = [self.store(), self.work(), self.workspace.silo().join("vfs/conflicts")];
        places.iter().flat_map(|place| contents(place).into_values()).collect()
    }

    fn check(&mut self) {
        self.removed.clear();
        self.mirror.look();
        let done = self.mirror.last().clone();
        assert!(done.busy.is_empty(), "nobody holds anything: {done:#?}");
        self.mirror.look();
        let again = self.mirror.last().clone();
        assert!(again.steps.is_empty(), "what is in step is left alone: {:#?}\nafter {:#?}", again.steps, done.steps);
        assert_eq!(again.held.len(), done.held.len(), "and so is what is held: {again:#?} after {done:#?}");
        let stored: BTreeSet<u64> = self.dirs(&self.store()).into_iter().map(|(id, _)| id).collect();
        assert_eq!(stored.len() as u64, COUNT, "every conversation is in the store: {stored:?}");
        // Both have the same of everything that both have and that is not held.
        let held: Vec<String> = done.held.iter().filter_map(|held| held.id).map(|id| id.to_string()).collect();
        let store: BTreeMap<u64, PathBuf> = self.dirs(&self.store()).into_iter().collect();
        for (id, dir) in self.dirs(&self.work()) {
            for name in ["metadata.json", "events.json"].iter().filter(|_| !held.contains(&format!("jp-c{id}"))) {
                let (here, there) = (fs::read(dir.join(name)).ok(), fs::read(store[&id].join(name)).ok());
                assert_eq!(here, there, "{name} of {id}");
            }
        }
    }
}

fn run(seed: u64) {
    let mut bench = Bench::new(seed);
    let mut story = Vec::new();
    for _ in 0..STEPS {
        // Several things may happen before anybody looks; what is overwritten meanwhile was never seen.
        for _ in 0..=bench.random.below(2) {
            story.push(bench.change());
            bench.saved.retain({
                let everything = bench.everything();
                move |_, bytes| everything.contains(bytes)
            });
        }
        let before = bench.saved.clone();
        let checked = catch_unwind(AssertUnwindSafe(|| {
            bench.check();
            let everything = bench.everything();
            for (what, bytes) in &before {
                assert!(everything.contains(bytes), "{what} is lost");
            }
        }));
        if let Err(panic) = checked {
            let last: Vec<_> = story.iter().rev().take(8).rev().collect();
            eprintln!("seed {seed}, after {last:#?}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn nothing_is_lost_and_it_comes_to_rest() {
    let first = setting("JP_MIRROR_SEED").unwrap_or(0);
    for seed in first..first + setting("JP_MIRROR_SEEDS").unwrap_or(SEEDS) {
        run(seed);
    }
}
