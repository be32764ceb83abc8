//! Goroutines that begin, wait, are woken and end. Safe to call in hooks.
//!
//! All of these functions maintain the goroutine's state whether anything is recorded or not, so that a trace can begin
//! at any moment and report correctly which goroutines wait.

use rtprof_runtime::clock;
use rtprof_runtime::goroutine::observer::Observer;
use rtprof_runtime::goroutine::start::Start;
use rtprof_runtime::goroutine::state::{State, StateWord};
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::goroutine::{Birth, Goroutine};
use rtprof_runtime::goroutine_id;
use rtprof_runtime::labels;
use rtprof_runtime::thread::kernel_thread;

use crate::declared::Declared as _;
use crate::record::RecordKind;
use crate::thread::{self, is_enabled, record_any, record_own, record_self};

pub(crate) static OBSERVER: Observer =
    Observer { began, waits, ends, forked, cycle, cpu_sample: crate::sample::cpu_sample };

/// Microseconds after which a call counts as blocking. Go's rule: its `sysmon` takes the P away from a system call
/// after this time.
pub const LONG_MICROS: u64 = 20;

/// Changes a goroutine's state without a record. If `to` returns `None`, nothing is changed.
#[inline]
fn change_unrecorded(goroutine: &Goroutine, to: impl Fn(State) -> Option<State>) {
    let mut word = goroutine.state();
    while let Some(state) = to(word.state()) {
        let generation = if is_enabled() { word.lost() } else { 0 };
        match goroutine.change(word, word.next(state, generation)) {
            Ok(()) => return,
            Err(seen) => word = seen,
        }
    }
}

/// Marks the current goroutine as waiting since `since`, before the thread sleeps. [`resume`] must follow. Events of
/// the thread until then do not count as signs that it runs. Go: `gopark`, `traceGoPark`.
#[inline]
pub fn block(own: &Goroutine, reason: WaitReason, since: u64) {
    announce(own, reason, since);
    thread::set_asleep(true);
}

/// Announces that the current goroutine waits since `since`. Any other event of its thread ends the wait.
#[inline]
pub fn announce(own: &Goroutine, reason: WaitReason, since: u64) {
    own.note_since(since);
    if !is_enabled() || block_recorded(own, reason).is_none() {
        change_unrecorded(own, |_| Some(State::Waiting(reason)));
    }
}

#[cold]
fn block_recorded(own: &Goroutine, reason: WaitReason) -> Option<()> {
    record_self(|writer, _| {
        let stack = writer.stack();
        writer.count_if_lost();
        let tick = writer.leave_running(own, State::Waiting(reason));
        writer.write(RecordKind::Block, tick, [reason as u64, stack.into()]);
    })
}

/// Marks the current goroutine as running again: woken by another goroutine, or by itself if no waker was recorded.
/// Does nothing if it runs.
#[inline]
pub fn resume(own: &Goroutine) {
    thread::set_asleep(false);
    // An event settles the state.
    if !is_enabled() || record_self(|_, _| ()).is_none() {
        change_unrecorded(own, |state| (state != State::Running).then_some(State::Running));
    }
}

/// Makes a waiting goroutine runnable, on behalf of the current one. Does nothing if the goroutine does not wait. The
/// caller ensures that the goroutine cannot end during the call. Go: `goready`, `traceGoUnpark`.
#[inline]
pub fn unblock(goroutine: &Goroutine) {
    unblock_if(goroutine, |state| matches!(state, State::Waiting(_)));
}

/// Like [`unblock`], if `waits` returns `true` for the goroutine's state, that is if the state is the wait that the
/// caller means. `waits` is called after the state is read, and nothing is done if the state has changed since: so the
/// goroutine may end during the call.
#[inline]
pub fn unblock_if(goroutine: &Goroutine, waits: impl Fn(State) -> bool) {
    if !is_enabled() || unblock_recorded(goroutine, &waits).is_none() {
        change_unrecorded(goroutine, |state| waits(state).then_some(State::Runnable));
    }
}

#[cold]
fn unblock_recorded(goroutine: &Goroutine, waits: &dyn Fn(State) -> bool) -> Option<()> {
    record_any(|writer| {
        writer.count_if_lost();
        let stack = writer.stack();
        writer.unblock(goroutine, stack, waits);
    })
}

