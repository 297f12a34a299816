//! How one conversation stands in both roots, as far as a reconcile has to know. Reads only; what follows from it is the
//! [`plan`](crate::plan)'s affair.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::conversation::Conversation;
use crate::disk::{Disk, Kind};
use crate::error::Result;
use crate::files::{entries, exists, kind, stat};
use crate::id::ConversationId;
use crate::json::JsonError;
use crate::layout::{Layout, Partition, children_dir, managed};
use crate::ledger::{Entry, Left};
use crate::moved::Moved;
use crate::observe::{Flaw, UnitBytes, read_file, stat_file, unmanaged};
use crate::own::{self, OwnFile, hides};
use crate::parallel;
use crate::plan::{Deed, Direction, Ground, Held, HeldKind, Plan, Wanted};
use crate::presence::Projection;
use crate::reconcile::{Action, Base, Digest, ManagedFile, Root, Unit, is_conclusive, is_settled};
use crate::snapshot::{Barred, Snapshot};
use crate::transcript;

/// One conversation in both roots.
#[derive(Clone, Debug)]
pub(crate) struct Sighting {
    pub(crate) id: ConversationId,
    /// Which roots have it.
    pub(crate) roots: Roots,
    /// Where its copy is.
    pub(crate) at: Option<PathBuf>,
    /// Where its copy belongs; `None` when it is not meant to be here.
    pub(crate) wanted: Option<PathBuf>,
    /// What the place of its copy says.
    pub(crate) moved: Option<Moved>,
    /// Units that are not known to be in step.
    pub(crate) units: Vec<UnitSighting>,
    /// Files of the user's own, in step or not.
    pub(crate) own: Vec<OwnFile>,
    /// Managed files that are hidden and there, and whether they are as they were exported.
    pub(crate) hidden: Vec<(ManagedFile, bool)>,
    /// Whether the transcript has to be written, or to go.
    pub(crate) transcript: Option<Deed>,
    /// Second copies, and whether each is nothing but a copy.
    pub(crate) seconds: Vec<(PathBuf, bool)>,
    /// Why nothing can be done about it, if nothing can.
    pub(crate) stuck: Option<Stuck>,
    /// The parent that its copy asks for and does not get.
    pub(crate) barred: Option<Barred>,
}

/// Why a conversation has to stay as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// Its copy was moved to where it lies beneath itself.
    Circle(ConversationId),
    /// Its copy came, or was moved, beneath a conversation that is private here.
    Barred(Barred),
    /// Something that is no conversation has its place.
    InTheWay(PathBuf),
}

/// Which roots have a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    Both,
    /// The store; the copy was never here, or went with the consent of the ledger.
    Store,
    /// The store; the copy was here, and somebody removed it.
    Removed,
    /// The workspace; it came from elsewhere.
    Work,
    /// The workspace; the store had it, and the copy has something of its own.
    Outlived,
    /// The workspace; the store had it and was not told to remove it, and nothing in the copy is its own: it may be the last.
    Lost,
    /// The workspace; it was removed for good, and nothing in the copy is its own.
    Leftover,
    /// The same, but somebody else's things lie in the copy.
    Inhabited,
}

/// One unit in both roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitSighting {
    pub(crate) unit: Unit,
    pub(crate) action: Action,
    /// The copy has nothing of its own.
    pub(crate) is_as_left: bool,
    /// Files that the roots have differently, with whether the store and the workspace have them.
    pub(crate) differs: Vec<(ManagedFile, bool, bool)>,
    /// Why the workspace's copy cannot be taken, if it cannot: which file, and what is wrong.
    pub(crate) flaw: Option<(ManagedFile, JsonError)>,
}

