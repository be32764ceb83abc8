//! The word of a mutex. Its low bits:
//!
//! | `WOKEN` | `PARKED` | `LOCKED` | |
//! |---|---|---|---|
//! | 0 | 0 | 0 | free |
//! | 0 | 0 | 1 | held, no thread sleeps |
//! | 0 | 1 | 1 | held, threads sleep; the unlock wakes the first of them and is charged for all |
//! | 0 | 1 | 0 | free, threads sleep, and one that `Condvar::notify_all` has woken is about to take it |
//! | 1 | any | 1 | held, and a thread that was woken is on its way; the unlock wakes no other |
//! | 1 | any | 0 | free, and the thread on its way races with newcomers |
//!
//! # Why an unlock may wake no thread
//!
//! Problem: between the wake of a thread and its first step pass microseconds, or milliseconds when all cores are
//! busy. In that time the mutex is taken and given up hundreds of times. If each of these unlocks woke one more thread,
//! all of them would soon be awake and fight for a mutex that only one can have, and each wake is a system call.
//!
//! Scheme: a wake that leaves others asleep sets `WOKEN`, and unlocks that see it give up the mutex by one
//! compare-and-swap. The thread that was woken clears it, when it gets the mutex or sleeps again; the next unlock wakes
//! the next thread. So `WOKEN` always stands for a thread that is awake and will look at the mutex, and no wake is
//! lost. (Clearing it too early only costs a wake.)
//!
//! Two things must not depend on when the kernel runs that thread:
//! - *The other sleepers are woken.* An unlock that finds `WOKEN` some 10 ms old wakes one more thread. The word holds
//!   when it was set.
//! - *The holder is charged.* While the mutex profile is on, an unlock that finds the last charge more than some 16 µs
//!   old is charged with what all sleepers have waited since, as an unlock that wakes is. The time of shorter holds is
//!   charged to the next such unlock.
//!
//! Reading the clock takes half as long as locking and unlocking, so without the mutex profile only some unlocks read
//! it: those whose number since the wake, modulo 128, is 0 or a power of two. These are the first ones, which suffices
//! if the mutex is held for long, and 8 of 128 if it is held for a short time.

use crate::inner::queue::WaiterKind;
use crate::inner::ticks;

/// A thread holds the mutex.
pub(super) const LOCKED: u32 = 1;
/// Threads are in the queue, or about to be. Cleared only with the queue locked, so that it is set while any thread
/// sleeps.
pub(super) const PARKED: u32 = 2;
/// A thread was woken while others sleep, and has not looked at the mutex yet. Set only with the queue locked, by the
/// thread that holds the mutex.
pub(super) const WOKEN: u32 = 4;
/// One unlock since `WOKEN` was set; the number of them, modulo 128, lies above it.
pub(super) const SKIP: u32 = 8;
pub(super) const SKIPS: u32 = 127 * SKIP;
/// Above the flags is when `WOKEN` was set, in units of 2^[`ticks::COARSE`] ticks; 0 without it.
pub(super) const TIME_SHIFT: u32 = 10;

/// Up to 14 µs of spinning, at 28 ns a pause: as long as it takes to fall asleep and to be woken.
pub(super) const LOOKS: u32 = 9;
/// Up to a microsecond of spinning, when other threads sleep.
pub(super) const CROWDED_LOOKS: u32 = 5;
/// The low bits of `QueueMutex::charged`: how often in a row spinning was futile, at most this often.
pub(super) const FUTILE: u32 = 7;
/// This many futile spins have no effect; each further one costs a look. At least 4 looks are left, half a microsecond.
pub(super) const FORGIVEN: u32 = 2;

/// The kind of a sleeper that has slept for the mutex before: it was woken and lost the race.
pub(super) const LOSER: WaiterKind = 1;

/// A tick in the form that the word has.
pub(super) fn coarse(now: u64) -> u32 {
    ((now >> ticks::COARSE) as u32) << TIME_SHIFT
}

/// The word, except for [`LOCKED`], after one more unlock that wakes no thread.
pub(super) fn skips(state: u32) -> u32 {
    state.wrapping_add(SKIP) & SKIPS
}

/// Whether the unlock that leads to this number of [`skips`] reads the clock: the first ones do, and 8 of 128.
pub(super) fn reads_clock(skips: u32) -> bool {
    skips & skips.wrapping_sub(SKIP) == 0
}

/// Whether `WOKEN` was set more than [`ticks::LATE`] ago.
pub(super) fn is_late(state: u32, now: u64) -> bool {
    coarse(now).wrapping_sub(state >> TIME_SHIFT << TIME_SHIFT) > ticks::LATE << TIME_SHIFT
}
