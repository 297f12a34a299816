//! Runs commands in many worlds, each with one planted thing, and collects the findings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use jp_tests::{Random, User, setting};

use super::commands::{COMMANDS, Cmd, limit, run};
use super::outside::{Change, OTHER_TIME, What, show};
use super::places::{Opened, Place, gather, trace_command};
use super::plant::{Kind, identity, plant};
use super::sandbox::Site;
use super::world::World;

/// How many commands run for each planted thing: of those that access the place, and of those marked `always`.
fn sample(user: User, kind: Kind) -> (usize, usize) {
    match (user, kind.leads_away()) {
        (User::Own, true) => (2, 1),
        (User::Own, false) | (User::Nobody, true) => (1, 1),
        (User::Nobody, false) => (1, 0),
    }
}
/// The number of groups of findings in a failure message.
const SHOWN: usize = 80;
/// The suite stops after this many hanging commands, because each takes its whole time limit.
const HANGS: usize = 60;

/// A violation.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// Place, kind, path, state of the worktree and user.
    pub(super) plant: String,
    pub(super) command: String,
    pub(super) what: Vec<String>,
}

/// One world: what is planted, and the commands to run in it, in order.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) place: Option<(Place, Kind)>,
    /// The worktree has been exported before. Otherwise it has no state in the store, like a fresh clone.
    pub(super) known: bool,
    pub(super) user: User,
    pub(super) commands: Vec<&'static Cmd>,
}

/// All places, traced once per process.
pub(super) fn places() -> &'static [Place] {
    static PLACES: OnceLock<Vec<Place>> = OnceLock::new();
    PLACES.get_or_init(|| {
        let jobs: Vec<(usize, bool)> =
            (0..COMMANDS.len()).flat_map(|number| [(number, true), (number, false)]).collect();
        let opened: Mutex<Vec<(usize, Opened)>> = Mutex::default();
        in_parallel(&jobs, |(number, known)| {
            let found =
                trace_command(*number, *known).unwrap_or_else(|err| panic!("{}: {err}", COMMANDS[*number].name()));
            opened.lock().expect("the lock is not poisoned").push((*number, found));
        });
        gather(&opened.into_inner().expect("the lock is not poisoned")).0
    })
}

/// The worlds for one user. Deterministic for a seed.
pub(super) fn jobs(user: User, seed: u64) -> Vec<Job> {
    let full = setting("JP_HOSTILE_FULL").is_some();
    let only = only();
    let mut random = Random::new(seed);
    let mut jobs = Vec::new();
    for place in places() {
        if only.as_ref().is_some_and(|only| !place.pattern.contains(only.as_str())) {
            continue;
        }
        let mut touching: Vec<usize> = place.commands.iter().copied().collect();
        random.shuffle(&mut touching);
        let mut others: Vec<usize> = (0..COMMANDS.len()).filter(|number| COMMANDS[*number].always).collect();
        random.shuffle(&mut others);
        let kinds = Kind::all();
        let fits = |kind: &Kind| kind.fits(place) && !(kind.is_device() && user == User::Nobody);
        for (turn, kind) in kinds.into_iter().filter(fits).enumerate() {
            // Each kind takes the next few commands, so that the kinds together cover all of them.
            let take = |from: &[usize], count: usize| -> Vec<usize> {
                let count = if full { from.len() } else { count.min(from.len()) };
                (0..count).map(|index| from[(turn * count + index) % from.len()]).collect()
            };
            let (sample, always) = sample(user, kind);
            let chosen: BTreeSet<usize> = take(&touching, sample).into_iter().chain(take(&others, always)).collect();
            let known = random.below(2) == 0;
            let commands = chosen.into_iter().map(|number| &COMMANDS[number]).collect();
            jobs.push(Job { place: Some((place.clone(), kind)), known, user, commands });
        }
    }
    jobs
}

/// Runs all jobs. Returns the findings and the number of commands that ran.
pub(super) fn run_all(jobs: &[Job]) -> (Vec<Finding>, usize) {
    let mut done = Done::default();
    let slow = done.run(jobs, limit());
    // On a busy machine a command can be slow. Only a command that exceeds a longer limit as well counts as hanging.
    let hanging = done.run(&slow, limit() * 2);
    let Done { findings, runs } = done;
    let mut findings = findings.into_inner().expect("the lock is not poisoned");
    if hanging.len() >= HANGS && !is_complete() {
        let what = vec![format!("stopped after {HANGS} hanging commands")];
        findings.push(Finding { plant: "-".to_owned(), command: "-".to_owned(), what });
    }
    findings.sort_by(|a, b| (&a.plant, &a.command).cmp(&(&b.plant, &b.command)));
    (findings, runs.into_inner())
}

