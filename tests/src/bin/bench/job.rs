//! A command that is measured, and a group of those that are measured side by side.

use std::error::Error;
use std::io;
use std::process::{Command, Stdio};

use jp_tests::Random;

use crate::interrupt;
use crate::samples::{Samples, timed};

/// What happens before each run of a command, outside of the measured time.
pub(crate) type Before = Box<dyn Fn() -> io::Result<()>>;

/// A command and the times it took.
pub(crate) struct Job {
    pub(crate) name: &'static str,
    command: Command,
    before: Option<Before>,
    samples: Samples,
}

/// Commands whose times are compared with each other.
pub(crate) struct Group {
    pub(crate) title: &'static str,
    /// The commands that the others are multiples of: the name, the column's head, the key of the ratio.
    pub(crate) bases: &'static [(&'static str, &'static str, &'static str)],
    pub(crate) jobs: Vec<Job>,
    pub(crate) rounds: usize,
    /// Whether everything is brought to disk before each run, so that none pays for what another one wrote.
    pub(crate) synced: bool,
}

impl Job {
    pub(crate) fn new(name: &'static str, command: Command) -> Self {
        Self { name, command, before: None, samples: Samples::new() }
    }

    /// Does something before each run.
    pub(crate) fn before(mut self, before: Before) -> Self {
        self.before = Some(before);
        self
    }

    pub(crate) fn median(&self) -> f64 {
        self.samples.median()
    }

    pub(crate) fn least(&self) -> f64 {
        self.samples.least()
    }

    pub(crate) fn most(&self) -> f64 {
        self.samples.most()
    }

    fn run(&mut self, synced: bool) -> Result<f64, Box<dyn Error>> {
        interrupt::check()?;
        if let Some(before) = &self.before {
            before().map_err(|err| format!("before {}: {err}", self.name))?;
        }
        if synced {
            nix::unistd::sync();
        }
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let (millis, status) =
            timed(|| self.command.status()).map_err(|err| format!("cannot run {}: {err}", self.name))?;
        if !status.success() {
            return Err(format!("{}: {status}", self.name).into());
        }
        Ok(millis)
    }
}

impl Group {
    /// Runs every command once to warm the caches, then so many times to measure it.
    pub(crate) fn measure(&mut self, random: &mut Random) -> Result<(), Box<dyn Error>> {
        for round in 0..=self.rounds {
            // What runs after what matters, so no job always has the same one before it.
            random.shuffle(&mut self.jobs);
            for job in &mut self.jobs {
                let millis = job.run(self.synced)?;
                if round > 0 {
                    job.samples.add(millis);
                }
            }
        }
        // The order of the table is that of the names, bases first, not that of the last shuffle.
        let place = |name: &str| self.bases.iter().position(|(base, ..)| *base == name).unwrap_or(self.bases.len());
        self.jobs.sort_by_key(|job| (place(job.name), job.name));
        Ok(())
    }

    /// The median of a job by its name.
    pub(crate) fn median(&self, name: &str) -> f64 {
        self.jobs.iter().find(|job| job.name == name).map_or(f64::NAN, Job::median)
    }
}
