//! Listings that were taken, and the positions at which readers of directories go on. Values only.
//!
//! A position is the place of a name in its directory's order and the version of the directory at which the reader began. The
//! kernel caches what one reader was given and continues other readers from there by position, although the directory has
//! changed since. Readers that began before and after a change have no position in common, so it cannot.

use std::collections::HashMap;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::sync::Arc;

use jp_store::disk::Kind;
use lru::LruCache;

use crate::node::{Node, PLACE_BITS};
use crate::vfs::Attr;

/// How many listings are kept.
const KEPT: usize = 16;
/// The versions of how many directories are told apart.
const VERSIONS: usize = 10_000;
/// How many versions a position can tell apart. The kernel takes a position for a signed number.
const VERSION_MASK: u64 = (1 << (63 - PLACE_BITS)) - 1;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;

/// One name in a directory.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its place in the order of the directory.
    pub place: u64,
    /// The name.
    pub name: OsString,
    /// What it stands for.
    pub node: Node,
    /// What kind of thing that is.
    pub kind: Kind,
    /// What it was like, where that had to be looked at for the listing.
    pub attr: Option<Attr>,
}

impl Listed {
    /// Whether it is `.` or `..`.
    pub fn is_dots(&self) -> bool {
        self.place <= 2
    }
}

/// A listing as one reader sees it from a position on.
#[derive(Clone, Debug)]
pub struct Listing {
    names: Arc<Vec<Listed>>,
    version: u64,
    after: u64,
}

impl Listing {
    /// A reader that begins (at 0) gets positions of this version; one that goes on keeps the version it began with.
    pub(crate) fn new(names: Arc<Vec<Listed>>, version: u64, after: u64) -> Self {
        let version = if after == 0 { version & VERSION_MASK } else { after >> PLACE_BITS };
        Self { names, version, after: after & PLACE_MASK }
    }

    /// The names that are left, each with the position after it.
    pub fn rest(&self) -> impl Iterator<Item = (u64, &Listed)> {
        let from = self.names.partition_point(|listed| listed.place <= self.after);
        self.names[from..].iter().map(|listed| (self.version << PLACE_BITS | listed.place, listed))
    }
}

/// Listings that were taken.
#[derive(Debug)]
pub struct Listings {
    taken: LruCache<u64, Taken>,
    /// How many changes there were before the last one of each directory.
    versions: HashMap<Node, u64>,
    /// The version of a directory that is not among these.
    unchanged: u64,
    changes: u64,
}

#[derive(Debug)]
struct Taken {
    node: Node,
    version: u64,
    names: Arc<Vec<Listed>>,
}

impl Default for Listings {
    fn default() -> Self {
        let taken = LruCache::new(NonZeroUsize::new(KEPT).unwrap_or(NonZeroUsize::MIN));
        Self { taken, versions: HashMap::new(), unchanged: 0, changes: 0 }
    }
}

impl Listings {
    /// A name in a directory came, went, or stands for something else.
    pub fn changed(&mut self, dir: &Node) {
        self.changes += 1;
        if self.versions.len() >= VERSIONS {
            self.versions.clear();
            self.unchanged = self.changes;
        }
        self.versions.insert(dir.clone(), self.changes);
    }

    /// The version of a directory, to be asked before it is listed.
    pub fn version(&self, dir: &Node) -> u64 {
        self.versions.get(dir).copied().unwrap_or(self.unchanged)
    }

    /// The listing of a directory, if it is the one with this number and nothing in it has changed since.
    pub fn get(&mut self, number: u64, dir: &Node) -> Option<Arc<Vec<Listed>>> {
        let version = self.version(dir);
        let taken = self.taken.get(&number)?;
        (taken.node == *dir && taken.version == version).then(|| taken.names.clone())
    }

