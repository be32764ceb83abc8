//! The condition variable: a flag and a queue.

use std::fmt;
use std::time::{Duration, Instant};

use super::{MutexGuard, QueueMutex};
use crate::deadline;
use crate::frame;
use crate::primitive::{AtomicU8, Ordering};
use crate::queue::{self, Choice, Kind, Sleep};
use crate::wait::{Wait, WaitReason};

/// Nobody waits.
const EMPTY: u8 = 0;
/// Threads are in the queue. Changed only with the queue locked.
const WAITED_FOR: u8 = 1;

/// A condition variable: threads wait for something to change behind a [`Mutex`](super::Mutex), which they give up
/// meanwhile. With parking_lot's interface; Go: `sync.Cond`.
///
/// Each wait is one event of the block profile, from when the thread gives up the mutex to when it is notified.
/// That it then waits for the mutex again is a wait of its own, of the mutex.
///
/// # Differences
/// - A wait ends because of a notification or of its time, never for nothing, as in parking_lot. So an `if` does
///   where std needs a loop, unless several threads wait for one thing.
/// - Threads may wait with different mutexes, even at one time: each takes its own again. std and parking_lot
///   panic.
/// - [`notify_all`](Condvar::notify_all) wakes all who wait; they take the mutex one after the other. parking_lot
///   wakes one and lines the others up behind the mutex, where nobody could tell the two waits apart.
pub struct Condvar {
    state: AtomicU8,
}

/// Whether a wait ended by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the wait ended because its time was over, and not because of a notification.
    #[inline]
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition variable that nobody waits for.
    #[inline]
    pub const fn new() -> Self {
        Self { state: AtomicU8::new(EMPTY) }
    }

    /// Wakes the thread that waits longest, and returns whether there was one. Go: `Cond.Signal`.
    ///
    /// Notifications are not kept for threads that come later. While nobody waits, this is one load.
    #[inline]
    pub fn notify_one(&self) -> bool {
        // Relaxed: who changed the condition has held the mutex since any waiter gave it up, and the waiter had
        // joined the queue before.
        self.state.load(Ordering::Relaxed) != EMPTY && self.wake(queue::first()) != 0
    }

    /// Wakes all who wait, and returns how many. Go: `Cond.Broadcast`.
    #[inline]
    pub fn notify_all(&self) -> usize {
        if self.state.load(Ordering::Relaxed) == EMPTY { 0 } else { self.wake(queue::everybody) }
    }

    #[cold]
    fn wake(&self, choose: impl FnMut(Kind) -> Choice) -> usize {
        let mut count = 0;
        let decide = |woken: &queue::Woken| {
            count = woken.count;
            if !woken.has_more {
                self.state.store(EMPTY, Ordering::Relaxed);
            }
            false
        };
        // SAFETY: the key is this object's own address, and the closures neither panic nor park nor wake.
        unsafe { queue::wake(self.key(), choose, decide) };
        count
    }

    fn key(&self) -> usize {
        &raw const *self as usize
    }

    /// Gives up the mutex, waits to be notified, and takes the mutex again. Go: `Cond.Wait`.
    #[inline]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.sleep(Self::mutex_of(guard), None);
        frame::keep();
    }

    /// As [`wait`](Condvar::wait), but no longer than until `deadline`. The mutex is taken again also when the time
    /// is over, however long that takes.
    #[inline]
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        let result = self.sleep(Self::mutex_of(guard), Some(deadline));
        frame::keep();
        result
    }

    /// As [`wait`](Condvar::wait), but no longer than `timeout`; one of centuries never ends.
    #[inline]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> WaitTimeoutResult {
        let result = self.sleep(Self::mutex_of(guard), deadline::after(timeout));
        frame::keep();
        result
    }

    /// Waits as long as `condition` holds for what the mutex protects. Each notification that does not change it
    /// ends a wait and begins the next.
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
            result = self.sleep(Self::mutex_of(guard), deadline);
        }
        result
    }

    fn mutex_of<'a, T: ?Sized>(guard: &mut MutexGuard<'a, T>) -> &'a QueueMutex {
        // SAFETY: it is unlocked only by `sleep`, which locks it again before it returns to the guard's holder.
        unsafe { MutexGuard::mutex(guard).raw() }
    }

    /// The caller holds `mutex`, and does again afterwards.
    fn sleep(&self, mutex: &QueueMutex, deadline: Option<Instant>) -> WaitTimeoutResult {
        let mut wait = Wait::prepare(WaitReason::CondWait);
        let validate = |wait: &mut Wait| {
            self.state.store(WAITED_FOR, Ordering::Relaxed);
            wait.run();
            true
        };
        // Only now, in the queue: who takes the mutex next and notifies finds this thread there.
        // SAFETY: the guard in the caller's hands says that this thread holds it.
        let before_sleep = || unsafe { mutex.unlock() };
        let timed_out = |_: &mut Wait, was_last| {
            if was_last {
                self.state.store(EMPTY, Ordering::Relaxed);
            }
        };
        // SAFETY: the key is this object's own address, and the closures neither panic nor park; unlocking may wake.
        let sleep =
            unsafe { queue::park(self.key(), 0, &mut wait, validate, before_sleep, timed_out, deadline) };
        // Reported before the mutex is taken, as nobody is to wait for that.
        if sleep == Sleep::TimedOut {
            wait.end_now();
        } else {
            wait.end();
        }
        mutex.lock();
        WaitTimeoutResult(sleep == Sleep::TimedOut)
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
