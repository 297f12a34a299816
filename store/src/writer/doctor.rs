//! Mends what can be mended without losing anything: directories that are no conversations go to the trash, second
//! copies to the kept losers.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::Writer;
use super::reconcile::is_everybodys;
use crate::conversation::Conversation;
use crate::error::{Context as _, Error, Result};
use crate::files::{exists, make_dirs, move_dir, unused};
use crate::layout::{TRASH, managed};
use crate::lock::Wait;
use crate::modes::Access;
use crate::observe::{Flaw, UnitBytes};
use crate::own::hides;
use crate::parallel;
use crate::plan::{Direction, HeldKind, Wanted};
use crate::problem::{Problem, What};
use crate::reconcile::{ManagedFile, Root, Unit};
use crate::snapshot::Snapshot;
use crate::store::Store;

/// The name of the note in a directory that is in the trash.
pub(super) const NOTE: &str = "TRASHED.md";

/// What was mended, and what was not.
#[derive(Debug, Default)]
pub struct Fixed {
    /// Problems that are gone, with where things went.
    pub fixed: Vec<(Problem, String)>,
    /// Problems that need a person.
    pub left: Vec<Problem>,
    /// Problems that could not be mended, and why.
    pub failed: Vec<(Problem, Error)>,
}

impl Writer {
    /// Mends what it can.
    pub fn fix(&self) -> Result<Fixed> {
        let mut fixed = Fixed::default();
        let mut found = problems(&self.store, &self.store.snapshot()?);
        // A second copy counts once a broken first one is out of its way.
        found.sort_by_key(|problem| problem.what == What::Duplicate);
        for problem in found {
            match self.mend(&problem) {
                Ok(Some(how)) => fixed.fixed.push((problem, how)),
                Ok(None) => fixed.left.push(problem),
                Err(error) if is_everybodys(&error) => return Err(error),
                Err(error) => fixed.failed.push((problem, error)),
            }
        }
        Ok(fixed)
    }

    fn mend(&self, problem: &Problem) -> Result<Option<String>> {
        match &problem.what {
            What::Stranger => self.trash(problem, &problem.path).map(Some),
            What::Broken { root, .. } | What::Missing { root } => {
                let Some(id) = problem.id else { return Ok(None) };
                let guard = match self.lock(id, &Wait::none()) {
                    Ok(guard) => guard,
                    Err(Error::Locked { .. }) => return Ok(None),
                    Err(error) => return Err(error),
                };
                let snapshot = self.store.snapshot()?;
                let Some(conversation) = snapshot.get(id) else {
                    return Ok(None);
                };
                if !copy_problems(&self.store, &snapshot, conversation).contains(problem) {
                    // Mended meanwhile, or out of the way with another problem of the same copy.
                    return Ok(
                        (!exists(self.store.disk(), &problem.path)?).then(|| "gone with the copy it is in".to_owned())
                    );
                }
                // A good copy of the unit elsewhere mends the store. A broken file in the workspace is somebody's edit.
                if conversation.store.is_some() && *root == Root::Store && conversation.work.is_some() {
                    self.sync(&guard)?;
                    let now = self.store.snapshot()?;
                    if !now.get(id).is_some_and(|found| copy_problems(&self.store, &now, found).contains(problem)) {
                        return Ok(Some("restored from the workspace's copy".to_owned()));
                    }
                }
                let dir = match root {
                    Root::Store => conversation.dirs().store,
                    Root::Work => None,
                };
                // In the only root other conversations may lie beneath it, which are sound.
                match dir.filter(|dir| snapshot.outermost_beneath(dir).is_none()) {
                    Some(dir) => self.trash(problem, dir).map(Some),
                    None => Ok(None),
                }
            }
            What::Duplicate => {
                let Some(id) = problem.id else { return Ok(None) };
                let Ok(guard) = self.lock(id, &Wait::none()) else {
                    return Ok(None);
                };
                let mut op = self.begin_structural()?;
                if op.snapshot().in_use(id, &problem.path) || !exists(self.store.disk(), &problem.path)? {
                    // It is the one in use by now, or gone.
                    return Ok(None);
                }
                if problem.path.starts_with(self.store.layout.store.conversations()) {
                    op.unnest(&problem.path)?;
                    op.keep_dir(guard.id(), &problem.path, "duplicate")?;
                } else {
                    op.settle(&guard)?;
                    op.tidy_work()?;
                }
                op.finish()?;
                let gone = !exists(self.store.disk(), &problem.path)?;
                Ok(gone.then(|| format!("kept under {}", self.store.layout.store.conflicts().display())))
            }
            What::Unreadable { .. }
            | What::Irregular { .. }
            | What::Unlisted { .. }
            | What::GarbageParent { .. }
            | What::MissingParent { .. }
            | What::Cycle { .. }
            | What::Mirror { .. }
            | What::UnmergedSilo
            | What::Lost { .. }
            | What::NotSynced { .. }
            | What::Held { .. } => Ok(None),
        }
    }

