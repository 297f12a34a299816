//! Hidden files: what is remembered of them, what becomes of them when their names are made again, and those that are gone
//! from the store, which need no hiding any more.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jp_store::ConversationId;
use jp_store::disk::Kind;
use jp_store::error::Context as _;
use jp_store::journal::Change;
use jp_store::modes::PERMISSIONS;
use jp_store::path_text::{to_path, to_text};
use jp_store::reconcile::Digest;

use super::persist::is_absent;
use super::{Vfs, managed_file};
use crate::caller::Caller;
use crate::error::{FsError, Result};
use crate::node::Node;

/// How long a file must be gone: some programs remove a conversation's directory and copy it back.
const GONE: Duration = Duration::from_secs(3);

/// What is kept because its name was hidden and is made again.
const HIDDEN: &str = "hidden";

/// Hidden files that may be gone, and since when.
pub(super) type Suspects = HashMap<(ConversationId, PathBuf), Instant>;

/// What is known of a name that a caller does not see.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unseen {
    /// What this worktree last showed under it.
    pub(super) last_shown: Option<Digest>,
}

impl Vfs {
    /// Hides a file, a link or a directory. The store keeps it, and what it had is remembered: whoever makes the name again
    /// takes the place of that, and of nothing that others have put there since.
    pub(super) fn hide_node(&self, node: &Node) -> Result<()> {
        self.noted(self.to_hide(node)?, || Ok(()))
    }

    /// What has to be written down for a file to be gone from its name that stays in the store.
    pub(super) fn to_hide(&self, node: &Node) -> Result<Vec<Change>> {
        let (id, inner) = match node {
            Node::Own(id, inner) => (*id, inner.clone()),
            Node::Managed(id, file) => (*id, PathBuf::from(file.name())),
            _ => return Ok(Vec::new()),
        };
        let draft = match node {
            Node::Managed(id, file) => self.draft(*id, *file),
            _ => None,
        };
        let shown = match draft {
            Some(draft) => draft.base,
            // Nobody has looked at it since it was brought back.
            None if self.is_fresh(id, &inner) => self.last_shown(id, &inner),
            // What cannot be read can be removed all the same. It is kept when its name is made again.
            None => self.writer.digest_at(&self.path(node)?).unwrap_or_else(|error| {
                tracing::debug!(%error, "what is hidden is not known");
                None
            }),
        };
        let file = to_text(&inner).into_owned();
        Ok(vec![Change::HideFile(id, file.clone()), Change::LastShown(id, file, shown)])
    }

    /// Whether a caller sees nothing under a name, whatever the store has there.
    pub(super) fn is_unseen(&self, caller: Caller, id: ConversationId, inner: &Path) -> bool {
        self.is_hidden(id, inner) || self.is_masked(caller, id, inner)
    }

    /// What is known of a name that a caller does not see; `None` if it sees what is there.
    pub(super) fn unseen(&self, caller: Caller, id: ConversationId, inner: &Path) -> Option<Unseen> {
        let unseen = self.is_unseen(caller, id, inner) || self.is_fresh(id, inner);
        unseen.then(|| Unseen { last_shown: self.last_shown(id, inner) })
    }

    /// What this worktree last showed or exported under a name that is not seen, as far as it is known.
    pub(super) fn last_shown(&self, id: ConversationId, inner: &Path) -> Option<Digest> {
        self.sight.lock().books.ledger.get(id)?.last_shown(&to_text(inner))
    }

    /// A name that is not seen is about to be made, as something of this kind. What the store has there is kept if this
    /// worktree has never shown it, or if it is of another kind, and then makes room. A directory that becomes one again
    /// stays, and what is in it stays hidden.
    pub(super) fn make_room(&self, caller: Caller, node: &Node, kind: Kind) -> Result<()> {
        let Node::Own(id, inner) = node else { return Ok(()) };
        let unseen = self.is_unseen(caller, *id, inner);
        if !unseen && !self.is_fresh(*id, inner) {
            return Ok(());
        }
        let path = self.path(node)?;
        // Another program may have made it since it was looked at.
        self.backing.doubt(&path);
        let there = match self.backing.stat(&path) {
            Err(error) if is_absent(&error) => return Ok(()),
            there => there.context("look at", &path)?.kind,
        };
        match there {
            Kind::Dir if kind == Kind::Dir => Ok(()),
            // Whoever sees it is told that it is in the way.
            _ if !unseen && kind != there => Ok(()),
            Kind::Dir | Kind::Other => self.set_aside(*id, inner, &path),
            Kind::File | Kind::Link if kind == there => {
                let digest = self.writer.digest_at(&path)?;
                if digest.is_some() && digest == self.last_shown(*id, inner) {
                    Ok(())
                } else {
                    self.keep(*id, inner, &path, there)
                }
            }
            Kind::File | Kind::Link => {
                self.keep(*id, inner, &path, there)?;
                match self.backing.remove(&path) {
                    Err(error) if !is_absent(&error) => Err(error).context("remove", &path).map_err(FsError::from),
                    Ok(()) | Err(_) => Ok(()),
                }
            }
        }
    }

