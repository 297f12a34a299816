//! Takes in a conversation that arrived as a directory: its files as they are, its parent from its place.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::{Writer, check_owner};
use crate::disk::Kind;
use crate::error::{Context as _, Error, Result};
use crate::files::{NewContent, NewFile, entries, gather, kind, make_dirs, move_dir, remove_tree};
use crate::id::ConversationId;
use crate::journal::Change;
use crate::json::JsonError;
use crate::layout::{Partition, managed};
use crate::lock::Guard;
use crate::meta::{Meta, Parent};
use crate::mirror::Mirror;
use crate::observe::{check, read_file, unmanaged};
use crate::own::digest;
use crate::reconcile::ManagedFile;
use crate::scan::{Depth, Place, Scan};
use crate::scratch::is_scratch;

impl Writer {
    /// Makes a directory the conversation whose lock this is, by one rename. It holds good metadata and events, and
    /// whatever else is in it comes along. `from` is on the store's filesystem.
    ///
    /// Its place gives its parent. Where the file names none, the mirror keeps it and no byte of the file changes; a file
    /// that names another is rewritten once. Returns its directory.
    pub fn adopt(&self, guard: &Guard, from: &Path, parent: Option<ConversationId>) -> Result<PathBuf> {
        let (id, layout) = (guard.id(), &self.store.layout);
        self.check_guard(guard)?;
        let dir = {
            let ledger_lock = if layout.is_single_root() { None } else { Some(self.ledger_lock()?) };
            let tree_lock = self.file_lock(&layout.store.tree_lock())?;
            self.check_place(id, parent)?;
            let meta = self.check_arrival(from, parent)?;
            self.bring_to_disk(from)?;
            self.change_mirror(&tree_lock, |mirror| mirror.place(id, &meta, parent))?;
            if let Some(lock) = &ledger_lock {
                // Cut short after this, nothing of that name is there to be shown.
                self.note_under(lock, &[Change::Show(id)])?;
            }
            self.check_guard(guard)?;
            let dir = layout.store.conversations().join(id.dirname(meta.title()));
            move_dir(self.store.disk(), from, &dir, layout.store_access())?;
            self.forget_removal(id)?;
            dir
        };
        if layout.work.is_some() {
            self.sync(guard)?;
        }
        Ok(dir)
    }

    /// Takes the files of a copy that arrived as a directory into the conversation that the store has, in this directory. What
    /// they replace is kept; the copy goes. Refused where a file of the user's own and something else have one name.
    pub fn join(&self, guard: &Guard, from: &Path, dir: &Path) -> Result<()> {
        let (id, disk, access) = (guard.id(), self.store.disk(), self.store.layout.store_access());
        self.check_guard(guard)?;
        check_owner(guard, dir)?;
        let own = unmanaged(disk, from)?.into_iter().filter(|path| !path.iter().any(is_scratch));
        let own = gather(disk, from, own)?;
        let there = |path: &Path| Ok(gather(disk, dir, [path.to_owned()])?.pop().map(|found| found.content));
        let in_the_way = |new: &NewFile, old: &NewContent| match (&new.content, old) {
            (NewContent::File { .. }, NewContent::File { .. }) | (NewContent::Dir, NewContent::Dir) => false,
            (new, old) => digest(new) != digest(old),
        };
        for new in &own {
            let found: Result<_> =
                if kind(disk, &dir.join(&new.path))?.is_some() { there(&new.path) } else { Ok(None) };
            if found?.is_some_and(|old| in_the_way(new, &old)) {
                let (new, dir) = (new.path.display(), dir.display());
                return Err(Error::Refused(format!(
                    "{new} of {id} cannot be taken in: {dir} has another thing of that name"
                )));
            }
        }
        for NewFile { path, content } in own {
            let target = dir.join(&path);
            let there = kind(disk, &target)?.is_some();
            match content {
                NewContent::Dir => make_dirs(disk, &target, access)?,
                NewContent::Link(_) if there => {}
                NewContent::Link(to) => self.scratch().link(&to, &target)?,
                NewContent::File { bytes, mode } => {
                    if there {
                        self.keep_unless(id, &target, &path, &bytes)?;
                    }
                    self.scratch().replace_like(&target, &bytes, Some(mode))?;
                }
            }
        }
        // The stream first: metadata may give the directory another name.
        for file in [ManagedFile::BaseConfig, ManagedFile::Events, ManagedFile::Metadata] {
            let Some(contents) = read_file(disk, &managed(from, file))? else { continue };
            self.keep_unless(id, &managed(dir, file), Path::new(file.name()), &contents.bytes)?;
            self.replace(guard, file, &contents.bytes)?;
        }
        remove_tree(disk, from)
    }

