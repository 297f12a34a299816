//! A mirror from its beginning to its end: the real projection is kept in step with the store, both ways, by watching both
//! sides. It is what a mount is where nothing can be mounted.

mod rhythm;
mod watch;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use jp_store::ConversationId;
use jp_store::disk::Disk;
use jp_store::identity::Identity;
use jp_store::lock::{State as LockState, Wait};
use jp_store::plan::{Deed, Direction, Held, HeldKind, Plan, Wanted};
use jp_store::reconcile::ManagedFile;
use jp_store::store::{Store, Surroundings};
use jp_store::writer::{Reconciled, Writer};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use self::rhythm::{Outcome, Rhythm, Task};
use self::watch::Watch;
use crate::bell::{Asked, Bell, Waker, bell};
use crate::flag::Flag;
use crate::live::Live;
use crate::mount::{Brought, Error, Status};
use crate::refusal::Refusal;
use crate::vfs::Handled;

/// How long somebody who asks for a fresh look waits at most.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often is looked whether the workspace is still there, though nothing was heard of it.
const VIGIL: Duration = Duration::from_secs(10);

/// How the two sides of a mirror stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InStep {
    /// What stays as it is until a person does something about it.
    pub held: Vec<Left>,
    /// What somebody is working on; it is tried again when they let go.
    pub waiting: Vec<Left>,
    /// Why the last reconcile failed, if it did; it is tried again.
    pub failure: Option<String>,
    /// How many reconciles there have been.
    pub reconciles: u64,
    /// Whether nothing is to be done unless something happens.
    pub resting: bool,
}

/// Something that is not in step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Left {
    /// Whose, as `jp-c…`, where that is known.
    pub id: Option<String>,
    /// Why.
    pub reason: String,
}

impl From<&Held> for Left {
    fn from(held: &Held) -> Self {
        Self { id: held.id.map(|id| id.to_string()), reason: held.reason.clone() }
    }
}

/// A live mirror. Its work is done by a thread of its own.
#[derive(Debug)]
pub struct Mirror {
    home: Home,
    brought: Brought,
    shared: Arc<Shared>,
    waker: Waker,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread tells the others.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// No reconcile goes on any longer than it must.
    ending: AtomicBool,
    /// The thread is through.
    ended: Flag,
}

#[derive(Clone, Debug, Default)]
struct State {
    in_step: InStep,
    watching: bool,
    why_polled: Option<String>,
    shown: usize,
}

/// The store, and the workspace it is to be kept in step with.
#[derive(Clone, Debug)]
struct Home {
    writer: Writer,
    disk: Arc<dyn Disk>,
    storage: PathBuf,
    /// Another directory in its place is another workspace.
    identity: Identity,
}

/// What has become of the workspace.
enum Fate {
    There,
    /// It was removed, moved or replaced: not a word about any conversation in it.
    Gone,
    Unclear(io::Error),
}

impl Home {
    fn fate(&self) -> Fate {
        match Identity::of(&*self.disk, &self.storage) {
            Ok(found) if found.is_same(self.identity) => Fate::There,
            Ok(_) => Fate::Gone,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Fate::Gone,
            Err(error) => Fate::Unclear(error),
        }
    }

    /// Brings both sides in step, unless the workspace is gone.
    fn reconcile(&self, wait: &Wait<'_>, go_on: impl Fn() -> bool) -> Result<Option<Reconciled>, Error> {
        match self.fate() {
            Fate::There => {}
            Fate::Gone => return Ok(None),
            Fate::Unclear(source) => return Err(Error::Io { verb: "look at", path: self.storage.clone(), source }),
        }
        Ok(Some(self.writer.reconcile(&Wanted::all(Direction::Both), wait, &mut |_| go_on())?))
    }

    fn count_shown(&self) -> Result<usize, Error> {
        let snapshot = self.writer.store().snapshot()?;
        Ok(snapshot.all().filter(|found| found.work.is_some()).count())
    }
}

impl Mirror {
    /// Keeps the real files of the workspace at or above `start` in step with its store. When this returns they are.
    pub fn begin(around: Surroundings, start: &Path, poll: bool) -> Result<Arc<Self>, Error> {
        let disk = around.disk.clone();
        let store = Store::open(around, start)?;
        let storage = store.layout().storage.clone();
        if store.layout().is_single_root() {
            return Err(Error::Refused("there is no user-local storage, so there is nothing to mirror".to_owned()));
        }
        if store.layout().covered {
            return Err(Error::Refused(format!("something is mounted over the real files in {}", storage.display())));
        }
        let io = |verb: &'static str| {
            let path = storage.clone();
            move |source| Error::Io { verb, path, source }
        };
        let identity = Identity::of(&*disk, &storage).map_err(io("look at"))?;
        let (writer, migrated) = store.writer()?;
        let watch = Watch::begin(writer.store().layout(), writer.store().allowed(), poll);
        let home = Home { writer, disk, storage: storage.clone(), identity };
        let gone = || Error::Refused(format!("{} was replaced meanwhile", storage.display()));
        let first = home.reconcile(&Wait::none(), || true)?.ok_or_else(gone)?;

