//! Drafts on disk. Whoever is told that something is written has it in the draft's file by then, where it survives us; within
//! 200 ms of the last write, and at `fsync`, it would survive a power loss too. What cannot be written there is refused, and
//! what is shown is what the file has.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use jp_store::ConversationId;
use jp_store::disk::Kind;
use jp_store::error::Context as _;
use jp_store::reconcile::ManagedFile;

use super::Vfs;
use crate::catalog::Stale;
use crate::draft::{self, Draft, OnDisk};
use crate::error::Result;
use crate::node::Node;

/// With fewer free blocks than this, it is tried whether something can be kept before it is taken.
const FEW_BLOCKS: u64 = 256;

/// Bytes were added to a draft whose file has the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grown {
    /// How long the header of the file is.
    pub(super) header: u64,
    /// Where the new bytes begin.
    pub(super) from: usize,
}

impl Vfs {
    /// Takes up the drafts that an earlier mount left.
    pub(super) fn load_drafts(&self) -> Result<()> {
        let drafts = self.state.join("drafts");
        let listed = match self.backing.list(&drafts) {
            Err(error) if is_absent(&error) => return Ok(()),
            listed => listed.context("list", &drafts)?,
        };
        for (name, kind) in listed {
            if kind == Kind::File && is_prepared(&name) && !self.rules.read_only {
                // Whoever prepared it was stopped; the draft itself is in its own file.
                let path = drafts.join(&name);
                self.backing.remove(&path).context("remove", &path)?;
                continue;
            }
            let Some((id, true)) = name.to_str().and_then(crate::catalog::parse) else { continue };
            for file in ManagedFile::ALL {
                let path = self.draft_path(id, file);
                let read = self.backing.read_all(&path);
                if matches!(&read, Err(error) if is_absent(error)) {
                    continue;
                }
                self.kept.lock().insert((id, file));
                let Some(draft) = read.ok().and_then(|text| Draft::parse(&text)) else {
                    // It stays where it is, and `jp status` names it.
                    tracing::warn!(path = %path.display(), "a draft cannot be read; the store's version is shown");
                    continue;
                };
                let known = self.catalog.read().get(id).is_some();
                if known {
                    // A good one may have been cut short on its way into the store.
                    let whole = draft::whole(file, &draft.bytes).is_ok() && draft.reason.is_none();
                    let kept = whole || draft.reason.is_some();
                    self.drafts.lock().insert((id, file), Draft { waiting: whole, kept, ..draft });
                }
            }
        }
        self.tend_drafts();
        Ok(())
    }

    /// The draft of a file, if it has one. A copy: the table is not locked any more when this returns.
    pub(super) fn draft(&self, id: ConversationId, file: ManagedFile) -> Option<Draft> {
        self.drafts.lock().get(&(id, file)).cloned()
    }

    /// Whether there is room for what has to be kept, as far as the filesystem tells without being written to.
    pub(super) fn has_room(&self) -> Result<bool> {
        let space = self.backing.space(&self.state).context("look at", &self.state)?;
        Ok(!space.read_only && space.available >= FEW_BLOCKS)
    }

    /// All drafts would survive a power loss when this returns, or it is said why one would not; the others do all the
    /// same.
    pub fn keep_drafts(&self) -> Result<()> {
        if self.rules.read_only {
            return Ok(());
        }
        let _refreshing = self.refreshing.lock();
        let mut result = Ok(());
        for (id, file) in self.drafts_that(|draft| !draft.kept) {
            result = result.and(self.refresh_draft(id, file));
        }
        result
    }

