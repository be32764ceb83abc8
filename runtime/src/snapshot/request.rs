//! The request for the stacks of tasks that comes before a snapshot.
//!
//! See [`crate::task`] for why tasks do not always note where they await.

use core::cell::Cell;
use std::time::{Duration, Instant};

use super::tasks::forks_looked_at;
use crate::nap::nap;
use crate::task::{TASKS, Task, begin_lease};

/// How long a request waits for tasks to be polled, while none is.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long it waits at most.
const LONGEST: Duration = Duration::from_secs(2);

thread_local! {
    static IS_REQUESTING: Cell<bool> = const { Cell::new(false) };
}

/// The current thread requests stacks. The code of an executor that it wakes may look at goroutines too.
struct Requesting;

impl Requesting {
    /// `None` if it does so already.
    fn begin() -> Option<Self> {
        (!IS_REQUESTING.replace(true)).then_some(Self)
    }
}

impl Drop for Requesting {
    fn drop(&mut self) {
        IS_REQUESTING.set(false);
    }
}

/// Somebody is about to look at all tasks: lets them note where they await, and waits until those have that wait already. Not
/// for hooks: wakes tasks, which runs code of their executors, and sleeps for up to two seconds.
pub fn request() {
    let Some(_requesting) = Requesting::begin() else { return };
    if !begin_lease() {
        return;
    }
    // Those of a parent are woken in the parent.
    let forks = forks_looked_at();
    let tasks = TASKS.iter().filter(|task| task.is_in(forks));
    let asked: Vec<Asked> = tasks.filter_map(ask).collect();
    await_answers(asked);
}

/// A task that was asked, its number, and how many polls there had been.
type Asked = (&'static Task, u64, u32);

fn ask(task: &'static Task) -> Option<Asked> {
    let id = task.id();
    let polls = task.is_unknown().filter(|_| id != 0)?;
    task.ask(polls).then_some((task, id, polls))
}

fn await_answers(mut asked: Vec<Asked>) {
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
