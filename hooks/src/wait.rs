//! The one place through which every wait is reported.
//!
//! A [`Wait`] begins when a thread has decided to sleep and ends when somebody wakes it; between the two
//! its goroutine says what it waits for (one that was notified while the mutex is held still says that it waits for
//! the condition). What a lock's unlocker owes is reported by [`charged`]. The block and
//! mutex profiles and the execution tracer listen here.

use rtprof_runtime::hidden::{self, Calls};
pub(crate) use rtprof_runtime::stack::SavedFrame;
pub(crate) use rtprof_runtime::wait_reason::WaitReason;
#[cfg(rtprof_interposed)]
use rtprof_runtime::wait_site::WaitSite;

use crate::account::{Account, Charge, Stake};
pub(crate) use crate::primitive::goroutine::Goroutine;
pub(crate) use crate::primitive::{clock, process, states};
use crate::primitive::{goroutine, report};

/// What took less has not slept. In ticks: about a microsecond, at the rates that counters run at. The kernel cannot put a
/// thread to sleep and wake it in less, and what does not sleep takes a tenth of it.
const LEAST_SLEEP: u64 = if cfg!(target_arch = "aarch64") { 50 } else { 2000 };

/// For how long the holders of a mutex may leave to the next one what they owe to those who sleep. In ticks: about 16 µs
/// on x86-64; 1 to 43 µs on aarch64, whose counters differ that much.
pub(crate) const MUCH: u32 = if cfg!(loom) {
    3
} else if cfg!(target_arch = "aarch64") {
    1 << 10
} else {
    1 << 15
};
/// Times that need not be exact are kept in units of 2^`COARSE` ticks: about a third of a millisecond, likewise.
pub(crate) const COARSE: u32 = if cfg!(loom) {
    2
} else if cfg!(target_arch = "aarch64") {
    15
} else {
    20
};
/// How long a thread that was woken may take until another one is. In units of `COARSE`: about 10 ms, likewise.
pub(crate) const LATE: u32 = if cfg!(loom) { 1 } else { 32 };

/// A wait of this thread. Dropped without [`Wait::end`] it was none.
pub(crate) struct Wait {
    reason: WaitReason,
    goroutine: Option<&'static Goroutine>,
    /// Whether the time runs.
    is_running: bool,
    /// Whether it left an account that had not counted it.
    is_uncounted: bool,
    /// Whether the goroutine says that it waits.
    is_marked: bool,
    /// What interposed calls were hidden before this wait hides its own; none while it hides none.
    hidden_before: Option<hidden::Before>,
    /// A frame that stays while the thread waits.
    frame: SavedFrame,
    start: u64,
    /// Up to when the wait is over: the last wake.
    until: u64,
    stake: Stake,
}

impl Wait {
    /// This thread is about to wait; its time does not run yet.
    ///
    /// The caller does not return before the wait is over: its frame is where the stack of the waiting thread is read
    /// from. One that hands the wait on to another function has that call [`Wait::stay`].
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

    /// This thread waits from now on. The caller does not return before, as in [`Wait::prepare`].
    #[inline(always)]
    pub(crate) fn begin(reason: WaitReason) -> Self {
        Self::begin_in(SavedFrame::here(), reason)
    }

    /// As [`Wait::begin`], where the function that `frame` is in does not return before.
    pub(crate) fn begin_in(frame: SavedFrame, reason: WaitReason) -> Self {
        let mut wait = Self::prepare_in(frame, reason);
        wait.run();
        wait
    }

    /// The caller does not return before the wait is over, or before it goes on in another function that calls this.
    #[inline(always)]
    pub(crate) fn stay(&mut self) {
        self.frame = SavedFrame::here();
    }

    /// As [`Wait::begin`], for a wait that the program announces: whatever else this thread does meanwhile shows that it
    /// waits no more.
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

    /// As [`Wait::begin`], for a wait that began at the tick `start`.
    #[cfg(rtprof_interposed)]
    #[inline(always)]
    pub(crate) fn begin_at(reason: WaitReason, start: u64) -> Self {
        Self::begin_in_at(SavedFrame::here(), reason, start)
    }

    #[cfg(rtprof_interposed)]
    fn begin_in_at(frame: SavedFrame, reason: WaitReason, start: u64) -> Self {
        let mut wait = Self::prepare_in(frame, reason);
        wait.is_running = true;
        wait.start = start;
        wait.until = start;
        wait.run();
        wait
    }

