//! The request for the stacks of tasks before a snapshot.
//!
//! See [`crate::task`] for why tasks do not always note where they await.

use core::cell::Cell;
use std::time::{Duration, Instant};

use super::tasks::forks_looked_at;
use crate::task::{TASKS, Task, begin_lease};
use crate::thread::nap::nap;

/// How long a request waits while no further task is polled.
const PATIENCE: Duration = Duration::from_millis(100);
/// The longest time that a request waits.
const LONGEST: Duration = Duration::from_secs(2);

thread_local! {
    static IS_REQUESTING: Cell<bool> = const { Cell::new(false) };
}

/// Guard of a request by the current thread. The executor's code that it runs may request stacks too.
struct Requesting;

impl Requesting {
    /// Begins a request. Returns `None` if this thread is already in one.
    fn begin() -> Option<Self> {
        (!IS_REQUESTING.replace(true)).then(|| Self)
    }
}

impl Drop for Requesting {
    fn drop(&mut self) {
        IS_REQUESTING.set(false);
    }
}

/// Prepares for a goroutine snapshot: lets tasks note where they await, and waits until the waiting tasks have noted
/// it. Must not be called in a hook: wakes tasks, which runs code of their executors, and sleeps for up to two seconds.
pub fn request() {
    let Some(_requesting) = Requesting::begin() else { return };
    if !begin_lease() {
        return;
    }
    // Tasks of the parent process are woken in the parent.
    let forks = forks_looked_at();
    let tasks = TASKS.iter().filter(|task| task.is_in(forks));
    let asked: Vec<AskedTask> = tasks.filter_map(ask).collect();
    await_answers(asked);
}

/// A task that was asked, its id, and its number of polls at that time.
type AskedTask = (&'static Task, u64, u32);

fn ask(task: &'static Task) -> Option<AskedTask> {
    let id = task.id();
    let polls = task.is_unknown().filter(|_| id != 0)?;
    task.ask(polls).then_some((task, id, polls))
}

fn await_answers(mut asked: Vec<AskedTask>) {
    let start = Instant::now();
    let mut last_answer = start;
    loop {
        let before = asked.len();
        asked.retain(|&(task, id, polls)| !task.has_answered(id, polls));
        let now = Instant::now();
        if asked.len() < before {
            last_answer = now;
        }
        if asked.is_empty() || now - last_answer > PATIENCE || now - start > LONGEST {
            return;
        }
        nap();
    }
}
