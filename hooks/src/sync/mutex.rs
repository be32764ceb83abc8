//! The mutex: a byte, a queue, and an account of who waits for whom.
//!
//! | `PARKED` | `LOCKED` | |
//! |---|---|---|
//! | 0 | 0 | free |
//! | 0 | 1 | held, nobody waits |
//! | 1 | 1 | held, threads wait; its unlock wakes the first of them and is charged for all |
//! | 1 | 0 | free, and threads wait: the one that was woken races with newcomers |
//!
//! A thread that is woken may find the mutex taken by a newcomer, and waits again: handing it over would make
//! every unlock wait for a thread to be scheduled. About every half millisecond of contention it is handed
//! over all the same, so that nobody waits for ever (as in parking_lot, whose algorithm this is).

use std::panic::RefUnwindSafe;
#[cfg(not(loom))]
use std::time::Duration;
use std::time::Instant;

use crate::account::{Account, Charge};
#[cfg(not(loom))]
use crate::deadline;
use crate::frame;
use crate::primitive::{AtomicU8, Ordering, UnsafeCell};
use crate::queue::{self, Sleep};
use crate::spin::spin_while;
use crate::wait::{self, Wait, WaitReason};

/// Somebody holds the mutex.
const LOCKED: u8 = 1;
/// Threads are in its queue, or about to be. Cleared only with the queue locked, so that no sleeper is
/// ever without it.
const PARKED: u8 = 2;

/// The raw lock of [`Mutex`](super::Mutex), for `lock_api`. Locks are not fair: a newcomer may be faster than a
/// thread that was woken; but every half millisecond or so of contention the lock is handed to whoever waits longest.
pub struct QueueMutex {
    state: AtomicU8,
    /// Only touched with the queue at this lock's address locked.
    account: UnsafeCell<Account>,
}

// SAFETY: the account is only reached by whoever holds the lock of the queue at this address; see `with_account`.
unsafe impl Sync for QueueMutex {}
// SAFETY: nothing in it is bound to a thread.
unsafe impl Send for QueueMutex {}
// No code of the program runs inside of it that could panic.
impl RefUnwindSafe for QueueMutex {}

impl QueueMutex {
    #[cfg(not(loom))]
    const fn new() -> Self {
        Self { state: AtomicU8::new(0), account: UnsafeCell::new(Account::EMPTY) }
    }

