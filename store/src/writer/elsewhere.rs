//! Writes the projection to another directory, which is nobody's worktree: one way only. What is there and was not written
//! by an earlier export is left alone and told of; a list of what was written tells the two apart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::reconcile::{Going, is_everybodys};
use super::{Progress, Reconciled, Writer};
use crate::boundaries;
use crate::conversation::Conversation;
use crate::disk::{Disk, Kind};
use crate::error::{Context as _, Error, Result};
use crate::files::{NewContent, NewFile, Scratch, gather, kind, make_dirs};
use crate::id::ConversationId;
use crate::layout::{Layout, WorkRoot, managed};
use crate::meta::Meta;
use crate::modes::Access;
use crate::observe::{read_file, unmanaged};
use crate::own::{hides, is_exported, leads_inside, take_too_large};
use crate::parallel;
use crate::plan::{Deed, Form, Held, HeldKind, Plan, Step, Wanted, too_large};
use crate::reconcile::{Digest, ManagedFile, Unit};
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::temporaries::Temporaries;
use crate::transcript;
use crate::workspace::worktree_key;

/// How many conversations are written between two looks at whether to go on.
const STRIDE: usize = 250;
/// Where temporaries are made in a directory that is somebody else's.
const EXPORT_TMP: &str = ".jp-tmp";

/// What was written to a directory, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Written(BTreeMap<String, Digest>);

impl Written {
    /// What is known to have been written, by path. A name that is no text cannot be listed, and counts as somebody else's.
    fn known(&self) -> BTreeMap<PathBuf, Digest> {
        // What leads elsewhere was not written by us.
        let inside = |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_)));
        let known = self.0.iter().map(|(path, digest)| (PathBuf::from(path), *digest));
        known.filter(|(path, _)| inside(path)).collect()
    }

    fn of(known: BTreeMap<PathBuf, Digest>) -> Self {
        let named = known.into_iter().filter_map(|(path, digest)| Some((path.to_str()?.to_owned(), digest)));
        Self(named.collect())
    }
}

impl Writer {
    /// Writes the projection to another directory. What was edited there is left alone, and so is what is not ours.
    pub fn export_elsewhere(&self, dir: &Path, wanted: &Wanted, progress: Going<'_>) -> Result<Reconciled> {
        let store = &self.store;
        let disk = store.disk();
        store.allow_target(dir)?;
        make_dirs(disk, dir, Access::Shared)?;
        let books = Books::of(store, dir);
        let _turn = self.file_lock(&books.lock)?;
        let mut written = books.read(disk)?.known();
        let temporaries = Temporaries::new(dir.join(EXPORT_TMP), store.layout.store.tmp(), &worktree_key(dir));
        temporaries.sweep(disk)?;
        let scratch = Scratch::new(disk, &temporaries, Access::Shared);
        let view = View::of(store, dir, wanted)?;
        let all: Vec<_> = view.wanted(wanted).collect();
        let mut done = Reconciled { looked_at: all.len(), ..Reconciled::default() };
        let mut named = BTreeSet::new();
        let mut outcome = Ok(());
        for some in all.chunks(STRIDE) {
            done.stopped |= !progress(Progress { done: named.len(), of: all.len() });
            if done.stopped || outcome.is_err() {
                break;
            }
            for (found, visited) in
                some.iter().zip(parallel::map(some, |found| view.visit(found, &written, Some(&scratch))))
            {
                let visited = match visited {
                    Ok(visited) => visited,
                    Err(error) if is_everybodys(&error) => {
                        outcome = Err(error);
                        continue;
                    }
                    Err(error) => view.missed(found, &written, &error),
                };
                named.extend(visited.ours.keys().cloned());
                named.extend(visited.theirs);
                written.extend(visited.ours);
                done.steps.extend(visited.plan.steps);
                done.held.extend(visited.plan.held);
            }
        }
        if !done.stopped && outcome.is_ok() && wanted.only.is_none() {
            let (stale, theirs) = view.stale(&written, &named)?;
            for step in &stale.steps {
                view.remove(&step.path)?;
            }
            written.retain(|path, _| named.contains(path) || theirs.contains(path));
            done.steps.extend(stale.steps);
            done.held.extend(stale.held);
        }
        scratch.close();
        temporaries.release(disk);
        let synced = disk.sync_all(dir).context("sync", dir);
        let bytes = crate::json::pretty(&Written::of(written));
        self.scratch().replace(&books.file, &bytes)?;
        outcome.and(synced).map(|()| done)
    }
}

