//! Listings that were taken, and the positions at which readers of directories go on. Values only.
//!
//! A position is the place of a name in its directory's order and the version of the directory at which the reader began. The
//! kernel caches what one reader was given and continues other readers from there by position, although the directory has
//! changed since. Readers that began before and after a change have no position in common, so it cannot.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZeroUsize;
use std::sync::Arc;

use jp_store::disk::Kind;
use lru::LruCache;

use crate::node::{Node, PLACE_BITS};
use crate::vfs::Attr;

/// How many listings are kept.
const KEPT: usize = 16;
/// Of how many directories it is known what the kernel was given.
const GIVEN: usize = 10_000;
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
    given: LruCache<u64, Given>,
    /// Some of what was given is not known any more.
    is_given_forgotten: bool,
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

/// What the kernel was given of a directory, and may have cached.
#[derive(Debug, Default)]
struct Given {
    /// How many are taking a listing to give.
    taking: usize,
    names: GivenNames,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum GivenNames {
    #[default]
    None,
    /// Every listing had these: their hashes, in order.
    Same(Vec<u64>),
    /// It may have cached one or the other.
    Different,
}

impl Default for Listings {
    fn default() -> Self {
        let cache = |size| NonZeroUsize::new(size).unwrap_or(NonZeroUsize::MIN);
        Self {
            taken: LruCache::new(cache(KEPT)),
            given: LruCache::new(cache(GIVEN)),
            is_given_forgotten: false,
            versions: HashMap::new(),
            unchanged: 0,
            changes: 0,
        }
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

    /// A listing is about to be taken, to be given to the kernel.
    pub fn begin_to_give(&mut self, number: u64) {
        self.is_given_forgotten |= self.given.len() >= GIVEN && !self.given.contains(&number);
        self.given.get_or_insert_mut(number, Given::default).taking += 1;
    }

    /// It was taken; `None` if it could not be.
    pub fn give(&mut self, number: u64, names: Option<&[Listed]>) {
        let Some(given) = self.given.peek_mut(&number) else { return };
        given.taking = given.taking.saturating_sub(1);
        let Some(names) = names else { return };
        let mut hashes: Vec<u64> = names.iter().map(|listed| hash(&listed.name)).collect();
        hashes.sort_unstable();
        let names = GivenNames::Same(hashes);
        let is_first = given.names == GivenNames::None;
        given.names = if is_first || given.names == names { names } else { GivenNames::Different };
    }

    /// A listing was given without one of its names.
    pub fn gave_less(&mut self, number: u64) {
        if let Some(given) = self.given.peek_mut(&number) {
            given.names = GivenNames::Different;
        }
    }

    /// The kernel uses none any more of those that it was given so far: it changed a name itself, or the directory has another
    /// time.
    pub fn drop_given(&mut self, number: u64) {
        if self.given.peek(&number).is_some_and(|given| given.taking == 0) {
            self.given.pop(&number);
        }
    }

    /// Whether the kernel may use a listing of a directory that is wrong about this name.
    pub fn is_given_wrong(&self, number: u64, name: &OsStr, is_there: bool) -> bool {
        match self.given.peek(&number) {
            Some(Given { taking: 0, names: GivenNames::None }) => false,
            Some(Given { taking: 0, names: GivenNames::Same(names) }) => {
                names.binary_search(&hash(name)).is_ok() != is_there
            }
            Some(_) => true,
            None => self.is_given_forgotten,
        }
    }
}

fn hash(name: &OsStr) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
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
    fn a_given_listing_is_wrong_about_what_came_or_went_since() {
        let mut listings = Listings::default();
        let wrong = |listings: &Listings, name: &str, is_there| listings.is_given_wrong(7, OsStr::new(name), is_there);
        let give = |listings: &mut Listings, of: &[(u64, &str)]| {
            listings.begin_to_give(7);
            listings.give(7, Some(&names(of)));
        };
        assert!(!wrong(&listings, "a", true), "the kernel has none");
        // It is taken, and may or may not have the name.
        listings.begin_to_give(7);
        assert!(wrong(&listings, "a", true) && wrong(&listings, "a", false));
        listings.give(7, Some(&names(&[(3, "a")])));
        give(&mut listings, &[(3, "a")]);
        assert!(!wrong(&listings, "a", true) && wrong(&listings, "a", false));
        assert!(!wrong(&listings, "b", false) && wrong(&listings, "b", true));
        // Two that differ: the kernel may have cached either.
        give(&mut listings, &[(3, "a"), (4, "b")]);
        assert!(wrong(&listings, "b", true) && wrong(&listings, "b", false));
        listings.drop_given(7);
        assert!(!wrong(&listings, "b", true));
        // One of its names was gone by the time it was given.
        give(&mut listings, &[(3, "a"), (4, "b")]);
        listings.gave_less(7);
        assert!(wrong(&listings, "b", true));
        // One that could not be taken is none.
        listings.drop_given(7);
        listings.begin_to_give(7);
        listings.give(7, None);
        assert!(!wrong(&listings, "b", true));
    }

    #[test]
    fn a_given_listing_that_was_forgotten_may_be_wrong() {
        let mut listings = Listings::default();
        for number in 0..=GIVEN as u64 {
            listings.begin_to_give(number);
            listings.give(number, Some(&[]));
        }
        assert!(listings.is_given_wrong(0, OsStr::new("a"), false));
        assert!(!listings.is_given_wrong(1, OsStr::new("a"), false));
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
