//! Looking without being told where: every second where nothing is watched, and once where something was missed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use jp_store::ConversationId;
use jp_store::disk::Kind;
use jp_store::layout::CONVERSATIONS;
use jp_store::reconcile::ManagedFile;

use super::look::{has_content, stale_modes};
use super::{Look, Noticed, Vfs};
use crate::backing::Stat;
use crate::catalog::Stale;
use crate::error::Result;
use crate::node::{Dir, Node};

/// How files looked.
pub(super) type Marks = HashMap<ConversationId, MarksInside>;

/// How the files of one conversation looked, by their paths in its directory, which itself has none.
type MarksInside = BTreeMap<PathBuf, (Kind, Look)>;

impl Vfs {
    /// Later looks are compared with this one.
    pub fn look_first(&self) {
        let now = self.marks();
        *self.seen.lock() = now;
    }

    /// Looks at every name, every file and all the books, and takes in what was noticed besides. For where nothing is
    /// watched.
    pub fn look_around(&self, mut noticed: Noticed) -> Result<()> {
        let now = self.marks();
        let mut seen = self.seen.lock();
        for (id, inner) in differences(&seen, &now) {
            if inner.as_os_str().is_empty() {
                noticed.modes.insert(Node::Conversation(id));
            } else {
                noticed.files.insert((id, inner));
            }
        }
        *seen = now;
        drop(seen);
        // That one is not compared: to forget its mode costs a question a second.
        noticed.modes.insert(Node::Children(Dir::Root));
        noticed.all_names = true;
        noticed.books = true;
        self.notice(noticed)
    }

    /// Nothing that the kernel remembers can be relied on: neither what it knows, nor that it takes a name for free.
    pub(super) fn doubt_everything(&self) -> Vec<Stale> {
        // What we did ourselves may have been changed again since.
        self.echo.lock().clear();
        let mut there = self.marks();
        let known: HashSet<_> = self.inodes.lock().all_known().into_iter().filter(has_content).collect();
        let mut stale = vec![Stale::Content(Node::Children(Dir::Root)), Stale::Content(Node::Children(Dir::Archive))];
        for node in &known {
            let (id, inner) = match node {
                Node::Managed(id, file) => (id, Path::new(file.name())),
                Node::Own(id, inner) => (id, &**inner),
                _ => continue,
            };
            // What is not in the store yet is nobody else's.
            let Some(marks) = there.get_mut(id) else { continue };
            let now = marks.remove(inner).map(|(kind, _)| kind);
            stale.extend(self.stale_file(*id, inner, now));
        }
        let unknown =
            there.iter().flat_map(|(id, marks)| marks.iter().map(move |(inner, (kind, _))| (*id, inner, *kind)));
        for (id, inner, kind) in unknown {
            let news = self.stale_file(id, inner, Some(kind));
            // Where the kernel does not know the directory it remembers nothing of it.
            stale.extend(news.into_iter().filter(|stale| matches!(stale, Stale::Name(dir, _) if known.contains(dir))));
        }
        stale.extend(known.iter().filter(|node| matches!(node, Node::Conversation(_))).flat_map(stale_modes));
        stale.extend(known.into_iter().map(Stale::Content));
        stale
    }

    /// How every file of every conversation looks.
    fn marks(&self) -> Marks {
        let dirs: Vec<_> = {
            let catalog = self.catalog.read();
            let dir = |id| Some((id, catalog.get(id).filter(|item| !item.pending)?.dir.clone()));
            catalog.ids().filter_map(dir).collect()
        };
        dirs.into_iter().map(|(id, dir)| (id, self.marks_in(&dir))).collect()
    }

    /// How the files of one conversation look. What cannot be looked at is taken for gone: whoever asks for it is told why.
    fn marks_in(&self, dir: &Path) -> MarksInside {
        let mut marks = BTreeMap::new();
        let mut note = |inner: PathBuf| {
            if let Ok(stat) = self.backing.stat(&dir.join(&inner)) {
                marks.insert(inner, (stat.kind, look(&stat)));
            }
        };
        note(PathBuf::new());
        let mut open = vec![PathBuf::new()];
        while let Some(inner) = open.pop() {
            for (name, kind) in self.backing.list(&dir.join(&inner)).unwrap_or_default() {
                let is_top = inner.as_os_str().is_empty();
                let inner = inner.join(&name);
                if kind == Kind::Dir && !(is_top && name == CONVERSATIONS) {
                    open.push(inner.clone());
                }
                note(inner);
            }
        }
        // A directory that cannot be listed may still be entered.
        ManagedFile::ALL.iter().for_each(|file| note(PathBuf::from(file.name())));
        marks
    }
}

/// How something looks. A directory is the same as long as it is that one: what is in it is looked at by itself.
fn look(stat: &Stat) -> Look {
    match stat.kind {
        Kind::Dir => (stat.ino, stat.mode.into(), 0, 0),
        _ => (stat.ino, stat.size, stat.mtime, stat.ctime),
    }
}

/// What came, went or changed.
fn differences(before: &Marks, now: &Marks) -> Vec<(ConversationId, PathBuf)> {
    let nothing = BTreeMap::new();
    let mut found = Vec::new();
    let ids: HashSet<_> = before.keys().chain(now.keys()).collect();
    for id in ids {
        let (before, now) = (before.get(id).unwrap_or(&nothing), now.get(id).unwrap_or(&nothing));
        let changed = now.iter().filter(|(inner, look)| before.get(*inner) != Some(look));
        let gone = before.keys().filter(|inner| !now.contains_key(*inner));
        found.extend(changed.map(|(inner, _)| inner).chain(gone).map(|inner| (*id, inner.clone())));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_went_or_changed_is_a_difference() {
        let id = |number| ConversationId::new(number).unwrap();
        let marks = |of: &[(u64, &str, u64)]| {
            let mut marks = Marks::new();
            for (number, path, size) in of {
                marks.entry(id(*number)).or_default().insert(PathBuf::from(path), (Kind::File, (1, *size, 0, 0)));
            }
            marks
        };
        let before = marks(&[(1, "same", 1), (1, "changed", 1), (1, "sub/gone", 1), (2, "all", 1)]);
        let now = marks(&[(1, "same", 1), (1, "changed", 2), (1, "new", 1), (3, "all", 1)]);
        let mut found = differences(&before, &now);
        found.sort();
        let expected = [(1, "changed"), (1, "new"), (1, "sub/gone"), (2, "all"), (3, "all")];
        assert_eq!(found, expected.map(|(number, path)| (id(number), PathBuf::from(path))));
        assert_eq!(differences(&now, &now), []);
    }
}
