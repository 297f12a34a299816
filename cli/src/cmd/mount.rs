//! `jp mount`: shows the conversations as a filesystem.

mod permit;

use std::path::{Path, PathBuf};

use jp_fs::Options;
use jp_store::beneath::trusted;
use jp_store::boundaries::check_mount_point;
use jp_store::layout::CONVERSATIONS;
use jp_store::mountinfo;
use jp_store::store::Store;
use serde::Serialize;

use crate::change::count;
use crate::ctx::Ctx;
use crate::daemon::{self, Job, Ready};
use crate::error::{Error, Exit, Result};
use crate::mounts::{self, Kind, Known, Record, Standing, StateDir};
use crate::ui;

/// Show the conversations as a filesystem.
///
/// The project's `.jp/conversations` becomes a window on the store: nested by parent, always current, and a save is in the
/// store when it returns. What only the workspace has is imported first. The command returns once the tree can be
/// listed, and leaves a process behind that serves it; `jp unmount` ends it, and the real files follow. Mounting twice
/// says so and succeeds; with other options it is refused. What a process that died left mounted is cleared away first. On stdout is the mount point.
///
/// Where nothing can be mounted, or with --mirror, the real files in `.jp/conversations` are kept in step with the store
/// instead, both ways, by watching both sides. All else is the same.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp mount                        at .jp/conversations, in the background
  jp mount ~/talk --all           elsewhere, with what is local to the store
  jp mount --foreground           until Ctrl-C, saying what it does
  jp mount --mirror               real files, kept in step; needs no FUSE
  cd \"$(jp mount)\" && ls
  jp status                       what is mounted, and what is not saved yet")]
pub(crate) struct Args {
    /// The directory to mount on, made if need be [default: .jp/conversations].
    point: Option<PathBuf>,
    /// Stay, and log to stderr; Ctrl-C unmounts.
    #[arg(long, short = 'f')]
    foreground: bool,
    /// Keep the real files in step with the store instead of mounting something over them.
    #[arg(long)]
    mirror: bool,
    /// Let nothing be changed through the mount.
    #[arg(long)]
    read_only: bool,
    /// Show also what is not projected in this worktree.
    #[arg(long)]
    all: bool,
    /// Let other users look.
    #[arg(long)]
    allow_other: bool,
    /// Fail a save that is not a whole document, instead of keeping it as a draft without a word.
    #[arg(long)]
    strict: bool,
    /// Answer `user.jp.*` attributes, which makes every `ls -l` slower.
    #[arg(long)]
    xattrs: bool,
    /// Answer every open, for kernels that insist on asking.
    #[arg(long)]
    compat_open: bool,
    /// Look at the store once a second instead of watching it.
    #[arg(long)]
    poll: bool,
    /// Be the process behind the mount.
    #[arg(long, hide = true, conflicts_with = "foreground")]
    daemon: bool,
}

#[derive(Serialize)]
struct Mounted {
    point: String,
    pid: u32,
    kind: Kind,
    already: bool,
    options: Vec<String>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    if args.daemon {
        return daemon::detached(ctx, || {
            let point = args.point.clone().ok_or_else(|| Error::usage("a daemon is told its mount point"))?;
            let kind = if args.mirror { Kind::Mirror } else { Kind::Mount };
            Ok(args.job(ctx.store()?, point, kind))
        });
    }
    let store = two_roots(ctx.store()?)?;
    let kind = args.kind(ctx, &store)?;
    let point = point(ctx, &store, args.point.as_deref())?;
    if let Some(record) = make_way(ctx, &store, &point, kind, &args.names())? {
        return tell(ctx, &Ready::Already(record));
    }
    check_mount_point(store.layout(), &point)?;
    let made = match &args.point {
        Some(_) => trusted::create_dirs(&point),
        // The project is not made again if it was moved meanwhile.
        None if trusted::exists(&point) => Ok(()),
        None => trusted::create_dir(&point, 0o777),
    };
    made.map_err(|error| Error::io("make", &point, &error))?;
    // Looked at anew: a dead mount may have covered the real files.
    let job = args.job(ctx.store()?, point, kind);
    if args.foreground {
        ui::install_trace(1, ctx.ui.json());
        return daemon::serve(ctx, &job, |ready| tell(ctx, &ready).and_then(|_| ctx.ui.flush()));
    }
    tell(ctx, &daemon::launch(&job)?)
}

impl Args {
    /// A mount, or a mirror where one is asked for or nothing can be mounted.
    fn kind(&self, ctx: &Ctx<'_>, store: &Store) -> Result<Kind> {
        if self.mirror {
            return self.check_mirror(ctx, store).map(|()| Kind::Mirror);
        }
        let Err(missing) = permit::driver() else {
            permit::others(self.allow_other)?;
            return Ok(Kind::Mount);
        };
        let why = missing.whole();
        self.check_mirror(ctx, store).map_err(|mut error| {
            error.causes.push(why.clone());
            error.hints.extend(missing.hints);
            error
        })?;
        ctx.ui.note(&format!("Keeping the real files in step instead of mounting: {why}."));
        Ok(Kind::Mirror)
    }

