//! The traits of `lock_api` for the reader-writer lock.

use std::time::{Duration, Instant};

use super::rw_lock::QueueRwLock;
use super::rw_state::{UPGRADABLE, WRITER, Want};
use crate::deadline;

// Readers and the writer exclude each other by the state word, which is taken with
// Acquire and given up with Release, or handed over through the queue, whose lock orders the two threads.

// SAFETY: the state word excludes readers and the writer from each other.
unsafe impl lock_api::RawRwLock for QueueRwLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self::new();
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        self.enter_until(Want::Read, None);
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.try_enter(Want::Read)
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller has the lock in this mode.
        unsafe { self.leave_shared() };
    }

    #[inline]
    fn lock_exclusive(&self) {
        self.enter_until(Want::Write, None);
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.try_enter(Want::Write)
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller has the lock in this mode.
        unsafe { self.leave_exclusive() };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        QueueRwLock::is_locked(self)
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        QueueRwLock::is_locked_exclusive(self)
    }
}

// SAFETY: the state word excludes readers and the writer from each other.
unsafe impl lock_api::RawRwLockFair for QueueRwLock {
    #[inline]
    unsafe fn unlock_shared_fair(&self) {
        // A writer that waits has the lock as soon as the readers are out: that is fair already.
        // SAFETY: the caller has the lock in this mode.
        unsafe { self.leave_shared() };
    }

    #[inline]
    unsafe fn unlock_exclusive_fair(&self) {
        // SAFETY: the caller has the lock in this mode.
        unsafe { self.release_fair(WRITER) };
    }
}

// SAFETY: the state word excludes readers and the writer from each other.
unsafe impl lock_api::RawRwLockDowngrade for QueueRwLock {
    #[inline]
    unsafe fn downgrade(&self) {
        // SAFETY: the caller has the lock in this mode.
        unsafe { self.release(WRITER, Want::Read.adds()) };
    }
}

// SAFETY: the state word excludes readers and the writer, and a thread that gives up does not have the lock.
unsafe impl lock_api::RawRwLockTimed for QueueRwLock {
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        self.enter_for(Want::Read, timeout)
    }

    #[inline]
    fn try_lock_shared_until(&self, deadline: Instant) -> bool {
        self.enter_until(Want::Read, Some(deadline))
    }

    #[inline]
    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        self.enter_for(Want::Write, timeout)
    }

    #[inline]
    fn try_lock_exclusive_until(&self, deadline: Instant) -> bool {
        self.enter_until(Want::Write, Some(deadline))
    }
}

// SAFETY: the state word excludes readers and the writer from each other.
unsafe impl lock_api::RawRwLockRecursive for QueueRwLock {
    #[inline]
    fn lock_shared_recursive(&self) {
        self.enter_until(Want::ReadAgain, None);
    }

    #[inline]
    fn try_lock_shared_recursive(&self) -> bool {
        self.try_enter(Want::ReadAgain)
    }
}

// SAFETY: the state word excludes readers and the writer from each other.
unsafe impl lock_api::RawRwLockRecursiveTimed for QueueRwLock {
    #[inline]
    fn try_lock_shared_recursive_for(&self, timeout: Duration) -> bool {
        self.enter_for(Want::ReadAgain, timeout)
    }

    #[inline]
    fn try_lock_shared_recursive_until(&self, deadline: Instant) -> bool {
        self.enter_until(Want::ReadAgain, Some(deadline))
    }
}

// SAFETY: the state word excludes readers and the writer, and its bit admits one upgradable reader at a time.
unsafe impl lock_api::RawRwLockUpgrade for QueueRwLock {
    #[inline]
    fn lock_upgradable(&self) {
        self.enter_until(Want::Upgradable, None);
    }

    #[inline]
    fn try_lock_upgradable(&self) -> bool {
        self.try_enter(Want::Upgradable)
    }

    #[inline]
    unsafe fn unlock_upgradable(&self) {
        // SAFETY: the caller has the lock in this mode.
        unsafe { self.release(Want::Upgradable.adds(), 0) };
    }

    #[inline]
    unsafe fn upgrade(&self) {
        // SAFETY: the caller has the lock in this mode.
        unsafe { self.upgrade_until(None) };
    }

    #[inline]
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: the caller has the lock in this mode.
        unsafe { QueueRwLock::try_upgrade(self) }
    }
}

// SAFETY: the state word excludes readers and the writer from each other.
unsafe impl lock_api::RawRwLockUpgradeFair for QueueRwLock {
    #[inline]
    unsafe fn unlock_upgradable_fair(&self) {
        // SAFETY: the caller has the lock in this mode.
        unsafe { self.release_fair(Want::Upgradable.adds()) };
    }
}

// SAFETY: the state word excludes readers and the writer from each other.
unsafe impl lock_api::RawRwLockUpgradeDowngrade for QueueRwLock {
    #[inline]
    unsafe fn downgrade_upgradable(&self) {
        // SAFETY: the caller has the lock in this mode.
        unsafe { self.release(UPGRADABLE, 0) };
    }

    #[inline]
    unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: the caller has the lock in this mode.
        unsafe { self.release(WRITER, Want::Upgradable.adds()) };
    }
}

// SAFETY: the state word excludes readers and the writer, and a thread that gives up stays the upgradable reader.
unsafe impl lock_api::RawRwLockUpgradeTimed for QueueRwLock {
    #[inline]
    fn try_lock_upgradable_for(&self, timeout: Duration) -> bool {
        self.enter_for(Want::Upgradable, timeout)
    }

    #[inline]
    fn try_lock_upgradable_until(&self, deadline: Instant) -> bool {
        self.enter_until(Want::Upgradable, Some(deadline))
    }

    #[inline]
    unsafe fn try_upgrade_for(&self, timeout: Duration) -> bool {
        // SAFETY: the caller has the lock in this mode.
        unsafe { QueueRwLock::try_upgrade(self) || self.upgrade_until(deadline::after(timeout)) }
    }

    #[inline]
    unsafe fn try_upgrade_until(&self, deadline: Instant) -> bool {
        // SAFETY: the caller has the lock in this mode.
        unsafe { self.upgrade_until(Some(deadline)) }
    }
}

impl QueueRwLock {
    /// Reads the clock only if the lock is not free.
    #[inline]
    fn enter_for(&self, want: Want, timeout: Duration) -> bool {
        self.try_enter(want) || self.enter_until(want, deadline::after(timeout))
    }
}
