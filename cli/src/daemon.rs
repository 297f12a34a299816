//! The process behind a mount or a mirror: it begins, says that it is ready, answers on its control socket, and takes
//! things away again when it is told to. In the background it is a new run of our own executable, since a process with threads
//! cannot be split in two.

mod launch;
mod notify;

use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jp_fs::mount::{Brought, Error as MountError};
use jp_fs::{Live, Mirror, Options, Session};
use jp_store::disk::RealDisk;
use jp_store::plan::Direction;
use jp_store::store::Store;
use jp_store::time::rfc3339;
use nix::errno::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub(crate) use self::launch::{detached, launch};
use self::notify::notify;
use crate::control::{self, Answer, Ended, Failure, Request, Served, Talks};
use crate::ctx::Ctx;
use crate::error::{Error, Exit, Result};
use crate::mounts::{Kind, Known, Record, StateDir};
use crate::steps::Left;
use crate::{drafts, process, reconcile, ui};

/// How long whoever is in the mount may stay once we are told to end; then it is taken away beneath them, and a second
/// time as long until we end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often we try.
const RETRY: Duration = Duration::from_millis(250);
/// How long another daemon of the same worktree may take to begin or to end.
const TURN: Duration = Duration::from_secs(30);

/// What is to be mounted.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) store: Store,
    pub(crate) point: PathBuf,
    pub(crate) kind: Kind,
    pub(crate) options: Options,
    /// The options by name, for whoever asks.
    pub(crate) names: Vec<String>,
}

/// What a job comes to.
#[derive(Clone, Debug)]
pub(crate) enum Ready {
    /// It is mounted, by us.
    Mounted(Record, Brought),
    /// Somebody else was quicker.
    Already(Record),
}

/// Mounts, tells that it is ready, and stays until the mount has ended.
pub(crate) fn serve(ctx: &Ctx<'_>, job: &Job, ready: impl FnOnce(Ready) -> Result<()>) -> Result<Exit> {
    // Ctrl-C is one of the signals that end the mount, not the process.
    let _hold = ctx.signals.hold();
    let state = StateDir::of(job.store.layout());
    state.make()?;
    let _turn = match turn(&state)? {
        Turn::Ours(lock) => lock,
        Turn::Theirs(known) => {
            known.record.check_same(job.kind, &job.names)?;
            return ready(Ready::Already(known.record)).map(|()| Exit::DONE);
        }
    };
    let (send, events) = mpsc::channel();
    watch_signals(send.clone())?;

    let session = live(ctx, job)?;
    let behind = Arc::new(Behind::new(session.clone()));
    let begun = begin(ctx, job, &state, &behind).and_then(|(record, talks)| {
        tracing::info!("mounted {}", job.point.display());
        ready(Ready::Mounted(record, session.brought().clone())).map(|()| talks)
    });
    let talks = match begun {
        Ok(talks) => talks,
        Err(error) => {
            // Nobody knows of it, or nobody could end it: it had better not be there.
            let _ = session.unmount(true);
            let _ = session.finish();
            state.forget();
            return Err(error);
        }
    };
    notify(ctx.env, "READY=1");
    watch_session(session.clone(), send);
    let ended = wait(&*session, &events);
    notify(ctx.env, "STOPPING=1");
    // A Ctrl-C has had its effect.
    ctx.signals.forget();
    let (left, errors) = if ended { end(ctx, &behind) } else { (Vec::new(), abandon(session)) };
    for error in &errors {
        tracing::error!("{}", error.whole());
    }
    let failure = |error: &Error| Failure { message: error.whole(), code: error.kind.exit().0 };
    behind.ended(Ended { left, failures: errors.iter().map(failure).collect() });
    state.forget();
    talks.finish();
    tracing::info!("unmounted {}", job.point.display());
    errors.into_iter().next().map_or(Ok(Exit::DONE), Err)
}

/// Mounts or mirrors.
fn live(ctx: &Ctx<'_>, job: &Job) -> Result<Arc<dyn Live>> {
    let (around, project) = (ctx.env.surroundings(), &job.store.layout().project);
    match job.kind {
        Kind::Mount => Ok(Session::begin(around, project, &job.point, &job.options).map_err(advise)?),
        Kind::Mirror => Ok(Mirror::begin(around, project, job.options.poll)?),
    }
}

