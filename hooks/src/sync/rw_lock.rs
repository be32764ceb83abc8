//! The reader-writer lock: a word ([`rw_state`](super::rw_state)), a queue, and an account of who waits for whom.
//!
//! All who wait sleep in one queue, at the lock's address, so that one lock protects the account. Their kind tells the
//! one that drains from those that want in.
//!
//! Whoever gives up `WRITER` or `UPGRADABLE` with `PARKED` set wakes all readers and the first of the others that
//! wait, in the order of the queue up to the first writer. What stays asleep is woken by whom it waits for: a woken
//! writer or upgradable reader holds the lock next, or finds somebody else does, who sees `PARKED`.
//!
//! The mutex profile charges who ends a wait: a writer's unlock for all behind it, and of several readers the
//! last one to leave for a writer that drains, and for all behind that one (go#18496).

use std::panic::RefUnwindSafe;
use std::time::Instant;

use super::rw_state::{DRAINING, DRAINS, PARKED, READER, READERS, UPGRADABLE, WRITER, Want};
use crate::account::{Account, Charge};
use crate::frame;
use crate::primitive::{AtomicUsize, Ordering, UnsafeCell};
use crate::queue::{self, Choice, Sleep, WaiterKind};
use crate::spin::{SHORT, spin_while};
use crate::wait::{self, Wait, WaitReason};

/// The raw lock of [`RwLock`](super::RwLock), for `lock_api`.
pub struct QueueRwLock {
    state: AtomicUsize,
    /// Only touched with the queue at this lock's address locked.
    account: UnsafeCell<Account>,
}

// SAFETY: the account is only reached by whoever holds the lock of the queue at this address; see `with_account`.
unsafe impl Sync for QueueRwLock {}
// SAFETY: nothing in it is bound to a thread.
unsafe impl Send for QueueRwLock {}
// No code of the program runs inside of it that could panic.
impl RefUnwindSafe for QueueRwLock {}

impl QueueRwLock {
    rtprof_runtime::const_fn! {
        pub(super) const fn new() -> Self {
            Self { state: AtomicUsize::new(0), account: UnsafeCell::new(Account::EMPTY) }
        }
    }

    /// The state now; it may be another one already.
    #[inline]
    pub(super) fn state(&self) -> usize {
        self.state.load(Ordering::Relaxed)
    }

    fn key(&self) -> usize {
        &raw const *self as usize
    }

    /// # Safety
    /// The queue at [`QueueRwLock::key`] is locked: the caller is a closure that `queue` runs.
    unsafe fn with_account<T>(&self, f: impl FnOnce(&mut Account) -> T) -> T {
        // SAFETY: the caller's promise makes this access the only one.
        self.account.with_mut(|account| f(unsafe { &mut *account }))
    }

    /// Gets in, or gives up at the deadline. A writer is in when it returns, not only announced.
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

    /// Gets in if that needs no waiting.
    #[inline]
    pub(super) fn try_enter(&self, want: Want) -> bool {
        let mut state = self.state();
        loop {
            if want.is_kept_out(state) || want == Want::Write && state & READERS != 0 {
                return false;
            }
            match self.try_add(state, want) {
                Ok(()) => return true,
                Err(seen) => state = seen,
            }
        }
    }

    #[inline]
    fn try_add(&self, state: usize, want: Want) -> Result<(), usize> {
        // A program that leaks guards can get here, with 32-bit words even soon.
        let next = state.checked_add(want.adds()).expect("too many readers of one RwLock");
        self.state.compare_exchange_weak(state, next, Ordering::Acquire, Ordering::Relaxed).map(drop)
    }

    #[cold]
    fn enter_slow(&self, want: Want, deadline: Option<Instant>) -> bool {
        let mut state = self.spin_until(|state| !want.is_kept_out(state));
        let mut wait = Wait::prepare(want.reason());
        loop {
            if !want.is_kept_out(state) {
                match self.try_add(state, want) {
                    Ok(()) => break,
                    Err(seen) => state = seen,
                }
                continue;
            }
            if state & PARKED == 0
                && let Err(seen) = self.state.compare_exchange_weak(
                    state,
                    state | PARKED,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
            {
                state = seen;
                continue;
            }
            let keeps_waiting = |state| state & PARKED != 0 && want.is_kept_out(state);
            match self.sleep(want as WaiterKind, &mut wait, keeps_waiting, PARKED, deadline) {
                Sleep::Woken { is_handed_over: true } => break,
                Sleep::Woken { .. } | Sleep::Refused => {}
                Sleep::TimedOut => {
                    wait.end();
                    return false;
                }
            }
            state = self.state();
        }
        let is_in = want != Want::Write || self.drain(&mut wait, deadline, 0);
        wait.end();
        is_in
    }

    /// The writer that holds `WRITER` waits for readers to leave. At the deadline it gives `WRITER` up again and
    /// puts `restore` in its place.
    fn drain(&self, wait: &mut Wait, deadline: Option<Instant>, restore: usize) -> bool {
        self.spin_until(|state| state & READERS == 0);
        loop {
            // Acquire: what the readers did is over.
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
                // It has kept others out meanwhile, and is charged for them.
                self.release_slow(WRITER, restore, false);
                return false;
            }
        }
    }

