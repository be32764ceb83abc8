//! Goroutines that begin, wait, are woken and end. For hooks.
//!
//! All of these keep up the goroutine's state whether anything is recorded or not, so that a trace can begin at any moment
//! and say truly who waits.

use rtprof_runtime::clock;
use rtprof_runtime::goroutine::observer::Observer;
use rtprof_runtime::goroutine::{Birth, Goroutine};
use rtprof_runtime::goroutine_id;
use rtprof_runtime::kernel_thread;
use rtprof_runtime::labels;
use rtprof_runtime::start::Start;
use rtprof_runtime::state::{State, StateWord};
use rtprof_runtime::wait_reason::WaitReason;

use crate::declared::Declared as _;
use crate::record::RecordKind;
use crate::thread::{self, is_enabled, record_any, record_own, record_self};

pub(crate) static OBSERVER: Observer =
    Observer { began, waits, ends, forked, cycle, cpu_sample: crate::sample::cpu_sample };

/// A call that takes so many microseconds blocks. Go's rule: its `sysmon` takes the P away from a system call after this time.
pub const LONG_MICROS: u64 = 20;

/// Changes a goroutine's state where nothing is recorded of it. If `to` returns none, nothing is changed.
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

/// The current goroutine is about to sleep, since `since`. To be followed by [`resume`]. What the thread does until then is
/// not taken for a sign that it runs. Go: `gopark`, `traceGoPark`.
#[inline]
pub fn block(own: &Goroutine, reason: WaitReason, since: u64) {
    announce(own, reason, since);
    thread::set_asleep(true);
}

/// The current goroutine waits, since `since`, or so it says: whatever else it does shows that it does not any more.
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

/// The current goroutine runs again: woken by another, or, if nobody has said so, by itself. Nothing, if it runs.
#[inline]
pub fn resume(own: &Goroutine) {
    thread::set_asleep(false);
    // An event settles it.
    if !is_enabled() || record_self(|_, _| ()).is_none() {
        change_unrecorded(own, |state| (state != State::Running).then_some(State::Running));
    }
}

/// A goroutine that waits can run, by the doing of the current one. Nothing, if it does not wait. It cannot end meanwhile.
/// Go: `goready`, `traceGoUnpark`.
#[inline]
pub fn unblock(goroutine: &Goroutine) {
    unblock_if(goroutine, |state| matches!(state, State::Waiting(_)));
}

/// As [`unblock`], if `waits` says of its state that it is the wait that is meant. That is asked after the state was read,
/// and nothing is done if the state has changed since: so the goroutine may end meanwhile.
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

/// A goroutine that says that it runs, while the kernel says that its thread waits, is in a system call for all that is known.
/// So is a thread of ours, which waits nearly all of the time in calls that nothing tells of, and may be running only to start this
/// trace. Returns its word then. Nothing, if it says something else meanwhile. Not for hooks.
pub(crate) fn find_in_kernel(goroutine: &Goroutine) -> Option<StateWord> {
    // Read before the kernel is asked, so that a change since makes this one fail.
    let word = goroutine.state();
    let is_there = || kernel_thread::is_waiting(goroutine.thread_id()) == Some(true);
    if word.state() != State::Running || !labels::is_own(goroutine.labels()) && !is_there() {
        return None;
    }
    let found = word.next(State::Syscall, word.lost());
    goroutine.change(word, found).is_ok().then_some(found)
}

/// A call of the current goroutine is over, which began and ended at these ticks and was long: it has done what `state` says
/// meanwhile, while it was said to run. Go: `traceGoSysBlock`, `traceGoSysExit`.
#[cold]
pub fn call_ended(own: &Goroutine, state: State, (begin, end): (u64, u64)) {
    if !is_enabled() {
        return;
    }
    if own.state().state() != State::Running {
        // Found in the kernel when the trace began: that tells of the call already.
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

/// The current goroutine lets others run. To be followed by [`resume`]. Go: `traceGoSched`.
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

/// The current goroutine makes a system call that may block. To be followed by [`resume`]. Go: `traceGoSysCall`.
pub fn enter_syscall() {
    record_own(|writer, own| {
        if !writer.count_if_lost() {
            let stack = writer.stack();
            let tick = writer.leave_running(own, State::Syscall);
            writer.write(RecordKind::SyscallBegin, tick, [stack.into()]);
        }
    });
}

/// The current goroutine is about to start a thread of this name, empty for none. `None` when nothing is recorded: then the
/// thread settles everything itself. Without a name and a start the trace has the name from [`rename`], or from what the thread
/// runs. Go: `traceGoCreate`.
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

/// The current goroutine, which had no name, has this one from now on.
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

/// There will be no such thread: the system has refused it.
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
    crate::drain::forked();
}

fn cycle(f: &mut dyn FnMut()) {
    crate::region::with_region("heap profile cycle", f);
}