#[derive(Default)]
struct Done {
    findings: Mutex<Vec<Finding>>,
    runs: AtomicUsize,
}

impl Done {
    /// Runs jobs in parallel. Returns those with a hanging command. In the first pass their findings are dropped, because
    /// they run again.
    fn run(&mut self, jobs: &[Job], time: Duration) -> Vec<Job> {
        let hanging: Mutex<Vec<Job>> = Mutex::default();
        let this = &*self;
        in_parallel(jobs, |job| {
            if !is_complete() && hanging.lock().expect("the lock is not poisoned").len() >= HANGS {
                return;
            }
            let (mut findings, count, hung) = run_job(job, time).unwrap_or_else(|err| {
                let what = vec![format!("the world is broken, or cannot be built: {err}")];
                (vec![Finding { plant: describe(job), command: "-".to_owned(), what }], 0, false)
            });
            this.runs.fetch_add(count, Ordering::Relaxed);
            if hung {
                hanging.lock().expect("the lock is not poisoned").push(job.clone());
                if time == limit() {
                    return;
                }
            }
            for Finding { plant, command, what } in &findings {
                write_report(&format!("{plant}\n  $ {command}\n    {}\n", what.join("\n    ")));
            }
            this.findings.lock().expect("the lock is not poisoned").append(&mut findings);
        });
        hanging.into_inner().expect("the lock is not poisoned")
    }
}

/// Whether the suite goes on after many hanging commands.
fn is_complete() -> bool {
    setting("JP_HOSTILE_FULL").is_some() || report().is_some()
}

/// Runs one job. Returns the findings, the number of commands that ran, and whether one of them hung.
fn run_job(job: &Job, limit: Duration) -> io::Result<(Vec<Finding>, usize, bool)> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let tag = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut world = World::build(Site::enter()?, job.user, tag)?;
    let (mut findings, mut count) = (Vec::new(), 0);
    if job.known {
        let ended = run(&world, "jp export", limit)?;
        if ended.hung || ended.code > 1 {
            return Err(io::Error::other(format!("jp export: {}", ended.text)));
        }
        world.forget_reads();
    }
    if let Some((place, kind)) = &job.place
        && !plant(&mut world, place, *kind)?
    {
        return Ok((findings, 0, false));
    }
    let planted = job.place.as_ref().map(|(place, kind)| (world.root().join(&place.path), place, *kind));
    let mut before = world.look();
    let mut stamp = planted.as_ref().and_then(|(path, ..)| identity(path));
    for cmd in &job.commands {
        if let Some((path, place, kind)) = &planted
            && !kind.is_odd()
            && identity(path) != stamp
        {
            // A command has replaced what was planted.
            if plant(&mut world, place, *kind).is_err() {
                break;
            }
            stamp = identity(path);
            before = world.look_again(&before);
        }
        let ended = run(&world, cmd.script, limit)?;
        count += 1;
        if ended.hung || cmd.mounts() || world.site.has_new_mounts() {
            world.site.clear(&world.tag);
        }
        let after = world.look_again(&before);
        let mut what = Vec::new();
        if ended.hung {
            what.push("hangs".to_owned());
            what.extend(ended.stuck.iter().map(|process| format!("  {process}")));
            what.push(format!("  output: {:?}", ended.text));
        }
        what.extend(ended.crashed());
        // The control runs must exercise the commands, so there they have to succeed.
        let expected = if cmd.mounts() { 0..=0 } else { 0..=1 };
        if job.place.is_none() && job.commands.len() == 1 && !ended.hung && !expected.contains(&ended.code) {
            what.push(format!("exit code {}: {}", ended.code, ended.text));
        }
        if ended.told {
            what.push("prints the secret".to_owned());
        }
        let leaks = after.leaks.iter().filter(|path| !before.leaks.contains(path));
        what.extend(leaks.map(|path| format!("copies the secret to {}", show(path))));
        let changes = before.diff(&after).into_iter().filter(|change| !is_allowed(cmd, &world, change));
        what.extend(changes.map(|change| change.to_string()));
        if !what.is_empty() {
            world.forget_reads();
            findings.push(Finding { plant: describe(job), command: cmd.name().to_owned(), what });
        }
        if ended.hung {
            return Ok((findings, count, true));
        }
        before = if findings.is_empty() { after } else { world.look_again(&after) };
    }
    Ok((findings, count, false))
}

