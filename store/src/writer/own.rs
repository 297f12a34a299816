//! Files of the user's own in a conversation, and single files that this worktree does not show. Nobody remembers how they
//! were left, so bytes are compared, and a loser is kept unless it is known to be an old copy.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::operation::Operation;
use crate::disk::{Disk, Kind};
use crate::error::{Context as _, Result};
use crate::files::{NewContent, NewFile, gather, kind, make_dirs, sync_parent};
use crate::id::ConversationId;
use crate::ledger::Entry;
use crate::lock::Guard;
use crate::observe::{read_file, unmanaged};
use crate::reconcile::{Digest, ManagedFile, Root};
use crate::scratch::is_scratch;

/// A draft of the user's next message lies in the store's directory only.
const NOT_EXPORTED: &str = "QUERY_MESSAGE.md";

/// Whether an unmanaged file of the store is copied out.
pub(super) fn is_exported(path: &Path) -> bool {
    path != Path::new(NOT_EXPORTED) && !path.iter().any(is_scratch)
}

/// Whether a file, or a directory it is in, is hidden.
pub(super) fn hides(entry: Option<&Entry>, path: &Path) -> bool {
    let Some(hidden) = entry.map(|entry| &entry.hidden).filter(|hidden| !hidden.is_empty()) else { return false };
    path.ancestors().any(|path| path.to_str().is_some_and(|path| hidden.contains(path)))
}

