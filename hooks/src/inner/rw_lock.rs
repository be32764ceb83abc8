//! The reader-writer lock: a word ([`rw_state`](super::rw_state)), a queue, and the account of its waiters.
//!
//! All waiters sleep in one queue, so that one lock protects the account. Their kind distinguishes the thread that
//! drains from those that want the lock.
//!
//! A thread that gives up `WRITER` or `UPGRADABLE` with `PARKED` set wakes all readers and the first of the other
//! waiters, in the order of the queue up to the first writer. The threads that stay asleep are woken by the next
//! holder: a woken writer or upgradable reader holds the lock next, or another thread does, which sees `PARKED`.
//!
//! The mutex profile charges the unlock that ends a wait: a writer's unlock for all waiters behind it, and the last of
//! several readers for the writer that drains and for all waiters behind that writer (go#18496).

use std::time::Instant;

use crate::frame;
use crate::inner::charged_queue::{Attempt, ChargedQueue, acquire};
use crate::inner::primitive::{AtomicUsize, Ordering};
use crate::inner::queue::{self, Choice, Sleep, WaiterKind};
use crate::inner::rw_state::{DRAINING, DRAINS, PARKED, READER, READERS, UPGRADABLE, WRITER, Want};
use crate::inner::spin::{SHORT, spin_while};
use crate::inner::wait::{Wait, WaitReason};

/// The raw lock of [`RwLock`](crate::sync::RwLock), for `lock_api`.
pub struct QueueRwLock {
    state: AtomicUsize,
    queue: ChargedQueue,
}

impl QueueRwLock {
    rtprof_runtime::const_fn! {
        pub(super) const fn new() -> Self {
            Self { state: AtomicUsize::new(0), queue: ChargedQueue::new() }
        }
    }

    /// Reads the state, which may change at any moment.
    #[inline]
    pub(super) fn state(&self) -> usize {
        self.state.load(Ordering::Relaxed)
    }

    /// Takes the lock, or gives up at the deadline. When it returns, a writer has the lock and is not only announced.
    #[inline]
    pub(super) fn enter_until(&self, want: Want, deadline: Option<Instant>) -> bool {
        if want == Want::Write {
            if self.state.compare_exchange_weak(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return true;
            }
        } else {
            let state = self.state();
            if !want.is_kept_out(state) && self.try_add(state, want).is_ok() {
                return true;
            }
        }
        let is_in = self.enter_slow(want, deadline);
        frame::keep();
        is_in
    }

