//! `jp unmount`: ends a mount, and waits until everything is where it belongs.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jp_store::layout::CONVERSATIONS;
use jp_store::mountinfo;
use jp_store::plan::{Direction, HeldKind};
use jp_store::store::Store;
use serde::Serialize;

use crate::change::count;
use crate::control::{self, Asked, Ended, Request};
use crate::ctx::Ctx;
use crate::drafts;
use crate::error::{Error, Exit, Kind, Result};
use crate::mounts::{self, Known, Standing, StateDir};
use crate::process::{self, Occupant};
use crate::steps::Left;
use crate::ui::clean;

/// How long whoever is in a mount is waited for when nobody watches.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the daemon may take to answer, and how long to end once the mount is gone.
const ANSWER: Duration = Duration::from_secs(30);
const END: Duration = Duration::from_secs(60);
/// How long we wait in silence.
const TELLING: Duration = Duration::from_secs(2);
/// How often we look.
const TICK: Duration = Duration::from_millis(50);
const RETRY: Duration = Duration::from_millis(500);

/// End a mount; the real files follow.
///
/// Returns once the process behind the mount has ended and the real files are what the store has of the conversations that
/// the mount showed. Drafts, which a mount shows and the store does not have, stay on disk and are named. While somebody is
/// in the mount it names them and waits: at a terminal until Ctrl-C, else ten seconds. What a process that died left mounted
/// is cleared away. The exit code is 0 only if the real files have followed (or need not: --no-export, and --lazy while
/// somebody is in the mount). It is 1 when nothing is mounted, when somebody does not leave, and when the process died
/// before the real files had followed. Real files that could not follow are named, and the exit code is 3 if another process
/// holds their conversation, 4 if the disk is full or fails, else 1; `jp export` lets them follow. A mirror ends the same
/// way, once the real files and the store are in step; nobody is ever in its way.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp unmount
  jp unmount ~/talk
  jp unmount --lazy         take it away even while somebody is in it
  jp unmount --all          in every worktree of the project")]
pub(crate) struct Args {
    /// The mount point [default: wherever this worktree is mounted].
    #[arg(conflicts_with = "all")]
    point: Option<PathBuf>,
    /// Take it away at once; it ends when the last one in it leaves.
    #[arg(long, short = 'z')]
    lazy: bool,
    /// Leave the real files as they are; they follow with the next command that writes.
    #[arg(long)]
    no_export: bool,
    /// End the mounts of all worktrees of this store.
    #[arg(long)]
    all: bool,
}

/// A mount to end.
struct Target {
    point: PathBuf,
    known: Option<Known>,
}

