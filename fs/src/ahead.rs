//! Reading ahead: whoever has read one conversation from a cold disk reads the next ones soon, and they can be fetched side
//! by side meanwhile. What to fetch is decided by [`Route`], which is a value; threads of the mount do the fetching.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::Duration;

use jp_store::ConversationId;
use lru::LruCache;
use parking_lot::{Condvar, Mutex};

/// A small file that is in the system's memory already is read in less than this.
const AT_HAND: Duration = Duration::from_micros(60);
/// How many conversations are fetched after the first one that was read.
const FIRST: usize = 2;
/// How many are fetched ahead at most, once a reader goes on and on.
const MOST: usize = 32;
/// How many are remembered as fetched.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// What is to be fetched, and for whom it waits.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    route: Mutex<Route>,
    more: Condvar,
}

/// Which conversations readers are about to come to.
#[derive(Debug)]
struct Route {
    /// What was fetched or is about to be, with how far ahead of its reader that was.
    fetched: LruCache<ConversationId, usize>,
    wanted: VecDeque<ConversationId>,
    last: Option<ConversationId>,
    ended: bool,
}

impl Default for Route {
    fn default() -> Self {
        Self { fetched: LruCache::new(REMEMBERED), wanted: VecDeque::new(), last: None, ended: false }
    }
}

impl Route {
    /// Somebody has read a file of a conversation, which took so long. Whether more is wanted than before.
    fn read(
        &mut self,
        id: ConversationId,
        took: Duration,
        next: impl Fn(ConversationId) -> Option<ConversationId>,
    ) -> bool {
        // Every conversation has several files.
        if self.last == Some(id) {
            return false;
        }
        let far = match self.fetched.get(&id) {
            Some(far) => (far * 2).min(MOST),
            None if took > AT_HAND => FIRST,
            None => return false,
        };
        self.last = Some(id);
        let before = self.wanted.len();
        let following = std::iter::successors(next(id), |&id| next(id)).take(far);
        for id in following {
            match self.fetched.get_mut(&id) {
                Some(known) => *known = (*known).max(far),
                None => {
                    self.fetched.put(id, far);
                    self.wanted.push_back(id);
                }
            }
        }
        // Readers that have gone elsewhere do not wait for what was left behind.
        while self.wanted.len() > 4 * MOST {
            self.wanted.pop_front();
        }
        self.wanted.len() > before
    }
}

impl Ahead {
    /// Somebody has read a file of a conversation, which took so long.
    pub(crate) fn read(
        &self,
        id: ConversationId,
        took: Duration,
        next: impl Fn(ConversationId) -> Option<ConversationId>,
    ) {
        if self.route.lock().read(id, took, next) {
            self.more.notify_all();
        }
    }

    /// What to fetch next; waits until there is something. `None` at the end.
    pub(crate) fn take(&self) -> Option<ConversationId> {
        let mut route = self.route.lock();
        while !route.ended && route.wanted.is_empty() {
            self.more.wait(&mut route);
        }
        if route.ended { None } else { route.wanted.pop_front() }
    }

    /// Nothing is fetched any more.
    pub(crate) fn end(&self) {
        self.route.lock().ended = true;
        self.more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLD: Duration = Duration::from_millis(1);
    const WARM: Duration = Duration::from_micros(5);

    fn id(n: u64) -> ConversationId {
        ConversationId::new(n).unwrap()
    }

    fn next(at: ConversationId) -> Option<ConversationId> {
        (at < id(200)).then(|| id(at.deciseconds() + 1))
    }

    fn wanted(route: &mut Route) -> Vec<u64> {
        route.wanted.drain(..).map(ConversationId::deciseconds).collect()
    }

    #[test]
    fn a_reader_who_goes_on_is_served_further_and_further() {
        let mut route = Route::default();
        assert!(route.read(id(1), COLD, next));
        assert_eq!(wanted(&mut route), [2, 3]);
        // Another file of the same one.
        assert!(!route.read(id(1), COLD, next));
        assert!(route.read(id(2), WARM, next));
        assert_eq!(wanted(&mut route), [4, 5, 6]);
        assert!(route.read(id(3), WARM, next));
        assert_eq!(wanted(&mut route), [7, 8, 9, 10, 11]);
        let mut reached = 11;
        for n in 4..150 {
            route.read(id(n), WARM, next);
            reached += wanted(&mut route).len() as u64;
            assert!(reached <= n + MOST as u64, "{n}: {reached}");
        }
        assert_eq!(reached, 149 + MOST as u64);
    }

    #[test]
    fn what_is_at_hand_is_not_fetched() {
        let mut route = Route::default();
        for n in 1..10 {
            assert!(!route.read(id(n), WARM, next));
        }
        // Here and there, and never the next one: little is fetched in vain.
        for n in [20, 40, 60] {
            route.read(id(n), COLD, next);
        }
        assert_eq!(wanted(&mut route), [21, 22, 41, 42, 61, 62]);
        // At the end there is nothing more.
        assert!(!route.read(id(200), COLD, next));
    }

    #[test]
    fn what_nobody_fetches_does_not_pile_up() {
        let mut route = Route::default();
        for n in 0..3_000 {
            route.read(id(n * 10), COLD, |at| Some(id(at.deciseconds() + 1)));
        }
        assert!(route.wanted.len() <= 4 * MOST);
        assert_eq!(route.wanted.back(), Some(&id(29_992)));
    }

    #[test]
    fn those_who_wait_are_let_go_at_the_end() {
        let ahead = Ahead::default();
        ahead.read(id(1), COLD, next);
        assert_eq!(ahead.take(), Some(id(2)));
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| std::iter::from_fn(|| ahead.take()).count());
            ahead.end();
            assert!(taker.join().unwrap() <= 1);
        });
    }
}
