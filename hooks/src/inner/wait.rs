//! Reporting of waits: the block and mutex profiles and the execution tracer receive every wait from here.
//!
//! A [`Wait`] begins when a thread has decided to sleep and ends when another thread wakes it. In between the state of
//! its goroutine shows the reason. (A thread that was notified while the mutex is held still shows that it waits for
//! the condition.) [`charged`] reports what an unlock is charged.

#[cfg(rtprof_interposed)]
use rtprof_profiler::contention;
pub(crate) use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::hook::hidden::{self, Calls};
pub(crate) use rtprof_runtime::stack::SavedFrame;
#[cfg(rtprof_interposed)]
use rtprof_runtime::stack::frame_mark::FrameMark;

use crate::inner::account::{Account, Charge, Stake};
pub(crate) use crate::inner::primitive::goroutine::Goroutine;
pub(crate) use crate::inner::primitive::{clock, process, states};
use crate::inner::primitive::{goroutine, report};
#[cfg(rtprof_interposed)]
use crate::inner::sleepers::Woken;
use crate::inner::ticks::LEAST_SLEEP;
#[cfg(rtprof_interposed)]
use crate::inner::within;

/// A wait of the current thread. If it is dropped without [`Wait::end`], nothing is reported.
pub(crate) struct Wait {
    reason: WaitReason,
    goroutine: Option<&'static Goroutine>,
    /// Whether the time runs.
    is_running: bool,
    /// Whether it left an account before any unlock was charged for it.
    is_uncounted: bool,
    /// Whether the goroutine's state shows the wait.
    is_marked: bool,
    /// Which interposed calls were hidden before this wait hid its own; `None` while it hides none.
    hidden_before: Option<hidden::Before>,
    /// A frame that stays on the stack while the thread waits.
    frame: SavedFrame,
    start: u64,
    /// The end of the wait so far: the tick of the last wake.
    until: u64,
    stake: Stake,
}

impl Wait {
    /// Prepares a wait of the current thread. Its time does not run yet.
    ///
    /// The caller must not return before the wait is over, because the stack of the waiting thread is read from the
    /// caller's frame. If the caller passes the wait on to another function, that function calls [`Wait::stay`].
    #[inline(always)]
    pub(crate) fn prepare(reason: WaitReason) -> Self {
        Self::prepare_in(SavedFrame::here(), reason)
    }

    fn prepare_in(frame: SavedFrame, reason: WaitReason) -> Self {
        let goroutine = goroutine::current();
        Self {
            reason,
            goroutine,
            frame,
            is_running: false,
            is_uncounted: false,
            is_marked: false,
            hidden_before: None,
            start: 0,
            until: 0,
            stake: Stake::default(),
        }
    }

    /// Begins a wait now. The caller must not return before it is over, as with [`Wait::prepare`].
    #[inline(always)]
    pub(crate) fn begin(reason: WaitReason) -> Self {
        Self::begin_in(SavedFrame::here(), reason)
    }

    /// As [`Wait::begin`], with a frame whose function does not return before the wait is over.
    pub(crate) fn begin_in(frame: SavedFrame, reason: WaitReason) -> Self {
        let mut wait = Self::prepare_in(frame, reason);
        wait.run();
        wait
    }

    /// Makes the caller's frame the one from which the stack is read. The caller must not return before the wait is
    /// over, or before another function calls this.
    #[inline(always)]
    pub(crate) fn stay(&mut self) {
        self.frame = SavedFrame::here();
    }

    /// As [`Wait::begin`], for a wait that the program announces. Any other event of this thread ends it.
    #[inline(always)]
    pub(crate) fn announce(reason: WaitReason) -> Self {
        Self::announce_in(SavedFrame::here(), reason)
    }

    fn announce_in(frame: SavedFrame, reason: WaitReason) -> Self {
        let mut wait = Self::prepare_in(frame, reason);
        wait.start_time();
        wait.hide();
        if let Some(goroutine) = wait.goroutine {
            wait.is_marked = true;
            goroutine.park(wait.frame);
            states::announce(goroutine, reason, wait.start);
        }
        wait
    }

    fn start_time(&mut self) {
        if !self.is_running {
            self.is_running = true;
            self.start = clock::ticks();
            self.until = self.start;
        }
    }

