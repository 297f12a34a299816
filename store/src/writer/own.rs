//! Makes both roots agree on files of the user's own, and keeps what loses. Single files that this worktree does not show
//! are taken out of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::operation::Operation;
use crate::disk::Kind;
use crate::error::{Context as _, Result};
use crate::files::{NewContent, NewFile, gather, kind, make_dirs, remove_tree, sync_parent};
use crate::id::ConversationId;
use crate::ledger::Left;
use crate::lock::Guard;
use crate::modes::Access;
use crate::observe::{Rule, read_file, unmanaged};
use crate::own::{self, OwnFile, hides, leads_inside};
use crate::path_text::to_text;
use crate::reconcile::{Action, Digest, FileBase, ManagedFile, Root};

impl Operation<'_> {
    /// Whether a file of a conversation is not shown in this worktree.
    pub(super) fn is_hidden(&self, id: ConversationId, path: &Path) -> bool {
        hides(self.ledger().get(id), path)
    }

    /// Keeps these files among a conversation's losers.
    pub(super) fn keep_own(&self, id: ConversationId, root: Root, kept: Vec<NewFile>) -> Result<()> {
        if kept.is_empty() {
            return Ok(());
        }
        self.keep_files(id, &format!("files-{root}"), &kept)
    }

    /// Makes both roots agree on files of the user's own. Where only one has changes, it counts; where both have, the newer
    /// one does, and the older is kept. What is removed from the workspace is hidden there, and stays in the store.
    pub(super) fn agree_on_own(&mut self, guard: &Guard) -> Result<()> {
        let id = guard.id();
        let found = self.snapshot().find(id)?;
        let (dirs, rule) = (found.dirs(), found.rule);
        let (Some(store), Some(work)) = (dirs.store.map(Path::to_owned), dirs.work.map(Path::to_owned)) else {
            return Ok(());
        };
        let files = own::look(self.store().disk(), &store, &work, self.ledger().get(id), rule)?;
        if files.is_empty() && self.ledger().get(id).and_then(|entry| entry.left.as_ref()).is_none() {
            return Ok(());
        }
        // What goes makes room for what comes: a file where a directory was.
        for file in files.iter().rev() {
            self.drop_own(id, &store, &work, file)?;
        }
        for file in &files {
            if file.shown {
                self.show_file_at(id, &file.path);
            }
            if let Some(digest) = self.carry_own(id, &store, &work, file)? {
                self.note_own_as_base(id, &file.path, digest);
            }
        }
        // What was left is measured against these from now on, even if nothing else comes of the operation.
        self.remember_own(id, &store, &work)?;
        let left = self.ledger().get(id).and_then(|entry| entry.left.as_ref());
        if left.is_some_and(|left| left.own.values().any(|base| base.work.is_none())) {
            // Somebody is writing to one: if we die now, what was copied must not pass for somebody else's.
            self.save_ledger()?;
        }
        Ok(())
    }

    /// Remembers which files of the user's own both have alike. Of one that somebody has written to since it was copied
    /// the copied bytes are remembered, and what was written is the change that it is.
    pub(super) fn remember_own(&mut self, id: ConversationId, store: &Path, work: &Path) -> Result<()> {
        let entry = self.ledger().get(id);
        let before = entry.and_then(|entry| entry.left.as_ref()).map(|left| &left.own);
        let (mut own, mut is_held) = (BTreeMap::new(), false);
        for file in own::look(self.store().disk(), store, work, entry, Rule::Newest)? {
            is_held |= file.action == Action::Hold;
            let path = to_text(&file.path);
            let both = file.store.is_some() && file.work.is_some();
            let copied = before.and_then(|before| before.get(&*path)).filter(|_| both);
            let base = file.base().or_else(|| Some(FileBase { store: None, work: None, ..*copied? }));
            own.extend(base.map(|base| (path.clone().into_owned(), base)));
        }
        if !own.is_empty() || self.ledger().get(id).is_some_and(|entry| entry.left.is_some()) {
            self.left_mut(id).own = own;
        }
        if is_held {
            // It is named every time that somebody looks.
            self.left_mut(id).named = [None; 2];
        }
        Ok(())
    }

    /// From here on these bytes are what changes of a file of the user's own are measured against.
    pub(super) fn note_own_as_base(&mut self, id: ConversationId, path: &Path, digest: Digest) {
        let base = FileBase { digest: Some(digest), store: None, work: None };
        self.left_mut(id).own.insert(to_text(path).into_owned(), base);
    }

    /// Both have these files by now. What is written to either before anybody looks again is measured against them.
    pub(super) fn note_copied(&mut self, id: ConversationId, files: &[NewFile]) {
        let mut base = self.ledger().get(id).and_then(|entry| entry.base).unwrap_or_default();
        for file in files {
            let digest = own::digest(&file.content);
            match file.path.to_str().and_then(ManagedFile::from_name) {
                Some(file) => *base.file_mut(file) = FileBase { digest: Some(digest), store: None, work: None },
                None => self.note_own_as_base(id, &file.path, digest),
            }
        }
        let intent = self.intent(id);
        self.remember(id, intent, Some(base));
    }

    /// A file that is not meant to be here goes, or is hidden from now on.
    fn drop_own(&mut self, id: ConversationId, store: &Path, work: &Path, file: &OwnFile) -> Result<()> {
        let disk = self.store().disk();
        match file.action {
            Action::Unproject => {
                self.hide_file(id, &to_text(&file.path));
            }
            Action::Drop => {
                let path = work.join(&file.path);
                if file.work.is_some_and(|copy| copy.kind == Kind::Dir) {
                    // One that still holds something stays.
                    let _ = disk.remove_dir(&path);
                } else if leads_inside(disk, work, &file.path)? {
                    self.drop_file(id, &path, file)?;
                }
            }
            // Another kind of thing is in the way of what comes.
            Action::Export | Action::Import | Action::Conflict { .. } => {
                let kinds = (file.store.map(|copy| copy.kind), file.work.map(|copy| copy.kind));
                let (Some(in_store), Some(in_work)) = kinds else { return Ok(()) };
                if in_store == in_work && in_store == Kind::File {
                    return Ok(());
                }
                let source = file.source().unwrap_or(Root::Store);
                let (target, there) = if source == Root::Store { (work, in_work) } else { (store, in_store) };
                let inside = |path: &PathBuf| path.starts_with(&file.path);
                let lost: Vec<_> = unmanaged(disk, target)?.into_iter().filter(inside).collect();
                if matches!(file.action, Action::Conflict { .. }) || there == Kind::Dir && lost.len() > 1 {
                    self.keep_own(id, source.other(), gather(disk, target, lost)?)?;
                }
                remove_tree(disk, &target.join(&file.path))?;
            }
            Action::Keep | Action::Restore | Action::Hold => {}
        }
        Ok(())
    }

    /// Removes a file from the workspace's copy. What somebody has written to it since it was seen is kept.
    fn drop_file(&self, id: ConversationId, path: &Path, file: &OwnFile) -> Result<()> {
        let scratch = self.writer.work_scratch().filter(|_| file.work.is_some_and(|copy| copy.kind == Kind::File));
        let Some(scratch) = scratch else { return self.store().disk().remove_file(path).context("remove", path) };
        let bytes = scratch.take_away(path)?;
        if file.work.is_some_and(|copy| copy.digest == Digest::of(&bytes)) {
            return Ok(());
        }
        let content = NewContent::File { bytes, mode: Access::Private.file() };
        self.keep_own(id, Root::Work, vec![NewFile { path: file.path.clone(), content }])
    }

    /// Copies a file from the side that counts to the other. Says what was copied, which need not be what was seen.
    fn carry_own(&mut self, id: ConversationId, store: &Path, work: &Path, file: &OwnFile) -> Result<Option<Digest>> {
        let disk = self.store().disk();
        let Some(source) = file.source() else { return Ok(None) };
        let (from, to) = if source == Root::Store { (store, work) } else { (work, store) };
        let target = to.join(&file.path);
        if !leads_inside(disk, to, &file.path)? {
            return Ok(None);
        }
        let both_files = [file.store, file.work].iter().all(|copy| copy.is_some_and(|copy| copy.kind == Kind::File));
        if matches!(file.action, Action::Conflict { .. }) && both_files {
            // The decision is written down before it is acted on: with the loser as the base, only the winner has changes.
            self.keep_own(id, source.other(), gather(disk, to, [file.path.clone()])?)?;
            let loser = if source == Root::Store { file.work } else { file.store };
            if let Some(loser) = loser {
                self.note_own_as_base(id, &file.path, loser.digest);
                self.save_ledger()?;
            }
        }
        let scratch = if source == Root::Store { self.writer.work_scratch() } else { Some(self.writer.scratch()) };
        let Some(scratch) = scratch else { return Ok(None) };
        let access = if source == Root::Store { Access::Shared } else { self.store().layout.store_access() };
        let disk = self.store().disk();
        let mut copied = None;
        for new in gather(disk, from, [file.path.clone()])? {
            let digest = own::digest(&new.content);
            match new.content {
                NewContent::Dir => make_dirs(disk, &target, access)?,
                NewContent::File { .. } if kind(disk, &target)? == Some(Kind::Dir) => continue,
                NewContent::File { bytes, mode } => {
                    if let Some(parent) = target.parent() {
                        make_dirs(disk, parent, access)?;
                    }
                    let other = if source == Root::Store { file.work } else { file.store };
                    let seen = |old: &[u8]| other.is_some_and(|copy| copy.digest == Digest::of(old));
                    // A file of the workspace keeps its permission bits; one of the store gets none that either has not.
                    let there = kind(disk, &target)?.is_some();
                    let like = if source == Root::Store && there { None } else { Some(mode) };
                    if let Some(late) = scratch.swap(&target, &bytes, like, &seen)? {
                        let content = NewContent::File { bytes: late, mode };
                        let late = NewFile { path: file.path.clone(), content };
                        self.keep_own(id, source.other(), vec![late])?;
                    }
                }
                NewContent::Link(to) if kind(disk, &target)?.is_none() => {
                    if let Some(parent) = target.parent() {
                        make_dirs(disk, parent, access)?;
                    }
                    disk.symlink(&to, &target).context("link", &target)?;
                    sync_parent(disk, &target)?;
                }
                NewContent::Link(_) => continue,
            }
            copied = Some(digest);
        }
        Ok(copied)
    }

    /// Files of the workspace's copy that the store does not have as they are: a program's scratch, and what could not be
    /// agreed on.
    pub(super) fn own_left_over(&self, id: ConversationId) -> Result<Vec<NewFile>> {
        let disk = self.store().disk();
        let dirs = self.snapshot().find(id)?.dirs();
        let (Some(store), Some(work)) = (dirs.store, dirs.work) else { return Ok(Vec::new()) };
        let files = own::look(disk, store, work, self.ledger().get(id), Rule::Newest)?;
        let alike: BTreeSet<_> = files.into_iter().filter(|file| file.base().is_some()).map(|file| file.path).collect();
        let mut left = Vec::new();
        for path in unmanaged(disk, work)?.into_iter().filter(|path| !alike.contains(path)) {
            let made = own::is_transcript_as_left(disk, work, &path, self.ledger().get(id))?;
            let found = gather(disk, work, [path])?;
            left.extend(found.into_iter().filter(|file| !made && !matches!(file.content, NewContent::Dir)));
        }
        Ok(left)
    }

    /// How the last reconcile left a copy, to be changed.
    pub(super) fn left_mut(&mut self, id: ConversationId) -> &mut Left {
        if self.ledger().get(id).is_none() {
            let intent = self.intent(id);
            self.remember(id, intent, None);
        }
        self.ledger_mut().entry(id).left.get_or_insert_default()
    }

    /// A hidden file that somebody put back into the workspace is shown again.
    pub(super) fn show_put_back(&mut self, id: ConversationId) -> Result<()> {
        let Some(work) = self.work_dir_of(id) else { return Ok(()) };
        if self.ledger().covered {
            // What is there has not followed yet; nobody put it there.
            return Ok(());
        }
        for file in self.hidden_managed(id) {
            if kind(self.store().disk(), &work.join(file.name()))?.is_some() {
                self.show_file(id, file.name());
            }
        }
        Ok(())
    }

    /// Takes hidden managed files out of the workspace's copy. One that is not as it was exported is somebody's, and is
    /// shown.
    pub(super) fn drop_hidden(&mut self, id: ConversationId) -> Result<()> {
        let Some(work) = self.work_dir_of(id) else { return Ok(()) };
        for file in self.hidden_managed(id) {
            let path = work.join(file.name());
            match kind(self.store().disk(), &path)? {
                None => {}
                Some(Kind::File) if self.is_as_exported(id, &work, file)? => {
                    self.store().disk().remove_file(&path).context("remove", &path)?;
                }
                Some(_) => self.show_file(id, file.name()),
            }
        }
        Ok(())
    }

    /// Whether a managed file in the workspace is nothing but a copy. What the store does not have any more is kept first.
    fn is_as_exported(&self, id: ConversationId, work: &Path, file: ManagedFile) -> Result<bool> {
        let disk = self.store().disk();
        let read = |dir: &Path| read_file(disk, &dir.join(file.name()));
        let digest = |bytes: &[u8]| Some(Digest::of(bytes));
        let gone = self.snapshot().base(id).is_some_and(|base| base.file(file).work.is_none());
        if gone && !self.ledger().covered {
            // Somebody put it back.
            return Ok(false);
        }
        let there = read(work)?.and_then(|contents| digest(&contents.bytes));
        let base = self.snapshot().base(id).and_then(|base| base.file(file).digest);
        if base.is_some() && there == base {
            return Ok(true);
        }
        let Some(store) = self.snapshot().find(id)?.dirs().store else { return Ok(false) };
        match read(store)?.and_then(|contents| digest(&contents.bytes)) {
            None => {
                self.keep_own(id, Root::Work, gather(disk, work, [PathBuf::from(file.name())])?)?;
                Ok(true)
            }
            ours => Ok(ours == there),
        }
    }

    fn show_file_at(&mut self, id: ConversationId, path: &Path) {
        // What is hidden may be a directory it is in.
        for path in path.ancestors() {
            self.show_file(id, &to_text(path));
        }
    }

    fn work_dir_of(&self, id: ConversationId) -> Option<PathBuf> {
        self.snapshot().get(id)?.dirs().work.map(Path::to_owned)
    }

    fn hidden_managed(&self, id: ConversationId) -> Vec<ManagedFile> {
        let hidden = self.ledger().get(id).map(|entry| &entry.hidden);
        let managed = |file: &String| match Path::new(file).components().next()? {
            Component::Normal(name) => ManagedFile::from_name(name.to_str()?).filter(|managed| managed.name() == file),
            _ => None,
        };
        hidden.into_iter().flatten().filter_map(managed).collect()
    }
}
