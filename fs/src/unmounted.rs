//! Drafts and arriving conversations that a mount left behind, given up or committed while nothing shows them. Whoever calls
//! holds the lock of the worktree's mount, so that no mount takes them up meanwhile.

use std::io;
use std::path::{Path, PathBuf};

use jp_store::ConversationId;
use jp_store::beneath::{AllowedDirs, LARGEST};
use jp_store::error::{Context as _, Error, Result};
use jp_store::layout::managed;
use jp_store::lock::{Guard, Wait};
use jp_store::observe::read_file;
use jp_store::reconcile::{Digest, ManagedFile};
use jp_store::writer::Writer;

use crate::draft::{self, Draft, LIMIT};
use crate::refusal::{Refusal, check};
use crate::vfs::{ArrivalNote, Handled};

/// A header is shorter than this.
const HEADER: u64 = 1 << 16;

/// What drafts on disk are reached by.
#[derive(Clone, Debug)]
pub struct DraftFiles {
    /// The directories that may be used.
    pub files: AllowedDirs,
    /// The worktree's `drafts`.
    pub dir: PathBuf,
}

impl DraftFiles {
    /// Where the draft of a file is.
    pub fn path(&self, id: ConversationId, file: ManagedFile) -> PathBuf {
        self.dir.join(id.deciseconds().to_string()).join(file.name())
    }

    /// Where the files of an arriving conversation are.
    pub fn arrival_dir(&self, id: ConversationId) -> PathBuf {
        self.dir.join("new").join(id.deciseconds().to_string())
    }

    fn note_path(&self, id: ConversationId) -> PathBuf {
        self.dir.join("new").join(format!("{}.json", id.deciseconds()))
    }

    /// The bytes that were saved; of a draft whose header makes no sense, the whole file. `None` if there is no draft.
    pub fn bytes(&self, id: ConversationId, file: ManagedFile) -> Result<Option<Vec<u8>>> {
        let text = self.read(&self.path(id, file), LIMIT + HEADER)?;
        Ok(text.map(|text| Draft::parse(&text).map_or(text, |draft| draft.bytes.to_vec())))
    }

    /// Gives a draft up. Its bytes are kept among the conversation's losers.
    pub fn give_up(&self, writer: &Writer, id: ConversationId, file: ManagedFile) -> Result<Handled> {
        let Some(bytes) = self.bytes(id, file)? else { return Ok(Err(Refusal::Absent)) };
        let kept = match bytes.is_empty() {
            true => None,
            false => Some(writer.keep(id, "dropped-draft", file.name(), &bytes)?),
        };
        self.remove(id, file)?;
        Ok(Ok(kept))
    }

    /// Commits a draft. If the store's file was changed since the draft began this is refused; with `force` the store's
    /// bytes are kept first. What was edited in the real files reaches the store before.
    pub fn apply(&self, writer: &Writer, guard: &Guard, file: ManagedFile, force: bool) -> Result<Handled> {
        let (id, store, path) = (guard.id(), writer.store(), self.path(guard.id(), file));
        let Some(text) = self.read(&path, LIMIT + HEADER)? else { return Ok(Err(Refusal::Absent)) };
        let Some(draft) = Draft::parse(&text) else {
            let reason = format!("the header of {} makes no sense", path.display());
            return Ok(Err(Refusal::Refused { reason }));
        };
        if store.snapshot()?.get(id).is_none() {
            return Ok(Err(Refusal::Gone));
        }
        if let Err(reason) = draft::whole(file, &draft.bytes) {
            return Ok(Err(reason.into()));
        }
        writer.sync(guard)?;
        let snapshot = store.snapshot()?;
        let Some(dir) = snapshot.get(id).and_then(|found| found.dirs().store) else { return Ok(Err(Refusal::Gone)) };
        let current = read_file(store.disk(), &managed(dir, file))?.map(|contents| contents.bytes);
        if let Err(refusal) = check(file, &draft, current.as_deref(), force) {
            return Ok(Err(refusal));
        }
        let overtaken = current.filter(|bytes| *bytes != **draft.bytes && draft.base != Some(Digest::of(bytes)));
        let kept = match overtaken {
            Some(bytes) => Some(writer.keep(id, "overtaken-store", file.name(), &bytes)?),
            None => None,
        };
        match writer.replace(guard, file, &draft.bytes) {
            Err(Error::Refused(reason)) => return Ok(Err(Refusal::Refused { reason })),
            Err(Error::Invalid { reason, .. }) => return Ok(Err(reason.into())),
            replaced => replaced?,
        }
        self.remove(id, file)?;
        Ok(Ok(kept))
    }

