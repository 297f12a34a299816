//! Makes one silo of several, and makes durable what only the workspace has. Can be stopped anywhere and run again: every
//! step is one rename, and what is read as one before is read as one in between.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::Writer;
use crate::disk::Kind;
use crate::error::{Context as _, Error, Result};
use crate::files::{entries, exists, kind, make_dirs, move_dir, remove_empty_dirs, remove_tree, unused};
use crate::id::ConversationId;
use crate::layout::{ARCHIVE, CONVERSATIONS, ManagedDir, Partition, StoreRoot, TRASH};
use crate::lock::{Guard, LockDir, Wait, make_room_for_files};
use crate::modes::Access;
use crate::observe::read_file;
use crate::presence::StoragePresence;
use crate::removed;
use crate::session::Mapping;
use crate::sighting::Roots;
use crate::temporaries::{IN_STORE, Temporaries};

/// What a migration did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Silos merged into the store.
    pub silos: usize,
    /// Conversations moved from them.
    pub moved: Vec<ConversationId>,
    /// Conversations that were in more than one, whose older copy is kept under `conflicts/`.
    pub conflicts: Vec<ConversationId>,
    /// Conversations of the workspace that are durable now.
    pub imported: Vec<ConversationId>,
    /// What was left where it is, and why.
    pub refused: Vec<String>,
}

/// How many are imported in one go. Each lock is an open file, and each go a look at the whole store.
pub(super) const AT_ONCE: usize = 500;

impl Migrated {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn absorb(&mut self, other: Self) {
        self.silos += other.silos;
        self.moved.extend(other.moved);
        self.conflicts.extend(other.conflicts);
        self.imported.extend(other.imported);
        self.refused.extend(other.refused);
    }
}

impl Writer {
    /// Copies every conversation that only the workspace has into the store. The workspace's files stay.
    pub fn import_all(&self) -> Result<Migrated> {
        let mut migrated = Migrated::default();
        if self.store.layout.is_single_root() {
            return Ok(migrated);
        }
        let snapshot = self.store.snapshot()?;
        let external = snapshot.all().filter(|conversation| conversation.presence == StoragePresence::WorkspaceOnly);
        let external: Vec<_> = external.map(|conversation| conversation.id).collect();
        for some in external.chunks(AT_ONCE) {
            self.import_some(some, &mut migrated)?;
        }
        Ok(migrated)
    }

    fn import_some(&self, ids: &[ConversationId], migrated: &mut Migrated) -> Result<()> {
        // One that is held or does not parse stays where it is; the others are not its hostages.
        let mut or_refused = |result: Result<()>| match result {
            Err(error @ (Error::Locked { .. } | Error::Invalid { .. } | Error::Malformed { .. })) => {
                migrated.refused.push(error.to_string());
                Ok(false)
            }
            Err(error) if error.is_about_one_file() => {
                migrated.refused.push(error.with_causes());
                Ok(false)
            }
            result => result.map(|()| true),
        };
        make_room_for_files(ids.len());
        let mut guards = Vec::new();
        for &id in ids {
            or_refused(self.lock(id, &Wait::none()).map(|guard| guards.push(guard)))?;
        }
        let mut op = self.begin()?;
        let mut imported = Vec::new();
        for guard in &guards {
            if matches!(op.roots_without_store(guard.id())?, Some(Roots::Leftover | Roots::Inhabited)) {
                // It was removed for good, and its copy goes with the next export.
                continue;
            }
            if or_refused(op.settle(guard).and_then(|()| op.project(guard)))? {
                imported.push(guard.id());
            }
        }
        op.finish()?;
        migrated.imported.extend(imported);
        Ok(())
    }