    /// What has to be written down before a directory that is hidden here can be made again, as an empty one.
    pub(super) fn to_show_empty(&self, node: &Node) -> Result<Vec<Change>> {
        let mut changes = self.to_show(node);
        let Node::Own(id, inner) = node else { return Ok(changes) };
        let path = self.path(node)?;
        self.backing.doubt(&path);
        let listed = match self.backing.list(&path) {
            Err(error) if is_absent(&error) => return Ok(changes),
            listed => listed.context("list", &path)?,
        };
        let inside = listed.into_iter().map(|(name, _)| inner.join(name)).filter(|inner| !self.is_hidden(*id, inner));
        changes.extend(inside.map(|inner| Change::HideFile(*id, to_text(&inner).into_owned())));
        Ok(changes)
    }

    /// Keeps what the store has under a name that something else takes.
    fn keep(&self, id: ConversationId, inner: &Path, path: &Path, kind: Kind) -> Result<()> {
        match kind {
            Kind::File => {
                let bytes = self.backing.read_all(path).context("read", path)?;
                self.writer.keep(id, HIDDEN, inner, &bytes)?;
                Ok(())
            }
            Kind::Dir | Kind::Link | Kind::Other => self.set_aside(id, inner, path),
        }
    }

    /// Takes what is hidden out of a directory that shows nothing, so that another can take its place, and keeps it. Returns
    /// the mode of the directory, if it went along.
    pub(super) fn empty_out(&self, node: &Node) -> Result<Option<u32>> {
        let Node::Own(id, inner) = node else { return Ok(None) };
        let path = self.path(node)?;
        let mode = match self.backing.stat(&path) {
            Err(error) if is_absent(&error) => return Ok(None),
            there => there.context("look at", &path)?.mode & PERMISSIONS,
        };
        if self.take_listing(node)?.iter().any(|listed| !listed.is_dots()) {
            return Err(FsError::NotEmpty);
        }
        if self.backing.list(&path).context("list", &path)?.is_empty() {
            return Ok(None);
        }
        self.set_aside(*id, inner, &path)?;
        Ok(Some(mode))
    }

    /// Moves something to where losers are kept, whole and under its path in the conversation.
    pub(super) fn set_aside(&self, id: ConversationId, inner: &Path, path: &Path) -> Result<()> {
        self.writer.keep_whole(id, HIDDEN, inner, path)?;
        self.note_own(path);
        Ok(())
    }

    /// Writes down what is shown and hidden from now on, and then does what makes that true: a name that were given first and
    /// is hidden still would be out of sight. If it cannot be done, all is hidden and shown as before. Each of these changes
    /// something.
    pub(super) fn noted<T>(&self, changes: Vec<Change>, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let back: Vec<_> = changes.iter().rev().flat_map(|change| self.opposite(change)).collect();
        if !changes.is_empty() {
            self.note(&changes)?;
        }
        let done = work();
        if done.is_err()
            && !back.is_empty()
            && let Err(error) = self.note(&back)
        {
            tracing::warn!(%error, "what was hidden is shown, since that could not be written down");
        }
        done
    }

    /// What takes a change back that is about to be written down.
    fn opposite(&self, change: &Change) -> Vec<Change> {
        match change {
            Change::HideFile(id, file) => vec![Change::ShowFile(*id, file.clone())],
            Change::ShowFile(id, file) => {
                let shown = self.last_shown(*id, &to_path(file));
                vec![Change::HideFile(*id, file.clone()), Change::LastShown(*id, file.clone(), shown)]
            }
            Change::Show(_) | Change::Hide(_) | Change::LastShown(..) | Change::Cover => Vec::new(),
        }
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
