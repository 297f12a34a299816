//! Drafts and arriving conversations that a command gives up or commits, while the mount shows them.

use std::path::{Path, PathBuf};

use jp_store::ConversationId;
use jp_store::error::Context as _;
use jp_store::lock::Wait;
use jp_store::reconcile::{Digest, ManagedFile};

use super::Vfs;
use super::save::Outcome;
use crate::caller::Caller;
use crate::catalog::Stale;
use crate::draft::Draft;
use crate::error::{FsError, Result};
use crate::node::Node;
use crate::refusal::{Refusal, check};

/// What came of a command: where bytes are kept that lost their place, if there are any, or why nothing was done.
pub type Handled = Result<Option<PathBuf>, Refusal>;

impl Vfs {
    /// Gives a draft up. Its bytes are kept among the conversation's losers, and the mount shows what the store has.
    pub fn give_up_draft(&self, id: ConversationId, file: ManagedFile) -> Result<Handled> {
        let _room = self.room(id).lock_arc();
        let bytes = match self.draft(id, file) {
            Some(draft) => draft.bytes.to_vec(),
            // Drafts of conversations that are gone are on disk only.
            None => match self.read_draft_file(id, file)? {
                Some(text) => Draft::parse(&text).map_or(text, |draft| draft.bytes.to_vec()),
                None => return Ok(Err(Refusal::Absent)),
            },
        };
        let kept = match bytes.is_empty() {
            true => None,
            false => Some(self.writer.keep(id, "dropped-draft", file.name(), &bytes)?),
        };
        self.forget_draft(id, file)?;
        let dir = Node::Conversation(id);
        self.tell(vec![
            Stale::Name(dir.clone(), file.name().into()),
            Stale::Content(dir),
            Stale::Content(Node::Managed(id, file)),
        ]);
        Ok(Ok(kept))
    }

    /// Commits a draft for a process, which may hold the conversation's lock itself. If the store's file was changed since
    /// the draft began this is refused; with `force` the store's bytes are kept first.
    pub fn apply_draft(&self, caller: Caller, id: ConversationId, file: ManagedFile, force: bool) -> Result<Handled> {
        let _room = self.room(id).lock_arc();
        let Some(mut draft) = self.draft(id, file) else {
            let there = self.read_draft_file(id, file)?.is_some();
            return Ok(Err(if there { Refusal::Gone } else { Refusal::Absent }));
        };
        let guard = self.writer.on_behalf_of(caller.pid).lock(id, &Wait::none())?;
        let current = match self.read_current(id, file) {
            Err(FsError::Stale) => return Ok(Err(Refusal::Gone)),
            current => current?.1,
        };
        if let Err(refusal) = check(file, &draft, current.as_deref(), force) {
            return Ok(Err(refusal));
        }
        let mut kept = None;
        if let Some(current) = current.filter(|bytes| *bytes != **draft.bytes)
            && draft.base != Some(Digest::of(&current))
        {
            kept = Some(self.writer.keep(id, "overtaken-store", file.name(), &current)?);
            draft.base = Some(Digest::of(&current));
        }
        match self.settle_as_is(caller, &guard, file, draft)? {
            Outcome::Kept(reason) => return Ok(Err(Refusal::Refused { reason: reason.to_string() })),
            Outcome::Waits(error) => return Err(error),
            Outcome::Committed { .. } => {}
        }
        self.show_file(&Node::Managed(id, file))?;
        Ok(Ok(kept))
    }

    /// Gives up a conversation that is arriving. Its files are kept among the losers of its id.
    pub fn give_up_arrival(&self, id: ConversationId) -> Result<Handled> {
        let _room = self.room(id).lock_arc();
        let dir = self.arrival_dir(id);
        if !self.is_arriving(id, &dir) {
            return Ok(Err(Refusal::Absent));
        }
        let kept = self.writer.keep_dir(id, "dropped-arrival", &dir)?;
        let note = self.note_path(id);
        match self.backing.remove(&note) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.context("remove", &note)?,
        }
        self.fresh.lock().remove(&id);
        if self.item(id).is_ok_and(|item| item.pending) {
            let mut stale = self.catalog.write().give(id, None);
            stale.extend(self.catalog.write().apply(id, None));
            self.tell(stale);
            // The store may have a conversation of that id.
            self.look_at_names()?;
            self.inodes.lock().unlinked(&Node::Conversation(id));
        }
        Ok(Ok(Some(kept)))
    }

    /// Takes in a conversation that is arriving, or says what it needs.
    pub fn apply_arrival(&self, caller: Caller, id: ConversationId) -> Result<Handled> {
        let _room = self.room(id).lock_arc();
        if !self.is_arriving(id, &self.arrival_dir(id)) {
            return Ok(Err(Refusal::Absent));
        }
        self.arrive(caller, id)?;
        if self.item(id).is_ok_and(|item| !item.pending) {
            return Ok(Ok(None));
        }
        let needs = self.arrivals().into_iter().find(|arrival| arrival.id == id.to_string()).map(|it| it.needs);
        Ok(Err(needs.map_or(Refusal::Gone, |needs| Refusal::Needs { needs })))
    }

    fn is_arriving(&self, id: ConversationId, dir: &Path) -> bool {
        let known = self.item(id).is_ok_and(|item| item.pending);
        // What has arrived may leave an empty directory, which nobody misses.
        known || self.backing.list(dir).is_ok_and(|listed| !listed.is_empty())
    }

    fn read_draft_file(&self, id: ConversationId, file: ManagedFile) -> Result<Option<Vec<u8>>> {
        let path = self.draft_path(id, file);
        match self.backing.read_all(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            read => Ok(Some(read.context("read", &path)?)),
        }
    }
}
