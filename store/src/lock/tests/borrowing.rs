//! Borrowing under a made-up process table, so that every relation can be had without starting anything.

use super::*;

/// A process whose number is in the file, and that does not have the lock.
const GONE: u32 = 11;

/// 10 is the parent of 20 and 21, 20 the parent of 30, [`GONE`] the parent of 22; 50 and 99 are strangers.
#[derive(Debug, Default)]
struct Table {
    owners: Vec<u32>,
}

impl Processes for Table {
    fn parent(&self, pid: u32) -> Option<u32> {
        match pid {
            20 | 21 => Some(10),
            30 => Some(20),
            22 => Some(GONE),
            10 | GONE | 50 | 99 => Some(1),
            _ => None,
        }
    }

    fn owners(&self, _: u64, _: u64) -> Vec<u32> {
        self.owners.clone()
    }

    fn has_lock(&self, pid: u32, _: u64, _: u64) -> bool {
        pid != GONE
    }
}

impl Ground {
    fn seen_by(&self, me: u32) -> LockDir {
        self.locks().with_processes(Arc::new(Table::default()), me)
    }

    fn take(&self, me: u32) -> Result<Guard> {
        self.seen_by(me).try_acquire(id(1), &pid(me))
    }
}

#[test]
fn children_pass_and_siblings_wait() {
    let ground = Ground::new();
    let root = ground.take(10).unwrap();
    assert_locked(ground.take(99), Some(10));
    assert_locked(ground.take(10), Some(10));

    let child = ground.take(20).unwrap();
    assert!(child.is_borrowed());
    assert_eq!(child.path(), ground.borrowed().join("jp-c1.1.lock"));
    assert_locked(ground.take(21), Some(20));
    assert_locked(ground.take(20), Some(20));
    assert_locked(ground.take(99), Some(10));

    let grandchild = ground.take(30).unwrap();
    assert_eq!(grandchild.path(), ground.borrowed().join("jp-c1.2.lock"));
    assert_locked(ground.take(30), Some(30));

    let listed: Vec<_> = ground.locks().list().unwrap().into_iter().map(|it| (it.level, it.holder, it.state)).collect();
    let held = |level, me| (level, Some(pid(me)), State::Held);
    assert_eq!(listed, [held(0, 10), held(1, 20), held(2, 30)]);

    drop((grandchild, child));
    drop(ground.take(21).unwrap());
    drop(root);
    assert_eq!(ground.names(), Vec::<String>::new());
    assert_eq!(fs::read_dir(ground.borrowed()).unwrap().count(), 0);
}

#[test]
fn a_lender_that_leaves_first_frees_nothing() {
    let ground = Ground::new();
    let root = ground.take(10).unwrap();
    let child = ground.take(20).unwrap();
    drop(root);
    assert!(ground.locks().is_held(id(1)));
    assert_locked(ground.take(99), Some(20));
    assert_locked(ground.take(21), Some(20));
    assert_locked(ground.take(10), Some(20));
    let grandchild = ground.take(30).unwrap();
    assert_eq!(grandchild.path(), ground.borrowed().join("jp-c1.2.lock"));
    drop(child);
    assert_locked(ground.take(99), Some(30));
    drop(grandchild);
    drop(ground.take(99).unwrap());
}

