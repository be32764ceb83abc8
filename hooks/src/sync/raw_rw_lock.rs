//! An adapter that records the waits of another crate's reader-writer lock.

use lock_api::{
    RawRwLockDowngrade, RawRwLockFair, RawRwLockRecursive, RawRwLockRecursiveTimed, RawRwLockTimed,
    RawRwLockUpgrade, RawRwLockUpgradeDowngrade, RawRwLockUpgradeFair, RawRwLockUpgradeTimed,
};

use super::foreign_lock_account::ForeignLockAccount;
use crate::wait::WaitReason;

/// Makes any `lock_api` reader-writer lock show up in the block and mutex profiles:
/// `lock_api::RwLock<RawRwLock<R>, T>` with `R` a raw lock such as `parking_lot::RawRwLock`.
///
/// As [`RawMutex`](super::RawMutex) for mutexes. Each of several readers is charged, when it leaves, for the time since
/// the previous one left, because the adapter cannot know which reader is the last.
pub struct RawRwLock<R> {
    inner: R,
    account: ForeignLockAccount,
}

impl<R> RawRwLock<R> {
    fn wait_to_read(&self, get_in: impl FnOnce() -> bool) -> bool {
        self.account.wait(WaitReason::RwLockRead, get_in)
    }

    fn wait_to_write(&self, get_in: impl FnOnce() -> bool) -> bool {
        self.account.wait(WaitReason::RwLockWrite, get_in)
    }
}

