//! Listings. One is taken when a reader begins and serves every reader until a name in the directory changes. A reader goes on
//! after the name it stopped at, so names that come and go make it neither miss nor repeat another.

use std::ffi::OsStr;
use std::path::Path;

use jp_store::ConversationId;
use jp_store::disk::Kind;
use jp_store::error::Context as _;
use jp_store::layout::{ARCHIVE, CONVERSATIONS};
use jp_store::reconcile::ManagedFile;
use jp_store::scratch::is_scratch;

use super::find::is_plain;
use super::{Attr, Vfs, managed_file};
use crate::error::{FsError, Result};
use crate::listings::{Listed, Listing};
use crate::node::{Dir, Home, Node, place_of};

/// Names as they are found.
#[derive(Default)]
struct Names(Vec<Listed>);

impl Names {
    fn add(&mut self, place: u64, name: &OsStr, node: Node, kind: Kind) {
        self.0.push(Listed { place, name: name.to_owned(), node, kind, attr: None });
    }
}

impl Vfs {
    /// What is in a directory after a position; 0 is the beginning. `.` and `..` come first.
    pub fn list(&self, number: u64, after: u64) -> Result<Listing> {
        self.while_named(number, |node| {
            let (version, known) = {
                let mut listings = self.listings.lock();
                (listings.version(node), listings.get(number, node))
            };
            // A reader that begins sees what is there now, whoever changed it.
            if after > 0
                && let Some(names) = known
            {
                return Ok(Listing::new(names, version, after));
            }
            // The other kinds get another time with whatever is in them.
            let is_given = matches!(node, Node::Own(..));
            if is_given {
                self.listings.lock().begin_to_give(number);
            }
            let names = self.take_listing(node);
            let mut listings = self.listings.lock();
            if is_given {
                listings.give(number, names.as_deref().ok());
            }
            let names = listings.put(number, node, version, names?);
            Ok(Listing::new(names, version, after))
        })
    }

    /// What a name listed in a directory is like, told to the kernel as something it can name from now on. What the listing saw
    /// counts for the request that took it. `None` if the name is gone since.
    pub fn enter_listed(&self, dir: u64, listed: &Listed, just_taken: bool) -> Result<Option<Attr>> {
        let entered = self.enter_if_there(listed, just_taken)?;
        if entered.is_none() {
            self.listings.lock().gave_less(dir);
        }
        Ok(entered)
    }

