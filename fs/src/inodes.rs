//! Which number stands for which node, and how often the kernel has been told each. Numbers of conversations and their
//! managed files follow from ids; the rest are in a table. A number goes with its file when that is renamed, and is not
//! given to anything else until the kernel has forgotten it.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use jp_store::ConversationId;
use jp_store::disk::Kind;

use crate::node::{Node, ROOT};

/// The numbers in use.
#[derive(Debug)]
pub struct Inodes {
    /// Numbers that do not stand for what is computed from them.
    bound: HashMap<u64, Node>,
    by_node: HashMap<Node, u64>,
    /// How many lookups the kernel has not forgotten yet.
    lookups: HashMap<u64, u64>,
    /// What the kernel takes a number for, where that is not a plain file and may become one.
    kinds: HashMap<u64, Kind>,
    /// Numbers that the kernel still knows though it was told that nothing has their name: they are open, or not forgotten
    /// yet.
    without_name: HashSet<u64>,
}

impl Default for Inodes {
    /// The kernel knows the top without ever looking it up.
    fn default() -> Self {
        Self {
            bound: HashMap::new(),
            by_node: HashMap::new(),
            lookups: HashMap::from([(ROOT, 1)]),
            kinds: HashMap::new(),
            without_name: HashSet::new(),
        }
    }
}

impl Inodes {
    /// What a number stands for.
    pub fn resolve(&self, number: u64) -> Option<Node> {
        self.bound.get(&number).cloned().or_else(|| Node::from_computed(number))
    }

    /// The number of a node.
    pub fn number(&mut self, node: &Node) -> u64 {
        if let Some(&number) = self.by_node.get(node) {
            return number;
        }
        if let Some(number) = node.computed()
            && !self.bound.contains_key(&number)
        {
            return number;
        }
        let mut number = node.wish();
        while self.bound.contains_key(&number) {
            number = if number == u64::MAX >> 1 { 1 << 62 } else { number + 1 };
        }
        self.bind(number, node.clone());
        number
    }

    /// The number of a node, if the kernel knows it.
    pub fn known(&self, node: &Node) -> Option<u64> {
        let number = match self.by_node.get(node) {
            Some(&number) => number,
            None => node.computed().filter(|number| !self.bound.contains_key(number))?,
        };
        self.lookups.contains_key(&number).then_some(number)
    }

    /// Everything the kernel knows.
    pub fn all_known(&self) -> Vec<Node> {
        self.lookups.keys().filter_map(|&number| self.resolve(number)).collect()
    }

    /// The user's own files that the kernel knows in one of these directories of conversations.
    pub fn known_inside(&self, dirs: &HashMap<ConversationId, HashSet<PathBuf>>) -> Vec<(ConversationId, PathBuf)> {
        let mut inside = Vec::new();
        for (node, number) in &self.by_node {
            if let Node::Own(id, inner) = node
                && let Some(dirs) = dirs.get(id)
                && inner.ancestors().any(|above| dirs.contains(above))
                && self.lookups.contains_key(number)
            {
                inside.push((*id, inner.clone()));
            }
        }
        inside
    }

    /// What the kernel takes the name of a node for, if it knows that.
    pub fn known_kind(&self, node: &Node) -> Option<Kind> {
        let number = self.known(node).filter(|number| !self.without_name.contains(number))?;
        match node {
            Node::Children(_) | Node::Conversation(_) => Some(Kind::Dir),
            _ => Some(self.kinds.get(&number).copied().unwrap_or(Kind::File)),
        }
    }

    /// Whether the kernel takes a number that was unlinked for a directory.
    pub fn was_dir(&self, number: u64) -> bool {
        self.kinds.get(&number) == Some(&Kind::Dir)
    }

    /// The kernel has been told the number of a node once more, and what it is. The number is given back.
    pub fn tell(&mut self, node: &Node, kind: Kind) -> u64 {
        let number = self.number(node);
        *self.lookups.entry(number).or_default() += 1;
        self.without_name.remove(&number);
        match (node, kind) {
            // These are never anything else.
            (Node::Children(_) | Node::Conversation(_), _) => {}
            (_, Kind::File) => drop(self.kinds.remove(&number)),
            (_, kind) => drop(self.kinds.insert(number, kind)),
        }
        number
    }

    /// The kernel has been told that nothing has the name of a node.
    pub fn tell_absent(&mut self, node: &Node) {
        if let Some(number) = self.known(node) {
            self.without_name.insert(number);
        }
    }

    /// Whether the kernel knows a node and was told last that nothing has its name.
    pub fn was_told_absent(&self, node: &Node) -> bool {
        self.known(node).is_some_and(|number| self.without_name.contains(&number))
    }

