//! All tasks in a snapshot of goroutines.
//!
//! A task that waits is read from its slot. One that is polled is on the stack of a thread, which was recorded with the tasks
//! that it polled: that stack is divided at the boundaries between them. The innermost part is the task's, and what is left is
//! the thread's.

use std::collections::HashMap;

use super::slot::{Seen, Task};
use super::{TASKS, forks_looked_at};
use crate::boundary;
use crate::clock;
use crate::goroutine::{Recorded, State, WaitReason};
use crate::goroutine_profile::GoroutineKind;
use crate::modules::CaptureSpan;
use crate::stack::{MAX_STACK, marker};

/// How many tasks, polled inside each other, are told apart on one stack.
pub(crate) const MAX_NESTED: usize = 8;

/// The numbers of the tasks that a thread polls, from the innermost; then zeros.
pub(crate) type Polled = [u64; MAX_NESTED];

/// Those inside `innermost`.
pub(crate) fn polled(innermost: Option<&'static Task>) -> Polled {
    let mut ids = [0; MAX_NESTED];
    let mut task = innermost;
    for id in &mut ids {
        let Some(known) = task else { break };
        *id = known.id();
        task = known.outer();
    }
    ids
}

/// The part of a thread's stack that is a task's.
struct Part {
    stack: Vec<usize>,
    thread: u32,
    state: State,
    waited_ticks: u64,
    span: CaptureSpan,
}

/// Adds all tasks to `all`, threads that were recorded with what they polled. Those that have begun since the number `limit` was
/// given are left out.
pub(crate) fn add(all: &mut Vec<Recorded>, limit: u64, now: u64) {
    let mut parts = HashMap::new();
    for thread in all.iter_mut() {
        divide(thread, &mut parts);
    }
    let forks = forks_looked_at();
    for task in TASKS.iter() {
        if let Some(seen) = task.read(forks).filter(|seen| seen.id < limit) {
            all.push(recorded(seen, &mut parts, now));
        }
    }
}

/// How many tasks there are.
pub(crate) fn count() -> usize {
    let forks = forks_looked_at();
    TASKS.iter().filter(|task| task.is_in(forks)).count()
}

/// Moves what is a task's from a thread's stack to `parts`.
fn divide(thread: &mut Recorded, parts: &mut HashMap<u64, Part>) {
    let tasks = thread.polled.iter().take_while(|&&id| id != 0).count();
    if tasks == 0 {
        return;
    }
    let ends: Vec<usize> =
        (1..).zip(&thread.stack).filter(|(_, f)| boundary::is_boundary(**f)).map(|(n, _)| n).collect();
    // Of a stack that was cut off the outer boundaries are missing. Else there may be tasks, just begun or about to end, whose
    // boundary is not on the stack: the innermost.
    let is_cut = thread.stack.len() == MAX_STACK;
    let without = if is_cut { 0 } else { tasks.saturating_sub(ends.len()) };
    let cut_off = is_cut.then_some(thread.stack.len()).filter(|_| tasks > ends.len());
    let mut from = 0;
    for (&id, &end) in thread.polled[without..tasks].iter().zip(ends.iter().chain(&cut_off)) {
        let part = Part {
            stack: thread.stack[from..end].to_vec(),
            thread: thread.thread_id,
            state: thread.state,
            waited_ticks: thread.waited_ticks,
            span: thread.span,
        };
        parts.insert(id, part);
        from = end;
    }
    if from < thread.stack.len() {
        thread.stack.drain(..from);
    } else {
        // All of it was the task's: where the thread ends is not known.
        thread.stack = vec![marker::frame(marker::stack_is_the_tasks)];
    }
}

fn recorded(seen: Seen, parts: &mut HashMap<u64, Part>, now: u64) -> Recorded {
    let Seen { id, doing, since, labels, awaits, await_labels, name, start, creator, created_by } = seen;
    let mut recorded = Recorded {
        id,
        kind: GoroutineKind::Task,
        thread_id: 0,
        name,
        start,
        created_by,
        creator,
        state: State::Runnable,
        waited_ticks: 0,
        labels,
        stack: Vec::new(),
        branches: Vec::new(),
        polled: [0; MAX_NESTED],
        polls: doing.polls(),
        span: CaptureSpan::now(),
        kernel: None,
    };
    let set_awaits = |recorded: &mut Recorded, unknown| {
        let mut awaits = awaits.into_iter();
        match awaits.next() {
            Some(first) => {
                recorded.stack = first.to_vec();
                recorded.span = first.span;
                recorded.labels = await_labels.unwrap_or(labels);
            }
            None => recorded.stack = vec![marker::frame(unknown)],
        }
        recorded.branches = awaits.collect();
    };
    if doing.is_inside() {
        recorded.state = State::Running;
        match parts.remove(&id) {
            Some(part) => {
                recorded.stack = part.stack;
                recorded.span = part.span;
                recorded.thread_id = part.thread;
                recorded.state = part.state;
                recorded.waited_ticks = part.waited_ticks;
            }
            None => recorded.stack = vec![marker::frame(marker::task_is_polled)],
        }
    } else if doing.polls() == 0 {
        recorded.stack = vec![marker::frame(marker::task_was_not_polled_yet)];
    } else if doing.is_woken() {
        set_awaits(&mut recorded, marker::task_was_woken);
    } else {
        recorded.state = State::Waiting(WaitReason::Await);
        recorded.waited_ticks = clock::since(since, now);
        let unknown = match doing.has_waker() {
            true => marker::task_was_not_polled_for_its_stack,
            false => marker::task_has_no_waker,
        };
        set_awaits(&mut recorded, unknown);
    }
    recorded
}
