//! What somebody means who moves a copy in the workspace by hand. Nothing here reads a disk or a clock.

use crate::id::ConversationId;
use crate::layout::Partition;
use crate::ledger::At;

/// What the place of a copy says that the store does not know yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// It hangs beneath this one, or beneath none.
    pub parent: Option<Option<ConversationId>>,
    /// It is put away, or taken out again.
    pub partition: Option<Partition>,
    /// This is its title.
    pub title: Option<String>,
}

impl Moved {
    /// Compares where a copy was left with where it is. Whatever the store has changed meanwhile is not the copy's to say:
    /// `wanted` is where the store wants it now.
    pub(crate) fn of(id: ConversationId, left: &At, now: &At, wanted: &At) -> Option<Self> {
        let partition =
            (now.partition != left.partition && wanted.partition == left.partition).then_some(now.partition);
        let put_away = partition == Some(Partition::Archived);
        // What is put away keeps its parent, to come back to it.
        let heeds_parent = now.beneath != left.beneath && wanted.beneath == left.beneath;
        let parent = (heeds_parent && !(put_away && now.beneath.is_none())).then_some(now.beneath);
        let renamed = now.name != left.name && wanted.name == left.name;
        let title = if renamed { title_of(id, &now.name) } else { None };
        let moved = Self { parent, partition, title };
        (moved != Self::default()).then_some(moved)
    }
}

/// The title that a directory's name gives: what stands behind the id.
fn title_of(id: ConversationId, name: &str) -> Option<String> {
    let words = name.strip_prefix(&id.deciseconds().to_string())?.strip_prefix('-')?;
    (!words.is_empty()).then(|| words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_move_means() {
        let id = |n: u64| ConversationId::new(17_528_832_000 + n);
        let (me, p, q) = (id(1).unwrap(), id(2), id(3));
        let at = |beneath, words: &str, partition| At { beneath, name: format!("17528832001{words}"), partition };
        let (live, away) = (Partition::Live, Partition::Archived);
        let left = at(p, "-a", live);
        let check = |now: &At, wanted: &At, expected: Option<Moved>| {
            assert_eq!(Moved::of(me, &left, now, wanted), expected, "{now:?} {wanted:?}");
        };
        check(&left, &left, None);
        check(&at(q, "-a", live), &left, Some(Moved { parent: Some(q), ..Moved::default() }));
        check(&at(None, "-a", live), &left, Some(Moved { parent: Some(None), ..Moved::default() }));
        check(&at(p, "-new words", live), &left, Some(Moved { title: Some("new words".into()), ..Moved::default() }));
        check(&at(p, "", live), &left, None);
        check(&at(None, "-a", away), &left, Some(Moved { partition: Some(away), ..Moved::default() }));
        check(&at(q, "-a", away), &left, Some(Moved { partition: Some(away), parent: Some(q), ..Moved::default() }));
        // What the store changed meanwhile counts, and so does what came with new metadata.
        check(&at(q, "-b", live), &at(None, "-c", away), None);
        check(&at(q, "-b", live), &at(q, "-b", live), None);
        check(&left, &at(q, "-b", away), None);
    }
}
