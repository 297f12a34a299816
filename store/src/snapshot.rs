//! All conversations at one moment: where each is, what its metadata says, and the tree they form. Taken by reading only.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::files::exists;
use crate::id::ConversationId;
use crate::layout::{Layout, Partition, managed};
use crate::ledger::Ledger;
use crate::meta::{Meta, Parent};
use crate::mirror::Mirror;
use crate::observe::{Dirs, Flaw, Observed, UnitBytes, glance, glance_metadata, read_file, stat_file};
use crate::parallel;
use crate::presence::{Facts, Projection, StoragePresence, intent, presence};
use crate::problem::{Problem, What};
use crate::reconcile::{ManagedFile, Root, Unit};
use crate::scan::{Depth, Place, Scan};
use crate::time::Timestamp;
use crate::tree::Tree;

/// One conversation, as found.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// Its identity.
    pub id: ConversationId,
    /// In use or put away.
    pub partition: Partition,
    /// Which roots have it.
    pub presence: StoragePresence,
    /// Whether the next write leaves it in this worktree.
    pub intent: Projection,
    /// Its directory in the store.
    pub store: Option<Place>,
    /// Its directory in the workspace.
    pub work: Option<Place>,
    /// Its metadata, from whichever copy is current; `None` when neither can be read.
    pub meta: Option<Meta>,
    /// The parent it has, whether or not that one exists.
    pub parent: Option<ConversationId>,
    /// The worktree it was made in.
    pub origin: Option<String>,
}

impl Conversation {
    /// The title, if it has one.
    pub fn title(&self) -> Option<&str> {
        self.meta.as_ref().and_then(Meta::title)
    }

    /// When it was last worked on; its creation if metadata cannot be read.
    pub fn last_activated_at(&self) -> Timestamp {
        self.meta.as_ref().map_or_else(|| self.id.timestamp(), Meta::last_activated_at)
    }

    /// The directories of both copies.
    pub fn dirs(&self) -> Dirs<'_> {
        Dirs { store: self.store.as_ref().map(|place| &*place.dir), work: self.work.as_ref().map(|place| &*place.dir) }
    }

    /// The directory to show and to edit: the workspace's where there is one.
    pub fn path(&self) -> &Path {
        let place = self.work.as_ref().or(self.store.as_ref());
        place.map_or(Path::new(""), |place| &place.dir)
    }

    /// The canonical directory name: the store's, else the workspace's.
    pub fn name(&self) -> OsString {
        let place = self.store.as_ref().or(self.work.as_ref());
        place.map_or_else(|| self.id.dirname(self.title()).into(), |place| place.name.clone())
    }
}

/// A store and a worktree at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    conversations: BTreeMap<ConversationId, Conversation>,
    tree: Tree,
    archived_tree: Tree,
    problems: Vec<Problem>,
    /// What this worktree remembers.
    pub ledger: Ledger,
    /// The mirrored links.
    pub mirror: Mirror,
    duplicates: BTreeMap<ConversationId, Vec<(Root, Place)>>,
    unreadable: Option<Problem>,
}

impl Snapshot {
    /// Looks at everything. Directories that are renamed or removed while we look are looked for again.
    pub fn take(disk: &dyn Disk, layout: &Layout, ledger: &Ledger, mirror: &Mirror) -> Result<Self> {
        for _ in 0..5 {
            let snapshot = Self::look(disk, layout, ledger.clone(), mirror.clone())?;
            if snapshot.vanished(disk)?.is_empty() {
                return Ok(snapshot);
            }
        }
        let mut snapshot = Self::look(disk, layout, ledger.clone(), mirror.clone())?;
        for id in snapshot.vanished(disk)? {
            snapshot.problems.retain(|problem| problem.id != Some(id));
            snapshot.remove(id);
        }
        Ok(snapshot)
    }

    /// Conversations without metadata whose directory is not there any more.
    fn vanished(&self, disk: &dyn Disk) -> Result<Vec<ConversationId>> {
        let mut vanished = Vec::new();
        for conversation in self.all().filter(|conversation| conversation.meta.is_none()) {
            for dir in [conversation.dirs().store, conversation.dirs().work].into_iter().flatten() {
                if !exists(disk, dir)? {
                    vanished.push(conversation.id);
                    break;
                }
            }
        }
        Ok(vanished)
    }