/// Whether both copies of a conversation are known to be alike and where they belong. Nothing is read for that.
pub(crate) fn is_in_step(disk: &dyn Disk, layout: &Layout, snapshot: &Snapshot, found: &Conversation) -> Result<bool> {
    let (dirs, entry) = (found.dirs(), snapshot.ledger.get(found.id));
    let left = entry.and_then(|entry| entry.left.as_ref());
    let (Some(store), Some(work), Some(base), Some(left)) = (dirs.store, dirs.work, snapshot.base(found.id), left)
    else {
        return Ok(false);
    };
    // Behind a mount a copy may lie where it was left and not be meant to be here any more.
    let meant = !snapshot.ledger.covered || snapshot.is_visible(found.id);
    let placed = meant
        && found.moved.is_none()
        && snapshot.places(Root::Work, found.id).count() == 1
        && layout.work.as_ref().and_then(|root| root.at(work)) == left.at
        && snapshot.real_dir(layout, found.id).as_deref() == Some(work);
    Ok(placed
        && managed_as_left(disk, store, work, base, entry)?
        && !left.own.keys().any(|path| hides(entry, Path::new(path)))
        && own_as_left(disk, store, work, base, left)?
        && transcript_as_left(disk, work, base, left, snapshot.ledger.form.transcripts)?)
}

/// Whether the copy of a conversation in the workspace has nothing that the store lacks, as far as stamps tell: the store
/// has what was left alike, nobody has touched the copy, and it lies where it was left. Nothing is read for that.
pub(crate) fn is_known(disk: &dyn Disk, layout: &Layout, snapshot: &Snapshot, found: &Conversation) -> Result<bool> {
    let (dirs, entry) = (found.dirs(), snapshot.ledger.get(found.id));
    let left = entry.and_then(|entry| entry.left.as_ref());
    let (Some(store), Some(work), Some(base), Some(left)) = (dirs.store, dirs.work, snapshot.base(found.id), left)
    else {
        return Ok(false);
    };
    if entry.is_some_and(|entry| !entry.hidden.is_empty()) {
        // What is hidden is not in the copy, and that is more than a glance at metadata tells.
        return is_in_step(disk, layout, snapshot, found);
    }
    let placed = found.alike
        && found.moved.is_none()
        && snapshot.places(Root::Work, found.id).count() == 1
        && left.at.as_ref().zip(found.work.as_ref()).is_some_and(|(left, now)| left.is(now));
    if !placed {
        return Ok(false);
    }
    // The metadata has been looked at by the snapshot.
    for file in [ManagedFile::Events, ManagedFile::BaseConfig] {
        let remembered = base.file(file);
        let known = is_conclusive(remembered.work, stat_file(disk, &managed(work, file))?, base.taken)
            && is_conclusive(remembered.store, stat_file(disk, &managed(store, file))?, base.taken);
        if !known {
            return Ok(false);
        }
    }
    // A file that is new in the store is no news of the copy.
    Ok(names_as_left(disk, work, left.named[1], base)? && own::are_as_left(disk, store, work, &left.own, base.taken)?)
}

fn managed_as_left(disk: &dyn Disk, store: &Path, work: &Path, base: &Base, entry: Option<&Entry>) -> Result<bool> {
    for file in ManagedFile::ALL {
        let in_work = stat_file(disk, &managed(work, file))?;
        let remembered = base.file(file);
        let known = if hides(entry, Path::new(file.name())) {
            in_work.is_none()
        } else {
            // A file that was hidden when it was looked at is not in the copy, and is to be there now.
            remembered.work.is_some() == remembered.store.is_some()
                && is_conclusive(remembered.work, in_work, base.taken)
                && is_conclusive(remembered.store, stat_file(disk, &managed(store, file))?, base.taken)
        };
        if !known {
            return Ok(false);
        }
    }
    Ok(true)
}

fn own_as_left(disk: &dyn Disk, store: &Path, work: &Path, base: &Base, left: &Left) -> Result<bool> {
    for (dir, then) in [store, work].into_iter().zip(left.named) {
        if !names_as_left(disk, dir, then, base)? {
            return Ok(false);
        }
    }
    own::are_as_left(disk, store, work, &left.own, base.taken)
}

/// Whether a directory has the names it had.
fn names_as_left(disk: &dyn Disk, dir: &Path, then: Option<i64>, base: &Base) -> Result<bool> {
    let now = stat(disk, dir)?.map(|stat| stat.mtime);
    Ok(now == then && now.is_some_and(|now| is_settled(now, base.taken)))
}

