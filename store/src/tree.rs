//! The parent links as one value. Nothing here reads a disk: links come in, a forest comes out.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::ConversationId;

/// A forest over a set of conversations.
///
/// Every conversation that went in is in the forest exactly once. A parent that is not in the set makes its child a root;
/// a cycle is cut once, at its smallest id, which becomes a root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    parents: BTreeMap<ConversationId, Option<ConversationId>>,
    children: BTreeMap<ConversationId, Vec<ConversationId>>,
    roots: Vec<ConversationId>,
    missing: BTreeMap<ConversationId, ConversationId>,
    cut: BTreeMap<ConversationId, ConversationId>,
}

impl Tree {
    /// Builds the forest from each conversation's own idea of its parent.
    pub fn new(links: impl IntoIterator<Item = (ConversationId, Option<ConversationId>)>) -> Self {
        let wanted: BTreeMap<_, _> = links.into_iter().collect();
        let mut tree = Self::default();
        for (&child, &parent) in &wanted {
            let known = parent.filter(|parent| wanted.contains_key(parent));
            if let (Some(parent), None) = (parent, known) {
                tree.missing.insert(child, parent);
            }
            tree.parents.insert(child, known);
        }
        tree.cut_cycles();
        for (&child, &parent) in &tree.parents {
            match parent {
                Some(parent) => tree.children.entry(parent).or_default().push(child),
                None => tree.roots.push(child),
            }
        }
        tree
    }

    /// Whether the conversation is in the forest.
    pub fn contains(&self, id: ConversationId) -> bool {
        self.parents.contains_key(&id)
    }

    /// The parent in the forest; `None` for a root and for an unknown id.
    pub fn parent(&self, id: ConversationId) -> Option<ConversationId> {
        self.parents.get(&id).copied().flatten()
    }

    /// The direct children, by id.
    pub fn children(&self, id: ConversationId) -> &[ConversationId] {
        self.children.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The conversations without a parent, by id.
    pub fn roots(&self) -> &[ConversationId] {
        &self.roots
    }

    /// The ancestors, nearest first, without the conversation itself.
    pub fn ancestors(&self, id: ConversationId) -> impl Iterator<Item = ConversationId> + '_ {
        std::iter::successors(self.parent(id), |&id| self.parent(id))
    }

    /// The topmost ancestor, or the conversation itself.
    pub fn root_of(&self, id: ConversationId) -> ConversationId {
        self.ancestors(id).last().unwrap_or(id)
    }

    /// All conversations beneath this one, parents before children.
    pub fn descendants(&self, id: ConversationId) -> Vec<ConversationId> {
        let mut found = Vec::new();
        let mut open: Vec<_> = self.children(id).iter().rev().copied().collect();
        while let Some(next) = open.pop() {
            found.push(next);
            open.extend(self.children(next).iter().rev());
        }
        found
    }

    /// The whole forest with depths, parents before children, in the order a listing shows it.
    pub fn walk(&self) -> Vec<(usize, ConversationId)> {
        let mut found = Vec::with_capacity(self.parents.len());
        let mut open: Vec<_> = self.roots.iter().rev().map(|&id| (0, id)).collect();
        while let Some((depth, id)) = open.pop() {
            found.push((depth, id));
            open.extend(self.children(id).iter().rev().map(|&child| (depth + 1, child)));
        }
        found
    }

    /// Takes out a conversation that nothing is beneath. `false`, and nothing is changed, when something is.
    pub(crate) fn remove_leaf(&mut self, id: ConversationId) -> bool {
        if !self.children(id).is_empty() {
            return false;
        }
        let among = match self.parents.remove(&id) {
            Some(Some(parent)) => self.children.entry(parent).or_default(),
            Some(None) => &mut self.roots,
            None => return true,
        };
        if let Ok(at) = among.binary_search(&id) {
            among.remove(at);
        }
        self.missing.remove(&id);
        self.cut.remove(&id);
        true
    }

    /// Whether hanging `child` beneath `parent` would close a cycle.
    pub fn would_cycle(&self, child: ConversationId, parent: ConversationId) -> bool {
        child == parent || self.ancestors(parent).any(|ancestor| ancestor == child)
    }

    /// Conversations whose parent is not in the set, with that parent.
    pub fn missing(&self) -> &BTreeMap<ConversationId, ConversationId> {
        &self.missing
    }

    /// Where cycles were cut: the conversation made a root, with the parent it names.
    pub fn cut(&self) -> &BTreeMap<ConversationId, ConversationId> {
        &self.cut
    }