    fn look(disk: &dyn Disk, layout: &Layout, ledger: Ledger, mirror: Mirror) -> Result<Self> {
        let mut snapshot = Self { ledger, mirror, ..Self::default() };
        let depth = if layout.is_single_root() { Depth::Nested } else { Depth::Flat };
        let mut found: BTreeMap<ConversationId, [Vec<Place>; 2]> = BTreeMap::new();
        let mut note = |root: Root, scan: Scan, problems: &mut Vec<Problem>| {
            for (id, place) in scan.places {
                found.entry(id).or_default()[root as usize].push(place);
            }
            let strangers = scan.strangers.into_iter();
            problems.extend(strangers.map(|path| Problem { id: None, path, what: What::Stranger }));
            problems.extend(scan.unreadable.iter().map(|(id, error)| Problem::unreadable(*id, error, Path::new(""))));
        };
        for root in std::iter::once(&layout.store).chain(&layout.siblings) {
            let scan = Scan::of(disk, Partition::ALL.map(|part| (part, root.partition(part))), depth)?;
            note(Root::Store, scan, &mut snapshot.problems);
        }
        if let Some(root) = &layout.work {
            let scan = Scan::of(disk, Partition::ALL.map(|part| (part, root.partition(part))), Depth::Nested)?;
            note(Root::Work, scan, &mut snapshot.problems);
        }
        for silo in &layout.siblings {
            snapshot.problems.push(Problem { id: None, path: silo.dir.clone(), what: What::UnmergedSilo });
        }
        let mut chosen = Vec::with_capacity(found.len());
        for (id, sides) in found {
            let [store, work] = [Root::Store, Root::Work].map(|root| {
                let mut places = sides[root as usize].clone();
                let pick = choose(disk, &places)?;
                let place = places.swap_remove(pick);
                for other in places {
                    let path = other.dir.clone();
                    snapshot.problems.push(Problem { id: Some(id), path, what: What::Duplicate });
                    snapshot.duplicates.entry(id).or_default().push((root, other));
                }
                Some(place)
            });
            chosen.push((id, store, work));
        }
        let loaded = parallel::map(&chosen, |(id, store, work)| {
            Loader { disk, layout, ledger: &snapshot.ledger, mirror: &snapshot.mirror, problems: Vec::new() }.load(
                *id,
                store.clone(),
                work.clone(),
            )
        });
        for (conversation, problems) in loaded {
            snapshot.problems.extend(problems);
            snapshot.conversations.insert(conversation.id, conversation);
        }
        let mut problems = snapshot.problems.iter();
        snapshot.unreadable = problems.find(|problem| matches!(problem.what, What::Unreadable { .. })).cloned();
        snapshot.grow();
        Ok(snapshot)
    }

    /// The conversation, in either partition.
    pub fn get(&self, id: ConversationId) -> Option<&Conversation> {
        self.conversations.get(&id)
    }

    /// The conversation, or the error that says there is none.
    pub fn find(&self, id: ConversationId) -> Result<&Conversation> {
        self.get(id).ok_or(Error::NotFound { id })
    }

    /// All conversations of a partition, by id.
    pub fn partition(&self, partition: Partition) -> impl Iterator<Item = &Conversation> {
        self.conversations.values().filter(move |conversation| conversation.partition == partition)
    }

    /// All conversations, by id.
    pub fn all(&self) -> impl Iterator<Item = &Conversation> {
        self.conversations.values()
    }

    /// The tree of a partition.
    pub fn tree(&self, partition: Partition) -> &Tree {
        match partition {
            Partition::Live => &self.tree,
            Partition::Archived => &self.archived_tree,
        }
    }

    /// What is wrong.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The problems of one conversation.
    pub fn problems_of(&self, id: ConversationId) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(move |problem| problem.id == Some(id))
    }

    /// Every directory of a conversation in a root: the one in use, then duplicates.
    pub fn places(&self, root: Root, id: ConversationId) -> impl Iterator<Item = &Place> {
        let chosen = self.get(id).and_then(|conversation| match root {
            Root::Store => conversation.store.as_ref(),
            Root::Work => conversation.work.as_ref(),
        });
        let others = self.duplicates.get(&id).into_iter().flatten();
        chosen.into_iter().chain(others.filter(move |(other, _)| *other == root).map(|(_, place)| place))
    }

    /// Fails if anything could not be looked at. Whoever writes must not take a refusal for an absence.
    pub fn complete(self) -> Result<Self> {
        match self.unreadable {
            Some(Problem { path, what, .. }) => Err(Error::Malformed { path, reason: what.to_string() }),
            None => Ok(self),
        }
    }

    /// Whether a conversation and all its ancestors are meant to be in this worktree.
    pub fn is_visible(&self, id: ConversationId) -> bool {
        let Some(conversation) = self.get(id) else { return false };
        let tree = self.tree(conversation.partition);
        let projected = |id| self.get(id).is_some_and(|conversation| conversation.intent == Projection::Projected);
        projected(id) && tree.ancestors(id).all(projected)
    }

    /// Where the tree wants a conversation in the workspace; `None` while an ancestor is not there.
    pub fn work_dir(&self, layout: &Layout, id: ConversationId) -> Option<PathBuf> {
        let conversation = self.get(id)?;
        let tree = self.tree(conversation.partition);
        match tree.parent(id) {
            None => Some(layout.work.as_ref()?.partition(conversation.partition).join(conversation.name())),
            Some(parent) => {
                let above = self.get(parent)?.work.as_ref()?;
                Some(crate::layout::children_dir(&above.dir).join(conversation.name()))
            }
        }
    }

    fn grow(&mut self) {
        for partition in Partition::ALL {
            let tree = Tree::new(self.partition(partition).map(|conversation| (conversation.id, conversation.parent)));
            let oddities = tree
                .missing()
                .iter()
                // A parent in the other partition is put away, not missing.
                .filter(|(_, parent)| !self.conversations.contains_key(parent))
                .map(|(&id, &parent)| (id, What::MissingParent { parent }))
                .chain(tree.cut().iter().map(|(&id, &parent)| (id, What::Cycle { parent })));
            let found: Vec<_> = oddities
                .map(|(id, what)| {
                    let dir = self.get(id).map(|conversation| conversation.path().to_owned()).unwrap_or_default();
                    Problem { id: Some(id), path: managed(&dir, ManagedFile::Metadata), what }
                })
                .collect();
            self.problems.extend(found);
            match partition {
                Partition::Live => self.tree = tree,
                Partition::Archived => self.archived_tree = tree,
            }
        }
    }
}

