//! Random operations on the tree, against a model small enough to be obviously right. After each of them the whole tree is
//! what the model says, and so is the store.
//!
//! `JP_VFS_SEEDS` says how many sequences there are to be, `JP_VFS_SEED` which one comes first.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use jp_store::meta::Meta;
use jp_tests::{Random, setting};

use super::*;

const SEEDS: u64 = 24;
const STEPS: usize = 60;
const TITLES: [&str; 6] = ["Über alles", "a b", "日本語", "x/../y", "", "Plain"];
const OWN: [&str; 3] = ["a.md", "b.md", "dir/c.md"];
const SCRATCH: [&str; 2] = ["x.tmp", ".events.json.swp"];
const MANAGED: [&str; 3] = ["metadata.json", "events.json", "base_config.json"];

/// What a conversation is.
#[derive(Clone, Debug, Default)]
struct Known {
    title: String,
    parent: Option<u64>,
    archived: bool,
    shown: bool,
    /// Its metadata to the byte, while nobody but the user has written it.
    metadata: Option<Vec<u8>>,
    events: Vec<u8>,
    config: Vec<u8>,
    /// Saved here and not good enough for the store.
    drafts: BTreeMap<String, Vec<u8>>,
    /// Names that are not shown here.
    hidden: BTreeSet<String>,
    own: BTreeMap<String, Vec<u8>>,
    scratch: BTreeMap<String, Vec<u8>>,
    /// A file of its own has moved away since the real files were last brought in step.
    left: bool,
}

#[derive(Clone, Debug, Default)]
struct Model {
    known: BTreeMap<u64, Known>,
}

impl Model {
    /// The parent in the tree: one that exists, in the same partition.
    fn parent(&self, n: u64) -> Option<u64> {
        let known = &self.known[&n];
        known.parent.filter(|parent| self.known.get(parent).is_some_and(|it| it.archived == known.archived))
    }

    /// It and everything above it.
    fn line(&self, n: u64) -> Vec<u64> {
        std::iter::successors(Some(n), |n| self.parent(*n)).collect()
    }

    /// Whether it names the other above it, across partitions too.
    fn names_above(&self, n: u64, other: u64) -> bool {
        let line = std::iter::successors(Some(n), |n| self.known.get(n).and_then(|known| known.parent));
        line.take(self.known.len() + 1).any(|n| n == other)
    }

    fn subtree(&self, n: u64) -> Vec<u64> {
        self.known.keys().copied().filter(|other| self.line(*other).contains(&n)).collect()
    }

    fn is_visible(&self, n: u64) -> bool {
        self.line(n).iter().all(|n| self.known[n].shown)
    }

    fn name(&self, n: u64) -> String {
        name(n, &self.known[&n].title)
    }

    /// The directory that holds it.
    fn place(&self, n: u64) -> String {
        match self.parent(n) {
            Some(parent) => join(&self.path(parent), "conversations"),
            None if self.known[&n].archived => ".archive".to_owned(),
            None => String::new(),
        }
    }

    fn path(&self, n: u64) -> String {
        join(&self.place(n), &self.name(n))
    }

    /// Everything that is shown: directories with a slash at the end, files with their bytes.
    fn tree(&self) -> BTreeMap<String, Vec<u8>> {
        let mut tree = BTreeMap::new();
        let dir = |tree: &mut BTreeMap<String, Vec<u8>>, path: &str| {
            let mut at = String::new();
            for part in path.split('/') {
                at = join(&at, part);
                tree.insert(format!("{at}/"), Vec::new());
            }
        };
        for (&n, known) in self.known.iter().filter(|(n, _)| self.is_visible(**n)) {
            let path = self.path(n);
            dir(&mut tree, &path);
            for file in MANAGED.into_iter().filter(|file| !known.hidden.contains(*file)) {
                let stored = match file {
                    "metadata.json" => known.metadata.clone().unwrap_or_else(|| known.title.clone().into_bytes()),
                    "events.json" => known.events.clone(),
                    _ => known.config.clone(),
                };
                tree.insert(join(&path, file), known.drafts.get(file).cloned().unwrap_or(stored));
            }
            let own = known.own.iter().filter(|(file, _)| !known.hidden.contains(*file));
            for (file, bytes) in own.chain(&known.scratch) {
                let file = join(&path, file);
                tree.insert(file, bytes.clone());
            }
            if known.own.contains_key("dir/c.md") && !known.hidden.contains("dir") {
                dir(&mut tree, &join(&path, "dir"));
            }
        }
        tree
    }