    /// Whether the time runs.
    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }

    /// Starts the time, if it does not run yet. Called before each sleep.
    pub(crate) fn run(&mut self) {
        self.start_time();
        self.hide();
        self.park();
    }

    /// Shows that this thread waits.
    fn park(&mut self) {
        // Before a second sleep too, because the wake has ended the first.
        if let Some(goroutine) = self.goroutine {
            self.is_marked = true;
            goroutine.park(self.frame);
            states::block(goroutine, self.reason, self.start);
        }
    }

    /// As [`Wait::run`], and adds the wait to the account of a lock. The caller holds the lock of its queue.
    pub(crate) fn join(&mut self, account: &mut Account) {
        let is_fresh = !self.is_running || self.is_uncounted;
        self.is_uncounted = false;
        self.run();
        self.stake = account.join(self.until, is_fresh);
    }

    /// Removes a wait that was given up from the account. The caller holds the lock of its queue.
    pub(crate) fn leave(&mut self, account: &mut Account) {
        account.leave(self.stake);
        self.until = clock::ticks();
    }

    /// Removes the wait from the account, before it continues at another position of the queue. The caller holds the
    /// lock of the queue.
    pub(crate) fn leave_place(&mut self, account: &mut Account) {
        match account.leave(self.stake) {
            Some(charged) => self.until = charged,
            None => self.is_uncounted = true,
        }
    }

    /// Ends the wait for a condition at `moved`, the tick at which this thread was notified and moved to the queue of
    /// the mutex. Returns the wait for the mutex, which began then, with its stake in the mutex's account.
    pub(crate) fn split(&mut self, moved: u64, stake: Stake) -> Self {
        let until = if self.until > moved { self.until } else { moved };
        self.until = moved;
        Self {
            reason: WaitReason::MutexLock,
            goroutine: self.goroutine,
            is_running: true,
            is_uncounted: false,
            is_marked: false,
            hidden_before: None,
            frame: self.frame,
            start: moved,
            until,
            stake,
        }
    }

    /// Removes a wait that has got the lock from the account. The unlock that was charged last has let it in, so the
    /// wait ended then. If that unlock came before this thread was in the account, the wait ends `now`.
    pub(crate) fn let_in(&mut self, account: &mut Account, now: u64) {
        self.until = account.leave(self.stake).unwrap_or(now);
    }

    /// Notes that another thread woke this one at `until`. The wait may still go on, if it finds the lock taken.
    pub(crate) fn woken(&mut self, until: u64) {
        self.until = until;
        self.unmark();
    }

    /// A number that identifies this thread's goroutine while it sleeps; the low bits are 0.
    pub(crate) fn token(&self) -> usize {
        self.goroutine.map_or(0, Goroutine::token)
    }

    /// Reports the wait, which ended at its last wake, with the caller's stack; nothing if its time never ran.
    pub(crate) fn end(mut self) {
        self.unmark();
        if self.is_running {
            report::blocked(self.reason, clock::since(self.start, self.until));
        }
    }

    /// Ends the wait now and reports it: for calls that do not return the tick of the wake.
    pub(crate) fn end_now(mut self) {
        if self.is_running {
            self.until = clock::ticks();
        }
        self.end();
    }

    /// As [`Wait::end_now`], for calls that do not return whether they have waited: reports only what took longer than
    /// a sleep needs.
    pub(crate) fn end_if_slept(self) {
        if clock::since(self.start, clock::ticks()) >= LEAST_SLEEP {
            self.end_now();
        }
    }

    /// Hides the interposed calls that the sleep consists of, so that they are not reported as waits too.
    #[inline]
    fn hide(&mut self) {
        if self.hidden_before.is_none() {
            // Ends an interposed wait that the program has left.
            #[cfg(rtprof_interposed)]
            within::is_in_wait(&FrameMark::new());
            self.hidden_before = Some(hidden::hide(Calls::WAITS));
        }
    }

    /// Shows that this thread runs again.
    pub(crate) fn unmark(&mut self) {
        if self.is_marked
            && let Some(goroutine) = self.goroutine
        {
            self.is_marked = false;
            // First, so that a goroutine snapshot in progress still has it as waiting.
            goroutine.unpark();
            states::resume(goroutine);
        }
        // Last, because the calls before may yield and sleep.
        if let Some(before) = self.hidden_before.take() {
            hidden::restore(before);
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.unmark();
    }
}

/// Reports an unlock that others have waited for, with the caller's stack.
#[inline]
pub(crate) fn charged(charge: Charge) {
    if charge.waits != 0 || charge.ticks != 0 {
        report::charged(charge);
    }
}

/// Reports an unlock that ends waits which were chosen at their beginning, with the caller's stack.
#[cfg(all(rtprof_interposed, not(target_feature = "crt-static")))]
#[inline]
pub(crate) fn charged_for_chosen(charge: Charge) {
    if charge.waits != 0 || charge.ticks != 0 {
        contention::chosen_mutex_event(charge.waits, charge.ticks);
    }
}

/// Reports a wake of threads that have waited, as [`charged_for_chosen`] does. Called before the kernel makes it.
#[cfg(rtprof_interposed)]
#[inline]
pub(crate) fn woke(woken: &Woken<'_>) {
    let Woken { charge, site, caller, .. } = woken;
    if charge.waits != 0
        && let Some(asks) = contention::chosen_wake_event(charge.waits, charge.ticks, caller.bits(), *site)
    {
        woken.ask(asks);
    }
}

/// Whether a charge would be recorded.
#[inline]
pub(crate) fn is_charged() -> bool {
    report::is_charged()
}