    /// Sleeps in the lock's queue; `bit` says so in the state and is cleared when the time is out and nobody else
    /// needs it.
    fn sleep(
        &self,
        kind: WaiterKind,
        wait: &mut Wait,
        keeps_waiting: impl Fn(usize) -> bool,
        bit: usize,
        deadline: Option<Instant>,
    ) -> Sleep {
        let validate = |wait: &mut Wait| {
            let sleeps = keeps_waiting(self.state());
            if sleeps {
                // SAFETY: validation runs with the queue locked.
                unsafe { self.with_account(|account| wait.join(account)) };
            }
            sleeps
        };
        let timed_out = |wait: &mut Wait, was_last: bool| {
            // SAFETY: so does this.
            unsafe { self.with_account(|account| wait.leave(account)) };
            // Only one thread drains. Of those that want in the one that drains may be left behind, and then
            // `PARKED` stays for nothing until the next unlock.
            if was_last || bit == DRAINING {
                self.state.fetch_and(!bit, Ordering::Relaxed);
            }
        };
        // SAFETY: the key is this lock's own address, and the closures neither panic nor park nor wake.
        unsafe { queue::park(self.key(), kind, wait, validate, || {}, timed_out, deadline) }
    }

    fn spin_until(&self, done: impl Fn(usize) -> bool) -> usize {
        // While others sleep already there is nothing to hope for.
        spin_while(SHORT, || {
            let state = self.state();
            state & PARKED == 0 && !done(state)
        });
        self.state()
    }

    /// # Safety
    /// This thread is in as a reader, not as the upgradable one.
    #[inline]
    pub(crate) unsafe fn leave_shared(&self) {
        let state = self.state.fetch_sub(READER, Ordering::Release);
        if state & (READERS | DRAINING) == READER | DRAINING {
            self.wake_drainer();
            frame::keep();
        }
    }

    /// The last reader has left, and a writer may sleep until it does.
    #[cold]
    fn wake_drainer(&self) {
        let mut charge = Charge::default();
        let choose = |kind| if kind == DRAINS { Choice::Wake } else { Choice::Skip };
        let decide = |woken: &queue::Woken| {
            // SAFETY: this runs with the queue locked.
            charge = unsafe { self.with_account(|account| account.charge(woken.now, woken.count as u32)) };
            // Also if it has not gone to sleep yet: then it looks again.
            self.state.fetch_and(!DRAINING, Ordering::Relaxed);
            false
        };
        // SAFETY: the key is this lock's own address, and the closures neither panic nor park nor wake.
        unsafe { queue::wake(self.key(), choose, decide) };
        wait::charged(charge);
    }

    /// Gives up `held` (which has `WRITER` or `UPGRADABLE`) and keeps `kept` instead.
    ///
    /// # Safety
    /// This thread is in as `held` says.
    #[inline]
    pub(super) unsafe fn release(&self, held: usize, kept: usize) {
        if !self.try_release(held, kept) {
            self.release_slow(held, kept, false);
            frame::keep();
        }
    }

    /// Gives up `held`, and hands it over to who waits.
    ///
    /// # Safety
    /// This thread is in as `held` says.
    #[inline]
    pub(super) unsafe fn release_fair(&self, held: usize) {
        if !self.try_release(held, 0) {
            self.release_slow(held, 0, true);
            frame::keep();
        }
    }

    /// Fails when somebody waits.
    #[inline]
    fn try_release(&self, held: usize, kept: usize) -> bool {
        let mut state = self.state();
        while state & PARKED == 0 {
            let next = state - held + kept;
            match self.state.compare_exchange_weak(state, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => state = seen,
            }
        }
        false
    }

    /// # Safety
    /// This thread is in as the writer.
    #[inline]
    pub(crate) unsafe fn leave_exclusive(&self) {
        if self.state.compare_exchange(WRITER, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.release_slow(WRITER, 0, false);
            frame::keep();
        }
    }

    /// As [`QueueRwLock::release`], and wakes those who were kept out; with `force_fair` it hands over to them.
    #[cold]
    fn release_slow(&self, held: usize, kept: usize, force_fair: bool) {
        let mut charge = Charge::default();
        // What the woken ones will add. A `Cell`, as both closures have it.
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
            // SAFETY: this runs with the queue locked.
            charge = unsafe { self.with_account(|account| account.charge(woken.now, woken.count as u32)) };
            let is_handed_over = woken.count != 0 && (force_fair || woken.be_fair);
            let kept = if is_handed_over { added.get() } else { kept };
            let mut state = self.state();
            loop {
                let without = (state - held) & !PARKED;
                let next = (without + kept) | if woken.has_more { PARKED } else { 0 };
                match self.state.compare_exchange_weak(state, next, Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => break is_handed_over,
                    Err(seen) => state = seen,
                }
            }
        };
        // SAFETY: the key is this lock's own address, and the closures neither panic nor park nor wake.
        unsafe { queue::wake(self.key(), choose, decide) };
        wait::charged(charge);
    }

    /// Becomes the writer.
    ///
    /// # Safety
    /// This thread is in as the upgradable reader.
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

    /// Becomes the writer if no other reader is in.
    ///
    /// # Safety
    /// This thread is in as the upgradable reader.
    pub(super) unsafe fn try_upgrade(&self) -> bool {
        let mut state = self.state();
        loop {
            if state & READERS != READER {
                return false;
            }
            let next = state - Want::Upgradable.adds() + WRITER;
            match self.state.compare_exchange_weak(state, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => state = seen,
            }
        }
    }

    #[cfg(all(test, loom))]
    pub(crate) fn is_settled(&self) -> bool {
        // SAFETY: the tests ask when no other thread uses the lock.
        self.state() == 0 && unsafe { self.with_account(|a| a.is_settled()) }
    }

    /// Whether anybody is in, or announced.
    #[inline]
    pub(super) fn is_locked(&self) -> bool {
        self.state() & (READERS | WRITER) != 0
    }

    /// Whether a writer is in, or announced.
    #[inline]
    pub(super) fn is_locked_exclusive(&self) -> bool {
        self.state() & WRITER != 0
    }
}
