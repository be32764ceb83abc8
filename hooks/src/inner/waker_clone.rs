//! The clone of a waker, by which a task notes where it awaits: the innermost function of await stacks.
//!
//! It may clone the executor's waker, which runs code of the executor. In profiles that are symbolized elsewhere, a wait in that
//! code is shown at the caller of the clone.

use core::mem::ManuallyDrop;
use core::task::RawWaker;

use crate::task::waker::{identity, is_in_poll, is_polled, raw_clone, task_of};

/// # Safety
/// `data` belongs to a waker of [`task::waker`](crate::task).
pub(crate) unsafe fn clone<const IS_HANDED: bool>(data: *const ()) -> RawWaker {
    // SAFETY: the caller passes the data of a waker with this table.
    let task = unsafe { task_of(data) };
    if task.notes_stacks() && is_polled(task) {
        task.note_await(IS_HANDED);
    }
    // SAFETY: the waker is a clone, or the waker of a poll.
    match unsafe { task.share(|| is_in_poll(task), identity) } {
        None => raw_clone(task),
        Some(executors) => {
            let executors = ManuallyDrop::new(executors);
            RawWaker::new(executors.data(), executors.vtable())
        }
    }
}