#[derive(Serialize)]
struct Unmounted {
    point: String,
    /// How: `"unmounted"`, `"detached"` while somebody is in it, `"cleared"` when it was dead.
    how: How,
    /// What of the real files did not follow, and why.
    left: Vec<Left>,
    /// What else failed.
    failures: Vec<String>,
    /// What was saved through the mount, and neither the store nor the real files have.
    drafts: Vec<Draft>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum How {
    Unmounted,
    Detached,
    Cleared,
}

/// A save that is not in the store.
#[derive(Serialize)]
struct Draft {
    id: String,
    /// `null` for a new conversation that is not whole.
    file: Option<&'static str>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let targets = targets(ctx, &args)?;
    // Standing in the mount would keep it busy; the shell we come from does so for itself.
    if ctx.env.cwd.as_ref().is_some_and(|cwd| targets.iter().any(|target| cwd.starts_with(&target.point))) {
        std::env::set_current_dir("/").map_err(|error| Error::io("change to", Path::new("/"), &error))?;
    }
    let (mut done, mut worst) = (Vec::new(), Exit::DONE);
    for target in &targets {
        let (exit, unmounted) = match end(ctx, target, &args).and_then(|ended| tell(ctx, target, &args, ended)) {
            Ok((exit, unmounted)) => (exit, Some(unmounted)),
            Err(error) if targets.len() == 1 => return Err(error),
            Err(error) => (ctx.ui.fail(&error), None),
        };
        worst = Exit(worst.0.max(exit.0));
        done.extend(unmounted);
    }
    if ctx.ui.json() {
        ctx.ui.object(&done)?;
    }
    Ok(worst)
}

/// Says what became of one mount, of its real files and of its drafts.
fn tell(ctx: &Ctx<'_>, target: &Target, args: &Args, (how, word): (How, Option<Ended>)) -> Result<(Exit, Unmounted)> {
    ctx.ui.note(&format!("{} {}.", clean(&target.point.to_string_lossy()), sentence(how)));
    let mut told = Unmounted {
        point: target.point.display().to_string(),
        how,
        left: Vec::new(),
        failures: Vec::new(),
        drafts: Vec::new(),
    };
    if how == How::Detached {
        return Ok((Exit::DONE, told));
    }
    let exit = match word {
        Some(ended) => {
            let exit = tell_ended(ctx, &ended);
            told.left = ended.left;
            told.failures = ended.failures.into_iter().map(|failure| failure.message).collect();
            exit
        }
        None if args.no_export => Exit::DONE,
        None => match behind(ctx, target)? {
            None => Exit::DONE,
            Some(reason) => {
                ctx.ui.warn(&reason);
                ctx.ui.note(&hint(target));
                told.failures.push(reason);
                Exit::NO
            }
        },
    };
    if let Some(known) = &target.known {
        told.drafts = tell_drafts(ctx, known)?;
    }
    Ok((exit, told))
}

/// Names what did not follow, and says which exit code that is.
fn tell_ended(ctx: &Ctx<'_>, ended: &Ended) -> Exit {
    for one in &ended.left {
        ctx.ui.warn(&format!("the real files did not follow: {}", clean(&one.reason)));
    }
    for failure in &ended.failures {
        ctx.ui.warn(&clean(&failure.message));
    }
    let busy = ended.left.iter().any(|one| one.kind == HeldKind::Busy);
    let left = match (busy, ended.left.is_empty()) {
        (true, _) => Kind::Locked.exit(),
        (false, false) => Exit::NO,
        (false, true) => Exit::DONE,
    };
    let exit = ended.failures.iter().map(|failure| failure.code).fold(left.0, u8::max);
    if busy {
        ctx.ui.note("hint: `jp lock ls` shows who holds what; `jp export` lets the files follow once it is free");
    } else if exit != 0 {
        ctx.ui.note("hint: the store has what the mount showed; mend what is named, then `jp export`");
    }
    Exit(exit)
}

/// Why the real files are not known to have followed a mount whose process has not said so; `None` if they are in step.
fn behind(ctx: &Ctx<'_>, target: &Target) -> Result<Option<String>> {
    let Some(Known { record, .. }) = &target.known else {
        return Ok(Some("the process behind the mount is not known: the real files may not have followed".to_owned()));
    };
    let store = match Store::open(ctx.env.surroundings(), &record.project) {
        // There are no real files any more.
        Err(jp_store::Error::NoWorkspace { .. }) => return Ok(None),
        store => store?,
    };
    let direction = match record.kind {
        mounts::Kind::Mount if !store.is_behind()? => return Ok(None),
        mounts::Kind::Mount => Direction::Out,
        mounts::Kind::Mirror => Direction::Both,
    };
    Ok(match store.count_out_of_step(direction)? {
        0 => None,
        number => Some(format!(
            "the process behind the mount ended before the real files had followed: {} not in step",
            are(number)
        )),
    })
}

fn are(number: usize) -> String {
    format!("{} {}", count(number, "conversation"), if number == 1 { "is" } else { "are" })
}

fn hint(target: &Target) -> String {
    let log = target.known.as_ref().map(|known| format!("; its log is {}", known.state.log().display()));
    format!(
        "hint: the store has what the mount showed; `jp export` lets the real files follow{}",
        log.unwrap_or_default()
    )
}

/// Names what was saved through a mount and is not in the store.
fn tell_drafts(ctx: &Ctx<'_>, known: &Known) -> Result<Vec<Draft>> {
    let files = drafts::files_of(&known.state);
    let of_files = drafts::list(&files)?.into_iter();
    let of_files = of_files.map(|draft| Draft { id: draft.id.to_string(), file: Some(draft.file.name()) });
    let new = drafts::list_arrivals(&files)?.into_iter().map(|new| Draft { id: new.id.to_string(), file: None });
    let all: Vec<Draft> = of_files.chain(new).collect();
    for Draft { id, file } in &all {
        ctx.ui.note(&match file {
            Some(file) => format!("{id} {file} has a draft; the real file is the store's version."),
            None => format!("{id} is new and not whole; it is not among the real files."),
        });
    }
    if !all.is_empty() {
        ctx.ui.note("hint: drafts are kept; `jp draft ls` lists them, and the next mount shows them again");
    }
    Ok(all)
}

fn sentence(how: How) -> &'static str {
    match how {
        How::Unmounted => "is unmounted",
        How::Detached => "is detached; it ends when the last one in it leaves",
        How::Cleared => "was dead and is cleared away",
    }
}