    /// The kernel forgets; the node is given back when it is one without a name, whose time has come.
    pub fn forget(&mut self, number: u64, count: u64) -> Option<Node> {
        let left = self.lookups.get_mut(&number)?;
        *left = left.saturating_sub(count);
        if *left > 0 {
            return None;
        }
        self.lookups.remove(&number);
        self.kinds.remove(&number);
        self.without_name.remove(&number);
        let node = self.bound.get(&number)?.clone();
        // A file that has taken its number along keeps it for as long as the mount lives, though the kernel may have
        // dropped it for a moment. The rest is found again by its name.
        if matches!(node, Node::Own(..) | Node::Under(_) | Node::Managed(..)) && node.wish() != number {
            return None;
        }
        self.bound.remove(&number);
        if self.by_node.get(&node) == Some(&number) {
            self.by_node.remove(&node);
        }
        matches!(node, Node::Orphan(_)).then_some(node)
    }

    /// A file got another name; whatever had that name has none now. Its number is given back if the kernel still knows
    /// it.
    pub fn renamed(&mut self, from: &Node, to: &Node) -> Option<u64> {
        let number = self.known(from);
        let replaced = self.unlinked(to);
        match number {
            Some(number) => {
                self.unbind(from);
                self.bind(number, to.clone());
            }
            None => self.unbind(from),
        }
        replaced
    }

    /// Two files changed places.
    pub fn exchanged(&mut self, one: &Node, other: &Node) {
        let (first, second) = (self.known(one), self.known(other));
        self.unbind(one);
        self.unbind(other);
        if let Some(first) = first {
            self.bind(first, other.clone());
        }
        if let Some(second) = second {
            self.bind(second, one.clone());
        }
    }

    /// A directory got another name: everything beneath it goes along.
    pub fn moved(&mut self, follow: impl Fn(&Node) -> Option<Node>) {
        let moved: Vec<_> =
            self.by_node.iter().filter_map(|(node, &number)| Some((node.clone(), follow(node)?, number))).collect();
        for (from, to, number) in moved {
            self.by_node.remove(&from);
            self.bind(number, to);
        }
    }

    /// A file lost its name. Its number is given back if the kernel still knows it.
    pub fn unlinked(&mut self, node: &Node) -> Option<u64> {
        let (number, kind) = (self.known(node), self.known_kind(node));
        self.unbind(node);
        if let Some(number) = number {
            self.bound.insert(number, Node::Orphan(number));
            if kind == Some(Kind::Dir) {
                self.kinds.insert(number, Kind::Dir);
            }
        }
        number
    }

    fn bind(&mut self, number: u64, node: Node) {
        self.without_name.remove(&number);
        if node.computed() == Some(number) {
            self.bound.remove(&number);
        } else {
            self.bound.insert(number, node.clone());
            self.by_node.insert(node, number);
        }
    }

    fn unbind(&mut self, node: &Node) {
        if let Some(number) = self.by_node.remove(node) {
            self.bound.remove(&number);
        }
    }
}

/// A path that lay beneath one directory, beneath another.
pub fn rebase(path: &Path, from: &Path, to: &Path) -> Option<PathBuf> {
    let rest = path.strip_prefix(from).ok()?;
    Some(if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) })
}

#[cfg(test)]
mod tests {
    use jp_store::ConversationId;
    use jp_store::reconcile::ManagedFile;

    use super::*;

    fn managed() -> Node {
        Node::Managed(ConversationId::new(5).unwrap(), ManagedFile::Metadata)
    }

    fn own(name: &str) -> Node {
        Node::Own(ConversationId::new(5).unwrap(), name.into())
    }

    fn known(inodes: &mut Inodes, node: &Node) -> u64 {
        inodes.tell(node, Kind::File)
    }

    #[test]
    fn a_save_by_rename_takes_the_number_along() {
        let mut inodes = Inodes::default();
        let (old, new) = (known(&mut inodes, &managed()), known(&mut inodes, &own("x.tmp")));
        assert_eq!(inodes.renamed(&own("x.tmp"), &managed()), Some(old));
        assert_eq!(inodes.resolve(new), Some(managed()));
        assert_eq!(inodes.resolve(old), Some(Node::Orphan(old)));
        assert_eq!(inodes.number(&managed()), new);
        // The same temporary name again: another file, another number.
        assert_ne!(known(&mut inodes, &own("x.tmp")), new);
        // The file keeps its number though the kernel forgets it for a while.
        assert_eq!(inodes.forget(old, 1), Some(Node::Orphan(old)));
        assert_eq!(inodes.forget(new, 1), None);
        assert_eq!(inodes.number(&managed()), new);
        // Replaced again, by a file that nobody knows any more: the number follows from the id again.
        let third = known(&mut inodes, &own("y.tmp"));
        inodes.forget(third, 1);
        assert_eq!(inodes.renamed(&own("y.tmp"), &managed()), None);
        assert_eq!(inodes.number(&managed()), old);
    }

