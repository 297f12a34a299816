//! What the lock asks about processes: who is whose parent, and who has the `flock` on a file. Nothing here signals a
//! process or looks at the store.

use std::fmt::Debug;

/// The process table, as far as locks care. A test hands in a fake one. Numbers are those of one pid namespace: that of the
/// process that asks.
pub trait Processes: Send + Sync + Debug {
    /// The parent of a process or thread, if there is such a one and its parent is known.
    fn parent(&self, pid: u32) -> Option<u32>;

    /// Whether the numbers are those of our own pid namespace. Elsewhere they mean other processes, and say nothing.
    fn is_comparable(&self) -> bool {
        true
    }

    /// The process that a thread belongs to; a process is its own first thread. `None` if there is no such thread.
    fn process_of(&self, thread: u32) -> Option<u32> {
        Some(thread)
    }

    /// The processes that took an exclusive `flock` on this inode. Empty means that the system does not tell, which is
    /// not the same as nobody: some filesystems report another device number here than in `stat`, and a process of
    /// another pid namespace is not listed.
    fn owners(&self, dev: u64, ino: u64) -> Vec<u32>;

    /// Whether this process has the inode open and an exclusive `flock` on it. Asked where [`Processes::owners`] does not
    /// tell.
    fn has_lock(&self, pid: u32, dev: u64, ino: u64) -> bool;
}

/// Whether a lock that `holder` has lets `caller` through, when `actor` is the process that does the work for it. The
/// two differ in a mount, whose daemon acts for the thread that writes a file.
///
/// The holder may be the caller's process or any ancestor of it, but never the actor: two threads of one process exclude
/// each other like strangers. 0 is a caller outside our pid namespace, and no process.
pub fn lets_through(processes: &dyn Processes, holder: u32, actor: u32, caller: u32) -> bool {
    if holder == actor || holder == 0 || caller == 0 {
        return false;
    }
    holder == caller || is_ancestor(processes, holder, caller) || processes.process_of(caller) == Some(holder)
}

fn is_ancestor(processes: &dyn Processes, ancestor: u32, of: u32) -> bool {
    // Processes come and go while the chain is walked, so it may close into a ring; no real one is this long.
    const LONGEST: usize = 4096;
    let mut pid = of;
    for _ in 0..LONGEST {
        match processes.parent(pid) {
            // 0 is the kernel, or a parent outside this pid namespace.
            None | Some(0) => return false,
            Some(parent) if parent == ancestor => return true,
            Some(parent) => pid = parent,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Table(&'static [(u32, u32)]);

    impl Processes for Table {
        fn parent(&self, pid: u32) -> Option<u32> {
            self.0.iter().find(|(child, _)| *child == pid).map(|(_, parent)| *parent)
        }

        fn process_of(&self, thread: u32) -> Option<u32> {
            // 31 is a thread of 30.
            Some(if thread == 31 { 30 } else { thread })
        }

        fn owners(&self, _: u64, _: u64) -> Vec<u32> {
            Vec::new()
        }

        fn has_lock(&self, _: u32, _: u64, _: u64) -> bool {
            false
        }
    }

    #[test]
    fn only_ancestors_let_through() {
        // 1 ─ 10 ─ 20 ─ 30, 1 ─ 11; 40 and 41 form a ring.
        let table = Table(&[(1, 0), (10, 1), (20, 10), (30, 20), (31, 20), (11, 1), (40, 41), (41, 40)]);
        let check = |holder, actor, caller, expected| {
            let got = lets_through(&table, holder, actor, caller);
            assert_eq!(got, expected, "holder {holder}, actor {actor}, caller {caller}");
        };
        check(20, 30, 30, true);
        check(10, 30, 30, true);
        check(1, 30, 30, true);
        check(30, 30, 30, false);
        check(11, 30, 30, false);
        check(30, 20, 20, false);
        check(0, 30, 30, false);
        check(99, 30, 30, false);
        check(10, 99, 99, false);
        check(1, 40, 40, false);
        // A daemon (11) acting for 30.
        check(30, 11, 30, true);
        check(20, 11, 30, true);
        check(11, 11, 30, false);
        // Acting for a thread of it, and for a caller outside our namespace.
        check(30, 11, 31, true);
        check(20, 11, 31, true);
        check(31, 11, 30, false);
        check(0, 11, 0, false);
        check(1, 11, 0, false);
        // Even a daemon that is the caller's ancestor does not let its own threads through.
        check(10, 10, 30, false);
    }
}
