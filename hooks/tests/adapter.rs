//! An adapter over a raw lock that misbehaves. Alone in its process: the profile must stay empty.
#![cfg(all(target_os = "linux", not(loom)))]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "these are no hooks")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use rtprof_hooks::sync::RawMutex;
use rtprof_profiler::contention::{mutex_counts, set_mutex_profile_fraction};

static PANICS: AtomicBool = AtomicBool::new(false);

/// Panics where others would wait, as locks do that detect deadlocks.
struct Detecting(parking_lot::RawMutex);

// SAFETY: parking_lot's; a panic in place of `lock` takes no lock.
unsafe impl lock_api::RawMutex for Detecting {
    const INIT: Self = Self(<parking_lot::RawMutex as lock_api::RawMutex>::INIT);
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        if PANICS.load(Ordering::Relaxed) {
            resume_unwind(Box::new("deadlock"));
        }
        self.0.lock();
    }

    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.0.unlock() };
    }
}

/// Nobody waits after it, so no unlock is charged.
#[test]
fn a_lock_that_panics_leaves_no_waiter_behind() {
    set_mutex_profile_fraction(1);
    let lock = lock_api::Mutex::<RawMutex<Detecting>, u64>::new(0);
    let events = || mutex_counts().iter().map(|record| record.count).sum::<f64>();

    let guard = lock.lock();
    PANICS.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| *lock.lock())).is_err());
    PANICS.store(false, Ordering::Relaxed);
    drop(guard);
    drop(lock.lock());
    assert_eq!(events(), 0.0);
}
