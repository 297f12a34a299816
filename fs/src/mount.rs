//! A mount from its beginning to its end: the store is made ready, the kernel is greeted, and a few threads do what has to
//! be done beside answering.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use jp_store::ConversationId;
use jp_store::beneath::{AllowedDirs, trusted};
use jp_store::boundaries::check_mount_point;
use jp_store::lock::Wait;
use jp_store::plan::{Held, Plan, Wanted};
use jp_store::reconcile::ManagedFile;
use jp_store::store::{Store, Surroundings};
use jp_store::writer::{Reconciled, Writer};
use parking_lot::Mutex;

use crate::backing::RealBacking;
use crate::bell::Waker;
use crate::caller::Caller;
use crate::flag::Flag;
use crate::host::fuse;
use crate::live::Live;
use crate::memory::Memory;
use crate::mirror::InStep;
use crate::remembering::{Forgetting, Remembering};
use crate::teller::{self, Outbox};
use crate::vfs::{Handled, Rules, Seen, Vfs};
use crate::watch::{Standing, Watch};

/// How often drafts are looked after: twice in the time they may take to reach the disk.
const TENDING: Duration = Duration::from_millis(100);
/// How many threads fetch ahead. They wait for the disk, and it serves several as fast as one.
const FETCHERS: usize = 4;
/// How long somebody who asks for a fresh look waits at most.
const PATIENCE: Duration = Duration::from_secs(5);

/// How to mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Nothing can be changed through the mount.
    pub read_only: bool,
    /// Also shows what is not projected in this worktree.
    pub all: bool,
    /// A save that is no document fails with `EINVAL`; its bytes are kept as a draft all the same.
    pub strict: bool,
    /// Other users may look.
    pub allow_other: bool,
    /// Answers `user.jp.*` attributes.
    pub xattrs: bool,
    /// Answers every open, as kernels need it that cannot do without.
    pub compat_open: bool,
    /// Looks at the store once a second instead of watching it.
    pub poll: bool,
}

/// Why there is no mount, or why it could not be ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store says no.
    #[error(transparent)]
    Store(#[from] jp_store::Error),
    /// The system says no.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        verb: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is nothing that could be mounted.
    #[error("{0}")]
    Refused(String),
}

/// How things stand in a live mount.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Status {
    /// How changes beside the mount are noticed: `"watching"`, or `"polling"` once a second.
    pub staleness: String,
    /// Why it polls, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_polled: Option<String>,
    /// Conversations shown.
    pub shown: usize,
    /// Conversations that have begun to arrive, and what each still needs.
    pub arrivals: Vec<Arrival>,
    /// What of the real files could not be taken into the store when the mount began, and why.
    #[serde(default)]
    pub refused: Vec<String>,
    /// How its two sides stand, where it is a mirror.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<InStep>,
}

/// What the real files brought when the mount covered them.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Brought {
    /// How many conversations only the real files had.
    pub imported: usize,
    /// What could not be taken into the store, and why. It stays where it is.
    pub refused: Vec<String>,
    /// What the store had lost, or what was removed for good and edited here, and is in the store again.
    #[serde(default)]
    pub returned: Vec<String>,
}

/// A new conversation that is not whole yet.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Arrival {
    /// Its id, as `jp-c…`.
    pub id: String,
    /// What it still needs.
    pub needs: String,
}

/// A live mount. The kernel is served from its own threads.
#[derive(Debug)]
pub struct Session {
    vfs: Arc<Vfs>,
    point: PathBuf,
    outbox: Outbox,
    waker: Waker,
    watching: Arc<Standing>,
    brought: Brought,
    ended: Arc<Flag>,
    ending: Arc<Flag>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    ground: Ground,
}

/// What the mount stands on.
#[derive(Debug)]
struct Ground {
    /// The real directory beneath the mount, held from before it was covered.
    _under: File,
    /// How its files are reached without going through the mount.
    reached: PathBuf,
    /// The store as it is with the real files in reach, where the mount covers them.
    real: Option<Writer>,
    /// What the store's directories looked like.
    memory: Arc<Memory>,
}

