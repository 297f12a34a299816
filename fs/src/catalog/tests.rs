//! The catalog against the store's own tree: the same conversations, changed one at a time.

use jp_store::tree::Tree;
use proptest::prelude::*;

use super::*;

fn id(n: u64) -> ConversationId {
    ConversationId::new(n).unwrap()
}

fn item(n: u64, parent: Option<u64>, partition: Partition, shown: bool) -> Item {
    Item {
        partition,
        name: format!("{n}-title").into(),
        parent: parent.map(id),
        shown,
        title: Some("title".to_owned()),
        dir: PathBuf::from(format!("/u/{n}-title")),
        pending: false,
        hidden: Arc::default(),
    }
}

fn live(n: u64, parent: Option<u64>) -> Item {
    item(n, parent, Partition::Live, true)
}

/// Every name the catalog shows, by walking it from the top as a client does.
fn walk(catalog: &Catalog) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![(Dir::Root, String::new()), (Dir::Archive, "archive/".to_owned())];
    while let Some((dir, path)) = open.pop() {
        for child in catalog.children(dir) {
            let (place, name) = catalog.place(child).unwrap();
            assert_eq!(place, dir);
            assert_eq!(catalog.meaning(dir, name), Meaning::Child(child));
            let path = format!("{path}{}", name.to_string_lossy());
            open.push((Dir::Of(child), format!("{path}/")));
            found.push(path);
        }
    }
    found.sort();
    found
}

