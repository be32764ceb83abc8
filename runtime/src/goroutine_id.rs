//! The numbers of goroutines, which threads and tasks share.

use core::sync::atomic::{AtomicU64, Ordering};

/// The main thread's.
pub const MAIN: u64 = 1;

static NEXT: AtomicU64 = AtomicU64::new(MAIN + 1);

/// A number for a goroutine that is about to be created. No other goroutine of the process has it, whether it is used or not.
pub fn reserve() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// All numbers that were reserved so far are below this one.
pub(crate) fn limit() -> u64 {
    NEXT.load(Ordering::Relaxed)
}