    /// Gives up a conversation that was arriving. Its files are kept among the losers of its id.
    pub fn give_up_arrival(&self, writer: &Writer, id: ConversationId) -> Result<Handled> {
        let dir = self.arrival_dir(id);
        if self.list(&dir)?.is_none() {
            return Ok(Err(Refusal::Absent));
        }
        let kept = writer.keep_dir(id, "dropped-arrival", &dir)?;
        self.remove_file(&self.note_path(id))?;
        Ok(Ok(Some(kept)))
    }

    /// Takes in a conversation that was arriving, or says what it needs.
    pub fn apply_arrival(&self, writer: &Writer, guard: Guard) -> Result<Handled> {
        let (id, dir) = (guard.id(), self.arrival_dir(guard.id()));
        if self.list(&dir)?.is_none() {
            return Ok(Err(Refusal::Absent));
        }
        if let Some(needs) = self.arrival_needs(id)? {
            return Ok(Err(Refusal::Needs { needs }));
        }
        let note = self.read(&self.note_path(id), HEADER)?;
        let note = note.and_then(|text| serde_json::from_slice::<ArrivalNote>(&text).ok());
        let (parent, archived) = note.map_or((None, false), |note| (note.parent, note.archived));
        match writer.adopt(&guard, &dir, parent.filter(|_| !archived)) {
            Err(error @ (Error::Refused(_) | Error::NotFound { .. })) => {
                return Ok(Err(Refusal::Refused { reason: error.to_string() }));
            }
            adopted => adopted?,
        };
        drop(guard);
        self.remove_file(&self.note_path(id))?;
        if archived {
            writer.archive(id, &Wait::none())?;
            if parent.is_some() {
                let guard = writer.lock(id, &Wait::none())?;
                writer.reparent(&guard, parent)?;
            }
        }
        Ok(Ok(None))
    }

    /// What an arriving conversation still needs of its own files; `None` if nothing.
    pub fn arrival_needs(&self, id: ConversationId) -> Result<Option<String>> {
        for file in [ManagedFile::Metadata, ManagedFile::Events] {
            let needs = match self.read(&managed(&self.arrival_dir(id), file), LARGEST)? {
                None => Some(file.name().to_owned()),
                Some(bytes) => draft::whole(file, &bytes).err().map(|reason| format!("{}: {reason}", file.name())),
            };
            if needs.is_some() {
                return Ok(needs);
            }
        }
        Ok(None)
    }

    fn remove(&self, id: ConversationId, file: ManagedFile) -> Result<()> {
        let path = self.path(id, file);
        self.remove_file(&path)?;
        if let Some(dir) = path.parent() {
            // Another draft may be in it.
            let _ = self.files.remove_dir(dir);
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        match self.files.remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.context("remove", path),
        }
    }

    fn read(&self, path: &Path, largest: u64) -> Result<Option<Vec<u8>>> {
        match self.files.read_within(path, largest) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.context("read", path).map(Some),
        }
    }

    fn list(&self, dir: &Path) -> Result<Option<()>> {
        match self.files.list(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            listed => listed.context("list", dir).map(|_| Some(())),
        }
    }
}
