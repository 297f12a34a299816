//! All conversations at one moment, and the tree they form. How one is taken is in `look`.

mod held;
mod look;
mod parents;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub(crate) use held::Standing;
pub use held::{HeldCopy, HoldCause};
pub(crate) use parents::Barred;

use crate::conversation::Conversation;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::id::ConversationId;
use crate::layout::{Layout, Partition, children_dir};
use crate::ledger::{FirstSeen, Ledger};
use crate::mirror::Mirror;
use crate::observe::read_file;
use crate::plan::Nesting;
use crate::presence::Projection;
use crate::problem::{Problem, What};
use crate::recall::Gathered;
use crate::reconcile::{Base, Root};
use crate::removed;
use crate::scan::Place;
use crate::tree::Tree;
use crate::worktrees::OtherWorktrees;

/// A store and a worktree at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    conversations: BTreeMap<ConversationId, Box<Conversation>>,
    /// By partition; grown when first asked for.
    trees: OnceLock<[Tree; 2]>,
    /// What was removed for good; read when first asked for.
    removed: OnceLock<BTreeSet<ConversationId>>,
    sight: Sight,
    problems: Vec<Problem>,
    /// What this worktree remembers.
    pub ledger: Ledger,
    /// The mirrored links.
    pub mirror: Mirror,
    duplicates: BTreeMap<ConversationId, Vec<(Root, Place)>>,
    /// The store's metadata as it was found.
    gathered: Gathered,
    standing: Standing,
    /// Copies that were found and are held; they are nowhere else in the snapshot.
    held: BTreeMap<ConversationId, HeldCopy>,
    /// How copies were seen that the ledger has no record of.
    first_seen: Vec<(ConversationId, FirstSeen)>,
    /// Parents that copies ask for and do not get.
    barred: BTreeMap<ConversationId, Barred>,
    /// The other worktrees; read when first asked for.
    others: OnceLock<OtherWorktrees>,
}

/// How much of the workspace's real files a snapshot sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sight {
    /// All that count. Where a mount has left them behind, those of what is not meant to be here do not.
    #[default]
    Usual,
    /// None: something is mounted over them.
    Covered,
    /// All, with what the ledger says of each: they are about to follow it.
    Beneath,
}

impl Sight {
    fn hides(self, ledger: &Ledger, id: ConversationId) -> bool {
        match self {
            Self::Usual => ledger.covered && ledger.get(id).is_some_and(|entry| entry.intent == Projection::LocalOnly),
            Self::Covered => true,
            Self::Beneath => false,
        }
    }
}

impl Snapshot {
    /// What was found in the store's metadata, which whoever writes it down needs no snapshot for.
    pub(crate) fn take_gathered(&mut self) -> Gathered {
        std::mem::take(&mut self.gathered)
    }

    /// The conversation, in either partition.
    pub fn get(&self, id: ConversationId) -> Option<&Conversation> {
        self.conversations.get(&id).map(|found| &**found)
    }

    /// The conversation, or the error that says there is none.
    pub fn find(&self, id: ConversationId) -> Result<&Conversation> {
        self.get(id).ok_or(Error::NotFound { id })
    }

    /// All conversations of a partition, by id.
    pub fn partition(&self, partition: Partition) -> impl Iterator<Item = &Conversation> {
        self.all().filter(move |conversation| conversation.partition == partition)
    }

    /// All conversations, by id.
    pub fn all(&self) -> impl Iterator<Item = &Conversation> {
        self.conversations.values().map(|found| &**found)
    }

    /// The tree of a partition.
    pub fn tree(&self, partition: Partition) -> &Tree {
        let trees = self.trees.get_or_init(|| {
            let links = |found: &Conversation| (found.id, found.parent);
            Partition::ALL.map(|partition| Tree::new(self.partition(partition).map(links)))
        });
        &trees[partition as usize]
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
        let chosen = self.get(id).and_then(|conversation| conversation.place(root));
        let others = self.duplicates.get(&id).into_iter().flatten();
        chosen.into_iter().chain(others.filter(move |(other, _)| *other == root).map(|(_, place)| place))
    }

    /// Whether this is the directory in use of a conversation in either root.
    pub(crate) fn in_use(&self, id: ConversationId, dir: &Path) -> bool {
        let dirs = self.get(id).map(Conversation::dirs).unwrap_or_default();
        dirs.store == Some(dir) || dirs.work == Some(dir)
    }

    /// Fails if the conversation, or anything above it, could not be looked at; or if its copy is not seen where it was left
    /// while there are directories that could not be listed, in any of which it may be. Whoever writes must not take a refusal
    /// for an absence.
    pub fn check_readable(&self, id: ConversationId) -> Result<()> {
        let Some(found) = self.get(id) else { return Ok(()) };
        if self.is_all_readable() {
            // The usual case, and the tree need not be grown for it.
            return Ok(());
        }
        let line = std::iter::once(id).chain(self.tree(found.partition).ancestors(id));
        let missed = found.work.is_none() && self.base(id).is_some();
        let is_unlisted = |problem: &&Problem| matches!(problem.what, What::Unlisted { .. });
        let anywhere = self.problems.iter().filter(|problem| missed && is_unlisted(problem));
        let mut problems = line.flat_map(|id| self.problems_of(id)).chain(anywhere);
        match problems.find_map(|problem| Some((problem.path.clone(), problem.refusal()?.to_owned()))) {
            Some((path, reason)) => Err(Error::Io { verb: "read", path, source: std::io::Error::other(reason) }),
            None => Ok(()),
        }
    }

