//! Another title or parent for one conversation beneath a mount, without a snapshot. The mount knows where everything is;
//! what it knows is proven by reading, under the same locks as ever, the metadata of the conversation itself and of
//! everything above its new parent. Where anything is not exactly as expected nothing is done, and whoever asked takes
//! the way that looks at everything.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use super::Writer;
use crate::books::Books;
use crate::disk::Stat;
use crate::error::{Context as _, Result};
use crate::files::{Bits, exists, sync_parent};
use crate::id::ConversationId;
use crate::layout::{Partition, managed};
use crate::ledger::Ledger;
use crate::lock::Guard;
use crate::meta::{Meta, Parent};
use crate::mirror::{Link, Mirror};
use crate::modes::PERMISSIONS;
use crate::observe::{check, read_file};
use crate::presence::Projection;
use crate::reconcile::ManagedFile;

/// What is to become of a conversation.
#[derive(Clone, Copy, Debug)]
pub enum Shape<'a> {
    /// Another place, another title, or both; `None` leaves one as it is.
    Place {
        /// The parent it gets, if any; `None` within makes it a root.
        parent: Option<Option<ConversationId>>,
        /// The title it gets, if any.
        title: Option<Option<&'a str>>,
    },
    /// Its metadata becomes these very bytes.
    Bytes(&'a [u8]),
}

/// What a mount knows of the store from having looked before.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The books as they were last read.
    pub books: &'a Books,
    /// Where each conversation lies.
    pub dir: &'a dyn Fn(ConversationId) -> Option<PathBuf>,
    /// Is told what metadata is about to look like, under the path it gets and under the one it will have in the end.
    pub about: &'a dyn Fn(&Path, &Stat),
}

/// How a conversation is afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshaped {
    /// Its directory.
    pub dir: PathBuf,
    /// Its directory's name.
    pub name: String,
    /// Its title.
    pub title: Option<String>,
    /// The parent it has, whether or not that one exists.
    pub parent: Option<ConversationId>,
}

/// What is to be written, in this order; `None` where it is so already.
#[derive(Debug, PartialEq)]
struct Decision {
    meta: Meta,
    /// What the mirror says once a parent is gone from the file that was in it.
    cleared: Option<Link>,
    bytes: Option<Vec<u8>>,
    /// What the mirror says in the end.
    link: Option<Link>,
    parent: Option<ConversationId>,
}

impl fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").finish_non_exhaustive()
    }
}

impl Writer {
    /// Changes title and parent of a conversation, as [`Writer::reparent`], [`Writer::edit`] and [`Writer::replace`] do,
    /// at a cost that does not grow with the store. `None`, and nothing is done, where that cannot be told to end in the
    /// same.
    pub fn reshape(&self, guard: &Guard, shape: Shape<'_>, known: Known<'_>) -> Result<Option<Reshaped>> {
        let layout = &self.store.layout;
        if !layout.covered || !layout.siblings.is_empty() {
            return Ok(None);
        }
        self.check_guard(guard)?;
        let _ledger_lock = self.ledger_lock()?;
        let tree_lock = self.file_lock(&layout.store.tree_lock())?;
        if !known.books.is_current(&self.store)? || !is_settled(&known.books.ledger, guard.id()) {
            return Ok(None);
        }
        let id = guard.id();
        let Some((partition, dir)) = self.whereabouts(id, &known) else { return Ok(None) };
        let path = managed(&dir, ManagedFile::Metadata);
        let Some(contents) = read_file(self.store.disk(), &path)? else { return Ok(None) };
        let Some(decision) = decide(id, &contents.bytes, shape, &known.books.mirror) else { return Ok(None) };
        let stored = known.books.mirror.effective_parent(id, Meta::parse(&contents.bytes).ok().as_ref(), None);
        if !self.fits(id, partition, (shape, stored), &decision.meta, &known)? {
            return Ok(None);
        }
        let name = id.dirname(decision.meta.title());
        let target = layout.store.partition(partition).join(&name);
        if target != dir && exists(self.store.disk(), &target)? {
            return Ok(None);
        }
        let Decision { meta, cleared, bytes, link, parent } = decision;
        if let Some(link) = cleared {
            self.note_link(&tree_lock, id, link)?;
        }
        if let Some(bytes) = bytes {
            self.check_guard(guard)?;
            let about = |new: &Stat| {
                (known.about)(&path, new);
                (known.about)(&managed(&target, ManagedFile::Metadata), new);
            };
            self.saving().put(&path, &bytes, Bits::Kept(contents.stat.mode & PERMISSIONS), &about)?;
        }
        if let Some(link) = link {
            self.note_link(&tree_lock, id, link)?;
        }
        if target != dir {
            self.rename_in_store(&dir, &target)?;
        }
        Ok(Some(Reshaped { dir: target, name, title: meta.title().map(ToOwned::to_owned), parent }))
    }