        let imports = first.steps.iter().filter(|step| step.deed == Deed::Import).count();
        let left = first.held.iter().chain(&first.busy).map(|held| held.reason.clone());
        let brought = Brought {
            imported: migrated.imported.len() + imports,
            refused: migrated.refused.into_iter().chain(left).collect(),
            returned: Vec::new(),
        };
        let (bell, waker) = bell().map_err(io("watch"))?;
        let shared = Arc::new(Shared::default());
        let rhythm = Rhythm::new(Instant::now(), !watch.is_watching());
        let mut keeper = Keeper { home: home.clone(), watch, bell, rhythm, busy: Vec::new(), shared: shared.clone() };
        shared.state.lock().shown = home.count_shown()?;
        keeper.note(&first);
        keeper.tell();
        let thread = thread::Builder::new().name("jp-mirror".to_owned()).spawn(move || keeper.run());
        let thread = thread.map_err(io("mirror"))?;
        Ok(Arc::new(Self { home, brought, shared, waker, thread: Mutex::new(Some(thread)) }))
    }
}

impl Live for Mirror {
    fn refresh(&self) -> Result<(), Error> {
        if !self.waker.look(PATIENCE) {
            tracing::warn!("a fresh look takes long");
        }
        match &self.shared.state.lock().in_step.failure {
            Some(failure) => Err(Error::Refused(failure.clone())),
            None => Ok(()),
        }
    }

    fn status(&self) -> Status {
        let state = self.shared.state.lock().clone();
        Status {
            staleness: if state.watching { "watching" } else { "polling" }.to_owned(),
            why_polled: state.why_polled,
            shown: state.shown,
            mirror: Some(state.in_step),
            ..Status::default()
        }
    }

    fn brought(&self) -> &Brought {
        &self.brought
    }

    fn unmount(&self, _lazy: bool) -> Result<(), Error> {
        // Nobody can be in it: the files are real.
        self.shared.ending.store(true, Ordering::SeqCst);
        self.waker.end();
        Ok(())
    }

    fn wait(&self, limit: Duration) -> bool {
        self.shared.ended.wait(limit)
    }

    fn finish(&self) -> Result<(), Error> {
        self.unmount(false)?;
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the mirror panicked");
        }
        Ok(())
    }

    fn plan(&self, wanted: &Wanted) -> Result<Plan, Error> {
        Ok(self.home.writer.store().plan(wanted)?)
    }

    fn reconcile(&self, wanted: &Wanted, wait: &Wait<'_>, caller: u32) -> Result<Reconciled, Error> {
        Ok(self.home.writer.on_behalf_of(caller).reconcile(wanted, wait, &mut |_| true)?)
    }

    /// A mirror has no drafts: its files are real.
    fn give_up(&self, _id: ConversationId, _file: Option<ManagedFile>) -> Result<Handled, Error> {
        Ok(Err(Refusal::Absent))
    }

    fn apply(&self, _: ConversationId, _: Option<ManagedFile>, _force: bool, _caller: u32) -> Result<Handled, Error> {
        Ok(Err(Refusal::Absent))
    }

    fn follow(&self, wait: &Wait<'_>) -> Result<Vec<Held>, Error> {
        let last = self.home.reconcile(wait, || true)?.unwrap_or_default();
        let held = last.held.into_iter().filter(|held| held.kind != HeldKind::Unjoined);
        Ok(held.chain(last.busy).collect())
    }
}

/// Whoever does the work.
struct Keeper {
    home: Home,
    watch: Watch,
    bell: Bell,
    rhythm: Rhythm,
    /// What somebody was working on.
    busy: Vec<Option<ConversationId>>,
    shared: Arc<Shared>,
}

