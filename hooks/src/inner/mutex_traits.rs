//! The traits of `lock_api` for [`QueueMutex`].

use std::time::{Duration, Instant};

use crate::inner::deadline;
use crate::inner::mutex::QueueMutex;

// SAFETY: `LOCKED` is taken by one thread at a time, with Acquire, and given up with Release, or handed over
// through the queue, whose lock orders the two threads.
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
        // SAFETY: the caller holds the mutex.
        unsafe { QueueMutex::unlock(self) };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        QueueMutex::is_locked(self)
    }
}

// SAFETY: a fair unlock hands the mutex over while it stays `LOCKED`, so it has one holder at a time.
unsafe impl lock_api::RawMutexFair for QueueMutex {
    #[inline]
    unsafe fn unlock_fair(&self) {
        // SAFETY: the caller holds the mutex.
        unsafe { QueueMutex::unlock_fair(self) };
    }

    #[inline]
    unsafe fn bump(&self) {
        // SAFETY: the caller holds the mutex.
        unsafe { QueueMutex::bump(self) };
    }
}

// SAFETY: a thread takes `LOCKED` or gives up; it does not hold the mutex then.
unsafe impl lock_api::RawMutexTimed for QueueMutex {
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    fn try_lock_for(&self, timeout: Duration) -> bool {
        // Reads the clock only if the mutex is not free.
        QueueMutex::try_lock(self) || self.lock_until(deadline::after(timeout))
    }

    #[inline]
    fn try_lock_until(&self, deadline: Instant) -> bool {
        self.lock_until(Some(deadline))
    }
}
