//! Measures `jp` against plain programs on the same files, in one run and in shuffled order. It judges nothing: it fails only
//! when a measured command does.

mod export;
mod job;
mod listing;
mod options;
mod report;

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::process::ExitCode;

use jp_tests::{Bulk, Layout, Random, TestEnv, pretty};
use serde_json::Value;

use self::job::Group;
use self::options::{Options, USAGE};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let done = match &args[..] {
        [flag, dirs @ ..] if flag == listing::READER => listing::read_all(dirs).map_err(Into::into),
        [flag] if flag == "--help" || flag == "-h" => say(USAGE).map_err(Into::into),
        _ => Options::parse(&args).and_then(|options| run(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            let _ = writeln!(io::stderr(), "bench: {err}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    // An unreadable file is better known before the measuring than after it.
    let earlier: Option<Value> = match &options.compare {
        Some(file) => {
            let bytes = fs::read(file).map_err(|err| format!("cannot read {}: {err}", file.display()))?;
            Some(serde_json::from_slice(&bytes).map_err(|err| format!("{}: {err}", file.display()))?)
        }
        None => None,
    };
    let env = options.dir.as_deref().map_or_else(TestEnv::new, TestEnv::below);
    let work = env.init_workspace("bench", "bench");
    say(&format!("making {} conversations in {}\n", options.size, env.root().display()))?;
    Bulk::new(options.size).events_size(options.events_size).layout(options.layout).write(&work)?;

    let mut random = Random::new(1);
    let mut groups = Vec::new();
    // A table is shown as soon as there is one: measuring everything takes minutes.
    let mut measure = |mut group: Group| -> Result<(), Box<dyn Error>> {
        say(&format!("measuring {}: {} rounds after one that warms the caches\n", group.title, group.rounds))?;
        group.measure(&mut random)?;
        say(&report::table(&group, earlier.as_ref()))?;
        groups.push(group);
        Ok(())
    };
    if options.wants("listing") {
        measure(listing::group(&work, options.rounds)?)?;
    }
    // What the worktree does not show is not exported, so there would be nothing to measure.
    if options.wants("export") && options.layout != Layout::Absent {
        export::prepare(&work)?;
        measure(export::in_step(&work, options.rounds))?;
        measure(export::from_scratch(&work, options.slow_rounds))?;
    }

    let results = report::results(options, &groups);
    if let Some(earlier) = &earlier {
        say(&report::differences(&results, earlier))?;
    }
    if let Some(file) = &options.json {
        fs::write(file, pretty(&results)).map_err(|err| format!("cannot write {}: {err}", file.display()))?;
        say(&format!("written to {}\n", file.display()))?;
    }
    Ok(())
}

fn say(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