/// Marks a goroutine as in a system call if it is marked as running, but the kernel says that its thread waits. The
/// same is done for the profiler's own threads, which spend nearly all of their time in calls without hooks, and may be
/// running only to start this trace. Returns the new word; `None` if the goroutine's word is or becomes different. Must
/// not be called in a hook.
pub(crate) fn find_in_kernel(goroutine: &Goroutine) -> Option<StateWord> {
    // Read before the kernel is asked, so that a change in between makes the swap fail.
    let word = goroutine.state();
    let is_there = || kernel_thread::is_waiting(goroutine.thread_id()) == Some(true);
    if word.state() != State::Running || !labels::is_own(goroutine.labels()) && !is_there() {
        return None;
    }
    let found = word.next(State::Syscall, word.lost());
    goroutine.change(word, found).is_ok().then_some(found)
}

/// Records a long call of the current goroutine that has ended. The call lasted from `begin` to `end`, in ticks; the
/// goroutine was in `state` during the call, but was marked as running. Go: `traceGoSysBlock`, `traceGoSysExit`.
#[cold]
pub fn call_ended(own: &Goroutine, state: State, (begin, end): (u64, u64)) {
    if !is_enabled() {
        return;
    }
    if own.state().state() != State::Running {
        // The goroutine was found in the kernel when the trace began, so the call is in the trace already.
        return resume(own);
    }
    record_own(|writer, _| {
        if !writer.count_if_lost() {
            let stack = writer.stack();
            let arguments = [state.number().into(), stack.into(), clock::since(begin, end)];
            writer.write(RecordKind::Call, end, arguments);
        }
    });
}

/// Records that the current goroutine yields. [`resume`] must follow. Go: `traceGoSched`.
pub fn yields() {
    if !is_enabled() {
        return;
    }
    record_own(|writer, own| {
        if !writer.count_if_lost() {
            let stack = writer.stack();
            let tick = writer.leave_running(own, State::Runnable);
            writer.write(RecordKind::Yield, tick, [stack.into()]);
        }
    });
}

/// Records that the current goroutine makes a system call that may block. [`resume`] must follow. Go: `traceGoSysCall`.
pub fn enter_syscall() {
    record_own(|writer, own| {
        if !writer.count_if_lost() {
            let stack = writer.stack();
            let tick = writer.leave_running(own, State::Syscall);
            writer.write(RecordKind::SyscallBegin, tick, [stack.into()]);
        }
    });
}

/// Records that the current goroutine is about to start a thread with this name, empty for none. `None` when nothing is
/// recorded: then the thread records itself. Without a name and a start the trace takes the name from [`rename`], or
/// from the function that the thread runs. Go: `traceGoCreate`.
pub fn create(name: &str, start: Option<Start>) -> Option<Birth> {
    if !is_enabled() {
        return None;
    }
    let goroutine = goroutine_id::reserve();
    record_any(|writer| {
        if writer.count_if_lost() {
            return None;
        }
        let (stack, name) = (writer.stack(), writer.title(name, start));
        writer.write(RecordKind::Create, writer.now(), [goroutine, name.into(), stack.into()]);
        Some(Birth { goroutine, mark: writer.generation() })
    })?
}

/// Records the name of the current goroutine, which had none.
pub fn rename(name: &str) {
    if !is_enabled() {
        return;
    }
    record_own(|writer, own| {
        if !writer.count_if_lost() {
            let name = writer.string(name);
            writer.write(RecordKind::Name, writer.now(), [own.id(), name.into()]);
        }
    });
}

/// Records that the system has refused to start the thread.
pub fn create_failed(birth: Birth) {
    record_any(|writer| {
        if !writer.count_if_lost() {
            writer.write(RecordKind::CreateFailed, writer.now(), [birth.goroutine]);
        }
    });
}

fn began(goroutine: &'static Goroutine) {
    resume(goroutine);
}

fn waits(goroutine: &'static Goroutine, reason: WaitReason) {
    announce(goroutine, reason, clock::ticks());
}

fn ends(goroutine: &'static Goroutine) {
    thread::set_asleep(false);
    let recorded = record_self(|writer, own| {
        writer.count_if_lost();
        let tick = writer.leave_running(own, State::Dead);
        writer.write(RecordKind::End, tick, []);
    });
    if recorded.is_none() {
        change_unrecorded(goroutine, |_| Some(State::Dead));
    }
    thread::close_lane();
}

fn forked() {
    crate::session::forked();
}

fn cycle(f: &mut dyn FnMut()) {
    crate::region::with_region("heap profile cycle", f);
}
