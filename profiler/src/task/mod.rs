//! Async tasks: goroutines that no thread belongs to.
//!
//! ```text
//!   instrument(future) ──► slot ── its future gone, and all clones of its waker ──► free list ──► the next task's slot
//!      enter / leave: a poll          note_await: a leaf suspends          wake: whoever wakes it
//! ```
//!
//! | part | what it answers |
//! |---|---|
//! | `slot` | who a task is |
//! | `polls` | how often it was polled, and whether it is polled now |
//! | `shared_waker` | how it is woken, and whether it was |
//! | `crate::boundary` | where its frames end on the stack of the thread that polls it |
//! | `await_stack`, `noted` | where it awaits, and what else is noted of its last poll |
//! | `request` | when it notes that |
//! | `snapshot` | what the goroutine profile has of it |
//! | `leak` | whether it waits for ever |
//! | `slot::traced` | what an execution trace knows of it |
//!
//! State grows with the tasks that are live at one time, and with distinct stacks.
//!
//! # Forks
//!
//! In a forked child the executor's threads are gone. Processes are counted from the first to its child and so on, and a task bears
//! the number of its own; those of the parent are in no profile of the child.
//!
//! # Locks
//!
//! None.

mod await_stack;
mod leak;
mod noted;
mod polls;
mod request;
mod shared_waker;
mod slot;
pub(crate) mod snapshot;
mod telling;

use core::sync::atomic::{AtomicU32, Ordering};

pub use await_stack::MAX_BRANCHES;
pub use leak::{count_leaked, leak_limit, leaked_tasks, set_leak_limit};
pub(crate) use request::note_waits;
pub use request::{AwaitStacks, LEASE, await_stacks, is_on, note_trace, request, set_await_stacks};
pub use slot::{Begun, Identity, KeptStack, Task, forget_traces, live};
pub use telling::Telling;

pub use crate::boundary::run;

use crate::boundary;
use crate::counters::COUNTERS;
use crate::fork_lock::own_process;
use crate::goroutine::{self, Goroutine, Start};
use crate::labels;
use crate::slots::Slots;

#[cfg(not(loom))]
static TASKS: Slots<Task> = Slots::new();
#[cfg(loom)]
static TASKS: std::sync::LazyLock<Slots<Task>> = std::sync::LazyLock::new(Slots::new);

/// How many forks led from the first process to this one.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The kernel's number of this process, as far as it is known.
static PROCESS: AtomicU32 = AtomicU32::new(0);

pub(crate) fn open() {
    PROCESS.store(own_process(), Ordering::Relaxed);
    await_stack::open();
}

/// This is a forked child. (Asking the kernel for the number of the process at each task takes longer than all else.)
pub(crate) fn forked() {
    let forks = FORKS.fetch_add(1, Ordering::Relaxed) + 1;
    // The tasks whose polls this thread is in go on in the child.
    let mut polled = goroutine::known().and_then(Goroutine::polls);
    for _ in 0..snapshot::MAX_NESTED {
        let Some(task) = polled else { break };
        task.set_forks(forks);
        polled = task.outer();
    }
    PROCESS.store(own_process(), Ordering::Relaxed);
}

/// How many forks led to this process, also one that was made without the C library's knowledge. Not for hooks.
fn forks_looked_at() -> u32 {
    if PROCESS.load(Ordering::Relaxed) != own_process() {
        forked();
    }
    FORKS.load(Ordering::Relaxed)
}

/// Begins a task, created by the caller, under its labels. `None`, counted, when there is no memory for it.
pub fn begin(name: &str, start: Start) -> Option<&'static Task> {
    crate::init::open();
    boundary::note_in_use();
    let slot = TASKS.take();
    if slot.is_none() {
        COUNTERS.goroutines_not_followed.add();
    }
    let slot = slot?;
    slot.begin(goroutine::reserve_id(), name, start, goroutine::current_id(), labels::current_id());
    Some(slot)
}
