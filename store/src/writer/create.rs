//! New conversations, with ids that were never given out before.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use super::Writer;
use crate::conversation::Conversation;
use crate::error::{Error, Result};
use crate::files::{NewFile, entries, make_dirs};
use crate::id::ConversationId;
use crate::layout::{Partition, StoreRoot};
use crate::lock::{Guard, Wait};
use crate::meta::{Meta, Parent};
use crate::observe::{check, read_file};
use crate::presence::{Projection, StoragePresence};
use crate::reconcile::ManagedFile;
use crate::scan::{Depth, Place, Scan};

/// The file in `vfs/` that has the last id given out.
const LAST_ID: &str = "last-id";

/// What a new conversation starts with.
#[derive(Clone, Debug)]
pub struct Seed {
    /// Title, labels and the like. Parent, origin and activation are set by the writer.
    pub meta: Meta,
    /// `events.json`.
    pub events: Vec<u8>,
    /// `base_config.json`; `None` only for a copy of the legacy layout.
    pub base_config: Option<Vec<u8>>,
    /// The conversation it hangs beneath.
    pub parent: Option<ConversationId>,
    /// Whether this worktree shows it.
    pub projection: Projection,
}

impl Writer {
    /// Makes a conversation. It appears whole or not at all; the lock on it is the caller's.
    pub fn create(&self, seed: Seed) -> Result<Guard> {
        if seed.projection == Projection::LocalOnly && self.store.layout.is_single_root() {
            return Err(Error::Refused("there is no user-local storage, so nothing can be local".to_owned()));
        }
        let guard = self.allocate()?;
        let id = guard.id();
        let mut op = self.begin_structural()?;
        op.check_parent(id, seed.parent)?;
        let mut meta = seed.meta;
        meta.set_last_activated_at(self.store.now());
        if let Some(parent) = seed.parent {
            meta.set_parent(Parent::Of(parent));
        }
        if let Some(origin) = self.store.layout.origin() {
            meta.set_origin(&origin);
        }
        let name = id.dirname(meta.title());
        let dir = self.store.layout.store.conversations().join(&name);
        let mut files = vec![NewFile::bytes(ManagedFile::Metadata.name(), meta.to_bytes())];
        files.extend(seed.base_config.map(|bytes| NewFile::bytes(ManagedFile::BaseConfig.name(), bytes)));
        files.push(NewFile::bytes(ManagedFile::Events.name(), seed.events));
        for file in &files {
            if let (Some(name), crate::files::NewContent::File { bytes, .. }) = (file.path.to_str(), &file.content)
                && let Some(kind) = ManagedFile::from_name(name)
            {
                check(kind, bytes).map_err(|reason| Error::Invalid { path: dir.join(name), reason })?;
            }
        }
        op.change_mirror(|mirror| mirror.follow(id, &meta))?;
        // Cut short after this, it is shown here by the next write to it.
        op.remember(id, seed.projection, None);
        op.save_ledger()?;
        self.scratch().place(&dir, &files)?;
        op.insert(Conversation {
            id,
            partition: Partition::Live,
            presence: StoragePresence::UserLocalOnly,
            intent: seed.projection,
            store: Some(Place { dir, name: name.into(), partition: Partition::Live, beneath: None }),
            work: None,
            parent: seed.parent,
            origin: meta.origin().map(ToOwned::to_owned),
            meta: Some(meta),
            looked: None,
            alike: false,
            moved: None,
            rule: crate::observe::Rule::Newest,
        });
        op.project(&guard)?;
        op.finish()?;
        Ok(guard)
    }

    /// Finds an id that is nobody's and was nobody's, and locks it.
    fn allocate(&self) -> Result<Guard> {
        let root = &self.store.layout.store;
        let _turn = self.file_lock(&root.ids())?;
        let file = root.vfs().join(LAST_ID);
        let last = self.last_id(root)?;
        let taken = self.taken()?;
        let now = ConversationId::at(self.store.now());
        let mut candidate = last.and_then(ConversationId::next).map_or(now, |next| next.max(now));
        loop {
            if !taken.contains(&candidate) {
                match self.lock(candidate, &Wait::none()) {
                    Ok(guard) => {
                        make_dirs(self.store.disk(), &root.vfs(), self.store.layout.store_access())?;
                        self.scratch().replace(&file, format!("{}\n", candidate.deciseconds()).as_bytes())?;
                        return Ok(guard);
                    }
                    // Locked by somebody: then it is somebody's.
                    Err(Error::Locked { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            candidate = candidate.next().ok_or_else(|| Error::Refused("there are no ids left".to_owned()))?;
        }
    }

    /// The last id that was given out in a silo.
    fn last_id(&self, root: &StoreRoot) -> Result<Option<ConversationId>> {
        let contents = read_file(self.store.disk(), &root.vfs().join(LAST_ID))?;
        let text = contents.and_then(|contents| String::from_utf8(contents.bytes).ok());
        Ok(text.and_then(|text| text.trim().parse().ok()).and_then(ConversationId::new))
    }

    /// What another silo has given out is given out here too.
    pub(super) fn merge_last_id(&self, sibling: &StoreRoot) -> Result<()> {
        let root = &self.store.layout.store;
        let _turn = self.file_lock(&root.ids())?;
        let (ours, theirs) = (self.last_id(root)?, self.last_id(sibling)?);
        if let Some(theirs) = theirs.filter(|_| theirs > ours) {
            let text = format!("{}\n", theirs.deciseconds());
            self.scratch().replace(&root.vfs().join(LAST_ID), text.as_bytes())?;
        }
        Ok(())
    }

    /// Every id that is in use in any root: live, archived, trashed.
    fn taken(&self) -> Result<BTreeSet<ConversationId>> {
        let (disk, layout) = (self.store.disk(), &self.store.layout);
        let mut taken = self.present()?;
        let silos = std::iter::once(&layout.store).chain(&layout.siblings);
        let mut trashes: Vec<_> = silos.map(StoreRoot::trash).collect();
        trashes.extend(layout.work.iter().map(|work| work.conversations.join(crate::layout::TRASH)));
        for trash in trashes {
            taken.extend(
                entries(disk, &trash)?.iter().filter_map(|entry| ConversationId::from_dirname(OsStr::new(&entry.name))),
            );
        }
        Ok(taken)
    }

    /// Every id whose directory lies at the top of a partition of the store.
    pub(super) fn stored(&self) -> Result<BTreeSet<ConversationId>> {
        let root = &self.store.layout.store;
        let scan = Scan::of(self.store.disk(), Partition::ALL.map(|part| (part, root.partition(part))), Depth::Flat)?;
        Ok(scan.places.into_iter().map(|(id, _)| id).collect())
    }

    /// Every id that is live or archived in any root. Names only: a fraction of a snapshot.
    pub(super) fn present(&self) -> Result<BTreeSet<ConversationId>> {
        let (disk, layout) = (self.store.disk(), &self.store.layout);
        let stores = std::iter::once(&layout.store).chain(&layout.siblings);
        let stores = stores.map(|root| Partition::ALL.map(|part| (part, root.partition(part))));
        let work = layout.work.iter().map(|root| Partition::ALL.map(|part| (part, root.partition(part))));
        let mut present = BTreeSet::new();
        for partitions in stores.chain(work) {
            present.extend(Scan::of(disk, partitions, Depth::Nested)?.places.into_iter().map(|(id, _)| id));
        }
        Ok(present)
    }
}
