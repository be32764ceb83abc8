//! The current thread's lane.

use core::cell::Cell;

use rtprof_profiler::goroutine::{self, Goroutine};

use crate::lane::Lane;
use crate::recorder::{Recorder, kernel_thread_id};
use crate::turn::Turn;

pub(crate) static RECORDER: Recorder = Recorder::new();

thread_local! {
    // No destructor and no lazy initialisation: readable from the first to the last instruction of a thread
    // (rust#116390).
    static LANE: Cell<Option<&'static Lane>> = const { Cell::new(None) };
}

/// Whether a trace is being recorded. Go: `trace.IsEnabled`. One load.
#[inline(always)]
pub fn is_enabled() -> bool {
    RECORDER.epoch.generation.load(core::sync::atomic::Ordering::Relaxed) != 0
}

/// Runs `f` in a turn of the current thread, whose goroutine it is told, and which is declared and runs. `None` when
/// nothing is recorded, and in a thread without a goroutine: before the first and after the last destructor, in a signal
/// handler that has interrupted a turn.
#[inline(always)]
pub(crate) fn own_turn<R>(f: impl FnOnce(&mut Turn<'_>, &'static Goroutine) -> R) -> Option<R> {
    let own = goroutine::current()?;
    RECORDER.with_turn(own_lane(own)?, |turn| {
        turn.settle(own);
        f(turn, own)
    })
}

/// Runs `f` in a turn of the lane of `own`, which is the current thread's, whatever it does. `None` as in [`own_turn`].
pub(crate) fn in_own_lane<R>(own: &'static Goroutine, f: impl FnOnce(&mut Turn<'_>) -> R) -> Option<R> {
    RECORDER.with_turn(own_lane(own)?, f)
}

/// As [`own_turn`], or else in a turn of the shared lane, with no goroutine. `None` when nothing is recorded, or if that
/// lane is another's for too long; counted then.
#[inline(always)]
pub(crate) fn any_turn<R>(f: impl FnOnce(&mut Turn<'_>, Option<&'static Goroutine>) -> R) -> Option<R> {
    let mut f = Some(f);
    let recorded = own_turn(|turn, own| f.take().map(|f| f(turn, Some(own))));
    match f {
        None => recorded.flatten(),
        Some(f) => shared_turn(|turn| f(turn, None)),
    }
}

/// In a turn of the shared lane.
#[cold]
pub(crate) fn shared_turn<R>(f: impl FnOnce(&mut Turn<'_>) -> R) -> Option<R> {
    if !is_enabled() {
        return None;
    }
    let recorded = RECORDER.with_shared_turn(kernel_thread_id(), f);
    if recorded.is_none() && is_enabled() {
        lose();
    }
    recorded
}

/// An event is not recorded.
pub(crate) fn lose() {
    RECORDER.losses.events.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
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
    let lane = RECORDER.open_lane(own.id(), own.thread_id());
    LANE.with(|own| own.set(lane));
    lane
}

/// The current thread records no more as the goroutine that it is.
pub(crate) fn close_lane() {
    if let Some(lane) = LANE.with(Cell::take) {
        RECORDER.close_lane(lane);
    }
}

/// Whatever lane the current thread has is not its own: it is a forked child of the one that has it.
pub(crate) fn forget_lane() {
    LANE.with(Cell::take);
}

/// As [`forget_lane`], if that is so: forked without the C library's knowledge.
pub(crate) fn forget_lane_of_another() {
    use core::sync::atomic::Ordering;
    // The registry has compared the goroutine with the kernel.
    let own = goroutine::current().map(Goroutine::thread_id);
    LANE.with(|lane| {
        if lane.get().is_some_and(|lane| Some(lane.thread_id.load(Ordering::Relaxed)) != own) {
            lane.set(None);
        }
    });
}