impl Store {
    /// From now on files beneath the target of an export can be reached.
    fn allow_target(&self, dir: &Path) -> Result<()> {
        boundaries::check_target(&self.layout, self.around.data_dir.as_deref(), dir)?;
        self.disk().allowed().allow(dir).context("use", dir)
    }

    /// What [`Writer::export_elsewhere`] would do. Changes nothing.
    pub fn plan_elsewhere(&self, dir: &Path, wanted: &Wanted) -> Result<Plan> {
        self.allow_target(dir)?;
        let written = Books::of(self, dir).read(self.disk())?.known();
        let view = View::of(self, dir, wanted)?;
        let all: Vec<_> = view.wanted(wanted).collect();
        let mut plan = Plan { looked_at: all.len(), ..Plan::default() };
        let mut named = BTreeSet::new();
        for (found, visited) in all.iter().zip(parallel::map(&all, |found| view.visit(found, &written, None))) {
            let visited = visited.unwrap_or_else(|error| view.missed(found, &written, &error));
            named.extend(visited.ours.into_keys());
            named.extend(visited.theirs);
            plan.steps.extend(visited.plan.steps);
            plan.held.extend(visited.plan.held);
        }
        if wanted.only.is_none() {
            let (stale, _) = view.stale(&written, &named)?;
            plan.steps.extend(stale.steps);
            plan.held.extend(stale.held);
        }
        Ok(plan)
    }
}

/// Where is kept what was written to a directory.
struct Books {
    file: PathBuf,
    lock: PathBuf,
}

impl Books {
    fn of(store: &Store, dir: &Path) -> Self {
        let home = store.layout.store.vfs().join(worktree_key(dir));
        Self { file: home.join("written.json"), lock: home.join("written.lock") }
    }

    /// What does not parse counts as nothing: then everything that is there is somebody else's.
    fn read(&self, disk: &dyn Disk) -> Result<Written> {
        let contents = read_file(disk, &self.file)?;
        Ok(contents.and_then(|contents| serde_json::from_slice(&contents.bytes).ok()).unwrap_or_default())
    }
}

/// The projection as it would lie in another directory.
struct View<'a> {
    store: &'a Store,
    snapshot: Snapshot,
    layout: Layout,
    dir: &'a Path,
    form: Form,
}

/// What one conversation comes to there.
#[derive(Default)]
struct Visited {
    plan: Plan,
    /// The files that are as they should be, or will be.
    ours: BTreeMap<PathBuf, Digest>,
    /// The files that have a place and are left alone.
    theirs: BTreeSet<PathBuf>,
}

impl<'a> View<'a> {
    fn of(store: &'a Store, dir: &'a Path, wanted: &Wanted) -> Result<Self> {
        let mut snapshot = store.snapshot()?;
        let form = wanted.form.unwrap_or(snapshot.ledger.form);
        snapshot.ledger.set_form(form);
        let layout = Layout { work: Some(WorkRoot { conversations: dir.to_owned() }), ..store.layout.clone() };
        Ok(Self { store, snapshot, layout, dir, form })
    }

    fn wanted<'b>(&'b self, wanted: &'b Wanted) -> impl Iterator<Item = &'b Conversation> {
        let here = |found: &&Conversation| self.snapshot.is_visible(found.id) || found.store.is_none();
        self.snapshot.all().filter(|found| wanted.includes(found.id)).filter(here)
    }