struct Loader<'a> {
    disk: &'a dyn Disk,
    layout: &'a Layout,
    ledger: &'a Ledger,
    mirror: &'a Mirror,
    problems: Vec<Problem>,
}

impl Loader<'_> {
    fn load(mut self, id: ConversationId, store: Option<Place>, work: Option<Place>) -> (Conversation, Vec<Problem>) {
        let entry = self.ledger.get(id);
        let facts = Facts {
            in_store: store.is_some(),
            in_work: work.is_some() || self.layout.is_single_root(),
            remembered: entry.map(|entry| entry.intent),
            exported: entry.is_some_and(|entry| entry.base.is_some()),
        };
        let place = store.as_ref().or(work.as_ref());
        let mut conversation = Conversation {
            id,
            partition: place.map_or(Partition::Live, |place| place.partition),
            presence: presence(facts).unwrap_or(StoragePresence::UserLocalOnly),
            intent: intent(facts),
            store,
            work,
            meta: None,
            parent: None,
            origin: None,
        };
        conversation.meta = self.meta(&conversation);
        if let Some(Parent::Garbage(text)) = conversation.meta.as_ref().map(Meta::parent) {
            let path = managed(conversation.path(), ManagedFile::Metadata);
            self.problems.push(Problem { id: Some(id), path, what: What::GarbageParent { text } });
        }
        // Only what came from elsewhere takes its parent from where it lies: our own files say it themselves.
        let nested = self.layout.is_single_root() || conversation.store.is_none();
        let beneath = if nested { conversation.work.as_ref().or(conversation.store.as_ref()) } else { None };
        let beneath = beneath.and_then(|place| place.beneath);
        conversation.parent = self.mirror.effective_parent(id, conversation.meta.as_ref(), beneath);
        let own_origin = conversation.meta.as_ref().and_then(Meta::origin);
        conversation.origin = own_origin.or_else(|| self.mirror.origin(id)).map(ToOwned::to_owned);
        (conversation, self.problems)
    }

    /// Metadata from the copy that is current; from the other one where that cannot be read.
    fn meta(&mut self, conversation: &Conversation) -> Option<Meta> {
        let base = self.ledger.get(conversation.id).and_then(|entry| entry.base.as_ref());
        let dirs = conversation.dirs();
        let (first, mut at_hand, held) = match glance_metadata(self.disk, dirs, base) {
            Ok(seen) => seen,
            Err(error) => {
                self.unreadable(conversation, &error);
                (Root::Store, None, None)
            }
        };
        // The store is read in its place, and would not show that it waits for a person.
        if let (Some(reason), Some(dir), Root::Store) = (held, dirs.work, first) {
            let path = managed(dir, ManagedFile::Metadata);
            let what = What::Broken { root: Root::Work, reason };
            self.note(Problem { id: Some(conversation.id), path, what });
        }
        [first, first.other()].into_iter().find_map(|root| {
            let dir = if root == Root::Store { dirs.store } else { dirs.work }?;
            let path = managed(dir, ManagedFile::Metadata);
            let contents = match at_hand.take() {
                Some(contents) if root == Root::Store => Ok(Some(contents)),
                Some(_) | None => read_file(self.disk, &path),
            };
            let what = match contents.map(|contents| contents.map(|contents| Meta::parse(&contents.bytes))) {
                Ok(Some(Ok(meta))) => return Some(meta),
                Ok(Some(Err(reason))) => What::Broken { root, reason },
                Ok(None) => What::Missing { root },
                Err(error) => {
                    self.unreadable(conversation, &error);
                    return None;
                }
            };
            self.note(Problem { id: Some(conversation.id), path, what });
            None
        })
    }

    fn unreadable(&mut self, conversation: &Conversation, error: &Error) {
        self.note(Problem::unreadable(conversation.id, error, conversation.path()));
    }

    /// A file that is met twice is told of once.
    fn note(&mut self, problem: Problem) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