    /// Brings a draft to disk. Nobody who writes to it waits for the disk. The caller is the only one who does this.
    fn refresh_draft(&self, id: ConversationId, file: ManagedFile) -> Result<()> {
        let (path, fresh) = (self.draft_path(id, file), self.beside_draft(id, file, "fresh"));
        let mut draft = {
            let _room = self.room(id).lock_arc();
            let Some(draft) = self.draft(id, file).filter(|draft| !draft.kept) else { return Ok(()) };
            if draft.on_disk == OnDisk::No
                && let Err(error) = self.keep_draft(id, file, draft.clone(), false)
            {
                self.show_what_is_kept(id, file);
                return Err(error);
            }
            draft
        };
        explain(file, &mut draft);
        let put = self.backing.put(&fresh, &draft.to_bytes()).and_then(|()| self.backing.sync(&fresh));
        let room = self.room(id).lock_arc();
        let now = self.draft(id, file);
        if put.is_ok() && now.as_ref().is_some_and(|now| now.is_same(&draft)) {
            self.backing.rename(&fresh, &path).context("rename", &fresh)?;
            self.drafts.lock().insert((id, file), Draft { kept: true, on_disk: OnDisk::Yes, ..draft });
            drop(room);
            return self.sync_names_of(&path);
        }
        // What did not fit takes no room. It may not even be there.
        let _ = self.backing.remove(&fresh);
        drop(room);
        // It was written to meanwhile, or there is no room for another one. Its file has everything but the reason.
        if now.is_some() { self.sync_file_of_draft(&path) } else { Ok(()) }
    }

    /// Brings a draft to disk, for whoever waits for that. The caller has the room.
    pub(super) fn sync_draft(&self, id: ConversationId, file: ManagedFile, draft: Draft) -> Result<()> {
        let on_disk = draft.on_disk;
        match self.keep_draft(id, file, draft, true) {
            Err(error) if on_disk != OnDisk::No => {
                tracing::debug!(%id, file = file.name(), %error, "a draft is brought to disk without its reason");
                self.sync_file_of_draft(&self.draft_path(id, file))
            }
            kept => kept,
        }
    }

    fn sync_file_of_draft(&self, path: &Path) -> Result<()> {
        match self.backing.sync(path) {
            // The draft has served its purpose meanwhile.
            Err(error) if is_absent(&error) => return Ok(()),
            synced => synced.context("sync", path)?,
        }
        self.sync_names_of(path)
    }

    /// Puts a draft on disk; `sync` makes it survive a power loss too. If that fails, everything is as it was.
    pub(super) fn keep_draft(&self, id: ConversationId, file: ManagedFile, mut draft: Draft, sync: bool) -> Result<()> {
        if sync {
            explain(file, &mut draft);
        }
        let (path, beside) = (self.draft_path(id, file), self.beside_draft(id, file, "new"));
        if let Some(dir) = path.parent() {
            self.backing.make_dirs(dir).context("make directory", dir)?;
        }
        let text = draft.to_bytes();
        let placed = self.place_draft(&beside, &path, &text, sync);
        if placed.is_err() {
            // What did not fit takes no room. It may not even be there.
            let _ = self.backing.remove(&beside);
        }
        placed?;
        self.kept.lock().insert((id, file));
        let on_disk = draft.once_written(text.len());
        self.drafts.lock().insert((id, file), Draft { kept: sync, on_disk, ..draft });
        if sync { self.sync_names_of(&path) } else { Ok(()) }
    }

    /// Makes the file of a draft this text, whole or not at all.
    fn place_draft(&self, beside: &Path, path: &Path, text: &[u8], sync: bool) -> Result<()> {
        self.backing.put(beside, text).context("write", beside)?;
        if sync {
            self.backing.sync(beside).context("sync", beside)?;
        }
        Ok(self.backing.rename(beside, path).context("rename", beside)?)
    }

    /// Puts a draft on disk that somebody has just changed, and shows it. If that fails, what is on disk is as it was.
    pub(super) fn write_through(
        &self,
        id: ConversationId,
        file: ManagedFile,
        draft: &Draft,
        grown: Option<Grown>,
    ) -> Result<()> {
        let on_disk = match (draft.on_disk, grown) {
            (OnDisk::No, Some(grown)) if self.write_grown(id, file, draft, grown)? => OnDisk::Open(grown.header),
            (OnDisk::No, _) => return self.keep_draft(id, file, draft.clone(), false),
            (on_disk, _) => on_disk,
        };
        self.drafts.lock().insert((id, file), Draft { on_disk, ..draft.clone() });
        Ok(())
    }

