//! Tells readers whether a file of a conversation got or lost a name while they looked at it. A reader finds the path of a
//! number first and uses it afterwards; in between the file may have another path, and another file this one.

use std::sync::atomic::{AtomicU64, Ordering};

use jp_store::ConversationId;

/// Conversations that share a counter only make each other look twice.
const COUNTERS: usize = 64;

/// Counts the renames and removals of each conversation.
#[derive(Debug)]
pub(crate) struct Renames {
    counters: [Counter; COUNTERS],
}

#[derive(Debug, Default)]
struct Counter {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A rename that is under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Renaming<'a>(Vec<&'a Counter>);

impl Default for Renames {
    fn default() -> Self {
        Self { counters: std::array::from_fn(|_| Counter::default()) }
    }
}

impl Renames {
    fn counter(&self, id: ConversationId) -> &Counter {
        &self.counters[id.deciseconds() as usize % COUNTERS]
    }

    /// Begins to rename or remove files of these conversations. To be called before the first path changes, and dropped once
    /// the numbers have followed.
    pub(crate) fn begin(&self, ids: impl IntoIterator<Item = ConversationId>) -> Renaming<'_> {
        let counters: Vec<_> = ids.into_iter().map(|id| self.counter(id)).collect();
        for counter in &counters {
            counter.begun.fetch_add(1, Ordering::SeqCst);
        }
        Renaming(counters)
    }

    /// How many there have been; `None` while one is under way. Where this is the same before and after, every path stood for
    /// the same file all the time.
    pub(crate) fn count(&self, id: ConversationId) -> Option<u64> {
        let counter = self.counter(id);
        let ended = counter.ended.load(Ordering::SeqCst);
        (counter.begun.load(Ordering::SeqCst) == ended).then_some(ended)
    }
}

impl Drop for Renaming<'_> {
    fn drop(&mut self) {
        for counter in &self.0 {
            counter.ended.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_is_noticed_while_it_lasts_and_afterwards() {
        let renames = Renames::default();
        let id = |number| ConversationId::new(number).unwrap();
        let (before, other) = (renames.count(id(1)), renames.count(id(2)));
        assert!(before.is_some());
        // Both of one conversation, as when a file is renamed inside it.
        let renaming = renames.begin([id(1), id(1)]);
        assert_eq!((renames.count(id(1)), renames.count(id(2))), (None, other));
        let second = renames.begin([id(1)]);
        drop(renaming);
        assert_eq!(renames.count(id(1)), None);
        drop(second);
        let after = renames.count(id(1));
        assert!(after.is_some() && after != before);
    }
}
