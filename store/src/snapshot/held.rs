//! Copies in the worktree that were never synced: how each was first seen, and which are held. What is held is taken out of
//! the snapshot, so that nothing reads from it or writes into it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::Snapshot;
use crate::beneath::is_wrong_kind;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::files::is_hollow;
use crate::id::ConversationId;
use crate::join::{Exposure, HoldReason, hold_reason};
use crate::layout::Layout;
use crate::ledger::{FirstSeen, Survey};
use crate::observe::begins_alike;
use crate::problem::{Problem, What};
use crate::scan::Place;
use crate::time::Timestamp;
use crate::worktrees::{exposure_with, read_once};

/// What is known of the worktree when a snapshot is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Whether the store knows it.
    pub(crate) known: bool,
    /// The time.
    pub(crate) now: Timestamp,
}

impl Default for Standing {
    fn default() -> Self {
        Self { known: true, now: Timestamp::UNIX_EPOCH }
    }
}

/// Copies of one conversation that are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldCopy {
    /// Why.
    pub cause: HoldCause,
    /// Their directories in the worktree.
    pub dirs: Vec<PathBuf>,
}

/// Why copies are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldCause {
    /// Because of what they are.
    Reason(HoldReason),
    /// Because they lie in the held copy of this conversation.
    Inside(ConversationId),
}

impl HoldCause {
    /// The reason in words, with what the user can do about it.
    pub fn describe(self, id: ConversationId) -> String {
        match self {
            Self::Reason(reason) => {
                format!(
                    "not taken in: {}. Remove it; or, to show the conversation in this project, where git can commit it: \
                     `jp import {id}`",
                    reason.describe()
                )
            }
            Self::Inside(above) => {
                format!("not taken in, because it lies in the directory of {above}, which is not; see there")
            }
        }
    }
}

/// The directories of every conversation, by root.
pub(super) type Names = BTreeMap<ConversationId, [Vec<Place>; 2]>;

impl Snapshot {
    /// The copies of a conversation that are held.
    pub fn held_copy(&self, id: ConversationId) -> Option<&HeldCopy> {
        self.held.get(&id)
    }

    /// Everything that is held.
    pub fn held_copies(&self) -> impl Iterator<Item = (ConversationId, &HeldCopy)> {
        self.held.iter().map(|(&id, held)| (id, held))
    }

    /// A held copy that lies in this directory of the worktree.
    pub(crate) fn held_inside(&self, dir: &Path) -> Option<ConversationId> {
        let inside = |held: &HeldCopy| held.dirs.iter().any(|copy| copy.starts_with(dir));
        self.held.iter().find(|(_, held)| inside(held)).map(|(&id, _)| id)
    }

    /// How copies were seen that the ledger has no record of yet, taken out.
    pub(crate) fn take_first_seen(&mut self) -> Vec<(ConversationId, FirstSeen)> {
        std::mem::take(&mut self.first_seen)
    }

    /// Takes the held copies out of what was found. Returns the conversations whose winner file times do not decide.
    pub(super) fn hold_back(
        &mut self,
        disk: &dyn Disk,
        layout: &Layout,
        names: &mut Names,
    ) -> Result<BTreeSet<ConversationId>> {
        let mut by_content = BTreeSet::new();
        if layout.work.is_none() {
            return Ok(by_content);
        }
        let mut holders: BTreeMap<PathBuf, ConversationId> = BTreeMap::new();
        for (&id, [store, work]) in &*names {
            let entry = self.ledger.get(id);
            let recorded = entry.and_then(|entry| entry.first_seen);
            let synced = entry.is_some_and(|entry| entry.base.is_some());
            if store.is_empty() || work.is_empty() || synced && recorded.is_none() {
                continue;
            }
            let copies: Vec<_> = work.iter().filter(|place| !is_hollow(disk, &place.dir)).collect();
            if copies.is_empty() {
                continue;
            }
            let others = || read_once(&self.others, disk, layout, id);
            let seen = match recorded {
                Some(seen) => Some(seen),
                None => self.judge(disk, id, store, &copies, &others)?,
            };
            if let (None, Some(seen)) = (recorded, seen) {
                self.first_seen.push((id, seen));
            }
            match seen {
                Some(FirstSeen::Held(reason)) => {
                    let dirs: Vec<_> = work.iter().map(|place| place.dir.clone()).collect();
                    holders.extend(dirs.iter().map(|dir| (dir.clone(), id)));
                    self.held.insert(id, HeldCopy { cause: HoldCause::Reason(reason), dirs });
                }
                Some(FirstSeen::Unknown) => {
                    by_content.insert(id);
                }
                Some(FirstSeen::Known) | None => {}
            }
        }
        if !holders.is_empty() {
            self.hold_what_lies_in(&holders, names);
        }
        let named = self.held.iter().flat_map(|(&id, held)| held.dirs.iter().map(move |dir| (id, held.cause, dir)));
        let problems: Vec<_> = named
            .map(|(id, cause, path)| Problem { id: Some(id), path: path.clone(), what: What::Held { id, cause } })
            .collect();
        self.problems.extend(problems);
        Ok(by_content)
    }

