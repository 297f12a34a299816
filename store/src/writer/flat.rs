//! What children that lie beside their parents need: nothing but their own file tells whose they are.

use super::operation::Operation;
use crate::error::Result;
use crate::lock::Guard;
use crate::meta::Parent;
use crate::plan::Nesting;

impl Operation<'_> {
    /// Puts into a child's metadata what another writer dropped, or what only its place told.
    pub(super) fn name_parent(&mut self, guard: &Guard) -> Result<()> {
        let found = self.snapshot().find(guard.id())?;
        if self.ledger().form.nesting == Nesting::Nested || found.store.is_none() {
            return Ok(());
        }
        let parent = found.parent;
        let mut meta = self.read_meta(guard)?;
        if let (Parent::Absent, Some(parent)) = (meta.parent(), parent) {
            meta.set_parent(Parent::Of(parent));
        }
        self.write_meta(guard, meta)
    }
}
