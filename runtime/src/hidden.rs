//! What the current thread does that interposed calls do not record.
//!
//! A wait in one of our own locks ends in the same system call as one of std's, and is reported by the lock, which knows what
//! it is. Threads of ours wait nearly all of their time, and that is no wait of the program's. So those who know better hide
//! what they do from the functions of the C library that `rtprof_hooks::interpose` replaces.

use core::cell::Cell;

use crate::hook;

/// Kinds of calls that can be hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls(u8);

impl Calls {
    /// Those that may wait.
    pub const WAITS: Self = Self(1);
    /// Those that create threads.
    pub const THREADS: Self = Self(2);
    /// Those that may wake a thread which waits in such a call.
    pub const WAKES: Self = Self(4);
    /// Those that threads of ours make.
    pub const OWN: Self = Self(Self::WAITS.0 | Self::WAKES.0);
}

thread_local! {
    // No destructor and no lazy initialisation: readable from the first to the last instruction of a thread
    // (rust#116390).
    static HIDDEN: Cell<u8> = const { Cell::new(0) };
}

/// What was hidden before; to be given back to [`restore`].
#[derive(Clone, Copy, Debug)]
#[must_use = "the calls stay hidden until they are restored"]
pub struct Before(u8);

/// Hides these calls of the current thread too, until [`restore`]. For hooks.
#[inline(always)]
pub fn hide(calls: Calls) -> Before {
    HIDDEN.with(|hidden| Before(hidden.replace(hidden.get() | calls.0)))
}

/// Hides what was hidden before, and no more. For hooks.
#[inline(always)]
pub fn restore(before: Before) {
    HIDDEN.with(|hidden| hidden.set(before.0));
}

/// Runs `f` with these calls hidden. Should `f` panic, they are shown again.
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

/// Whether such calls of the current thread are to be passed on as if we were not there: they are hidden, or the thread is in
/// a hook, or does work of the profiler. For hooks.
#[inline]
pub fn is_hidden(calls: Calls) -> bool {
    HIDDEN.with(|hidden| hidden.get() & calls.0 != 0) || hook::is_own_work()
}
