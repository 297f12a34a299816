//! The same work on many items on all cores, the results in the order of the items.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Below this many items a second thread costs more than it brings.
const FEW: usize = 8;
/// So many small items at once.
const RUN: usize = 128;

/// Calls `work` on every item. Items are handed out one by one, since one conversation can be a thousand times another.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if items.len() < FEW || cores == 1 {
        return items.iter().map(work).collect();
    }
    let (next, work) = (&AtomicUsize::new(0), &work);
    let share = move || {
        let mut done = Vec::new();
        while let Some((index, item)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).map(|item| (index, item))
        } {
            done.push((index, work(item)));
        }
        done
    };
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(share)).collect();
        let parts = threads.into_iter().map(|thread| match thread.join() {
            Ok(part) => part,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        parts.flatten().collect()
    });
    done.sort_by_key(|&(index, _)| index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// As [`map`], for very many small items: they are handed out in runs.
pub fn map_in_runs<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let runs: Vec<_> = items.chunks(RUN).collect();
    map(&runs, |run| run.iter().map(&work).collect::<Vec<_>>()).into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn order_is_kept() {
        for n in [0, 1, 7, 8, 1000] {
            let items: Vec<usize> = (0..n).collect();
            let expected: Vec<_> = items.iter().map(|item| item * 2).collect();
            assert_eq!(super::map(&items, |item| item * 2), expected);
            assert_eq!(super::map_in_runs(&items, |item| item * 2), expected);
        }
    }
}
