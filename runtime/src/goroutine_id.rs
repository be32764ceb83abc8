//! The ids of goroutines, one sequence for threads and tasks.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::counters::{CountedProfile, Counter};

/// The id of the main thread's goroutine.
pub(crate) const MAIN: u64 = 1;

static NEXT: AtomicU64 = AtomicU64::new(MAIN + 1);

/// Threads and tasks that got no slot in the registry, and so no id.
pub(crate) static NOT_FOLLOWED: Counter = Counter::new(
    &[CountedProfile::ThreadCreate, CountedProfile::Goroutine],
    || {
        "times a thread or task could not be registered as a goroutine: no memory, too many of them, or no key for the end of \
         threads"
            .into()
    },
);

/// Reserves an id for a goroutine that is about to be created. No other goroutine of the process gets it, whether it is
/// used or not.
pub fn reserve() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns a bound: all ids reserved so far are below it.
pub(crate) fn limit() -> u64 {
    NEXT.load(Ordering::Relaxed)
}
