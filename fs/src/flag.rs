//! Something that becomes true once, and that others wait for.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Something that becomes true once.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    is: Mutex<bool>,
    changed: Condvar,
}

impl Flag {
    /// From now on.
    pub(crate) fn set(&self) {
        *self.is.lock() = true;
        self.changed.notify_all();
    }

    /// Whether it is; waits for that at most so long.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut is = self.is.lock();
        while !*is {
            if self.changed.wait_until(&mut is, until).timed_out() {
                return *is;
            }
        }
        true
    }
}
