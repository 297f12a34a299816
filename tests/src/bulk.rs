//! Very many conversations, quickly, and the same ones every time. What is in them is plausible, not interesting.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

use crate::env::Workspace;
use crate::sample::{base_config, dirname, native_time, pretty, set_mtime};

/// How W shows what U holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Not at all.
    Absent,
    /// Side by side, as the real tool writes them.
    Flat,
    /// Children below their parents.
    Nested,
}

impl Layout {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Flat => "flat",
            Self::Nested => "nested",
        }
    }

    /// The one that is called so.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Absent, Self::Flat, Self::Nested].into_iter().find(|layout| layout.name() == name)
    }
}

/// A word that about one in a hundred conversations has in its events, and nothing else has.
pub const RARE: &str = "xylophone";

/// A store of `count` conversations in a random forest.
#[derive(Clone, Debug)]
pub struct Bulk {
    count: usize,
    seed: u64,
    depth: usize,
    family: usize,
    events_size: usize,
    layout: Layout,
    copies: Vec<PathBuf>,
}

impl Bulk {
    /// So many conversations, at most 8 deep, `events.json` of about 20 KB with a long tail, in U alone.
    pub fn new(count: usize) -> Self {
        Self { count, seed: 1, depth: 8, family: 0, events_size: 20_000, layout: Layout::Absent, copies: Vec::new() }
    }

    /// Another seed makes another store.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The longest way from a root to a leaf, in conversations.
    pub fn depth(mut self, depth: usize) -> Self {
        self.depth = depth.max(1);
        self
    }

    /// Gives one conversation this many descendants. It is the second one and a child of the first; the third is a root as
    /// the first is, and has a child too.
    pub fn family(mut self, descendants: usize) -> Self {
        self.family = descendants;
        self
    }

    /// The typical size of `events.json` in bytes. One in a hundred is between 6 and 30 times as large, one in a thousand up
    /// to 100 times.
    pub fn events_size(mut self, bytes: usize) -> Self {
        self.events_size = bytes;
        self
    }

    /// Copies everything into W as well.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Copies everything to a directory of no workspace as well, nested.
    pub fn copy(mut self, dir: PathBuf) -> Self {
        self.copies.push(dir);
        self
    }

    /// Writes it all and returns the ids with their parents, in order of creation.
    pub fn write(&self, workspace: &Workspace) -> io::Result<Vec<(u64, Option<u64>)>> {
        let store = workspace.silo().join("conversations");
        let projection = workspace.storage().join("conversations");
        let made = self.plan();
        let config = config();
        let one = |one: &Made| {
            let mut random = Random::new(one.seed);
            let metadata = metadata(one, &mut random);
            let events = events(one.id, one.events_size, &mut random);
            let files: [(&str, &[u8]); 3] = [
                ("metadata.json", metadata.as_bytes()),
                ("base_config.json", &config),
                ("events.json", events.as_bytes()),
            ];
            let time = i64::try_from(one.id).map_err(io::Error::other)? * 100_000_000;
            write_dir(&store.join(&one.name), &files, time)?;
            match self.layout {
                Layout::Nested => write_dir(&projection.join(&one.place), &files, time)?,
                Layout::Flat => write_dir(&projection.join(&one.name), &files, time)?,
                Layout::Absent => {}
            }
            self.copies.iter().try_for_each(|dir| write_dir(&dir.join(&one.place), &files, time))
        };
        let workers = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            let (made, one) = (&made, &one);
            let work = |worker| move || made.iter().skip(worker).step_by(workers).try_for_each(one);
            let working: Vec<_> = (0..workers).map(|worker| scope.spawn(work(worker))).collect();
            working
                .into_iter()
                .try_for_each(|worker| worker.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))))
        })?;
        Ok(made.into_iter().map(|one| (one.id, one.parent)).collect())
    }

    /// Where each conversation lies in a nested tree, in order of creation. Nothing is written.
    pub fn places(&self) -> Vec<PathBuf> {
        self.plan().into_iter().map(|one| one.place).collect()
    }

    /// What there is to write. It is decided in one sequence, so that it is the same however many write it.
    fn plan(&self) -> Vec<Made> {
        let mut random = Random::new(self.seed);
        let mut made: Vec<Made> = Vec::with_capacity(self.count);
        let mut id = 17_000_000_000;
        for _ in 0..self.count {
            id += 1 + random.below(1_000);
            let above = self.choose_parent(&mut random, &made).map(|index| &made[index]);
            let title = title(&mut random);
            let name = dirname(id, Some(&title));
            let one = Made {
                id,
                parent: above.map(|above| above.id),
                depth: above.map_or(1, |above| above.depth + 1),
                place: above.map_or_else(PathBuf::new, |above| above.place.join("conversations")).join(&name),
                events_size: self.size(&mut random),
                seed: random.next_u64(),
                name,
                title,
            };
            made.push(one);
        }
        made
    }

    /// One in three is a root; the others continue something recent that is not too deep.
    fn choose_parent(&self, random: &mut Random, made: &[Made]) -> Option<usize> {
        let first = if self.family > 0 { FAMILY + self.family } else { 0 };
        if made.len() < first {
            return self.choose_in_family(random, made);
        }
        let others = made.len() - first;
        if others == 0 || random.below(3) == 0 {
            return None;
        }
        let recent = others.min(500);
        let index = made.len() - 1 - random.below(recent as u64) as usize;
        (made[index].depth < self.depth).then_some(index)
    }

    fn choose_in_family(&self, random: &mut Random, made: &[Made]) -> Option<usize> {
        match made.len() {
            0 | 2 => None,
            1 => Some(0),
            3 => Some(2),
            count => {
                let index = FAMILY - 1 + random.below((count - FAMILY + 1) as u64) as usize;
                let fits = index >= FAMILY && made[index].depth < self.depth;
                Some(if fits { index } else { 1 })
            }
        }
    }

    fn size(&self, random: &mut Random) -> usize {
        let (from, to) = match random.below(1_000) {
            0..600 => (25, 100),
            600..900 => (100, 200),
            900..990 => (200, 600),
            990..999 => (600, 3_000),
            _ => (3_000, 10_000),
        };
        self.events_size * (from + random.below(to - from)) as usize / 100
    }
}