    /// Adds the new bytes of a draft to its file. `false` where there is no file to add them to.
    fn write_grown(&self, id: ConversationId, file: ManagedFile, draft: &Draft, grown: Grown) -> Result<bool> {
        let path = self.draft_path(id, file);
        let end = grown.header + grown.from as u64;
        match self.write_all(&path, end, &draft.bytes[grown.from..]) {
            Ok(_) => {}
            Err(error) if is_absent(&error) => return Ok(false),
            Err(error) => {
                // A part may have fitted.
                if let Err(error) = self.backing.truncate(&path, end) {
                    tracing::warn!(path = %path.display(), %error, "a draft on disk has bytes that were refused");
                }
                return Err(error).context("write", &path).map_err(Into::into);
            }
        }
        Ok(true)
    }

    /// A draft that is good and cannot be committed now is on disk, and waits; `wrote` if its file has these bytes already.
    pub(super) fn keep_waiting(&self, id: ConversationId, file: ManagedFile, draft: Draft, wrote: bool) -> Result<()> {
        if !wrote && draft.on_disk == OnDisk::No {
            return self.keep_draft(id, file, draft, false);
        }
        self.drafts.lock().insert((id, file), Draft { kept: false, on_disk: OnDisk::Yes, ..draft });
        Ok(())
    }

    /// A piece of the draft that is on disk becomes all of it before the store gets it: whoever stops us in between
    /// finds what the store has, and not something older. Whether there was one.
    pub(super) fn keep_whole(
        &self,
        id: ConversationId,
        file: ManagedFile,
        draft: &Draft,
        grown: Option<Grown>,
    ) -> Result<bool> {
        if draft.on_disk != OnDisk::No || !self.kept.lock().contains(&(id, file)) {
            return Ok(false);
        }
        // One without a reason that turns out to be whole waits, whatever its header says.
        if let Some(grown) = grown
            && self.write_grown(id, file, draft, grown)?
        {
            return Ok(true);
        }
        self.keep_draft(id, file, Draft { waiting: true, ..draft.clone() }, false).map(|()| true)
    }

    /// A change of a draft failed: it is what it was `before`. Where the file of the draft has the change already (`wrote`)
    /// and cannot be made what it was, the change stays, and `jp status` names it.
    pub(super) fn take_back(&self, id: ConversationId, file: ManagedFile, wrote: bool, before: Option<Draft>) {
        let back = match before {
            Some(before) if wrote => self.keep_draft(id, file, before, false).is_ok(),
            Some(before) if before.on_disk != OnDisk::No => {
                self.drafts.lock().insert((id, file), before);
                true
            }
            None if wrote => self.drop_draft(id, file).is_ok(),
            Some(_) | None => false,
        };
        if !back {
            self.show_what_is_kept(id, file);
        }
        self.tell(vec![Stale::Content(Node::Managed(id, file))]);
    }

    /// What was taken and could not be kept is not shown: the draft is what its file has, and where there is none the
    /// store's version is shown. The caller has the room.
    pub(super) fn show_what_is_kept(&self, id: ConversationId, file: ManagedFile) {
        let path = self.draft_path(id, file);
        let has_file = self.kept.lock().contains(&(id, file));
        let on_disk = if has_file { self.backing.read_all(&path).map(|text| Draft::parse(&text)) } else { Ok(None) };
        match on_disk {
            Ok(Some(draft)) => drop(self.drafts.lock().insert((id, file), Draft { kept: false, ..draft })),
            Ok(None) => drop(self.drafts.lock().remove(&(id, file))),
            Err(error) if is_absent(&error) => drop(self.drafts.lock().remove(&(id, file))),
            Err(error) => tracing::warn!(path = %path.display(), %error, "a draft on disk cannot be read"),
        }
        self.tell(vec![Stale::Content(Node::Managed(id, file))]);
    }