/// The first thing about a mount that others see.
fn begin(ctx: &Ctx<'_>, job: &Job, state: &StateDir, behind: &Arc<Behind>) -> Result<(Record, Talks)> {
    let socket = state.socket();
    let listener = control::listen(&socket).map_err(|error| Error::io("listen on", &socket.path, &error))?;
    let talks = control::serve(listener, behind.clone());
    let record = Record {
        pid: ctx.env.pid,
        started: process::started(ctx.env.pid),
        point: job.point.clone(),
        project: job.store.layout().project.clone(),
        kind: job.kind,
        options: job.names.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        since: rfc3339(ctx.env.now()),
    };
    state.write(&record)?;
    Ok((record, talks))
}

/// Brings everything to disk, then lets the real files follow. Says what did not, and what failed.
fn end(ctx: &Ctx<'_>, behind: &Behind) -> (Vec<Left>, Vec<Error>) {
    let mut errors = Vec::new();
    if let Err(error) = behind.session.finish() {
        errors.push(Error { message: format!("the mount did not end cleanly: {error}"), ..Error::from(error) });
    }
    if !behind.export.load(Ordering::SeqCst) {
        return (Vec::new(), errors);
    }
    let left = follow(ctx, &*behind.session).unwrap_or_else(|error| {
        errors.push(Error { message: format!("the real files did not follow: {}", error.message), ..error });
        Vec::new()
    });
    (left, errors)
}

/// Ends although somebody is still in the mount. What is left to do waits for them, and we do not: drafts are on disk a
/// moment after every save, and the real files follow with the next mount or write.
fn abandon(session: Arc<dyn Live>) -> Vec<Error> {
    let left = Error::no("somebody is still in the mount; it ends all the same, and the real files did not follow");
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || send.send(session.finish()));
    let finished = receive.recv_timeout(Duration::from_secs(1)).unwrap_or(Ok(()));
    std::iter::once(left).chain(finished.err().map(Error::from)).collect()
}

/// The real files follow what was changed while they were covered. What cannot is named, and follows with a later write.
fn follow(ctx: &Ctx<'_>, session: &dyn Live) -> Result<Vec<Left>> {
    let patience = ctx.patience()?;
    let left = session.follow(&patience.wait())?;
    for held in &left {
        tracing::warn!("a real file does not follow: {}", held.reason);
    }
    Ok(left.iter().map(Left::from).collect())
}

/// What the control socket speaks for.
struct Behind {
    session: Arc<dyn Live>,
    /// Whether the real files are to follow at the end.
    export: AtomicBool,
    /// How it ended, once it has.
    ended: Mutex<Option<Ended>>,
    has_ended: Condvar,
}

impl Behind {
    fn new(session: Arc<dyn Live>) -> Self {
        Self { session, export: AtomicBool::new(true), ended: Mutex::default(), has_ended: Condvar::new() }
    }

    /// Tells everybody who waits for it how the mount ended.
    fn ended(&self, ended: Ended) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
        self.has_ended.notify_all();
    }

    /// Waits until the mount has ended; says how.
    fn wait(&self) -> Option<Ended> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = self.has_ended.wait_while(ended, |ended| ended.is_none());
        ended.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Served for Behind {
    fn answer(&self, request: Request, caller: u32) -> Answer {
        match request {
            Request::Status => Answer { status: Some(self.session.status()), ..Answer::done() },
            Request::Refresh => match self.session.refresh() {
                Ok(()) => Answer::done(),
                Err(error) => Answer::failed(error.to_string()),
            },
            Request::Unmount { lazy, export } => {
                self.export.store(export, Ordering::SeqCst);
                match self.session.unmount(lazy) {
                    Ok(()) => Answer::done(),
                    Err(MountError::Io { source, .. }) if source.raw_os_error() == Some(Errno::EBUSY as i32) => {
                        Answer { busy: true, ..Answer::default() }
                    }
                    Err(error) => Answer::failed(error.to_string()),
                }
            }
            Request::Ending => Answer { ended: self.wait(), ..Answer::done() },
            Request::Export { form, part } => reconcile::answer(&*self.session, Direction::Out, form, &part, caller),
            Request::Import { part } => reconcile::answer(&*self.session, Direction::In, None, &part, caller),
            Request::Draft { id, file, act, force } => {
                drafts::answer(&*self.session, &id, file.as_deref(), act, force, caller)
            }
        }
    }
}