fn transcript_as_left(disk: &dyn Disk, work: &Path, base: &Base, left: &Left, wanted: bool) -> Result<bool> {
    match (&left.transcript, wanted) {
        (None, false) => Ok(true),
        (Some(then), true) => {
            let now = stat_file(disk, &work.join(transcript::NAME))?;
            Ok(now.is_some() && is_conclusive(then.work, now, base.taken))
        }
        (None, true) | (Some(_), false) => Ok(false),
    }
}

impl Sighting {
    /// Looks at everything, reading what stamps do not tell.
    pub(crate) fn of(disk: &dyn Disk, layout: &Layout, snapshot: &Snapshot, found: &Conversation) -> Result<Self> {
        let (id, dirs) = (found.id, found.dirs());
        let (base, entry) = (snapshot.base(id), snapshot.ledger.get(id));
        let mut sighting = Self {
            id,
            roots: Roots::Both,
            at: dirs.work.map(Path::to_owned),
            wanted: None,
            moved: found.moved.clone(),
            units: Vec::new(),
            own: Vec::new(),
            hidden: Vec::new(),
            transcript: None,
            seconds: Vec::new(),
            stuck: snapshot.barred_by_place(id).map(Stuck::Barred).or(snapshot.circle(id).map(Stuck::Circle)),
            barred: snapshot.barred(id),
        };
        let unwanted = snapshot.ledger.covered && entry.is_some_and(|entry| entry.intent == Projection::LocalOnly);
        if snapshot.is_visible(id) {
            sighting.wanted = snapshot.real_dir(layout, id);
        } else if !unwanted && !snapshot.ledger.covered {
            // Something above it is not here; it stays where it is.
            sighting.wanted = sighting.at.clone();
        }
        sighting.stay_if_must(disk, snapshot)?;
        if let Some(wanted) = sighting.wanted.as_ref().filter(|wanted| sighting.at.as_ref() != Some(wanted))
            && dirs.store.is_some()
            && kind(disk, wanted)?.is_some_and(|kind| kind != Kind::Dir)
        {
            sighting.stuck = Some(Stuck::InTheWay(wanted.clone()));
        }
        let (store, work) = match (dirs.store, dirs.work) {
            (Some(store), Some(work)) => (store, work),
            (Some(_), None) => {
                let meant = entry.is_some_and(|entry| entry.intent == Projection::Projected);
                let removed = meant && base.is_some() && found.intent == Projection::LocalOnly;
                if removed {
                    sighting.roots = Roots::Removed;
                    sighting.at = snapshot.real_dir(layout, id);
                } else {
                    sighting.roots = Roots::Store;
                    if sighting.wanted.is_some() {
                        sighting.own = dirs.store.map_or(Ok(Vec::new()), |dir| own::left_out(disk, dir, entry))?;
                    }
                }
                return Ok(sighting);
            }
            (None, _) => {
                sighting.roots = Roots::Work;
                sighting.see_units(disk, layout, snapshot, found)?;
                sighting.own = dirs.work.map_or(Ok(Vec::new()), |dir| own::left_out(disk, dir, None))?;
                if let Some(work) = dirs.work
                    && base.is_some()
                    && !is_trashed(disk, layout, id)?
                {
                    sighting.roots = sighting.without_store(disk, layout, snapshot, work)?;
                }
                return Ok(sighting);
            }
        };
        for file in ManagedFile::ALL.into_iter().filter(|file| hides(entry, Path::new(file.name()))) {
            if let Some(there) = UnitBytes::read_one(disk, work, file)? {
                // What was gone when it was last looked at was put back by somebody.
                let left =
                    base.map(|base| base.file(file)).filter(|left| snapshot.ledger.covered || left.work.is_some());
                let as_left = left.is_some_and(|left| left.digest == Some(there));
                sighting.hidden.push((file, as_left));
            }
        }
        sighting.see_units(disk, layout, snapshot, found)?;
        sighting.own = own::look(disk, store, work, entry, found.rule)?;
        sighting.transcript = sighting.see_transcript(disk, [store, work], entry, snapshot.ledger.form.transcripts)?;
        for place in snapshot.places(Root::Work, id).skip(1) {
            let alone = !snapshot.lies_in_second(&place.dir);
            let held = sighting.units.iter().any(|unit| unit.action == Action::Hold);
            // What is edited reaches the store, and a copy of that has nothing of its own either.
            let whole = is_whole_copy(disk, store, &place.dir)? || !held && is_whole_copy(disk, work, &place.dir)?;
            sighting.seconds.push((place.dir.clone(), alone && whole));
        }
        Ok(sighting)
    }

