//! Scratch in directories of the user's own. It lies in a tree of its own, and goes where its directory goes.

use std::path::{Component, Path, PathBuf};

use jp_store::ConversationId;
use jp_store::disk::Kind;
use jp_store::error::Context as _;
use jp_store::path_text::{to_path, to_text};
use serde::{Deserialize, Serialize};

use super::Vfs;
use super::persist::is_absent;
use crate::error::Result;
use crate::node::{Home, Node};

/// What scratch is called that is kept because another directory got the name of its own.
const LEFT: &str = "scratch";

/// A directory whose scratch is moved ahead of it: where it was and where it goes, on disk until both have moved.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Moving {
    from: (ConversationId, String),
    to: (ConversationId, String),
}

impl Vfs {
    /// Moves the scratch in a directory that is about to be renamed. Whoever renames says how that ended.
    pub(super) fn move_scratch(&self, source: &Node, target: &Node) -> Result<Option<Moving>> {
        let Node::Own(new, to) = target else { return Ok(None) };
        self.keep_scratch(*new, to)?;
        let Node::Own(old, from) = source else { return Ok(None) };
        if !self.is_dir(&self.scratch_in(*old, from))? {
            return Ok(None);
        }
        let text = |path: &Path| to_text(path).into_owned();
        let moving = Moving { from: (*old, text(from)), to: (*new, text(to)) };
        let note = self.moving_path();
        // A note of plain values is always JSON.
        let bytes = serde_json::to_vec(&moving).unwrap_or_default();
        self.backing.replace(&note, &note.with_extension("new"), &bytes).context("write", &note)?;
        match self.carry(&moving.from, &moving.to) {
            Ok(()) => Ok(Some(moving)),
            Err(error) => {
                self.forget_moving();
                Err(error)
            }
        }
    }

    /// The directory whose scratch was moved has followed, or has not.
    pub(super) fn end_moving(&self, moving: Option<Moving>, followed: bool) {
        let Some(moving) = moving else { return };
        if !followed && let Err(error) = self.carry(&moving.to, &moving.from) {
            // The next mount puts it right.
            tracing::warn!(%error, "scratch is not where its directory is");
            return;
        }
        self.forget_moving();
    }

    /// Scratch that an earlier mount was moving goes where its directory is.
    pub(super) fn finish_moving(&self) -> Result<()> {
        let note = self.moving_path();
        let bytes = match self.backing.read_all(&note) {
            Err(error) if is_absent(&error) => return Ok(()),
            bytes => bytes.context("read", &note)?,
        };
        if self.rules.read_only {
            return Ok(());
        }
        let is_inside = |(_, inner): &(ConversationId, String)| {
            !inner.is_empty() && to_path(inner).components().all(|part| matches!(part, Component::Normal(_)))
        };
        let moving: Option<Moving> = serde_json::from_slice(&bytes).ok();
        if let Some(Moving { from, to }) = moving.filter(|moving| is_inside(&moving.from) && is_inside(&moving.to)) {
            let has_dir = |(id, inner): &(ConversationId, String)| match self.dir_of(*id) {
                Ok(dir) => self.is_dir(&dir.join(to_path(inner))),
                Err(_) => Ok(false),
            };
            let has_scratch =
                |(id, inner): &(ConversationId, String)| self.is_dir(&self.scratch_in(*id, &to_path(inner)));
            for (here, there) in [(&from, &to), (&to, &from)] {
                if has_dir(here)? && !has_dir(there)? && has_scratch(there)? && !has_scratch(here)? {
                    self.carry(there, here)?;
                }
            }
        }
        self.forget_moving();
        Ok(())
    }

    /// A directory is about to be made. What lies among scratch under its name was another one's: it is kept, and not shown
    /// in the new one.
    pub(super) fn make_room_for_scratch(&self, node: &Node) -> Result<()> {
        let Node::Own(id, inner) = node else { return Ok(()) };
        if self.is_hidden(*id, inner) || !self.is_dir(&self.path(node)?)? {
            self.keep_scratch(*id, inner)?;
        }
        Ok(())
    }

    fn keep_scratch(&self, id: ConversationId, inner: &Path) -> Result<()> {
        let path = self.scratch_in(id, inner);
        if self.is_dir(&path)? && !self.remove_hollow(&path)? {
            self.writer.keep_whole(id, LEFT, inner, &path)?;
        }
        Ok(())
    }

    /// Removes a directory that has nothing but directories in it; `false` if it has more.
    fn remove_hollow(&self, dir: &Path) -> Result<bool> {
        for (name, kind) in self.backing.list(dir).context("list", dir)? {
            if kind != Kind::Dir || !self.remove_hollow(&dir.join(name))? {
                return Ok(false);
            }
        }
        self.backing.remove_dir(dir).context("remove directory", dir)?;
        Ok(true)
    }

    fn carry(&self, from: &(ConversationId, String), to: &(ConversationId, String)) -> Result<()> {
        let [from, to] = [from, to].map(|(id, inner)| self.scratch_in(*id, &to_path(inner)));
        if let Some(dir) = to.parent() {
            self.backing.make_dirs(dir).context("make directory", dir)?;
        }
        Ok(self.backing.rename(&from, &to).context("rename", &from)?)
    }

    fn forget_moving(&self) {
        let note = self.moving_path();
        if let Err(error) = self.backing.remove(&note) {
            tracing::debug!(path = %note.display(), %error, "a note stays behind");
        }
    }

    fn is_dir(&self, path: &Path) -> Result<bool> {
        match self.backing.stat(path) {
            Err(error) if is_absent(&error) => Ok(false),
            found => Ok(found.context("look at", path)?.kind == Kind::Dir),
        }
    }

    fn scratch_in(&self, id: ConversationId, inner: &Path) -> PathBuf {
        self.scratch_dir(Home::Conversation(id)).join(inner)
    }

    fn moving_path(&self) -> PathBuf {
        self.state.join("moving.json")
    }
}