/// Who may mount for this worktree.
enum Turn {
    Ours(File),
    /// Another daemon has mounted it meanwhile.
    Theirs(Known),
}

fn turn(state: &StateDir) -> Result<Turn> {
    let path = state.lock();
    let disk = RealDisk::new(state.files().clone());
    let file = jp_store::lock::open_or_make(&disk, &path)?;
    let until = Instant::now() + TURN;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Turn::Ours(file)),
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", &path, &error)),
            Err(TryLockError::WouldBlock) => {}
        }
        // One that is detached lives on while somebody is in it, but shows nothing any more.
        match state.known().filter(|known| known.is_there() && known.status().is_some()) {
            Some(known) => return Ok(Turn::Theirs(known)),
            None if Instant::now() > until => {
                return Err(Error::no("the process behind this worktree's last mount has not ended")
                    .hint("somebody may still be in it; `jp status` names the process")
                    .hint(format!("its log is {}", state.log().display())));
            }
            None => std::thread::sleep(RETRY),
        }
    }
}

/// What happens to a daemon.
enum Event {
    /// The mount is gone.
    Ended,
    /// We are told to end it.
    Stop,
}

fn watch_signals(send: Sender<Event>) -> Result<()> {
    let failed = |error: std::io::Error| Error::no("cannot handle signals").because(&error);
    // A terminal that is closed takes its session along, but not the mount.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if signal != SIGHUP && send.send(Event::Stop).is_err() {
                return;
            }
        }
    });
    Ok(())
}

fn watch_session(session: Arc<dyn Live>, send: Sender<Event>) {
    std::thread::spawn(move || {
        while !session.wait(Duration::from_secs(3600)) {}
        let _ = send.send(Event::Ended);
    });
}

/// Waits for the mount to end, and ends it when told to. Says whether it did end.
fn wait(session: &dyn Live, events: &Receiver<Event>) -> bool {
    match events.recv() {
        Ok(Event::Stop) => {}
        Ok(Event::Ended) | Err(_) => return true,
    }
    tracing::info!("told to end");
    let begun = Instant::now();
    let mut gone = false;
    while begun.elapsed() < 2 * PATIENCE {
        let lazy = begun.elapsed() >= PATIENCE;
        if !gone {
            match session.unmount(lazy) {
                Ok(()) => gone = true,
                Err(error) => tracing::debug!("not unmounted yet: {error}"),
            }
        }
        match events.recv_timeout(RETRY) {
            Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => return true,
            Ok(Event::Stop) | Err(RecvTimeoutError::Timeout) => {}
        }
    }
    false
}

/// Why a system does not mount, where we can guess.
fn advise(error: MountError) -> Error {
    let denied = match &error {
        MountError::Io { source, .. } => {
            matches!(source.raw_os_error(), Some(code) if code == Errno::EPERM as i32 || code == Errno::EACCES as i32)
        }
        MountError::Store(_) | MountError::Refused(_) => false,
    };
    let missing = matches!(&error, MountError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
    let told = Error::from(error);
    match (denied, missing) {
        (true, _) => told.hint("in a container mounting needs `--device /dev/fuse --cap-add SYS_ADMIN`"),
        (_, true) => told.hint("install fuse3: without root, mounting needs its `fusermount3`"),
        (false, false) => told,
    }
}

/// The end of a log, for whoever wants to know why its daemon died.
pub(crate) fn tail(state: &StateDir) -> Option<String> {
    let text = state.files().read_within(&state.log(), ui::LONGEST_LOG).ok()?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(5)..];
    (!last.is_empty()).then(|| last.join("\n"))
}
