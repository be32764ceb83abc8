//! An adapter that records the waits of another crate's mutex.

use super::foreign_lock_account::ForeignLockAccount;
use crate::inner::wait::WaitReason;

/// Makes any `lock_api` mutex show up in the block and mutex profiles: `lock_api::Mutex<RawMutex<R>, T>` with `R` a
/// raw mutex such as `parking_lot::RawMutex`.
///
/// The inner lock keeps its fairness and its fast path; the adapter adds 40 bytes. Waits end, and are charged, at the
/// unlock that let the thread in. If that unlock came before the waiter was in the account, the wait ends when the
/// thread has the lock, and is charged to no thread. [`Mutex`](super::Mutex) is exact in this case, because it knows
/// which thread it wakes.
///
/// ```
/// # use rtprof_hooks as rtprof;
/// use rtprof::sync::RawMutex;
///
/// static TOTAL: lock_api::Mutex<RawMutex<parking_lot::RawMutex>, u64> = lock_api::Mutex::new(0);
/// *TOTAL.lock() += 1;
/// ```
pub struct RawMutex<R> {
    inner: R,
    account: ForeignLockAccount,
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: lock_api::RawMutex> lock_api::RawMutex for RawMutex<R> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self { inner: R::INIT, account: ForeignLockAccount::new() };
    type GuardMarker = R::GuardMarker;

    #[inline]
    fn lock(&self) {
        if !self.inner.try_lock() {
            self.wait(|| {
                self.inner.lock();
                true
            });
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.inner.try_lock()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller has the lock in this mode, and so the inner lock.
        self.account.unlock(|| unsafe { self.inner.unlock() });
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: lock_api::RawMutexFair> lock_api::RawMutexFair for RawMutex<R> {
    #[inline]
    unsafe fn unlock_fair(&self) {
        // SAFETY: the caller has the lock in this mode, and so the inner lock.
        self.account.unlock(|| unsafe { self.inner.unlock_fair() });
    }

    #[inline]
    unsafe fn bump(&self) {
        // SAFETY: the caller has the lock in this mode, and so the inner lock.
        self.account.unlock(|| unsafe { self.inner.bump() });
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: lock_api::RawMutexTimed> lock_api::RawMutexTimed for RawMutex<R> {
    type Duration = R::Duration;
    type Instant = R::Instant;

    #[inline]
    fn try_lock_for(&self, timeout: R::Duration) -> bool {
        self.inner.try_lock() || self.wait(|| self.inner.try_lock_for(timeout))
    }

    #[inline]
    fn try_lock_until(&self, deadline: R::Instant) -> bool {
        self.inner.try_lock() || self.wait(|| self.inner.try_lock_until(deadline))
    }
}

impl<R> RawMutex<R> {
    fn wait(&self, get_in: impl FnOnce() -> bool) -> bool {
        self.account.wait(WaitReason::MutexLock, get_in)
    }
}
