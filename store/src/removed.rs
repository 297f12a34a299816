//! The conversations that a command removed for good, so that every worktree can tell them from those that the store lost.
//! The content of `vfs/removed` as a value: a line for each id that was removed, and one for each that came back. The last
//! line about an id holds.

use std::collections::BTreeSet;

use crate::id::ConversationId;
use crate::lines;

/// Follows the id of a conversation that was removed.
const REMOVED: &str = "removed";
/// Follows the id of a conversation that is in the store again.
const BACK: &str = "back";
/// Older versions write nothing behind the id. Shorter ones are what an append left that was cut short.
const DIGITS: usize = 11;

/// The ids in these bytes that were removed and did not come back. What is not such a line says nothing: an append may have
/// been cut short.
pub(crate) fn parse(bytes: &[u8]) -> BTreeSet<ConversationId> {
    let mut removed = BTreeSet::new();
    for line in lines::of(bytes).filter_map(|line| std::str::from_utf8(line).ok()) {
        let (digits, rest) = line.split_once(' ').unwrap_or((line, ""));
        let Some(id) = digits.parse().ok().and_then(ConversationId::new) else { continue };
        match rest {
            REMOVED => removed.insert(id),
            "" if digits.len() >= DIGITS => removed.insert(id),
            BACK => removed.remove(&id),
            _ => false,
        };
    }
    removed
}

/// The lines for conversations that are removed.
pub(crate) fn lines<'a>(ids: impl IntoIterator<Item = &'a ConversationId>) -> Vec<u8> {
    let lines = ids.into_iter().map(|id| format!("{} {REMOVED}\n", id.deciseconds()));
    [lines::BEGIN, lines.collect::<String>().as_bytes()].concat()
}

/// The line for a conversation that came back.
pub(crate) fn back(id: ConversationId) -> Vec<u8> {
    [lines::BEGIN, format!("{} {BACK}\n", id.deciseconds()).as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_about_an_id_holds() {
        let id = |n| ConversationId::new(17_528_832_000 + n).unwrap();
        let check = |parts: &[Vec<u8>], expected: &[u64]| {
            let expected: BTreeSet<_> = expected.iter().map(|&n| id(n)).collect();
            assert_eq!(parse(&parts.concat()), expected, "{parts:?}");
        };
        let removed = |ids: &[u64]| lines(&ids.iter().map(|&n| id(n)).collect::<Vec<_>>());
        check(&[], &[]);
        check(&[removed(&[1, 2])], &[1, 2]);
        check(&[removed(&[1, 2]), back(id(1))], &[2]);
        check(&[removed(&[1]), back(id(1)), removed(&[1])], &[1]);
        check(&[back(id(1))], &[]);
        // An older version, and an append that was cut short before another.
        check(&[b"17528832003\n".to_vec()], &[3]);
        check(&[removed(&[1]), b"\n175288".to_vec(), removed(&[2])], &[1, 2]);
        check(&[removed(&[1]), b"\n17528832001 ba".to_vec(), removed(&[2])], &[1, 2]);
        for torn in [back(id(1)), removed(&[3])] {
            for cut in 0..torn.len() {
                check(&[removed(&[1]), torn[..cut].to_vec()], &[1]);
                check(&[removed(&[1]), torn[..cut].to_vec(), removed(&[2])], &[1, 2]);
            }
        }
    }
}