/// How many there are before the descendants of a family: its head, the parent of that, and another parent with a child.
const FAMILY: usize = 4;

struct Made {
    id: u64,
    parent: Option<u64>,
    depth: usize,
    title: String,
    name: String,
    /// Where it lies in a nested tree.
    place: PathBuf,
    events_size: usize,
    /// What its files are made of.
    seed: u64,
}

/// Numbers that look random and are the same on every machine (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number below `limit`, which is not 0. The bias of the remainder does not matter here.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next_u64() % limit
    }

    /// Brings a slice into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

const WORDS: [&str; 24] = [
    "store",
    "tree",
    "parent",
    "the",
    "lock",
    "rename",
    "a",
    "worktree",
    "projection",
    "with",
    "stamp",
    "draft",
    "größe",
    "and",
    "reconcile",
    "日本語",
    "file",
    "of",
    "session",
    "export",
    "mount",
    "in",
    "cache",
    "naïve",
];

fn words(random: &mut Random, count: u64) -> String {
    let mut text = String::new();
    for index in 0..count {
        if index > 0 {
            text.push(' ');
        }
        text.push_str(WORDS[random.below(WORDS.len() as u64) as usize]);
    }
    text
}

fn title(random: &mut Random) -> String {
    let count = 2 + random.below(5);
    words(random, count)
}

/// About 2 KB, the same for all.
fn config() -> Vec<u8> {
    let mut config = base_config();
    config["assistant"]["system_prompt"] = words(&mut Random::new(0), 300).into();
    pretty(&config)
}

/// About 300 bytes. Written by hand, because it is written very often. No word needs escaping.
fn metadata(one: &Made, random: &mut Random) -> String {
    let time = native_time(one.id);
    let mut text = format!("{{\n  \"title\": \"{}\",\n  \"last_activated_at\": \"{time}\"", one.title);
    if let Some(parent) = one.parent {
        let _ = write!(text, ",\n  \"parent_id\": {parent}");
    }
    let _ = write!(text, ",\n  \"summary\": \"{}\"\n}}\n", words(random, 25));
    text
}

fn events(id: u64, size: usize, random: &mut Random) -> String {
    let mut text = String::with_capacity(size + 1_000);
    text.push_str("[\n");
    let mut time = id;
    let mut rare = random.below(100) == 0;
    loop {
        let _ =
            write!(text, "  {{\n    \"timestamp\": \"{}\",\n    \"type\": \"turn_start\"\n  }},\n", native_time(time));
        for (kind, key, longest) in [("chat_request", "content", 40), ("chat_response", "message", 200)] {
            time += 1 + random.below(300);
            let count = 5 + random.below(longest);
            let mut said = words(random, count);
            if rare {
                let _ = write!(said, " {RARE}");
                rare = false;
            }
            let _ = write!(
                text,
                "  {{\n    \"timestamp\": \"{}\",\n    \"type\": \"{kind}\",\n    \"{key}\": \"{said}\"\n  }},\n",
                native_time(time),
            );
        }
        if text.len() >= size {
            break;
        }
    }
    text.truncate(text.len() - ",\n".len());
    text.push_str("\n]\n");
    text
}

