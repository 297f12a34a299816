//! Measures `jp` against plain programs on the same files, in one run and in shuffled order. It judges nothing: it fails only
//! when a measured command does.

mod caches;
mod commands;
mod export;
mod interrupt;
mod job;
mod listing;
mod memory;
mod mount;
mod mounting;
mod moving;
mod noticing;
mod options;
mod readers;
mod reading;
mod report;
mod repository;
mod samples;
mod saving;
mod sheet;
mod site;
mod targets;

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::process::ExitCode;

use jp_tests::{Layout, Random, pretty};
use serde_json::Value;

use self::job::Group;
use self::memory::Memory;
use self::mount::{Bindfs, Mount};
use self::options::{Options, USAGE};
use self::sheet::Sheet;
use self::site::Site;
use self::targets::{BINDFS, MOUNT, REAL, Target};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let done = match &args[..] {
        [flag, dirs @ ..] if flag == listing::READER => listing::read_all(dirs).map_err(Into::into),
        [flag, dir] if flag == readers::READERS => read_tree(dir).map_err(Into::into),
        [flag] if flag == "--help" || flag == "-h" => say(USAGE).map_err(Into::into),
        _ => Options::parse(&args).and_then(|mut options| run(&mut options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            let _ = writeln!(io::stderr(), "bench: {err}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &mut Options) -> Result<(), Box<dyn Error>> {
    interrupt::listen()?;
    // An unreadable file is better known before the measuring than after it.
    let earlier: Option<Value> = match &options.compare {
        Some(file) => {
            let bytes = fs::read(file).map_err(|err| format!("cannot read {}: {err}", file.display()))?;
            Some(serde_json::from_slice(&bytes).map_err(|err| format!("{}: {err}", file.display()))?)
        }
        None => None,
    };
    let site = Site::new(options)?;
    let mut bench = Bench { options, site: &site, earlier, random: Random::new(1), groups: vec![], sheets: vec![] };
    bench.unmounted()?;
    bench.mounted()?;
    bench.report()
}

/// What is measured where, and what came of it so far.
struct Bench<'a> {
    options: &'a Options,
    site: &'a Site,
    earlier: Option<Value>,
    random: Random,
    groups: Vec<Group>,
    sheets: Vec<Sheet>,
}

impl Bench<'_> {
    /// What is measured of real files and of the store, and mounts for their own sake.
    fn unmounted(&mut self) -> Result<(), Box<dyn Error>> {
        let (options, work) = (self.options, &self.site.work);
        if options.wants("listing") {
            self.group(listing::group(work, options.rounds)?)?;
        }
        // What the worktree does not show is not exported, so there would be nothing to measure.
        if options.layout != Layout::Absent {
            export::prepare(work)?;
            if options.wants("export") {
                self.group(export::in_step(work, options.rounds))?;
                self.group(export::from_scratch(work, options.slow_rounds))?;
            }
        }
        if options.wants("commands") {
            self.begin("commands", options.rounds)?;
            let mut groups = commands::groups(work, options);
            groups.iter_mut().try_for_each(|group| group.measure(&mut self.random))?;
            self.show(commands::sheet(&groups))?;
        }
        if options.wants("mounting") {
            self.begin("mounting", options.slow_rounds)?;
            let sheet = mounting::measure(self.site, options, &mut self.random)?;
            self.show(sheet)?;
        }
        Ok(())
    }

    /// What is measured of one mount, from its beginning to its end.
    fn mounted(&mut self) -> Result<(), Box<dyn Error>> {
        let (options, site) = (self.options, self.site);
        if !["reading", "saving", "moving", "noticing", "memory"].into_iter().any(|part| options.wants(part)) {
            return Ok(());
        }
        let mount = Mount::begin(&site.work, site.flags(options.layout))?;
        let mut memory = Memory::new(options.size);
        memory.note("memory, just mounted", &mount)?;
        let mut targets =
            vec![Target { name: REAL, root: site.real() }, Target { name: MOUNT, root: mount.point.clone() }];
        let names = targets::compare(&targets)?;
        say(&format!("the mount has the {names} names and sizes of the real files, and is {}\n", mount.manner()?))?;
        if options.wants("reading") {
            self.begin("reading", options.slow_rounds)?;
            if !caches::can_drop() {
                say("only root can make the system forget: there is no cold and no second pass\n")?;
            }
            let bindfs = site.scratch("bindfs");
            let bindfs = if options.bindfs { Bindfs::begin(&site.work, &site.real(), &bindfs)? } else { None };
            targets.extend(bindfs.iter().map(|bindfs| Target { name: BINDFS, root: bindfs.point.clone() }));
            for sheet in reading::measure(site, options, &targets, &mount, &mut self.random)? {
                self.show(sheet)?;
            }
            targets.retain(|target| target.name != BINDFS);
        } else if options.wants("memory") {
            readers::read_tree(&mount.point)?;
        }
        memory.note("memory, after reading", &mount)?;
        if options.wants("saving") {
            self.begin("saving", options.rounds)?;
            let sheet = saving::measure(site, options, &targets, &mut self.random)?;
            self.show(sheet)?;
            memory.note("memory, after saving", &mount)?;
        }
        if options.wants("moving") {
            self.begin("moving", 1)?;
            let sheet = moving::measure(site, &targets, &mut self.random)?;
            self.show(sheet)?;
        } else if options.wants("memory") {
            moving::stir(site, &targets, &mut self.random)?;
        }
        memory.note("memory, after moving", &mount)?;
        if options.wants("noticing") {
            self.begin("noticing", 1)?;
            let sheet = noticing::measure(site, &mount.point)?;
            self.show(sheet)?;
        }
        if options.wants("memory") {
            self.show(memory.sheet)?;
        }
        mount.end()
    }

    /// Runs the commands of a group. A table is shown as soon as there is one: measuring everything takes long.
    fn group(&mut self, mut group: Group) -> Result<(), Box<dyn Error>> {
        self.begin(group.title, group.rounds)?;
        group.measure(&mut self.random)?;
        say(&report::table(&group, self.earlier.as_ref()))?;
        self.groups.push(group);
        Ok(())
    }

    fn begin(&self, what: &str, rounds: usize) -> io::Result<()> {
        let rounds = if rounds == 1 { String::new() } else { format!(", {rounds} rounds") };
        say(&format!("measuring {what}{rounds}\n"))
    }

    fn show(&mut self, sheet: Sheet) -> io::Result<()> {
        say(&sheet.table(self.earlier.as_ref()))?;
        self.sheets.push(sheet);
        Ok(())
    }

    fn report(&self) -> Result<(), Box<dyn Error>> {
        let results = report::results(self.options, &self.groups, &self.sheets);
        if let Some(earlier) = &self.earlier {
            say(&report::differences(&results, earlier))?;
        }
        if let Some(file) = &self.options.json {
            fs::write(file, pretty(&results)).map_err(|err| format!("cannot write {}: {err}", file.display()))?;
            say(&format!("written to {}\n", file.display()))?;
        }
        Ok(())
    }
}

fn read_tree(dir: &OsString) -> io::Result<()> {
    readers::read_tree(dir.as_ref()).and_then(|total| say(&format!("{total}\n")))
}

fn say(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