    /// Wants a copy where it is if it cannot move: into itself, because of one that is stuck; or to where a second copy
    /// lies that others lie in.
    fn stay_if_must(&mut self, disk: &dyn Disk, snapshot: &Snapshot) -> Result<()> {
        let (Some(at), Some(wanted)) = (&self.at, &self.wanted) else { return Ok(()) };
        let second = snapshot.places(Root::Work, self.id).skip(1).any(|place| place.dir == *wanted);
        let inhabited = second && exists(disk, &children_dir(wanted))?;
        if at != wanted && (wanted.starts_with(at) || inhabited) {
            self.wanted = Some(at.clone());
        }
        Ok(())
    }

    /// Lets a copy that comes along with what it lies in have nothing to do for that. `moves` are those of what comes
    /// before it.
    fn come_along(&mut self, moves: &mut Vec<(PathBuf, PathBuf)>) {
        let (Some(at), Some(wanted)) = (&self.at, &self.wanted) else { return };
        if self.roots != Roots::Both || self.stuck.is_some() {
            return;
        }
        let there = after(moves, at);
        if there != *wanted {
            moves.push((there, wanted.clone()));
        } else {
            self.wanted = Some(at.clone());
        }
    }

    /// Wants a copy that has to move beneath its parent's copy as that is, and not as it is going to be.
    pub(crate) fn go_where_parent_is(&mut self, dir: Option<PathBuf>) {
        if self.roots == Roots::Both && self.wanted.is_some() && self.wanted != self.at && dir.is_some() {
            self.wanted = dir;
        }
    }

    fn see_transcript(
        &self,
        disk: &dyn Disk,
        [store, work]: [&Path; 2],
        entry: Option<&Entry>,
        wanted: bool,
    ) -> Result<Option<Deed>> {
        let left = entry.and_then(|entry| entry.left.as_ref()?.transcript);
        let is_own = |file: &OwnFile| file.path == Path::new(transcript::NAME);
        if left.is_none() && !wanted || self.own.iter().any(is_own) {
            return Ok(None);
        }
        let there = read_file(disk, &work.join(transcript::NAME))?.map(|contents| Digest::of(&contents.bytes));
        if !wanted {
            return Ok(there.map(|_| Deed::Remove));
        }
        let retitled = self.moved.as_ref().is_some_and(|moved| moved.title.is_some());
        // What is held changes nothing in the store, which the transcript is made from.
        let stale = |unit: &UnitSighting| unit.action != Action::Hold && !unit.differs.is_empty();
        if retitled || self.units.iter().any(stale) {
            return Ok(Some(Deed::Write));
        }
        let new = own::made_from(disk, self.id, store)?.map(|bytes| Digest::of(&bytes));
        Ok(match new {
            Some(_) => (there != new).then_some(Deed::Write),
            None => there.map(|_| Deed::Remove),
        })
    }

