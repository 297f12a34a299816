//! What a reconcile is going to do, as a value: one step for each thing that changes. Nothing here reads a disk or a clock.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::beneath::WrongKind;
use crate::error::Error;
use crate::id::ConversationId;
use crate::json::JsonError;
use crate::layout::{Partition, managed};
use crate::moved::Moved;
use crate::own::OwnFile;
use crate::reconcile::{Action, ManagedFile, Root};
use crate::sighting::{Roots, Sighting, Stuck, UnitSighting};
use crate::snapshot::{HoldCause, Snapshot};
use crate::transcript;

/// Which way things may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The real files become what the store has. What was edited in them reaches the store first; what only they have
    /// stays as it is.
    Out,
    /// The store gets what arrived in the real files. What only the store has news of is not written out.
    In,
    /// Both.
    Both,
}

/// What is to be brought in step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which way.
    pub direction: Direction,
    /// Only these conversations; `None` for all.
    pub only: Option<BTreeSet<ConversationId>>,
    /// How the real files are laid out from now on; `None` leaves that as it is.
    pub form: Option<Form>,
}

/// How real files are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Form {
    /// Where children lie.
    #[serde(default)]
    pub nesting: Nesting,
    /// Whether each conversation has a transcript to read beside it.
    #[serde(default)]
    pub transcripts: bool,
}

/// Where children lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Nesting {
    /// In their parent's directory.
    #[default]
    Nested,
    /// Side by side with their parents, as tools know it that know no parents.
    Flat,
}

impl Wanted {
    /// Everything, this way.
    pub fn all(direction: Direction) -> Self {
        Self { direction, only: None, form: None }
    }

    /// The conversations whose held copies are to be joined: those that an import names.
    pub(crate) fn joined_of(&self, snapshot: &Snapshot) -> Vec<ConversationId> {
        let named = if self.direction == Direction::In { self.only.as_ref() } else { None };
        let is_held = |id: &ConversationId| {
            snapshot.held_copy(*id).is_some_and(|held| matches!(held.cause, HoldCause::Reason(_)))
        };
        named.into_iter().flatten().copied().filter(is_held).collect()
    }

    /// The conversations that are to come back although they were removed for good: those that an import names.
    pub(crate) fn brought_back(&self) -> impl Iterator<Item = ConversationId> {
        let named = if self.direction == Direction::In { self.only.as_ref() } else { None };
        named.into_iter().flatten().copied()
    }

    /// Whether it is about this conversation.
    pub fn includes(&self, id: ConversationId) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&id))
    }
}

/// One thing that changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Step {
    /// Whose.
    pub id: ConversationId,
    /// What is done.
    #[serde(flatten)]
    pub deed: Deed,
    /// Where, relative to the workspace's conversations.
    pub path: PathBuf,
}

/// What is done in one step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Deed {
    /// The conversation is copied out, whole.
    Copy,
    /// Its copy goes from one place to another.
    Move {
        /// Where it is.
        from: PathBuf,
    },
    /// A real file gets the store's bytes.
    Write,
    /// A real file goes, because the store has none.
    Remove,
    /// The copy goes: it is not meant to be here, and holds nothing of its own.
    Withdraw,
    /// The conversation enters the store, whole.
    Import,
    /// A file of the store gets the real one's bytes.
    Take,
    /// Both sides changed; the newer one counts and the other is kept.
    Conflict {
        /// Whose bytes count.
        winner: Root,
    },
    /// The copy, or one of its files, was removed: it is hidden here from now on. The store keeps it.
    Hide,
    /// The copy was moved: the conversation hangs elsewhere from now on.
    Reparent {
        /// Its parent.
        parent: Option<ConversationId>,
    },
    /// The copy was moved into the archive.
    Archive,
    /// The copy was moved out of the archive.
    Unarchive,
    /// The copy has another name: that is its title from now on.
    Retitle {
        /// The title.
        title: String,
    },
}

impl Deed {
    /// Whether the store learns something by it.
    pub fn is_inbound(&self) -> bool {
        match self {
            Self::Copy | Self::Move { .. } | Self::Write | Self::Remove | Self::Withdraw => false,
            Self::Import
            | Self::Take
            | Self::Conflict { .. }
            | Self::Hide
            | Self::Reparent { .. }
            | Self::Archive
            | Self::Unarchive
            | Self::Retitle { .. } => true,
        }
    }

    /// Whether it follows from where a copy was moved by hand.
    pub(crate) fn is_by_place(&self) -> bool {
        matches!(self, Self::Reparent { .. } | Self::Archive | Self::Unarchive | Self::Retitle { .. })
    }
}

/// Something that is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Held {
    /// Whose, where that is known.
    pub id: Option<ConversationId>,
    /// What kind of thing keeps it.
    pub kind: HeldKind,
    /// Why.
    pub reason: String,
}

