//! The wait queue of all locks, channels and semaphores: parking_lot_core's, where threads sleep by the
//! address of what they wait for.
//!
//! Beyond it this module sees to three things:
//! - Each waiter's token names its goroutine, so that who wakes knows whom.
//! - Who wakes notes when, and tells the sleeper: the wait ends at that instant, not when the kernel gets
//!   round to running the thread. So the waiter's time and the unlocker's charge are the same ticks.
//! - A wake may hand over what was waited for (`is_handed_over`), by the lowest bit of that tick.
//!
//! Locks: parking_lot_core's buckets, a spinning word lock each, held while a queue is changed, and while the
//! closures here run. They hash the address; two keys may share one. Closures may not park or wake.

use std::time::Instant;

use crate::primitive::parking::{self, FilterOp, ParkResult, ParkToken, RequeueOp, UnparkToken};

use crate::wait::{Goroutine, Wait, clock, states};

/// What kind of waiter it is: less than 8, so that it fits below a goroutine's address in a token.
pub(crate) type WaiterKind = usize;

const KINDS: usize = 8;

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// Somebody woke this thread, and handed it what it waited for or not.
    Woken {
        /// Whether it was handed over.
        is_handed_over: bool,
    },
    /// There was no reason to sleep.
    Refused,
    /// The deadline passed.
    TimedOut,
}

/// Whom to wake.
pub(crate) enum Choice {
    /// This one.
    Wake,
    /// Not this one, perhaps a later one.
    Skip,
    /// Neither this one nor a later one.
    Stop,
}

/// What a wake found.
pub(crate) struct Woken {
    /// When.
    pub(crate) now: u64,
    /// How many.
    pub(crate) count: usize,
    /// Whether others are left in the queue.
    pub(crate) has_more: bool,
    /// Whether it is time to be fair: about every half millisecond of contention.
    pub(crate) be_fair: bool,
}

/// Sleeps in the queue at `key` until woken, or until `deadline`. `validate` is run with the queue locked and
/// says whether to sleep at all; it is to let the wait's time run. `before_sleep` is run when the thread is in the
/// queue, and `timed_out`, with the queue locked again, when it gives up; it is told whether it was the last one. (Of
/// the queue in which it then is: [`requeue`] may have moved it.)
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
    // Wherever the wait comes from: this function sleeps.
    wait.stay();
    let token = ParkToken(wait.token() | kind);
    let wait = core::cell::RefCell::new(wait);
    // SAFETY: the caller's promises. The borrows cannot collide: validation is over when the time is out.
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

/// Wakes those in the queue at `key` that `choose` picks by their kind, the longest waiting first. `decide` is run
/// with the queue locked, also when nobody was woken, and says whether they are handed what they wait for.
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
            // SAFETY: `park` made it from the token of a goroutine that sleeps.
            unsafe { unblock(token - token % KINDS) };
            FilterOp::Unpark
        }
        Choice::Skip => FilterOp::Skip,
        Choice::Stop => FilterOp::Stop,
    };
    let decide = |result: parking::UnparkResult| {
        // The lowest bit says something else to the sleeper, so it is left out for all.
        let now = clock::ticks() & !1;
        let is_handed_over = decide(&Woken {
            now,
            count: result.unparked_threads,
            has_more: result.have_more_threads,
            be_fair: result.be_fair,
        });
        UnparkToken(now as usize | usize::from(is_handed_over))
    };
    // SAFETY: the caller's promises.
    unsafe { parking::unpark_filter(key, choose, decide) };
}

/// The goroutine can run from here on, whenever that will be.
///
/// # Safety
/// `token` is that of a goroutine that sleeps, so it has not ended; or 0.
unsafe fn unblock(token: usize) {
    if token != 0 {
        // SAFETY: the caller's promise.
        states::unblock(unsafe { Goroutine::from_token(token) });
    }
}

/// What becomes of those in a queue.
pub(crate) enum Move {
    /// They stay where they are.
    None,
    /// All go to the other queue.
    All,
    /// All but the first, who is woken. It is the one with this token.
    AllButFirst { token: usize },
}

/// Moves those in the queue at `from` to the end of that at `to`, where they go on sleeping. `choose` is run with both
/// queues locked; it is told the time, which is when the one that is woken was woken.
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
                // SAFETY: it sleeps, says the caller.
                unsafe { unblock(token) };
                RequeueOp::UnparkOneRequeueRest
            }
        }
    };
    // SAFETY: the caller's promises.
    unsafe { parking::unpark_requeue(from, to, choose, |_, _| UnparkToken(now.get() as usize)) };
}

/// For [`wake`]: the first in the queue.
pub(crate) fn first() -> impl FnMut(WaiterKind) -> Choice {
    let mut is_taken = false;
    move |_| if core::mem::replace(&mut is_taken, true) { Choice::Stop } else { Choice::Wake }
}

/// For [`wake`]: everybody.
pub(crate) fn everybody(_: WaiterKind) -> Choice {
    Choice::Wake
}