    /// Merges the other silos of the workspace into the store.
    pub(super) fn merge_silos(&mut self) -> Result<Migrated> {
        let mut migrated = Migrated::default();
        let siblings = std::mem::take(&mut self.store.layout.siblings);
        if siblings.is_empty() {
            return Ok(migrated);
        }
        let _turn = self.file_lock(&self.store.layout.store.vfs().join("merge.lock"))?;
        for sibling in siblings {
            if self.merge_silo(&sibling, &mut migrated)? {
                migrated.silos += 1;
            } else {
                self.store.layout.siblings.push(sibling);
            }
        }
        // By records that the silos had.
        self.sweep()?;
        Ok(migrated)
    }

    /// Moves everything out of a silo. `false` when something in it is in use and it has to stay.
    fn merge_silo(&self, sibling: &StoreRoot, migrated: &mut Migrated) -> Result<bool> {
        let disk = self.store.disk();
        if !exists(disk, &sibling.dir)? {
            // Another process has merged it meanwhile.
            return Ok(true);
        }
        for dir in ManagedDir::ALL {
            self.merge_conversations(sibling, dir, migrated)?;
        }
        self.merge_sessions(sibling)?;
        self.merge_mirror(sibling)?;
        self.merge_rest(sibling)?;
        let link = sibling.storage_link();
        if kind(disk, &link)? == Some(Kind::Link) {
            disk.remove_file(&link).context("remove", &link)?;
        }
        remove_empty_dirs(disk, &sibling.dir)?;
        let gone = !exists(disk, &sibling.dir)?;
        if !gone {
            migrated.refused.push(format!("{}: something in it is in use; it is merged later", sibling.dir.display()));
        }
        Ok(gone)
    }

