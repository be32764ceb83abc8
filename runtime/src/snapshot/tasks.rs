//! All tasks in a goroutine snapshot.
//!
//! A waiting task is read from its slot. A task that is being polled is on the stack of a thread, which was recorded
//! with the tasks that it polled: that stack is divided at the boundaries between tasks. The innermost part belongs to
//! the innermost task, and the outermost remainder to the thread.

use std::borrow::Cow;
use std::collections::HashMap;

use super::leak;
use super::recorded::{GoroutineKind, Recorded};
use crate::boundary;
use crate::clock;
use crate::goroutine::state::State;
use crate::goroutine::wait_reason::WaitReason;
use crate::goroutine::{self, Goroutine};
use crate::modules::CaptureSpan;
use crate::stack::MAX_STACK;
use crate::stack::marker::{self, Marker};
use crate::task::{self, Seen, TASKS, Task};

/// Returns the number of forks that led to this process, including those made without the C library's fork handlers.
/// Must not be called in a hook.
pub(super) fn forks_looked_at() -> u32 {
    task::forks_looked_at(|| goroutine::known().and_then(Goroutine::polls))
}

/// Returns all tasks of this process. Must not be called in a hook.
pub fn live_tasks() -> impl Iterator<Item = &'static Task> {
    let forks = forks_looked_at();
    TASKS.iter().filter(move |task| task.is_in(forks))
}

/// The part of a thread's stack that belongs to a task.
struct PolledStack {
    stack: Cow<'static, [usize]>,
    thread: u32,
    state: State,
    waited_ticks: u64,
    span: CaptureSpan,
}

/// The tasks of a snapshot.
pub(crate) struct Tasks {
    /// Each task with its id.
    live: Vec<(u64, &'static Task)>,
    /// By the ids of the tasks.
    parts: HashMap<u64, PolledStack>,
    forks: u32,
    now: u64,
    /// In ticks.
    leak_limit: u64,
}

impl Tasks {
    /// Lists all tasks, except those that have begun since the id `limit` was given. Moves the tasks' parts of the
    /// stacks out of `threads`, which were recorded with the tasks that they polled.
    pub(crate) fn list(threads: &mut [Recorded], limit: u64, now: u64) -> Self {
        let mut parts = HashMap::new();
        for thread in threads {
            divide(thread, &mut parts);
        }
        let forks = forks_looked_at();
        let numbered = |task: &'static Task| task.is_in(forks).then(|| (task.id(), task));
        let live = TASKS.iter().filter_map(numbered).filter(|&(id, _)| (1..limit).contains(&id)).collect();
        Self { live, parts, forks, now, leak_limit: leak::limit_ticks() }
    }

    /// Returns the number of listed tasks.
    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// Reads the listed tasks, in the order of `key` of their ids; skips those that have ended since.
    pub(crate) fn recorded<K: Ord>(mut self, key: impl Fn(u64) -> K) -> impl Iterator<Item = Recorded> {
        // Sorted before they are read: a record is ten times as large as a list entry.
        self.live.sort_unstable_by_key(|&(id, _)| key(id));
        self.live.into_iter().filter_map(move |(id, task)| {
            let seen = task.read(id, self.forks)?;
            let is_leaked = seen.is_leaked(self.leak_limit, self.now);
            Some(Recorded { is_leaked, ..recorded(seen, &mut self.parts, self.now) })
        })
    }
}

/// Returns the number of tasks of this process.
pub(crate) fn count() -> usize {
    let forks = forks_looked_at();
    TASKS.iter().filter(|task| task.is_in(forks)).count()
}

/// Moves the tasks' parts of a thread's stack to `parts`.
fn divide(thread: &mut Recorded, parts: &mut HashMap<u64, PolledStack>) {
    let tasks = thread.polled.len();
    if tasks == 0 {
        return;
    }
    let ends: Vec<usize> =
        (1..).zip(&*thread.stack).filter(|(_, f)| boundary::is_boundary(**f)).map(|(n, _)| n).collect();
    // In a truncated stack the outer boundaries are missing. Otherwise boundaries may be missing for the innermost
    // tasks, which have just begun or are about to end.
    let is_cut = thread.stack.len() == MAX_STACK;
    let without = if is_cut { 0 } else { tasks.saturating_sub(ends.len()) };
    let cut_off = is_cut.then_some(thread.stack.len()).filter(|_| tasks > ends.len());
    let mut from = 0;
    for (&id, &end) in thread.polled[without..tasks].iter().zip(ends.iter().chain(&cut_off)) {
        let part = PolledStack {
            stack: thread.stack[from..end].to_vec().into(),
            thread: thread.thread_id,
            state: thread.state,
            waited_ticks: thread.waited_ticks,
            span: thread.span,
        };
        parts.insert(id, part);
        from = end;
    }
    if from < thread.stack.len() {
        thread.stack = thread.stack[from..].to_vec().into();
    } else {
        // The whole stack belongs to the tasks: the outer end of the thread is not known.
        thread.stack = marker_stack(marker::stack_is_the_tasks);
    }
}

/// Returns a single frame whose function says why the stack is missing.
fn marker_stack(why: Marker) -> Cow<'static, [usize]> {
    vec![marker::frame(why)].into()
}

/// Returns the record of a task that waits for ever.
pub(super) fn waiting(seen: Seen, now: u64) -> Recorded {
    Recorded { is_leaked: true, ..recorded(seen, &mut HashMap::new(), now) }
}

fn recorded(seen: Seen, parts: &mut HashMap<u64, PolledStack>, now: u64) -> Recorded {
    let (waits, has_waker) = (seen.doing.waits(), seen.has_waker());
    let Seen { id, doing, since, labels, awaits, await_labels, name, start, creator, created_by, .. } = seen;
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
        is_leaked: false,
        labels,
        stack: Cow::Borrowed(&[]),
        branches: Vec::new(),
        polled: Vec::new(),
        polls: doing.polls(),
        span: CaptureSpan::now(),
        kernel: None,
    };
    let set_awaits = |recorded: &mut Recorded, unknown| match awaits.main().map(|main| main.captured()) {
        Some(main) => {
            recorded.stack = main.addresses.into();
            recorded.span = main.span;
            recorded.labels = await_labels.unwrap_or(labels);
            recorded.branches = awaits.others();
        }
        None => recorded.stack = marker_stack(unknown),
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
            None => recorded.stack = marker_stack(marker::task_is_polled),
        }
    } else if doing.polls() == 0 {
        recorded.stack = marker_stack(marker::task_was_not_polled_yet);
    } else if !waits {
        set_awaits(&mut recorded, marker::task_was_woken);
    } else {
        recorded.state = State::Waiting(WaitReason::Await);
        recorded.waited_ticks = clock::since(since, now);
        let unknown = match has_waker {
            true => marker::task_was_not_polled_for_its_stack,
            false => marker::task_has_no_waker,
        };
        set_awaits(&mut recorded, unknown);
    }
    recorded
}