    /// Moves what is no conversation to its root's trash.
    fn trash(&self, problem: &Problem, dir: &Path) -> Result<String> {
        let told = format!(
            "This directory could not be read as a conversation and was moved here.\n\n**Error:** {}",
            problem.what
        );
        let target = self.put_in_trash(dir, dir.file_name().unwrap_or_default(), &told)?;
        Ok(format!("moved to {}", target.display()))
    }

    /// Moves a directory to its root's trash, under this name if it is free, and leaves a note with it.
    pub(super) fn put_in_trash(&self, dir: &Path, name: &OsStr, told: &str) -> Result<PathBuf> {
        let disk = self.store.disk();
        let in_store = dir.starts_with(self.store.layout.store.conversations());
        let root = match (&self.store.layout.work, in_store) {
            (Some(work), false) => work.conversations.clone(),
            (Some(_) | None, _) => self.store.layout.store.conversations(),
        };
        let trash = root.join(TRASH);
        let access = if in_store { self.store.layout.store_access() } else { Access::Shared };
        make_dirs(disk, &trash, access)?;
        let target = unused(disk, &trash, name)?;
        move_dir(disk, dir, &target, access)?;
        let note = format!(
            "# Trashed conversation\n\n{told}\n**Date:** {}\n\nEverything that was in it is still here. Mend it and move it back to\n\
             `{}` to use it again.\n",
            self.store.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            root.display(),
        );
        // A file of that name may have come with it.
        let file = unused(disk, &target, OsStr::new(NOTE))?;
        disk.write_new(&file, note.as_bytes(), access.file()).context("write", &file)?;
        Ok(target)
    }
}

/// Everything that is wrong, in every copy of every file. Slower than a snapshot: it reads every event.
pub fn problems(store: &Store, snapshot: &Snapshot) -> Vec<Problem> {
    let conversations: Vec<_> = snapshot.all().collect();
    let found = parallel::map(&conversations, |conversation| copy_problems(store, snapshot, conversation));
    let mut problems: Vec<Problem> = snapshot.problems().to_vec();
    for problem in found.into_iter().flatten() {
        // The snapshot has named what it stumbled over.
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    add_held(store, snapshot, &mut problems);
    problems
}

/// Adds what an export and an import leave as it is, and what is not named yet. What they would hold is what they say.
fn add_held(store: &Store, snapshot: &Snapshot, problems: &mut Vec<Problem>) {
    let Some(root) = &store.layout().work else { return };
    let held = match store.plan(&Wanted::all(Direction::Both)) {
        Ok(plan) => plan.held,
        // What refuses to be looked at is named by its path.
        Err(_) if problems.iter().any(|problem| problem.refusal().is_some()) => return,
        Err(error) => {
            let what = What::NotSynced { reason: error.with_causes() };
            return problems.push(Problem { id: None, path: root.conversations.clone(), what });
        }
    };
    for held in held.into_iter().filter(|held| held.kind != HeldKind::Unjoined) {
        let named = |problem: &Problem| problem.id == held.id && held.reason.contains(&*problem.path.to_string_lossy());
        if !problems.iter().any(named) {
            let found = held.id.and_then(|id| snapshot.get(id)).map(|found| found.path().to_owned());
            let path = found.unwrap_or_else(|| root.conversations.clone());
            problems.push(Problem { id: held.id, path, what: What::NotSynced { reason: held.reason } });
        }
    }
}

/// What is wrong with the copies of one conversation. A file that is hidden in this worktree is not missing from it.
fn copy_problems(store: &Store, snapshot: &Snapshot, conversation: &Conversation) -> Vec<Problem> {
    let (id, dirs) = (conversation.id, conversation.dirs());
    let is_hidden = |file: ManagedFile| hides(snapshot.ledger.get(id), Path::new(file.name()));
    let mut problems = Vec::new();
    for (root, dir) in [(Root::Store, dirs.store), (Root::Work, dirs.work)] {
        let Some(dir) = dir else { continue };
        for unit in Unit::ALL {
            let flaw = match UnitBytes::read(store.disk(), dir, unit) {
                Ok(Some(bytes)) => bytes.problem(),
                Ok(None) => unit.files().last().map(|&file| (file, Flaw::Missing)),
                Err(error) => {
                    let mut problem = Problem::unreadable(id, &error, dir);
                    if let (Some(kind), Root::Work, Some(_)) = (error.wrong_kind(), root, dirs.store) {
                        problem.what = What::Irregular { kind };
                    }
                    problems.push(problem);
                    continue;
                }
            };
            let Some((file, flaw)) = flaw else { continue };
            let what = match flaw {
                Flaw::Missing if root == Root::Work && is_hidden(file) => continue,
                Flaw::Missing => What::Missing { root },
                Flaw::Broken(reason) => What::Broken { root, reason },
            };
            problems.push(Problem { id: Some(id), path: managed(dir, file), what });
        }
    }
    problems
}
