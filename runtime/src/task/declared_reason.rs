//! The wait reason that the program declares for a future while it is polled: each stack that the future leaves is
//! marked with it.
//!
//! The mark belongs to the stack, which contains the declaring function among its frames, and not to the poll. So the
//! stacks of this future are distinguished from stacks left before and after it, also if it is abandoned, or polled
//! twice in one poll of the task.

use core::cell::Cell;
use core::marker::PhantomData;

use crate::goroutine::wait_reason::WaitReason;

thread_local! {
    // No destructor and no lazy initialisation (rust#116390). The address of a task, and the number of the reason.
    static DECLARED: Cell<(usize, u8)> = const { Cell::new((0, 0)) };
}

/// Guard during whose life awaits of a task on this thread are declared to be waits of a given kind.
#[derive(Debug)]
#[must_use = "it ends when this is dropped"]
pub struct DeclaredReason {
    before: (usize, u8),
    _of_this_thread: PhantomData<*const ()>,
}

impl DeclaredReason {
    /// Declares that awaits in the task at this address, which the current thread polls, are waits for `reason`.
    /// Overrides an outer declaration.
    pub(super) fn begin(task: usize, reason: WaitReason) -> Self {
        let now = (task, reason as u8);
        Self { before: DECLARED.with(|declared| declared.replace(now)), _of_this_thread: PhantomData }
    }
}

impl Drop for DeclaredReason {
    fn drop(&mut self) {
        DECLARED.with(|declared| declared.set(self.before));
    }
}

/// Returns the number of the reason that is declared now for the task at this address; 0 for none.
pub(super) fn declared_for(task: usize) -> u8 {
    let (of, reason) = DECLARED.with(Cell::get);
    if of == task { reason } else { 0 }
}
