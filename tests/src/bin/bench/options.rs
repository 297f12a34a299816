//! What the bench is asked to measure.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use jp_tests::Layout;

pub(crate) const USAGE: &str = "\
usage: scripts/bench [options]
  --size N         conversations in the store (10000)
  --rounds N       times each thing is measured, at least 3 (7)
  --slow-rounds N  the same for what takes long: writing or reading everything, mounting; at least 3 (3)
  --events-size N  typical bytes of an events.json (20000)
  --layout L       how the workspace shows the store: nested, flat, absent (nested)
  --only LIST      measure these alone: listing, export, commands, mounting, reading, saving, moving, noticing, memory
  --rows LIST      of reading and saving, only what has one of these words in its name
  --no-bindfs      do not compare with bindfs
  --dir DIR        make the store below DIR rather than in the temporary directory
  --keep           leave the store where it is, for --reuse
  --reuse DIR      measure on the store that an earlier run kept, and keep it
  --json FILE      write the results
  --compare FILE   show them beside earlier ones
";

/// Everything that can be measured.
const PARTS: [&str; 9] =
    ["listing", "export", "commands", "mounting", "reading", "saving", "moving", "noticing", "memory"];

/// The options with their defaults.
pub(crate) struct Options {
    pub(crate) size: usize,
    pub(crate) rounds: usize,
    pub(crate) slow_rounds: usize,
    pub(crate) events_size: usize,
    pub(crate) layout: Layout,
    only: Option<Vec<String>>,
    rows: Option<Vec<String>>,
    pub(crate) bindfs: bool,
    pub(crate) keep: bool,
    pub(crate) reuse: Option<PathBuf>,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) json: Option<PathBuf>,
    pub(crate) compare: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(args: &[OsString]) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            size: 10_000,
            rounds: 7,
            slow_rounds: 3,
            events_size: 20_000,
            layout: Layout::Nested,
            only: None,
            rows: None,
            bindfs: true,
            keep: false,
            reuse: None,
            dir: None,
            json: None,
            compare: None,
        };
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let name = name.to_string_lossy();
            match &*name {
                "--keep" => {
                    options.keep = true;
                    continue;
                }
                "--no-bindfs" => {
                    options.bindfs = false;
                    continue;
                }
                _ => {}
            }
            let value = args.next().ok_or_else(|| format!("{name} wants a value\n{USAGE}"))?;
            let number = || value.to_string_lossy().parse::<usize>().map_err(|err| format!("{name}: {err}"));
            match &*name {
                "--size" => options.size = number()?.max(1),
                "--rounds" => options.rounds = number()?.max(3),
                "--slow-rounds" => options.slow_rounds = number()?.max(3),
                "--events-size" => options.events_size = number()?,
                "--layout" => options.layout = layout(value)?,
                "--only" => options.only = Some(parts(value)?),
                "--rows" => options.rows = Some(list(value)),
                "--reuse" => options.reuse = Some(value.into()),
                "--dir" => options.dir = Some(value.into()),
                "--json" => options.json = Some(value.into()),
                "--compare" => options.compare = Some(value.into()),
                _ => return Err(format!("unknown option {name}\n{USAGE}").into()),
            }
        }
        Ok(options)
    }

    /// Whether this is to be measured.
    pub(crate) fn wants(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only.iter().any(|one| one == part))
    }

    /// Whether a row of what is measured is wanted.
    pub(crate) fn wants_row(&self, name: &str) -> bool {
        self.rows.as_deref().is_none_or(|rows| rows.iter().any(|row| name.contains(&**row)))
    }
}

fn layout(value: &OsStr) -> Result<Layout, String> {
    let layout = value.to_str().and_then(Layout::named);
    layout.ok_or_else(|| format!("unknown layout {}\n{USAGE}", value.display()))
}

fn parts(value: &OsStr) -> Result<Vec<String>, String> {
    let parts = list(value);
    match parts.iter().find(|part| !PARTS.contains(&&***part)) {
        Some(unknown) => Err(format!("there is nothing called {unknown} to measure\n{USAGE}")),
        None => Ok(parts),
    }
}

fn list(value: &OsStr) -> Vec<String> {
    value.to_string_lossy().split(',').map(|one| one.trim().to_owned()).collect()
}
