//! A lock that two threads pass to each other: every operation waits, and every unlock is charged for the wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use rtprof::sync::{Mutex, MutexGuard};
use rtprof_benches::descent::at_depth;
use rtprof_benches::team::{Placement, Team};

use crate::{Done, warm_up};

#[derive(Default)]
struct Hands {
    lock: Mutex<()>,
    /// The threads that are about to take the lock, or sleep for it, or have left.
    is_coming: [AtomicBool; 2],
    /// Whether one of the threads has left.
    is_alone: AtomicBool,
    /// The time that the first thread measured.
    nanos: AtomicU64,
}

/// Runs two threads on one core, each of which takes the lock `count` times.
///
/// They share a core, because only there the running thread knows the state of the other one: that thread has announced
/// its attempt, and since it does not run, it sleeps for the lock.
pub(crate) fn measure(team: &Team, (way, depth): (usize, usize), count: usize) -> Done {
    let hands = Arc::new(Hands::default());
    let shared = Arc::clone(&hands);
    team.run(2, Placement::OneCore, move |me| at_depth(way, depth, &mut || shared.turns(me, count)));
    let operations = 2.0 * count as f64;
    Done {
        nanos: hands.nanos.load(Ordering::Relaxed) as f64 / operations,
        operations: operations + 2.0 * warm_up(count) as f64,
    }
}

impl Hands {
    fn turns(&self, me: usize, count: usize) {
        for _ in 0..warm_up(count) {
            self.turn(me);
        }
        // The two threads take turns, so one clock times both.
        let start = Instant::now();
        for _ in 0..count {
            self.turn(me);
        }
        if me == 0 {
            self.nanos.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        self.is_alone.store(true, Ordering::Release);
        self.is_coming[me].store(true, Ordering::Release);
    }

    fn turn(&self, me: usize) {
        let other = &self.is_coming[1 - me];
        self.is_coming[me].store(true, Ordering::Release);
        let guard = self.lock.lock();
        self.is_coming[me].store(false, Ordering::Release);
        while !other.load(Ordering::Acquire) {
            thread::yield_now();
        }
        MutexGuard::unlock_fair(guard);
        // The lock was free if another program took the core from the other thread just before that thread slept.
        // Locking it now would let this thread go on alone, without any waiting.
        while other.load(Ordering::Acquire)
            && !self.lock.is_locked()
            && !self.is_alone.load(Ordering::Acquire)
        {
            thread::yield_now();
        }
    }
}
