//! Makes ready for a mount over the workspace's real files: the store gets everything they have, and the ledger says of
//! each conversation whether it is meant to be here. Afterwards nobody needs the files until the mount ends.

use super::Writer;
use super::migrate::AT_ONCE;
use super::operation::Operation;
use crate::conversation::Conversation;
use crate::error::{Error, Result};
use crate::id::ConversationId;
use crate::layout::managed;
use crate::lock::{Guard, Wait, make_room_for_files};
use crate::observe::{Flaw, UnitBytes};
use crate::own;
use crate::parallel;
use crate::plan::{LOST, OUTLIVED, too_large};
use crate::presence::Projection;
use crate::reconcile::{Action, Unit};
use crate::sighting::{Roots, Sighting, is_known};
use crate::snapshot::Snapshot;

/// What covering the real files brought to light.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// Conversations of the workspace that are durable now.
    pub imported: Vec<ConversationId>,
    /// What is only in the real files and stays there, and why.
    pub refused: Vec<String>,
    /// Those of the imported that the store had before, and why they are in it again.
    pub returned: Vec<String>,
}

impl Writer {
    /// Brings everything that is newer or only in the workspace into the store, and writes down what this worktree shows.
    /// One conversation that cannot be brought in does not keep the others.
    pub fn cover(&self) -> Result<Covered> {
        self.cover_and_look().map(|(covered, _)| covered)
    }

    /// As [`Writer::cover`]. Where the real files had no news, what was looked at is what the mount has to show, and is
    /// given along: nobody need look again.
    pub fn cover_and_look(&self) -> Result<(Covered, Option<Snapshot>)> {
        let mut covered = Covered::default();
        if self.store.layout.work.is_none() {
            return Ok((covered, None));
        }
        let mut op = self.begin()?;
        let news = self.news(op.snapshot());
        if !news.is_empty() {
            // Locks of conversations come before the ledger's.
            drop(op);
            for some in news.chunks(AT_ONCE) {
                self.cover_some(some, &mut covered)?;
            }
            op = self.begin()?;
            if let Err(error) = op.drop_leftovers(&|_| true) {
                covered.refused.push(whole(&error));
            }
        }
        for (id, held) in op.snapshot().held_copies() {
            let told = held.dirs.iter().map(|dir| format!("{}: {}", dir.display(), held.cause.describe(id)));
            covered.refused.extend(told);
        }
        op.write_down_intents();
        let snapshot = op.finish_covered()?;
        Ok((covered, news.is_empty().then(|| snapshot.cover(&self.store.layout))))
    }

    /// The conversations whose copy in the workspace is not known to have nothing that the store lacks.
    fn news(&self, snapshot: &Snapshot) -> Vec<ConversationId> {
        let here: Vec<_> = snapshot.all().filter(|found| found.work.is_some()).collect();
        let known = parallel::map(&here, |found| is_known(self.store.disk(), &self.store.layout, snapshot, found));
        // What cannot be looked at is told of when its turn comes.
        let news = here.iter().zip(known).filter(|(_, known)| !matches!(known, Ok(true)));
        news.map(|(found, _)| found.id).collect()
    }

    fn cover_some(&self, ids: &[ConversationId], covered: &mut Covered) -> Result<()> {
        make_room_for_files(ids.len());
        let mut guards = Vec::new();
        for &id in ids {
            match self.lock(id, &Wait::none()) {
                Ok(guard) => guards.push(guard),
                Err(error) => covered.refused.push(whole(&error)),
            }
        }
        let mut op = self.begin()?;
        for guard in &guards {
            let id = guard.id();
            let new = op.snapshot().get(id).is_some_and(|found| found.store.is_none());
            let returned = match op.roots_without_store(id) {
                // It was removed for good: the copy goes, or stays for what lies in it.
                Ok(Some(Roots::Leftover | Roots::Inhabited)) => continue,
                Ok(Some(Roots::Outlived)) => Some(OUTLIVED),
                Ok(Some(Roots::Lost)) => Some(LOST),
                // What cannot be looked at is told of below.
                Ok(_) | Err(_) => None,
            };
            match op.bring_home(guard, covered) {
                Ok(()) if new => {
                    covered.imported.push(id);
                    covered.returned.extend(returned.map(|why| returns(id, why)));
                }
                Ok(()) => {}
                Err(error) => covered.refused.push(whole(&error)),
            }
        }
        op.finish()
    }
}

impl Operation<'_> {
    /// What a copy is whose conversation is not in the store; `None` if that is.
    pub(super) fn roots_without_store(&self, id: ConversationId) -> Result<Option<Roots>> {
        let Some(found) = self.snapshot().get(id).filter(|found| found.store.is_none()) else { return Ok(None) };
        let sighting = Sighting::of(self.store().disk(), &self.store().layout, self.snapshot(), found)?;
        Ok(Some(sighting.roots))
    }

    fn bring_home(&mut self, guard: &Guard, covered: &mut Covered) -> Result<()> {
        self.settle(guard)?;
        if let Some(barred) = self.snapshot().barred(guard.id()) {
            covered.refused.push(whole(&barred.error()));
        }
        for unit in Unit::ALL {
            let observed = self.observe(guard.id(), unit)?;
            let flaw = observed.work.as_ref().and_then(UnitBytes::problem);
            if let (Action::Hold, Some((file, Flaw::Broken(reason)))) = (observed.action, flaw)
                && let Some(work) = self.snapshot().find(guard.id())?.dirs().work
            {
                covered.refused.push(format!("{}: {reason}", managed(work, file).display()));
            }
        }
        let found = self.snapshot().find(guard.id())?;
        if let (Some(store), Some(work)) = (found.dirs().store, found.dirs().work) {
            let own = own::look(self.store().disk(), store, work, self.ledger().get(guard.id()), found.rule)?;
            let held = own.iter().filter(|file| file.action == Action::Hold && file.work.is_some());
            covered.refused.extend(held.map(|file| too_large(&work.join(&file.path))));
        }
        self.project(guard)
    }

    /// Makes the ledger say what the real files say: from now on they are not asked.
    fn write_down_intents(&mut self) {
        let news = |found: &Conversation| {
            let remembered = self.ledger().get(found.id).map(|entry| (entry.intent, entry.base));
            match (found.work.is_some(), remembered) {
                (true, Some((Projection::LocalOnly, base))) => Some((found.id, Projection::Projected, base)),
                (true, None) => Some((found.id, Projection::Projected, None)),
                // Somebody removed it, unless what it lies in refuses to be looked at.
                (false, Some((Projection::Projected, _))) if found.intent == Projection::LocalOnly => {
                    let seen = self.snapshot().check_readable(found.id).is_ok();
                    seen.then_some((found.id, Projection::LocalOnly, None))
                }
                (true, Some((Projection::Projected, _))) | (false, _) => None,
            }
        };
        let news: Vec<_> = self.snapshot().all().filter_map(news).collect();
        for (id, intent, base) in news {
            self.remember(id, intent, base);
        }
    }
}

/// What is said of a conversation that is in the store again.
fn returns(id: ConversationId, why: &str) -> String {
    format!(
        "the store did not have {id} any more, but {why}: it is in the store again; `jp c rm {id}` removes it for good"
    )
}

/// An error with its causes, in one line.
pub(super) fn whole(error: &Error) -> String {
    error.with_causes()
}