    /// Keeps a listing that was taken at this version, in order.
    pub fn put(&mut self, number: u64, dir: &Node, version: u64, mut names: Vec<Listed>) -> Arc<Vec<Listed>> {
        names.sort_by(|a, b| (a.place, &a.name).cmp(&(b.place, &b.name)));
        // Two names with one place, which is rare: a reader could not go on between them.
        for at in 1..names.len() {
            names[at].place = names[at].place.max(names[at - 1].place + 1);
        }
        let names = Arc::new(names);
        self.taken.put(number, Taken { node: dir.clone(), version, names: names.clone() });
        names
    }
}

#[cfg(test)]
mod tests {
    use jp_store::ConversationId;

    use super::*;

    fn dir(name: &str) -> Node {
        Node::Own(ConversationId::new(5).unwrap(), name.into())
    }

    fn names(places: &[(u64, &str)]) -> Vec<Listed> {
        let listed = |&(place, name): &(u64, &str)| Listed {
            place,
            name: name.into(),
            node: dir(name),
            kind: Kind::File,
            attr: None,
        };
        places.iter().map(listed).collect()
    }

    fn rest(listing: &Listing) -> Vec<String> {
        listing.rest().map(|(_, listed)| listed.name.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_listing_is_kept_until_its_directory_changes() {
        let mut listings = Listings::default();
        let version = listings.version(&dir("d"));
        listings.put(7, &dir("d"), version, names(&[(4, "b"), (3, "a")]));
        listings.changed(&dir("other"));
        assert_eq!(listings.get(7, &dir("d")).map(|names| names.len()), Some(2));
        assert!(listings.get(7, &dir("moved")).is_none());
        // It changes while it is being listed.
        let version = listings.version(&dir("d"));
        listings.changed(&dir("d"));
        listings.put(7, &dir("d"), version, names(&[(3, "a")]));
        assert!(listings.get(7, &dir("d")).is_none());
    }

    #[test]
    fn versions_stay_told_apart_when_there_are_many() {
        let mut listings = Listings::default();
        let before = listings.version(&dir("d"));
        listings.changed(&dir("d"));
        let after = listings.version(&dir("d"));
        for n in 0..=VERSIONS {
            listings.changed(&dir(&n.to_string()));
        }
        let later = listings.version(&dir("d"));
        assert!(before < after && after < later);
        assert_eq!(listings.version(&dir("never changed")), later);
    }

    #[test]
    fn readers_from_before_and_after_a_change_have_no_position_in_common() {
        let names = Arc::new(names(&[(1, "."), (2, ".."), (5, "a"), (PLACE_MASK, "z")]));
        let all = |version, after| Listing::new(names.clone(), version, after);
        let positions = |listing: &Listing| listing.rest().map(|(position, _)| position).collect::<Vec<_>>();
        let (old, new) = (positions(&all(3, 0)), positions(&all(4, 0)));
        assert!(old.iter().all(|position| !new.contains(position)));
        assert!(old.iter().chain(&new).all(|&position| position > 0 && i64::try_from(position).is_ok()));
        // Whoever goes on keeps its version.
        for (at, &position) in old.iter().enumerate() {
            assert_eq!(positions(&all(4, position)), old[at + 1..]);
        }
        assert!(positions(&all(u64::MAX, 0)).iter().all(|&position| i64::try_from(position).is_ok()));
    }

    #[test]
    fn two_names_with_one_place_are_each_listed_once() {
        let mut listings = Listings::default();
        let names = listings.put(7, &dir("d"), 0, names(&[(9, "c"), (8, "b"), (8, "a"), (8, "d")]));
        let (mut at, mut found) = (0, Vec::new());
        loop {
            let listing = Listing::new(names.clone(), 0, at);
            assert_eq!(rest(&listing).len(), 4 - found.len());
            let Some((next, listed)) = listing.rest().next() else { break };
            (at, found) = (next, [found, vec![listed.name.clone()]].concat());
        }
        assert_eq!(found, ["a", "b", "d", "c"]);
    }
}
