//! Programs that read the whole tree: on the real files, on the mount, and on `bindfs`.

use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jp_tests::{RARE, Random};

use crate::caches;
use crate::interrupt;
use crate::mount::{Mount, checked};
use crate::options::Options;
use crate::readers::READERS;
use crate::repository::Repository;
use crate::samples::{Samples, timed};
use crate::say;
use crate::sheet::{Column, Figure, Sheet, Unit};
use crate::site::Site;
use crate::targets::{BINDFS, MOUNT, REAL, Target};

/// What is to be measured: cold, the second pass, and once it is settled, all as multiples of the real files.
const WORKS: [(&str, [f64; 3]); 6] = [
    ("find", [1.4, 5.0, 1.2]),
    ("ls -lR", [1.4, 3.2, 1.2]),
    ("grep -r", [1.9, 7.5, 1.5]),
    ("rg -j4", [2.0, 2.0, 1.3]),
    ("4 readers", [1.9, 2.6, 1.3]),
    ("git status", [4.6, 1.6, 1.3]),
];

/// How many times faster than `bindfs` it is to be in steady state.
const AHEAD: f64 = 5.0;

/// How many passes there are after the second one, of which the middle one counts. `bindfs` takes long, and never settles.
const STEADY: usize = 3;
const STEADY_BINDFS: usize = 1;

const RATIOS: [Column; 5] = [
    Column { head: "cold ÷ real", key: "cold_to_real", unit: Unit::Ratio },
    Column { head: "second ÷ real", key: "second_to_real", unit: Unit::Ratio },
    Column { head: "steady ÷ real", key: "steady_to_real", unit: Unit::Ratio },
    Column { head: "bindfs ÷ mount, cold", key: "bindfs_to_mount_cold", unit: Unit::Ratio },
    Column { head: "bindfs ÷ mount, steady", key: "bindfs_to_mount_steady", unit: Unit::Ratio },
];

const TIMES: [Column; 9] = [
    Column { head: "real: cold", key: "real_cold_ms", unit: Unit::Millis },
    Column { head: "second", key: "real_second_ms", unit: Unit::Millis },
    Column { head: "steady", key: "real_steady_ms", unit: Unit::Millis },
    Column { head: "mount: cold", key: "mount_cold_ms", unit: Unit::Millis },
    Column { head: "second", key: "mount_second_ms", unit: Unit::Millis },
    Column { head: "steady", key: "mount_steady_ms", unit: Unit::Millis },
    Column { head: "bindfs: cold", key: "bindfs_cold_ms", unit: Unit::Millis },
    Column { head: "second", key: "bindfs_second_ms", unit: Unit::Millis },
    Column { head: "steady", key: "bindfs_steady_ms", unit: Unit::Millis },
];

const REQUESTS: [Column; 3] = [
    Column { head: "cold", key: "requests_cold", unit: Unit::Count },
    Column { head: "second", key: "requests_second", unit: Unit::Count },
    Column { head: "steady", key: "requests_steady", unit: Unit::Count },
];

/// The times of one program on one target, and how many requests each pass made of the mount.
#[derive(Clone, Default)]
struct Passes {
    cold: Samples,
    second: Samples,
    steady: Samples,
    requests: [Samples; 3],
}

/// Measures every program on every target.
pub(crate) fn measure(
    site: &Site,
    options: &Options,
    targets: &[Target],
    mount: &Mount,
    random: &mut Random,
) -> Result<[Sheet; 3], Box<dyn Error>> {
    let wanted = |name: &str| options.wants_row(name);
    let repository = if wanted("git status") { Some(Repository::new(site, targets)?) } else { None };
    let programs = Programs { site, repository, own: std::env::current_exe()? };
    let empty = site.scratch("empty");
    std::fs::create_dir_all(&empty)?;
    let mut ratios = Sheet::new("reading", &RATIOS);
    let mut times = Sheet::new("reading, ms", &TIMES);
    let mut requests = Sheet::new("requests of the mount", &REQUESTS);
    for (name, limits) in WORKS.into_iter().filter(|(name, _)| wanted(name)) {
        programs.same(name, targets)?;
        let mut passes: Vec<(&Target, Passes)> = targets.iter().map(|target| (target, Passes::default())).collect();
        for _ in 0..options.slow_rounds {
            random.shuffle(&mut passes);
            for (target, passes) in &mut passes {
                passes
                    .add(|| programs.on(name, target), target, mount, &empty)
                    .map_err(|err| format!("{name} on {}: {err}", target.name))?;
            }
        }
        let of = |target: &str| {
            let found = passes.iter().find(|(at, _)| at.name == target);
            found.map_or([f64::NAN; 3], |(_, passes)| passes.medians())
        };
        let (real, mount, bindfs) = (of(REAL), of(MOUNT), of(BINDFS));
        // Told at once: at a hundred thousand conversations the last row comes an hour after the first.
        let [cold, second, steady] = [0, 1, 2].map(|at| mount[at] / real[at]);
        say(&format!("{name}: {cold:.2} cold, {second:.2} second, {steady:.2} steady\n"))?;
        let passes_and_limits = [cold, second, steady].into_iter().zip(limits);
        let mut figures: Vec<Figure> = passes_and_limits.map(|(ratio, limit)| Figure::at_most(ratio, limit)).collect();
        figures.push(Figure::at_least(bindfs[0] / mount[0], 1.0));
        figures.push(Figure::at_least(bindfs[2] / mount[2], AHEAD));
        ratios.row(name, figures);
        times.row(name, [real, mount, bindfs].concat().into_iter().map(Figure::from).collect());
        let asked = passes.iter().find(|(at, _)| at.name == MOUNT);
        let asked = asked.map_or([f64::NAN; 3], |(_, passes)| passes.requests.each_ref().map(Samples::median));
        requests.row(name, asked.into_iter().map(Figure::from).collect());
    }
    Ok([ratios, times, requests])
}