    /// Under loom the atomics are not `const`.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { state: AtomicU8::new(0), account: UnsafeCell::new(Account::EMPTY) }
    }

    #[inline]
    pub(crate) fn lock(&self) {
        if self.state.compare_exchange_weak(0, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slow(None);
            frame::keep();
        }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state & LOCKED != 0 {
                return false;
            }
            match self.try_take(state) {
                Ok(()) => return true,
                Err(seen) => state = seen,
            }
        }
    }

    #[inline]
    pub(crate) fn lock_until(&self, deadline: Option<Instant>) -> bool {
        if self.state.compare_exchange_weak(0, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
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
        if self.state.compare_exchange(LOCKED, 0, Ordering::Release, Ordering::Relaxed).is_err() {
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
        if self.state.compare_exchange(LOCKED, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.unlock_slow(true);
            frame::keep();
        }
    }

    #[inline]
    fn try_take(&self, state: u8) -> Result<(), u8> {
        self.state
            .compare_exchange_weak(state, state | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .map(drop)
    }

    fn key(&self) -> usize {
        &raw const *self as usize
    }

    /// # Safety
    /// The queue at [`QueueMutex::key`] is locked: the caller is a closure that `queue` runs.
    unsafe fn with_account<T>(&self, f: impl FnOnce(&mut Account) -> T) -> T {
        // SAFETY: the caller's promise makes this access the only one.
        self.account.with_mut(|account| f(unsafe { &mut *account }))
    }

    #[cold]
    fn lock_slow(&self, deadline: Option<Instant>) -> bool {
        // While others sleep already there is nothing to hope for.
        spin_while(|| self.state.load(Ordering::Relaxed) == LOCKED);
        let mut wait = Wait::prepare(WaitReason::MutexLock);
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state & LOCKED == 0 {
                match self.try_take(state) {
                    Ok(()) => break,
                    Err(seen) => state = seen,
                }
                continue;
            }
            if state & PARKED == 0
                && let Err(seen) = self.state.compare_exchange_weak(
                    state,
                    state | PARKED,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
            {
                state = seen;
                continue;
            }
            match self.sleep(&mut wait, deadline) {
                Sleep::Woken { is_handed_over: true } => break,
                Sleep::Woken { .. } | Sleep::Refused => {}
                Sleep::TimedOut => {
                    wait.end();
                    return false;
                }
            }
            state = self.state.load(Ordering::Relaxed);
        }
        wait.end();
        true
    }

    fn sleep(&self, wait: &mut Wait, deadline: Option<Instant>) -> Sleep {
        let validate = |wait: &mut Wait| {
            let is_held = self.state.load(Ordering::Relaxed) == LOCKED | PARKED;
            if is_held {
                // SAFETY: validation runs with the queue locked.
                unsafe { self.with_account(|account| wait.join(account)) };
            }
            is_held
        };
        let timed_out = |wait: &mut Wait, was_last| {
            // SAFETY: so does this.
            unsafe { self.with_account(|account| wait.leave(account)) };
            if was_last {
                self.state.fetch_and(!PARKED, Ordering::Relaxed);
            }
        };
        // SAFETY: the key is this lock's own address, and the closures neither panic nor park nor wake.
        unsafe { queue::park(self.key(), 0, wait, validate, || {}, timed_out, deadline) }
    }

    #[cold]
    fn unlock_slow(&self, force_fair: bool) {
        let mut charge = Charge::default();
        let decide = |woken: &queue::Woken| {
            // SAFETY: this runs with the queue locked.
            charge = unsafe { self.with_account(|account| account.charge(woken.now, woken.count as u32)) };
            // The account comes first: once the mutex is free, somebody else may free its memory.
            let parked = if woken.has_more { PARKED } else { 0 };
            let is_handed_over = woken.count != 0 && (force_fair || woken.be_fair);
            if is_handed_over {
                self.state.store(LOCKED | parked, Ordering::Relaxed);
            } else {
                self.state.store(parked, Ordering::Release);
            }
            is_handed_over
        };
        // SAFETY: the key is this lock's own address, and the closures neither panic nor park nor wake.
        unsafe { queue::wake(self.key(), queue::first(), decide) };
        wait::charged(charge);
    }

    #[cfg(all(test, loom))]
    pub(crate) fn is_settled(&self) -> bool {
        // SAFETY: the tests ask when no other thread uses the lock.
        self.state.load(Ordering::Relaxed) == 0 && unsafe { self.with_account(|a| a.is_settled()) }
    }
}

// SAFETY: `LOCKED` is taken by one thread at a time, with Acquire, and given up with Release, or handed over
// through the queue, whose lock orders the two threads.
#[cfg(not(loom))]
unsafe impl lock_api::RawMutex for QueueMutex {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self::new();
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        QueueMutex::lock(self);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        QueueMutex::try_lock(self)
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller's promise.
        unsafe { QueueMutex::unlock(self) };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) & LOCKED != 0
    }
}

// SAFETY: as above; a fair unlock hands the lock over while it stays `LOCKED`.
#[cfg(not(loom))]
unsafe impl lock_api::RawMutexFair for QueueMutex {
    #[inline]
    unsafe fn unlock_fair(&self) {
        // SAFETY: the caller's promise.
        unsafe { QueueMutex::unlock_fair(self) };
    }

    #[inline]
    unsafe fn bump(&self) {
        if self.state.load(Ordering::Relaxed) & PARKED != 0 {
            self.unlock_slow(true);
            self.lock();
        }
    }
}

// SAFETY: as above; a thread that gives up does not hold the lock.
#[cfg(not(loom))]
unsafe impl lock_api::RawMutexTimed for QueueMutex {
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    fn try_lock_for(&self, timeout: Duration) -> bool {
        // Without reading the clock, when the lock is free.
        QueueMutex::try_lock(self) || self.lock_until(deadline::after(timeout))
    }

    #[inline]
    fn try_lock_until(&self, deadline: Instant) -> bool {
        self.lock_until(Some(deadline))
    }
}