/// Wraps a wait without a deadline, which always succeeds.
fn surely(get_in: impl FnOnce()) -> impl FnOnce() -> bool {
    || {
        get_in();
        true
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: lock_api::RawRwLock> lock_api::RawRwLock for RawRwLock<R> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self { inner: R::INIT, account: ForeignLockAccount::new() };
    type GuardMarker = R::GuardMarker;

    #[inline]
    fn lock_shared(&self) {
        if !self.inner.try_lock_shared() {
            self.wait_to_read(surely(|| self.inner.lock_shared()));
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.inner.try_lock_shared()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller has the lock in this mode, and so the inner lock.
        self.account.unlock(|| unsafe { self.inner.unlock_shared() });
    }

    #[inline]
    fn lock_exclusive(&self) {
        if !self.inner.try_lock_exclusive() {
            self.wait_to_write(surely(|| self.inner.lock_exclusive()));
        }
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.inner.try_lock_exclusive()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller has the lock in this mode, and so the inner lock.
        self.account.unlock(|| unsafe { self.inner.unlock_exclusive() });
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.inner.is_locked_exclusive()
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: RawRwLockFair> RawRwLockFair for RawRwLock<R> {
    #[inline]
    unsafe fn unlock_shared_fair(&self) {
        // SAFETY: the caller has the lock in this mode, and so the inner lock.
        self.account.unlock(|| unsafe { self.inner.unlock_shared_fair() });
    }

    #[inline]
    unsafe fn unlock_exclusive_fair(&self) {
        // SAFETY: the caller has the lock in this mode, and so the inner lock.
        self.account.unlock(|| unsafe { self.inner.unlock_exclusive_fair() });
    }

    #[inline]
    unsafe fn bump_shared(&self) {
        // SAFETY: the caller has the lock in this mode, and so the inner lock.
        self.account.unlock(|| unsafe { self.inner.bump_shared() });
    }

    #[inline]
    unsafe fn bump_exclusive(&self) {
        // SAFETY: the caller has the lock in this mode, and so the inner lock.
        self.account.unlock(|| unsafe { self.inner.bump_exclusive() });
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: RawRwLockDowngrade> RawRwLockDowngrade for RawRwLock<R> {
    #[inline]
    unsafe fn downgrade(&self) {
        // SAFETY: the caller has the lock in this mode, and so the inner lock.
        self.account.unlock(|| unsafe { self.inner.downgrade() });
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: RawRwLockTimed> RawRwLockTimed for RawRwLock<R> {
    type Duration = R::Duration;
    type Instant = R::Instant;

    #[inline]
    fn try_lock_shared_for(&self, timeout: R::Duration) -> bool {
        self.inner.try_lock_shared() || self.wait_to_read(|| self.inner.try_lock_shared_for(timeout))
    }

    #[inline]
    fn try_lock_shared_until(&self, deadline: R::Instant) -> bool {
        self.inner.try_lock_shared() || self.wait_to_read(|| self.inner.try_lock_shared_until(deadline))
    }

    #[inline]
    fn try_lock_exclusive_for(&self, timeout: R::Duration) -> bool {
        self.inner.try_lock_exclusive() || self.wait_to_write(|| self.inner.try_lock_exclusive_for(timeout))
    }

    #[inline]
    fn try_lock_exclusive_until(&self, deadline: R::Instant) -> bool {
        self.inner.try_lock_exclusive()
            || self.wait_to_write(|| self.inner.try_lock_exclusive_until(deadline))
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: RawRwLockRecursive> RawRwLockRecursive for RawRwLock<R> {
    #[inline]
    fn lock_shared_recursive(&self) {
        if !self.inner.try_lock_shared_recursive() {
            self.wait_to_read(surely(|| self.inner.lock_shared_recursive()));
        }
    }

    #[inline]
    fn try_lock_shared_recursive(&self) -> bool {
        self.inner.try_lock_shared_recursive()
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: RawRwLockRecursiveTimed> RawRwLockRecursiveTimed for RawRwLock<R> {
    #[inline]
    fn try_lock_shared_recursive_for(&self, timeout: R::Duration) -> bool {
        self.inner.try_lock_shared_recursive()
            || self.wait_to_read(|| self.inner.try_lock_shared_recursive_for(timeout))
    }

    #[inline]
    fn try_lock_shared_recursive_until(&self, deadline: R::Instant) -> bool {
        self.inner.try_lock_shared_recursive()
            || self.wait_to_read(|| self.inner.try_lock_shared_recursive_until(deadline))
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: RawRwLockUpgrade> RawRwLockUpgrade for RawRwLock<R> {
    #[inline]
    fn lock_upgradable(&self) {
        if !self.inner.try_lock_upgradable() {
            self.wait_to_read(surely(|| self.inner.lock_upgradable()));
        }
    }

    #[inline]
    fn try_lock_upgradable(&self) -> bool {
        self.inner.try_lock_upgradable()
    }

    #[inline]
    unsafe fn unlock_upgradable(&self) {
        // SAFETY: the caller has the lock in this mode, and so the inner lock.
        self.account.unlock(|| unsafe { self.inner.unlock_upgradable() });
    }

    #[inline]
    unsafe fn upgrade(&self) {
        // SAFETY: the caller is the upgradable reader, and stays it after a failed attempt.
        unsafe {
            if !self.inner.try_upgrade() {
                self.wait_to_write(surely(|| self.inner.upgrade()));
            }
        }
    }

    #[inline]
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: the caller has the lock in this mode, and so the inner lock.
        unsafe { self.inner.try_upgrade() }
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: RawRwLockUpgradeFair> RawRwLockUpgradeFair for RawRwLock<R> {
    #[inline]
    unsafe fn unlock_upgradable_fair(&self) {
        // SAFETY: the caller has the lock in this mode, and so the inner lock.
        self.account.unlock(|| unsafe { self.inner.unlock_upgradable_fair() });
    }

    #[inline]
    unsafe fn bump_upgradable(&self) {
        // SAFETY: the caller has the lock in this mode, and so the inner lock.
        self.account.unlock(|| unsafe { self.inner.bump_upgradable() });
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: RawRwLockUpgradeDowngrade> RawRwLockUpgradeDowngrade for RawRwLock<R> {
    #[inline]
    unsafe fn downgrade_upgradable(&self) {
        // SAFETY: the caller has the lock in this mode, and so the inner lock.
        self.account.unlock(|| unsafe { self.inner.downgrade_upgradable() });
    }

    #[inline]
    unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: the caller has the lock in this mode, and so the inner lock.
        self.account.unlock(|| unsafe { self.inner.downgrade_to_upgradable() });
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: RawRwLockUpgradeTimed> RawRwLockUpgradeTimed for RawRwLock<R> {
    #[inline]
    fn try_lock_upgradable_for(&self, timeout: R::Duration) -> bool {
        self.inner.try_lock_upgradable() || self.wait_to_read(|| self.inner.try_lock_upgradable_for(timeout))
    }

    #[inline]
    fn try_lock_upgradable_until(&self, deadline: R::Instant) -> bool {
        self.inner.try_lock_upgradable()
            || self.wait_to_read(|| self.inner.try_lock_upgradable_until(deadline))
    }

    #[inline]
    unsafe fn try_upgrade_for(&self, timeout: R::Duration) -> bool {
        // SAFETY: the caller is the upgradable reader, and stays it after a failed attempt.
        unsafe { self.inner.try_upgrade() || self.wait_to_write(|| self.inner.try_upgrade_for(timeout)) }
    }

    #[inline]
    unsafe fn try_upgrade_until(&self, deadline: R::Instant) -> bool {
        // SAFETY: the caller is the upgradable reader, and stays it after a failed attempt.
        unsafe { self.inner.try_upgrade() || self.wait_to_write(|| self.inner.try_upgrade_until(deadline)) }
    }
}
