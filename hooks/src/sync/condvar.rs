//! The condition variable.

use std::fmt;
use std::time::{Duration, Instant};

use super::MutexGuard;
use crate::frame;
use crate::inner::deadline;
use crate::inner::queue_condvar::QueueCondvar;

/// A condition variable. Threads wait until data behind a [`Mutex`](super::Mutex) changes, and give up the mutex while
/// they wait. With parking_lot's interface; Go: `sync.Cond`.
///
/// Each wait is one event of the block profile, from when the thread gives up the mutex to when it is notified. If it
/// then has to wait for the mutex, that is another wait, charged to the holders of the mutex.
///
/// # Differences
/// - A wait ends by a notification or a timeout and never spuriously, as in parking_lot. So an `if` suffices where std
///   needs a loop, unless several threads wait for one thing.
/// - Threads may wait with different mutexes, even at the same time; each thread takes its own mutex again. std and
///   parking_lot panic in this case.
pub struct Condvar {
    queue: QueueCondvar,
}

/// Whether a wait timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the wait ended by a timeout, and not by a notification.
    #[inline]
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition variable without waiters.
    #[inline]
    pub const fn new() -> Self {
        Self { queue: QueueCondvar::new() }
    }

    /// Wakes the thread that waits longest, and returns whether there was one. Go: `Cond.Signal`.
    ///
    /// Notifications are not kept for threads that come later. While no thread waits, this is one load.
    #[inline]
    pub fn notify_one(&self) -> bool {
        self.queue.notify_one()
    }

    /// Notifies all waiting threads, and returns how many. Go: `Cond.Broadcast`.
    ///
    /// At most one of them is woken, if the mutex is free. The others wait for the mutex from now on, and each unlock wakes
    /// the next one. Threads that wait with different mutexes are all woken.
    #[inline]
    pub fn notify_all(&self) -> usize {
        self.queue.notify_all()
    }

    /// Gives up the mutex, waits to be notified, and takes the mutex again. Go: `Cond.Wait`.
    #[inline]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.sleep(guard, None);
        frame::keep();
    }

    /// As [`wait`](Condvar::wait), but no longer than until `deadline`. The mutex is taken again after a timeout too,
    /// however long that takes.
    #[inline]
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        let result = self.sleep(guard, Some(deadline));
        frame::keep();
        result
    }

    /// As [`wait`](Condvar::wait), but no longer than `timeout`. A timeout of centuries never expires.
    #[inline]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> WaitTimeoutResult {
        let result = self.sleep(guard, deadline::after(timeout));
        frame::keep();
        result
    }

    /// Waits as long as `condition` holds for the data of the mutex. A notification after which the condition still
    /// holds ends one wait and begins the next.
    #[inline]
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) {
        self.sleep_while(guard, condition, None);
        frame::keep();
    }

    /// As [`wait_while`](Condvar::wait_while), but no longer than until `deadline`; then the condition may still
    /// hold.
    #[inline]
    pub fn wait_while_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        let result = self.sleep_while(guard, condition, Some(deadline));
        frame::keep();
        result
    }

    /// As [`wait_while`](Condvar::wait_while), but no longer than `timeout` in all; then the condition may still
    /// hold.
    #[inline]
    pub fn wait_while_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        let result = self.sleep_while(guard, condition, deadline::after(timeout));
        frame::keep();
        result
    }

    fn sleep_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        deadline: Option<Instant>,
    ) -> WaitTimeoutResult {
        let mut result = WaitTimeoutResult(false);
        while !result.timed_out() && condition(guard) {
            result = self.sleep(guard, deadline);
        }
        result
    }

    fn sleep<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Option<Instant>,
    ) -> WaitTimeoutResult {
        // SAFETY: the guard proves that this thread holds the mutex, and `wait` returns with the mutex held again.
        let is_notified = unsafe { self.queue.wait(MutexGuard::mutex(guard).raw(), deadline) };
        WaitTimeoutResult(!is_notified)
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