/// Whether both directories have the same files of the user's own, apart from hidden ones, which are in the store alone.
pub(super) fn own_files_agree(disk: &dyn Disk, store: &Path, work: &Path, entry: Option<&Entry>) -> Result<bool> {
    let mut ours = unmanaged(disk, store)?;
    ours.retain(|path| is_exported(path) && !hides(entry, path));
    let mut theirs = unmanaged(disk, work)?;
    theirs.retain(|path| !path.iter().any(is_scratch));
    if ours != theirs {
        return Ok(false);
    }
    for path in ours {
        if !same(disk, &store.join(&path), &work.join(&path))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a path in a directory leads through directories alone, and so to nowhere else.
fn leads_inside(disk: &dyn Disk, dir: &Path, path: &Path) -> Result<bool> {
    for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        if kind(disk, &dir.join(above))?.is_some_and(|kind| kind != Kind::Dir) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether one of these paths in a directory holds exactly this.
fn holds(disk: &dyn Disk, dir: &Path, paths: &[PathBuf], file: &Path) -> Result<bool> {
    let stat = |path: &Path| disk.stat(path).context("look at", path);
    let wanted = stat(file)?;
    for path in paths.iter().map(|path| dir.join(path)) {
        let found = stat(&path)?;
        let alike = match (found.kind, wanted.kind) {
            (Kind::File, Kind::File) if found.size == wanted.size => {
                let read = |path: &Path| disk.read(path).map(|contents| contents.bytes).context("read", path);
                read(&path)? == read(file)?
            }
            (Kind::Link, Kind::Link) => same(disk, &path, file)?,
            _ => false,
        };
        if alike {
            return Ok(true);
        }
    }
    Ok(false)
}

fn same(disk: &dyn Disk, a: &Path, b: &Path) -> Result<bool> {
    let stat = |path: &Path| disk.stat(path).context("look at", path);
    let (of_a, of_b) = (stat(a)?, stat(b)?);
    match (of_a.kind, of_b.kind) {
        (Kind::File, Kind::File) if of_a.size != of_b.size => Ok(false),
        (Kind::File, Kind::File) if of_a.mtime == of_b.mtime => Ok(true),
        (Kind::File, Kind::File) => {
            let read = |path: &Path| disk.read(path).map(|contents| contents.bytes).context("read", path);
            Ok(read(a)? == read(b)?)
        }
        (Kind::Link, Kind::Link) => {
            let read = |path: &Path| disk.read_link(path).context("read link", path);
            Ok(read(a)? == read(b)?)
        }
        (a, b) => Ok(a == b),
    }
}

impl Operation<'_> {
    /// Whether a file of a conversation is not shown in this worktree.
    pub(super) fn is_hidden(&self, id: ConversationId, path: &Path) -> bool {
        hides(self.ledger().get(id), path)
    }

    /// Keeps these files among a conversation's losers, with the directories they lie in.
    pub(super) fn keep_own(&self, id: ConversationId, root: Root, mut kept: Vec<NewFile>) -> Result<()> {
        if kept.is_empty() {
            return Ok(());
        }
        let named: BTreeSet<_> = kept.iter().map(|file| file.path.clone()).collect();
        let parents: BTreeSet<_> = kept
            .iter()
            .flat_map(|file| file.path.ancestors().skip(1))
            .filter(|dir| !dir.as_os_str().is_empty() && !named.contains(*dir))
            .map(Path::to_owned)
            .collect();
        kept.extend(parents.into_iter().map(|path| NewFile { path, content: NewContent::Dir }));
        kept.sort_by(|a, b| a.path.cmp(&b.path));
        self.keep_files(id, &format!("files-{root}"), &kept)
    }

    /// A hidden file that somebody put back into the workspace is shown again.
    pub(super) fn show_put_back(&mut self, id: ConversationId) -> Result<()> {
        let Some(work) = self.work_dir_of(id) else { return Ok(()) };
        if self.ledger().covered {
            // What is there has not followed yet; nobody put it there.
            return Ok(());
        }
        for file in self.hidden_files(id) {
            if kind(self.store().disk(), &work.join(&file))?.is_some() {
                self.show_file(id, &file);
            }
        }
        Ok(())
    }

    /// Takes hidden files out of the workspace's copy. One that is not as it was exported is somebody's, and is shown.
    pub(super) fn drop_hidden(&mut self, id: ConversationId) -> Result<()> {
        let Some(work) = self.work_dir_of(id) else { return Ok(()) };
        // What is in a directory comes before it.
        for file in self.hidden_files(id).into_iter().rev() {
            let path = work.join(&file);
            let gone = match kind(self.store().disk(), &path)? {
                None => true,
                Some(Kind::Dir) => self.store().disk().remove_dir(&path).is_ok(),
                Some(Kind::File | Kind::Link | Kind::Other) if self.is_as_exported(id, &work, &file)? => {
                    self.store().disk().remove_file(&path).context("remove", &path)?;
                    true
                }
                Some(Kind::File | Kind::Link | Kind::Other) => false,
            };
            if !gone {
                self.show_file(id, &file);
            }
        }
        Ok(())
    }

    /// Takes out of the workspace's copy what lay there untouched while it was covered, and has another name or is
    /// something else in the store by now. What the store has nowhere any more stays.
    pub(super) fn drop_moved(&mut self, id: ConversationId) -> Result<()> {
        let disk = self.store().disk();
        let dirs = self.snapshot().find(id)?.dirs();
        let taken = self.snapshot().base(id).map(|base| base.taken).filter(|_| self.ledger().covered);
        let (Some(store), Some(work), Some(taken)) = (dirs.store, dirs.work, taken) else { return Ok(()) };
        let ours = unmanaged(disk, store)?;
        // What is in a directory comes before it.
        for path in unmanaged(disk, work)?.into_iter().rev().filter(|path| !path.iter().any(is_scratch)) {
            let there = work.join(&path);
            let stat = disk.stat(&there).context("look at", &there)?;
            let now = if ours.contains(&path) { kind(disk, &store.join(&path))? } else { None };
            let moved = match (now, stat.kind) {
                (_, Kind::Other) => false,
                (None, Kind::Dir) => true,
                (None, _) => holds(disk, store, &ours, &there)?,
                (Some(Kind::Link), Kind::Link) => !same(disk, &store.join(&path), &there)?,
                (Some(now), then) => now != then,
            };
            if !moved {
                continue;
            }
            if stat.kind == Kind::Dir {
                // One that still holds something stays.
                let _ = disk.remove_dir(&there);
            } else if stat.mtime.max(stat.birth.unwrap_or(i64::MIN)) < taken {
                disk.remove_file(&there).context("remove", &there)?;
            }
        }
        Ok(())
    }

    /// Whether a file in the workspace is nothing but a copy. What the store does not have any more is kept first.
    fn is_as_exported(&self, id: ConversationId, work: &Path, file: &str) -> Result<bool> {
        let disk = self.store().disk();
        let Some(store) = self.snapshot().find(id)?.dirs().store.map(Path::to_owned) else { return Ok(false) };
        if let Some(managed) = ManagedFile::from_name(file) {
            let there = read_file(disk, &work.join(file))?.map(|contents| Digest::of(&contents.bytes));
            let base = self.snapshot().base(id).and_then(|base| base.file(managed).digest);
            if base.is_some() && there == base {
                return Ok(true);
            }
        }
        match kind(disk, &store.join(file))? {
            Some(_) if same(disk, &store.join(file), &work.join(file))? => Ok(true),
            // Written again before it was hidden, while nobody touched the copy.
            Some(_) if !self.is_old(id, &store.join(file), &work.join(file))? => Ok(false),
            Some(_) | None => {
                self.keep_own(id, Root::Work, gather(disk, work, [PathBuf::from(file)])?)?;
                Ok(true)
            }
        }
    }

    /// Whether a file in the workspace is older than the store's, and than when its conversation was last brought in step.
    fn is_old(&self, id: ConversationId, ours: &Path, theirs: &Path) -> Result<bool> {
        let mtime = |path: &Path| self.store().disk().stat(path).map(|stat| stat.mtime).context("look at", path);
        let (ours, theirs) = (mtime(ours)?, mtime(theirs)?);
        Ok(theirs < ours && self.snapshot().base(id).is_some_and(|base| theirs < base.taken))
    }

    /// Makes both roots agree on files of the user's own that they have differently: the newer one counts, and the older
    /// is kept. One in the workspace that agreed when that was covered, and that nobody touched since, is an old copy,
    /// whatever its time: a rename brings a file's own time along.
    pub(super) fn agree_on_files(&mut self, guard: &Guard, agreed: bool) -> Result<()> {
        let (id, disk) = (guard.id(), self.store().disk());
        let dirs = self.snapshot().find(id)?.dirs();
        let (Some(store), Some(work)) = (dirs.store, dirs.work) else { return Ok(()) };
        let taken = self.snapshot().base(id).filter(|_| agreed).map(|base| base.taken);
        for path in unmanaged(disk, work)?.into_iter().filter(|path| !path.iter().any(is_scratch)) {
            let (ours, theirs) = (store.join(&path), work.join(&path));
            let both = leads_inside(disk, store, &path)?
                && [kind(disk, &ours)?, kind(disk, &theirs)?] == [Some(Kind::File); 2];
            if !both || same(disk, &ours, &theirs)? {
                continue;
            }
            let (Some(in_store), Some(in_work)) = (read_file(disk, &ours)?, read_file(disk, &theirs)?) else {
                continue;
            };
            let untouched = taken.is_some_and(|taken| in_work.stat.mtime < taken);
            if !untouched && in_work.stat.mtime > in_store.stat.mtime {
                self.keep_own(id, Root::Store, gather(disk, store, [path])?)?;
                self.writer.scratch().replace(&ours, &in_work.bytes)?;
            } else if let Some(scratch) = self.writer.work_scratch() {
                // A clock that was wrong may take an edit for an old copy, so the newer of the two is kept in any case.
                if !untouched || in_work.stat.mtime > in_store.stat.mtime {
                    self.keep_own(id, Root::Work, gather(disk, work, [path])?)?;
                }
                scratch.replace(&theirs, &in_store.bytes)?;
            }
        }
        Ok(())
    }

    /// Copies files of the user's own that only the store has out to the copy that is there.
    pub(super) fn export_own(&mut self, guard: &Guard) -> Result<()> {
        let (id, disk) = (guard.id(), self.store().disk());
        let dirs = self.snapshot().find(id)?.dirs();
        let (Some(store), Some(work), Some(scratch)) = (dirs.store, dirs.work, self.writer.work_scratch()) else {
            return Ok(());
        };
        for path in unmanaged(disk, store)?.into_iter().filter(|path| is_exported(path) && !self.is_hidden(id, path)) {
            let target = work.join(&path);
            if !leads_inside(disk, work, &path)? || kind(disk, &target)?.is_some() {
                continue;
            }
            for file in gather(disk, store, [path])? {
                match file.content {
                    NewContent::Dir => make_dirs(disk, &target)?,
                    NewContent::File { bytes, mode } => scratch.replace_or_make(&target, &bytes, mode).map(drop)?,
                    NewContent::Link(to) => {
                        disk.symlink(&to, &target).context("link", &target)?;
                        sync_parent(disk, &target)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn work_dir_of(&self, id: ConversationId) -> Option<PathBuf> {
        self.snapshot().get(id)?.dirs().work.map(Path::to_owned)
    }

    /// The hidden files of a conversation, as far as they are paths inside it.
    fn hidden_files(&self, id: ConversationId) -> Vec<String> {
        let hidden = self.ledger().get(id).map(|entry| entry.hidden.clone()).unwrap_or_default();
        let inside = |file: &String| {
            let mut parts = Path::new(file).components();
            !file.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
        };
        hidden.into_iter().filter(inside).collect()
    }
}