    /// The conversation beneath which somebody moved this one by hand, if that is beneath itself.
    pub(crate) fn circle(&self, id: ConversationId) -> Option<ConversationId> {
        let parent = self.get(id)?.moved.as_ref()?.parent.flatten()?;
        let above = |&id: &ConversationId| self.get(id).and_then(|found| found.parent);
        let mut line = std::iter::successors(Some(parent), above).take(self.conversations.len() + 1);
        line.any(|above| above == id).then_some(parent)
    }

    /// Whether a directory of the workspace lies in a second copy of another conversation.
    pub(crate) fn lies_in_second(&self, dir: &Path) -> bool {
        let seconds = self.duplicates.values().flatten().filter(|(root, _)| *root == Root::Work);
        seconds.map(|(_, place)| &place.dir).any(|second| dir != second && dir.starts_with(second))
    }

    /// Whether a command removed this conversation for good, as opposed to a store that has lost it.
    pub(crate) fn is_removed(&self, disk: &dyn Disk, layout: &Layout, id: ConversationId) -> Result<bool> {
        Ok(self.removed(disk, layout)?.contains(&id))
    }

    fn removed(&self, disk: &dyn Disk, layout: &Layout) -> Result<&BTreeSet<ConversationId>> {
        if let Some(removed) = self.removed.get() {
            return Ok(removed);
        }
        let mut removed = BTreeSet::new();
        for silo in std::iter::once(&layout.store).chain(&layout.siblings) {
            let contents = read_file(disk, &silo.removed())?;
            removed.extend(contents.into_iter().flat_map(|contents| removed::parse(&contents.bytes)));
        }
        Ok(self.removed.get_or_init(|| removed))
    }

    /// The conversations that are in the store although they are recorded as removed: a removal was cut short.
    pub(crate) fn removed_in_vain(&self, disk: &dyn Disk, layout: &Layout) -> Result<Vec<ConversationId>> {
        let is_there = |id: &ConversationId| self.get(*id).is_some_and(|found| found.store.is_some());
        Ok(self.removed(disk, layout)?.iter().copied().filter(is_there).collect())
    }

    /// Takes conversations for removed.
    pub(crate) fn remember_removal(&mut self, disk: &dyn Disk, layout: &Layout, ids: &[ConversationId]) -> Result<()> {
        self.removed(disk, layout)?;
        if let Some(removed) = self.removed.get_mut() {
            removed.extend(ids);
        }
        Ok(())
    }

    /// Takes a conversation for one that was not removed.
    pub(crate) fn forget_removal(&mut self, disk: &dyn Disk, layout: &Layout, id: ConversationId) -> Result<()> {
        self.removed(disk, layout)?;
        if let Some(removed) = self.removed.get_mut() {
            removed.remove(&id);
        }
        Ok(())
    }

    /// Whether nothing refused to be looked at, so that what was not seen is not there.
    pub(crate) fn is_all_readable(&self) -> bool {
        self.problems.iter().all(|problem| problem.refusal().is_none())
    }

    /// Whether the worktree has a synced copy of a conversation that the store does not have any more.
    pub(crate) fn is_without_store(&self, id: ConversationId) -> bool {
        self.base(id).is_some() && self.get(id).is_some_and(|found| found.store.is_none())
    }

    /// Whether a conversation and all its ancestors are meant to be in this worktree.
    pub fn is_visible(&self, id: ConversationId) -> bool {
        let Some(conversation) = self.get(id) else { return false };
        let tree = self.tree(conversation.partition);
        let projected = |id| self.get(id).is_some_and(|conversation| conversation.intent == Projection::Projected);
        projected(id) && tree.ancestors(id).all(projected)
    }

    /// Whether this worktree has a conversation to show: as real files, or through the mount that covers them.
    pub fn is_shown(&self, id: ConversationId) -> bool {
        if self.sight == Sight::Covered {
            self.is_visible(id)
        } else {
            self.get(id).is_some_and(|found| found.work.is_some())
        }
    }

    /// What both copies of a conversation are measured against. None where the real one is out of sight: a copy that
    /// nobody looks at is not one that was removed.
    pub(crate) fn base(&self, id: ConversationId) -> Option<&Base> {
        if self.is_out_of_sight(id) { None } else { self.ledger.get(id)?.base.as_ref() }
    }

    /// Whether real files of a conversation may be there that this snapshot does not see.
    pub(crate) fn is_out_of_sight(&self, id: ConversationId) -> bool {
        self.sight.hides(&self.ledger, id)
    }

