//! Async tasks that are created, polled, woken and dropped. For hooks.
//!
//! Called only while [`is_enabled`](crate::is_enabled): else a task keeps up no state for traces. The task says what it does; so
//! each of these has its place before or after what it tells of.

use rtprof_runtime::goroutine::Goroutine;
use rtprof_runtime::state::State;
use rtprof_runtime::task::Task;

use crate::thread::{any_turn, self_turn};
use crate::turn::{
    change_unrecorded, ended_unrecorded, panicked_unrecorded, poll_ended_unrecorded, woken_unrecorded,
};

/// The current goroutine has created a task, which nothing else knows yet. Go: `traceGoCreate`.
#[cold]
pub fn created(task: &Task) {
    any_turn(|turn| {
        if !turn.count_if_lost() {
            turn.create_task(task);
        }
    });
}

/// The current thread is about to poll a task: before [`Task::enter`]. Go: `traceGoStart`.
#[inline(never)]
pub fn begin(task: &Task) {
    self_turn(|turn, _| {
        turn.count_if_lost();
        turn.begin_poll(task);
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
    let recorded = self_turn(|turn, own| {
        turn.count_if_lost();
        match end {
            PollEnd::Pending => turn.end_poll(task),
            PollEnd::Panicked => turn.end_panicked_poll(task),
            PollEnd::Over => turn.end_task(task),
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
    let recorded = any_turn(|turn| {
        turn.count_if_lost();
        turn.wake_task(task, |turn| turn.stack());
    });
    if recorded.is_none() {
        change_unrecorded(task, woken_unrecorded);
    }
}

/// A task is over that no poll has ended, and that is not polled.
#[cold]
pub fn dropped(task: &Task) {
    let recorded = self_turn(|turn, _| {
        let word = task.traced();
        if word.generation() == 0 || word.state() == State::Dead {
            return;
        }
        turn.count_if_lost();
        turn.begin_poll(task);
        turn.end_task(task);
    });
    if recorded.is_none() {
        change_unrecorded(task, ended_unrecorded);
    }
}
