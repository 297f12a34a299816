//! One conversation as a snapshot finds it: where its copies are, what its metadata says, where it is meant to be.

use std::ffi::OsString;
use std::path::Path;

use crate::disk::{Disk, Stat};
use crate::error::Result;
use crate::id::ConversationId;
use crate::layout::{Partition, managed};
use crate::meta::Meta;
use crate::moved::Moved;
use crate::observe::{Dirs, Flaw, Observed, Rule, UnitBytes, glance};
use crate::presence::{Projection, StoragePresence};
use crate::problem::{Problem, What};
use crate::reconcile::{Base, Root, Unit};
use crate::scan::Place;
use crate::time::Timestamp;

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
    /// How the store's metadata looked when it was read.
    pub looked: Option<Stat>,
    /// Whether stamps tell that both copies of its metadata are as they were left.
    pub alike: bool,
    /// What the place of its copy says that the store does not know yet; parent and partition are by that already.
    pub moved: Option<Moved>,
    /// How the winner is found if both copies have bytes of their own.
    pub rule: Rule,
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

    /// Its directory in a root.
    pub fn place(&self, root: Root) -> Option<&Place> {
        match root {
            Root::Store => self.store.as_ref(),
            Root::Work => self.work.as_ref(),
        }
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

    /// One unit on both sides, with what is to be done about it.
    pub(crate) fn observe(&self, disk: &dyn Disk, unit: Unit, base: Option<&Base>) -> Result<Observed> {
        Observed::of(disk, unit, self.dirs(), base, self.rule)
    }

    /// The stream from the copy that is current, and what is wrong with copies that were passed over.
    pub(crate) fn stream(&self, disk: &dyn Disk, base: Option<&Base>) -> Result<(Option<UnitBytes>, Vec<Problem>)> {
        let first = glance(disk, Unit::Stream, self.dirs(), base, self.rule)?;
        let mut problems = Vec::new();
        for root in [first, first.other()] {
            let Some(dir) = self.dirs().of(root) else { continue };
            let Some(bytes) = UnitBytes::read_irregular(disk, dir, Unit::Stream)? else { continue };
            let Some((file, flaw)) = bytes.problem() else {
                return Ok((Some(bytes), problems));
            };
            let what = match flaw {
                Flaw::Missing => What::Missing { root },
                Flaw::Broken(reason) => What::Broken { root, reason },
            };
            problems.push(Problem { id: Some(self.id), path: managed(dir, file), what });
        }
        Ok((None, problems))
    }
}
