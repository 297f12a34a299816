//! The store as commands see it: opened for one workspace, looked at as snapshots. Reading changes nothing, not an mtime;
//! whoever wants to change something asks for a [`Writer`](crate::writer::Writer).

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::beneath::AllowedDirs;
use crate::boundaries;
use crate::conflict::{self, Kept};
use crate::conversation::Conversation;
use crate::disk::{Contents, Disk};
use crate::error::{Context as _, Error, Result};
use crate::events::Stream;
use crate::files::stat;
use crate::identity::Identity;
use crate::journal::{self, Footing};
use crate::layout::{Layout, managed};
use crate::ledger::{Head, Ledger, Survey};
use crate::lock::{self, Holder, LockDir};
use crate::observe::{UnitBytes, glance, read_file, stat_file};
use crate::plan::{Direction, Form, HeldKind, Plan, Wanted};
use crate::problem::Problem;
use crate::recall::Recall;
use crate::reconcile::{ManagedFile, Unit, is_conclusive};
use crate::session::{Session, SessionDir};
use crate::sighting::Looked;
use crate::snapshot::{Sight, Snapshot, Standing};
use crate::time::Timestamp;
use crate::workspace::{Workspace, WorkspaceId};
use crate::worktrees::is_named_by_store;

/// How often the ledger is read again when it is written anew meanwhile.
const PATIENCE: usize = 16;

/// The verb of a data directory that cannot be used.
pub const DATA_DIR: &str = "use the data directory";

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Tells whether something is mounted over a directory.
pub type Cover = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// What the store needs to know of the world it is opened in.
#[derive(Clone)]
pub struct Surroundings {
    /// The filesystem.
    pub disk: Arc<dyn Disk>,
    /// Where per-user data is kept; `None` where there is no user-local storage.
    pub data_dir: Option<PathBuf>,
    /// This process.
    pub pid: u32,
    /// This terminal.
    pub session: Option<Session>,
    /// The time.
    pub clock: Clock,
    /// Whether something is mounted over this directory.
    pub covered: Cover,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("data_dir", &self.data_dir).field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl Surroundings {
    /// From now on files beneath the data directory can be reached.
    fn ready(mut self) -> Result<Self> {
        // Spelled in one way, because paths beneath it are recognised by their beginning.
        self.data_dir = self.data_dir.map(|dir| dir.components().collect());
        if let Some(dir) = &self.data_dir {
            self.disk.allowed().allow(dir).context(DATA_DIR, dir)?;
        }
        Ok(self)
    }
}

/// One workspace's conversations.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) around: Surroundings,
    pub(crate) workspace: Workspace,
    pub(crate) layout: Layout,
}

impl Store {
    /// Opens the store of the workspace at or above `start`.
    pub fn open(around: Surroundings, start: &Path) -> Result<Self> {
        let around = around.ready()?;
        let workspace = Workspace::find(&*around.disk, start)?;
        Self::of(around, workspace)
    }

    /// Opens the store of the workspace with this id, wherever its project is.
    pub fn open_by_id(around: Surroundings, id: &WorkspaceId) -> Result<Self> {
        let around = around.ready()?;
        let data_dir = around.data_dir.clone().unwrap_or_default();
        let workspace = Workspace::find_by_id(&*around.disk, &data_dir, id)?;
        Self::of(around, workspace)
    }

    fn of(around: Surroundings, workspace: Workspace) -> Result<Self> {
        let layout = workspace.layout(&*around.disk, around.data_dir.as_deref())?;
        let covered = (around.covered)(&layout.shown().conversations);
        let layout = if covered { layout.cover() } else { layout };
        Self::checked(around, workspace, layout)
    }

    /// As [`Store::open`], for whoever knows that nothing is mounted over the workspace's conversations.
    pub fn open_uncovered(around: Surroundings, start: &Path) -> Result<Self> {
        let around = around.ready()?;
        let workspace = Workspace::find(&*around.disk, start)?;
        let layout = workspace.layout(&*around.disk, around.data_dir.as_deref())?;
        Self::checked(around, workspace, layout)
    }

