//! Async tasks that are created, polled, woken and dropped. For hooks.
//!
//! Called only while [`is_enabled`](crate::is_enabled): else a task keeps up no state for traces. The task says what it does; so
//! each of these has its place before or after what it tells of.

use rtprof_runtime::goroutine::Goroutine;
use rtprof_runtime::state::State;
use rtprof_runtime::task::Task;

use crate::lane_writer::{
    change_unrecorded, ended_unrecorded, panicked_unrecorded, poll_ended_unrecorded, woken_unrecorded,
};
use crate::thread::{record_any, record_self};

/// The current goroutine has created a task, which nothing else knows yet. Go: `traceGoCreate`.
#[cold]
pub fn created(task: &Task) {
    record_any(|writer| {
        if !writer.count_if_lost() {
            writer.create_task(task);
        }
    });
}

/// The current thread is about to poll a task: before [`Task::enter`]. Go: `traceGoStart`.
#[inline(never)]
pub fn begin(task: &Task) {
    record_self(|writer, _| {
        writer.count_if_lost();
        writer.begin_poll(task);
    });
}

/// How a poll ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollEnd {
    /// The future waits, or can run again.
    Pending,
    /// By a panic.
    Panicked,
    /// The task is over.
    Over,
}

/// The poll of `task` by the current thread, whose goroutine `own` is, is over; the thread goes on polling `outer`. Before
/// [`Task::leave`]. Go: `traceGoPark`, `traceGoSched`, `traceGoEnd`.
#[inline(never)]
pub fn end(own: &'static Goroutine, task: &'static Task, outer: Option<&'static Task>, end: PollEnd) {
    let recorded = record_self(|writer, own| {
        writer.count_if_lost();
        match end {
            PollEnd::Pending => writer.end_poll(task),
            PollEnd::Panicked => writer.end_panicked_poll(task),
            PollEnd::Over => writer.end_task(task),
        }
        // A signal handler that comes next and finds the task polled would take it for one that runs.
        own.set_polls(outer);
    });
    if recorded.is_none() {
        own.set_polls(outer);
        match end {
            PollEnd::Pending => change_unrecorded(task, poll_ended_unrecorded),
            PollEnd::Panicked => change_unrecorded(task, panicked_unrecorded),
            PollEnd::Over => change_unrecorded(task, ended_unrecorded),
        }
    }
}

/// The current thread is about to wake a task: before the executor is told, which may poll it at once. Go: `traceGoUnpark`.
#[inline]
pub fn woken(task: &Task) {
    // Most wakes that come in numbers are of one task.
    if task.is_woken_already() {
        return;
    }
    wake(task);
}

#[inline(never)]
fn wake(task: &Task) {
    let recorded = record_any(|writer| {
        writer.count_if_lost();
        writer.wake_task(task, |writer| writer.stack());
    });
    if recorded.is_none() {
        change_unrecorded(task, woken_unrecorded);
    }
}

/// A task is over that no poll has ended, and that is not polled.
#[cold]
pub fn dropped(task: &Task) {
    let recorded = record_self(|writer, _| {
        let word = task.traced();
        if word.mark() == 0 || word.state() == State::Dead {
            return;
        }
        writer.count_if_lost();
        writer.begin_poll(task);
        writer.end_task(task);
    });
    if recorded.is_none() {
        change_unrecorded(task, ended_unrecorded);
    }
}
