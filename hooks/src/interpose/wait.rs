//! The wait of an interposed function: one sleep, which begins and ends in that function.
//!
//! A server makes 100,000 such waits a second, and few of them are recorded. So this is less than a [`wait::Wait`]
//! (no account, no second sleep), in registers where possible, and its functions are inlined: a wait after which the thread
//! is woken finds neither their code nor its data in the processor's first cache.
//!
//! [`wait::Wait`]: crate::inner::wait::Wait

use core::ffi::c_int;

use rtprof_profiler::BlockKinds;
use rtprof_profiler::contention::{self, BlockChoice};
use rtprof_runtime::clock;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::stack::SavedFrame;
use rtprof_tracer::states;

use super::forward::{errno, set_errno};
use crate::inner::sleepers::{Caller, Note};
use crate::inner::ticks::LEAST_SLEEP;

/// The `errno` of the current thread, where the work around a wait may change it: in a thread that is not known yet, and
/// while a trace is recorded. (Samples and sites of waits keep it themselves.) Elsewhere it is not read. It is in memory
/// that the processor must fetch anew after a wait, which takes as long as two readings of the clock.
pub(super) struct KeptErrno(Option<c_int>);

impl KeptErrno {
    #[inline(always)]
    pub(super) fn new() -> Self {
        let may_change = rtprof_tracer::is_enabled() || goroutine::known().is_none();
        Self(may_change.then(errno))
    }

    #[inline(always)]
    pub(super) fn restore(self) {
        if let Self(Some(errno)) = self {
            set_errno(errno);
        }
    }
}

/// A wait of the current thread. Without a destructor, because a thread may be cancelled in its wait: a wait that is not
/// ended is found by [`within`](crate::inner::within).
#[derive(Clone, Copy)]
pub(super) struct InterposedWait {
    reason: WaitReason,
    goroutine: Option<&'static Goroutine>,
    start: u64,
}

impl InterposedWait {
    /// Begins a wait at the tick `start`. The stack of the waiting thread is read from the caller's frame. So the caller does
    /// not return before it ends the wait, and it notes that it waits ([`within`](crate::inner::within)), because the program may
    /// leave it without a return.
    #[inline(always)]
    pub(super) fn begin(reason: WaitReason, start: u64) -> Self {
        let goroutine = goroutine::current();
        if let Some(goroutine) = goroutine {
            goroutine.park(SavedFrame::here());
            states::block(goroutine, reason, start);
        }
        Self { reason, goroutine, start }
    }

    /// The goroutine that waits.
    #[inline(always)]
    pub(super) fn goroutine(self) -> Option<&'static Goroutine> {
        self.goroutine
    }

    /// Decides what the profiles need of this wait, which begins now. Returns what it notes for the thread that ends it.
    ///
    /// A wait must not take longer to begin because it is chosen. If it did, chosen waits would more often find that the event
    /// has come before they sleep, and those that are recorded would not be like the others.
    #[inline(always)]
    pub(super) fn choose(self, caller: Caller) -> (Note, BlockChoice) {
        let choice = contention::choose_wait(BlockKinds::of(self.reason));
        (Note { is_watched: choice.is_watched(), weight: choice.mutex, caller }, choice.block)
    }

    /// Shows that this thread runs again, and reports nothing.
    #[inline(always)]
    pub(super) fn unmark(self) {
        if let Some(goroutine) = self.goroutine {
            // First, so that a goroutine snapshot in progress still has it as waiting.
            goroutine.unpark();
            states::resume(goroutine);
        }
    }

    /// Reports the wait for which [`choose`](Self::choose) has returned this, with the caller's stack. The function goes on at
    /// the tick `now`; another thread has ended the wait at `woken`. If that is not known, a wait is reported that took longer
    /// than a sleep needs.
    #[inline(always)]
    pub(super) fn end_chosen(self, choice: BlockChoice, woken: Option<u64>, now: u64) {
        self.unmark();
        let elapsed = clock::since(self.start, now);
        if woken.is_none() && elapsed < LEAST_SLEEP {
            return;
        }
        let kind = BlockKinds::of(self.reason);
        if contention::is_block_kind_on(kind) {
            let cycles = woken.map_or(elapsed, |woken| clock::since(self.start, woken));
            contention::chosen_block_event(kind, choice, cycles, elapsed);
        }
    }

    /// Ends the wait now and reports it with the caller's stack, if it took longer than a sleep needs.
    #[inline(always)]
    pub(super) fn end_if_slept(self) {
        let elapsed = clock::since(self.start, clock::ticks());
        self.unmark();
        let kind = BlockKinds::of(self.reason);
        if elapsed >= LEAST_SLEEP && contention::is_block_kind_on(kind) {
            contention::block_event(kind, elapsed);
        }
    }
}
