//! The listeners to waits: one word, so that a hook in a frequent call needs a single load to learn whether there are
//! any.
//!
//! A wait is recorded while the block profile is on, or the mutex profile, which charges it to the thread that ends it,
//! or while a trace is recorded. Each of these listeners notes its state here when it is switched. The word may lag
//! behind for an instant: a hook that finds a listener checks the listener's own switch before it records anything.

use core::sync::atomic::AtomicBool;

use crate::primitive::{AtomicU32, Ordering};

/// A listener to waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// The block profile.
    Block = 1,
    /// The mutex profile.
    Mutex = 2,
    /// The execution tracer.
    Tracer = 4,
    /// The block profile, if it includes kinds of waits that occur in calls (`OF_CALLS`): for the network, system
    /// calls, sleeps.
    BlockCalls = 8,
}

/// The listeners to calls that read, write or wait for files, sockets and processes.
pub const OF_CALLS: u32 = Listener::Tracer as u32 | Listener::BlockCalls as u32;

/// A bit for each active listener, and beside it [`cancelled_anywhere`]. Alone in its cache lines: every call that can wait
/// reads it.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Listeners(AtomicU32, core::sync::atomic::AtomicU32);

/// How many bytes lie before [`cancelled_anywhere`].
pub const CANCELLED_ANYWHERE: usize = core::mem::offset_of!(Listeners, 1);

lazy_under_loom! {
    /// Public for assembly code, which cannot call the functions of this module.
    pub static LISTENERS: Listeners = Listeners(AtomicU32::new(0), core::sync::atomic::AtomicU32::new(0));
}

/// The key of the C library, plus one, under which a thread has a value while it may be cancelled at any instruction. 0
/// while the program has never had such a thread. Set by `rtprof_hooks::interpose`.
pub fn cancelled_anywhere() -> &'static core::sync::atomic::AtomicU32 {
    &LISTENERS.1
}

/// Whether calls of the C library that may wait are intercepted (`rtprof_hooks::interpose`).
static SEES_CALLS: AtomicBool = AtomicBool::new(false);

/// Notes that calls of the C library that may wait are intercepted.
pub fn note_calls_are_seen() {
    SEES_CALLS.store(true, Ordering::Relaxed);
}

/// Returns whether calls of the C library that may wait are intercepted: then a thread without a noted wait is not
/// waiting in one of these calls.
pub fn are_calls_seen() -> bool {
    SEES_CALLS.load(Ordering::Relaxed)
}

/// Notes whether the listener is active. A listener that is switched by several threads holds a lock around the switch.
pub fn set(listener: Listener, listens: bool) {
    let bit = listener as u32;
    if listens {
        LISTENERS.0.fetch_or(bit, Ordering::SeqCst);
    } else {
        LISTENERS.0.fetch_and(!bit, Ordering::SeqCst);
    }
}

/// Returns whether any listener is active. Safe to call in a hook.
#[inline(always)]
pub fn are_any() -> bool {
    LISTENERS.0.load(Ordering::Relaxed) != 0
}