fn targets(ctx: &Ctx<'_>, args: &Args) -> Result<Vec<Target>> {
    if let Some(typed) = &args.point {
        // It need not be in a workspace, and whose it is only its daemon knows.
        let point = mountinfo::place(&ctx.cwd()?.join(typed));
        let known = ctx.env.data_dir.iter().flat_map(|dir| mounts::of_user(dir));
        let known = known.into_iter().find(|known| known.record.point == point);
        return Ok(vec![Target { point, known }]);
    }
    let store = ctx.store()?;
    if args.all {
        let all = mounts::of_store(store.layout()).into_iter();
        let all: Vec<_> = all.map(|known| Target { point: known.record.point.clone(), known: Some(known) }).collect();
        return if all.is_empty() { Err(Error::no("nothing is mounted")) } else { Ok(all) };
    }
    let known = StateDir::of(store.layout()).known();
    let point = match &known {
        Some(known) => known.record.point.clone(),
        None => mountinfo::place(&store.layout().storage.join(CONVERSATIONS)),
    };
    Ok(vec![Target { point, known }])
}

/// Ends one mount; says how, and what its process says of its end. One that says nothing was killed.
fn end(ctx: &Ctx<'_>, target: &Target, args: &Args) -> Result<(How, Option<Ended>)> {
    let Target { point, known } = target;
    let alive = known.as_ref().filter(|known| known.alive());
    match (mounts::standing(point, known.as_ref()), alive) {
        (Standing::Free, None) => {
            let error = Error::no(format!("nothing is mounted at {}", point.display()));
            let Some(known) = known else { return Err(error) };
            // What it left behind is of no use to anybody.
            known.state.forget();
            Err(match behind(ctx, target)? {
                Some(reason) => Error { causes: vec![reason], ..error }.hint("`jp export` lets the real files follow"),
                None => error,
            })
        }
        (Standing::Foreign { kind }, _) => {
            Err(Error::no(format!("what is mounted at {} is not ours ({kind})", point.display()))
                .hint("`umount` ends it, if that is what you want"))
        }
        // Detached already, by us or by somebody else.
        (Standing::Free, Some(known)) => gone(ctx, known, ending(known)),
        (Standing::Dead, _) => mounts::clear(point, known.as_ref()).map(|()| (How::Cleared, None)),
        // There is nothing that could be detached.
        (Standing::Mute, Some(known)) if known.record.kind == mounts::Kind::Mirror => {
            let pid = known.record.pid;
            Err(Error::new(
                Kind::Damaged,
                format!("the process behind the mirror of {} does not answer", point.display()),
            )
            .hint(format!("`kill {pid}` ends it, or `kill -9 {pid}`; nothing is lost by that")))
        }
        (Standing::Mute, alive) if args.lazy => {
            mounts::detach(point, true)?;
            ctx.ui.warn("the process behind the mount did not answer");
            Ok((if alive.is_some() { How::Detached } else { How::Cleared }, None))
        }
        (Standing::Mute, alive) => {
            let told = Error::new(Kind::Damaged, format!("the mount at {} does not answer", point.display()));
            Err(match alive {
                Some(known) => {
                    told.hint(format!("its process is {}; `jp unmount --lazy` does not ask it", known.record.pid))
                }
                None => told.hint("`jp unmount --lazy` does not ask it"),
            })
        }
        (Standing::Live, Some(known)) => ask(ctx, known, args),
        // Another user data directory's, or its record is lost; it ends by itself.
        (Standing::Live, None) => mounts::detach(point, args.lazy).map(|()| (How::Unmounted, None)),
    }
}