    fn enter_if_there(&self, listed: &Listed, just_taken: bool) -> Result<Option<Attr>> {
        if let Some(attr) = listed.attr.filter(|_| just_taken) {
            return Ok(Some(self.tell_number(&listed.node, attr)));
        }
        if self.is_node_hidden(&listed.node) {
            return Ok(None);
        }
        match self.enter(&listed.node) {
            Ok(attr) => Ok(Some(attr)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The number of a listed name, which the kernel is not taken to know by it.
    pub fn number(&self, node: &Node) -> u64 {
        self.inodes.lock().number(node)
    }

    pub(super) fn take_listing(&self, node: &Node) -> Result<Vec<Listed>> {
        let mut found = Names::default();
        found.add(1, OsStr::new("."), node.clone(), Kind::Dir);
        found.add(2, OsStr::new(".."), self.above(node)?, Kind::Dir);
        match node {
            Node::Children(at) => self.list_children(*at, &mut found)?,
            Node::Conversation(id) => self.list_conversation(*id, &mut found)?,
            Node::Own(id, inner) => self.list_own(*id, inner, &mut found)?,
            Node::Scratch(home, inner) => self.list_scratch(*home, inner, &mut found)?,
            Node::Managed(..) | Node::Under(_) | Node::Alias(..) | Node::Orphan(_) => return Err(FsError::NotDir),
        }
        Ok(found.0)
    }

    fn list_children(&self, at: Dir, found: &mut Names) -> Result<()> {
        self.end_fresh();
        let catalog = self.catalog.read();
        for id in catalog.children(at) {
            if let Some((_, name)) = catalog.place(id) {
                found.add(id.deciseconds() + 16, name, Node::Conversation(id), Kind::Dir);
            }
        }
        let archive = at == Dir::Root && catalog.has_children(Dir::Archive);
        drop(catalog);
        if archive {
            found.add(3, OsStr::new(ARCHIVE), Node::Children(Dir::Archive), Kind::Dir);
        }
        if at == Dir::Root {
            let listed = self.backing.list(&self.under).context("list", &self.under)?;
            for (name, kind) in listed.into_iter().filter(|(name, kind)| is_plain(*kind) && !is_scratch(name)) {
                let ours = name.to_str().and_then(crate::catalog::parse).is_some();
                if !ours {
                    found.add(place_of(&name), &name, Node::Under(name.clone()), kind);
                }
            }
        }
        self.list_scratch(Home::Children(at), Path::new(""), found)
    }

    fn list_conversation(&self, id: ConversationId, found: &mut Names) -> Result<()> {
        self.check_shown(id)?;
        for (slot, file) in (3..).zip(ManagedFile::ALL) {
            let name = OsStr::new(file.name());
            let node = Node::Managed(id, file);
            if self.is_hidden(id, Path::new(name)) {
                continue;
            }
            match self.attr_of(&node) {
                Ok(attr) => {
                    let (name, kind, attr) = (name.to_owned(), Kind::File, Some(attr));
                    found.0.push(Listed { place: slot, name, node, kind, attr });
                }
                Err(error) if error.is_absent() => {}
                Err(error) => return Err(error),
            }
        }
        if self.catalog.read().has_children(Dir::Of(id)) {
            found.add(6, OsStr::new(CONVERSATIONS), Node::Children(Dir::Of(id)), Kind::Dir);
        }
        self.list_own(id, Path::new(""), found)?;
        self.list_scratch(Home::Conversation(id), Path::new(""), found)
    }

    fn list_own(&self, id: ConversationId, inner: &Path, found: &mut Names) -> Result<()> {
        let top = inner.as_os_str().is_empty();
        let dir = self.dir_of(id)?.join(inner);
        for (name, kind) in self.backing.list(&dir).context("list", &dir)? {
            let reserved = top && (managed_file(&name).is_some() || name == CONVERSATIONS);
            if reserved || kind == Kind::Other {
                continue;
            }
            if let Some(node @ Node::Own(..)) = self.inside(id, inner.join(&name)) {
                found.add(place_of(&name), &name, node, kind);
            }
        }
        if !top {
            self.list_scratch(Home::Conversation(id), inner, found)?;
        }
        Ok(())
    }

    /// Scratch lies in a tree of its own, and looks as if it lay among the rest.
    fn list_scratch(&self, home: Home, inner: &Path, found: &mut Names) -> Result<()> {
        let dir = self.scratch_dir(home).join(inner);
        let listed = match self.backing.list(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            listed => listed.context("list", &dir)?,
        };
        let inside_scratch = inner.iter().any(is_scratch);
        for (name, kind) in listed {
            // Directories of the conversation's own that merely hold scratch are listed where they are.
            if inside_scratch || is_scratch(&name) {
                found.add(place_of(&name), &name, Node::Scratch(home, inner.join(&name)), kind);
            }
        }
        Ok(())
    }

    /// The directory a directory is in.
    fn above(&self, node: &Node) -> Result<Node> {
        Ok(match node {
            Node::Children(Dir::Root | Dir::Archive) => Node::Children(Dir::Root),
            Node::Children(Dir::Of(id)) => Node::Conversation(*id),
            Node::Conversation(id) => {
                let catalog = self.catalog.read();
                Node::Children(catalog.place(*id).map_or(Dir::Root, |(dir, _)| dir))
            }
            Node::Own(id, inner) => match inner.parent() {
                Some(above) if !above.as_os_str().is_empty() => Node::Own(*id, above.to_owned()),
                Some(_) | None => Node::Conversation(*id),
            },
            Node::Scratch(home, inner) => match (inner.parent(), home) {
                (Some(above), _) if above.iter().any(is_scratch) => Node::Scratch(*home, above.to_owned()),
                (Some(above), Home::Conversation(id)) if !above.as_os_str().is_empty() => {
                    Node::Own(*id, above.to_owned())
                }
                (_, Home::Conversation(id)) => Node::Conversation(*id),
                (_, Home::Children(at)) => Node::Children(*at),
            },
            Node::Managed(..) | Node::Under(_) | Node::Alias(..) | Node::Orphan(_) => return Err(FsError::NotDir),
        })
    }
}