    fn see_units(&mut self, disk: &dyn Disk, layout: &Layout, snapshot: &Snapshot, found: &Conversation) -> Result<()> {
        let (base, entry) = (snapshot.base(found.id), snapshot.ledger.get(found.id));
        for unit in Unit::ALL {
            let observed = snapshot.observe(disk, layout, found, unit)?;
            let digests = |side: &Option<UnitBytes>| side.as_ref().map(UnitBytes::digests).unwrap_or_default();
            let (in_store, in_work) = (digests(&observed.store), digests(&observed.work));
            let differs = unit.files().iter().enumerate().filter_map(|(i, &file)| {
                let (store, work) = (in_store.get(i).copied().flatten(), in_work.get(i).copied().flatten());
                let hidden = hides(entry, Path::new(file.name()));
                (store != work && !hidden).then_some((file, store.is_some(), work.is_some()))
            });
            let (differs, is_as_left): (Vec<_>, _) = (differs.collect(), observed.is_as_left(base));
            let flaw = observed.work.as_ref().and_then(UnitBytes::problem).and_then(|(file, flaw)| match flaw {
                Flaw::Broken(reason) => Some((file, reason)),
                Flaw::Missing if found.store.is_none() => Some((file, JsonError::new("the file is missing"))),
                Flaw::Missing => None,
            });
            self.units.push(UnitSighting { unit, action: observed.action, is_as_left, differs, flaw });
        }
        Ok(())
    }

    /// What a copy is whose conversation the store had and does not have any more.
    fn without_store(&self, disk: &dyn Disk, layout: &Layout, snapshot: &Snapshot, work: &Path) -> Result<Roots> {
        let as_left = self.units.iter().all(|unit| unit.is_as_left)
            && snapshot.places(Root::Work, self.id).count() == 1
            && own::has_nothing_new(disk, work, snapshot.ledger.get(self.id))?;
        match (as_left, snapshot.is_removed(disk, layout, self.id)?) {
            (false, _) => Ok(Roots::Outlived),
            (true, false) => Ok(Roots::Lost),
            (true, true) => left_with(disk, layout, snapshot, self.id, work),
        }
    }
}

/// Whether a conversation is in the trash. It was not removed: its copy may be the last good one.
pub(crate) fn is_trashed(disk: &dyn Disk, layout: &Layout, id: ConversationId) -> Result<bool> {
    let trash = entries(disk, &layout.store.trash())?;
    Ok(trash.iter().any(|entry| ConversationId::from_dirname(&entry.name) == Some(id)))
}

/// What a copy of a removed conversation is that has nothing of its own, given what lies in it.
fn left_with(disk: &dyn Disk, layout: &Layout, snapshot: &Snapshot, id: ConversationId, work: &Path) -> Result<Roots> {
    let children = children_dir(work);
    let mut roots = if own::has_scratch(disk, work)? { Roots::Inhabited } else { Roots::Leftover };
    for child in snapshot.all().filter(|found| found.dirs().work.and_then(Path::parent) == Some(&children)) {
        let inner = Sighting::of(disk, layout, snapshot, child)?.roots;
        let stays = child.store.is_some() || inner == Roots::Outlived;
        if stays && child.parent == Some(id) {
            // Whoever removes one for good does so with its children, or gives them another parent.
            return Ok(Roots::Outlived);
        }
        if inner != Roots::Leftover {
            roots = Roots::Inhabited;
        }
    }
    Ok(roots)
}

/// Whether another copy of a conversation has everything this one has, and nothing else.
fn is_whole_copy(disk: &dyn Disk, of: &Path, dir: &Path) -> Result<bool> {
    for file in ManagedFile::ALL {
        if UnitBytes::read_one(disk, dir, file)? != UnitBytes::read_one(disk, of, file)? {
            return Ok(false);
        }
    }
    Ok(unmanaged(disk, dir)?.is_empty() && !exists(disk, &children_dir(dir))?)
}

/// Where a path leads to after some moves, in order.
fn after(moves: &[(PathBuf, PathBuf)], path: &Path) -> PathBuf {
    let mut there = path.to_owned();
    for (from, to) in moves {
        // Nearly all lie elsewhere, and bytes tell that sooner than components.
        let (inner, outer) = (there.as_os_str().as_encoded_bytes(), from.as_os_str().as_encoded_bytes());
        if inner.starts_with(outer)
            && let Ok(rest) = there.strip_prefix(from)
        {
            there = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
        }
    }
    there
}

/// Ancestors that have no copy: nothing can be copied out beneath them before they are.
fn without_copies_above(snapshot: &Snapshot, wanted: &Wanted) -> BTreeSet<ConversationId> {
    let found = wanted.only.iter().flatten().filter_map(|&id| snapshot.get(id)).filter(|found| found.work.is_none());
    let above = found.flat_map(|found| snapshot.tree(found.partition).ancestors(found.id));
    above.filter(|&id| snapshot.get(id).is_some_and(|above| above.work.is_none())).collect()
}

