//! The queue of the threads that wait for one lock, with the lock's account.
//!
//! The queue is parking_lot_core's at the address of the [`ChargedQueue`]; the account lies in the [`ChargedQueue`] and is
//! touched with that queue locked only. [`Mutex`](crate::sync::Mutex), [`RwLock`](crate::sync::RwLock) and the adapters for
//! locks of others each have one.

use std::time::Instant;

use crate::inner::account::{Account, Charge};
use crate::inner::primitive::UnsafeCell;
use crate::inner::queue::{self, Choice, Sleep, WaiterKind, Woken};
use crate::inner::wait::{self, Wait};

pub(crate) struct ChargedQueue {
    account: UnsafeCell<Account>,
}

// SAFETY: the account is only reached with the queue at this address locked; see `with_account`.
unsafe impl Sync for ChargedQueue {}
// SAFETY: the account is plain data.
unsafe impl Send for ChargedQueue {}
// No code of the program runs while the account is borrowed.
impl std::panic::RefUnwindSafe for ChargedQueue {}

/// What a thread that wants a lock has done after a look at the lock's word.
pub(crate) enum Attempt {
    /// It took the lock.
    Acquired,
    /// The word has changed in between.
    Again,
    /// It made sure that the thread which gives up the lock looks into the queue.
    Announced,
}

/// Tries to take a lock and sleeps in turns, until the lock is taken or handed over. Returns false at the deadline.
#[inline]
pub(crate) fn acquire(
    wait: &mut Wait,
    mut attempt: impl FnMut() -> Attempt,
    mut sleep: impl FnMut(&mut Wait) -> Sleep,
) -> bool {
    loop {
        match attempt() {
            Attempt::Acquired => return true,
            Attempt::Again => continue,
            Attempt::Announced => {}
        }
        match sleep(wait) {
            Sleep::Woken { is_handed_over: true } => return true,
            Sleep::Woken { is_handed_over: false } | Sleep::Refused => {}
            Sleep::TimedOut => return false,
        }
    }
}

impl ChargedQueue {
    rtprof_runtime::const_fn! {
        pub(crate) const fn new() -> Self {
            Self { account: UnsafeCell::new(Account::EMPTY) }
        }
    }

    pub(crate) fn key(&self) -> usize {
        &raw const *self as usize
    }

    /// # Safety
    /// The queue at [`ChargedQueue::key`] is locked: the caller is a closure that [`queue`] runs.
    pub(crate) unsafe fn with_account<T>(&self, f: impl FnOnce(&mut Account) -> T) -> T {
        // SAFETY: the queue is locked, so no other thread reaches the account.
        self.account.with_mut(|account| f(unsafe { &mut *account }))
    }

    /// Locks the queue, and runs `f` with the account and the time.
    ///
    /// # Safety
    /// No thread sleeps in this queue. `f` does not panic, and neither parks nor wakes.
    pub(crate) unsafe fn with_locked_account(&self, f: impl FnOnce(&mut Account, u64)) {
        let decide = |woken: &Woken| {
            // SAFETY: `decide` runs with the queue locked.
            unsafe { self.with_account(|account| f(account, woken.now)) };
            false
        };
        // SAFETY: the key is this object's address, and `f` keeps the promise.
        unsafe { queue::wake(self.key(), |_| Choice::Stop, decide) };
    }

    /// Sleeps in the queue until woken, or until `deadline`. `sleeps` runs with the queue locked and says whether to
    /// sleep at all. `gave_up` runs at the deadline, with the queue locked again; its argument says whether the queue
    /// is empty now.
    ///
    /// # Safety
    /// The closures do not panic, and neither park nor wake.
    pub(crate) unsafe fn sleep(
        &self,
        kind: WaiterKind,
        wait: &mut Wait,
        deadline: Option<Instant>,
        sleeps: impl FnOnce() -> bool,
        gave_up: impl FnOnce(bool),
    ) -> Sleep {
        let validate = |wait: &mut Wait| {
            let sleeps = sleeps();
            if sleeps {
                // SAFETY: `validate` runs with the queue locked.
                unsafe { self.with_account(|account| wait.join(account)) };
            }
            sleeps
        };
        let timed_out = |wait: &mut Wait, was_last| {
            // SAFETY: `timed_out` runs with the queue locked.
            unsafe { self.with_account(|account| wait.leave(account)) };
            gave_up(was_last);
        };
        // SAFETY: the key is this object's address, and the closures keep the promise.
        unsafe { queue::park(self.key(), kind, wait, validate, || {}, timed_out, deadline) }
    }

    /// Wakes the threads that `choose` picks, as [`queue::wake`] does, and charges the caller for all that wait. The charge is
    /// made before `decide` gives the lock up: from then on another thread may free the lock's memory.
    ///
    /// # Safety
    /// The closures do not panic, and neither park nor wake.
    pub(crate) unsafe fn wake(
        &self,
        choose: impl FnMut(WaiterKind) -> Choice,
        decide: impl FnOnce(&Woken) -> bool,
    ) {
        let mut charge = Charge::default();
        let decide = |woken: &Woken| {
            // SAFETY: `decide` runs with the queue locked.
            charge = unsafe { self.with_account(|account| account.charge(woken.now, woken.count as u32)) };
            decide(woken)
        };
        // SAFETY: the key is this object's address, and the closures keep the promise.
        unsafe { queue::wake(self.key(), choose, decide) };
        wait::charged(charge);
    }

    /// Whether the account is as it was at the beginning. For tests, when no other thread uses the lock.
    #[cfg(all(test, loom))]
    pub(crate) fn is_settled(&self) -> bool {
        // SAFETY: the tests ask when no other thread uses the lock.
        unsafe { self.with_account(|account| account.is_settled()) }
    }
}