    /// As [`Store::open`], for whoever mounts something over the workspace's conversations and knows better than the
    /// system whether they are covered. Their real files are reached at `work`, beneath the mount.
    pub fn open_with_work(around: Surroundings, start: &Path, work: PathBuf, covered: bool) -> Result<Self> {
        let around = around.ready()?;
        let workspace = Workspace::find(&*around.disk, start)?;
        let mut layout = workspace.layout(&*around.disk, around.data_dir.as_deref())?;
        if let Some(root) = &mut layout.work {
            root.conversations = work;
        }
        let layout = if covered { layout.cover() } else { layout };
        Self::checked(around, workspace, layout)
    }

    fn checked(around: Surroundings, workspace: Workspace, layout: Layout) -> Result<Self> {
        boundaries::check(&*around.disk, &layout, around.data_dir.as_deref())?;
        Ok(Self { around, workspace, layout })
    }

    /// The same store for whoever works beneath a mount over the workspace's conversations.
    pub fn covered(&self) -> Self {
        Self { layout: self.layout.clone().cover(), ..self.clone() }
    }

    /// The workspace.
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Where everything is.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.around.clock)()
    }

    /// This terminal.
    pub fn session(&self) -> Option<&Session> {
        self.around.session.as_ref()
    }

    /// All conversations as they are now.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.snapshot_with(if self.layout.covered { Sight::Covered } else { Sight::Usual })
    }

    pub(crate) fn snapshot_with(&self, sight: Sight) -> Result<Snapshot> {
        let (ledger, known) = self.read_ledger_and_standing()?;
        self.snapshot_of(ledger, known, sight)
    }

    fn snapshot_of(&self, ledger: Ledger, known: bool, sight: Sight) -> Result<Snapshot> {
        let standing = Standing { known, now: self.now() };
        let (mirror, problems) = self.look_at_mirror()?;
        let recall = Recall::load(self.disk(), &self.layout.store, nanoseconds(self.now()));
        let mut snapshot = Snapshot::take_with(self.disk(), &self.layout, &recall, ledger, mirror, sight, standing)?;
        snapshot.note(problems);
        Ok(snapshot)
    }

    /// How this worktree lays its real files out.
    pub fn form(&self) -> Result<Form> {
        Ok(self.ledger_head()?.form)
    }

    /// Whether a mount has left the real files behind.
    pub fn is_behind(&self) -> Result<bool> {
        Ok(self.ledger_head()?.covered)
    }

    /// What the ledger says of the worktree as a whole.
    pub(crate) fn ledger_head(&self) -> Result<Head> {
        let (contents, lines, footing) = self.read_books()?;
        let workspace = self.identity()?;
        let parsed = contents.and_then(|contents| Head::parse(&contents.bytes, workspace));
        let mut head = parsed.unwrap_or_else(Head::of_none);
        head.covered |= journal::covers(lines.as_ref().map_or(&[], |lines| &lines.bytes), footing);
        Ok(head)
    }

    /// What would be done to bring the real files and the store in step. Changes nothing.
    pub fn plan(&self, wanted: &Wanted) -> Result<Plan> {
        self.look(wanted).map(|looked| looked.plan)
    }

    /// How many conversations are not in step in this direction. A copy that is not joined has nothing to follow.
    pub fn count_out_of_step(&self, direction: Direction) -> Result<usize> {
        let plan = self.plan(&Wanted::all(direction))?;
        let held = plan.held.iter().filter(|held| held.kind != HeldKind::Unjoined).map(|held| held.id);
        let steps = plan.steps.iter().map(|step| Some(step.id));
        Ok(steps.chain(held).collect::<HashSet<_>>().len())
    }

    /// Looks without a lock: what is renamed by somebody meanwhile is looked for again.
    pub(crate) fn look(&self, wanted: &Wanted) -> Result<Looked> {
        for _ in 1..PATIENCE {
            match self.look_once(wanted) {
                Err(error) if error.is_absence() => {}
                looked => return looked,
            }
        }
        self.look_once(wanted)
    }

    fn look_once(&self, wanted: &Wanted) -> Result<Looked> {
        let (ledger, known) = self.read_ledger_and_standing()?;
        let sight = match (self.layout.covered, ledger.covered) {
            (true, _) => Sight::Covered,
            (false, true) => Sight::Beneath,
            (false, false) => Sight::Usual,
        };
        let mut snapshot = self.snapshot_of(ledger, known, sight)?;
        let joined = wanted.joined_of(&snapshot);
        if !joined.is_empty() {
            let mut ledger = snapshot.ledger;
            joined.into_iter().for_each(|id| ledger.join(id));
            snapshot = self.snapshot_of(ledger, known, sight)?;
        }
        for id in wanted.brought_back() {
            snapshot.forget_removal(self.disk(), &self.layout, id)?;
        }
        if let Some(form) = wanted.form.filter(|form| *form != snapshot.ledger.form) {
            snapshot.ledger.set_form(form);
        }
        Looked::at(self.disk(), &self.layout, &snapshot, wanted)
    }

    /// The events of a conversation and its base configuration, from the copy that is current.
    pub fn stream(&self, snapshot: &Snapshot, conversation: &Conversation) -> Result<StreamBytes> {
        let (bytes, problems) = conversation.stream(self.disk(), snapshot.base(conversation.id))?;
        let (events, base_config) = match bytes {
            Some(bytes) => (take(&bytes, ManagedFile::Events), take(&bytes, ManagedFile::BaseConfig)),
            None => (None, None),
        };
        Ok(StreamBytes { events, base_config, problems })
    }

    /// The bytes of `events.json` in the copy that is current, whatever they are; `None` when it has none.
    pub fn raw_events(&self, snapshot: &Snapshot, conversation: &Conversation) -> Result<Option<Vec<u8>>> {
        let (dirs, base) = (conversation.dirs(), snapshot.base(conversation.id));
        if let (Some(store), Some(work), Some(base)) = (dirs.store, dirs.work, base) {
            // Nearly always both are as they were left, and the store's is read anyway.
            let remembered = base.file(ManagedFile::Events);
            let stored = read_file(self.disk(), &managed(store, ManagedFile::Events))?;
            let stamp = stored.as_ref().map(|contents| contents.stat.into());
            let shown = stat_file(self.disk(), &managed(work, ManagedFile::Events))?;
            if is_conclusive(remembered.store, stamp, base.taken) && is_conclusive(remembered.work, shown, base.taken) {
                return Ok(stored.map(|contents| contents.bytes));
            }
        }
        let root = glance(self.disk(), Unit::Stream, dirs, base, conversation.rule)?;
        let Some(dir) = dirs.of(root) else { return Ok(None) };
        Ok(read_file(self.disk(), &managed(dir, ManagedFile::Events))?.map(|contents| contents.bytes))
    }

    /// The locks.
    pub fn locks(&self) -> LockDir {
        let is_single = self.layout.is_single_root();
        let fallback = (!is_single).then(|| self.layout.storage.join("locks"));
        let root = &self.layout.store;
        let locks = LockDir::new(self.around.disk.clone(), root.locks(), fallback, root.borrowed());
        if is_single { locks.in_project() } else { locks }
    }

    /// The session files.
    pub fn sessions(&self) -> SessionDir {
        SessionDir::new(self.around.disk.clone(), self.layout.store.sessions())
    }

    /// What is in the place of the store's lock files, session files and their directories. It is left alone.
    pub fn in_the_way(&self) -> Result<Vec<Error>> {
        let root = &self.layout.store;
        let mut found = self.locks().in_the_way()?;
        found.extend(self.sessions().in_the_way()?);
        let state = self.layout.worktree_state();
        let internal =
            ["ids.lock", "tree.lock", "removed.lock", "sessions.lock", "merge.lock"].map(|name| root.vfs().join(name));
        let here = ["projection.lock", "mount.lock"].map(|name| state.join(name));
        for path in internal.into_iter().chain(here) {
            found.extend(lock::check_file(self.disk(), &path).err());
        }
        Ok(found)
    }

    /// The losing sides of conflicts that are kept.
    pub fn conflicts(&self) -> Result<Vec<Kept>> {
        conflict::list(self.disk(), &self.layout.store.conflicts())
    }

    /// Who this process is to others that want a lock it holds.
    pub fn holder(&self) -> Holder {
        Holder {
            pid: Some(self.around.pid),
            session: self.around.session.as_ref().map(|session| session.value.clone()),
            since: Some(self.now()),
        }
    }

    /// The directories beneath which files are reached.
    pub fn allowed(&self) -> &AllowedDirs {
        self.around.disk.allowed()
    }

    /// The filesystem.
    pub fn disk(&self) -> &dyn Disk {
        &*self.around.disk
    }

    /// The worktree's ledger with its journal. One that was made for another `.jp` directory, or does not parse, counts
    /// as none.
    pub fn read_ledger(&self) -> Result<Ledger> {
        self.read_ledger_and_validity().map(|(ledger, _)| ledger)
    }

    /// The worktree's ledger, and whether the store knows the worktree: it has a valid ledger, or a silo names it. Writers
    /// point the silo's link at the worktree only after its ledger is on disk.
    pub(crate) fn read_ledger_and_standing(&self) -> Result<(Ledger, bool)> {
        let (ledger, is_valid) = self.read_ledger_and_validity()?;
        let vouches = is_valid && ledger.survey != Survey::Pending;
        // Beneath a mount nobody looks at copies.
        let known = vouches || self.layout.work.is_none() || is_named_by_store(self.disk(), &self.layout)?;
        Ok((ledger, known))
    }

    fn read_ledger_and_validity(&self) -> Result<(Ledger, bool)> {
        let (contents, lines, footing) = self.read_books()?;
        let workspace = self.identity()?;
        let parsed = contents.and_then(|contents| Ledger::parse(&contents.bytes, workspace));
        let is_valid = parsed.is_some();
        let mut ledger = parsed.unwrap_or_else(|| Ledger::new(workspace));
        journal::replay(&mut ledger, lines.as_ref().map_or(&[], |lines| &lines.bytes), footing);
        // Whoever writes this down wrote beneath a mount.
        ledger.covered |= self.layout.covered;
        Ok((ledger, is_valid))
    }

    /// The ledger's file, its journal, and what a line of that has to stand on to count.
    fn read_books(&self) -> Result<(Option<Contents>, Option<Contents>, Footing)> {
        let workspace = self.identity()?;
        let (file, journal) = (self.layout.projection_file(), self.layout.journal_file());
        let mut tries = 0;
        loop {
            let contents = read_file(self.disk(), &file)?;
            let footing = Footing::new(workspace, contents.as_ref().map(|contents| contents.stat));
            let lines = read_file(self.disk(), &journal)?;
            // Whoever wrote the ledger anew between the two reads has removed the journal of the one that was read.
            tries += 1;
            if footing == self.footing()? || tries >= PATIENCE {
                return Ok((contents, lines, footing));
            }
        }
    }

    /// What a line of the journal written now is written on top of.
    pub(crate) fn footing(&self) -> Result<Footing> {
        let file = self.layout.projection_file();
        Ok(Footing::new(self.identity()?, stat(self.disk(), &file)?))
    }

    pub(crate) fn identity(&self) -> Result<Identity> {
        Identity::of(self.disk(), &self.layout.storage).context("look at", &self.layout.storage)
    }
}

/// The bytes of a conversation's stream.
#[derive(Clone, Debug)]
pub struct StreamBytes {
    /// `events.json`; `None` when no copy of it is sound.
    pub events: Option<Vec<u8>>,
    /// `base_config.json`; `None` in the legacy layout, where the first event carries it.
    pub base_config: Option<Vec<u8>>,
    /// Why a copy was passed over.
    pub problems: Vec<Problem>,
}

impl StreamBytes {
    /// The events, parsed; empty when there are none to be read.
    pub fn parse(&self) -> Stream {
        self.events.as_deref().and_then(|bytes| Stream::parse(bytes).ok()).unwrap_or_default()
    }
}

fn nanoseconds(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(i64::MIN)
}

fn take(bytes: &UnitBytes, file: ManagedFile) -> Option<Vec<u8>> {
    bytes.file(file).map(|contents| contents.bytes.clone())
}
