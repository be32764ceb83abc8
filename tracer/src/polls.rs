//! Async tasks that are created, polled, woken and dropped. Safe to call in hooks.
//!
//! Called only while [`is_enabled`](crate::is_enabled), because otherwise a task keeps no state for traces. These
//! functions read the state of the task, so each must be called before or after the change that it reports, as its text
//! says.

use rtprof_runtime::goroutine::Goroutine;
use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::task::Task;

use crate::lane_writer::{
    change_unrecorded, ended_unrecorded, panicked_unrecorded, poll_ended_unrecorded, woken_unrecorded,
};
use crate::thread::{record_any, record_self};

/// Records that the current goroutine has created a task, before any other code knows the task. Go: `traceGoCreate`.
#[cold]
pub fn created(task: &Task) {
    record_any(|writer| {
        if !writer.count_if_lost() {
            writer.create_task(task);
        }
    });
}

/// Records that the current thread is about to poll a task. Called before [`Task::enter`]. Go: `traceGoStart`.
#[inline(never)]
pub fn begin(task: &Task) {
    record_self(|writer, _| {
        writer.count_if_lost();
        writer.begin_poll(task);
    });
}

/// The way a poll ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollEnd {
    /// The future waits, or can run again.
    Pending,
    /// The poll has panicked.
    Panicked,
    /// The task is over.
    Over,
}

/// Records the end of a poll of `task` by the current thread, whose goroutine is `own`; the thread continues to poll
/// `outer`. Called before [`Task::leave`]. Go: `traceGoPark`, `traceGoSched`, `traceGoEnd`.
#[inline(never)]
pub fn end(own: &'static Goroutine, task: &'static Task, outer: Option<&'static Task>, end: PollEnd) {
    let recorded = record_self(|writer, own| {
        writer.count_if_lost();
        match end {
            PollEnd::Pending => writer.end_poll(task),
            PollEnd::Panicked => writer.end_panicked_poll(task),
            PollEnd::Over => writer.end_task(task),
        }
        // Otherwise a signal handler that comes next would find the task polled, and record it as running.
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

/// Records that the current thread is about to wake a task. Called before the wake reaches the executor, which may poll
/// the task at once. Go: `traceGoUnpark`.
#[inline]
pub fn woken(task: &Task) {
    // Bursts of wakes are mostly of one task.
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

/// Records the end of a task that ends outside a poll.
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