impl Passes {
    /// One round: after everything was forgotten, after that, and from then on.
    fn add(
        &mut self,
        command: impl Fn() -> Command,
        target: &Target,
        mount: &Mount,
        empty: &Path,
    ) -> Result<(), Box<dyn Error>> {
        let cold = caches::can_drop();
        if cold {
            caches::drop_all()?;
            // The program itself is not what is measured.
            let mut version = command();
            version.current_dir(empty).env_remove("GIT_DIR").arg("--version");
            let _ = version.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
        let start = mount.answers()?;
        let first = run(command())?;
        let after_first = mount.answers()?;
        let second = run(command())?;
        let after_second = mount.answers()?;
        if cold {
            self.cold.add(first);
            self.second.add(second);
            self.requests[0].add(after_first - start);
            self.requests[1].add(after_second - after_first);
        }
        let passes = if target.name == BINDFS { STEADY_BINDFS } else { STEADY };
        let mut steady = Samples::default();
        for _ in 0..passes {
            steady.add(run(command())?);
        }
        self.steady.add(steady.median());
        self.requests[2].add((mount.answers()? - after_second) / passes as f64);
        Ok(())
    }

    fn medians(&self) -> [f64; 3] {
        [self.cold.median(), self.second.median(), self.steady.median()]
    }
}

/// What the programs need besides a target.
struct Programs<'a> {
    site: &'a Site,
    repository: Option<Repository>,
    own: PathBuf,
}

impl Programs<'_> {
    /// A program on a target. It is run within it, so that it says the same wherever that is.
    fn on(&self, name: &str, target: &Target) -> Command {
        let program = |program: &OsStr, args: &[&str]| {
            let mut command = self.site.work.env().command(program, &target.root);
            command.args(args);
            command
        };
        match (name, &self.repository) {
            ("find", _) => program("find".as_ref(), &["."]),
            ("ls -lR", _) => program("ls".as_ref(), &["-lR", "."]),
            ("grep -r", _) => program("grep".as_ref(), &["-r", RARE, "."]),
            ("rg -j4", _) => program("rg".as_ref(), &["-uu", "-j4", RARE, "."]),
            ("git status", Some(repository)) => repository.status(target),
            _ => program(self.own.as_os_str(), &[READERS, "."]),
        }
    }

    /// Fails unless a program says as much on every target.
    fn same(&self, name: &str, targets: &[Target]) -> Result<(), Box<dyn Error>> {
        let mut counts = Vec::new();
        for target in targets {
            interrupt::check()?;
            let output = checked(&mut self.on(name, target))?;
            counts.push(output.stdout.iter().filter(|byte| **byte == b'\n').count());
        }
        // Nothing changed, so git has nothing to say; the others have.
        let expected = if name == "git status" { counts.iter().all(|count| *count == 0) } else { counts[0] > 0 };
        if expected && counts.iter().all(|count| *count == counts[0]) {
            return Ok(());
        }
        Err(format!("{name} says {counts:?} lines on {:?}", targets.iter().map(|one| one.name).collect::<Vec<_>>())
            .into())
    }
}

fn run(mut command: Command) -> Result<f64, Box<dyn Error>> {
    interrupt::check()?;
    let (millis, status) = timed(|| command.stdin(Stdio::null()).stdout(Stdio::null()).status())?;
    if status.success() { Ok(millis) } else { Err(status.to_string().into()) }
}
