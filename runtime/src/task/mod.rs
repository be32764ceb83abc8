//! Async tasks: goroutines without a thread.
//!
//! ```text
//!   instrument(future) ──► slot ── its future gone, and all clones of its waker ──► free list ──► the next task's slot
//!      enter / leave: a poll          note_await: a leaf suspends          wake: any thread wakes it
//! ```
//!
//! | part | contents |
//! |---|---|
//! | `slot` | the identity of a task |
//! | `polls` | how often it was polled, and whether it is being polled |
//! | `shared_waker` | how it is woken, and whether it was |
//! | `crate::boundary` | where its frames end on the stack of the thread that polls it |
//! | `await_stack`, `noted` | where it awaits, and what else is noted of its last poll |
//! | `request` | when tasks note where they await |
//! | `slot::traced` | the task's state in an execution trace |
//!
//! State grows with the tasks that are live at one time, and with distinct stacks.
//!
//! # Forks
//!
//! In a forked child the executor's threads are gone. Forks are counted from process to child, and a task stores the
//! fork count of its process; the parent's tasks are in no profile of the child.
//!
//! # Locks
//!
//! None.

mod await_stack;
mod declared_reason;
mod noted;
mod polls;
mod request;
mod shared_waker;
mod slot;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

pub use await_stack::MAX_BRANCHES;
pub use declared_reason::DeclaredReason;
pub(crate) use request::begin_lease;
pub use request::{AwaitStacks, LEASE, await_stacks, is_on, note_trace, note_waits, set_await_stacks};
pub(crate) use slot::Seen;
pub use slot::{Begun, Identity, KeptStack, Task, WaitChoice, WaitObserver, clear_marks, observe_waits};

pub use crate::boundary::run;

use crate::boundary;
use crate::goroutine::start::Start;
use crate::goroutine_id;
use crate::hook::own_process;
use crate::labels;
use crate::memory::slots::SlotTable;

lazy_under_loom! {
    pub(crate) static TASKS: SlotTable<Task> = SlotTable::new();
}

/// Maximum number of nested tasks that are distinguished on one stack.
pub(crate) const MAX_NESTED: usize = 8;

/// The number of forks that led from the first process to this one.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The id of this process, as far as it is known; 0 before the first [`open`], when there are no tasks.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Whether the program follows tasks. Not atomic with anything: a task that begins during a change may be followed or
/// not.
static ARE_FOLLOWED: AtomicBool = AtomicBool::new(true);

/// Sets whether instrumented futures become tasks, from those on that are made next. Others are polled as if they were not
/// instrumented: they are in no profile and no trace, and cost one load. Returns the previous setting.
pub fn set_followed(are_followed: bool) -> bool {
    ARE_FOLLOWED.swap(are_followed, Ordering::Relaxed)
}

/// Returns whether instrumented futures become tasks.
#[inline]
pub fn are_followed() -> bool {
    ARE_FOLLOWED.load(Ordering::Relaxed)
}

/// Asks for the number of tasks that the program's executor has, also those that are not followed. The thread that next begins
/// or polls a task tells it.
pub fn ask_for_executor_tasks() {
    EXECUTOR_TASKS.store(ASKED, Ordering::Relaxed);
}

/// Whether the number is asked for. Safe to call in a hook.
#[inline]
pub fn are_executor_tasks_asked() -> bool {
    EXECUTOR_TASKS.load(Ordering::Relaxed) == ASKED
}

/// Tells the number.
pub fn tell_executor_tasks(count: usize) {
    EXECUTOR_TASKS.store(count.min(ASKED - 1), Ordering::Relaxed);
}

/// Returns the number, if a thread has told it since it was asked for.
pub fn executor_tasks() -> Option<usize> {
    Some(EXECUTOR_TASKS.load(Ordering::Relaxed)).filter(|count| *count < ASKED)
}

/// [`ASKED`], [`NOT_ASKED`], or the number.
static EXECUTOR_TASKS: AtomicUsize = AtomicUsize::new(NOT_ASKED);
const ASKED: usize = usize::MAX - 1;
const NOT_ASKED: usize = usize::MAX;

pub(crate) fn open() {
    PROCESS.store(own_process(), Ordering::Relaxed);
    await_stack::open();
}

/// Updates the fork count in a forked child. (A system call for the process id at each task takes longer than all other
/// steps.) The tasks whose polls this thread is in continue in the child; `polled` is the innermost one.
pub(crate) fn forked(polled: Option<&'static Task>) {
    let forks = FORKS.fetch_add(1, Ordering::Relaxed) + 1;
    let mut polled = polled;
    for _ in 0..MAX_NESTED {
        let Some(task) = polled else { break };
        task.set_forks(forks);
        polled = task.outer();
    }
    PROCESS.store(own_process(), Ordering::Relaxed);
}

/// Returns the number of forks that led to this process, including those made without the C library's fork handlers.
/// `polled` returns the task that this thread polls. Must not be called in a hook.
pub(crate) fn forks_looked_at(polled: impl FnOnce() -> Option<&'static Task>) -> u32 {
    let known = PROCESS.load(Ordering::Relaxed);
    if known != 0 && known != own_process() {
        forked(polled());
    }
    FORKS.load(Ordering::Relaxed)
}

/// Begins a task under the caller's labels; `creator` is the id of the goroutine that creates it. Returns `None` and
/// counts the loss when there is no memory. Called after [`crate::init::open`].
pub fn begin(name: &str, start: Start, creator: u64) -> Option<&'static Task> {
    boundary::note_in_use();
    let slot = TASKS.take();
    if slot.is_none() {
        goroutine_id::NOT_FOLLOWED.add();
    }
    let slot = slot?;
    slot.begin(goroutine_id::reserve(), name, start, creator, labels::current_id());
    Some(slot)
}