/// What the store's own tree would show.
fn expected(items: &HashMap<ConversationId, Item>) -> Vec<String> {
    let mut found = Vec::new();
    for (partition, top) in [(Partition::Live, ""), (Partition::Archived, "archive/")] {
        let here = items.iter().filter(|(_, item)| item.partition == partition);
        let tree = Tree::new(here.map(|(&id, item)| (id, item.parent)));
        for (_, id) in tree.walk() {
            let line: Vec<_> = std::iter::once(id).chain(tree.ancestors(id)).collect();
            if line.iter().all(|id| items[id].shown) {
                let names: Vec<_> = line.iter().rev().map(|id| items[id].name.to_string_lossy()).collect();
                found.push(format!("{top}{}", names.join("/")));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn names() {
    for (name, expected) in [
        ("17528832001", Some((17_528_832_001, true))),
        ("17528832001-x", Some((17_528_832_001, false))),
        ("17528832001-", Some((17_528_832_001, false))),
        ("jp-c17528832001", Some((17_528_832_001, true))),
        ("jp-c17528832001-otvo8", None),
        ("+5", None),
        ("007", None),
        ("notes", None),
        ("", None),
        ("-5", None),
    ] {
        assert_eq!(parse(name).map(|(id, bare)| (id.deciseconds(), bare)), expected, "{name}");
    }
}

#[test]
fn meanings() {
    let mut catalog = Catalog::new(false);
    catalog.apply(id(5), Some(live(5, None)));
    catalog.apply(id(6), Some(live(6, Some(5))));
    catalog.apply(id(7), Some(item(7, None, Partition::Live, false)));
    let check = |catalog: &Catalog, dir, name: &str, expected| {
        assert_eq!(catalog.meaning(dir, OsStr::new(name)), expected, "{name}");
    };
    check(&catalog, Dir::Root, "5-title", Meaning::Child(id(5)));
    check(&catalog, Dir::Root, "5", Meaning::Alias(id(5)));
    check(&catalog, Dir::Root, "jp-c5", Meaning::Alias(id(5)));
    check(&catalog, Dir::Root, "5-other", Meaning::Free(id(5)));
    check(&catalog, Dir::Root, "6-title", Meaning::Free(id(6)));
    check(&catalog, Dir::Of(id(5)), "6-title", Meaning::Child(id(6)));
    check(&catalog, Dir::Root, "7-title", Meaning::Free(id(7)));
    check(&catalog, Dir::Root, ".archive", Meaning::Archive);
    check(&catalog, Dir::Of(id(5)), ".archive", Meaning::Other);
    check(&catalog, Dir::Root, "notes", Meaning::Other);
    let renamed = Item { name: "5-new".into(), title: Some("new".to_owned()), ..live(5, None) };
    let stale = catalog.apply(id(5), Some(renamed));
    assert!(stale.contains(&Stale::Name(Node::Children(Dir::Root), "5-title".into())));
    assert!(stale.contains(&Stale::Name(Node::Children(Dir::Root), "5-new".into())));
    check(&catalog, Dir::Root, "5-title", Meaning::Alias(id(5)));
    assert_eq!(catalog.former_title(id(5), OsStr::new("5-title")), Some(Some("title")));
    // The title is seen to change before the name.
    let between = Item { title: Some("newest".to_owned()), ..catalog.get(id(5)).unwrap().clone() };
    catalog.apply(id(5), Some(between.clone()));
    catalog.apply(id(5), Some(Item { name: "5-newest".into(), ..between }));
    assert_eq!(catalog.former_title(id(5), OsStr::new("5-new")), Some(Some("new")));
}

#[test]
fn a_given_place_counts_until_it_is_taken_back() {
    let mut catalog = Catalog::new(false);
    catalog.apply(id(5), Some(live(5, None)));
    catalog.apply(id(6), Some(item(6, Some(9), Partition::Live, false)));
    let stale = catalog.give(id(6), Some((Dir::Of(id(5)), "6-old".into())));
    assert!(stale.contains(&Stale::Content(Node::Conversation(id(5)))));
    assert_eq!(walk(&catalog), ["5-title", "5-title/6-old"]);
    assert_eq!(catalog.path(id(6)), Some(PathBuf::from("5-title/conversations/6-old")));
    catalog.give(id(6), None);
    assert_eq!(walk(&catalog), ["5-title"]);
}

/// Whoever goes from one to the next comes by everything, in the order of the listings.
fn check_next(catalog: &Catalog) {
    for top in [Dir::Root, Dir::Archive] {
        let mut all = Vec::new();
        let mut open: Vec<_> = catalog.children(top).into_iter().rev().collect();
        while let Some(id) = open.pop() {
            all.push(id);
            open.extend(catalog.children(Dir::Of(id)).into_iter().rev());
        }
        let gone: Vec<_> = std::iter::successors(all.first().copied(), |&id| catalog.next(id)).take(100).collect();
        assert_eq!(gone, all);
    }
}

/// The parent, whether it is archived, whether it is shown.
type Placed = (Option<u64>, bool, bool);

/// Applies changes one by one; after each the catalog shows what a tree grown anew shows, and every name that came or went
/// is among the stale ones.
fn check_changes(changes: &[(u64, Option<Placed>)]) {
    let mut catalog = Catalog::new(false);
    let mut items: HashMap<ConversationId, Item> = HashMap::new();
    for (n, change) in changes {
        let before = walk(&catalog);
        let new = change.map(|(parent, archived, shown)| {
            item(*n, parent, if archived { Partition::Archived } else { Partition::Live }, shown)
        });
        match &new {
            Some(item) => items.insert(id(*n), item.clone()),
            None => items.remove(&id(*n)),
        };
        let stale = catalog.apply(id(*n), new);
        let after = walk(&catalog);
        check_next(&catalog);
        assert_eq!(after, expected(&items), "after {n} of {changes:?}");
        let tops = |paths: &[String], others: &[String]| -> Vec<String> {
            let gone = |path: &String| !others.contains(path);
            let top = |path: &&String| path.rsplit_once('/').is_none_or(|(above, _)| !gone(&above.to_owned()));
            paths.iter().filter(|path| gone(path)).filter(top).cloned().collect()
        };
        for path in tops(&before, &after).into_iter().chain(tops(&after, &before)) {
            let name = path.rsplit('/').next().unwrap();
            let told = stale.iter().any(|stale| matches!(stale, Stale::Name(_, told) if told == name));
            assert!(told, "{path} changed and was not told of: {stale:?} in {changes:?}");
        }
    }
}

#[test]
fn circles_and_late_parents() {
    let shown = |parent| Some((parent, false, true));
    check_changes(&[(1, shown(Some(2))), (2, shown(Some(1))), (2, None), (2, shown(None)), (1, None)]);
    check_changes(&[(3, shown(Some(1))), (2, shown(Some(3))), (1, shown(Some(2))), (1, shown(None))]);
    check_changes(&[(1, shown(Some(1))), (2, shown(Some(1))), (1, Some((None, true, true))), (2, None)]);
    check_changes(&[(1, shown(None)), (2, shown(Some(1))), (3, shown(Some(2))), (1, Some((None, false, false)))]);
}

proptest! {
    #[test]
    fn grows_as_the_tree_does(changes in prop::collection::vec(
        (1u64..7, prop::option::weighted(0.85, (prop::option::of(1u64..8), prop::bool::weighted(0.2), prop::bool::weighted(0.8)))),
        1..30,
    )) {
        check_changes(&changes);
    }
}