/// What keeps something as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldKind {
    /// A real file has unresolved merge conflict markers. This is the only kind that stops a commit.
    MergeMarkers,
    /// A real file is not a document of its kind, or not a regular file.
    Invalid,
    /// A copy is not joined with the store's conversation before the user says so.
    Unjoined,
    /// The store does not have the conversation any more, and the copy in the worktree must not go with it.
    Lost,
    /// Something else is in the way: a file, a second copy, a circle of parents, a private parent.
    Blocked,
    /// Reading or writing it failed.
    Failed,
    /// Another process holds its lock.
    Busy,
}

impl HeldKind {
    /// The kind that a broken file makes.
    pub(crate) fn of_flaw(reason: &JsonError) -> Self {
        if reason.is_merge_marker() { Self::MergeMarkers } else { Self::Invalid }
    }

    /// The kind that a failure makes.
    pub(crate) fn of_error(error: &Error) -> Self {
        match error {
            Error::Invalid { reason, .. } => Self::of_flaw(reason),
            Error::Malformed { .. } => Self::Invalid,
            Error::Refused(_) | Error::InTheWay { .. } => Self::Blocked,
            Error::Locked { .. } | Error::Stuck { .. } => Self::Busy,
            Error::Unprojected { source, .. } => Self::of_error(source),
            Error::Io { .. } | Error::NoWorkspace { .. } | Error::NotFound { .. } | Error::Interrupted => Self::Failed,
        }
    }
}

/// Why a copy stays that has nothing of its own.
pub(crate) const LOST: &str = "nothing says that it was removed";
/// Why a copy stays that has something of its own.
pub(crate) const OUTLIVED: &str = "its copy here, or one beneath it, was edited";

/// What is said of a user file that is not copied from one root to the other.
pub(crate) fn too_large(path: &Path) -> String {
    format!("{}: {}; it is not copied", path.display(), WrongKind::TOO_LARGE)
}

/// What is said of a copy whose conversation the store does not have any more.
pub(crate) fn lost(id: ConversationId, why: &str) -> String {
    format!(
        "the store does not have {id} any more, but {why}; it stays. `jp import {id}` takes it into the store again, `jp c rm \
         {id}` removes it for good"
    )
}

/// Everything that would be done, and what would be left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// What would be done, in order.
    pub steps: Vec<Step>,
    /// What would be left, and why.
    pub held: Vec<Held>,
    /// How many conversations were looked at.
    #[serde(skip)]
    pub looked_at: usize,
}

impl Plan {
    /// Adds what follows from how one conversation stands.
    pub(crate) fn add(&mut self, sighting: &Sighting, direction: Direction, ground: Ground<'_>) {
        let mut one = Steps { id: sighting.id, ground, plan: Self::default() };
        one.sort_out(sighting, direction);
        let wanted = match direction {
            Direction::Out | Direction::Both => true,
            // What the store alone has news of is not written out.
            Direction::In => one.plan.steps.iter().any(|step| step.deed.is_inbound()) || one.plan.steps.is_empty(),
        };
        if wanted {
            self.steps.append(&mut one.plan.steps);
            self.held.append(&mut one.plan.held);
        }
    }
}

/// Where the real files are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ground<'a> {
    /// Where they are reached.
    pub(crate) reached: &'a Path,
    /// Where a person finds them, and the mount that may lie over them.
    pub(crate) shown: &'a Path,
}

/// The steps of one conversation as they come together.
struct Steps<'a> {
    id: ConversationId,
    ground: Ground<'a>,
    plan: Plan,
}