    /// Renames a directory within its partition. The name can reach the disk later.
    fn rename_in_store(&self, from: &Path, to: &Path) -> Result<()> {
        let disk = self.store.disk();
        disk.rename(from, to).context("move", from)?;
        match (&self.later, to.parent()) {
            (Some(later), Some(dir)) => {
                later.put_off_dir(dir);
                // What was put off in it is put off where it is now.
                later.put_off_dir(to);
                Ok(())
            }
            (Some(_) | None, _) => sync_parent(disk, to),
        }
    }

    /// Where a conversation is known to be, and the partition that is. A path that is no conversation's says nothing.
    fn whereabouts(&self, id: ConversationId, known: &Known<'_>) -> Option<(Partition, PathBuf)> {
        let dir = (known.dir)(id)?;
        if dir.file_name().and_then(ConversationId::from_dirname) != Some(id) {
            return None;
        }
        let above = dir.parent()?;
        let partition = Partition::ALL.into_iter().find(|&part| self.store.layout.store.partition(part) == above)?;
        Some((partition, dir))
    }

    /// Whether the tree surely has a place for it: the new parent and everything above that is there, in the same
    /// partition, can be read, and is not the conversation itself.
    fn fits(
        &self,
        id: ConversationId,
        partition: Partition,
        (shape, stored): (Shape<'_>, Option<ConversationId>),
        meta: &Meta,
        known: &Known<'_>,
    ) -> Result<bool> {
        let (parent, shown) = match shape {
            // Nothing hangs elsewhere than before.
            Shape::Place { parent: None | Some(None), .. } => (None, false),
            Shape::Place { parent: Some(Some(parent)), .. } => (Some(parent), true),
            Shape::Bytes(_) => match meta.parent() {
                // A parent that is new and hidden may be private.
                Parent::Of(parent) => (Some(parent), stored != Some(parent)),
                Parent::Root | Parent::Absent | Parent::Garbage(_) => (None, false),
            },
        };
        let mut seen = BTreeSet::from([id]);
        let mut at = parent;
        while let Some(above) = at {
            let projected = known.books.ledger.get(above).is_some_and(|entry| entry.intent == Projection::Projected);
            let Some((other, dir)) = self.whereabouts(above, known) else { return Ok(false) };
            if !seen.insert(above) || other != partition || (shown && !projected) {
                return Ok(false);
            }
            let contents = read_file(self.store.disk(), &managed(&dir, ManagedFile::Metadata))?;
            let Some(Ok(meta)) = contents.map(|contents| Meta::parse(&contents.bytes)) else { return Ok(false) };
            at = known.books.mirror.effective_parent(above, Some(&meta), None);
        }
        Ok(true)
    }
}

/// Whether the ledger has everything of a conversation that a change would write down.
fn is_settled(ledger: &Ledger, id: ConversationId) -> bool {
    ledger.get(id).is_some_and(|entry| entry.base.is_some() || entry.left.is_none())
}

/// What is to be written; `None` where that is not for us to say.
fn decide(id: ConversationId, stored: &[u8], shape: Shape<'_>, mirror: &Mirror) -> Option<Decision> {
    let before = Meta::parse(stored).ok()?;
    let mut known = mirror.of(id);
    let mut cleared = None;
    let (meta, bytes) = match shape {
        Shape::Place { parent, title } => {
            let mut meta = before.clone();
            mirror.heal(id, &mut meta);
            if let Some(parent) = parent {
                meta.set_parent(parent.map_or(Parent::Root, Parent::Of));
            }
            if let Some(title) = title {
                meta.set_title(title);
            }
            let bytes = (meta != before).then(|| meta.to_bytes());
            (meta, bytes)
        }
        Shape::Bytes(bytes) => {
            check(ManagedFile::Metadata, bytes).ok()?;
            let meta = Meta::parse(bytes).ok()?;
            if before.parent() != Parent::Absent && meta.parent() == Parent::Absent {
                // The key was there and somebody took it out: that is meant.
                let new = known.without_parent();
                cleared = news(&mut known, new);
            }
            (meta, (bytes != stored).then(|| bytes.to_vec()))
        }
    };
    let new = known.following(&meta);
    let link = news(&mut known, new);
    let parent = known.effective_parent(&meta);
    Some(Decision { meta, cleared, bytes, link, parent })
}

/// Makes one link another, and says so if it is.
fn news(link: &mut Link, new: Link) -> Option<Link> {
    let old = std::mem::replace(link, new);
    (*link != old).then(|| link.clone())
}
