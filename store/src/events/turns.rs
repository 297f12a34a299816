//! The turns of a conversation, and what is left of it when some are taken away. It repairs nothing.

use std::ops::Range;

use jiff::Timestamp;

use super::{COMPACTION, CONFIG_DELTA, Stream, TURN_START, is_message, kind, timestamp};

/// Which turns to keep. The default keeps all.
///
/// The times choose first; `first` and `last` then count among the turns that are left, and with both given the two ends
/// are kept and the middle goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Keep this many from the front.
    pub first: Option<usize>,
    /// Keep this many from the back.
    pub last: Option<usize>,
    /// Keep none, whatever else is said.
    pub none: bool,
    /// Keep turns that began at this instant or later.
    pub from: Option<Timestamp>,
    /// Keep turns that began before this instant.
    pub until: Option<Timestamp>,
}

/// Follows the elements in order and tells which turn each belongs to.
///
/// A `turn_start` opens a turn. So does a message before the first one: old and hand-written files begin that way.
/// Configuration and unknown elements before either belong to no turn.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnCounter {
    open: Option<usize>,
}

impl TurnCounter {
    /// The turn of the next element, given its type.
    pub(super) fn step(&mut self, kind: &str) -> Option<usize> {
        self.open = match self.open {
            Some(turn) if kind == TURN_START => Some(turn + 1),
            None if kind == TURN_START || is_message(kind) => Some(0),
            open => open,
        };
        self.open
    }
}

impl Stream {
    /// The turns as ranges of elements, without gaps between them. What stands before the first belongs to none.
    pub fn turns(&self) -> Vec<Range<usize>> {
        let mut turns: Vec<Range<usize>> = Vec::new();
        let mut counter = TurnCounter::default();
        for (index, event) in self.objects().enumerate() {
            match counter.step(kind(event)) {
                Some(turn) if turn == turns.len() => turns.push(index..index + 1),
                Some(turn) => turns[turn].end = index + 1,
                None => {}
            }
        }
        turns
    }

    /// The conversation with only some of its turns.
    ///
    /// Turns are kept or dropped whole. What stands before the first turn stays, and so does every `config_delta` before
    /// the end of the last kept turn, so that what is kept runs under the configuration it ran under. When a turn is
    /// dropped, all `compaction` elements go, because they count turns.
    pub fn select(&self, selection: &Selection) -> Self {
        let turns = self.turns();
        let kept = self.chosen(&turns, selection);
        if kept.len() == turns.len() {
            return self.clone();
        }
        let end = kept.last().map_or(0, |turn| turns[*turn].end);
        let mut counter = TurnCounter::default();
        let keep = |(index, event)| {
            let kind = kind(event);
            match counter.step(kind) {
                _ if kind == COMPACTION => false,
                None => true,
                Some(turn) => kept.binary_search(&turn).is_ok() || (kind == CONFIG_DELTA && index < end),
            }
        };
        let keep: Vec<bool> = self.objects().enumerate().map(keep).collect();
        let kept = self.elements.iter().zip(keep).filter(|(_, keep)| *keep);
        Self { elements: kept.map(|(element, _)| element.clone()).collect() }
    }

    /// The chosen turns, in order.
    fn chosen(&self, turns: &[Range<usize>], selection: &Selection) -> Vec<usize> {
        if selection.none {
            return Vec::new();
        }
        let in_time: Vec<usize> = (0..turns.len()).filter(|turn| self.is_within(&turns[*turn], selection)).collect();
        let (first, last) = match (selection.first, selection.last) {
            (None, None) => (in_time.len(), 0),
            (first, last) => (first.unwrap_or(0), last.unwrap_or(0)),
        };
        let tail = in_time.len().saturating_sub(last);
        let ends = in_time.iter().enumerate().filter(|(place, _)| *place < first || *place >= tail);
        ends.map(|(_, turn)| *turn).collect()
    }

    /// A turn that tells no time is within no bounds.
    fn is_within(&self, turn: &Range<usize>, selection: &Selection) -> bool {
        if selection.from.is_none() && selection.until.is_none() {
            return true;
        }
        let began = self.elements[turn.start].as_object().and_then(timestamp);
        began.is_some_and(|began| {
            selection.from.is_none_or(|from| began >= from) && selection.until.is_none_or(|until| began < until)
        })
    }
}
