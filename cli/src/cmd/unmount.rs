//! `jp unmount`: ends a mount, and waits until everything is where it belongs.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jp_store::layout::CONVERSATIONS;
use jp_store::mountinfo;
use jp_store::plan::HeldKind;
use serde::Serialize;

use crate::control::{self, Request};
use crate::ctx::Ctx;
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
/// How often we look.
const TICK: Duration = Duration::from_millis(50);
const RETRY: Duration = Duration::from_millis(500);

/// End a mount; the real files follow.
///
/// Returns once the process behind the mount has ended and the real files are what the mount showed last. While
/// somebody is in the mount it names them and waits: at a terminal until Ctrl-C, else ten seconds. What a process that
/// died left mounted is cleared away. The exit code is 1 when nothing is mounted or somebody does not leave. Real files that
/// could not follow are named, and the exit code is 3 if another process holds their conversation, else 1. A mirror
/// ends the same way, once the real files and the store are in step; nobody is ever in its way.
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
    how: &'static str,
    /// What of the real files did not follow, and why.
    left: Vec<Left>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let targets = targets(ctx, &args)?;
    // Standing in the mount would keep it busy; the shell we come from does so for itself.
    if ctx.env.cwd.as_ref().is_some_and(|cwd| targets.iter().any(|target| cwd.starts_with(&target.point))) {
        std::env::set_current_dir("/").map_err(|error| Error::io("change to", Path::new("/"), &error))?;
    }
    let (mut done, mut worst) = (Vec::new(), Exit::DONE);
    for target in &targets {
        match end(ctx, target, &args) {
            Ok(how) => {
                ctx.ui.note(&format!("{} {}.", clean(&target.point.to_string_lossy()), sentence(how)));
                let left = target.known.as_ref().map_or_else(Vec::new, |known| known.state.take_left(&known.record));
                worst = Exit(worst.0.max(tell_left(ctx, &left).0));
                done.push(Unmounted { point: target.point.display().to_string(), how, left });
            }
            Err(error) if targets.len() == 1 => return Err(error),
            Err(error) => worst = Exit(worst.0.max(ctx.ui.fail(&error).0)),
        }
    }
    if ctx.ui.json() {
        ctx.ui.object(&done)?;
    }
    Ok(worst)
}

/// Names what did not follow, and says which exit code that is.
fn tell_left(ctx: &Ctx<'_>, left: &[Left]) -> Exit {
    if left.is_empty() {
        return Exit::DONE;
    }
    for one in left {
        ctx.ui.warn(&format!("the real files did not follow: {}", clean(&one.reason)));
    }
    if left.iter().any(|one| one.kind == HeldKind::Busy) {
        ctx.ui.note("hint: `jp lock ls` shows who holds what; `jp export` lets the files follow once it is free");
        return Kind::Locked.exit();
    }
    ctx.ui.note("hint: the store has what the mount showed; mend what is named, then `jp export`");
    Exit::NO
}

fn sentence(how: &str) -> &'static str {
    match how {
        "detached" => "is detached; it ends when the last one in it leaves",
        "cleared" => "was dead and is cleared away",
        _ => "is unmounted",
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

/// Ends one mount; says how.
fn end(ctx: &Ctx<'_>, target: &Target, args: &Args) -> Result<&'static str> {
    let Target { point, known } = target;
    let alive = known.as_ref().filter(|known| known.alive());
    match (mounts::standing(point, known.as_ref()), alive) {
        (Standing::Free, None) => {
            // What it left behind is of no use to anybody.
            if let Some(known) = known {
                known.state.forget();
            }
            Err(Error::no(format!("nothing is mounted at {}", point.display())))
        }
        (Standing::Foreign { kind }, _) => {
            Err(Error::no(format!("what is mounted at {} is not ours ({kind})", point.display()))
                .hint("`umount` ends it, if that is what you want"))
        }
        // Detached already, by us or by somebody else.
        (Standing::Free, Some(known)) => gone(ctx, known).map(|()| "unmounted"),
        (Standing::Dead, _) => mounts::clear(point, known.as_ref()).map(|()| "cleared"),
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
            Ok(if alive.is_some() { "detached" } else { "cleared" })
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
        (Standing::Live, None) => mounts::detach(point, args.lazy).map(|()| "unmounted"),
    }
}

/// Asks the daemon, again and again while somebody is in the mount.
fn ask(ctx: &Ctx<'_>, known: &Known, args: &Args) -> Result<&'static str> {
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
        return Ok("detached");
    }
    gone(ctx, known).map(|()| "unmounted")
}

fn name(occupants: &[Occupant]) -> String {
    if occupants.is_empty() {
        return "a process that cannot be seen from here is in it".to_owned();
    }
    let lines =
        occupants.iter().map(|one| format!("process {} ({}) is at {}", one.pid, clean(&one.name), clean(&one.path)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Waits until the daemon has ended, and with it everything it does at its end.
fn gone(ctx: &Ctx<'_>, known: &Known) -> Result<()> {
    let (begun, mut told) = (Instant::now(), false);
    while known.alive() {
        if begun.elapsed() > END {
            return Err(Error::no(format!("the process behind the mount, {}, does not end", known.record.pid))
                .hint(format!("its log is {}", known.state.log().display())));
        }
        if !told && begun.elapsed() > Duration::from_secs(2) {
            ctx.ui.note(match known.record.kind {
                mounts::Kind::Mount => "The mount is gone; waiting for the real files to follow.",
                mounts::Kind::Mirror => "Waiting until the real files and the store are in step.",
            });
            told = true;
        }
        std::thread::sleep(TICK);
    }
    // One that was killed at the last moment leaves its record.
    if known.state.known().is_some_and(|left| left.record == known.record) {
        known.state.forget();
    }
    Ok(())
}
