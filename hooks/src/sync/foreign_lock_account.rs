//! The account of a lock that is not ours, kept from outside.
//!
//! An adapter sees when a thread begins to wait and when it has the lock, but not which thread is woken. So a waiter
//! stays in the account until it has the lock, and each unlock that finds a waiter in the account is charged, just
//! before it unlocks. The wait ends at the last such unlock: the time after it, until the kernel runs the thread, is
//! charged to no thread.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::frame;
use crate::inner::account::{Account, Charge};
use crate::inner::charged_queue::ChargedQueue;
use crate::inner::wait::{self, Wait, WaitReason};

/// The account and the queue that protects it.
pub(super) struct ForeignLockAccount {
    /// The number of threads in the account, to be read without the queue's lock.
    waiting: AtomicU32,
    /// No thread sleeps in this queue: its lock protects the account.
    queue: ChargedQueue,
}

/// Removes a waiter from the account when the inner lock panics, without an event.
struct Abandoned<'a> {
    account: &'a ForeignLockAccount,
    wait: &'a mut Wait,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        self.account.with_account(|account, _| {
            self.account.waiting.fetch_sub(1, Ordering::Relaxed);
            self.wait.leave(account);
        });
    }
}

impl ForeignLockAccount {
    pub(super) const fn new() -> Self {
        Self { waiting: AtomicU32::new(0), queue: ChargedQueue::new() }
    }

    fn with_account(&self, f: impl FnOnce(&mut Account, u64)) {
        // SAFETY: no thread sleeps in this queue, and `f`, a closure of this file, only adds numbers.
        unsafe { self.queue.with_locked_account(f) };
    }

    /// Runs `get_in`, which waits for the lock and returns whether it has the lock, as a wait.
    #[cold]
    pub(super) fn wait(&self, reason: WaitReason, get_in: impl FnOnce() -> bool) -> bool {
        let mut wait = Wait::prepare(reason);
        self.with_account(|account, _| {
            wait.join(account);
            self.waiting.fetch_add(1, Ordering::Relaxed);
        });
        let abandoned = Abandoned { account: self, wait: &mut wait };
        let is_in = get_in();
        core::mem::forget(abandoned);
        self.with_account(|account, now| {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            if is_in { wait.let_in(account, now) } else { wait.leave(account) }
        });
        wait.end();
        is_in
    }

    /// Runs `unlock`, and charges the caller if other threads wait.
    #[inline]
    pub(super) fn unlock(&self, unlock: impl FnOnce()) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            unlock();
        } else {
            self.unlock_charged(unlock);
            frame::keep();
        }
    }

    #[cold]
    fn unlock_charged(&self, unlock: impl FnOnce()) {
        let mut charge = Charge::default();
        self.with_account(|account, now| charge = account.charge(now, 0));
        unlock();
        wait::charged(charge);
    }
}
