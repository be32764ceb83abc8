//! What the program says that a future waits for, while it is polled: each stack that it leaves is marked so.
//!
//! The mark is of the stack, which has the function that says it among its frames, and not of the poll: what the future has left is
//! told from what others have left before and after it, also if it is given up, or polled twice in one poll of the task.

use core::cell::Cell;
use core::marker::PhantomData;

use super::slot::Task;
use crate::wait_reason::WaitReason;

thread_local! {
    // No destructor and no lazy initialisation (rust#116390). The address of a task, and the number of the reason.
    static TELLING: Cell<(usize, u8)> = const { Cell::new((0, 0)) };
}

/// Until this is dropped what a task awaits on this thread is said to be a wait of a kind.
#[derive(Debug)]
#[must_use = "it ends when this is dropped"]
pub struct Telling {
    before: (usize, u8),
    _of_this_thread: PhantomData<*const ()>,
}

impl Telling {
    /// What is awaited in `task`, which the current thread polls, is a wait for `reason`. Inside of another one this one holds.
    pub fn begin(task: &'static Task, reason: WaitReason) -> Self {
        let now = (core::ptr::from_ref(task).addr(), reason as u8);
        Self { before: TELLING.with(|telling| telling.replace(now)), _of_this_thread: PhantomData }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        TELLING.with(|telling| telling.set(self.before));
    }
}

/// The number of what is said of `task` now; 0 for nothing.
pub(super) fn told(task: &Task) -> u8 {
    let (of, reason) = TELLING.with(Cell::get);
    if of == core::ptr::from_ref(task).addr() { reason } else { 0 }
}