impl Keeper {
    /// Keeps both sides in step until the end.
    fn run(mut self) {
        let mut asked = Asked::default();
        loop {
            let next = self.next(&asked).map(|(at, _)| at.saturating_duration_since(Instant::now()));
            asked.add(self.bell.wait(self.watch.descriptor(), Some(next.unwrap_or(VIGIL).min(VIGIL))));
            if asked.end {
                break;
            }
            self.notice();
            if matches!(self.home.fate(), Fate::Gone) {
                tracing::info!("{} is gone; the store stays as it is", self.home.storage.display());
                break;
            }
            match self.next(&asked).filter(|(at, _)| *at <= Instant::now()) {
                Some((_, Task::Reconcile)) => {
                    self.reconcile();
                    self.tell();
                    std::mem::take(&mut asked).answer();
                }
                Some((_, Task::Probe)) if self.is_any_free() => self.reconcile(),
                Some((_, Task::Probe)) => self.rhythm.probed(Instant::now()),
                None => {}
            }
            self.tell();
        }
        self.shared.ended.set();
    }

    /// What is to be done next, and when. Whoever asks for a fresh look waits for nobody but those who remove things.
    fn next(&self, asked: &Asked) -> Option<(Instant, Task)> {
        if asked.looks.is_empty() {
            return self.rhythm.next();
        }
        Some((self.rhythm.removing_until().unwrap_or_else(Instant::now), Task::Reconcile))
    }

    fn notice(&mut self) {
        let was = self.watch.is_watching();
        let noticed = self.watch.take();
        let now = Instant::now();
        if noticed.removed {
            self.rhythm.removed(now);
        } else if noticed.changed {
            self.rhythm.changed(now);
        }
        if noticed.unlocked {
            self.rhythm.unlocked(now);
        }
        if was && !self.watch.is_watching() {
            self.rhythm.poll();
        }
    }

    fn reconcile(&mut self) {
        self.rhythm.begin();
        let shared = self.shared.clone();
        let result = self.home.reconcile(&Wait::none(), || !shared.ending.load(Ordering::SeqCst));
        let shown = match &result {
            Ok(Some(done)) if !done.steps.is_empty() => self.home.count_shown().map(Some),
            _ => Ok(None),
        };
        match result.and_then(|done| Ok((done, shown?))) {
            Ok((Some(done), shown)) => {
                if let Some(shown) = shown {
                    tracing::info!("brought in step: {} done", done.steps.len());
                    self.shared.state.lock().shown = shown;
                }
                self.note(&done);
            }
            // The next look ends it.
            Ok((None, _)) => self.rhythm.end(Instant::now(), Outcome::InStep),
            Err(error) => self.fail(&error),
        }
        self.shared.state.lock().in_step.reconciles += 1;
        // What it did itself has happened, too: whoever says that there is nothing to do has to know.
        self.notice();
    }

    /// Remembers what a reconcile left. What is new of that is told once.
    fn note(&mut self, done: &Reconciled) {
        self.busy = done.busy.iter().map(|held| held.id).collect();
        self.rhythm.end(Instant::now(), if done.busy.is_empty() { Outcome::InStep } else { Outcome::Busy });
        let lefts = |held: &[Held]| held.iter().map(Left::from).collect::<Vec<_>>();
        let (held, waiting) = (lefts(&done.held), lefts(&done.busy));
        let in_step = &mut self.shared.state.lock().in_step;
        for left in held.iter().filter(|left| !in_step.held.contains(left)) {
            tracing::warn!("left as it is: {}", left.reason);
        }
        for left in waiting.iter().filter(|left| !in_step.waiting.contains(left)) {
            tracing::info!("waiting: {}", left.reason);
        }
        in_step.held = held;
        in_step.waiting = waiting;
        in_step.failure = None;
    }

    fn fail(&mut self, error: &Error) {
        self.rhythm.end(Instant::now(), Outcome::Failed);
        let chain = std::iter::successors(Some(error as &dyn std::error::Error), |cause| cause.source());
        let failure = chain.map(ToString::to_string).collect::<Vec<_>>().join(": ");
        let in_step = &mut self.shared.state.lock().in_step;
        if in_step.failure.as_ref() != Some(&failure) {
            tracing::error!("not brought in step: {failure}");
        }
        in_step.failure = Some(failure);
    }

    /// Whether one of those that somebody was working on is free by now, as far as that can be told.
    fn is_any_free(&self) -> bool {
        let Ok(locks) = self.home.writer.store().locks().list() else { return true };
        let held = |id| locks.iter().any(|lock| lock.id == id && lock.state == LockState::Held);
        self.busy.iter().any(|id| id.is_none_or(|id| !held(id)))
    }

    fn tell(&self) {
        let state = &mut *self.shared.state.lock();
        state.watching = self.watch.is_watching();
        state.why_polled = self.watch.why_polled();
        state.in_step.resting = self.rhythm.is_resting();
    }
}
