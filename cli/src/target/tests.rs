//! Words and what they stand for.

use super::*;

fn id(n: u64) -> ConversationId {
    ConversationId::new(n).unwrap()
}

#[test]
fn words() {
    use Target::*;
    let search = |text: &str| Search(text.to_owned());
    let loose = |text: &str| Loose(id(17528832001), text.to_owned());
    let rows = [
        ("jp-c17528832001", Id(id(17528832001))),
        ("jp-c17528832001-otvo8", Id(id(17528832001))),
        ("17528832001", loose("17528832001")),
        ("17528832001-refactor-errors", loose("17528832001-refactor-errors")),
        (".jp/conversations/17528832001-a/", loose("17528832001-a")),
        ("/x/17528832001-a/events.json", loose("17528832001-a")),
        ("/x/17528832001-a/conversations", loose("17528832001-a")),
        ("/x/17528832001-a/conversations/5-b", Loose(id(5), "5-b".to_owned())),
        (".", Active),
        ("active", Active),
        ("s", Previous),
        ("session", Previous),
        ("prev", Previous),
        ("previous", Previous),
        ("r", Recent),
        ("recent", Recent),
        ("last", Recent),
        ("last-activated", Recent),
        ("n", Newest),
        ("newest", Newest),
        ("last-created", Newest),
        ("p", Pinned),
        ("pinned", Pinned),
        ("a", Archived),
        ("archived", Archived),
        ("parent", Parent),
        ("root", Root),
        ("+l", All(Group::Live)),
        ("+live", All(Group::Live)),
        ("+s", All(Group::Session)),
        ("+session", All(Group::Session)),
        ("+p", All(Group::Pinned)),
        ("+pinned", All(Group::Pinned)),
        ("+a", All(Group::Archived)),
        ("+archived", All(Group::Archived)),
        ("-", Stdin),
        ("?", Pick(Group::Live)),
        ("", Pick(Group::Live)),
        ("?p", Pick(Group::Pinned)),
        ("?session", Pick(Group::Session)),
        ("?a", Pick(Group::Archived)),
        ("help", Help),
        ("error handling", search("error handling")),
        ("3-way merge", Loose(id(3), "3-way merge".to_owned())),
        ("+5", search("+5")),
        ("+x", search("+x")),
        ("jp-cx", search("jp-cx")),
        ("jp-d5", search("jp-d5")),
        ("Last", search("Last")),
    ];
    for (word, expected) in rows {
        assert_eq!(Target::parse(OsStr::new(word)), expected, "{word:?}");
    }
}

#[test]
fn some_words_stand_alone() {
    let check = |line: &str, fine: bool| {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        assert_eq!(parse_all(&words).is_ok(), fine, "{line}");
    };
    check("-", true);
    check("jp-c1 jp-c2", true);
    check("last +pinned", true);
    check("- jp-c1", false);
    check("jp-c1 ?", false);
    check("help jp-c1", false);
}

#[test]
fn every_word_is_explained() {
    for word in ["active", "session", "previous", "recent", "last", "newest", "last-created", "pinned", "archived"] {
        assert!(HELP.contains(word), "{word}");
    }
    assert!(HELP.lines().all(|line| line.len() <= 100));
}