fn write_dir(dir: &Path, files: &[(&str, &[u8])], time: i64) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for (name, bytes) in files {
        let path = dir.join(name);
        fs::write(&path, bytes)?;
        // Copies that agree in content agree in time, as they do after an export.
        set_mtime(&path, time);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::Value;

    use super::*;
    use crate::env::TestEnv;
    use crate::shot::Shot;

    fn files_below(dir: &Path) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(dir) else {
            return Vec::new();
        };
        let paths = entries.map(|entry| entry.expect("listed").path());
        paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn what_it_writes_is_json_in_a_bounded_forest() {
        let env = TestEnv::new();
        let work = env.init_workspace("main", "ab1cd");
        let bulk = Bulk::new(300).events_size(800).layout(Layout::Nested);
        let made = bulk.write(&work).expect("written");
        assert_eq!(made.len(), 300);

        let parents: HashMap<u64, Option<u64>> = made.iter().copied().collect();
        let depth = |id: u64| std::iter::successors(Some(id), |id| parents[id]).count();
        let depths: Vec<usize> = made.iter().map(|(id, _)| depth(*id)).collect();
        assert!(depths.iter().all(|depth| *depth <= 8) && depths.contains(&4), "{depths:?}");

        let (store, projection) = (files_below(&work.silo()), files_below(&work.storage().join("conversations")));
        assert_eq!((store.len(), projection.len()), (900, 900));
        for path in store {
            let bytes = fs::read(&path).expect("read");
            let value: Value = serde_json::from_slice(&bytes).expect("JSON");
            assert_eq!(pretty(&value), bytes, "{} is not in the form on disk", path.display());
        }
    }

    #[test]
    fn files_are_as_large_as_real_ones() {
        let env = TestEnv::new();
        let work = env.init_workspace("main", "ab1cd");
        Bulk::new(100).events_size(200).write(&work).expect("written");
        let median = |name: &str| {
            let files = files_below(&work.silo()).into_iter().filter(|path| path.ends_with(name));
            let mut sizes: Vec<u64> = files.map(|path| fs::metadata(path).expect("written").len()).collect();
            sizes.sort_unstable();
            sizes[sizes.len() / 2]
        };
        let (metadata, config) = (median("metadata.json"), median("base_config.json"));
        assert!((250..350).contains(&metadata) && (1_800..2_300).contains(&config), "{metadata}, {config}");

        let mut events: Vec<usize> = Bulk::new(10_000).plan().iter().map(|one| one.events_size).collect();
        events.sort_unstable();
        let (middle, longest) = (events[5_000], events[9_999]);
        assert!((15_000..20_000).contains(&middle) && (1_000_000..2_000_000).contains(&longest), "{middle}, {longest}");
    }

    #[test]
    fn a_family_has_its_size_and_nobody_else_is_in_it() {
        let env = TestEnv::new();
        let work = env.init_workspace("main", "ab1cd");
        let copy = env.root().join("copy");
        let bulk = Bulk::new(300).events_size(100).layout(Layout::Nested).family(100).copy(copy.clone());
        bulk.write(&work).expect("written");
        let places = bulk.places();
        let [above, head, other, child] = &places[..4] else { panic!("{places:?}") };
        assert!(head.starts_with(above) && child.starts_with(other) && !head.starts_with(other));
        assert_eq!(places.iter().filter(|place| place.starts_with(head) && *place != head).count(), 100);
        assert_eq!(places.iter().filter(|place| place.starts_with(above)).count(), 102);
        assert_eq!(places.iter().filter(|place| place.starts_with(other)).count(), 2);
        assert!(places.iter().all(|place| copy.join(place).join("events.json").is_file()));
        let projection = work.storage().join("conversations");
        assert_eq!(Shot::of(&copy).without_mtimes().diff(&Shot::of(&projection).without_mtimes()), "");
    }

    #[test]
    fn the_same_seed_makes_the_same_store() {
        let shot = |seed| {
            let env = TestEnv::new();
            let work = env.init_workspace("main", "ab1cd");
            Bulk::new(20).seed(seed).events_size(500).layout(Layout::Flat).write(&work).expect("written");
            Shot::of(env.root()).without_mtimes()
        };
        assert_eq!(shot(1).diff(&shot(1)), "");
        assert_ne!(shot(1).diff(&shot(2)), "");
    }
}