#[test]
fn a_lender_that_leaves_meanwhile_lends_nothing() {
    let ground = Ground::new();
    let root = Mutex::new(Some(ground.take(10).unwrap()));
    let stranger = Arc::new(Mutex::new(None));
    let (seen, plain) = (Arc::clone(&stranger), ground.seen_by(99));
    // The first file opened is the lender's, the second the borrower's own.
    let opened = AtomicU32::new(0);
    let hook = Hook::after_open(move || {
        if opened.fetch_add(1, Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(root) = root.lock().unwrap().take() {
            root.release().unwrap();
            *stranger.lock().unwrap() = Some(plain.try_acquire(id(1), &pid(99)).unwrap());
        }
    });
    let child = ground.locks_on(Arc::new(hook)).with_processes(Arc::new(Table::default()), 20);
    assert_locked(child.try_acquire(id(1), &pid(20)), Some(99));
    assert!(seen.lock().unwrap().as_ref().unwrap().is_current());
    assert_eq!(fs::read_dir(ground.borrowed()).unwrap().count(), 0);
}

#[test]
fn a_daemon_passes_for_its_caller() {
    let ground = Ground::new();
    let daemon = ground.seen_by(50);
    let root = ground.take(10).unwrap();
    assert_locked(daemon.try_acquire(id(1), &pid(50)), Some(10));
    assert_locked(daemon.on_behalf_of(99).try_acquire(id(1), &pid(50)), Some(10));
    for caller in [10, 20, 30] {
        let guard = daemon.on_behalf_of(caller).try_acquire(id(1), &pid(50)).unwrap();
        assert!(guard.is_borrowed());
        // Its other threads wait for each other, whomever they work for.
        assert_locked(daemon.on_behalf_of(caller).try_acquire(id(1), &pid(50)), Some(50));
    }
    drop(root);
}

#[test]
fn the_system_knows_better_than_the_file() {
    let ground = Ground::new();
    let _root = ground.take(10).unwrap();
    let seen = |owners| ground.locks().with_processes(Arc::new(Table { owners }), 20);
    assert_locked(seen(vec![99]).try_acquire(id(1), &pid(20)), Some(10));
    assert!(seen(vec![10]).is_held(id(1)));
    // The file has the number that the holder has in its own pid namespace.
    let inside = |owners| ground.locks().with_processes(Arc::new(Table { owners }), 30);
    assert!(inside(vec![20]).try_acquire(id(1), &pid(30)).unwrap().is_borrowed());
}

#[test]
fn a_number_that_another_process_has_here_lends_nothing() {
    let ground = Ground::new();
    let _root = ground.locks().try_acquire(id(1), &pid(GONE)).unwrap();
    // 22 is beneath a process of that number, which does not have the lock.
    assert_locked(ground.take(22), Some(GONE));
    assert_locked(ground.seen_by(50).on_behalf_of(GONE).try_acquire(id(1), &pid(50)), Some(GONE));
}

#[test]
fn a_borrowed_lock_left_behind_is_in_nobodys_way() {
    let ground = Ground::new();
    fs::create_dir(ground.borrowed()).unwrap();
    fs::write(ground.borrowed().join("jp-c1.1.lock"), pid(20).to_bytes()).unwrap();
    drop(ground.take(99).unwrap());
    let _root = ground.take(10).unwrap();
    assert!(ground.take(21).unwrap().is_borrowed());
}

/// Whoever holds at the same time must be related, whatever the order of coming and going.
#[test]
fn only_relatives_hold_together() {
    let ground = Ground::new();
    let holders = Mutex::new(Vec::<u32>::new());
    thread::scope(|scope| {
        for me in [10, 20, 21, 30, 99] {
            let (locks, holders) = (ground.seen_by(me), &holders);
            scope.spawn(move || {
                let lends = |a, b| lets_through(&Table::default(), a, b, b);
                for _ in 0..60 {
                    let wait = Wait { timeout: LONG, ..Wait::none() };
                    let guard = locks.acquire(id(1), &pid(me), &wait).unwrap();
                    {
                        let mut holders = holders.lock().unwrap();
                        for other in &*holders {
                            // A lender may be slower to say that it holds than its borrower.
                            let related = lends(*other, me) || lends(me, *other);
                            assert!(related, "{me} beside {other}");
                        }
                        holders.push(me);
                    }
                    thread::yield_now();
                    holders.lock().unwrap().retain(|other| *other != me);
                    guard.release().unwrap();
                }
            });
        }
    });
}
