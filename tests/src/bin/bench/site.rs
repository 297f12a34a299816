//! The directory in which everything is measured: a store, its tree as real files, and worktrees to mount it in.

use std::error::Error;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use jp_tests::{Bulk, Layout, TestEnv, Workspace, pretty};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::mount::is_mounted;
use crate::options::Options;
use crate::say;

/// What says how a site that was kept was made.
const LABEL: &str = "bench.json";

/// A site. It removes its directory unless it is to be kept.
pub(crate) struct Site {
    root: PathBuf,
    keep: bool,
    bulk: Bulk,
    descendants: usize,
    /// The worktree that shows what the store has.
    pub(crate) work: Workspace,
    /// A worktree of the same store that shows nothing.
    pub(crate) bare: Workspace,
}

impl Site {
    /// Makes everything, or finds what an earlier run kept; that one's options count then.
    pub(crate) fn new(options: &mut Options) -> Result<Self, Box<dyn Error>> {
        match options.reuse.clone() {
            Some(root) => {
                let site = Self::found(&root, options)?;
                say(&format!("measuring the {} conversations in {}\n", options.size, root.display()))?;
                Ok(site)
            }
            None => Self::made(options),
        }
    }

    fn made(options: &Options) -> Result<Self, Box<dyn Error>> {
        let parent = options.dir.clone().map_or_else(disk, Ok)?;
        let root = TempDir::with_prefix_in("jp-bench-", &parent)?.keep();
        let site = Self::at(&root, options, options.keep)?;
        say(&format!("making {} conversations in {}\n", options.size, root.display()))?;
        if in_memory(&root) {
            say("this directory is in memory: nothing here says what a disk would\n")?;
        }
        site.bulk.clone().copy(site.real()).write(&site.work)?;
        let label = json!({
            "size": options.size,
            "events_size": options.events_size,
            "layout": options.layout.name(),
        });
        fs::write(root.join(LABEL), pretty(&label))?;
        Ok(site)
    }

    fn found(root: &Path, options: &mut Options) -> Result<Self, Box<dyn Error>> {
        let file = root.join(LABEL);
        let bytes = fs::read(&file).map_err(|err| format!("cannot read {}: {err}", file.display()))?;
        let label: Value = serde_json::from_slice(&bytes)?;
        let number = |key: &str| label[key].as_u64().and_then(|number| usize::try_from(number).ok());
        let layout = label["layout"].as_str().and_then(Layout::named);
        match (number("size"), number("events_size"), layout) {
            (Some(size), Some(events_size), Some(layout)) => {
                (options.size, options.events_size, options.layout) = (size, events_size, layout);
            }
            _ => return Err(format!("{} does not say what was made", file.display()).into()),
        }
        Self::at(root, options, true)
    }

    fn at(root: &Path, options: &Options, keep: bool) -> Result<Self, Box<dyn Error>> {
        let env = TestEnv::within(root)?;
        let descendants = (options.size / 4).min(1_000);
        let bulk = Bulk::new(options.size).events_size(options.events_size).layout(options.layout);
        Ok(Self {
            root: env.root().to_owned(),
            keep,
            bulk: bulk.family(descendants),
            descendants,
            work: env.init_workspace("bench", "bench"),
            bare: env.init_workspace("bare", "bench"),
        })
    }

    /// Where the tree lies as real files that are nothing but files.
    pub(crate) fn real(&self) -> PathBuf {
        self.root.join("real")
    }

    /// A path for whatever a measurement needs.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Where the conversations lie in the tree, in order of creation.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        self.bulk.places()
    }

    /// How many descendants the conversation has that is moved.
    pub(crate) fn descendants(&self) -> usize {
        self.descendants
    }

    /// What `jp mount` is told so that it shows everything.
    pub(crate) fn flags(&self, layout: Layout) -> &'static [&'static str] {
        if layout == Layout::Absent { &["--all"] } else { &[] }
    }

    fn remove(&self) -> io::Result<()> {
        // What is mounted is a window on something else; nothing is removed through it.
        if is_mounted(&self.root) {
            return Err(io::Error::other("something is mounted there"));
        }
        if !self.keep {
            return fs::remove_dir_all(&self.root);
        }
        for dir in [self.root.clone(), self.work.storage()] {
            for entry in fs::read_dir(dir)? {
                let path = entry?.path();
                if path.extension().is_some_and(|extension| extension == "aside") {
                    fs::remove_dir_all(path)?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let told = match self.remove() {
            Ok(()) if self.keep => format!("kept: --reuse {}\n", self.root.display()),
            Ok(()) => return,
            Err(err) => format!("cannot clean up {}: {err}\n", self.root.display()),
        };
        let _ = io::stderr().write_all(told.as_bytes());
    }
}

/// A directory for temporary files that is on a disk, where there is one.
fn disk() -> io::Result<PathBuf> {
    let usual = std::env::temp_dir();
    let other = PathBuf::from("/var/tmp");
    if in_memory(&usual) && other.is_dir() && !in_memory(&other) {
        say(&format!("{} is in memory, so it is {}\n", usual.display(), other.display()))?;
        return Ok(other);
    }
    Ok(usual)
}

fn in_memory(path: &Path) -> bool {
    statfs(path).is_ok_and(|stat| stat.filesystem_type() == TMPFS_MAGIC)
}