/// Everything that is not in step, and what follows from it.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    pub(crate) plan: Plan,
    /// Conversations with something to do, parents first.
    pub(crate) todo: Vec<ConversationId>,
    /// Those of them that only have to be copied out.
    pub(crate) copies: Vec<ConversationId>,
    /// In step, but only reading told: the next look is quicker if it is remembered.
    pub(crate) unsure: Vec<ConversationId>,
    /// The real files are behind a mount, and follow the ledger.
    pub(crate) covered: bool,
}

impl Looked {
    /// Whether nothing is to be done, and that is known without reading.
    pub(crate) fn is_in_step(&self) -> bool {
        self.plan.steps.is_empty() && self.plan.held.is_empty() && self.unsure.is_empty()
    }

    /// Looks at all conversations that are wanted.
    pub(crate) fn at(disk: &dyn Disk, layout: &Layout, snapshot: &Snapshot, wanted: &Wanted) -> Result<Self> {
        let mut looked = Self::default();
        let (Some(root), shown) = (layout.work.as_ref(), layout.shown()) else { return Ok(looked) };
        let ground = Ground { reached: &root.conversations, shown: &shown.conversations };
        let order = Partition::ALL.into_iter().flat_map(|partition| snapshot.tree(partition).walk());
        let above = without_copies_above(snapshot, wanted);
        let included = |found: &&Conversation| wanted.includes(found.id) || above.contains(&found.id);
        let all = order.filter_map(|(_, id)| snapshot.get(id)).filter(included);
        let meant = |found: &Conversation| {
            snapshot.ledger.get(found.id).is_some_and(|entry| entry.intent == Projection::Projected)
        };
        let here: Vec<_> = all.filter(|found| found.work.is_some() || meant(found)).collect();
        looked.plan.looked_at = here.len();
        looked.covered = snapshot.ledger.covered;
        let seen = parallel::map(&here, |found| match is_in_step(disk, layout, snapshot, found) {
            Ok(true) => Ok(None),
            _ => Sighting::of(disk, layout, snapshot, found).map(Some),
        });
        for (id, held) in snapshot.held_copies().filter(|(id, _)| wanted.includes(*id)) {
            for dir in &held.dirs {
                let path = ground.shown.join(dir.strip_prefix(ground.reached).unwrap_or(dir));
                let reason = format!("{}: {}", path.display(), held.cause.describe(id));
                looked.plan.held.push(Held { id: Some(id), kind: HeldKind::Unjoined, reason });
            }
        }
        let mut moves = Vec::new();
        for (found, sighting) in here.into_iter().zip(seen) {
            let sighting = match sighting {
                Err(error) if error.is_about_one_file() => {
                    let (kind, reason) = (HeldKind::Failed, error.with_causes());
                    looked.plan.held.push(Held { id: Some(found.id), kind, reason });
                    continue;
                }
                sighting => sighting?,
            };
            let Some(mut sighting) = sighting else { continue };
            let before = moves.len();
            if wanted.direction == Direction::In {
                // What it lies in does not move for an import, unless it has something to import itself.
                sighting.go_where_parent_is(snapshot.work_dir(layout, found.id).map(|dir| after(&moves, &dir)));
            }
            sighting.come_along(&mut moves);
            let mut one = Plan::default();
            one.add(&sighting, wanted.direction, ground);
            if wanted.direction == Direction::In && one.steps.is_empty() {
                moves.truncate(before);
            }
            if one.steps.is_empty() {
                if one.held.is_empty() && sighting.roots == Roots::Both {
                    looked.unsure.push(found.id);
                }
            } else if one.steps.iter().all(|step| step.deed == Deed::Copy) {
                looked.copies.push(found.id);
            } else {
                looked.todo.push(found.id);
            }
            looked.plan.steps.append(&mut one.steps);
            looked.plan.held.append(&mut one.held);
        }
        Ok(looked)
    }
}