impl Session {
    /// Mounts the projection of the workspace at or above `start` on `point`, which is a directory. When this returns the
    /// tree can be listed.
    pub fn begin(mut around: Surroundings, start: &Path, point: &Path, options: &Options) -> Result<Arc<Self>, Error> {
        let memory = Arc::new(Memory::default());
        around.disk = Arc::new(Forgetting::new(around.disk, memory.clone()));
        let io = |verb: &'static str| move |source| Error::Io { verb, path: point.to_owned(), source };
        let under = trusted::open_dir(point).map_err(io("open"))?;
        let reached = AllowedDirs::path_of(&under);
        around.disk.allowed().allow_open(&reached, under.try_clone().map_err(io("open"))?.into());
        // Until something is mounted on it, the point leads to the real files by the shorter way.
        let plain = Store::open_uncovered(around.clone(), start)?;
        if plain.layout().is_single_root() {
            return Err(Error::Refused("there is no user-local storage, so there is nothing to mount".to_owned()));
        }
        let home = plain.layout().storage.join(jp_store::layout::CONVERSATIONS);
        let covers = home == point || trusted::canonical(&home).is_ok_and(|home| home == point);
        check_mount_point(plain.layout(), point)?;
        if !covers {
            let (writer, migrated) = Store::open(around, start)?.writer()?;
            let rest = writer.import_all()?;
            let brought = Brought {
                imported: migrated.imported.len() + rest.imported.len(),
                refused: migrated.refused.into_iter().chain(rest.refused).collect(),
                returned: Vec::new(),
            };
            let seen = Seen::of(writer.store()).map_err(refusal)?;
            let ground = Ground { _under: under, reached, real: None, memory };
            return Self::serve(writer, seen, ground, point, options, brought);
        }
        let (plain, migrated) = plain.writer()?;
        let cover = || Ok(plain.cover_and_look()?);
        let (covered, seen) = Seen::by(plain.store(), cover).map_err(refusal)?;
        let real = plain.reached_at(reached.clone());
        let brought = Brought {
            imported: migrated.imported.len() + covered.imported.len(),
            refused: migrated.refused.into_iter().chain(covered.refused).collect(),
            returned: covered.returned,
        };
        let (writer, _) = real.store().covered().writer()?;
        let ground = Ground { _under: under, reached, real: Some(real.clone()), memory };
        Self::serve(writer, seen, ground, point, options, brought).inspect_err(|_| {
            // Nothing covers the real files after all.
            if let Err(error) = real.uncover(&Wait::none()) {
                tracing::warn!(%error, "the real files could not follow");
            }
        })
    }

    fn serve(
        writer: Writer,
        mut seen: Seen,
        ground: Ground,
        point: &Path,
        options: &Options,
        brought: Brought,
    ) -> Result<Arc<Self>, Error> {
        let io = |verb: &'static str| move |source| Error::Io { verb, path: point.to_owned(), source };
        let (outbox, inbox) = teller::post();
        let (mut watch, waker) =
            Watch::new(writer.store().layout().clone(), writer.store().allowed().clone(), options.poll)
                .map_err(io("watch the store of"))?;
        watch.memory = ground.memory.clone();
        let watching = watch.standing();
        let (found, keeper) = (seen.take_found(), writer.clone());
        let rules =
            Rules { read_only: options.read_only, all: options.all, strict: options.strict, xattrs: options.xattrs };
        let backing =
            Arc::new(Remembering::new(RealBacking::new(writer.store().allowed().clone()), ground.memory.clone()));
        let under = ground.reached.clone();
        let vfs = Vfs::with(writer, backing, under, rules, outbox.clone(), Some(seen)).map_err(refusal)?;
        let vfs = Arc::new(vfs);
        inbox.clear();
        let served = fuse::mount(vfs.clone(), point, options).map_err(io("mount on"))?;
        let (ended, ending) = (Arc::new(Flag::default()), Arc::new(Flag::default()));
        let kernel = fuse::Told(served.notifier());
        let session = Self {
            vfs: vfs.clone(),
            point: point.to_owned(),
            outbox,
            waker,
            watching,
            brought,
            ended: ended.clone(),
            ending: ending.clone(),
            threads: Mutex::default(),
            ground,
        };
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let handle = thread::Builder::new().name(name.to_owned()).spawn(work).map_err(io("serve"))?;
            session.threads.lock().push(handle);
            Ok::<_, Error>(())
        };
        let serving = Box::new(move || {
            if let Err(error) = served.run() {
                tracing::error!(%error, "the mount ended badly");
            }
            ended.set();
        });
        spawn("jp-serve", serving)?;
        let told = vfs.clone();
        spawn("jp-tell", Box::new(move || inbox.run(&told, &kernel)))?;
        let watched = vfs.clone();
        spawn("jp-watch", Box::new(move || watch.run(&watched)))?;
        for _ in 0..FETCHERS {
            let read = vfs.clone();
            spawn("jp-ahead", Box::new(move || read.fetch_ahead()))?;
        }
        spawn("jp-index", Box::new(move || keeper.keep_found(&found)))?;
        spawn("jp-tend", Box::new(move || tend(&vfs, &ending)))?;
        Ok(Arc::new(session))
    }

    /// Waits until the kernel was told what went stale.
    fn tell_kernel(&self) {
        if !self.outbox.flush(PATIENCE) {
            tracing::warn!("the kernel is told late");
        }
    }

    fn real(&self) -> Result<&Writer, Error> {
        let refused = || Error::Refused("this mount does not lie over the real files".to_owned());
        self.ground.real.as_ref().ok_or_else(refused)
    }
}

impl Live for Session {
    /// Looks at the store again and tells the kernel what changed; when this returns it has been told.
    fn refresh(&self) -> Result<(), Error> {
        if !self.waker.look(PATIENCE) || !self.outbox.flush(PATIENCE) {
            tracing::warn!("a fresh look takes long");
        }
        Ok(())
    }

