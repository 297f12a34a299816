//! Decides about two copies of a conversation that were never synced, in a worktree that the store does not know: whether
//! they may be joined, and which one wins. File times are not considered: after a checkout they say nothing. Values in,
//! values out; no disk, no clock.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::events::{self, CONFIG_DELTA};
use crate::json;
use crate::reconcile::Root;
use crate::time;

/// Why a copy in the worktree is not joined with the store's conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HoldReason {
    /// The conversation is local in every worktree that knows it.
    Private,
    /// The user made the conversation local in this worktree by a command.
    MadeLocal,
    /// The copy does not begin with the event that the store's copy begins with.
    Unrelated,
}

impl HoldReason {
    /// The reason in words, after the path of the copy.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Private => "a directory with the id of a conversation that is local in every worktree",
            Self::MadeLocal => "a directory with the id of a conversation that was made local in this worktree",
            Self::Unrelated => "a directory with the id of a conversation whose first event is another one",
        }
    }
}

/// Where the ledgers of the worktrees have a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exposure {
    /// No ledger has it.
    #[default]
    Unknown,
    /// At least one ledger has it, and it is local in all that have it.
    Local,
    /// It is projected in at least one worktree.
    Projected,
}

/// Decides whether a copy is held. `begins_alike` is the result of [`begins_alike`].
pub fn hold_reason(exposure: Exposure, begins_alike: bool) -> Option<HoldReason> {
    match (exposure, begins_alike) {
        (Exposure::Local, _) => Some(HoldReason::Private),
        (Exposure::Unknown | Exposure::Projected, false) => Some(HoldReason::Unrelated),
        (Exposure::Unknown | Exposure::Projected, true) => None,
    }
}

/// The stream of one copy: `events.json`, and whether `base_config.json` lies beside it.
#[derive(Clone, Copy, Debug)]
pub struct StreamFiles<'a> {
    /// The bytes of `events.json`; `None` if the copy has no such file.
    pub events: Option<&'a [u8]>,
    /// Whether the copy has a `base_config.json`. If it has none, a first `config_delta` is the base configuration and not
    /// an event.
    pub has_base_config: bool,
}

/// How a stream begins.
#[derive(Clone, Debug)]
enum First<'a> {
    Empty,
    Event(&'a str),
    Broken,
}

impl<'a> StreamFiles<'a> {
    /// Reads no further than the first event, so that a file that is broken later on, or is huge, still has one.
    fn first(self) -> First<'a> {
        let Some(bytes) = self.events else { return First::Empty };
        let mut elements = events::elements(bytes);
        for at in 0..2 {
            match elements.next() {
                None => return First::Empty,
                Some(Err(_)) => return First::Broken,
                Some(Ok(element)) => {
                    let is_config = at == 0 && !self.has_base_config && element.kind.as_deref() == Some(CONFIG_DELTA);
                    if !is_config {
                        return First::Event(element.raw);
                    }
                }
            }
        }
        First::Empty
    }

    /// All events, and the time of the last one; `None` if the file is not sound.
    fn whole(self) -> Option<(Vec<&'a str>, Option<Timestamp>)> {
        let (mut raw, mut last) = (Vec::new(), None);
        for (at, element) in events::elements(self.events.unwrap_or(b"[]")).enumerate() {
            let element = element.ok()?;
            if at == 0 && !self.has_base_config && element.kind.as_deref() == Some(CONFIG_DELTA) {
                continue;
            }
            last = element.timestamp.as_deref().and_then(time::parse);
            raw.push(element.raw);
        }
        Some((raw, last))
    }
}

/// Whether the copy in the worktree begins as the store's copy does. If the store's copy has no events, every copy does. A
/// stream whose first event cannot be read begins like no other.
pub fn begins_alike(store: StreamFiles<'_>, work: StreamFiles<'_>) -> bool {
    match (store.first(), work.first()) {
        (First::Empty, _) => true,
        (First::Event(store), First::Event(work)) => is_same(store, work),
        (First::Event(_) | First::Broken, _) => false,
    }
}

/// Which of two streams wins. If one begins with the other, the longer one; else the one whose last event is later and not
/// in the future; else the store's.
pub fn stream_winner(store: StreamFiles<'_>, work: StreamFiles<'_>, now: Timestamp) -> Root {
    let (Some((store, store_last)), Some((work, work_last))) = (store.whole(), work.whole()) else {
        return Root::Store;
    };
    if store.iter().zip(&work).all(|(store, work)| is_same(store, work)) {
        return if work.len() > store.len() { Root::Work } else { Root::Store };
    }
    later(store_last, work_last, now)
}

/// Which side has the later time that is not in the future; the store's if neither has.
pub fn later(store: Option<Timestamp>, work: Option<Timestamp>, now: Timestamp) -> Root {
    let past = |time: Option<Timestamp>| time.filter(|time| *time <= now);
    if past(work) > past(store) { Root::Work } else { Root::Store }
}

