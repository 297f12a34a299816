//! The same work on many items side by side, the results in the order of the items.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Below this many items a second thread costs more than it brings.
const FEW: usize = 8;
/// How many work at once, however few cores there are: on a cold disk nearly all of it is waiting, and a disk serves
/// several as fast as one.
const SIDE_BY_SIDE: usize = 8;
/// How many runs there are for each thread where there are that many items: one conversation can be a thousand times
/// another, and nobody is to wait for the thread that got it.
const RUNS: usize = 64;
/// No run is longer.
const RUN: usize = 128;

/// Calls `work` on every item.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if items.len() < FEW {
        return items.iter().map(work).collect();
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).max(SIDE_BY_SIDE).min(items.len() / 2);
    let run = (items.len() / (threads * RUNS)).clamp(1, RUN);
    let (next, work) = (&AtomicUsize::new(0), &work);
    let share = move || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(run, Ordering::Relaxed);
            let Some(rest) = items.get(at..).filter(|rest| !rest.is_empty()) else { return done };
            done.push((at, rest.iter().take(run).map(work).collect::<Vec<_>>()));
        }
    };
    let mut done: Vec<(usize, Vec<R>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(share)).collect();
        let parts = threads.into_iter().map(|thread| match thread.join() {
            Ok(part) => part,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        parts.flatten().collect()
    });
    done.sort_by_key(|&(at, _)| at);
    // Each run is given back as it is taken over: there may be a hundred thousand results, and they are large.
    let mut results = Vec::with_capacity(items.len());
    done.into_iter().for_each(|(_, part)| results.extend(part));
    results
}

#[cfg(test)]
mod tests {
    #[test]
    fn order_is_kept() {
        for n in [0, 1, 7, 8, 9, 1_000, 1_025, 100_003] {
            let items: Vec<usize> = (0..n).collect();
            let expected: Vec<_> = items.iter().map(|item| item * 2).collect();
            assert_eq!(super::map(&items, |item| item * 2), expected);
        }
    }

    #[test]
    #[should_panic(expected = "the ninth")]
    fn a_panic_is_passed_on() {
        let items: Vec<usize> = (0..20).collect();
        super::map(&items, |&item| assert!(item != 8, "the ninth"));
    }
}