    /// As [`Vfs::drop_draft`], also if only the disk has it.
    pub(super) fn forget_draft(&self, id: ConversationId, file: ManagedFile) -> Result<()> {
        self.kept.lock().insert((id, file));
        self.drop_draft(id, file)
    }

    /// A draft has served its purpose.
    pub(super) fn drop_draft(&self, id: ConversationId, file: ManagedFile) -> Result<()> {
        self.drafts.lock().remove(&(id, file));
        if self.kept.lock().contains(&(id, file)) {
            let path = self.draft_path(id, file);
            match self.backing.remove(&path) {
                Err(error) if is_absent(&error) => {}
                removed => removed.context("remove", &path)?,
            }
            self.kept.lock().remove(&(id, file));
            if let Some(dir) = path.parent() {
                // Another draft may be in it.
                let emptied = self.backing.remove_dir(dir).is_ok();
                let changed = if emptied { dir.parent() } else { Some(dir) };
                changed.map_or(Ok(()), |dir| self.writer.names_changed(dir))?;
            }
        }
        Ok(())
    }

    /// What somebody saved and nobody committed is kept before its file goes, and the draft with it.
    pub(super) fn retire_draft(&self, id: ConversationId, file: ManagedFile) -> Result<()> {
        if let Some(draft) = self.draft(id, file).filter(|draft| !draft.bytes.is_empty()) {
            self.writer.keep(id, "removed-draft", file.name(), &draft.bytes)?;
        }
        Ok(())
    }

    /// Brings the name of a draft to disk, and that of its directory.
    fn sync_names_of(&self, path: &Path) -> Result<()> {
        for dir in path.ancestors().skip(1).take(2) {
            match self.backing.sync(dir) {
                // The draft has served its purpose meanwhile.
                Err(error) if is_absent(&error) => {}
                synced => synced.context("sync", dir)?,
            }
        }
        Ok(())
    }

    pub(super) fn draft_path(&self, id: ConversationId, file: ManagedFile) -> PathBuf {
        self.state.join("drafts").join(id.deciseconds().to_string()).join(file.name())
    }

    /// Where a draft is prepared.
    fn beside_draft(&self, id: ConversationId, file: ManagedFile, what: &str) -> PathBuf {
        self.state.join("drafts").join(format!(".{}-{}.{what}", id.deciseconds(), file.name()))
    }
}

/// Whether a file among the drafts has a name that [`Vfs::beside_draft`] gives: what else is there is somebody else's.
fn is_prepared(name: &OsStr) -> bool {
    let of = |name: &str| {
        let (id, rest) = name.strip_prefix('.')?.split_once('-')?;
        let (file, what) = rest.rsplit_once('.')?;
        let is_ours = crate::catalog::parse(id).is_some_and(|(_, is_bare)| is_bare)
            && ManagedFile::from_name(file).is_some()
            && matches!(what, "new" | "fresh");
        Some(is_ours)
    };
    name.to_str().and_then(of).unwrap_or(false)
}

/// Whether there is no file; something else may be in the place of its directory.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Says why a draft is one, if that is not known yet.
fn explain(file: ManagedFile, draft: &mut Draft) {
    if draft.reason.is_none() && !draft.waiting {
        draft.reason = draft::whole(file, &draft.bytes).err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_prepared_is_known_by_its_name() {
        for name in [".17528832001-events.json.new", ".17528832001-metadata.json.fresh"] {
            assert!(is_prepared(OsStr::new(name)), "{name}");
        }
        for name in
            ["17528832001", ".17528832001-notes.md.new", ".x-events.json.new", ".17528832001-events.json", "new"]
        {
            assert!(!is_prepared(OsStr::new(name)), "{name}");
        }
    }
}
