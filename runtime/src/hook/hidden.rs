//! The calls of the current thread that interposed functions do not record.
//!
//! A wait in one of our own locks ends in the same system call as a wait in one of std's locks, and the lock reports it
//! itself, with its true reason. rtprof's threads wait nearly all of their time, and their waits are not the program's.
//! So these callers hide their calls from the functions of the C library that `rtprof_hooks::interpose` replaces.

use core::cell::Cell;

use crate::hook;

/// Kinds of calls that can be hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls(u8);

impl Calls {
    /// Calls that may wait.
    pub const WAITS: Self = Self(1);
    /// Calls that create threads.
    pub const THREADS: Self = Self(2);
    /// Calls that may wake a thread which waits in one of the first kind.
    pub const WAKES: Self = Self(4);
    /// The calls of rtprof's threads.
    pub(crate) const OWN: Self = Self(Self::WAITS.0 | Self::WAKES.0);
}

thread_local! {
    // No destructor and no lazy initialisation: readable from the first to the last instruction of a thread
    // (rust#116390).
    static HIDDEN: Cell<u8> = const { Cell::new(0) };
}

/// The bit of a thread all of whose calls are hidden.
const ALWAYS: u8 = 8;

/// Hides all calls of the current thread, beside [`hide`], or shows them again. Safe to call in a hook.
pub fn set_always(is_hidden: bool) {
    HIDDEN.with(|hidden| hidden.set(hidden.get() & !ALWAYS | if is_hidden { ALWAYS } else { 0 }));
}

/// The kinds that were hidden before, for [`restore`].
#[derive(Clone, Copy, Debug)]
#[must_use = "the calls stay hidden until they are restored"]
pub struct Before(u8);

/// Hides these calls of the current thread, in addition, until [`restore`]. Safe to call in a hook.
#[inline(always)]
pub fn hide(calls: Calls) -> Before {
    HIDDEN.with(|hidden| Before(hidden.replace(hidden.get() | calls.0)))
}

/// Restores the kinds that were hidden before. Safe to call in a hook.
#[inline(always)]
pub fn restore(before: Before) {
    HIDDEN.with(|hidden| hidden.set(before.0));
}

/// Runs `f` with these calls hidden. Restores the previous state also if `f` panics.
#[inline(always)]
pub fn hiding<R>(calls: Calls, f: impl FnOnce() -> R) -> R {
    struct Restore(Before);
    impl Drop for Restore {
        fn drop(&mut self) {
            restore(self.0);
        }
    }
    let _restore = Restore(hide(calls));
    f()
}

/// Returns whether calls of these kinds by the current thread are passed on unrecorded: they are hidden, or the thread
/// is in a hook, or does work of the profiler. Safe to call in a hook.
#[inline]
pub fn is_hidden(calls: Calls) -> bool {
    HIDDEN.with(|hidden| hidden.get() & (calls.0 | ALWAYS) != 0) || hook::is_own_work()
}
