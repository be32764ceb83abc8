//! The current thread's lane.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::{self, Goroutine};

use crate::lane::Lane;
use crate::lane_writer::LaneWriter;
use crate::recorder::{Patience, Recorder, kernel_thread_id};

rtprof_runtime::lazy_under_loom! {
    pub(crate) static RECORDER: Recorder = Recorder::new();
}

thread_local! {
    // No destructor and no lazy initialisation: readable from the first to the last instruction of a thread
    // (rust#116390).
    static LANE: Cell<Option<&'static Lane>> = const { Cell::new(None) };
    // Whether the thread is asleep, or about to be. Its events on the way to sleep, such as unlocking a mutex, and
    // those of signal handlers are no sign that its goroutine runs.
    static IS_ASLEEP: Cell<bool> = const { Cell::new(false) };
}

/// Whether a trace is being recorded. Go: `trace.IsEnabled`. One load.
#[inline(always)]
pub fn is_enabled() -> bool {
    RECORDER.epoch.generation.load(Ordering::Relaxed) != 0
}

/// Runs `f` in an event of the current thread, for events that only a running goroutine can have. `f` receives the
/// thread's goroutine, which is declared and running. `None` when nothing is recorded; in a thread that is asleep, or
/// without a goroutine (before the first and after the last destructor); and in a signal handler that has interrupted
/// an event.
#[inline(always)]
pub(crate) fn record_own<R>(f: impl FnOnce(&mut LaneWriter<'_>, &'static Goroutine) -> R) -> Option<R> {
    if is_asleep() { None } else { record_self(f) }
}

/// Like [`record_own`], also in a thread that was asleep: for changes of the goroutine's own state.
#[inline(always)]
pub(crate) fn record_self<R>(f: impl FnOnce(&mut LaneWriter<'_>, &'static Goroutine) -> R) -> Option<R> {
    let own = goroutine::current()?;
    RECORDER.with_writer(own_lane(own)?, |writer| {
        writer.settle(own);
        if let Some(task) = own.polls() {
            writer.settle_task(task);
        }
        f(writer, own)
    })
}

/// Runs `f` in an event of the lane of `own`, the current thread's goroutine, whatever its state. `None` as in
/// [`record_own`].
pub(crate) fn in_own_lane<R>(own: &'static Goroutine, f: impl FnOnce(&mut LaneWriter<'_>) -> R) -> Option<R> {
    RECORDER.with_writer(own_lane(own)?, f)
}

/// Like [`record_own`], also in a thread that is asleep or has no goroutine. Uses the shared lane if the thread's own
/// lane is not available. `None` when nothing is recorded, or if another thread holds the shared lane for too long,
/// which counts as a loss.
#[inline(always)]
pub(crate) fn record_any<R>(f: impl FnOnce(&mut LaneWriter<'_>) -> R) -> Option<R> {
    let mut f = Some(f);
    let mut recorded = record_somewhere(&mut f);
    if f.is_some() && !is_within_event() {
        // The trace has ended since, and another one may have begun.
        recorded = record_somewhere(&mut f);
        if f.is_some() && LANE.with(Cell::get).is_some() {
            return None;
        }
    }
    match f {
        None => recorded,
        Some(f) => record_shared(f),
    }
}

/// Runs the closure in `f`, if any, in an event of the current thread's lane, if such an event is possible now.
#[inline(always)]
fn record_somewhere<R>(f: &mut Option<impl FnOnce(&mut LaneWriter<'_>) -> R>) -> Option<R> {
    if !is_asleep() {
        return record_self(|writer, _| f.take().map(|f| f(writer))).flatten();
    }
    let own = goroutine::known()?;
    let recorded = in_own_lane(own, |writer| {
        writer.declare(own);
        f.take().map(|f| f(writer))
    });
    recorded.flatten()
}

/// Whether the current thread is within an event that a signal handler has interrupted.
#[cold]
fn is_within_event() -> bool {
    LANE.with(Cell::get).is_some_and(|lane| lane.events.load(Ordering::Relaxed) & 1 != 0)
}

/// Whether the current thread is asleep, or about to be.
#[inline(always)]
pub(crate) fn is_asleep() -> bool {
    IS_ASLEEP.with(Cell::get)
}

/// Sets [`is_asleep`].
#[inline(always)]
pub(crate) fn set_asleep(is_asleep: bool) {
    IS_ASLEEP.with(|cell| cell.set(is_asleep));
}

/// Runs `f` in an event of the shared lane.
#[cold]
pub(crate) fn record_shared<R>(f: impl FnOnce(&mut LaneWriter<'_>) -> R) -> Option<R> {
    counted(|thread_id| RECORDER.with_shared_writer(thread_id, f))
}

/// Runs `f` in an event of a shared lane for signal handlers.
pub(crate) fn record_in_handler<R>(f: impl FnOnce(&mut LaneWriter<'_>) -> R) -> Option<R> {
    counted(|thread_id| RECORDER.with_handler_writer(thread_id, f))
}

/// Runs `record`, which receives the kernel's number of the current thread and records an event, and counts the event
/// as lost if that fails.
fn counted<R>(record: impl FnOnce(u32) -> Option<R>) -> Option<R> {
    if !is_enabled() {
        return None;
    }
    let recorded = record(kernel_thread_id());
    if recorded.is_none() && is_enabled() {
        lose();
    }
    recorded
}

/// Counts a lost event.
pub(crate) fn lose() {
    RECORDER.losses.events.fetch_add(1, Ordering::Relaxed);
}

#[inline]
fn own_lane(own: &'static Goroutine) -> Option<&'static Lane> {
    match LANE.with(Cell::get) {
        Some(lane) => Some(lane),
        None => open_lane(own),
    }
}

#[cold]
fn open_lane(own: &'static Goroutine) -> Option<&'static Lane> {
    if !is_enabled() {
        return None;
    }
    // A signal handler in a thread that is about to end.
    if own.state().state() == State::Dead {
        return None;
    }
    let lane = RECORDER.open_lane(own.id(), own.thread_id())?;
    LANE.with(|own| match own.get() {
        // A signal handler has opened a lane in between.
        Some(faster) => {
            close(lane);
            Some(faster)
        }
        None => {
            own.set(Some(lane));
            Some(lane)
        }
    })
}

fn close(lane: &'static Lane) {
    let own = kernel_thread_id();
    let patience = Patience { own, is_gone: &|_| false, is_over: &|| false };
    RECORDER.close_lane(lane, lane.goroutine.load(Ordering::Relaxed), &patience);
}

/// Closes the current thread's lane: it records no more as its goroutine.
pub(crate) fn close_lane() {
    if let Some(lane) = LANE.with(Cell::take) {
        close(lane);
    }
}

/// Drops the current thread's lane without closing it, in a forked child, where the lane belongs to the parent's
/// thread.
pub(crate) fn forget_lane() {
    LANE.with(Cell::take);
}

/// Does the same if the lane belongs to another thread, after a fork without the C library's knowledge.
pub(crate) fn forget_lane_of_another() {
    // The registry has compared the goroutine's thread with the kernel's.
    let own = goroutine::current().map(Goroutine::thread_id);
    LANE.with(|lane| {
        if lane.get().is_some_and(|lane| Some(lane.thread_id.load(Ordering::Relaxed)) != own) {
            lane.set(None);
        }
    });
}