    /// Where a visible conversation is shown in the project, nested by the tree of its partition.
    pub fn shown_dir(&self, layout: &Layout, id: ConversationId) -> Option<PathBuf> {
        let conversation = self.get(id).filter(|_| self.is_visible(id))?;
        let line: Vec<_> = self.tree(conversation.partition).ancestors(id).collect();
        let mut dir = layout.shown().partition(conversation.partition);
        for above in line.into_iter().rev() {
            dir = children_dir(&dir.join(self.get(above)?.name()));
        }
        Some(dir.join(conversation.name()))
    }

    /// Where the real files of a visible conversation belong once everything is where it belongs. What only the workspace
    /// has stays where it is, and so does what somebody moved: that is where it is to be, or a person has to look at it.
    pub(crate) fn real_dir(&self, layout: &Layout, id: ConversationId) -> Option<PathBuf> {
        let conversation = self.get(id)?;
        let tree = self.tree(conversation.partition);
        let root = layout.work.as_ref()?.partition(conversation.partition);
        let mut names = vec![conversation.name()];
        if self.ledger.form.nesting == Nesting::Nested {
            for above in tree.ancestors(id) {
                let above = self.get(above)?;
                // One that somebody moved is where it is meant to be, or stuck.
                let stays = above.store.is_none() || above.moved.is_some();
                match &above.work {
                    Some(place) if stays => {
                        let dir = place.dir.clone();
                        return Some(names.iter().rev().fold(dir, |dir, name| children_dir(&dir).join(name)));
                    }
                    Some(_) | None => names.push(above.name()),
                }
            }
        }
        let mut names = names.into_iter().rev();
        let top = root.join(names.next()?);
        Some(names.fold(top, |dir, name| children_dir(&dir).join(name)))
    }

    /// Where the tree wants a conversation in the workspace; `None` while an ancestor is not there.
    pub fn work_dir(&self, layout: &Layout, id: ConversationId) -> Option<PathBuf> {
        let conversation = self.get(id)?;
        let tree = self.tree(conversation.partition);
        let above = if self.ledger.form.nesting == Nesting::Flat { None } else { tree.parent(id) };
        match above {
            None => Some(layout.work.as_ref()?.partition(conversation.partition).join(conversation.name())),
            Some(parent) => {
                let above = self.get(parent)?.work.as_ref()?;
                Some(children_dir(&above.dir).join(conversation.name()))
            }
        }
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
            self.trees = OnceLock::new();
        }
    }

    pub(crate) fn note(&mut self, problems: Vec<Problem>) {
        self.problems.extend(problems);
    }

    pub(crate) fn insert(&mut self, conversation: Conversation) {
        self.conversations.insert(conversation.id, Box::new(conversation));
        self.trees = OnceLock::new();
    }

    pub(crate) fn remove(&mut self, id: ConversationId) {
        let gone = self.conversations.remove(&id);
        self.duplicates.remove(&id);
        // Whoever removes a thousand does not grow the tree a thousand times.
        let pruned = match (gone, self.trees.get_mut()) {
            (Some(gone), Some(trees)) => trees[gone.partition as usize].remove_leaf(id),
            (None, _) | (_, None) => true,
        };
        if !pruned {
            self.trees = OnceLock::new();
        }
    }

    /// Of all directories of the store beneath this one, the one nearest to it, with whose it is and where it counts.
    pub(crate) fn outermost_beneath(&self, dir: &Path) -> Option<(ConversationId, Partition, PathBuf)> {
        let places = self
            .conversations
            .values()
            .flat_map(|found| self.places(Root::Store, found.id).map(|place| (found.id, found.partition, &place.dir)));
        let beneath = places.filter(|(.., place)| *place != dir && place.starts_with(dir));
        let nearest = beneath.min_by_key(|(.., place)| place.components().count());
        nearest.map(|(id, partition, place)| (id, partition, place.clone()))
    }

    /// A second copy is gone.
    pub(crate) fn remove_duplicate(&mut self, id: ConversationId, dir: &Path) {
        if let Some(others) = self.duplicates.get_mut(&id) {
            others.retain(|(_, place)| place.dir != dir);
        }
    }

    /// A directory of a root has moved, with everything beneath it.
    pub(crate) fn moved(&mut self, root: Root, from: &Path, to: &Path) {
        let start = from.as_os_str().as_encoded_bytes();
        let follow = |dir: &mut PathBuf| {
            // Nearly all lie elsewhere, and bytes tell that sooner than components.
            if dir.as_os_str().as_encoded_bytes().starts_with(start)
                && let Ok(rest) = dir.strip_prefix(from)
            {
                *dir = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
            }
        };
        for conversation in self.conversations.values_mut() {
            let place = match root {
                Root::Store => &mut conversation.store,
                Root::Work => &mut conversation.work,
            };
            if let Some(place) = place {
                follow(&mut place.dir);
            }
        }
        for (other, place) in self.duplicates.values_mut().flatten() {
            if *other == root {
                follow(&mut place.dir);
            }
        }
        if root == Root::Work {
            self.held.values_mut().flat_map(|held| &mut held.dirs).for_each(follow);
        }
    }
}