    /// Compares one conversation with what is there, and writes what differs if there is something to write with.
    fn visit(
        &self,
        found: &Conversation,
        written: &BTreeMap<PathBuf, Digest>,
        scratch: Option<&Scratch<'_>>,
    ) -> Result<Visited> {
        let disk = self.store.disk();
        let mut visited = Visited::default();
        let Some(home) = self.home(found) else { return Ok(visited) };
        let target = self.dir.join(&home);
        let new = kind(disk, &target)?.is_none();
        if new {
            visited.plan.steps.push(Step { id: found.id, deed: Deed::Copy, path: home.clone() });
        }
        let (files, left_out) = self.files(found)?;
        for path in left_out {
            let reason = too_large(&target.join(&path));
            visited.plan.held.push(Held { id: Some(found.id), kind: HeldKind::Failed, reason });
            visited.theirs.insert(home.join(path));
        }
        for file in files {
            let (path, full) = (home.join(&file.path), target.join(&file.path));
            let digest = match &file.content {
                NewContent::File { bytes, .. } => Digest::of(bytes),
                NewContent::Link(to) => Digest::of(&[b"link:", to.as_os_str().as_encoded_bytes()].concat()),
                // Directories come with what is in them.
                NewContent::Dir => continue,
            };
            if !new && !leads_inside(disk, self.dir, &path)? {
                let reason = format!("{}: lies behind a link; it is left alone", full.display());
                visited.plan.held.push(Held { id: Some(found.id), kind: HeldKind::Blocked, reason });
                visited.theirs.insert(path);
                continue;
            }
            let there = if new { None } else { self.digest(&full)? };
            if there.is_some() && there != Some(digest) && there != written.get(&path).copied() {
                let reason = format!("{}: not as an export left it; it stays", full.display());
                visited.plan.held.push(Held { id: Some(found.id), kind: HeldKind::Blocked, reason });
                visited.theirs.insert(path);
                continue;
            }
            visited.ours.insert(path.clone(), digest);
            if there == Some(digest) {
                continue;
            }
            if !new {
                visited.plan.steps.push(Step { id: found.id, deed: Deed::Write, path });
            }
            if let Some(scratch) = scratch {
                if let Some(parent) = full.parent() {
                    make_dirs(disk, parent, Access::Shared)?;
                }
                scratch.put_one_of_many(&full, file.content)?;
            }
        }
        Ok(visited)
    }

    /// Where a conversation lies, relative to the directory.
    fn home(&self, found: &Conversation) -> Option<PathBuf> {
        let real = match (&found.store, &found.work, &self.store.layout.work) {
            (None, Some(place), Some(root)) => {
                return Some(place.dir.strip_prefix(&root.conversations).ok()?.to_owned());
            }
            _ => self.snapshot.real_dir(&self.layout, found.id)?,
        };
        Some(match real.strip_prefix(self.dir) {
            Ok(home) => home.to_owned(),
            // Beneath one that only the workspace has.
            Err(_) => real.strip_prefix(&self.store.layout.work.as_ref()?.conversations).ok()?.to_owned(),
        })
    }

