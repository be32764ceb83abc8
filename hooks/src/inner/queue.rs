//! The wait queue of all locks, channels and semaphores: parking_lot_core's, in which threads sleep at the address of
//! the object that they wait for.
//!
//! This module adds three things:
//! - Each waiter's token names its goroutine, so that a wake knows which goroutine it wakes.
//! - A wake passes its tick to the sleeper: the wait ends at that tick, and not when the kernel runs the thread. So the
//!   waiter's time and the unlocker's charge are the same ticks.
//! - A wake may hand the lock over (`is_handed_over`), by the lowest bit of that tick.
//!
//! Locks: parking_lot_core's buckets, each a spinning word lock, held while a queue is changed and while the closures
//! here run. The address is hashed, so two keys may share a bucket. Closures must not park or wake.

use std::time::Instant;

use crate::inner::primitive::parking::{self, FilterOp, ParkResult, ParkToken, RequeueOp, UnparkToken};

use crate::inner::wait::{Goroutine, Wait, clock, states};

/// The kind of a waiter: less than 8, so that it fits into the low bits of a goroutine's address in a token.
pub(crate) type WaiterKind = usize;

const KINDS: usize = 8;

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// Another thread woke this one.
    Woken {
        /// Whether the lock was handed over to it.
        is_handed_over: bool,
    },
    /// There was no reason to sleep.
    Refused,
    /// The deadline passed.
    TimedOut,
}

/// Whether to wake a waiter.
pub(crate) enum Choice {
    /// Wake this waiter.
    Wake,
    /// Skip this waiter, and look at the next one.
    Skip,
    /// Skip this waiter and all later ones.
    Stop,
}

/// The result of a wake.
pub(crate) struct Woken {
    /// The tick of the wake.
    pub(crate) now: u64,
    /// How many threads were woken.
    pub(crate) count: usize,
    /// Whether others are left in the queue.
    pub(crate) has_more: bool,
    /// Whether it is time to be fair: about every half millisecond of contention.
    pub(crate) be_fair: bool,
}

/// Sleeps in the queue at `key` until woken, or until `deadline`. `validate` runs with the queue locked and returns
/// whether to sleep at all; it starts the wait's time. `before_sleep` runs when the thread is in the queue. `timed_out`
/// runs at the deadline, with the queue locked again; its argument says whether the thread was the last one in its
/// queue, to which [`requeue`] may have moved it.
///
/// # Safety
/// `key` is an address that the caller owns. The closures do not panic, and neither park nor wake, except that
/// `before_sleep` may wake.
pub(crate) unsafe fn park(
    key: usize,
    kind: WaiterKind,
    wait: &mut Wait,
    validate: impl FnOnce(&mut Wait) -> bool,
    before_sleep: impl FnOnce(),
    timed_out: impl FnOnce(&mut Wait, bool),
    deadline: Option<Instant>,
) -> Sleep {
    debug_assert!(kind < KINDS);
    // The frame of this function stays while the thread sleeps.
    wait.stay();
    let token = ParkToken(wait.token() | kind);
    let wait = core::cell::RefCell::new(wait);
    // SAFETY: the caller owns the address, and its closures neither panic nor park. The borrows of `wait` do not
    // overlap: validation has ended before a timeout.
    let result = unsafe {
        parking::park(
            key,
            || validate(&mut wait.borrow_mut()),
            before_sleep,
            |_, was_last| timed_out(&mut wait.borrow_mut(), was_last),
            token,
            deadline,
        )
    };
    match result {
        ParkResult::Unparked(UnparkToken(tick)) => {
            wait.into_inner().woken(tick as u64 & !1);
            Sleep::Woken { is_handed_over: tick & 1 != 0 }
        }
        ParkResult::Invalid => Sleep::Refused,
        ParkResult::TimedOut => {
            wait.into_inner().unmark();
            Sleep::TimedOut
        }
    }
}

/// Wakes the threads in the queue at `key` that `choose` picks by their kind, the longest waiting first. `decide` runs
/// with the queue locked, also when no thread was woken, and returns whether the lock is handed over.
///
/// # Safety
/// `key` is an address that the caller owns. The closures do not panic, and neither park nor wake.
pub(crate) unsafe fn wake(
    key: usize,
    mut choose: impl FnMut(WaiterKind) -> Choice,
    decide: impl FnOnce(&Woken) -> bool,
) {
    let choose = |ParkToken(token): ParkToken| match choose(token % KINDS) {
        Choice::Wake => {
            // SAFETY: `park` has put it there for a goroutine that still sleeps.
            unsafe { unblock(token - token % KINDS) };
            FilterOp::Unpark
        }
        Choice::Skip => FilterOp::Skip,
        Choice::Stop => FilterOp::Stop,
    };
    let decide = |result: parking::UnparkResult| {
        // The lowest bit carries `is_handed_over`, so no tick uses it.
        let now = clock::ticks() & !1;
        let is_handed_over = decide(&Woken {
            now,
            count: result.unparked_threads,
            has_more: result.have_more_threads,
            be_fair: result.be_fair,
        });
        UnparkToken(now as usize | usize::from(is_handed_over))
    };
    // SAFETY: the caller owns the addresses, and its closures neither panic nor park nor wake.
    unsafe { parking::unpark_filter(key, choose, decide) };
}

/// Marks the goroutine as runnable.
///
/// # Safety
/// `token` is 0, or belongs to a goroutine that sleeps, which therefore has not ended.
unsafe fn unblock(token: usize) {
    if token != 0 {
        // SAFETY: the goroutine sleeps, so the token is valid.
        states::unblock(unsafe { Goroutine::from_token(token) });
    }
}

/// What happens to the threads in a queue.
pub(crate) enum Move {
    /// All stay.
    None,
    /// All go to the other queue.
    All,
    /// All but the first, which is woken and has this token, go to the other queue.
    AllButFirst { token: usize },
}

/// Moves the threads in the queue at `from` to the end of the queue at `to`, where they go on sleeping. `choose` runs
/// with both queues locked; its argument is the tick at which the first thread is woken, if it is.
///
/// # Safety
/// Both keys are addresses that the caller owns. `choose` does not panic, and neither parks nor wakes.
pub(crate) unsafe fn requeue(from: usize, to: usize, choose: impl FnOnce(u64) -> Move) {
    let now = core::cell::Cell::new(0);
    let choose = || {
        now.set(clock::ticks() & !1);
        match choose(now.get()) {
            Move::None => RequeueOp::Abort,
            Move::All => RequeueOp::RequeueAll,
            Move::AllButFirst { token } => {
                // SAFETY: the thread is in the queue, which is locked, so it sleeps.
                unsafe { unblock(token) };
                RequeueOp::UnparkOneRequeueRest
            }
        }
    };
    // SAFETY: the caller owns the addresses, and its closures neither panic nor park nor wake.
    unsafe { parking::unpark_requeue(from, to, choose, |_, _| UnparkToken(now.get() as usize)) };
}

/// For [`wake`]: wakes the first in the queue.
pub(crate) fn first() -> impl FnMut(WaiterKind) -> Choice {
    let mut is_taken = false;
    move |_| if core::mem::replace(&mut is_taken, true) { Choice::Stop } else { Choice::Wake }
}

/// For [`wake`]: wakes all.
pub(crate) fn everybody(_: WaiterKind) -> Choice {
    Choice::Wake
}