    /// Hides one conversation, with what was only here.
    fn hide(&mut self, n: u64) {
        let known = self.known.get_mut(&n).expect("known");
        known.shown = false;
        known.hidden.clear();
    }
}

struct Run {
    world: World,
    random: Random,
    model: Model,
    log: Vec<String>,
    next: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
        write_bare_sample(&workspace);
        let memory = if seed.is_multiple_of(2) { Memory::Short } else { Memory::Long };
        let driver = Box::new(InProcess::new(&workspace, Rules::default(), memory));
        let world = World { workspace, driver, which: Which::Mindful };
        let mut model = Model::default();
        for (n, title, parent) in [
            (A, "Anna", None),
            (B, "Berta", Some(A)),
            (C, "Clara", Some(B)),
            (D, "Dora", None),
            (L, "Lena", None),
            (O, "Olga", None),
        ] {
            let own =
                if n == B { BTreeMap::from([("notes.md".to_owned(), b"a note\n".to_vec())]) } else { BTreeMap::new() };
            let known = Known {
                title: title.to_owned(),
                parent,
                archived: n == O,
                shown: n != L,
                metadata: Some(world.bytes(n, "metadata.json")),
                events: world.bytes(n, "events.json"),
                config: world.bytes(n, "base_config.json"),
                own,
                ..Known::default()
            };
            model.known.insert(n, known);
        }
        Self { world, random: Random::new(seed + 1), model, log: vec![format!("seed {seed}")], next: N }
    }

    fn say(&mut self, what: String) {
        self.log.push(what);
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.random.below(of.len() as u64) as usize]
    }

    fn pick(&mut self, among: impl Fn(&Model, u64) -> bool) -> Option<u64> {
        let all: Vec<u64> = self.model.known.keys().copied().filter(|n| among(&self.model, *n)).collect();
        (!all.is_empty()).then(|| all[self.random.below(all.len() as u64) as usize])
    }

    fn known(&mut self, n: u64) -> &mut Known {
        self.model.known.get_mut(&n).expect("known")
    }

    fn fresh_events(&mut self) -> Vec<u8> {
        events(&format!("step {}", self.log.len()))
    }

    fn step(&mut self) {
        let Some(n) = self.pick(Model::is_visible) else { return self.show() };
        match self.random.below(25) {
            0..=2 => self.save_events(n),
            3 => self.save_broken(n),
            4..=5 => self.save_metadata(n),
            6..=8 => self.move_it(n),
            9 => self.retitle(n),
            10 => self.remove(n),
            11..=12 => self.show(),
            13 => self.unlink(n),
            14..=16 => self.own_file(n),
            17 => self.scratch(n),
            18..=19 => self.arrive(n),
            20 => {
                self.say("remount".to_owned());
                self.world.driver.remount();
                self.model.known.values_mut().for_each(|known| known.left = false);
            }
            _ => self.beside(),
        }
    }

    /// In place, in two pieces, or by way of a temporary.
    fn save_events(&mut self, n: u64) {
        let (path, bytes) = (join(&self.model.path(n), "events.json"), self.fresh_events());
        let way = self.random.below(4);
        self.say(format!("save events of {n}, way {way}"));
        let driver = &mut self.world.driver;
        let done = match way {
            0 => driver.write(&path, &bytes),
            1 => driver.write_in_pieces(&path, &bytes, 40),
            2 => driver.save(&path, "events.json.tmp", &bytes),
            _ => driver.save(&path, ".events.json.Ab12Cd", &bytes),
        };
        done.expect("saved");
        let known = self.known(n);
        known.events = bytes;
        known.drafts.remove("events.json");
        known.hidden.remove("events.json");
    }

    fn save_broken(&mut self, n: u64) {
        let file = self.one(&["events.json", "metadata.json"]);
        let path = join(&self.model.path(n), file);
        let bytes = format!("[ broken {}", self.log.len()).into_bytes();
        self.say(format!("save broken {file} of {n}"));
        if self.random.below(2) == 0 {
            self.world.driver.write(&path, &bytes).expect("kept as a draft");
        } else {
            self.world.driver.save(&path, "x.new", &bytes).expect("kept as a draft");
        }
        let known = self.known(n);
        known.drafts.insert(file.to_owned(), bytes);
        known.hidden.remove(file);
    }

    fn save_metadata(&mut self, n: u64) {
        let title = self.one(&TITLES).to_owned();
        let archived = self.model.known[&n].archived;
        let parent = self.pick(|model, other| model.is_visible(other) && model.known[&other].archived == archived);
        let parent = parent.filter(|_| self.random.below(3) > 0);
        let circle = parent.is_some_and(|parent| self.model.line(parent).contains(&n));
        if !circle && parent.is_some_and(|parent| self.model.names_above(parent, n)) {
            // A circle that only closes when something comes out of the archive.
            return;
        }
        let time = "2026-01-01 00:00:00.0";
        let bytes = pretty(&json!({ "title": title, "last_activated_at": time, "parent_id": parent }));
        self.say(format!("save metadata of {n}: {title:?} beneath {parent:?}"));
        self.world.driver.write(&join(&self.model.path(n), "metadata.json"), &bytes).expect("saved or kept");
        let known = self.known(n);
        known.hidden.remove("metadata.json");
        if circle {
            known.drafts.insert("metadata.json".to_owned(), bytes);
        } else {
            known.drafts.remove("metadata.json");
            (known.title, known.parent, known.metadata) = (title, parent, Some(bytes));
        }
    }

    /// To the top, into the archive or out of it, or beneath another.
    fn move_it(&mut self, n: u64) {
        let to = self.pick(|model, other| model.is_visible(other) && !model.line(other).contains(&n));
        let to = to.filter(|_| self.random.below(3) > 0);
        let archived = match to {
            Some(to) => self.model.known[&to].archived,
            None => self.random.below(3) == 0,
        };
        let dir = match to {
            Some(to) => join(&self.model.path(to), "conversations"),
            None if archived => ".archive".to_owned(),
            None => String::new(),
        };
        self.say(format!("move {n} to {dir:?}"));
        let (from, to_path) = (self.model.path(n), join(&dir, &self.model.name(n)));
        let done = self.world.driver.rename(&from, &to_path);
        if to.is_some_and(|to| self.model.names_above(to, n)) {
            assert_eq!(done, Err(libc::EINVAL));
            return;
        }
        done.expect("moved");
        if self.model.known[&n].archived != archived {
            for inner in self.model.subtree(n) {
                let known = self.known(inner);
                (known.archived, known.metadata) = (archived, None);
            }
        }
        // A parent that it has left behind in the other partition stays its parent, as when it is archived by command.
        if self.model.parent(n) != to {
            let known = self.known(n);
            (known.parent, known.metadata) = (to, None);
        }
    }

    fn retitle(&mut self, n: u64) {
        let words = format!("Word {}", self.log.len());
        self.say(format!("rename {n} to {words:?}"));
        let to = join(&self.model.place(n), &format!("{n}-{words}"));
        self.world.driver.rename(&self.model.path(n), &to).expect("renamed");
        let known = self.known(n);
        (known.title, known.metadata) = (words, None);
    }

    fn remove(&mut self, n: u64) {
        if self.model.subtree(n).iter().any(|n| self.model.known[n].left) {
            // Its real file would take it back.
            return;
        }
        self.say(format!("remove {n}"));
        self.world.driver.remove_all(&self.model.path(n)).expect("removed");
        let gone: Vec<u64> = self.model.subtree(n).into_iter().filter(|n| self.model.is_visible(*n)).collect();
        for n in gone {
            self.model.hide(n);
            let known = self.known(n);
            known.drafts.clear();
            known.scratch.clear();
        }
    }

    fn show(&mut self) {
        let near = |model: &Model, n: u64| model.parent(n).is_none_or(|parent| model.is_visible(parent));
        // What never was here is shown by commands alone.
        let Some(n) = self.pick(|model, n| n != L && !model.known[&n].shown && near(model, n)) else { return };
        self.say(format!("make the directory of {n}"));
        self.world.driver.mkdir_and_leave(&self.model.path(n)).expect("shown");
        self.known(n).shown = true;
    }

    fn unlink(&mut self, n: u64) {
        let file = self.one(&MANAGED);
        self.say(format!("unlink {file} of {n}"));
        let hidden = self.model.known[&n].hidden.contains(file);
        let done = self.world.driver.unlink(&join(&self.model.path(n), file));
        assert_eq!(done, if hidden { Err(libc::ENOENT) } else { Ok(()) });
        let known = self.known(n);
        known.drafts.remove(file);
        known.hidden.insert(file.to_owned());
    }

    fn own_file(&mut self, n: u64) {
        let file = self.one(&OWN);
        let path = join(&self.model.path(n), file);
        let there = self.model.known[&n].own.contains_key(file) && !self.model.known[&n].hidden.contains(file);
        match self.random.below(3) {
            0 if there => {
                self.say(format!("unlink {file} of {n}"));
                self.world.driver.unlink(&path).expect("hidden");
                self.known(n).hidden.insert(file.to_owned());
            }
            1 if there && !file.contains('/') => {
                let to = self.pick(Model::is_visible).unwrap_or(n);
                let target = self.one(&["a.md", "b.md"]);
                self.say(format!("rename {file} of {n} to {target} of {to}"));
                self.world.driver.rename(&path, &join(&self.model.path(to), target)).expect("renamed");
                let bytes = self.known(n).own.remove(file).expect("there");
                // A name that something has left is like one that was removed.
                let known = self.known(n);
                known.hidden.insert(file.to_owned());
                known.left = true;
                let known = self.known(to);
                known.own.insert(target.to_owned(), bytes);
                known.hidden.remove(target);
            }
            _ => {
                let bytes = format!("own {}", self.log.len()).into_bytes();
                self.say(format!("write {file} of {n}"));
                if let Some((dir, _)) = file.split_once('/') {
                    let made = self.world.driver.mkdir(&join(&self.model.path(n), dir));
                    assert!(matches!(made, Ok(()) | Err(libc::EEXIST)), "{made:?}");
                }
                self.world.driver.write(&path, &bytes).expect("written");
                let known = self.known(n);
                known.own.insert(file.to_owned(), bytes);
                known.hidden.remove(file);
            }
        }
    }

    fn scratch(&mut self, n: u64) {
        let file = self.one(&SCRATCH);
        let path = join(&self.model.path(n), file);
        if self.known(n).scratch.remove(file).is_some() {
            self.say(format!("remove {file} of {n}"));
            return self.world.driver.unlink(&path).expect("removed");
        }
        self.say(format!("write {file} of {n}"));
        self.world.driver.write(&path, b"scratch").expect("written");
        self.known(n).scratch.insert(file.to_owned(), b"scratch".to_vec());
    }

    fn arrive(&mut self, beneath: u64) {
        let n = self.next;
        self.next += 1;
        let parent = (self.random.below(2) == 0).then_some(beneath);
        let archived = parent.is_some_and(|parent| self.model.known[&parent].archived);
        let (title, list) = (format!("New {n}"), self.fresh_events());
        let known =
            Known { title: title.clone(), parent, archived, shown: true, events: list.clone(), ..Known::default() };
        self.model.known.insert(n, Known { config: b"{}".to_vec(), ..known });
        let path = self.model.path(n);
        self.say(format!("{path} arrives"));
        let driver = &mut self.world.driver;
        driver.mkdir_and_leave(&path).expect("made");
        let mut files = vec![
            ("metadata.json", metadata(&title, None)),
            ("events.json", list),
            ("base_config.json", b"{}".to_vec()),
        ];
        self.random.shuffle(&mut files);
        for (file, bytes) in files {
            driver.write(&join(&path, file), &bytes).expect("written");
        }
        // Archiving puts a stamp on it.
        let stamped = (!archived).then(|| metadata(&title, None));
        self.known(n).metadata = stamped;
    }

    /// Somebody else changes the store.
    fn beside(&mut self) {
        let Some(n) = self.pick(|_, _| true) else { return };
        let (writer, _) = open(&self.world.workspace, true).writer().expect("writable");
        let guard = |n: u64| writer.lock(id(n), &Wait::none()).expect("nobody holds it");
        match self.random.below(6) {
            0 => {
                let bytes = self.fresh_events();
                self.say(format!("events of {n} written in the store"));
                fs::write(self.world.stored(n).join("events.json"), &bytes).expect("written");
                self.known(n).events = bytes;
            }
            1 => {
                let title = self.one(&TITLES);
                self.say(format!("title {title:?} of {n} by another"));
                writer.edit(&guard(n), |meta| meta.set_title(Some(title))).expect("edited");
                let known = self.known(n);
                (known.title, known.metadata) = (title.to_owned(), None);
            }
            2 if !self.model.known[&n].left => {
                self.say(format!("hide {n} by another"));
                writer.note(&[Change::Hide(id(n))]).expect("noted");
                self.model.hide(n);
            }
            3 => {
                self.say(format!("show {n} by another"));
                writer.note(&[Change::Show(id(n))]).expect("noted");
                self.known(n).shown = true;
            }
            4 => {
                let archived = self.model.known[&n].archived;
                self.say(format!("archive or unarchive {n} by another"));
                let done = if archived {
                    writer.unarchive(id(n), &Wait::none())
                } else {
                    writer.archive(id(n), &Wait::none())
                };
                done.expect("moved");
                for inner in self.model.subtree(n) {
                    let known = self.known(inner);
                    (known.archived, known.metadata) = (!archived, None);
                }
            }
            // Of a file that is hidden here and written there, the real copy is somebody's, and is shown.
            2 | 5 if self.model.known[&n].left || self.model.known[&n].hidden.contains("a.md") => {}
            _ => {
                self.say(format!("a note of {n} in the store"));
                let bytes = format!("beside {}", self.log.len()).into_bytes();
                fs::write(self.world.stored(n).join("a.md"), &bytes).expect("written");
                self.known(n).own.insert("a.md".to_owned(), bytes);
            }
        }
        self.world.driver.look();
    }

    fn check(&mut self) {
        let mut shown = BTreeMap::new();
        super::faults::walk(&mut *self.world.driver, "", &mut shown);
        // Metadata that somebody else has written is compared by its title; its parent is where it is.
        for (&n, known) in &self.model.known {
            let path = join(&self.model.path(n), "metadata.json");
            let other = known.metadata.is_none() && !known.drafts.contains_key("metadata.json");
            if let Some(bytes) = shown.get_mut(&path).filter(|_| other) {
                let meta = Meta::parse(bytes).expect("metadata is metadata");
                *bytes = meta.title().unwrap_or_default().as_bytes().to_vec();
            }
        }
        let mut expected = self.model.tree();
        // A directory of one's own may stay when its last file is hidden.
        expected.retain(|path, _| !path.ends_with("/dir/"));
        shown.retain(|path, _| !path.ends_with("/dir/"));
        let differs = |path: &&String| shown.get(*path) != expected.get(*path);
        let wrong: BTreeSet<_> = shown.keys().chain(expected.keys()).filter(differs).collect();
        let told: Vec<_> =
            wrong.iter().map(|path| (path, shown.contains_key(*path), expected.contains_key(*path))).collect();
        assert!(wrong.is_empty(), "path, is it shown, should it be: {told:#?}");
        self.check_store();
    }

    fn check_store(&self) {
        let mut expected = BTreeMap::new();
        for (&n, known) in &self.model.known {
            let dir = PathBuf::from(if known.archived { ".archive" } else { "" }).join(self.model.name(n));
            expected.insert(dir.join("metadata.json"), known.metadata.clone().unwrap_or_default());
            expected.insert(dir.join("events.json"), known.events.clone());
            expected.insert(dir.join("base_config.json"), known.config.clone());
            for (file, bytes) in &known.own {
                expected.insert(dir.join(file), bytes.clone());
            }
        }
        let mut stored = self.world.store();
        for (path, bytes) in &mut stored {
            if path.ends_with("metadata.json") && expected.get(path).is_some_and(Vec::is_empty) {
                bytes.clear();
            }
        }
        let differs = |path: &&PathBuf| stored.get(*path) != expected.get(*path);
        let wrong: BTreeSet<_> = stored.keys().chain(expected.keys()).filter(differs).collect();
        let told: Vec<_> =
            wrong.iter().map(|path| (path, stored.contains_key(*path), expected.contains_key(*path))).collect();
        assert!(wrong.is_empty(), "path, is it stored, should it be: {told:#?}");
    }
}

#[test]
fn the_tree_does_what_the_model_does() {
    let first = setting("JP_VFS_SEED").unwrap_or(0);
    for seed in first..first + setting("JP_VFS_SEEDS").unwrap_or(SEEDS) {
        let mut run = Run::new(seed);
        run.check();
        for _ in 0..STEPS {
            let before = run.log.len();
            let checked = catch_unwind(AssertUnwindSafe(|| {
                run.step();
                run.check();
            }));
            if let Err(panic) = checked {
                let text = panic.downcast_ref::<&str>().map(ToString::to_string);
                let what = panic.downcast_ref::<String>().cloned().or(text).unwrap_or_default();
                panic!("{}\n(the last {} are this step's)\n{what}", run.log.join("\n"), run.log.len() - before);
            }
        }
    }
}
