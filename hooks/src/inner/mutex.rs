//! The mutex: a word (see `mutex_state`), a queue, and the account of its waiters.
//!
//! A woken thread may find the mutex taken by a newcomer, and sleeps again: handing the mutex over at each unlock would
//! make every unlock wait for a thread to be scheduled. A thread that lost such a race gets the mutex handed over when
//! it is first in the queue and about half a millisecond of contention has passed, so that no thread waits for ever.
//! (The queue and the half millisecond are parking_lot's. Handing over to losers only, and `WOKEN`, are Go's.)

use std::cell::Cell;
use std::time::Instant;

use crate::frame;
use crate::inner::account::{Account, Stake};
use crate::inner::charged_queue::{Attempt, ChargedQueue, acquire};
use crate::inner::mutex_state::{
    CROWDED_LOOKS, FORGIVEN, FUTILE, LOCKED, LOOKS, LOSER, PARKED, SKIPS, WOKEN, coarse, is_late,
    reads_clock, skips,
};
use crate::inner::primitive::{AtomicU32, Ordering};
use crate::inner::queue::{self, Choice, Sleep};
use crate::inner::spin::spin_while;
use crate::inner::ticks;
use crate::inner::wait::{self, Wait, WaitReason, clock};

/// What an unlock must do although a thread is on its way to the mutex.
enum Due {
    Nothing,
    /// Charge the time that the sleepers have waited.
    Charge,
    /// Wake one more thread, because the woken one has not run for too long.
    Wake,
}

/// The raw lock of [`Mutex`](crate::sync::Mutex), for `lock_api`. The lock is not fair: a newcomer may be faster than a woken
/// thread. But after about half a millisecond of contention the lock is handed to the thread that waits longest, if it
/// has lost a race before.
///
/// The queue is the first field, because a condition variable that knows only the address of a mutex finds the queue at
/// this address.
#[repr(C)]
pub struct QueueMutex {
    queue: ChargedQueue,
    state: AtomicU32,
    /// The low half of the tick of the last charge, written by the holder of the mutex. The lowest bits, [`FUTILE`],
    /// are written by threads that spin.
    charged: AtomicU32,
}

const _: () = assert!(core::mem::offset_of!(QueueMutex, queue) == 0);

impl QueueMutex {
    rtprof_runtime::const_fn! {
        pub(super) const fn new() -> Self {
            Self { queue: ChargedQueue::new(), state: AtomicU32::new(0), charged: AtomicU32::new(0) }
        }
    }

    #[inline]
    pub(crate) fn lock(&self) {
        // One instruction, whether threads sleep or not.
        if self.state.fetch_or(LOCKED, Ordering::Acquire) & LOCKED != 0 {
            self.lock_slow(None);
            frame::keep();
        }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        // Without a write, if it is held.
        self.state.load(Ordering::Relaxed) & LOCKED == 0
            && self.state.fetch_or(LOCKED, Ordering::Acquire) & LOCKED == 0
    }

    #[inline]
    pub(crate) fn lock_until(&self, deadline: Option<Instant>) -> bool {
        if self.state.fetch_or(LOCKED, Ordering::Acquire) & LOCKED == 0 {
            return true;
        }
        let is_locked = self.lock_slow(deadline);
        frame::keep();
        is_locked
    }

    /// # Safety
    /// This thread holds the mutex.
    #[inline]
    pub(crate) unsafe fn unlock(&self) {
        if !self.try_unlock() {
            self.unlock_slow(false);
            frame::keep();
        }
    }

    /// Hands the mutex over to the first thread that waits.
    ///
    /// # Safety
    /// This thread holds the mutex.
    #[inline]
    pub(crate) unsafe fn unlock_fair(&self) {
        if !self.try_unlock() {
            self.unlock_slow(true);
            frame::keep();
        }
    }

