//! Transcripts beside the real files: made from the events, never taken for anybody's own.

use std::path::Path;

use super::operation::Operation;
use crate::error::{Context as _, Result};
use crate::files::{NewFile, exists, gather};
use crate::id::ConversationId;
use crate::lock::Guard;
use crate::observe::{read_file, stat_file};
use crate::own::{is_made, made_from};
use crate::reconcile::{Digest, FileBase, Root};
use crate::transcript;

impl Operation<'_> {
    /// The transcript that belongs beside a new copy, where transcripts are wanted.
    pub(super) fn new_transcript(&self, id: ConversationId) -> Result<Option<NewFile>> {
        if !self.ledger().form.transcripts {
            return Ok(None);
        }
        Ok(self.make_transcript(id)?.map(|bytes| NewFile::bytes(transcript::NAME, bytes)))
    }

    /// Makes the transcript beside a copy say what the store does. One that is there is kept current even where none is
    /// asked for; one that was written here goes when none is wanted any more. What somebody wrote into it is kept.
    pub(super) fn write_transcript(&mut self, guard: &Guard) -> Result<()> {
        let (id, disk) = (guard.id(), self.store().disk());
        let Some(work) = self.snapshot().find(id)?.dirs().work.map(Path::to_owned) else { return Ok(()) };
        let path = work.join(transcript::NAME);
        let there = if is_made(disk, &path)? { read_file(disk, &path)?.map(|contents| contents.bytes) } else { None };
        if there.is_none() && exists(disk, &path)? {
            // Somebody's own, of whatever kind.
            return Ok(());
        }
        let left = self.ledger().get(id).and_then(|entry| entry.left.as_ref()?.transcript);
        let (asked, was_asked) = (self.ledger().form.transcripts, left.is_some());
        let new = if asked || !was_asked && there.is_some() { self.make_transcript(id)? } else { None };
        let as_left = there.as_deref().map(Digest::of) == left.and_then(|left| left.digest);
        if there.is_some() && !as_left && there != new && was_asked {
            self.keep_own(id, Root::Work, gather(disk, &work, [transcript::NAME.into()])?)?;
        }
        match (&new, &there, self.writer.work_scratch()) {
            (Some(bytes), _, Some(scratch)) => scratch.replace(&path, bytes).map(drop)?,
            (None, Some(_), _) if was_asked => disk.remove_file(&path).context("remove", &path)?,
            (Some(_) | None, ..) => {}
        }
        let work = stat_file(disk, &path)?;
        let written =
            new.filter(|_| asked).map(|bytes| FileBase { digest: Some(Digest::of(&bytes)), store: None, work });
        if let Some(left) = self.ledger_mut().get_mut(id).and_then(|entry| entry.left.as_mut()) {
            left.transcript = written;
        }
        Ok(())
    }

    /// The transcript of what the store has, if it makes one.
    fn make_transcript(&self, id: ConversationId) -> Result<Option<Vec<u8>>> {
        let Some(store) = self.snapshot().find(id)?.dirs().store else { return Ok(None) };
        made_from(self.store().disk(), id, store)
    }
}