    /// Whose wait it is.
    #[cfg(rtprof_interposed)]
    pub(crate) fn goroutine(&self) -> Option<&'static Goroutine> {
        self.goroutine
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

    /// Lets the time run from now on, if it does not already. Before each sleep.
    pub(crate) fn run(&mut self) {
        self.start_time();
        self.hide();
        // Before a second sleep too: the first is over.
        if let Some(goroutine) = self.goroutine {
            self.is_marked = true;
            goroutine.park(self.frame);
            states::block(goroutine, self.reason, self.start);
        }
    }

    /// As [`Wait::run`], in the account of a lock. The caller holds the lock of its queue.
    pub(crate) fn join(&mut self, account: &mut Account) {
        let is_fresh = !self.is_running || self.is_uncounted;
        self.is_uncounted = false;
        self.run();
        self.stake = account.join(self.until, is_fresh);
    }

    /// Takes the wait out of the account: it was given up. The caller holds the lock of its queue.
    pub(crate) fn leave(&mut self, account: &mut Account) {
        account.leave(self.stake);
        self.until = clock::ticks();
    }

    /// Takes the wait out of the account, to go on with it in another place of the queue. The caller holds the lock of
    /// the queue.
    pub(crate) fn leave_place(&mut self, account: &mut Account) {
        match account.leave(self.stake) {
            Some(charged) => self.until = charged,
            None => self.is_uncounted = true,
        }
    }

    /// Ends the wait for a condition at `moved`, when this thread was notified and moved to the queue of the mutex. What
    /// it has waited since is the wait that is returned, with its stake in the mutex's account.
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

    /// Takes the wait out of the account: it was let in. The unlock that was charged last did that, so the wait was
    /// over then; if it came before this thread was seen waiting, it is over `now`.
    pub(crate) fn let_in(&mut self, account: &mut Account, now: u64) {
        self.until = account.leave(self.stake).unwrap_or(now);
    }

    /// Somebody woke this thread at `until`. The wait may still go on, if it finds the lock taken.
    pub(crate) fn woken(&mut self, until: u64) {
        self.until = until;
        self.unmark();
    }

    /// What others may know this thread by while it sleeps; the low bits are free.
    pub(crate) fn token(&self) -> usize {
        self.goroutine.map_or(0, Goroutine::token)
    }

    /// The wait was over at its last wake: reports it, if there was one, with the caller's stack.
    pub(crate) fn end(mut self) {
        self.unmark();
        if self.is_running {
            report::blocked(self.reason, clock::since(self.start, self.until));
        }
    }

    /// The wait ends now: for what cannot tell when it was woken.
    pub(crate) fn end_now(mut self) {
        if self.is_running {
            self.until = clock::ticks();
        }
        self.end();
    }

    /// As [`Wait::end_now`], for what may not have waited at all, and does not tell.
    pub(crate) fn end_if_slept(self) {
        if clock::since(self.start, clock::ticks()) >= LEAST_SLEEP {
            self.end_now();
        }
    }

    /// What it sleeps in is this wait, and no other one.
    #[inline]
    fn hide(&mut self) {
        if self.hidden_before.is_none() {
            self.hidden_before = Some(hidden::hide(Calls::WAITS));
        }
    }

    /// This thread runs again.
    pub(crate) fn unmark(&mut self) {
        if self.is_marked
            && let Some(goroutine) = self.goroutine
        {
            self.is_marked = false;
            // First, so that a snapshot that goes on has it waiting.
            goroutine.unpark();
            states::resume(goroutine);
        }
        // Last: what has gone before may yield and sleep.
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

/// A lock was unlocked for which others had waited: reports it with the caller's stack.
#[inline]
pub(crate) fn charged(charge: Charge) {
    if charge.waits != 0 || charge.ticks != 0 {
        report::charged(charge);
    }
}

/// Others were woken who had waited for this, one of them there: reports it with the caller's stack.
#[cfg(rtprof_interposed)]
#[inline]
pub(crate) fn woke(charge: Charge, waited_at: Option<&'static WaitSite>) {
    if charge.waits != 0 {
        rtprof_profiler::contention::wake_event(charge.waits, charge.ticks, waited_at);
    }
}

/// Whether a charge would be recorded.
#[inline]
pub(crate) fn is_charged() -> bool {
    report::is_charged()
}
