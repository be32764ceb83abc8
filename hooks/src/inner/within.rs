//! The interposed function that the current thread is in, so that the calls of a signal handler which interrupts it are
//! not taken for calls of the program.
//!
//! A program may leave such a function without a return: by `siglongjmp` or a C++ exception from a signal handler, or
//! because the thread is cancelled. So it is noted by a mark in its frame ([`FrameMark`]), and the next call finds that
//! it was left, and ends what it has begun. Nothing is reported for a wait that was left: its end is not known.

use core::cell::Cell;

use rtprof_runtime::goroutine;
use rtprof_runtime::hook::errno;
use rtprof_runtime::hook::hidden::{self, Calls};
use rtprof_runtime::stack::frame_mark::FrameMark;
use rtprof_tracer::states;

use crate::inner::sleepers::{Hints, SLEEPERS, Sleeper, SleeperCell};

/// In place of a mark's address: the thread is in no such function.
const NONE: usize = 0;

/// How many calls in a row may be taken for calls of a signal handler that are not certain to be: in code without unwind
/// tables the stack cannot be walked up to the mark. A function that is wrongly taken for left costs one wait, and one that
/// is wrongly taken for running costs all later ones.
const MOST_UNCERTAIN: u32 = 8;

/// A function of one kind that the thread is in.
struct Within {
    /// The address of its mark.
    mark: Cell<usize>,
    /// The number of calls within it that were not certain to be.
    uncertain: Cell<u32>,
}

thread_local! {
    // No destructors and no lazy initialisation, as everywhere in hooks.
    /// A function whose time is a wait from its beginning on.
    static WAIT: Within = const { Within::nowhere() };
    /// The cell in which that function waits.
    static PLACE: Cell<Option<SleeperCell>> = const { Cell::new(None) };
    static HINTS: Hints = const { Hints::new() };
    /// A function of which only the end tells whether it has waited.
    static CALL: Within = const { Within::nowhere() };
}

impl Within {
    const fn nowhere() -> Self {
        Self { mark: Cell::new(NONE), uncertain: Cell::new(0) }
    }

    /// Notes the function with the mark at this address, or none.
    #[inline(always)]
    fn set(&self, mark: usize) {
        self.mark.set(mark);
        self.uncertain.set(0);
    }

    /// Returns whether the function with the mark `here` was called within a function of this kind. Calls `end` if the thread
    /// has left one.
    #[inline(always)]
    fn has_around(&self, here: &FrameMark, end: impl FnOnce()) -> bool {
        self.mark.get() != NONE && self.is_not_left(here, end)
    }

    #[cold]
    fn is_not_left(&self, here: &FrameMark, end: impl FnOnce()) -> bool {
        let is_within = errno::kept(|| here.is_within(self.mark.get())).unwrap_or_else(|| {
            self.uncertain.set(self.uncertain.get() + 1);
            self.uncertain.get() <= MOST_UNCERTAIN
        });
        if !is_within {
            self.set(NONE);
            end();
        }
        is_within
    }
}

/// Returns whether the function with this mark passes its call on unrecorded: the call is hidden, or made within a wait.
#[inline]
pub(crate) fn is_hidden(here: &FrameMark) -> bool {
    hidden::is_hidden(Calls::WAITS) || is_in_wait(here)
}

/// Returns whether the function with this mark was called within an interposed wait. Ends a wait that the thread has left.
#[inline]
pub(crate) fn is_in_wait(here: &FrameMark) -> bool {
    WAIT.with(|wait| wait.has_around(here, end_left_wait))
}

#[cold]
fn end_left_wait() {
    errno::kept(|| {
        if let Some(place) = PLACE.take() {
            SLEEPERS.leave(place);
        }
        if let Some(own) = goroutine::known() {
            own.unpark();
            states::resume(own);
        }
    });
}

/// Notes that the current thread waits in the function whose mark, set by the function itself, is at this address, until
/// [`leave_wait`]. It is in no other wait.
pub(crate) fn enter_wait(mark: usize) {
    PLACE.set(None);
    WAIT.with(|wait| wait.set(mark));
}

/// Leaves the cell of a thread that ends in its wait.
pub(crate) fn thread_ends() {
    let is_in_wait = WAIT.with(|wait| wait.mark.replace(NONE)) != NONE;
    if is_in_wait && let Some(place) = PLACE.take() {
        SLEEPERS.leave(place);
    }
}

/// Enters the wait's thread into the table. Returns its cell, if there was a free one.
pub(crate) fn enter_cell(sleeper: Sleeper) -> Option<SleeperCell> {
    HINTS.with(|hints| SLEEPERS.enter(sleeper, hints, |place| PLACE.set(Some(place))))
}

/// Notes that the wait is over.
pub(crate) fn leave_wait(mark: &FrameMark) {
    mark.clear();
    WAIT.with(|wait| wait.set(NONE));
}

/// Notes that the current thread is in the call whose mark, set by the call itself, is at this address, until [`leave_call`].
/// Returns `false` if it is in another one, which stays noted.
#[inline(always)]
pub(crate) fn enter_call(here: &FrameMark, mark: usize) -> bool {
    CALL.with(|call| {
        let is_inner = call.has_around(here, || {
            if let Some(own) = goroutine::known() {
                own.call().end();
            }
        });
        if !is_inner {
            call.set(mark);
        }
        !is_inner
    })
}

/// Notes that the call is over for which [`enter_call`] has returned `is_outermost`.
#[inline(always)]
pub(crate) fn leave_call(mark: &FrameMark, is_outermost: bool) {
    mark.clear();
    if is_outermost {
        CALL.with(|call| call.set(NONE));
    }
}
