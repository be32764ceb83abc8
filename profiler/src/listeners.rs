//! Who listens to waits: one word, so that a hook in a call that others make all the time finds out with one load.
//!
//! A wait is of interest while the block profile is on, or the mutex profile, which charges it to whoever ends it, or while a
//! trace is recorded. Each of the three notes that here when it is switched. The word may lag behind for an instant: a hook
//! that finds a listener asks the listener's own switch before it records anything.

use crate::primitive::{AtomicU32, Ordering};

/// One of those who listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// The block profile.
    Block = 1,
    /// The mutex profile.
    Mutex = 2,
    /// The execution tracer.
    Tracer = 4,
}

#[cfg(not(loom))]
static LISTENERS: AtomicU32 = AtomicU32::new(0);
// loom's atomics are not `const`.
#[cfg(loom)]
static LISTENERS: std::sync::LazyLock<AtomicU32> = std::sync::LazyLock::new(|| AtomicU32::new(0));

/// Notes whether it listens. Whoever switches a listener on and off at one time from two threads does so under a lock.
pub fn set(listener: Listener, listens: bool) {
    let bit = listener as u32;
    if listens {
        LISTENERS.fetch_or(bit, Ordering::SeqCst);
    } else {
        LISTENERS.fetch_and(!bit, Ordering::SeqCst);
    }
}

/// Whether any of them listens. For hooks.
#[inline(always)]
pub fn are_any() -> bool {
    LISTENERS.load(Ordering::Relaxed) != 0
}
