//! Shows again what is hidden in this worktree: a conversation with what is above it, and single files of it.

use std::path::{Component, Path};

use super::Writer;
use super::toggle::Toggled;
use crate::error::{Error, Result};
use crate::files::exists;
use crate::id::ConversationId;
use crate::lock::Wait;
use crate::path_text::{to_path, to_text};
use crate::presence::Projection;
use crate::snapshot::Snapshot;
use crate::store::Store;

/// What was shown again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unhidden {
    /// The conversation, and the others that came along.
    pub toggled: Toggled,
    /// Files of it, by their paths in its directory.
    pub files: Vec<String>,
}

impl Store {
    /// The files of a conversation that this worktree hides and the store has, by their paths in its directory. What lies
    /// in a hidden directory is not named by itself.
    pub fn hidden_files(&self, snapshot: &Snapshot, id: ConversationId) -> Result<Vec<String>> {
        let hidden = snapshot.ledger.get(id).map(|entry| &entry.hidden);
        let dir = snapshot.get(id).and_then(|found| found.dirs().store.map(Path::to_owned));
        let (Some(hidden), Some(dir)) = (hidden, dir) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for path in hidden {
            let inner = &*to_path(path);
            let plain = inner.components().all(|part| matches!(part, Component::Normal(_)));
            let inside = inner.ancestors().skip(1).any(|above| hidden.contains(&*to_text(above)));
            if plain && !inside && exists(self.disk(), &dir.join(inner))? {
                found.push(path.clone());
            }
        }
        Ok(found)
    }

    /// Every conversation with hidden files that the store has, by id.
    pub fn all_hidden_files(&self, snapshot: &Snapshot) -> Result<Vec<(ConversationId, Vec<String>)>> {
        let ids = snapshot.ledger.entries().filter(|(_, entry)| !entry.hidden.is_empty()).map(|(id, _)| id);
        let mut all = Vec::new();
        for id in ids {
            let files = self.hidden_files(snapshot, id)?;
            if !files.is_empty() {
                all.push((id, files));
            }
        }
        Ok(all)
    }
}

impl Writer {
    /// Shows a conversation here, ancestors first, and its hidden files: those that are named, or all of them. Refused if a
    /// file that is named is not hidden.
    pub fn unhide(&self, id: ConversationId, files: &[String], wait: &Wait<'_>) -> Result<Unhidden> {
        let snapshot = self.store.snapshot()?;
        snapshot.find(id)?;
        let hidden = self.store.hidden_files(&snapshot, id)?;
        for file in files {
            let covers = |above: &Path| hidden.iter().any(|path| *path == to_text(above));
            let holds = |path: &String| to_path(path).starts_with(file);
            if !Path::new(file).ancestors().any(covers) && !hidden.iter().any(holds) {
                return Err(Error::Refused(format!("{file} of {id} is not hidden in this worktree")));
            }
        }
        let mut unhidden = Unhidden::default();
        if !snapshot.is_shown(id) || files.is_empty() && !snapshot.is_visible(id) {
            unhidden.toggled = self.toggle(id, Projection::Projected, wait)?;
        }
        let guard = self.lock(id, wait)?;
        let mut op = self.begin()?;
        // What was hidden meanwhile is hidden by somebody who means it.
        let chosen = |path: &String| {
            let path = to_path(path);
            files.is_empty() || files.iter().any(|file| Path::new(file).starts_with(&path) || path.starts_with(file))
        };
        let entries = op.ledger().get(id).map(|entry| entry.hidden.clone()).unwrap_or_default();
        let entries: Vec<String> = entries.into_iter().filter(chosen).collect();
        if entries.is_empty() {
            return Ok(unhidden);
        }
        entries.iter().for_each(|path| op.show_file(id, path));
        op.settle(&guard)?;
        op.project(&guard)?;
        op.finish()?;
        unhidden.files = hidden.into_iter().filter(|path| entries.contains(path)).collect();
        Ok(unhidden)
    }
}