/// Whether two events are the same: in their bytes, or in what they say.
fn is_same(a: &str, b: &str) -> bool {
    let value = |text: &str| json::value(text.as_bytes()).ok();
    a == b || value(a).is_some_and(|a| value(b) == Some(a))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str, second: u32) -> String {
        format!(r#"{{"timestamp": "2025-07-19T00:00:{second:02}Z", "type": "chat_request", "content": "{text}"}}"#)
    }

    fn stream(events: &[String]) -> Vec<u8> {
        format!("[{}]", events.join(",\n")).into_bytes()
    }

    fn files(bytes: &[u8]) -> StreamFiles<'_> {
        StreamFiles { events: Some(bytes), has_base_config: true }
    }

    fn now() -> Timestamp {
        "2025-07-19T00:00:30Z".parse().unwrap()
    }

    #[test]
    fn local_everywhere_or_unrelated_is_held() {
        for (exposure, alike, expected) in [
            (Exposure::Unknown, true, None),
            (Exposure::Unknown, false, Some(HoldReason::Unrelated)),
            (Exposure::Projected, true, None),
            (Exposure::Projected, false, Some(HoldReason::Unrelated)),
            (Exposure::Local, true, Some(HoldReason::Private)),
            (Exposure::Local, false, Some(HoldReason::Private)),
        ] {
            assert_eq!(hold_reason(exposure, alike), expected, "{exposure:?} {alike}");
        }
    }

    #[test]
    fn first_events() {
        let (a, b) = (event("a", 1), event("b", 2));
        let one = stream(std::slice::from_ref(&a));
        let check = |store: &[u8], work: &[u8], expected: bool| {
            let (told, other) = (String::from_utf8_lossy(store), String::from_utf8_lossy(work));
            assert_eq!(begins_alike(files(store), files(work)), expected, "{told} and {other}");
        };
        check(&one, &stream(&[a.clone(), b.clone()]), true);
        check(&one, &stream(std::slice::from_ref(&b)), false);
        check(b"[]", b"[]", true);
        check(b"[]", &one, true);
        check(&one, b"[]", false);
        // Another spelling of the same event.
        check(&one, format!("[ {} ]", a.replace(": ", ":")).as_bytes(), true);
        // What follows the first event does not matter, however broken.
        check(&one, format!("[{a},\n<<<<<<< HEAD\n").as_bytes(), true);
        check(&one, b"<<<<<<< HEAD\n[", false);
        check(b"{", &one, false);
        check(&one, b"", false);
        check(&one, b"[1]", false);
        let nothing = StreamFiles { events: None, has_base_config: false };
        assert!(begins_alike(nothing, files(&one)) && !begins_alike(files(&one), nothing));
        // In the older layout the base configuration is the first element.
        let config = r#"{"timestamp": "2025-07-19T00:00:00Z", "type": "config_delta", "delta": {}}"#.to_owned();
        let older = stream(&[config, a]);
        let older = StreamFiles { events: Some(&older), has_base_config: false };
        assert!(begins_alike(files(&one), older) && begins_alike(older, files(&one)));
        assert_eq!(stream_winner(files(&one), older, now()), Root::Store);
    }

    #[test]
    fn winners() {
        let [a, b, c] = [event("a", 1), event("b", 2), event("c", 3)];
        let future = event("f", 59);
        let timeless = r#"{"type": "chat_request"}"#.to_owned();
        let check = |store: &[&String], work: &[&String], expected: Root| {
            let [store, work] = [store, work].map(|side| stream(&side.iter().copied().cloned().collect::<Vec<_>>()));
            let got = stream_winner(files(&store), files(&work), now());
            let told = [&store, &work].map(|side| String::from_utf8_lossy(side).into_owned());
            assert_eq!(got, expected, "{told:#?}");
        };
        check(&[&a], &[&a, &b], Root::Work);
        check(&[&a, &b], &[&a], Root::Store);
        check(&[&a, &b], &[&a, &b], Root::Store);
        check(&[], &[&a], Root::Work);
        check(&[&a], &[], Root::Store);
        check(&[&a, &b], &[&a, &c], Root::Work);
        check(&[&a, &c], &[&a, &b], Root::Store);
        // Longer does not mean later.
        check(&[&a, &c], &[&a, &b, &b], Root::Store);
        // A time in the future counts as none, as does a missing one.
        check(&[&a, &b], &[&a, &future], Root::Store);
        check(&[&a, &future], &[&a, &b], Root::Work);
        check(&[&a, &future], &[&a, &c, &future], Root::Store);
        check(&[&a, &b], &[&a, &timeless], Root::Store);
        check(&[&a, &timeless], &[&a, &b], Root::Work);
        check(&[&a, &timeless], &[&b, &timeless], Root::Store);
        // A longer stream wins even if its last event is in the future.
        check(&[&a], &[&a, &future], Root::Work);
        let broken = files(b"[");
        assert_eq!(stream_winner(broken, files(b"[]"), now()), Root::Store);
        assert_eq!(stream_winner(files(b"[]"), broken, now()), Root::Store);
    }

    #[test]
    fn times() {
        let at = |second: u32| Some(format!("2025-07-19T00:00:{second:02}Z").parse().unwrap());
        for (store, work, expected) in [
            (at(1), at(2), Root::Work),
            (at(2), at(1), Root::Store),
            (at(1), at(1), Root::Store),
            (None, at(1), Root::Work),
            (at(1), None, Root::Store),
            (None, None, Root::Store),
            (at(1), at(59), Root::Store),
            (at(59), at(1), Root::Work),
            (at(58), at(59), Root::Store),
            (at(1), at(30), Root::Work),
        ] {
            assert_eq!(later(store, work, now()), expected, "{store:?} {work:?}");
        }
    }
}
