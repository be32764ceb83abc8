//! Reporting of a call that may wait as a wait of the current thread.

use rtprof_runtime::clock;
use rtprof_runtime::goroutine;
use rtprof_runtime::hook::listeners;
use rtprof_runtime::stack::frame_mark::FrameMark;
use rtprof_tracer::states;

use super::forward::{errno, set_errno};
use super::wait::InterposedWait;
use crate::inner::wait::WaitReason;
use crate::inner::within;

/// Makes `call`, and reports how long it has waited.
///
/// Inlined into the interposed function, whose frame stays until `call` is over.
#[inline(always)]
pub(super) fn watch<R>(reason: WaitReason, call: impl FnOnce() -> R) -> R {
    if listeners::are_any() { interposed_call(reason, call) } else { unwatched(call) }
}

/// Makes `call` while nothing is recorded. If recording begins during the call, the goroutine may have been found
/// asleep, and is marked as running again.
#[inline(always)]
pub(super) fn unwatched<R>(call: impl FnOnce() -> R) -> R {
    let result = call();
    if listeners::are_any() {
        come_back();
    }
    result
}

#[cold]
#[inline(never)]
fn come_back() {
    if within::is_hidden(&FrameMark::new()) {
        return;
    }
    let errno = errno();
    if let Some(own) = goroutine::known() {
        states::resume(own);
    }
    set_errno(errno);
}

#[cold]
#[inline(never)]
fn interposed_call<R>(reason: WaitReason, call: impl FnOnce() -> R) -> R {
    let mark = FrameMark::new();
    if within::is_hidden(&mark) {
        return call();
    }
    let before = errno();
    within::enter_wait(mark.set());
    // A thread that is cancelled in the call is unwound, without a destructor of ours. Until it ends, its goroutine is
    // marked as waiting in this frame, which does not exist any more: a goroutine snapshot may show a wrong stack, read
    // from memory that still belongs to the thread.
    let wait = InterposedWait::begin(reason, clock::ticks());
    set_errno(before);
    let result = call();
    let after = errno();
    wait.end_if_slept();
    within::leave_wait(&mark);
    set_errno(after);
    result
}
