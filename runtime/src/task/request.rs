//! Requests that make tasks note where they await.
//!
//! Problem: noting the stack at each await costs a tenth of a microsecond, and most programs never read the stacks. But
//! a task that waits for ever was last polled before the first goroutine snapshot, and has noted nothing.
//!
//! Scheme: a request turns the noting on for [`LEASE`], and wakes the tasks that wait without a stack once, as if their
//! wait might be over. A future must expect that ([`Future::poll`]: "spurious wake-ups"), and suspends again, under a
//! waker that differs from the last one, so that every leaf clones it. Regular requests find the noting on, and wake no
//! task. A leaf that keeps its first waker, whichever waker it is polled with, leaves no stack: its task is woken once
//! for each time that it was polled for another reason.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock;

/// How long tasks note where they await after the last request.
pub const LEASE: Duration = Duration::from_secs(5 * 60);

/// When tasks note where they await, for the goroutine profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AwaitStacks {
    /// From the first goroutine snapshot until five minutes after the last. At the first snapshot, waiting tasks are
    /// polled once.
    #[default]
    OnRequest = 0,
    /// Always: no task is polled for its stack, except one whose last poll was before this was set.
    Always,
    /// Never for the goroutine profile: waiting tasks appear in it without a stack. Tasks still note their stacks while
    /// a trace is recorded, and for the waits that the block profile samples.
    Never,
}

static MODE: AtomicU8 = AtomicU8::new(AwaitStacks::OnRequest as u8);
/// Why tasks note where they await, as bits; 0 means that they do not.
static WHY: AtomicU8 = AtomicU8::new(0);
/// The goroutine profile may need the stacks.
const FOR_LOOKS: u8 = 1;
/// The block profile includes waits of tasks.
const FOR_WAITS: u8 = 2;
/// A trace is being recorded.
const FOR_TRACE: u8 = 4;
/// The tick at which the lease ends.
static UNTIL: AtomicU64 = AtomicU64::new(0);

/// Sets when tasks note where they await; returns the previous setting.
pub fn set_await_stacks(mode: AwaitStacks) -> AwaitStacks {
    let before = MODE.swap(mode as u8, Ordering::Relaxed);
    set(FOR_LOOKS, mode == AwaitStacks::Always);
    mode_of(before)
}

/// Returns when tasks note where they await.
pub fn await_stacks() -> AwaitStacks {
    mode_of(MODE.load(Ordering::Relaxed))
}

fn mode_of(number: u8) -> AwaitStacks {
    [AwaitStacks::OnRequest, AwaitStacks::Always, AwaitStacks::Never]
        .into_iter()
        .find(|&mode| mode as u8 == number)
        .unwrap_or_default()
}

/// Returns whether tasks may note where they await. Safe to call in a hook.
#[inline]
pub fn is_on() -> bool {
    WHY.load(Ordering::Relaxed) != 0
}

fn set(why: u8, is_on: bool) {
    if is_on {
        WHY.fetch_or(why, Ordering::Relaxed);
    } else {
        WHY.fetch_and(!why, Ordering::Relaxed);
    }
}

/// Notes whether the block profile includes waits of tasks.
pub fn note_waits(has_them: bool) {
    set(FOR_WAITS, has_them);
}

/// Notes whether a trace is being recorded.
pub fn note_trace(is_recorded: bool) {
    set(FOR_TRACE, is_recorded);
}

/// Returns whether tasks note where they await in each poll, and not only in those that the block profile chooses. Safe to
/// call in a hook.
#[inline]
pub(super) fn has_every_poll() -> bool {
    WHY.load(Ordering::Relaxed) & (FOR_LOOKS | FOR_TRACE) != 0
}

/// Returns whether the block profile includes waits of tasks. Safe to call in a hook.
#[inline]
pub(super) fn has_waits() -> bool {
    WHY.load(Ordering::Relaxed) & FOR_WAITS != 0
}

/// Returns whether stacks are noted for nothing but the block profile, so that it may leave out polls. Safe to call in a hook.
#[inline]
pub(super) fn has_only_waits() -> bool {
    WHY.load(Ordering::Relaxed) == FOR_WAITS
}

/// Ends the noting when the lease is over at tick `now`. Called now and then. Safe to call in a hook.
#[inline]
pub(super) fn look_at_lease(now: u64) {
    if WHY.load(Ordering::Relaxed) & FOR_LOOKS != 0 && clock::since(now, UNTIL.load(Ordering::Relaxed)) == 0 {
        end_lease();
    }
}

/// Makes tasks note where they await for [`LEASE`] from now on. Returns `false` in mode `Never`. Must not be called in
/// a hook.
pub(crate) fn begin_lease() -> bool {
    if await_stacks() == AwaitStacks::Never {
        return false;
    }
    let lease = LEASE.as_secs() * clock::ticks_per_second();
    UNTIL.store(clock::ticks().wrapping_add(lease), Ordering::Relaxed);
    set(FOR_LOOKS, true);
    true
}

#[cold]
fn end_lease() {
    if await_stacks() != AwaitStacks::Always {
        set(FOR_LOOKS, false);
    }
}
