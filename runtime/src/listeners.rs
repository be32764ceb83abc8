//! Who listens to waits: one word, so that a hook in a call that others make all the time finds out with one load.
//!
//! A wait is of interest while the block profile is on, or the mutex profile, which charges it to whoever ends it, or while a
//! trace is recorded. Each of these notes it here when it is switched. The word may lag behind for an instant: a hook
//! that finds a listener asks the listener's own switch before it records anything.

use core::sync::atomic::AtomicBool;

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
    /// The block profile, if it has kinds of waits that such calls are (`OF_CALLS`): for the network, system calls, sleeps.
    BlockCalls = 8,
}

/// Those for whom calls matter that read, write or wait for files, sockets and processes.
pub const OF_CALLS: u32 = Listener::Tracer as u32 | Listener::BlockCalls as u32;

/// A bit for each of those that listen. Alone in its cache lines: every call that can wait reads it.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Listeners(AtomicU32);

lazy_under_loom! {
    /// For code in assembly language, which cannot call the functions of this module.
    pub static LISTENERS: Listeners = Listeners(AtomicU32::new(0));
}

/// Whether calls of the C library are seen that may wait (`rtprof_hooks::interpose`).
static SEES_CALLS: AtomicBool = AtomicBool::new(false);

/// Notes that calls of the C library are seen that may wait.
pub fn note_calls_are_seen() {
    SEES_CALLS.store(true, Ordering::Relaxed);
}

/// Whether calls of the C library are seen that may wait: then a thread that is not said to wait does not wait in one.
pub fn are_calls_seen() -> bool {
    SEES_CALLS.load(Ordering::Relaxed)
}

/// Notes whether it listens. Whoever switches a listener on and off at one time from two threads does so under a lock.
pub fn set(listener: Listener, listens: bool) {
    let bit = listener as u32;
    if listens {
        LISTENERS.0.fetch_or(bit, Ordering::SeqCst);
    } else {
        LISTENERS.0.fetch_and(!bit, Ordering::SeqCst);
    }
}

/// Whether this one listens. For hooks.
#[inline(always)]
pub fn listens(listener: Listener) -> bool {
    LISTENERS.0.load(Ordering::Relaxed) & listener as u32 != 0
}

/// Whether any of them listens. For hooks.
#[inline(always)]
pub fn are_any() -> bool {
    LISTENERS.0.load(Ordering::Relaxed) != 0
}