/// The stream of a conversation from the copy that is current, and what is wrong with it.
pub(crate) fn stream(
    disk: &dyn Disk,
    conversation: &Conversation,
    ledger: &Ledger,
) -> Result<(Option<UnitBytes>, Vec<Problem>)> {
    let base = ledger.get(conversation.id).and_then(|entry| entry.base.as_ref());
    let dirs = conversation.dirs();
    let read = |root| match match root {
        Root::Store => dirs.store,
        Root::Work => dirs.work,
    } {
        Some(dir) => UnitBytes::read(disk, dir, Unit::Stream),
        None => Ok(None),
    };
    let first = glance(disk, Unit::Stream, dirs, base)?;
    let mut problems = Vec::new();
    for root in [first, first.other()] {
        let Some(bytes) = read(root)? else { continue };
        let Some((file, flaw)) = bytes.problem() else {
            return Ok((Some(bytes), problems));
        };
        let dir = if root == Root::Store { dirs.store } else { dirs.work };
        let what = match flaw {
            Flaw::Missing => What::Missing { root },
            Flaw::Broken(reason) => What::Broken { root, reason },
        };
        problems.push(Problem { id: Some(conversation.id), path: managed(dir.unwrap_or(Path::new("")), file), what });
    }
    Ok((None, problems))
}

/// Which of several directories with one id is in use: live before archived, then the one whose metadata is newest.
fn choose(disk: &dyn Disk, places: &[Place]) -> Option<usize> {
    let newest = |place: &Place| {
        let stamp = stat_file(disk, &managed(&place.dir, ManagedFile::Metadata)).ok().flatten();
        stamp.map(|stamp| stamp.mtime)
    };
    match places {
        [] => None,
        [_] => Some(0),
        [first, ..] => {
            let rivals = places.iter().enumerate().filter(|(_, place)| place.partition == first.partition);
            rivals.rev().max_by_key(|(_, place)| newest(place)).map(|(index, _)| index)
        }
    }
}

// The observation of both units is what a writer begins with.
impl Conversation {
    pub(crate) fn observe(&self, disk: &dyn Disk, unit: Unit, ledger: &Ledger) -> Result<Observed> {
        let base = ledger.get(self.id).and_then(|entry| entry.base.as_ref());
        Observed::of(disk, unit, self.dirs(), base)
    }
}

// A change keeps its snapshot true as it goes, so that later steps see what earlier ones did.
impl Snapshot {
    pub(crate) fn update(&mut self, id: ConversationId, change: impl FnOnce(&mut Conversation)) {
        let Some(conversation) = self.conversations.get_mut(&id) else {
            return;
        };
        let before = (conversation.parent, conversation.partition);
        change(conversation);
        if before != (conversation.parent, conversation.partition) {
            self.regrow();
        }
    }

    pub(crate) fn insert(&mut self, conversation: Conversation) {
        self.conversations.insert(conversation.id, conversation);
        self.regrow();
    }

    pub(crate) fn remove(&mut self, id: ConversationId) {
        self.conversations.remove(&id);
        self.duplicates.remove(&id);
        self.regrow();
    }

    /// A directory of the workspace has moved, with everything beneath it.
    pub(crate) fn moved_in_work(&mut self, from: &Path, to: &Path) {
        let follow = |dir: &mut PathBuf| {
            if let Ok(rest) = dir.strip_prefix(from) {
                *dir = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
            }
        };
        for conversation in self.conversations.values_mut() {
            if let Some(place) = &mut conversation.work {
                follow(&mut place.dir);
            }
        }
        for (root, place) in self.duplicates.values_mut().flatten() {
            if *root == Root::Work {
                follow(&mut place.dir);
            }
        }
    }

    fn regrow(&mut self) {
        let links = |partition| {
            let all = self.conversations.values().filter(move |conversation| conversation.partition == partition);
            Tree::new(all.map(|conversation| (conversation.id, conversation.parent)))
        };
        let (live, archived) = (links(Partition::Live), links(Partition::Archived));
        self.tree = live;
        self.archived_tree = archived;
    }
}
