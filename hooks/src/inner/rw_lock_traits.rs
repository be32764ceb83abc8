//! The traits of `lock_api` for the reader-writer lock.

use std::time::{Duration, Instant};

use crate::inner::deadline;
use crate::inner::rw_lock::QueueRwLock;
use crate::inner::rw_state::{UPGRADABLE, WRITER, Want};

// Readers and the writer exclude each other by the state word, which is taken with Acquire and given up with Release, or
// handed over through the queue, whose lock orders the two threads.

/// Methods of `lock_api`'s traits: the mode in which each takes the lock, or how each gives it up.
macro_rules! methods {
    ($(take $lock:ident, $try_lock:ident: $want:ident;)* $(timed $for:ident, $until:ident: $timed_want:ident;)*
     $(give_up $unlock:ident: $method:ident($($argument:expr),*);)*) => {
        $(
            #[inline]
            fn $lock(&self) {
                self.enter_until(Want::$want, None);
            }

            #[inline]
            fn $try_lock(&self) -> bool {
                self.try_enter(Want::$want)
            }
        )*
        $(
            #[inline]
            fn $for(&self, timeout: Duration) -> bool {
                // Reads the clock only if the lock is not free.
                self.try_enter(Want::$timed_want) || self.enter_until(Want::$timed_want, deadline::after(timeout))
            }

            #[inline]
            fn $until(&self, deadline: Instant) -> bool {
                self.enter_until(Want::$timed_want, Some(deadline))
            }
        )*
        $(
            #[inline]
            unsafe fn $unlock(&self) {
                // SAFETY: the caller has the lock in this mode.
                unsafe { self.$method($($argument),*) };
            }
        )*
    };
}

// SAFETY: the state word excludes readers and the writer from each other.
unsafe impl lock_api::RawRwLock for QueueRwLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self::new();
    type GuardMarker = lock_api::GuardNoSend;

    methods! {
        take lock_shared, try_lock_shared: Read;
        take lock_exclusive, try_lock_exclusive: Write;
        give_up unlock_shared: leave_shared();
        give_up unlock_exclusive: leave_exclusive();
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
    methods! {
        // A writer that waits has the lock as soon as the readers have left: that is fair already.
        give_up unlock_shared_fair: leave_shared();
        give_up unlock_exclusive_fair: release_fair(WRITER);
    }
}

// SAFETY: the state word excludes readers and the writer from each other.
unsafe impl lock_api::RawRwLockDowngrade for QueueRwLock {
    methods! { give_up downgrade: release(WRITER, Want::Read.adds()); }
}

// SAFETY: the state word excludes readers and the writer, and a thread that gives up does not have the lock.
unsafe impl lock_api::RawRwLockTimed for QueueRwLock {
    type Duration = Duration;
    type Instant = Instant;

    methods! {
        timed try_lock_shared_for, try_lock_shared_until: Read;
        timed try_lock_exclusive_for, try_lock_exclusive_until: Write;
    }
}

// SAFETY: the state word excludes readers and the writer from each other.
unsafe impl lock_api::RawRwLockRecursive for QueueRwLock {
    methods! { take lock_shared_recursive, try_lock_shared_recursive: ReadAgain; }
}

// SAFETY: the state word excludes readers and the writer from each other.
unsafe impl lock_api::RawRwLockRecursiveTimed for QueueRwLock {
    methods! { timed try_lock_shared_recursive_for, try_lock_shared_recursive_until: ReadAgain; }
}

// SAFETY: the state word excludes readers and the writer, and its bit admits one upgradable reader at a time.
unsafe impl lock_api::RawRwLockUpgrade for QueueRwLock {
    methods! {
        take lock_upgradable, try_lock_upgradable: Upgradable;
        give_up unlock_upgradable: release(Want::Upgradable.adds(), 0);
        give_up upgrade: upgrade_until(None);
    }

    #[inline]
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: the caller has the lock in this mode.
        unsafe { QueueRwLock::try_upgrade(self) }
    }
}

// SAFETY: the state word excludes readers and the writer from each other.
unsafe impl lock_api::RawRwLockUpgradeFair for QueueRwLock {
    methods! { give_up unlock_upgradable_fair: release_fair(Want::Upgradable.adds()); }
}

// SAFETY: the state word excludes readers and the writer from each other.
unsafe impl lock_api::RawRwLockUpgradeDowngrade for QueueRwLock {
    methods! {
        give_up downgrade_upgradable: release(UPGRADABLE, 0);
        give_up downgrade_to_upgradable: release(WRITER, Want::Upgradable.adds());
    }
}

// SAFETY: the state word excludes readers and the writer, and a thread that gives up stays the upgradable reader.
unsafe impl lock_api::RawRwLockUpgradeTimed for QueueRwLock {
    methods! { timed try_lock_upgradable_for, try_lock_upgradable_until: Upgradable; }

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
