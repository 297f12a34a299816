//! Hidden files that are gone from the store. They need no hiding any more, and a file that gets the name later is shown.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jp_store::ConversationId;
use jp_store::disk::Kind;
use jp_store::journal::Change;
use jp_store::path_text::{to_path, to_text};

use super::{Vfs, managed_file};
use crate::error::Result;
use crate::node::Node;

/// How long a file must be gone: some programs remove a conversation's directory and copy it back.
const GONE: Duration = Duration::from_secs(3);

/// Hidden files that may be gone, and since when.
pub(super) type Suspects = HashMap<(ConversationId, PathBuf), Instant>;

impl Vfs {
    /// Hides a file, a link or a directory of the user's own. The store keeps it.
    pub(super) fn hide_own(&self, id: ConversationId, inner: &Path) -> Result<()> {
        self.note(&[Change::HideFile(id, to_text(inner).into_owned())])
    }

    /// Writes down what is shown and hidden from now on, and then does what makes that true: a name that were given first and
    /// is hidden still would be out of sight. If it cannot be done, all is hidden and shown as before. Each of these changes
    /// something.
    pub(super) fn noted<T>(&self, changes: Vec<Change>, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if !changes.is_empty() {
            self.note(&changes)?;
        }
        let done = work();
        if done.is_err() && !changes.is_empty() {
            let back: Vec<_> = changes.into_iter().rev().filter_map(opposite).collect();
            if let Err(error) = self.note(&back) {
                tracing::warn!(%error, "what was hidden is shown, since that could not be written down");
            }
        }
        done
    }

    /// A file of the store is not there. If it is hidden, it is looked at again later.
    pub(super) fn suspect(&self, id: ConversationId, inner: &Path) {
        if self.is_hidden(id, inner) && managed_file(inner.as_os_str()).is_none() {
            self.suspects.lock().entry((id, inner.to_owned())).or_insert_with(Instant::now);
        }
    }

    /// As [`Vfs::suspect`], of the file that is to be shown.
    pub(super) fn suspect_of(&self, change: &Change) {
        if let Change::ShowFile(id, text) = change {
            self.suspect(*id, &to_path(text));
        }
    }

    /// Any hidden file may have gone before somebody watched.
    pub(super) fn suspect_all(&self) {
        let hidden: Vec<_> = {
            let catalog = self.catalog.read();
            let of = |id| catalog.get(id).map(|item| (id, item.hidden.clone()));
            catalog.ids().filter_map(of).filter(|(_, hidden)| !hidden.is_empty()).collect()
        };
        for (id, texts) in hidden {
            texts.iter().for_each(|text| self.suspect(id, &to_path(text)));
        }
    }

    /// Drops what is hidden of files that are gone. Called every now and then.
    pub fn tend_hidden(&self) -> Result<()> {
        if self.rules.read_only {
            return Ok(());
        }
        let mut due: HashMap<ConversationId, Vec<PathBuf>> = HashMap::new();
        self.suspects.lock().retain(|(id, inner), since| {
            let is_due = since.elapsed() >= GONE;
            if is_due {
                due.entry(*id).or_default().push(inner.clone());
            }
            !is_due
        });
        for (id, inner) in due {
            // Whoever makes the file meanwhile has the room.
            let _room = self.room(id).lock_arc();
            let gone = inner.into_iter().filter(|inner| self.is_hidden(id, inner) && self.is_gone(id, inner));
            let changes: Vec<_> = gone.map(|inner| Change::ShowFile(id, to_text(&inner).into_owned())).collect();
            if let Err(error) = self.noted(changes.clone(), || Ok(())) {
                changes.iter().for_each(|change| self.suspect_of(change));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether the store has no such file, for sure.
    fn is_gone(&self, id: ConversationId, inner: &Path) -> bool {
        let dir = self.dir_of(id).and_then(|dir| self.attr_at(&dir));
        let file = self.path(&Node::Own(id, inner.to_owned())).and_then(|path| self.attr_at(&path));
        dir.is_ok_and(|attr| attr.kind == Kind::Dir) && file.is_err_and(|error| error.is_absent())
    }
}

fn opposite(change: Change) -> Option<Change> {
    match change {
        Change::HideFile(id, file) => Some(Change::ShowFile(id, file)),
        Change::ShowFile(id, file) => Some(Change::HideFile(id, file)),
        Change::Show(_) | Change::Hide(_) | Change::Cover => None,
    }
}
