//! The ids of goroutines, one sequence for threads and tasks.

use core::sync::atomic::{AtomicU64, Ordering};

/// The id of the main thread's goroutine.
pub const MAIN: u64 = 1;

static NEXT: AtomicU64 = AtomicU64::new(MAIN + 1);

/// Reserves an id for a goroutine that is about to be created. No other goroutine of the process gets it, whether it is
/// used or not.
pub fn reserve() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns a bound: all ids reserved so far are below it.
pub(crate) fn limit() -> u64 {
    NEXT.load(Ordering::Relaxed)
}
