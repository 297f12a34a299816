//! Transcripts beside the real files: made from the events, never taken for anybody's own.

use super::operation::Operation;
use crate::error::Result;
use crate::files::NewFile;
use crate::id::ConversationId;
use crate::lock::Guard;
use crate::meta::Parent;
use crate::plan::Nesting;

impl Operation<'_> {
    /// The transcript that belongs beside a new copy, where transcripts are wanted.
    pub(super) fn new_transcript(&self, _id: ConversationId) -> Result<Option<NewFile>> {
        Ok(None)
    }

    /// Where children lie beside their parents, nothing but the file tells whose they are: what another writer dropped, or
    /// what only the place told, is put into it.
    pub(super) fn name_parent(&mut self, guard: &Guard) -> Result<()> {
        if self.ledger().form.nesting == Nesting::Nested || self.snapshot().find(guard.id())?.store.is_none() {
            return Ok(());
        }
        let parent = self.snapshot().find(guard.id())?.parent;
        let mut meta = self.read_meta(guard)?;
        if let (Parent::Absent, Some(parent)) = (meta.parent(), parent) {
            meta.set_parent(Parent::Of(parent));
        }
        self.write_meta(guard, meta)
    }
}