    /// Keeps a file of the store that is about to become these bytes, unless it has them.
    fn keep_unless(&self, id: ConversationId, path: &Path, name: &Path, bytes: &[u8]) -> Result<()> {
        match read_file(self.store.disk(), path)? {
            Some(old) if old.bytes != bytes => self.keep(id, "joined-store", name, &old.bytes).map(drop),
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses an id that is somebody's, and a parent that is not there or lies beneath a conversation of this id. Looks
    /// at names, and at the metadata of the parent's line alone.
    fn check_place(&self, id: ConversationId, parent: Option<ConversationId>) -> Result<()> {
        let (disk, layout) = (self.store.disk(), &self.store.layout);
        let flat = if layout.is_single_root() { Depth::Nested } else { Depth::Flat };
        let stores = std::iter::once(&layout.store).chain(&layout.siblings);
        let stores = stores.map(|root| (Partition::ALL.map(|part| (part, root.partition(part))), flat));
        let work = layout.work.iter();
        let work = work.map(|root| (Partition::ALL.map(|part| (part, root.partition(part))), Depth::Nested));
        let mut places: BTreeMap<ConversationId, Place> = BTreeMap::new();
        for (partitions, depth) in stores.chain(work) {
            for (id, place) in Scan::of(disk, partitions, depth)?.places {
                places.entry(id).or_insert(place);
            }
        }
        let trashed = entries(disk, &layout.store.trash())?;
        let trashed = trashed.iter().any(|entry| ConversationId::from_dirname(OsStr::new(&entry.name)) == Some(id));
        if trashed || places.contains_key(&id) {
            return Err(Error::Refused(format!("{id} is there already")));
        }
        let Some(parent) = parent else { return Ok(()) };
        if places.get(&parent).ok_or(Error::NotFound { id: parent })?.partition == Partition::Archived {
            return Err(Error::Refused(format!("{parent} is archived; unarchive it first")));
        }
        let mirror = self.store.mirror()?;
        // Each is looked at once, so that a circle that is there already ends the walk.
        let mut above = Some(parent);
        while let Some((at, place)) = above.and_then(|at| places.remove_entry(&at)) {
            above = self.parent_of(&mirror, at, &place)?;
            if above == Some(id) {
                return Err(Error::Refused(format!("{id} cannot be beneath {parent}, which is beneath it")));
            }
        }
        Ok(())
    }

    fn parent_of(&self, mirror: &Mirror, id: ConversationId, place: &Place) -> Result<Option<ConversationId>> {
        let contents = read_file(self.store.disk(), &managed(&place.dir, ManagedFile::Metadata))?;
        let meta = contents.and_then(|contents| Meta::parse(&contents.bytes).ok());
        Ok(mirror.effective_parent(id, meta.as_ref(), place.beneath))
    }

    /// Refuses files that are no such documents; lets metadata name no other parent than its place.
    fn check_arrival(&self, from: &Path, parent: Option<ConversationId>) -> Result<Meta> {
        let disk = self.store.disk();
        let invalid = |file: ManagedFile, reason| Error::Invalid { path: managed(from, file), reason };
        let missing = |file| invalid(file, JsonError::new("the file is missing".to_owned()));
        for file in [ManagedFile::Events, ManagedFile::BaseConfig] {
            match read_file(disk, &managed(from, file))? {
                Some(contents) => check(file, &contents.bytes).map_err(|reason| invalid(file, reason))?,
                None if file == ManagedFile::BaseConfig => {}
                None => return Err(missing(file)),
            }
        }
        let path = managed(from, ManagedFile::Metadata);
        let contents = read_file(disk, &path)?.ok_or_else(|| missing(ManagedFile::Metadata))?;
        let mut meta = Meta::parse(&contents.bytes).map_err(|reason| invalid(ManagedFile::Metadata, reason))?;
        let other = match meta.parent() {
            // The mirror says it instead.
            Parent::Absent | Parent::Garbage(_) => false,
            Parent::Root => parent.is_some(),
            Parent::Of(named) => parent != Some(named),
        };
        if other {
            meta.set_parent(parent.map_or(Parent::Root, Parent::Of));
            self.scratch().replace(&path, &meta.to_bytes())?;
        }
        Ok(meta)
    }

    /// Brings every file beneath a directory to disk, then the directories, the innermost first.
    fn bring_to_disk(&self, dir: &Path) -> Result<()> {
        let disk = self.store.disk();
        let mut dirs: Vec<PathBuf> = Vec::new();
        let mut open = vec![dir.to_owned()];
        while let Some(dir) = open.pop() {
            for entry in disk.list(&dir).context("list", &dir)? {
                let path = dir.join(&entry.name);
                match entry.kind {
                    Kind::File => disk.sync_file(&path).context("sync", &path)?,
                    Kind::Dir => open.push(path),
                    Kind::Link | Kind::Other => {}
                }
            }
            dirs.push(dir);
        }
        dirs.iter().rev().try_for_each(|dir| disk.sync_dir(dir).context("sync", dir))
    }
}
