//! Waiting for something to become true. The only place in the tests that sleeps.

use std::thread;
use std::time::{Duration, Instant};

/// Looks at `cond` until it holds, and panics naming `what` when it does not within `limit`.
#[track_caller]
pub fn wait_for(what: &str, limit: Duration, cond: impl FnMut() -> bool) {
    assert!(until(limit, cond), "waited {limit:?} in vain for {what}");
}

/// Looks at `cond` until it holds, and tells whether it did within `limit`.
pub fn until(limit: Duration, mut cond: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    while !cond() {
        if start.elapsed() >= limit {
            return false;
        }
        thread::sleep(pause);
        // Quick answers are seen quickly; slow ones do not keep a core busy.
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_once_the_condition_holds() {
        let mut looks = 0;
        wait_for("three looks", Duration::from_secs(10), || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    #[should_panic(expected = "in vain for the moon")]
    fn gives_up_by_name() {
        wait_for("the moon", Duration::ZERO, || false);
    }
}
