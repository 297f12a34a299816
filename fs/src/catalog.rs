//! What the mount shows, as one value: conversations, their places in the tree, their names. It changes one conversation at
//! a time and says which names went stale by it. Nothing here reads a disk.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

use jp_store::ConversationId;
use jp_store::layout::{ARCHIVE, CONVERSATIONS, Partition};

use crate::node::{Dir, Node};

/// One conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// In use or put away.
    pub partition: Partition,
    /// The canonical name of its directory.
    pub name: OsString,
    /// The parent it has, whether or not that one exists.
    pub parent: Option<ConversationId>,
    /// Whether it is meant to be shown in this worktree.
    pub shown: bool,
    /// Its title.
    pub title: Option<String>,
    /// Where its files are.
    pub dir: PathBuf,
    /// Whether it is not whole yet, and so not in the store.
    pub pending: bool,
    /// Its files that are hidden in this worktree, by the text of their path in its directory. Shared, because there may be very
    /// many and most changes are about something else.
    pub hidden: Arc<BTreeSet<String>>,
}

/// A name or a content that the kernel may remember and should not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stale {
    /// A name in a directory, there or not.
    Name(Node, OsString),
    /// The attributes of a node, and the content with them.
    Content(Node),
    /// The attributes of a node alone: a directory whose names are as they were.
    Attr(Node),
}

/// What a name in a directory of conversations means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The conversation that is shown under this name.
    Child(ConversationId),
    /// Another name of a conversation that is shown here.
    Alias(ConversationId),
    /// A name this conversation could have here.
    Free(ConversationId),
    /// The archive.
    Archive,
    /// Not a conversation's name.
    Other,
}

/// All conversations, by id and by place.
#[derive(Debug, Default)]
pub struct Catalog {
    items: HashMap<ConversationId, Item>,
    /// By the parent each names, whether or not the tree can honour that.
    kids: HashMap<ConversationId, BTreeSet<ConversationId>>,
    /// Where circles are cut: the smallest of each.
    cut: HashSet<ConversationId>,
    /// Those without a parent in their partition.
    roots: [BTreeSet<ConversationId>; 2],
    /// Names that conversations had before, with the title of that time, latest last.
    former: HashMap<ConversationId, Vec<Former>>,
    /// Whether any was added since that was last asked.
    former_news: bool,
    /// Places that a program has given to conversations it is bringing back, for as long as it works on them.
    given: HashMap<ConversationId, (Dir, OsString)>,
    /// Also show what is not meant to be shown here.
    all: bool,
    /// What was removed here nevertheless: it is not shown again at once.
    away: HashSet<ConversationId>,
}

/// A name that a conversation had.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Former {
    /// The name.
    pub name: String,
    /// The title it stood for.
    pub title: Option<String>,
}

/// How many former names are remembered of one conversation.
const FORMER: usize = 16;

impl Catalog {
    /// An empty one.
    pub fn new(all: bool) -> Self {
        Self { all, ..Self::default() }
    }

    /// Takes in all conversations at once, where there is none yet and nobody remembers any names.
    pub fn fill(&mut self, items: impl IntoIterator<Item = (ConversationId, Item)>) {
        self.items = items.into_iter().collect();
        for (&id, item) in &self.items {
            if let Some(parent) = item.parent {
                self.kids.entry(parent).or_default().insert(id);
            }
        }
        for (&id, item) in &self.items {
            if self.tree_parent(id).is_none() {
                self.roots[item.partition as usize].insert(id);
            }
        }
    }

    /// What is known of a conversation.
    pub fn get(&self, id: ConversationId) -> Option<&Item> {
        self.items.get(&id)
    }