    fn cut_cycles(&mut self) {
        let mut settled = BTreeSet::new();
        let ids: Vec<_> = self.parents.keys().copied().collect();
        for start in ids {
            let mut path = Vec::new();
            let mut on_path = BTreeSet::new();
            let mut at = Some(start);
            while let Some(id) = at {
                if settled.contains(&id) {
                    break;
                }
                if !on_path.insert(id) {
                    let from = path.iter().position(|&seen| seen == id).unwrap_or(0);
                    if let Some(&smallest) = path[from..].iter().min()
                        && let Some(parent) = self.parents.insert(smallest, None).flatten()
                    {
                        self.cut.insert(smallest, parent);
                    }
                    break;
                }
                path.push(id);
                at = self.parent(id);
            }
            settled.extend(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64) -> ConversationId {
        ConversationId::new(n).unwrap()
    }

    #[test]
    fn a_leaf_is_taken_out() {
        let links = [(1, None), (2, Some(1)), (3, Some(1)), (4, Some(3)), (5, Some(9)), (6, None)];
        let grown = |without: u64| {
            let kept = links.iter().filter(|(child, _)| *child != without);
            Tree::new(kept.map(|&(child, parent)| (id(child), parent.map(id))))
        };
        for (leaf, _) in links {
            let mut tree = grown(0);
            let has_children = !tree.children(id(leaf)).is_empty();
            assert_eq!(tree.remove_leaf(id(leaf)), !has_children);
            let expected = grown(if has_children { 0 } else { leaf });
            assert_eq!((tree.walk(), tree.missing()), (expected.walk(), expected.missing()), "without {leaf}");
        }
    }

    /// `links` are `child` or `child<parent`; the expected text is `walk` as `depth:id`, then cuts and missing parents.
    fn check(links: &str, expected: &str) {
        let tree = Tree::new(links.split_whitespace().map(|link| match link.split_once('<') {
            Some((child, parent)) => (id(child.parse().unwrap()), Some(id(parent.parse().unwrap()))),
            None => (id(link.parse().unwrap()), None),
        }));
        let mut out: Vec<_> = tree.walk().iter().map(|(depth, id)| format!("{depth}:{}", id.deciseconds())).collect();
        out.extend(tree.cut().keys().map(|id| format!("cut {}", id.deciseconds())));
        out.extend(tree.missing().keys().map(|id| format!("missing {}", id.deciseconds())));
        assert_eq!(out.join(" "), expected, "for {links}");
    }

    #[test]
    fn forests() {
        check("", "");
        check("1 2 3", "0:1 0:2 0:3");
        check("1 2<1 3<2 4<1 5", "0:1 1:2 2:3 1:4 0:5");
        check("3 1<3 2<1", "0:3 1:1 2:2");
        check("2<9", "0:2 missing 2");
        check("1<1", "0:1 cut 1");
        check("1<2 2<1", "0:1 1:2 cut 1");
        check("2<3 3<4 4<2 5<4", "0:2 1:4 2:3 2:5 cut 2");
        check("1<2 2<1 3<4 4<3 5<3", "0:1 1:2 0:3 1:4 1:5 cut 1 cut 3");
    }

    /// Every assignment of parents among five conversations: each appears once, nothing is above itself, and whatever is
    /// cut or missing is a root.
    #[test]
    fn every_forest_of_five_is_sound() {
        const N: u64 = 5;
        let choices = N + 2; // no parent, an unknown one, or one of the five
        for code in 0..choices.pow(N as u32) {
            let mut rest = code;
            let links: Vec<_> = (1..=N)
                .map(|child| {
                    let pick = rest % choices;
                    rest /= choices;
                    (id(child), (pick > 0).then(|| id(if pick > N { 99 } else { pick })))
                })
                .collect();
            let tree = Tree::new(links.clone());
            let mut seen: Vec<_> = tree.walk().iter().map(|&(_, id)| id).collect();
            seen.sort();
            assert_eq!(seen, (1..=N).map(id).collect::<Vec<_>>(), "{links:?}");
            for (child, wanted) in links {
                assert!(!tree.ancestors(child).any(|above| above == child));
                match wanted {
                    Some(parent) if tree.cut().contains_key(&child) || tree.missing().contains_key(&child) => {
                        assert_eq!(tree.parent(child), None);
                        assert!(tree.missing().contains_key(&child) == (parent == id(99)));
                    }
                    wanted => assert_eq!(tree.parent(child), wanted),
                }
                for &(_, other) in &tree.walk() {
                    let below = other == child || tree.descendants(child).contains(&other);
                    assert_eq!(tree.would_cycle(child, other), below);
                }
            }
        }
    }

    #[test]
    fn depth_is_not_limited() {
        let n = 200_000;
        let tree = Tree::new((1..=n).map(|i| (id(i), (i > 1).then(|| id(i - 1)))));
        assert_eq!(tree.ancestors(id(n)).count() as u64, n - 1);
        assert_eq!(tree.descendants(id(1)).len() as u64, n - 1);
        assert_eq!(tree.root_of(id(n)), id(1));
    }
}
