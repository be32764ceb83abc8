//! When tasks note where they await: on request.
//!
//! Problem: to note the stack at each await costs a tenth of a microsecond, which most programs never look at. But a task that
//! waits for ever was last polled before the first look, and has noted nothing.
//!
//! Scheme: a request turns the noting on for [`LEASE`]; and tasks that wait without a stack are woken once, as if their wait
//! might be over. A future must expect that ([`Future::poll`]: "spurious wake-ups"), and suspends again, under a waker that
//! differs from the last one, so that every leaf clones it. Those who look regularly find the noting on, and wake no task.
//! A leaf that keeps its first waker whatever it is polled with leaves no stack: its task is woken once for each time that it was
//! polled for another reason.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock;

/// For how long after the last request tasks note where they await.
pub const LEASE: Duration = Duration::from_secs(5 * 60);

/// When tasks note where they await, so that the goroutine profile can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AwaitStacks {
    /// From the first look at goroutines until five minutes after the last. The first one has tasks that wait polled once.
    #[default]
    OnRequest = 0,
    /// Always: no task is ever polled for its stack, but one that was polled last before this was set.
    Always,
    /// Not for the goroutine profile: tasks that wait are there without a stack. While the block profile has waits of tasks, or a
    /// trace is recorded, stacks are noted all the same.
    Never,
}

static MODE: AtomicU8 = AtomicU8::new(AwaitStacks::OnRequest as u8);
/// Why tasks note where they await: bits.
static WHY: AtomicU8 = AtomicU8::new(0);
/// The goroutine profile may want it.
const FOR_LOOKS: u8 = 1;
/// The block profile has waits of tasks.
const FOR_WAITS: u8 = 2;
/// A trace is being recorded.
const FOR_TRACE: u8 = 4;
/// The tick at which the lease is over.
static UNTIL: AtomicU64 = AtomicU64::new(0);

/// Sets when tasks note where they await; returns the previous setting.
pub fn set_await_stacks(mode: AwaitStacks) -> AwaitStacks {
    let before = MODE.swap(mode as u8, Ordering::Relaxed);
    set(FOR_LOOKS, mode == AwaitStacks::Always);
    mode_of(before)
}

/// When tasks note where they await.
pub fn await_stacks() -> AwaitStacks {
    mode_of(MODE.load(Ordering::Relaxed))
}

fn mode_of(number: u8) -> AwaitStacks {
    [AwaitStacks::OnRequest, AwaitStacks::Always, AwaitStacks::Never]
        .into_iter()
        .find(|&mode| mode as u8 == number)
        .unwrap_or_default()
}

/// Whether tasks note where they await. For hooks.
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

/// Notes whether the block profile has waits of tasks.
pub fn note_waits(has_them: bool) {
    set(FOR_WAITS, has_them);
}

/// Notes whether a trace is being recorded.
pub fn note_trace(is_recorded: bool) {
    set(FOR_TRACE, is_recorded);
}

/// Whether the block profile has waits of tasks. For hooks.
#[inline]
pub(super) fn has_waits() -> bool {
    WHY.load(Ordering::Relaxed) & FOR_WAITS != 0
}

/// To be called now and then, with the tick that it is: ends the noting when the lease is over. For hooks.
#[inline]
pub(super) fn look_at_lease(now: u64) {
    if WHY.load(Ordering::Relaxed) & FOR_LOOKS != 0 && clock::since(now, UNTIL.load(Ordering::Relaxed)) == 0 {
        end_lease();
    }
}

/// Has tasks note where they await for [`LEASE`] from now on. `false` if they never do. Not for hooks.
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
