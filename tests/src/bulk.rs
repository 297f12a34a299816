//! Very many conversations, quickly, and the same ones every time. What is in them is plausible, not interesting.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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

/// A store of `count` conversations in a random forest.
#[derive(Clone, Debug)]
pub struct Bulk {
    count: usize,
    seed: u64,
    depth: usize,
    events_size: usize,
    layout: Layout,
}

impl Bulk {
    /// So many conversations, at most 8 deep, `events.json` of about 20 KB with a long tail, in U alone.
    pub fn new(count: usize) -> Self {
        Self { count, seed: 1, depth: 8, events_size: 20_000, layout: Layout::Absent }
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

    /// The typical size of `events.json` in bytes. One in a hundred is between 6 and 30 times as large.
    pub fn events_size(mut self, bytes: usize) -> Self {
        self.events_size = bytes;
        self
    }

    /// Copies everything into W as well.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Writes it all and returns the ids with their parents, in order of creation.
    pub fn write(&self, workspace: &Workspace) -> io::Result<Vec<(u64, Option<u64>)>> {
        let store = workspace.silo().join("conversations");
        let projection = workspace.storage().join("conversations");
        let config = pretty(&base_config());
        let mut random = Random::new(self.seed);
        let mut made: Vec<Made> = Vec::with_capacity(self.count);
        let mut id = 17_000_000_000;
        for _ in 0..self.count {
            id += 1 + random.below(1_000);
            let parent = self.choose_parent(&mut random, &made);
            let title = title(&mut random);
            let name = dirname(id, Some(&title));
            let parent_id = parent.map(|index| made[index].id);
            let metadata = metadata(id, &title, parent_id);
            let events = events(id, self.size(&mut random), &mut random);
            let files: [(&str, &[u8]); 3] = [
                ("metadata.json", metadata.as_bytes()),
                ("base_config.json", &config),
                ("events.json", events.as_bytes()),
            ];
            let place = match (self.layout, parent) {
                (Layout::Nested, Some(index)) => made[index].place.join("conversations").join(&name),
                (Layout::Nested | Layout::Flat | Layout::Absent, _) => projection.join(&name),
            };
            let time = i64::try_from(id).map_err(io::Error::other)? * 100_000_000;
            write_dir(&store.join(&name), &files, time)?;
            if self.layout != Layout::Absent {
                write_dir(&place, &files, time)?;
            }
            let depth = parent.map_or(1, |index| made[index].depth + 1);
            made.push(Made { id, parent: parent_id, depth, place });
        }
        Ok(made.into_iter().map(|one| (one.id, one.parent)).collect())
    }

    /// One in three is a root; the others continue something recent that is not too deep.
    fn choose_parent(&self, random: &mut Random, made: &[Made]) -> Option<usize> {
        if made.is_empty() || random.below(3) == 0 {
            return None;
        }
        let recent = made.len().min(500);
        let index = made.len() - 1 - random.below(recent as u64) as usize;
        (made[index].depth < self.depth).then_some(index)
    }

    fn size(&self, random: &mut Random) -> usize {
        let (from, to) = match random.below(100) {
            0..60 => (25, 100),
            60..90 => (100, 200),
            90..99 => (200, 600),
            _ => (600, 3_000),
        };
        self.events_size * (from + random.below(to - from)) as usize / 100
    }
}

struct Made {
    id: u64,
    parent: Option<u64>,
    depth: usize,
    place: PathBuf,
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

/// Written by hand, because it is written very often. No word needs escaping.
fn metadata(id: u64, title: &str, parent: Option<u64>) -> String {
    let mut text = format!("{{\n  \"title\": \"{title}\",\n  \"last_activated_at\": \"{}\"", native_time(id));
    if let Some(parent) = parent {
        let _ = write!(text, ",\n  \"parent_id\": {parent}");
    }
    text.push_str("\n}\n");
    text
}

fn events(id: u64, size: usize, random: &mut Random) -> String {
    let mut text = String::with_capacity(size + 1_000);
    text.push_str("[\n");
    let mut time = id;
    loop {
        let _ =
            write!(text, "  {{\n    \"timestamp\": \"{}\",\n    \"type\": \"turn_start\"\n  }},\n", native_time(time));
        for (kind, key, longest) in [("chat_request", "content", 40), ("chat_response", "message", 200)] {
            time += 1 + random.below(300);
            let count = 5 + random.below(longest);
            let said = words(random, count);
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