    /// How a copy is seen that the ledger has no record of; `None` if nothing is special about it.
    fn judge(
        &self,
        disk: &dyn Disk,
        id: ConversationId,
        store: &[Place],
        copies: &[&Place],
        others: &dyn Fn() -> Result<Exposure>,
    ) -> Result<Option<FirstSeen>> {
        if !self.standing.known {
            let exposure = others()?;
            let alike = exposure == Exposure::Local || all_begin_alike(disk, store, copies)?;
            return Ok(Some(hold_reason(exposure, alike).map_or(FirstSeen::Unknown, FirstSeen::Held)));
        }
        let entry = self.ledger.get(id);
        if self.ledger.survey != Survey::Done {
            if entry.is_some() {
                return Ok(None);
            }
            // The store names this path, but `.jp` may have been made anew by somebody else's commit.
            let is_private = others()? == Exposure::Local;
            return Ok(Some(if is_private { FirstSeen::Held(HoldReason::Private) } else { FirstSeen::Known }));
        }
        // A copy that was hidden here may come back. One that was never here may have been planted.
        let ours = match entry {
            None => None,
            // Real files that a mount has left behind may still have to go.
            Some(entry) if entry.was_made_local() && !self.ledger.covered => {
                return Ok(Some(FirstSeen::Held(HoldReason::MadeLocal)));
            }
            Some(entry) if entry.was_never_here() => Some(entry.intent),
            Some(_) => return Ok(None),
        };
        let exposure = exposure_with(ours, others()?);
        // What no worktree has a word about may be private all the same: other programs write none.
        let alike = exposure != Exposure::Unknown || all_begin_alike(disk, store, copies)?;
        Ok(hold_reason(exposure, alike).map(FirstSeen::Held))
    }

    /// Takes out the held copies, and everything that is not synced and lies in one.
    fn hold_what_lies_in(&mut self, holders: &BTreeMap<PathBuf, ConversationId>, names: &mut Names) {
        for (&id, [_, work]) in names {
            if self.ledger.get(id).is_some_and(|entry| entry.base.is_some()) {
                continue;
            }
            work.retain(|place| {
                if holders.contains_key(&place.dir) {
                    return false;
                }
                let holder = place.dir.ancestors().skip(1).find_map(|above| holders.get(above));
                let Some(&holder) = holder else { return true };
                let inside = HeldCopy { cause: HoldCause::Inside(holder), dirs: Vec::new() };
                self.held.entry(id).or_insert(inside).dirs.push(place.dir.clone());
                false
            });
        }
    }
}

/// Whether every copy begins as one of the store's does.
fn all_begin_alike(disk: &dyn Disk, store: &[Place], copies: &[&Place]) -> Result<bool> {
    for copy in copies {
        let mut alike = false;
        for place in store {
            alike |= match begins_alike(disk, &place.dir, &copy.dir) {
                Err(Error::Io { source, .. }) if is_refusal(&source) => false,
                alike => alike?,
            };
        }
        if !alike {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a file cannot be read, now or later, because of what it is.
fn is_refusal(error: &io::Error) -> bool {
    let refused = matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidFilename);
    refused || is_wrong_kind(error)
}