    /// Refuses what only a filesystem of our own can do.
    fn check_mirror(&self, ctx: &Ctx<'_>, store: &Store) -> Result<()> {
        let asked = [
            (self.read_only, "--read-only"),
            (self.all, "--all"),
            (self.allow_other, "--allow-other"),
            (self.strict, "--strict"),
            (self.xattrs, "--xattrs"),
            (self.compat_open, "--compat-open"),
        ];
        let refused = |what: &str| {
            Error::usage(format!("{what} cannot be had with a mirror, which is real files in .jp/conversations"))
        };
        if let Some((_, option)) = asked.into_iter().find(|(asked, _)| *asked) {
            return Err(refused(option));
        }
        match &self.point {
            Some(typed) if point(ctx, store, Some(typed))? != point(ctx, store, None)? => {
                Err(refused("another mount point"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn job(&self, store: Store, point: PathBuf, kind: Kind) -> Job {
        let options = Options {
            read_only: self.read_only,
            all: self.all,
            strict: self.strict,
            allow_other: self.allow_other,
            xattrs: self.xattrs,
            compat_open: self.compat_open,
            poll: self.poll,
        };
        Job { store, point, kind, options, names: self.names() }
    }

    /// The options that were given, by name.
    fn names(&self) -> Vec<String> {
        let names = [
            (self.read_only, "read-only"),
            (self.all, "all"),
            (self.strict, "strict"),
            (self.allow_other, "allow-other"),
            (self.xattrs, "xattrs"),
            (self.compat_open, "compat-open"),
            (self.poll, "poll"),
        ];
        names.into_iter().filter(|(chosen, _)| *chosen).map(|(_, name)| name.to_owned()).collect()
    }
}

fn two_roots(store: Store) -> Result<Store> {
    if !store.layout().is_single_root() {
        return Ok(store);
    }
    Err(Error::no("there is no user-local storage, so there is nothing to mount: the workspace is the only root")
        .hint("set JP_USER_DATA_DIR, XDG_DATA_HOME or HOME to say where the store is to be"))
}

/// The mount point as the kernel names it.
pub(crate) fn point(ctx: &Ctx<'_>, store: &Store, typed: Option<&Path>) -> Result<PathBuf> {
    let point = match typed {
        Some(typed) => ctx.cwd()?.join(typed),
        None => store.layout().storage.join(CONVERSATIONS),
    };
    if let (Some(_), Some(above)) = (typed, point.parent())
        && !trusted::exists(above)
    {
        trusted::create_dirs(above).map_err(|error| Error::io("make", above, &error))?;
    }
    let place = mountinfo::place(&point);
    if place.to_str().is_none() {
        return Err(Error::no(format!("{} is not UTF-8, which a mount point must be", place.display())));
    }
    Ok(place)
}

/// Clears a dead mount away. Gives the live one, if there is one already.
fn make_way(ctx: &Ctx<'_>, store: &Store, point: &Path, kind: Kind, options: &[String]) -> Result<Option<Record>> {
    let known = StateDir::of(store.layout()).known();
    if let Some(known) = known.as_ref().filter(|known| known.record.point != point && known.alive()) {
        return Err(Error::no(format!("this worktree is mounted at {} already", known.record.point.display()))
            .hint("`jp unmount` ends that one first"));
    }
    let busy = |what: &str| Error::no(format!("{} is in use: {what}", point.display()));
    match (mounts::standing(point, known.as_ref()), known) {
        (Standing::Free, known) => {
            if known.is_some_and(|known| known.alive()) {
                ctx.ui.note("Waiting for the process behind the last mount to end...");
            }
            Ok(None)
        }
        (Standing::Live, Some(Known { record, .. })) if record.point == point => {
            record.check_same(kind, options)?;
            Ok(Some(record))
        }
        (Standing::Live, _) => {
            Err(busy("another project is mounted there").hint("choose another place, as in `jp mount DIR`"))
        }
        (Standing::Mute, known) => {
            let told = busy("a mount is there whose process does not answer");
            Err(match known {
                Some(known) => told.hint(format!("`kill {}` ends it; then try again", known.record.pid)),
                None => told.hint("`jp unmount --lazy` takes it away"),
            })
        }
        (Standing::Dead, known) => {
            ctx.ui.note(&format!("Cleared away a dead mount at {}.", ui::clean(&point.to_string_lossy())));
            mounts::clear(point, known.as_ref()).map(|()| None)
        }
        (Standing::Foreign { kind }, _) => Err(busy(&format!("something else is mounted there ({kind})"))
            .hint("choose another place, as in `jp mount DIR`")),
    }
}

fn tell(ctx: &Ctx<'_>, ready: &Ready) -> Result<Exit> {
    let (record, already) = match ready {
        Ready::Mounted(record, brought) => {
            if brought.imported > 0 {
                ctx.ui.note(&format!("Imported {} from the workspace.", count(brought.imported, "conversation")));
            }
            for returned in &brought.returned {
                ctx.ui.warn(&ui::clean(returned));
            }
            for left in &brought.refused {
                ctx.ui.warn(&format!("not imported: {}", ui::clean(left)));
            }
            (record, false)
        }
        Ready::Already(record) => (record, true),
    };
    if already {
        let how = match record.kind {
            Kind::Mount => "mounted",
            Kind::Mirror => "mirrored",
        };
        ctx.ui.note(&format!("{} is already {how}.", ui::clean(&record.point.to_string_lossy())));
    }
    if ctx.ui.json() {
        let point = record.point.display().to_string();
        let Record { pid, kind, ref options, .. } = *record;
        ctx.ui.object(&Mounted { point, pid, kind, already, options: options.clone() })?;
    } else {
        ctx.ui.path(&record.point)?;
    }
    Ok(Exit::DONE)
}