    /// All ids.
    pub fn ids(&self) -> impl Iterator<Item = ConversationId> + '_ {
        self.items.keys().copied()
    }

    /// How many conversations are shown.
    pub fn count_shown(&self) -> usize {
        self.ids().filter(|&id| self.place(id).is_some()).count()
    }

    /// The parent in the tree: a missing one makes a root, and a circle is cut at its smallest id.
    pub fn tree_parent(&self, id: ConversationId) -> Option<ConversationId> {
        if self.cut.contains(&id) { None } else { self.link(id) }
    }

    /// The smallest id of the circle that a conversation is in, if it is in one.
    fn circle(&self, id: ConversationId) -> Option<ConversationId> {
        let (mut smallest, mut at) = (id, self.link(id)?);
        // Where the way leads into a circle that this one is not in, it comes by the same mark twice.
        let (mut mark, mut steps, mut next) = (at, 0_usize, 1_usize);
        while at != id {
            smallest = smallest.min(at);
            at = self.link(at)?;
            steps += 1;
            if at == mark && at != id {
                return None;
            }
            if steps == next {
                (mark, next) = (at, next * 2);
            }
        }
        Some(smallest)
    }

    /// Whether it and everything above it is meant to be shown.
    pub fn is_visible(&self, id: ConversationId) -> bool {
        self.place(id).is_some()
    }

    /// Where it is shown, and as what.
    pub fn place(&self, id: ConversationId) -> Option<(Dir, &OsStr)> {
        let item = self.get(id)?;
        if let Some((dir, name)) = self.given.get(&id) {
            return Some((*dir, name));
        }
        let mut at = Some(id);
        while let Some(here) = at {
            let all = self.all && !self.away.contains(&here);
            if !all && self.get(here).is_none_or(|item| !item.shown) {
                return None;
            }
            if here != id && self.given.contains_key(&here) {
                break;
            }
            at = self.tree_parent(here);
        }
        let dir = self.tree_parent(id).map_or(Dir::top(item.partition), Dir::Of);
        Some((dir, &item.name))
    }

    /// What is above a conversation and not meant to be shown.
    pub fn hidden_above(&self, id: ConversationId) -> Vec<ConversationId> {
        let line = std::iter::successors(self.tree_parent(id), |&id| self.tree_parent(id));
        line.filter(|&id| self.get(id).is_some_and(|item| !item.shown && !item.pending)).collect()
    }

    /// Those that may be shown in a directory by where they belong.
    fn candidates(&self, dir: Dir) -> Option<&BTreeSet<ConversationId>> {
        match dir {
            Dir::Root => Some(&self.roots[Partition::Live as usize]),
            Dir::Archive => Some(&self.roots[Partition::Archived as usize]),
            Dir::Of(id) => self.kids.get(&id),
        }
    }

    /// What is shown in a directory, by id.
    pub fn children(&self, dir: Dir) -> Vec<ConversationId> {
        let mut found: Vec<_> = self.natural_children(dir).collect();
        let given = self.given.iter().filter(|(_, (place, _))| *place == dir);
        found.extend(given.map(|(&id, _)| id).filter(|id| self.items.contains_key(id)));
        found.sort();
        found.dedup();
        found
    }

    /// What is shown in a directory because it belongs there.
    fn natural_children(&self, dir: Dir) -> impl Iterator<Item = ConversationId> + '_ {
        let here = move |id: &ConversationId| self.place(*id).is_some_and(|(place, _)| place == dir);
        self.candidates(dir).into_iter().flatten().copied().filter(here)
    }

    /// Whether anything is shown in a directory.
    pub fn has_children(&self, dir: Dir) -> bool {
        let given = || self.given.iter().any(|(id, (place, _))| *place == dir && self.items.contains_key(id));
        self.natural_children(dir).next().is_some() || given()
    }

    /// What somebody comes to next who goes through everything from top to bottom.
    pub fn next(&self, id: ConversationId) -> Option<ConversationId> {
        if let Some(child) = self.natural_children(Dir::Of(id)).next() {
            return Some(child);
        }
        let mut at = id;
        for _ in 0..self.items.len() {
            let (dir, _) = self.place(at)?;
            let mut after = self.candidates(dir)?.range((Bound::Excluded(at), Bound::Unbounded)).copied();
            if let Some(next) = after.find(|id| self.place(*id).is_some_and(|(place, _)| place == dir)) {
                return Some(next);
            }
            at = dir.parent()?;
        }
        None
    }

    /// What a name means in a directory.
    pub fn meaning(&self, dir: Dir, name: &OsStr) -> Meaning {
        if dir == Dir::Root && name == ARCHIVE {
            return Meaning::Archive;
        }
        let Some((id, bare)) = name.to_str().and_then(parse) else { return Meaning::Other };
        match self.place(id) {
            Some((place, canonical)) if place == dir && canonical == name => Meaning::Child(id),
            Some((place, _)) if place == dir && (bare || self.former_title(id, name).is_some()) => Meaning::Alias(id),
            Some(_) | None => Meaning::Free(id),
        }
    }

    /// The title a conversation had when it was called this; `None` when it never was.
    pub fn former_title(&self, id: ConversationId, name: &OsStr) -> Option<Option<&str>> {
        let former = self.former.get(&id)?.iter().rev().find(|former| OsStr::new(&former.name) == name)?;
        Some(former.title.as_deref())
    }

    /// All former names.
    pub fn former(&self) -> &HashMap<ConversationId, Vec<Former>> {
        &self.former
    }

    /// Remembers a former name.
    pub fn add_former(&mut self, id: ConversationId, former: Former) {
        self.former_news = true;
        let names = self.former.entry(id).or_default();
        names.retain(|known| known.name != former.name);
        names.push(former);
        if names.len() > FORMER {
            names.remove(0);
        }
    }

    /// Whether a former name was added since this was last asked.
    pub fn take_former_news(&mut self) -> bool {
        std::mem::take(&mut self.former_news)
    }

    /// Hides a file of a conversation, or shows it again.
    pub fn set_hidden(&mut self, id: ConversationId, file: &str, hidden: bool) {
        let Some(item) = self.items.get_mut(&id).filter(|item| item.hidden.contains(file) != hidden) else { return };
        let files = Arc::make_mut(&mut item.hidden);
        if hidden {
            files.insert(file.to_owned());
        } else {
            files.remove(file);
        }
    }

    /// Makes a conversation this, or makes it go, and says which names that concerns.
    pub fn apply(&mut self, id: ConversationId, new: Option<Item>) -> Vec<Stale> {
        if self.items.get(&id) == new.as_ref() {
            return Vec::new();
        }
        if let (Some(old), Some(new)) = (self.items.get(&id), &new)
            && (&old.name, &old.title) != (&new.name, &new.title)
            && let Some(name) = old.name.to_str()
        {
            // The title may be seen to change before the name does; a name stands for the title it is the slug of.
            let fits = id.dirname(old.title.as_deref()) == name;
            if fits || (old.name != new.name && self.former_title(id, &old.name).is_none()) {
                let former = Former { name: name.to_owned(), title: old.title.clone() };
                self.add_former(id, former);
            }
        }
        let mut affected = self.line(id);
        if !self.carries_along(id, new.as_ref()) {
            affected.extend(self.kids.get(&id).into_iter().flatten());
        }
        let next = new.as_ref().and_then(|item| item.parent);
        affected.extend(next.into_iter().flat_map(|parent| self.line(parent)));
        let before = self.look(&affected);
        // Whatever circle comes or goes by this, this conversation is in it.
        if let Some(smallest) = self.circle(id) {
            self.cut.remove(&smallest);
        }
        let old = match new {
            Some(item) => {
                if let Some(parent) = item.parent {
                    self.kids.entry(parent).or_default().insert(id);
                }
                self.items.insert(id, item)
            }
            None => self.items.remove(&id),
        };
        if let Some(parent) = old.and_then(|old| old.parent)
            && next != Some(parent)
            && let Some(kids) = self.kids.get_mut(&parent)
        {
            kids.remove(&id);
            if kids.is_empty() {
                self.kids.remove(&parent);
            }
        }
        if let Some(smallest) = self.circle(id) {
            self.cut.insert(smallest);
        }
        for &id in &affected {
            let root = self.items.get(&id).map(|item| item.partition).filter(|_| self.tree_parent(id).is_none());
            for partition in Partition::ALL {
                let roots = &mut self.roots[partition as usize];
                if root == Some(partition) {
                    roots.insert(id)
                } else {
                    roots.remove(&id)
                };
            }
        }
        self.differences(before)
    }

    /// Puts a conversation where a program wants it for now, or lets it go where it belongs.
    pub fn give(&mut self, id: ConversationId, place: Option<(Dir, OsString)>) -> Vec<Stale> {
        let before = self.look(&BTreeSet::from([id]));
        match place {
            Some(place) => self.given.insert(id, place),
            None => self.given.remove(&id),
        };
        self.differences(before)
    }

    /// Somebody has removed a conversation here, or shown it again.
    pub fn put_away(&mut self, id: ConversationId, away: bool) -> Vec<Stale> {
        let before = self.look(&BTreeSet::from([id]));
        if away {
            self.away.insert(id);
        } else {
            self.away.remove(&id);
        }
        self.differences(before)
    }

    /// Whether a program has given it a place for now.
    pub fn is_given(&self, id: ConversationId) -> bool {
        self.given.contains_key(&id)
    }

    /// The way from where one directory of conversations is to a conversation, as a link in it would spell it.
    pub fn link_to(&self, id: ConversationId) -> Option<OsString> {
        self.place(id).map(|(_, name)| name.to_owned())
    }

    /// The path of a node's directory from the top of the mount.
    pub fn path(&self, id: ConversationId) -> Option<PathBuf> {
        let mut names = Vec::new();
        let mut at = id;
        loop {
            let (dir, name) = self.place(at)?;
            names.push(name.to_owned());
            match dir {
                Dir::Root => break,
                Dir::Archive => {
                    names.push(ARCHIVE.into());
                    break;
                }
                Dir::Of(parent) => {
                    names.push(CONVERSATIONS.into());
                    at = parent;
                }
            }
            if names.len() > 2 * self.items.len() + 2 {
                return None;
            }
        }
        Some(names.iter().rev().collect())
    }

    /// The parent it names, if that is in the same partition.
    fn link(&self, id: ConversationId) -> Option<ConversationId> {
        let item = self.items.get(&id)?;
        let parent = item.parent?;
        (self.items.get(&parent)?.partition == item.partition).then_some(parent)
    }

    /// Whether one is another or beneath it, as far as the parents they name go: across partitions too.
    pub fn is_beneath(&self, id: ConversationId, above: ConversationId) -> bool {
        self.line(id).contains(&above)
    }

    /// It and everything above it, as far as names go, once each.
    fn line(&self, id: ConversationId) -> BTreeSet<ConversationId> {
        let mut line = BTreeSet::new();
        let mut at = Some(id);
        while let Some(id) = at.filter(|&id| line.insert(id)) {
            at = self.items.get(&id).and_then(|item| item.parent);
        }
        line
    }

    /// Whether what hangs beneath a conversation surely goes on hanging there, and being shown or not, once it is this.
    fn carries_along(&self, id: ConversationId, new: Option<&Item>) -> bool {
        let (Some(old), Some(new)) = (self.items.get(&id), new) else { return false };
        let above = |item: &Item| item.parent.is_none_or(|parent| !self.line(parent).contains(&id));
        let shown = |item: &Item| {
            let there = item
                .parent
                .filter(|parent| self.items.get(parent).is_some_and(|above| above.partition == item.partition));
            (self.all || item.shown) && there.is_none_or(|parent| self.is_visible(parent))
        };
        let plain = !self.given.contains_key(&id) && !self.away.contains(&id);
        plain && old.partition == new.partition && above(old) && above(new) && shown(old) == shown(new)
    }

    fn look(&self, ids: &BTreeSet<ConversationId>) -> Vec<Seen> {
        let own = |dir| (dir, self.has_children(dir));
        ids.iter()
            .map(|&id| {
                let place = self.place(id).map(|(dir, name)| (dir, name.to_owned()));
                let around = place.as_ref().map(|(dir, _)| *dir);
                let dirs = [Dir::Of(id), Dir::Archive].into_iter().chain(around).map(own).collect();
                Seen { id, place, dirs }
            })
            .collect()
    }

    fn differences(&self, before: Vec<Seen>) -> Vec<Stale> {
        let mut stale = Vec::new();
        let mut push = |new: Stale| {
            if !stale.contains(&new) {
                stale.push(new);
            }
        };
        for Seen { id, place, dirs } in before {
            let now = self.place(id).map(|(dir, name)| (dir, name.to_owned()));
            let mut around: Vec<_> = dirs;
            if now != place {
                for (dir, name) in place.into_iter().chain(now.clone()) {
                    push(Stale::Name(Node::Children(dir), name));
                    push(Stale::Content(Node::Children(dir)));
                }
                // What was empty before is told from what is not now.
                around.extend(now.map(|(dir, _)| (dir, false)));
            }
            for (dir, had) in around {
                if had != self.has_children(dir) {
                    // The name can be entered either way; only the listing it stands in changes.
                    match dir {
                        Dir::Root => {}
                        Dir::Archive => push(Stale::Content(Node::Children(Dir::Root))),
                        Dir::Of(parent) => push(Stale::Content(Node::Conversation(parent))),
                    }
                }
            }
        }
        stale
    }
}

/// Where a conversation was, and which directories around it had something in them.
struct Seen {
    id: ConversationId,
    place: Option<(Dir, OsString)>,
    dirs: Vec<(Dir, bool)>,
}

/// The id a name begins with, and whether it is the whole name: `17528832001`, `17528832001-any-slug`, `jp-c17528832001`.
pub fn parse(name: &str) -> Option<(ConversationId, bool)> {
    if let Some(digits) = name.strip_prefix("jp-c") {
        let id: ConversationId = name.parse().ok()?;
        return (id.deciseconds().to_string() == digits).then_some((id, true));
    }
    let id = ConversationId::from_dirname(OsStr::new(name))?;
    id.is_canonical_dirname(name).then(|| (id, id.deciseconds().to_string() == name))
}

#[cfg(test)]
mod tests;