    #[test]
    fn a_backup_by_rename_leaves_its_name_to_a_new_file() {
        let mut inodes = Inodes::default();
        let first = known(&mut inodes, &managed());
        assert_eq!(inodes.renamed(&managed(), &own("metadata.json~")), None);
        assert_eq!(inodes.resolve(first), Some(own("metadata.json~")));
        let second = known(&mut inodes, &managed());
        assert_ne!(second, first);
        assert_eq!(inodes.resolve(second), Some(managed()));
        // And back again, as an editor that failed to write would do.
        assert_eq!(inodes.renamed(&own("metadata.json~"), &managed()), Some(second));
        assert_eq!(inodes.number(&managed()), first);
    }

    #[test]
    fn what_the_kernel_does_not_know_needs_no_orphan() {
        let mut inodes = Inodes::default();
        assert_eq!(inodes.unlinked(&own("x")), None);
        let number = known(&mut inodes, &own("x"));
        assert_eq!(known(&mut inodes, &own("x")), number);
        assert_eq!(inodes.forget(number, 1), None);
        assert_eq!(inodes.unlinked(&own("x")), Some(number));
        assert_eq!(inodes.resolve(number), Some(Node::Orphan(number)));
        assert_eq!(inodes.forget(number, 1), Some(Node::Orphan(number)));
        assert_eq!(inodes.resolve(number), None);
        assert_eq!(inodes.forget(number, 1), None);
    }

    #[test]
    fn exchange_and_directories() {
        let mut inodes = Inodes::default();
        let (a, b) = (known(&mut inodes, &managed()), known(&mut inodes, &own("d/x")));
        inodes.exchanged(&managed(), &own("d/x"));
        assert_eq!((inodes.number(&own("d/x")), inodes.number(&managed())), (a, b));
        let follow = |node: &Node| match node {
            Node::Own(id, path) => Some(Node::Own(*id, rebase(path, Path::new("d"), Path::new("e"))?)),
            _ => None,
        };
        inodes.moved(follow);
        assert_eq!(inodes.resolve(a), Some(own("e/x")));
        assert_eq!(inodes.number(&own("e/x")), a);
    }

    #[test]
    fn what_a_name_was_taken_for_is_known_until_it_is_forgotten() {
        let mut inodes = Inodes::default();
        assert_eq!(inodes.known_kind(&own("x")), None);
        for kind in [Kind::Dir, Kind::Link, Kind::File, Kind::Dir] {
            inodes.tell(&own("x"), kind);
            assert_eq!(inodes.known_kind(&own("x")), Some(kind));
        }
        // It takes that along, and what comes after it is something else.
        let number = inodes.number(&own("x"));
        inodes.renamed(&own("x"), &own("y"));
        known(&mut inodes, &own("x"));
        assert_eq!([inodes.known_kind(&own("x")), inodes.known_kind(&own("y"))], [Some(Kind::File), Some(Kind::Dir)]);
        inodes.forget(number, 4);
        assert_eq!(inodes.known_kind(&own("y")), None);
        let conversation = Node::Conversation(ConversationId::new(5).unwrap());
        inodes.tell(&conversation, Kind::Dir);
        assert_eq!(inodes.known_kind(&conversation), Some(Kind::Dir));
    }

    #[test]
    fn a_name_that_was_said_to_be_free_is_not_known() {
        let mut inodes = Inodes::default();
        inodes.tell_absent(&own("x"));
        let number = inodes.tell(&own("x"), Kind::Dir);
        assert_eq!(inodes.known_kind(&own("x")), Some(Kind::Dir));
        inodes.tell_absent(&own("x"));
        assert_eq!((inodes.known_kind(&own("x")), inodes.known(&own("x"))), (None, Some(number)));
        assert!(inodes.was_told_absent(&own("x")) && !inodes.was_told_absent(&own("y")));
        assert_eq!(inodes.tell(&own("x"), Kind::Dir), number);
        assert_eq!(inodes.known_kind(&own("x")), Some(Kind::Dir));
        inodes.tell_absent(&own("x"));
        inodes.forget(number, 2);
        inodes.tell(&own("x"), Kind::File);
        assert_eq!(inodes.known_kind(&own("x")), Some(Kind::File));
    }
}