    fn merge_conversations(&self, sibling: &StoreRoot, part: ManagedDir, migrated: &mut Migrated) -> Result<()> {
        let disk = self.store.disk();
        let from = part.beneath(&sibling.conversations());
        let entries = entries(disk, &from)?;
        let locks = LockDir::new(self.store.around.disk.clone(), sibling.locks(), None, sibling.borrowed());
        for entry in entries {
            if [ARCHIVE, TRASH].iter().any(|name| entry.name == *name) {
                continue;
            }
            let source = from.join(&entry.name);
            let Some(id) = ConversationId::from_dirname(&entry.name).filter(|_| entry.kind == Kind::Dir) else {
                self.move_beside(&source, &part.beneath(&self.store.layout.store.conversations()).join(&entry.name))?;
                continue;
            };
            // Whoever works on it holds the lock of the silo it was opened in, or of the store.
            let held: Result<(Guard, Guard)> = locks
                .acquire(id, &self.store.holder(), &Wait::none())
                .and_then(|theirs| Ok((theirs, self.lock(id, &Wait::none())?)));
            let _guards = match held {
                Ok(guards) => guards,
                Err(error @ Error::Locked { .. }) => {
                    migrated.refused.push(error.to_string());
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.merge_conversation(id, &source, part, migrated)?;
        }
        Ok(())
    }

    /// Moves one conversation over. Where the store has it too, the newer stays and the older is kept.
    fn merge_conversation(
        &self,
        id: ConversationId,
        source: &Path,
        part: ManagedDir,
        migrated: &mut Migrated,
    ) -> Result<()> {
        let disk = self.store.disk();
        let root = &self.store.layout.store;
        let target = part.beneath(&root.conversations()).join(source.file_name().unwrap_or_default());
        let rivals = if part == ManagedDir::Trash { Vec::new() } else { self.places_in_store(id)? };
        let Some((rival, others)) = rivals.split_first() else {
            self.move_beside(source, &target)?;
            migrated.moved.push(id);
            return Ok(());
        };
        if same_tree(disk, source, rival)? {
            // As one: what a removal cut short leaves would pass for a newer version.
            return self.scratch().discard(source);
        }
        migrated.conflicts.push(id);
        if newest(disk, source)? > newest(disk, rival)? {
            for rival in std::iter::once(rival).chain(others) {
                self.keep_aside(&id.deciseconds().to_string(), rival, "silo")?;
            }
            self.move_beside(source, &target)?;
            migrated.moved.push(id);
            Ok(())
        } else {
            self.keep_aside(&id.deciseconds().to_string(), source, "silo")
        }
    }

    fn places_in_store(&self, id: ConversationId) -> Result<Vec<PathBuf>> {
        let disk = self.store.disk();
        let mut places = Vec::new();
        for partition in Partition::ALL {
            let dir = self.store.layout.store.partition(partition);
            let entries = entries(disk, &dir)?;
            let named = entries
                .iter()
                .filter(|entry| entry.kind == Kind::Dir && ConversationId::from_dirname(&entry.name) == Some(id));
            places.extend(named.map(|entry| dir.join(&entry.name)));
        }
        Ok(places)
    }

    /// Sessions of the same terminal become one history.
    fn merge_sessions(&self, sibling: &StoreRoot) -> Result<()> {
        let disk = self.store.disk();
        let (from, to) = (sibling.sessions(), self.store.layout.store.sessions());
        let entries = entries(disk, &from)?;
        let _turn = self.session_lock()?;
        for entry in entries {
            let (source, target) = (from.join(&entry.name), to.join(&entry.name));
            let read = |path: &Path| {
                let contents = read_file(disk, path)?;
                Ok::<_, Error>(contents.and_then(|contents| Mapping::parse(path, &contents.bytes).ok()))
            };
            if entry.kind == Kind::File
                && let (Some(theirs), Some(mut ours)) = (read(&source)?, read(&target)?)
                && ours.matches(theirs.session())
            {
                ours.merge(&theirs);
                self.scratch().replace(&target, &ours.to_bytes())?;
                disk.remove_file(&source).context("remove", &source)?;
            } else {
                self.move_beside(&source, &target)?;
            }
        }
        Ok(())
    }

    fn merge_mirror(&self, sibling: &StoreRoot) -> Result<()> {
        let disk = self.store.disk();
        let (file, journal) = (sibling.tree_file(), sibling.tree_journal());
        let there = exists(disk, &file)?;
        if !there && !exists(disk, &journal)? {
            return Ok(());
        }
        let turn = self.file_lock(&self.store.layout.store.tree_lock())?;
        let mut both = self.store.clone();
        both.layout.siblings = vec![sibling.clone()];
        self.write_mirror(&turn, &both.mirror()?)?;
        if there {
            disk.remove_file(&file).context("remove", &file)?;
        }
        // Without its file the journal says nothing.
        self.drop_journal(&journal)
    }

    /// Everything else at the top of a silo and in its `vfs` directory: configuration, approvals, other worktrees' state.
    fn merge_rest(&self, sibling: &StoreRoot) -> Result<()> {
        let disk = self.store.disk();
        let ours = &self.store.layout.store;
        let locks = LockDir::new(self.store.around.disk.clone(), sibling.locks(), None, sibling.borrowed());
        locks.clear_orphans()?;
        self.merge_last_id(sibling)?;
        self.merge_removed(sibling)?;
        self.merge_temporaries(sibling)?;
        let passing = ["tree.lock", "removed.lock", "ids.lock", "sessions.lock", "merge.lock", "last-id"];
        for name in passing {
            let path = sibling.vfs().join(name);
            remove_tree(disk, &path)?;
        }
        let kept_whole = [CONVERSATIONS, "locks", "sessions", "storage", "vfs"];
        for (from, to, except) in [
            (sibling.dir.clone(), ours.dir.clone(), &kept_whole[..]),
            (sibling.vfs(), ours.vfs(), &["conflicts", "tmp", "borrowed"][..]),
            (sibling.conflicts(), ours.conflicts(), &[][..]),
        ] {
            let entries = entries(disk, &from)?;
            for entry in entries.iter().filter(|entry| !except.iter().any(|name| entry.name == *name)) {
                self.move_beside(&from.join(&entry.name), &to.join(&entry.name))?;
            }
        }
        Ok(())
    }

    /// Sweeps the temporaries of a silo, and takes over the records of those that lie in worktrees. What a process is
    /// making right now stays, and the silo with it. What has no record moves along.
    fn merge_temporaries(&self, sibling: &StoreRoot) -> Result<()> {
        let (disk, from, to) = (self.store.disk(), sibling.tmp(), self.store.layout.store.tmp());
        let theirs = Temporaries::new(from.clone(), from.clone(), IN_STORE);
        theirs.sweep(disk)?;
        let in_use = theirs.own_names(disk)?;
        for entry in entries(disk, &from)?.iter().filter(|entry| !in_use.contains(&entry.name)) {
            // A lock on a record is one on the file, whatever its name.
            self.move_beside(&from.join(&entry.name), &to.join(&entry.name))?;
        }
        Ok(())
    }

    /// What was removed from either silo was removed from the store.
    fn merge_removed(&self, sibling: &StoreRoot) -> Result<()> {
        let (disk, file) = (self.store.disk(), sibling.removed());
        let Some(contents) = read_file(disk, &file)? else { return Ok(()) };
        self.append_removed(&removed::lines(&removed::parse(&contents.bytes)))?;
        disk.remove_file(&file).context("remove", &file)
    }

    /// Moves something to where nothing is; what is taken already and differs is kept under `conflicts/`.
    fn move_beside(&self, source: &Path, target: &Path) -> Result<()> {
        let disk = self.store.disk();
        if !exists(disk, target)? {
            move_dir(disk, source, target, Access::Private)
        } else if same_tree(disk, source, target)? {
            self.scratch().discard(source)
        } else {
            self.keep_aside("silo", source, "silo")
        }
    }

    fn keep_aside(&self, owner: &str, dir: &Path, label: &str) -> Result<()> {
        let disk = self.store.disk();
        let time = crate::conflict::dirname(self.store.now());
        let owner = self.store.layout.store.conflicts().join(owner);
        make_dirs(disk, &owner, Access::Private)?;
        let stem = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let target = unused(disk, &owner, OsStr::new(&format!("{time}_{label}")))?;
        // A lone file keeps its name inside the directory that marks the time.
        if kind(disk, dir)? == Some(Kind::Dir) {
            move_dir(disk, dir, &target, Access::Private)
        } else {
            make_dirs(disk, &target, Access::Private)?;
            move_dir(disk, dir, &target.join(stem), Access::Private)
        }
    }
}

/// The latest modification of anything in a directory.
fn newest(disk: &dyn crate::disk::Disk, dir: &Path) -> Result<i64> {
    let mut newest = i64::MIN;
    for entry in disk.list(dir).context("list", dir)? {
        let path = dir.join(&entry.name);
        let stat = disk.stat(&path).context("look at", &path)?;
        newest = newest.max(if entry.kind == Kind::Dir { self::newest(disk, &path)? } else { stat.mtime });
    }
    Ok(newest)
}

/// Whether two paths hold the same names and bytes.
fn same_tree(disk: &dyn crate::disk::Disk, a: &Path, b: &Path) -> Result<bool> {
    let kind = |path: &Path| disk.stat(path).map(|stat| stat.kind).context("look at", path);
    match (kind(a)?, kind(b)?) {
        (Kind::File, Kind::File) => {
            let read = |path: &Path| disk.read(path).map(|contents| contents.bytes).context("read", path);
            Ok(read(a)? == read(b)?)
        }
        (Kind::Link, Kind::Link) => {
            let read = |path: &Path| disk.read_link(path).context("read link", path);
            Ok(read(a)? == read(b)?)
        }
        (Kind::Dir, Kind::Dir) => {
            let names = |path: &Path| {
                let mut entries = disk.list(path).context("list", path)?;
                entries.sort();
                Ok::<_, Error>(entries)
            };
            let (ours, theirs) = (names(a)?, names(b)?);
            if ours != theirs {
                return Ok(false);
            }
            for entry in ours {
                if !same_tree(disk, &a.join(&entry.name), &b.join(&entry.name))? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Kind::File | Kind::Dir | Kind::Link | Kind::Other, _) => Ok(false),
    }
}