    /// Takes the lock if that needs no waiting.
    #[inline]
    pub(super) fn try_enter(&self, want: Want) -> bool {
        let enter = |state| {
            let must_wait = want.is_kept_out(state) || want == Want::Write && state & READERS != 0;
            (!must_wait).then(|| want.added_to(state))
        };
        self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).is_ok()
    }

    #[inline]
    fn try_add(&self, state: usize, want: Want) -> Result<(), usize> {
        let next = want.added_to(state);
        self.state.compare_exchange_weak(state, next, Ordering::Acquire, Ordering::Relaxed).map(drop)
    }

    #[cold]
    fn enter_slow(&self, want: Want, deadline: Option<Instant>) -> bool {
        self.spin_until(|state| !want.is_kept_out(state));
        let mut wait = Wait::prepare(want.reason());
        let attempt = || {
            let state = self.state();
            let (is_done, attempt) = if want.is_kept_out(state) {
                (state & PARKED != 0 || self.try_change(state, state | PARKED), Attempt::Announced)
            } else {
                (self.try_add(state, want).is_ok(), Attempt::Acquired)
            };
            if is_done { attempt } else { Attempt::Again }
        };
        let keeps_waiting = |state| state & PARKED != 0 && want.is_kept_out(state);
        let is_admitted = acquire(&mut wait, attempt, |wait| {
            self.sleep(want as WaiterKind, wait, keeps_waiting, PARKED, deadline)
        });
        let is_in = is_admitted && (want != Want::Write || self.drain(&mut wait, deadline, 0));
        wait.end();
        is_in
    }

    fn try_change(&self, from: usize, to: usize) -> bool {
        self.state.compare_exchange_weak(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Waits, as the thread that holds `WRITER`, for the readers to leave. At the deadline it gives `WRITER` up again
    /// and puts `restore` in its place.
    fn drain(&self, wait: &mut Wait, deadline: Option<Instant>, restore: usize) -> bool {
        self.spin_until(|state| state & READERS == 0);
        loop {
            // Acquire: everything that the readers did happens before.
            let state = self.state.load(Ordering::Acquire);
            if state & READERS == 0 {
                if state & DRAINING != 0 {
                    // The last reader may have left before it could see this.
                    self.state.fetch_and(!DRAINING, Ordering::Relaxed);
                }
                return true;
            }
            if state & DRAINING == 0 {
                self.state.fetch_or(DRAINING, Ordering::Relaxed);
            }
            let keeps_waiting = |state| state & DRAINING != 0 && state & READERS != 0;
            if self.sleep(DRAINS, wait, keeps_waiting, DRAINING, deadline) == Sleep::TimedOut {
                // This thread has kept others out while it waited, and is charged for them.
                self.release_slow(WRITER, restore, false);
                return false;
            }
        }
    }

    /// Sleeps in the lock's queue. `bit` shows that in the state; it is cleared after a timeout if no other thread
    /// needs it.
    fn sleep(
        &self,
        kind: WaiterKind,
        wait: &mut Wait,
        keeps_waiting: impl Fn(usize) -> bool,
        bit: usize,
        deadline: Option<Instant>,
    ) -> Sleep {
        let gave_up = |was_last| {
            // Only one thread drains. If only the draining thread is left in the queue, `PARKED` stays set without need
            // until the next unlock.
            if was_last || bit == DRAINING {
                self.state.fetch_and(!bit, Ordering::Relaxed);
            }
        };
        // SAFETY: the closures neither panic nor park nor wake.
        unsafe { self.queue.sleep(kind, wait, deadline, || keeps_waiting(self.state()), gave_up) }
    }

    fn spin_until(&self, done: impl Fn(usize) -> bool) -> usize {
        // Spinning is useless while others sleep already.
        spin_while(SHORT, || {
            let state = self.state();
            state & PARKED == 0 && !done(state)
        });
        self.state()
    }

    /// # Safety
    /// This thread is a reader, and not the upgradable one.
    #[inline]
    pub(crate) unsafe fn leave_shared(&self) {
        let state = self.state.fetch_sub(READER, Ordering::Release);
        if state & (READERS | DRAINING) == READER | DRAINING {
            self.wake_drainer();
            frame::keep();
        }
    }

    /// Wakes the writer that sleeps until the last reader has left.
    #[cold]
    fn wake_drainer(&self) {
        let choose = |kind| if kind == DRAINS { Choice::Wake } else { Choice::Skip };
        let decide = |_: &queue::Woken| {
            // Also if the writer has not gone to sleep yet: then it looks again.
            self.state.fetch_and(!DRAINING, Ordering::Relaxed);
            false
        };
        // SAFETY: the closures neither panic nor park nor wake.
        unsafe { self.queue.wake(choose, decide) };
    }

    /// Gives up `held` (which has `WRITER` or `UPGRADABLE`) and keeps `kept` instead.
    ///
    /// # Safety
    /// This thread has the lock as `held` says.
    #[inline]
    pub(super) unsafe fn release(&self, held: usize, kept: usize) {
        if !self.try_release(held, kept) {
            self.release_slow(held, kept, false);
            frame::keep();
        }
    }

    /// Gives up `held`, and hands the lock over to the waiting threads.
    ///
    /// # Safety
    /// This thread has the lock as `held` says.
    #[inline]
    pub(super) unsafe fn release_fair(&self, held: usize) {
        if !self.try_release(held, 0) {
            self.release_slow(held, 0, true);
            frame::keep();
        }
    }

    /// Fails if a thread waits.
    #[inline]
    fn try_release(&self, held: usize, kept: usize) -> bool {
        let next = |state| (state & PARKED == 0).then(|| state - held + kept);
        self.state.fetch_update(Ordering::Release, Ordering::Relaxed, next).is_ok()
    }

    /// # Safety
    /// This thread is the writer.
    #[inline]
    pub(crate) unsafe fn leave_exclusive(&self) {
        if self.state.compare_exchange(WRITER, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.release_slow(WRITER, 0, false);
            frame::keep();
        }
    }

    /// As [`QueueRwLock::release`], and wakes the threads that were kept out; with `force_fair` it hands the lock over
    /// to them.
    #[cold]
    fn release_slow(&self, held: usize, kept: usize, force_fair: bool) {
        // What the woken threads will add to the state. A `Cell`, because both closures use it.
        let added = core::cell::Cell::new(kept);
        let choose = |kind: WaiterKind| {
            let Some(want) = Want::of_kind(kind) else { return Choice::Skip };
            if added.get() & WRITER != 0 {
                return Choice::Stop;
            }
            if matches!(want, Want::Upgradable | Want::Write) && added.get() & UPGRADABLE != 0 {
                return Choice::Skip;
            }
            added.set(added.get() + want.adds());
            Choice::Wake
        };
        let decide = |woken: &queue::Woken| {
            let is_handed_over = woken.count != 0 && (force_fair || woken.be_fair);
            let kept = if is_handed_over { added.get() } else { kept };
            let parked = if woken.has_more { PARKED } else { 0 };
            let next = |state: usize| Some((((state - held) & !PARKED) + kept) | parked);
            let _ = self.state.fetch_update(Ordering::Release, Ordering::Relaxed, next);
            is_handed_over
        };
        // SAFETY: the closures neither panic nor park nor wake.
        unsafe { self.queue.wake(choose, decide) };
    }

    /// Becomes the writer.
    ///
    /// # Safety
    /// This thread is the upgradable reader.
    #[inline]
    pub(super) unsafe fn upgrade_until(&self, deadline: Option<Instant>) -> bool {
        let excess = Want::Upgradable.adds() - WRITER;
        let state = self.state.fetch_sub(excess, Ordering::Acquire) - excess;
        if state & READERS == 0 {
            return true;
        }
        let is_in = self.upgrade_slow(deadline);
        frame::keep();
        is_in
    }

    #[cold]
    fn upgrade_slow(&self, deadline: Option<Instant>) -> bool {
        let mut wait = Wait::prepare(WaitReason::RwLockWrite);
        let is_in = self.drain(&mut wait, deadline, Want::Upgradable.adds());
        wait.end();
        is_in
    }

    /// Becomes the writer if there is no other reader.
    ///
    /// # Safety
    /// This thread is the upgradable reader.
    pub(super) unsafe fn try_upgrade(&self) -> bool {
        let upgrade = |state| (state & READERS == READER).then(|| state - Want::Upgradable.adds() + WRITER);
        self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, upgrade).is_ok()
    }

    #[cfg(all(test, loom))]
    pub(crate) fn is_settled(&self) -> bool {
        self.state() == 0 && self.queue.is_settled()
    }

    /// Whether a reader or a writer has the lock, or a writer is announced.
    #[inline]
    pub(super) fn is_locked(&self) -> bool {
        self.state() & (READERS | WRITER) != 0
    }

    /// Whether a writer has the lock, or is announced.
    #[inline]
    pub(super) fn is_locked_exclusive(&self) -> bool {
        self.state() & WRITER != 0
    }
}