    /// Gives up the mutex if no thread waits for it.
    #[inline]
    fn try_unlock(&self) -> bool {
        // The load avoids a swap that would fail, and is free otherwise, because the cache line belongs to this core.
        self.state.load(Ordering::Relaxed) == LOCKED
            && self.state.compare_exchange(LOCKED, 0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self, deadline: Option<Instant>) -> bool {
        if self.state.load(Ordering::Relaxed) & (PARKED | WOKEN) == PARKED {
            // The unlock wakes a sleeper anyway, but sleeping at once would leave a core idle.
            spin_while(CROWDED_LOOKS, || self.state.load(Ordering::Relaxed) & LOCKED != 0);
        } else {
            self.spin(0);
        }
        self.lock_queued(Wait::prepare(WaitReason::MutexLock), false, deadline)
    }

    /// Takes the mutex, or sleeps for it. `is_woken` says that an unlock has woken this thread.
    pub(super) fn lock_queued(&self, mut wait: Wait, is_woken: bool, deadline: Option<Instant>) -> bool {
        // The bits that stay in the word when this thread takes the mutex, or sleeps.
        let kept = Cell::new(if is_woken { self.after_wake() } else { !0 });
        let mut has_slept = is_woken;
        let is_taken = acquire(
            &mut wait,
            || self.attempt(kept.get()),
            |wait| {
                let sleep = self.sleep(wait, kept.get(), deadline);
                has_slept |= sleep != Sleep::Refused;
                if sleep == (Sleep::Woken { is_handed_over: false }) {
                    kept.set(self.after_wake());
                }
                sleep
            },
        );
        // A thread that did not sleep here, and waits, was moved here by `notify_all` and has given up its place in the queue.
        if has_slept {
            wait.end();
        } else {
            wait.end_now();
        }
        is_taken
    }

    fn attempt(&self, kept: u32) -> Attempt {
        let state = self.state.load(Ordering::Relaxed);
        if state & LOCKED == 0 {
            let is_taken = self.try_change(state, state & kept | LOCKED, Ordering::Acquire);
            return if is_taken { Attempt::Acquired } else { Attempt::Again };
        }
        if state & PARKED != 0 || self.try_change(state, state | PARKED, Ordering::Relaxed) {
            Attempt::Announced
        } else {
            Attempt::Again
        }
    }

    /// Spins while the mutex is held, but not while the word has one of the bits `unless`.
    ///
    /// Spinning is useless and delays the holder if the holder shares the core with the waiters, or keeps the mutex for
    /// long. So each futile spin shortens the next one, and one success restores the full length.
    fn spin(&self, unless: u32) {
        let charged = self.charged.load(Ordering::Relaxed);
        let futile = charged & FUTILE;
        let mut state = LOCKED;
        spin_while(LOOKS - futile.saturating_sub(FORGIVEN), || {
            state = self.state.load(Ordering::Relaxed);
            state & (LOCKED | unless) == LOCKED
        });
        let next = if state & LOCKED == 0 { 0 } else { (futile + 1).min(FUTILE) };
        if next != futile && state & unless == 0 {
            // If another thread was faster, its value stays.
            let next = charged & !FUTILE | next;
            let _ = self.charged.compare_exchange(charged, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Spins after an unlock has woken this thread, which may be the one that `WOKEN` stands for. Returns the bits that
    /// stay in the word at its next change.
    fn after_wake(&self) -> u32 {
        // While others sleep too, a thread that holds the mutex wakes the next one.
        self.spin(PARKED);
        LOCKED | PARKED
    }

    #[inline]
    fn try_change(&self, from: u32, to: u32, order: Ordering) -> bool {
        self.state.compare_exchange_weak(from, to, order, Ordering::Relaxed).is_ok()
    }

    /// Sleeps in the queue. `kept` has the bits of the word that may stay: without [`WOKEN`], if this thread was woken.
    fn sleep(&self, wait: &mut Wait, kept: u32, deadline: Option<Instant>) -> Sleep {
        let kind = if wait.is_running() { LOSER } else { 0 };
        let sleeps = || {
            loop {
                let state = self.state.load(Ordering::Relaxed);
                if state & (LOCKED | PARKED) != LOCKED | PARKED {
                    return false;
                }
                // By one swap: a holder that still sees `WOKEN` leaves the mutex to this thread, and this thread must
                // notice that.
                if state & kept == state || self.try_change(state, state & kept, Ordering::Relaxed) {
                    return true;
                }
            }
        };
        // SAFETY: the closures neither panic nor park nor wake.
        unsafe { self.queue.sleep(kind, wait, deadline, sleeps, |was_last| self.gave_up(was_last)) }
    }

    /// Updates the word after a thread has left the locked queue because of a timeout.
    fn gave_up(&self, was_last: bool) {
        if was_last {
            self.state.fetch_and(!PARKED, Ordering::Relaxed);
        }
    }

    /// # Safety
    /// The queue is locked, and a thread has left it because of a timeout; `was_last` says whether it is empty now.
    pub(super) unsafe fn leave_queue(&self, was_last: bool, leave: impl FnOnce(&mut Account)) {
        // SAFETY: the caller holds the queue's lock.
        unsafe { self.queue.with_account(leave) };
        self.gave_up(was_last);
    }

    /// Makes the next unlock look into the queue, if the mutex is held. Returns whether it is.
    ///
    /// # Safety
    /// The queue is locked, and gets a thread before it is unlocked.
    pub(super) unsafe fn park_behind_holder(&self) -> bool {
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if state & LOCKED == 0 {
                return false;
            }
            if self.try_change(state, state | PARKED, Ordering::Relaxed) {
                return true;
            }
        }
    }

    /// Makes the next unlock look into the queue.
    ///
    /// # Safety
    /// As for [`QueueMutex::park_behind_holder`]; and a thread is awake that will take the mutex.
    pub(super) unsafe fn park_behind_next(&self) {
        self.state.fetch_or(PARKED, Ordering::Relaxed);
    }

    /// Enters a thread that another thread puts into the queue at `now` into the account.
    ///
    /// # Safety
    /// The queue is locked.
    pub(super) unsafe fn join_queue(&self, now: u64) -> Stake {
        // SAFETY: the caller holds the queue's lock.
        unsafe { self.queue.with_account(|account| account.join(now, true)) }
    }

    #[inline(never)]
    fn unlock_slow(&self, force_fair: bool) {
        let mut wakes = true;
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if force_fair || state & WOKEN == 0 {
                break;
            }
            let skips = skips(state);
            if state & PARKED != 0 && (reads_clock(skips) || wait::is_charged()) {
                match self.is_due(state) {
                    Due::Nothing => {}
                    Due::Charge => {
                        wakes = false;
                        break;
                    }
                    Due::Wake => break,
                }
            }
            if self.try_change(state, state & !(LOCKED | SKIPS) | skips, Ordering::Release) {
                return;
            }
        }
        self.unlock_queued(wakes, force_fair);
    }

    /// Returns what an unlock must do although a thread is on its way. The caller holds the mutex.
    #[inline(never)]
    fn is_due(&self, state: u32) -> Due {
        let now = clock::ticks();
        if is_late(state, now) {
            Due::Wake
        } else if wait::is_charged()
            && (now as u32).wrapping_sub(self.charged.load(Ordering::Relaxed) & !FUTILE) > ticks::MUCH
        {
            Due::Charge
        } else {
            Due::Nothing
        }
    }

    /// Gives up the mutex, charges this unlock, and wakes the first sleeper if `wakes`.
    #[cold]
    #[inline(never)]
    fn unlock_queued(&self, wakes: bool, force_fair: bool) {
        let has_lost = Cell::new(false);
        let mut first = queue::first();
        let choose = |kind| {
            // While the queue is locked, the thread on its way cannot go back to sleep. It may have done so before.
            if !wakes && self.state.load(Ordering::Relaxed) & WOKEN != 0 {
                return Choice::Stop;
            }
            let choice = first(kind);
            if let Choice::Wake = choice {
                has_lost.set(kind == LOSER);
            }
            choice
        };
        let decide = |woken: &queue::Woken| {
            let futile = self.charged.load(Ordering::Relaxed) & FUTILE;
            self.charged.store(woken.now as u32 & !FUTILE | futile, Ordering::Relaxed);
            let parked = if woken.has_more { PARKED } else { 0 };
            let state = self.state.load(Ordering::Relaxed);
            let on_its_way = if state & WOKEN == 0 { 0 } else { state & !(LOCKED | PARKED | SKIPS) };
            let is_handed_over = woken.count != 0 && (force_fair || woken.be_fair && has_lost.get());
            let (next, order) = if is_handed_over {
                (LOCKED | parked | on_its_way, Ordering::Relaxed)
            } else if woken.count != 0 && woken.has_more {
                (PARKED | WOKEN | coarse(woken.now), Ordering::Release)
            } else {
                (parked | on_its_way, Ordering::Release)
            };
            // A store would suffice, but loom lets a `fetch_or` of another thread miss it and still come after it.
            self.state.swap(next, order);
            is_handed_over
        };
        // SAFETY: the closures neither panic nor park nor wake.
        unsafe { self.queue.wake(choose, decide) };
    }

    #[cfg(not(loom))]
    #[inline]
    pub(super) fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) & LOCKED != 0
    }

    /// Gives the mutex to a waiting thread, if there is one, and takes it again.
    ///
    /// # Safety
    /// This thread holds the mutex.
    #[cfg(not(loom))]
    #[inline]
    pub(super) unsafe fn bump(&self) {
        if self.state.load(Ordering::Relaxed) & PARKED != 0 {
            self.unlock_slow(true);
            self.lock();
        }
    }

    #[cfg(all(test, loom))]
    pub(crate) fn is_settled(&self) -> bool {
        self.state.load(Ordering::Relaxed) == 0 && self.queue.is_settled()
    }
}