    /// The files of a conversation as they are now, whichever copy is current, and those that are too large.
    fn files(&self, found: &Conversation) -> Result<(Vec<NewFile>, Vec<PathBuf>)> {
        let disk = self.store.disk();
        let entry = self.snapshot.ledger.get(found.id);
        let (mut files, mut left_out) = (Vec::new(), Vec::new());
        let mut events = None;
        for unit in Unit::ALL {
            let observed = self.snapshot.observe(disk, &self.store.layout, found, unit)?;
            let Some((_, bytes)) = observed.current() else { continue };
            if let (Some((file, kind)), Some(dir)) = (bytes.irregular(), found.dirs().work) {
                return Err(Error::Malformed { path: managed(dir, file), reason: kind.to_string() });
            }
            for &file in unit.files() {
                let Some(contents) = bytes.file(file) else { continue };
                if file == ManagedFile::Events {
                    events = Some(contents.bytes.clone());
                }
                if !hides(entry, Path::new(file.name())) {
                    files.push(NewFile::bytes(file.name(), contents.bytes.clone()));
                }
            }
        }
        let dirs = found.dirs();
        if let Some(dir) = dirs.store.or(dirs.work) {
            let mut own = unmanaged(disk, dir)?;
            own.retain(|path| is_exported(path) && !hides(entry, path));
            left_out = take_too_large(disk, dir, &mut own)?;
            files.extend(gather(disk, dir, own)?);
        }
        let is_there = files.iter().any(|file| file.path == Path::new(transcript::NAME));
        if self.form.transcripts && !is_there {
            let meta: Option<&Meta> = found.meta.as_ref();
            let made = events.and_then(|events| transcript::render(found.id, meta, &events));
            files.extend(made.map(|bytes| NewFile::bytes(transcript::NAME, bytes)));
        }
        Ok((files, left_out))
    }

    /// What a conversation comes to that could not be read: what an earlier export wrote of it stays.
    fn missed(&self, found: &Conversation, written: &BTreeMap<PathBuf, Digest>, error: &Error) -> Visited {
        let mut visited = Visited::default();
        visited.plan.held.push(Held {
            id: Some(found.id),
            kind: HeldKind::of_error(error),
            reason: super::cover::whole(error),
        });
        visited.theirs = written.keys().filter(|path| owner(path) == Some(found.id)).cloned().collect();
        visited
    }

    /// What was written and has no place any more; what of it was changed since, and so stays.
    fn stale(
        &self,
        written: &BTreeMap<PathBuf, Digest>,
        named: &BTreeSet<PathBuf>,
    ) -> Result<(Plan, BTreeSet<PathBuf>)> {
        let (mut plan, mut theirs) = (Plan::default(), BTreeSet::new());
        for (path, digest) in written.iter().filter(|(path, _)| !named.contains(*path)) {
            let full = self.dir.join(path);
            let id = owner(path);
            if !leads_inside(self.store.disk(), self.dir, path)? {
                // What was written is not there any more; something else is.
                continue;
            }
            match (self.digest(&full)?, id) {
                (Some(there), Some(id)) if there == *digest => {
                    plan.steps.push(Step { id, deed: Deed::Remove, path: path.clone() });
                }
                (Some(_), id) => {
                    let reason = format!("{}: has no place any more, but was changed; it stays", full.display());
                    plan.held.push(Held { id, kind: HeldKind::Blocked, reason });
                    theirs.insert(path.clone());
                }
                (None, _) => {}
            }
        }
        Ok((plan, theirs))
    }

    /// Removes a file, and the directories it was the last one in.
    fn remove(&self, path: &Path) -> Result<()> {
        let (disk, full) = (self.store.disk(), self.dir.join(path));
        disk.remove_file(&full).context("remove", &full)?;
        for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            if disk.remove_dir(&self.dir.join(above)).is_err() {
                // Something is still in it.
                break;
            }
        }
        Ok(())
    }

    fn digest(&self, path: &Path) -> Result<Option<Digest>> {
        let disk = self.store.disk();
        Ok(match kind(disk, path)? {
            None => None,
            Some(Kind::File) => read_file(disk, path)?.map(|contents| Digest::of(&contents.bytes)),
            Some(Kind::Link) => {
                let to = disk.read_link(path).context("read link", path)?;
                Some(Digest::of(&[b"link:", to.as_os_str().as_encoded_bytes()].concat()))
            }
            // Whatever it is, nobody wrote it here.
            Some(Kind::Dir | Kind::Other) => Some(Digest([0; 16])),
        })
    }
}

/// Whose file lies at a path.
fn owner(path: &Path) -> Option<ConversationId> {
    path.iter().rev().find_map(ConversationId::from_dirname)
}
