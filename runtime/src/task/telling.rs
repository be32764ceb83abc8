//! The wait reason that the program declares for a future while it is polled: each stack that the future leaves is
//! marked with it.
//!
//! The mark belongs to the stack, which contains the declaring function among its frames, and not to the poll. So the
//! stacks of this future are distinguished from stacks left before and after it, also if it is abandoned, or polled
//! twice in one poll of the task.

use core::cell::Cell;
use core::marker::PhantomData;

use super::slot::Task;
use crate::wait_reason::WaitReason;

thread_local! {
    // No destructor and no lazy initialisation (rust#116390). The address of a task, and the number of the reason.
    static TELLING: Cell<(usize, u8)> = const { Cell::new((0, 0)) };
}

/// Guard during whose life awaits of a task on this thread are declared to be waits of a given kind.
#[derive(Debug)]
#[must_use = "it ends when this is dropped"]
pub struct Telling {
    before: (usize, u8),
    _of_this_thread: PhantomData<*const ()>,
}

impl Telling {
    /// Declares that awaits in `task`, which the current thread polls, are waits for `reason`. Overrides an outer
    /// declaration.
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

/// Returns the number of the reason declared for `task` now; 0 for none.
pub(super) fn told(task: &Task) -> u8 {
    let (of, reason) = TELLING.with(Cell::get);
    if of == core::ptr::from_ref(task).addr() { reason } else { 0 }
}
