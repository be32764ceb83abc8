//! The semaphore: a word, a queue, and the request of each thread in the queue.

mod requests;

use std::cell::Cell;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};

use crate::frame;
use crate::inner::deadline;
use crate::inner::primitive::{AtomicUsize, Ordering, UnsafeCell};
use crate::inner::queue::{self, Choice, Sleep, WaiterKind};
use crate::inner::spin::{SHORT, spin_while};
use crate::inner::wait::{Wait, WaitReason};
use requests::{Request, Requests};

/// Threads are in the queue. While it is set, the word is only changed with the queue locked.
const QUEUED: usize = 1;
/// One permit in the word.
const PERMIT: usize = 2;

/// A number of permits, which threads take and give back. Go: `golang.org/x/sync/semaphore.Weighted`.
///
/// A thread that asks for more permits than are free waits in line. Returned permits go to the thread that waits
/// longest, and then to the next threads in line, as long as enough permits are left. No request overtakes another,
/// however small, so that large requests are served too. A request for more permits than there ever are waits for ever,
/// and so do all later ones.
///
/// Each wait is one event of the block profile, from the request until the permits are handed over or the request is
/// given up.
pub struct Semaphore {
    /// The free permits, in units of [`PERMIT`], and [`QUEUED`].
    state: AtomicUsize,
    /// Only touched with the queue at this object's address locked.
    requests: UnsafeCell<Requests>,
}

// SAFETY: the list is only accessed with the queue at this address locked; see `with_requests`.
unsafe impl Sync for Semaphore {}
// SAFETY: nothing in it is bound to a thread; while threads wait, they borrow it, so it stays where it is.
unsafe impl Send for Semaphore {}
// No code of the program runs inside of it that could panic.
impl UnwindSafe for Semaphore {}
impl RefUnwindSafe for Semaphore {}

impl Semaphore {
    /// The largest number of permits. Adding permits beyond it leaves the number at this maximum.
    pub const MAX_PERMITS: usize = usize::MAX / PERMIT;

    /// A semaphore with `permits` permits, [`MAX_PERMITS`](Semaphore::MAX_PERMITS) at most. Go: `NewWeighted`.
    #[inline]
    pub const fn new(permits: usize) -> Self {
        let permits = if permits > Self::MAX_PERMITS { Self::MAX_PERMITS } else { permits };
        Self { state: AtomicUsize::new(permits * PERMIT), requests: UnsafeCell::new(Requests::EMPTY) }
    }

    /// The number of free permits at this moment.
    #[inline]
    pub fn available_permits(&self) -> usize {
        self.state.load(Ordering::Relaxed) / PERMIT
    }