/// Asks how the mount ends, before it does; `None` if nobody is there to ask.
fn ending(known: &Known) -> Option<Asked> {
    let asked = Asked::begin(&known.state.socket(), &Request::Ending, ANSWER);
    asked.inspect_err(|error| tracing::debug!("cannot ask how the mount ends: {error}")).ok()
}

/// Asks the daemon, again and again while somebody is in the mount.
fn ask(ctx: &Ctx<'_>, known: &Known, args: &Args) -> Result<(How, Option<Ended>)> {
    let ending = ending(known);
    let request = Request::Unmount { lazy: args.lazy, export: !args.no_export };
    let (point, begun) = (&known.record.point, Instant::now());
    // Once it is detached nobody's paths lead into it any more. Nobody is ever in a mirror: its files are real.
    let mirror = known.record.kind == mounts::Kind::Mirror;
    let stay = args.lazy && !mirror && !process::occupants(point, known.record.pid).is_empty();
    let mut told = None;
    loop {
        let answer = match control::ask(&known.state.socket(), &request, ANSWER) {
            // It did as it was told and was gone before it could say so.
            Err(_) if !mountinfo::is_ours_mounted(point) => break,
            answer => {
                answer.map_err(|error| Error::io("speak with the daemon at", &known.state.socket().path, &error))?
            }
        };
        if let Some(reason) = answer.error {
            return Err(Error::new(Kind::Damaged, format!("cannot unmount {}", point.display()))
                .because(&std::io::Error::other(reason)));
        }
        if answer.ok {
            break;
        }
        let occupants = process::occupants(point, known.record.pid);
        if !ctx.ui.interactive() && begun.elapsed() >= PATIENCE {
            let mut error = Error::no(format!("{} is busy", point.display()));
            error.causes.push(name(&occupants));
            return Err(error.hint("end them, or use `jp unmount --lazy`"));
        }
        if told.as_ref() != Some(&occupants) {
            let names = name(&occupants).replace('\n', "\n  ");
            ctx.ui.note(&format!("Waiting until {} is free:\n  {names}", clean(&point.to_string_lossy())));
            told = Some(occupants);
        }
        std::thread::sleep(RETRY);
    }
    if stay {
        return Ok((How::Detached, None));
    }
    gone(ctx, known, ending)
}

fn name(occupants: &[Occupant]) -> String {
    if occupants.is_empty() {
        return "a process that cannot be seen from here is in it".to_owned();
    }
    let lines =
        occupants.iter().map(|one| format!("process {} ({}) is at {}", one.pid, clean(&one.name), clean(&one.path)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Waits until the daemon has said how it ended, and has ended.
fn gone(ctx: &Ctx<'_>, known: &Known, ending: Option<Asked>) -> Result<(How, Option<Ended>)> {
    let until = Instant::now() + END;
    let left = || until.saturating_duration_since(Instant::now());
    let lasts = || {
        Error::no(format!("the process behind the mount, {}, does not end", known.record.pid))
            .hint(format!("its log is {}", known.state.log().display()))
    };
    let mut word = None;
    if let Some(ending) = ending {
        if !ending.begins(TELLING) {
            ctx.ui.note(match known.record.kind {
                mounts::Kind::Mount => "The mount is gone; waiting for the real files to follow.",
                mounts::Kind::Mirror => "Waiting until the real files and the store are in step.",
            });
        }
        word = match ending.within(left()).end() {
            Ok(answer) => answer.ended,
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => return Err(lasts()),
            Err(error) => {
                tracing::debug!("the process behind the mount does not say how it ended: {error}");
                None
            }
        };
    }
    while known.alive() {
        if left().is_zero() {
            return Err(lasts());
        }
        std::thread::sleep(TICK);
    }
    // One that was killed leaves its record.
    if known.state.known().is_some_and(|left| left.record == known.record) {
        known.state.forget();
    }
    Ok((How::Unmounted, word))
}
