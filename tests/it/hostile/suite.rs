//! Many worlds with something planted in each, a few commands in every one, and all that was found.

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

use jp_tests::{Random, User, setting};

use super::commands::{COMMANDS, Cmd, run};
use super::outside::show;
use super::places::{Opened, Place, gather, trace_command};
use super::plant::{Kind, identity, plant};
use super::sandbox::Site;
use super::world::World;

/// How many commands run for each thing that is planted, besides those that always do.
const SAMPLE: usize = 4;
/// And how many of those that always do.
const OTHERS: usize = 2;
/// A failure names this many groups of findings.
const SHOWN: usize = 80;
/// After so many commands that hang, the rest is not run: each takes its whole limit.
const HANGS: usize = 60;

/// Something that should not have happened.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// Where what was planted, and in which kind of worktree.
    pub(super) plant: String,
    pub(super) command: String,
    pub(super) what: Vec<String>,
}

/// One world: what to plant, and the commands to run.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) place: Option<(Place, Kind)>,
    /// The worktree has been exported before; otherwise it is as a clone is.
    pub(super) known: bool,
    pub(super) user: User,
    pub(super) commands: Vec<&'static Cmd>,
}

/// The places to plant at, found once.
pub(super) fn places() -> &'static [Place] {
    static PLACES: OnceLock<Vec<Place>> = OnceLock::new();
    PLACES.get_or_init(|| {
        let jobs: Vec<(usize, bool)> =
            (0..COMMANDS.len()).flat_map(|number| [(number, true), (number, false)]).collect();
        let opened: Mutex<Vec<(usize, Opened)>> = Mutex::default();
        in_parallel(&jobs, |(number, known)| {
            let found =
                trace_command(*number, *known).unwrap_or_else(|err| panic!("{}: {err}", COMMANDS[*number].name()));
            opened.lock().expect("nobody panics with it").push((*number, found));
        });
        gather(&opened.into_inner().expect("nobody panics with it")).0
    })
}

/// All the worlds for one user.
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
        let fits = |kind: &Kind| (!kind.is_odd() || place.listed) && !(kind.is_device() && user == User::Nobody);
        for (turn, kind) in kinds.into_iter().filter(fits).enumerate() {
            // Each kind takes the next few, so that over all kinds every command has its turn.
            let take = |from: &[usize], count: usize| -> Vec<usize> {
                let count = if full { from.len() } else { count.min(from.len()) };
                (0..count).map(|index| from[(turn * count + index) % from.len()]).collect()
            };
            let chosen: BTreeSet<usize> = take(&touching, SAMPLE).into_iter().chain(take(&others, OTHERS)).collect();
            let known = random.below(2) == 0;
            let commands = chosen.into_iter().map(|number| &COMMANDS[number]).collect();
            jobs.push(Job { place: Some((place.clone(), kind)), known, user, commands });
        }
    }
    jobs
}

/// Runs all of it and returns what was found, with the number of commands that were run.
pub(super) fn run_all(jobs: &[Job]) -> (Vec<Finding>, usize) {
    let found: Mutex<Vec<Finding>> = Mutex::default();
    let (runs, hangs) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let full = setting("JP_HOSTILE_FULL").is_some() || report().is_some();
    in_parallel(jobs, |job| {
        if !full && hangs.load(Ordering::Relaxed) >= HANGS {
            return;
        }
        let (mut findings, count, hung) = run_job(job).unwrap_or_else(|err| {
            let what = vec![format!("the world cannot be built: {err}")];
            (vec![Finding { plant: describe(job), command: "-".to_owned(), what }], 0, false)
        });
        for finding in &findings {
            write_report(&format!("{}\n  $ {}\n    {}\n", finding.plant, finding.command, finding.what.join("\n    ")));
        }
        runs.fetch_add(count, Ordering::Relaxed);
        hangs.fetch_add(usize::from(hung), Ordering::Relaxed);
        found.lock().expect("nobody panics with it").append(&mut findings);
    });
    let mut found = found.into_inner().expect("nobody panics with it");
    if !full && hangs.load(Ordering::Relaxed) >= HANGS {
        let what = vec![format!("{HANGS} commands hung, so not all were run")];
        found.push(Finding { plant: "-".to_owned(), command: "-".to_owned(), what });
    }
    found.sort_by(|a, b| (&a.plant, &a.command).cmp(&(&b.plant, &b.command)));
    (found, runs.into_inner())
}

/// One world. Returns what was found, how many commands were run, and whether one hung.
fn run_job(job: &Job) -> io::Result<(Vec<Finding>, usize, bool)> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let tag = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut world = World::build(Site::enter()?, job.user, tag)?;
    let (mut findings, mut count) = (Vec::new(), 0);
    if job.known {
        let ended = run(&world, "jp export")?;
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
            // The last command has put something else there.
            if plant(&mut world, place, *kind).is_err() {
                break;
            }
            stamp = identity(path);
            before = world.look();
        }
        let ended = run(&world, cmd.script)?;
        count += 1;
        if ended.hung || cmd.mounts() || world.site.has_new_mounts() {
            world.site.clear(&world.tag);
        }
        let after = world.look();
        let mut what = Vec::new();
        if ended.hung {
            what.push("hangs".to_owned());
        }
        what.extend(ended.crashed());
        if ended.told {
            what.push("prints the secret".to_owned());
        }
        let leaks = after.leaks.iter().filter(|path| !before.leaks.contains(path));
        what.extend(leaks.map(|path| format!("copies the secret to {}", show(path))));
        what.extend(before.diff(&after).into_iter().filter(|line| !is_allowed(cmd, &world, line)));
        if !what.is_empty() {
            world.forget_reads();
            findings.push(Finding { plant: describe(job), command: cmd.name().to_owned(), what });
        }
        if ended.hung {
            return Ok((findings, count, true));
        }
        before = if findings.is_empty() { after } else { world.look() };
    }
    Ok((findings, count, false))
}

/// Whether a difference is what the command is for.
fn is_allowed(cmd: &Cmd, world: &World, line: &str) -> bool {
    let below = world.root();
    let below = below.strip_prefix(world.site.base()).unwrap_or(&below);
    cmd.may.iter().any(|path| {
        let path = show(&below.join(path));
        line.starts_with(&format!("created: {path} (")) || *line == format!("{path}: other modification time")
    }) || cmd.trashes && is_in_trash(world, line)
}

/// Whether what was removed from among conversations is in the trash beside them.
fn is_in_trash(world: &World, line: &str) -> bool {
    let Some((above, name)) = line.strip_prefix("removed: ").and_then(|path| path.rsplit_once("/conversations/"))
    else {
        return false;
    };
    let trash = world.site.base().join(above).join("conversations/.trash");
    name.split('/').next().is_some_and(|first| trash.join(first).exists())
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

/// What a failure says: findings with the same words are one, and there is an end to them.
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

/// Adds to the report, if there is to be one.
fn write_report(text: &str) {
    let Some(file) = report() else { return };
    // The sandbox has no such file, but the main thread has not left the root of the machine.
    let file = Path::new("/proc").join(std::process::id().to_string()).join("root").join(file.trim_start_matches('/'));
    let opened = fs::OpenOptions::new().create(true).append(true).open(&file);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.unwrap_or_else(|err| panic!("cannot write {}: {err}", file.display()));
}

/// Does something for each item, each on a thread of its own, because a sandbox is never left.
fn in_parallel<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    // Much of the time is spent waiting for a process.
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