    /// Drafts are on disk when this returns.
    fn status(&self) -> Status {
        self.vfs.tend_drafts();
        let is_watching = self.watching.is_watching(PATIENCE);
        Status {
            staleness: if is_watching { "watching" } else { "polling" }.to_owned(),
            why_polled: if is_watching { None } else { self.watching.why_polled() },
            shown: self.vfs.count_shown(),
            arrivals: self.vfs.arrivals(),
            refused: self.brought.refused.clone(),
            mirror: None,
        }
    }

    fn brought(&self) -> &Brought {
        &self.brought
    }

    /// Takes the mount away. Fails with `EBUSY` while somebody is in it, and while a draft cannot be brought to disk and
    /// would be lost, unless `lazy`.
    fn unmount(&self, lazy: bool) -> Result<(), Error> {
        let kept = self.vfs.keep_drafts().map_err(refusal);
        if !lazy {
            kept?;
        }
        unmount(&self.point, lazy).map_err(|source| Error::Io { verb: "unmount", path: self.point.clone(), source })
    }

    fn wait(&self, limit: Duration) -> bool {
        self.ended.wait(limit)
    }

    /// Brings drafts to disk and ends the threads. To be called once the mount is gone.
    fn finish(&self) -> Result<(), Error> {
        self.waker.end();
        self.outbox.end();
        self.vfs.end_ahead();
        self.ending.set();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the mount panicked");
            }
        }
        // Nobody asks any more, and what follows needs room.
        self.ground.memory.forget_all();
        self.vfs.tend_drafts();
        self.vfs.keep_former();
        self.vfs.writer().catch_up()?;
        self.vfs.writer().fold()?;
        Ok(())
    }

    fn plan(&self, wanted: &Wanted) -> Result<Plan, Error> {
        Ok(self.real()?.store().plan(wanted)?)
    }

    fn reconcile(&self, wanted: &Wanted, wait: &Wait<'_>, caller: u32) -> Result<Reconciled, Error> {
        let done = self.real()?.on_behalf_of(caller).reconcile(wanted, wait, &mut |_| true);
        // What failed may have changed something before it did.
        self.refresh()?;
        Ok(done?)
    }

    fn give_up(&self, id: ConversationId, file: Option<ManagedFile>) -> Result<Handled, Error> {
        let handled = match file {
            Some(file) => self.vfs.give_up_draft(id, file),
            None => self.vfs.give_up_arrival(id),
        };
        self.tell_kernel();
        handled.map_err(refusal)
    }

    fn apply(&self, id: ConversationId, file: Option<ManagedFile>, force: bool, caller: u32) -> Result<Handled, Error> {
        let caller = Caller { pid: caller };
        let handled = match file {
            Some(file) => self.vfs.apply_draft(caller, id, file, force),
            None => self.vfs.apply_arrival(caller, id),
        };
        self.tell_kernel();
        handled.map_err(refusal)
    }

    /// Makes the real files follow what the mount showed. To be called after [`Session::finish`].
    fn follow(&self, wait: &Wait<'_>) -> Result<Vec<Held>, Error> {
        match &self.ground.real {
            Some(real) => {
                // People know the files by the path that the mount had.
                let (reached, point) = (self.ground.reached.display().to_string(), self.point.display().to_string());
                let named = |held: Held| Held { reason: held.reason.replace(&reached, &point), ..held };
                Ok(real.uncover(wait)?.kept.into_iter().map(named).collect())
            }
            None => Ok(Vec::new()),
        }
    }
}

fn refusal(error: crate::error::FsError) -> Error {
    match error {
        crate::error::FsError::Store(error) => Error::Store(error),
        error => Error::Refused(error.to_string()),
    }
}

/// Looks after drafts and after what was given for a while.
fn tend(vfs: &Vfs, ending: &Flag) {
    let mut round = 0_u32;
    while !ending.wait(TENDING) {
        vfs.tend_drafts();
        vfs.end_fresh();
        round = round.wrapping_add(1);
        if round.is_multiple_of(5)
            && let Err(error) = vfs.tend_disk()
        {
            tracing::warn!(%error, "what was saved has not reached the disk yet");
        }
        if round.is_multiple_of(10) {
            // All of it is read and parsed for that.
            vfs.tend_arrivals();
            if let Err(error) = vfs.tend_hidden() {
                tracing::warn!(%error, "what is hidden of files that are gone could not be dropped");
            }
        }
        if round.is_multiple_of(20) {
            vfs.keep_former();
        }
    }
}

/// Takes a mount away: by ourselves where that is allowed, else by way of the program that is allowed to.
pub fn unmount(point: &Path, lazy: bool) -> io::Result<()> {
    use nix::errno::Errno;
    use nix::mount::{MntFlags, umount2};
    let flags = MntFlags::UMOUNT_NOFOLLOW | if lazy { MntFlags::MNT_DETACH } else { MntFlags::empty() };
    match umount2(point, flags) {
        Ok(()) => Ok(()),
        Err(Errno::EPERM) => {
            let mut command = Command::new("fusermount3");
            command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(point);
            let output = command.output()?;
            if output.status.success() {
                return Ok(());
            }
            let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let busy = text.contains("busy");
            Err(if busy { io::Error::from_raw_os_error(libc::EBUSY) } else { io::Error::other(text) })
        }
        Err(error) => Err(error.into()),
    }
}