/// Whether a difference is the purpose of the command.
fn is_allowed(cmd: &Cmd, world: &World, change: &Change) -> bool {
    let path = world.site.base().join(&change.path);
    let Ok(path) = path.strip_prefix(world.root()) else { return false };
    match &change.what {
        What::Created(_) => cmd.may.iter().any(|may| path == Path::new(may)),
        What::Changed(how) if how == OTHER_TIME => cmd.may.iter().any(|may| path == Path::new(may)),
        // That is what it is for: nobody else can read what is in the store.
        What::Changed(how) => {
            cmd.script.contains("doctor --fix") && path.starts_with("data/workspace/main-otvo8") && is_narrowing(how)
        }
        What::Removed => cmd.trashes && is_in_trash(&world.root(), path),
    }
}

/// Whether nothing but a mode changed, and to one that allows less.
fn is_narrowing(how: &str) -> bool {
    let modes = how.strip_prefix("mode ").and_then(|rest| rest.split_once(" is now "));
    let octal = |text: &str| u32::from_str_radix(text, 8).ok();
    modes.and_then(|(old, new)| Some((octal(old)?, octal(new)?))).is_some_and(|(old, new)| new & !(old | 0o600) == 0)
}

/// Whether an entry that was removed from a directory of conversations is in its trash.
fn is_in_trash(root: &Path, path: &Path) -> bool {
    ["main/.jp/conversations", "data/workspace/main-otvo8/conversations"].iter().any(|dir| {
        let inner = path.strip_prefix(dir).ok().and_then(|inner| inner.iter().find(|name| *name != ".archive"));
        inner.is_some_and(|name| fs::symlink_metadata(root.join(dir).join(".trash").join(name)).is_ok())
    })
}

fn describe(job: &Job) -> String {
    let worktree = if job.known { "a known worktree" } else { "a fresh clone" };
    match &job.place {
        Some((place, kind)) => {
            format!("{} <- {kind:?} ({}, {worktree}, {:?})", place.pattern, place.path.display(), job.user)
        }
        None => format!("nothing ({worktree}, {:?})", job.user),
    }
}

/// The failure message. Commands with the same effect are grouped.
pub(super) fn tell(found: &[Finding], seed: u64, runs: usize) -> String {
    let mut groups: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for finding in found {
        let what: Vec<&str> = finding.what.iter().take(6).map(String::as_str).collect();
        let more = finding.what.len() - what.len();
        let more = if more > 0 { format!("\n    and {more} more") } else { String::new() };
        let key = (finding.plant.as_str(), format!("    {}{more}", what.join("\n    ")));
        groups.entry(key).or_default().push(&finding.command);
    }
    let mut text = format!("{} findings in {runs} runs (JP_HOSTILE_SEED={seed})\n", found.len());
    let total = groups.len();
    for ((plant, what), commands) in groups.into_iter().take(SHOWN) {
        let _ = writeln!(text, "{plant}\n  $ {}\n{what}", commands.join("\n  $ "));
    }
    if total > SHOWN {
        let _ = writeln!(text, "and {} more; JP_HOSTILE_REPORT=file writes all of them there", total - SHOWN);
    }
    text
}

/// Appends to the report file, if one is set.
fn write_report(text: &str) {
    let Some(file) = report() else { return };
    // This thread is in a sandbox; the main thread still has the root directory of the machine.
    let file = Path::new("/proc").join(std::process::id().to_string()).join("root").join(file.trim_start_matches('/'));
    let opened = fs::OpenOptions::new().create(true).append(true).open(&file);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.unwrap_or_else(|err| panic!("cannot write {}: {err}", file.display()));
}

/// Calls `work` for each item on a new thread, because a thread cannot leave its sandbox.
fn in_parallel<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    // The threads mostly wait for child processes.
    let workers = thread::available_parallelism().map_or(2, NonZero::get) * 2;
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (next, work) = (&next, &work);
        let workers: Vec<_> = (0..workers)
            .map(|_| {
                scope.spawn(move || {
                    while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                        thread::scope(|scope| scope.spawn(|| work(item)).join().expect("work does not panic"));
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().expect("a worker does not panic");
        }
    });
}

fn only() -> Option<String> {
    text_setting("JP_HOSTILE_ONLY")
}

fn report() -> Option<String> {
    text_setting("JP_HOSTILE_REPORT")
}

fn text_setting(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "whoever runs the tests says how much of them there is to be")]
    std::env::var(name).ok().filter(|text| !text.is_empty())
}