impl Steps<'_> {
    fn sort_out(&mut self, sighting: &Sighting, direction: Direction) {
        if let Some(stuck) = &sighting.stuck {
            let reason = match stuck {
                Stuck::Circle(parent) => Error::circle(self.id, *parent).to_string(),
                Stuck::Barred(barred) => barred.error().to_string(),
                Stuck::InTheWay(path) => format!("{} is in the way", self.shown(path).display()),
            };
            self.plan.held.push(Held { id: Some(self.id), kind: HeldKind::Blocked, reason });
            return;
        }
        let (at, wanted) = (sighting.at.as_deref(), sighting.wanted.as_deref());
        match (sighting.roots, at.or(wanted)) {
            (Roots::Store, Some(path)) if wanted.is_some() => {
                if direction != Direction::In {
                    self.step(Deed::Copy, path);
                    sighting.own.iter().for_each(|file| self.own(file, path));
                }
            }
            (Roots::Removed, path) => self.step(Deed::Hide, path.unwrap_or(self.ground.reached)),
            (Roots::Lost, Some(path)) if direction != Direction::In => self.hold_lost(path, LOST),
            (Roots::Outlived, Some(path)) if direction == Direction::Out => self.hold_lost(path, OUTLIVED),
            (Roots::Work | Roots::Outlived | Roots::Lost, Some(path)) if direction != Direction::Out => {
                let flaws = sighting.units.iter().filter_map(|unit| unit.flaw.as_ref());
                let broken = flaws.clone().next().is_some();
                flaws.for_each(|flaw| self.hold(path, flaw));
                if !broken {
                    self.step(Deed::Import, path);
                    sighting.own.iter().for_each(|file| self.own(file, path));
                }
            }
            (Roots::Leftover, Some(path)) => self.step(Deed::Withdraw, path),
            // It goes once they have gone.
            (Roots::Inhabited, _) => {}
            (Roots::Both, Some(at)) => self.both(sighting, at),
            (Roots::Store | Roots::Work | Roots::Outlived | Roots::Lost | Roots::Leftover | Roots::Both, _) => {}
        }
    }

    fn both(&mut self, sighting: &Sighting, at: &Path) {
        if let Some(barred) = sighting.barred {
            let path = self.shown(&managed(at, ManagedFile::Metadata));
            let reason = format!("{}: {}", path.display(), barred.error());
            self.plan.held.push(Held { id: Some(self.id), kind: HeldKind::Blocked, reason });
        }
        if let Some(moved) = &sighting.moved {
            self.heed(moved, at);
        }
        for (file, as_left) in &sighting.hidden {
            self.step(if *as_left { Deed::Remove } else { Deed::Take }, &managed(at, *file));
        }
        sighting.units.iter().for_each(|unit| self.unit(unit, at));
        sighting.own.iter().for_each(|file| self.own(file, at));
        match &sighting.wanted {
            None => self.step(Deed::Withdraw, at),
            Some(wanted) if wanted != at && sighting.moved.is_none() => {
                let from = self.relative(at);
                self.step(Deed::Move { from }, wanted);
            }
            Some(_) => {}
        }
        if let Some(deed) = &sighting.transcript {
            self.step(deed.clone(), &at.join(transcript::NAME));
        }
        for (second, whole) in &sighting.seconds {
            if *whole {
                self.step(Deed::Withdraw, second);
            } else {
                let (second, at) = (self.shown(second), self.relative(at));
                let reason = format!("{}: a second copy beside {}; remove one of them", second.display(), at.display());
                self.plan.held.push(Held { id: Some(self.id), kind: HeldKind::Blocked, reason });
            }
        }
    }

    fn heed(&mut self, moved: &Moved, at: &Path) {
        if let Some(parent) = moved.parent {
            self.step(Deed::Reparent { parent }, at);
        }
        match moved.partition {
            Some(Partition::Archived) => self.step(Deed::Archive, at),
            Some(Partition::Live) => self.step(Deed::Unarchive, at),
            None => {}
        }
        if let Some(title) = &moved.title {
            self.step(Deed::Retitle { title: title.clone() }, at);
        }
    }

    fn unit(&mut self, unit: &UnitSighting, at: &Path) {
        match unit.action {
            Action::Export => {
                for &(file, in_store, _) in &unit.differs {
                    self.step(if in_store { Deed::Write } else { Deed::Remove }, &managed(at, file));
                }
            }
            Action::Import | Action::Restore => {
                unit.differs.iter().for_each(|&(file, ..)| self.step(Deed::Take, &managed(at, file)));
            }
            Action::Conflict { winner } => {
                unit.differs.iter().for_each(|&(file, ..)| self.step(Deed::Conflict { winner }, &managed(at, file)));
            }
            Action::Hold => {
                if let Some(flaw) = &unit.flaw {
                    self.hold(at, flaw);
                }
            }
            // A copy that is there was not removed, and the store's is not gone: these are about whole conversations.
            Action::Keep | Action::Unproject | Action::Drop => {}
        }
    }

    fn own(&mut self, file: &OwnFile, at: &Path) {
        let path = at.join(&file.path);
        match file.action {
            Action::Keep if file.comes_out => self.step(Deed::Write, &path),
            Action::Export => self.step(Deed::Write, &path),
            Action::Import | Action::Restore => self.step(Deed::Take, &path),
            Action::Unproject => self.step(Deed::Hide, &path),
            Action::Drop => self.step(Deed::Remove, &path),
            Action::Conflict { winner } => self.step(Deed::Conflict { winner }, &path),
            Action::Hold => {
                let reason = too_large(&self.shown(&path));
                self.plan.held.push(Held { id: Some(self.id), kind: HeldKind::Failed, reason });
            }
            Action::Keep => {}
        }
    }

    fn hold(&mut self, at: &Path, (file, reason): &(ManagedFile, JsonError)) {
        let path = self.shown(&managed(at, *file));
        let (kind, reason) = (HeldKind::of_flaw(reason), format!("{}: {reason}", path.display()));
        self.plan.held.push(Held { id: Some(self.id), kind, reason });
    }

    /// Holds a copy whose conversation the store does not have any more.
    fn hold_lost(&mut self, at: &Path, why: &str) {
        let reason = format!("{}: {}", self.shown(at).display(), lost(self.id, why));
        self.plan.held.push(Held { id: Some(self.id), kind: HeldKind::Lost, reason });
    }

    fn step(&mut self, deed: Deed, path: &Path) {
        let path = self.relative(path);
        self.plan.steps.push(Step { id: self.id, deed, path });
    }

    fn shown(&self, path: &Path) -> PathBuf {
        self.ground.shown.join(self.relative(path))
    }

    fn relative(&self, path: &Path) -> PathBuf {
        path.strip_prefix(self.ground.reached).unwrap_or(path).to_owned()
    }
}
