//! An adapter that records the waits of another crate's reader-writer lock.

use lock_api::{
    RawRwLockDowngrade, RawRwLockFair, RawRwLockRecursive, RawRwLockRecursiveTimed, RawRwLockTimed,
    RawRwLockUpgrade, RawRwLockUpgradeDowngrade, RawRwLockUpgradeFair, RawRwLockUpgradeTimed,
};

use super::foreign_lock_account::ForeignLockAccount;
use crate::inner::wait::WaitReason;

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

/// Methods that go to the inner lock. A method that may wait first tries, so that a free lock is never a wait.
macro_rules! forward {
    ($(lock $lock:ident, $try_lock:ident, $wait:ident;)* $(timed $for:ident, $until:ident, $try:ident, $timed_wait:ident;)*
     $(unlock $unlock:ident;)*) => {
        $(
            #[inline]
            fn $lock(&self) {
                if !self.inner.$try_lock() {
                    self.$wait(|| {
                        self.inner.$lock();
                        true
                    });
                }
            }

            #[inline]
            fn $try_lock(&self) -> bool {
                self.inner.$try_lock()
            }
        )*
        $(
            #[inline]
            fn $for(&self, timeout: R::Duration) -> bool {
                self.inner.$try() || self.$timed_wait(|| self.inner.$for(timeout))
            }

            #[inline]
            fn $until(&self, deadline: R::Instant) -> bool {
                self.inner.$try() || self.$timed_wait(|| self.inner.$until(deadline))
            }
        )*
        $(
            #[inline]
            unsafe fn $unlock(&self) {
                // SAFETY: the caller has the lock in this mode, and so the inner lock.
                self.account.unlock(|| unsafe { self.inner.$unlock() });
            }
        )*
    };
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: lock_api::RawRwLock> lock_api::RawRwLock for RawRwLock<R> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self { inner: R::INIT, account: ForeignLockAccount::new() };
    type GuardMarker = R::GuardMarker;

    forward! {
        lock lock_shared, try_lock_shared, wait_to_read;
        lock lock_exclusive, try_lock_exclusive, wait_to_write;
        unlock unlock_shared;
        unlock unlock_exclusive;
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
    forward! {
        unlock unlock_shared_fair;
        unlock unlock_exclusive_fair;
        unlock bump_shared;
        unlock bump_exclusive;
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: RawRwLockDowngrade> RawRwLockDowngrade for RawRwLock<R> {
    forward! { unlock downgrade; }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: RawRwLockTimed> RawRwLockTimed for RawRwLock<R> {
    type Duration = R::Duration;
    type Instant = R::Instant;

    forward! {
        timed try_lock_shared_for, try_lock_shared_until, try_lock_shared, wait_to_read;
        timed try_lock_exclusive_for, try_lock_exclusive_until, try_lock_exclusive, wait_to_write;
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: RawRwLockRecursive> RawRwLockRecursive for RawRwLock<R> {
    forward! { lock lock_shared_recursive, try_lock_shared_recursive, wait_to_read; }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: RawRwLockRecursiveTimed> RawRwLockRecursiveTimed for RawRwLock<R> {
    forward! {
        timed try_lock_shared_recursive_for, try_lock_shared_recursive_until, try_lock_shared_recursive, wait_to_read;
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: RawRwLockUpgrade> RawRwLockUpgrade for RawRwLock<R> {
    forward! {
        lock lock_upgradable, try_lock_upgradable, wait_to_read;
        unlock unlock_upgradable;
    }

    #[inline]
    unsafe fn upgrade(&self) {
        // SAFETY: the caller is the upgradable reader, and stays it after a failed attempt.
        unsafe {
            if !self.inner.try_upgrade() {
                self.wait_to_write(|| {
                    self.inner.upgrade();
                    true
                });
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
    forward! {
        unlock unlock_upgradable_fair;
        unlock bump_upgradable;
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: RawRwLockUpgradeDowngrade> RawRwLockUpgradeDowngrade for RawRwLock<R> {
    forward! {
        unlock downgrade_upgradable;
        unlock downgrade_to_upgradable;
    }
}

// SAFETY: every call goes to the inner lock, which keeps the contract.
unsafe impl<R: RawRwLockUpgradeTimed> RawRwLockUpgradeTimed for RawRwLock<R> {
    forward! { timed try_lock_upgradable_for, try_lock_upgradable_until, try_lock_upgradable, wait_to_read; }

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