    /// Takes a permit, and waits for it if there is none.
    #[inline]
    pub fn acquire(&self) -> SemaphoreGuard<'_> {
        self.acquire_many(1)
    }

    /// Takes `permits` permits at once, and waits until that many are free. A request for 0 waits only for earlier
    /// requests. Go: `Acquire`.
    #[inline]
    pub fn acquire_many(&self, permits: usize) -> SemaphoreGuard<'_> {
        if !self.try_take(permits) {
            self.wait(permits, None);
            frame::keep();
        }
        self.guard(permits)
    }

    /// Takes a permit if one is free and no thread waits.
    #[inline]
    pub fn try_acquire(&self) -> Option<SemaphoreGuard<'_>> {
        self.try_acquire_many(1)
    }

    /// Takes `permits` permits at once if that many are free and no thread waits. Go: `TryAcquire`.
    #[inline]
    pub fn try_acquire_many(&self, permits: usize) -> Option<SemaphoreGuard<'_>> {
        self.try_take(permits).then(|| self.guard(permits))
    }

    /// As [`acquire`](Semaphore::acquire), but gives up after `timeout`. A timeout of centuries never expires.
    #[inline]
    pub fn try_acquire_for(&self, timeout: Duration) -> Option<SemaphoreGuard<'_>> {
        self.try_acquire_many_for(1, timeout)
    }

    /// As [`acquire`](Semaphore::acquire), but gives up at `deadline`.
    #[inline]
    pub fn try_acquire_until(&self, deadline: Instant) -> Option<SemaphoreGuard<'_>> {
        self.try_acquire_many_until(1, deadline)
    }

    /// As [`acquire_many`](Semaphore::acquire_many), but gives up after `timeout`. A timeout of centuries never expires.
    #[inline]
    pub fn try_acquire_many_for(&self, permits: usize, timeout: Duration) -> Option<SemaphoreGuard<'_>> {
        // Reads the clock only if there are too few permits.
        let is_taken =
            self.try_take(permits) || (!timeout.is_zero() && self.wait(permits, deadline::after(timeout)));
        frame::keep();
        is_taken.then(|| self.guard(permits))
    }

    /// As [`acquire_many`](Semaphore::acquire_many), but gives up at `deadline`.
    #[inline]
    pub fn try_acquire_many_until(&self, permits: usize, deadline: Instant) -> Option<SemaphoreGuard<'_>> {
        let is_taken = self.try_take(permits) || self.wait(permits, Some(deadline));
        frame::keep();
        is_taken.then(|| self.guard(permits))
    }

    /// Adds new permits, or those of a guard that was forgotten. Go: `Release`.
    ///
    /// Never panics, unlike Go, where a semaphore has a size: the sum saturates at
    /// [`MAX_PERMITS`](Semaphore::MAX_PERMITS).
    #[inline]
    #[doc(alias = "release")]
    pub fn add_permits(&self, permits: usize) {
        let add = |state| (state & QUEUED == 0).then(|| plus(state, permits));
        if self.state.fetch_update(Ordering::Release, Ordering::Relaxed, add).is_ok() {
            return;
        }
        self.hand_over(permits);
    }

    fn guard(&self, permits: usize) -> SemaphoreGuard<'_> {
        SemaphoreGuard { semaphore: self, permits }
    }

    #[inline]
    fn try_take(&self, permits: usize) -> bool {
        let take = |state| has(state, permits).then(|| state - permits * PERMIT);
        self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, take).is_ok()
    }

    fn key(&self) -> usize {
        &raw const *self as usize
    }

    /// # Safety
    /// The queue at [`Semaphore::key`] is locked: the caller is a closure that `queue` runs.
    unsafe fn with_requests<T>(&self, f: impl FnOnce(&mut Requests) -> T) -> T {
        // SAFETY: the caller holds the queue's lock, so this access is the only one.
        self.requests.with_mut(|requests| f(unsafe { &mut *requests }))
    }

    /// Waits for `permits` and takes them, or gives up at the deadline.
    #[cold]
    fn wait(&self, permits: usize, deadline: Option<Instant>) -> bool {
        // Spinning is useless while others wait already.
        spin_while(SHORT, || {
            let state = self.state.load(Ordering::Relaxed);
            state & QUEUED == 0 && !has(state, permits)
        });
        let request = Request::new(permits);
        let mut wait = Wait::prepare(WaitReason::Semaphore);
        let mut is_taken = false;
        let validate = |wait: &mut Wait| {
            is_taken = !self.join(permits);
            if !is_taken {
                // SAFETY: validation runs with the queue locked. The request leaves the list before this function
                // returns: the wake takes it out, or `timed_out` does.
                unsafe { self.with_requests(|requests| requests.push(&request)) };
                wait.run();
            }
            !is_taken
        };
        let mut was_first = false;
        let timed_out = |_: &mut Wait, was_last| {
            // SAFETY: the queue is locked, and the request is in the list, because no thread has woken this one.
            was_first = unsafe { self.with_requests(|requests| requests.remove(&request)) };
            if was_last {
                self.state.fetch_and(!QUEUED, Ordering::Relaxed);
            }
        };
        // SAFETY: the key is the address of this object, and the closures neither panic nor park nor wake.
        let sleep = unsafe { queue::park(self.key(), 0, &mut wait, validate, || {}, timed_out, deadline) };
        if sleep == Sleep::TimedOut {
            wait.end_now();
            if was_first {
                // There may be enough permits for the next requests.
                self.hand_over(0);
            }
            return false;
        }
        wait.end();
        true
    }

    /// Announces that this thread will be in the queue, or takes the permits if they are free, and then returns false.
    /// The queue is locked.
    fn join(&self, permits: usize) -> bool {
        let take_or_queue = |state| match state & QUEUED {
            0 if has(state, permits) => Some(state - permits * PERMIT),
            0 => Some(state | QUEUED),
            _ => None,
        };
        match self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, take_or_queue) {
            Ok(state) => !has(state, permits),
            Err(_) => true,
        }
    }

    /// Adds `permits`, and hands all free permits to the threads in the queue, as far as they reach.
    #[cold]
    fn hand_over(&self, permits: usize) {
        // `None` while the queue is empty: then other threads may change the word at the same time.
        let free: Cell<Option<usize>> = Cell::new(None);
        let choose = |_: WaiterKind| {
            let state = free.get().unwrap_or_else(|| plus(self.state.load(Ordering::Relaxed), permits));
            // SAFETY: the queue is locked, and the closure runs for one thread of the queue after the other.
            let served = unsafe { self.with_requests(|requests| requests.pop(state / PERMIT)) };
            free.set(Some(state - served.unwrap_or(0) * PERMIT));
            if served.is_some() { Choice::Wake } else { Choice::Stop }
        };
        let decide = |woken: &queue::Woken| {
            let queued = if woken.has_more { QUEUED } else { 0 };
            match free.get() {
                Some(state) => self.state.store((state & !QUEUED) | queued, Ordering::Release),
                None => self.add(permits),
            }
            true
        };
        // SAFETY: the key is the address of this object, and the closures neither panic nor park nor wake.
        unsafe { queue::wake(self.key(), choose, decide) };
    }

    fn add(&self, permits: usize) {
        let add = |state| Some(plus(state, permits));
        let _ = self.state.fetch_update(Ordering::Release, Ordering::Relaxed, add);
    }
}

/// Whether so many permits can be taken without overtaking.
#[inline]
fn has(state: usize, permits: usize) -> bool {
    state & QUEUED == 0 && state / PERMIT >= permits
}

/// The state with `permits` more.
#[inline]
fn plus(state: usize, permits: usize) -> usize {
    let sum = (state / PERMIT).saturating_add(permits).min(Semaphore::MAX_PERMITS);
    (sum * PERMIT) | (state & QUEUED)
}

/// Permits of a [`Semaphore`]. They are returned when the guard is dropped, in any thread. A leaked guard keeps them.
#[must_use = "permits that are not held come back at once"]
pub struct SemaphoreGuard<'a> {
    semaphore: &'a Semaphore,
    permits: usize,
}

impl SemaphoreGuard<'_> {
    /// The number of permits.
    #[inline]
    pub fn permits(&self) -> usize {
        self.permits
    }

    /// Drops the guard without returning the permits; [`add_permits`](Semaphore::add_permits) can return them later.
    #[inline]
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for SemaphoreGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.semaphore.add_permits(self.permits);
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("available_permits", &self.available_permits()).finish()
    }
}

impl fmt::Debug for SemaphoreGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphoreGuard").field("permits", &self.permits).finish_non_exhaustive()
    }
}
