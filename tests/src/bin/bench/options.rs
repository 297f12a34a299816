//! What the bench is asked to measure.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use jp_tests::Layout;

pub(crate) const USAGE: &str = "\
usage: scripts/bench [options]
  --size N         conversations in the store (10000)
  --rounds N       times each command is measured, at least 5 (7)
  --slow-rounds N  times each command is measured that writes everything, at least 3 (3)
  --events-size N  typical bytes of an events.json (20000)
  --layout L       how the workspace shows the store: nested, flat, absent (nested)
  --only WHAT      measure this alone: listing, export
  --dir DIR        make the store below DIR rather than in the temporary directory
  --json FILE      write the results
  --compare FILE   show them beside earlier ones
";

/// The options with their defaults.
pub(crate) struct Options {
    pub(crate) size: usize,
    pub(crate) rounds: usize,
    pub(crate) slow_rounds: usize,
    pub(crate) events_size: usize,
    pub(crate) layout: Layout,
    only: Option<String>,
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
            dir: None,
            json: None,
            compare: None,
        };
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let name = name.to_string_lossy();
            let value = args.next().ok_or_else(|| format!("{name} wants a value\n{USAGE}"))?;
            let number = || value.to_string_lossy().parse::<usize>().map_err(|err| format!("{name}: {err}"));
            match &*name {
                "--size" => options.size = number()?.max(1),
                "--rounds" => options.rounds = number()?.max(5),
                "--slow-rounds" => options.slow_rounds = number()?.max(3),
                "--events-size" => options.events_size = number()?,
                "--layout" => options.layout = layout(value)?,
                "--only" => options.only = Some(part(value)?),
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
        self.only.as_deref().is_none_or(|only| only == part)
    }
}

fn layout(value: &OsStr) -> Result<Layout, String> {
    match value.to_str() {
        Some("nested") => Ok(Layout::Nested),
        Some("flat") => Ok(Layout::Flat),
        Some("absent") => Ok(Layout::Absent),
        _ => Err(format!("unknown layout {}\n{USAGE}", value.display())),
    }
}

fn part(value: &OsStr) -> Result<String, String> {
    match value.to_str() {
        Some(part @ ("listing" | "export")) => Ok(part.to_owned()),
        _ => Err(format!("there is nothing called {} to measure\n{USAGE}", value.display())),
    }
}
