//! The waker that a task's future is polled with.
//!
//! A waker of ours is a pointer to the task's slot, so that a clone costs a count and no allocation. Leaf futures clone the waker
//! where they suspend: that is when the task notes where it awaits (`inner::waker_clone`).
//!
//! A leaf does not clone a waker that would wake the same task as the one that it holds ([`Waker::will_wake`]): polled
//! a second time, perhaps from another line, it would leave no stack. So there are four tables with equal functions,
//! because wakers are equal only if their tables are. In a poll whose stacks are wanted, the waker of the poll has another
//! table than its clones, and the clones have another table than those of the poll before. So every leaf clones the waker,
//! also when its poller passes it a clone. In another poll, which the block profile leaves out, the waker is equal to the
//! clones of the poll before, so that a leaf that has one need not clone it again.
//!
//! | poll | table of its waker | of the clones |
//! |---|---|---|
//! | no stacks wanted | 0 | 0 |
//! | first whose stacks are wanted | 3 | 1 |
//! | second | 2 | 0 |
//! | left out | 0 | 0 |
//! | third | 3 | 1 |

use core::mem::ManuallyDrop;
use core::task::{RawWaker, RawWakerVTable, Waker};

use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::task::{Identity, Task};
use rtprof_tracer::{is_enabled, polls};

use crate::inner::waker_clone::clone;

/// Added to the number of the clones' table: the table of the poll's waker.
const OF_POLL: usize = 2;

/// One array, so that the linker cannot merge equal tables.
static TABLES: [RawWakerVTable; 4] = {
    const OF_CLONES: RawWakerVTable = RawWakerVTable::new(clone::<true>, wake, wake_by_ref, release);
    const OF_POLLS: RawWakerVTable = RawWakerVTable::new(clone::<false>, wake, wake_by_ref, release);
    [OF_CLONES, OF_CLONES, OF_POLLS, OF_POLLS]
};

/// The waker of a poll, which the reference count does not include. `is_noted` says that the task notes where the waker
/// is cloned.
///
/// # Safety
/// The waker is used only during a poll of the task in which its waker may be shared, and is not dropped.
#[inline]
pub(super) unsafe fn of_poll(task: &'static Task, is_noted: bool) -> ManuallyDrop<Waker> {
    let table = usize::from(task.is_other_side()) + if is_noted { OF_POLL } else { 0 };
    // SAFETY: the functions of the tables keep the contract of wakers. The task's slot is never freed, and it holds the
    // executor's waker while there are clones or a poll.
    ManuallyDrop::new(unsafe { Waker::from_raw(raw(task, &TABLES[table])) })
}

#[inline]
fn raw(task: &'static Task, table: &'static RawWakerVTable) -> RawWaker {
    RawWaker::new((&raw const *task).cast(), table)
}

/// Returns a clone for the side of the task that is in use.
#[inline]
pub(crate) fn raw_clone(task: &'static Task) -> RawWaker {
    raw(task, &TABLES[usize::from(task.is_other_side())])
}

/// # Safety
/// `data` belongs to a waker that was made here.
#[inline]
pub(crate) unsafe fn task_of(data: *const ()) -> &'static Task {
    // SAFETY: the pointer comes from a reference to a slot, which is never freed.
    unsafe { &*data.cast() }
}

/// The identity of an executor's waker. If a task is polled inside another task's poll, that waker is one of ours,
/// whose identity does not depend on the table.
#[inline]
pub(crate) fn identity(executor: &Waker) -> Identity {
    let table = match task_behind(executor) {
        Some(_) => &TABLES[0],
        None => executor.vtable(),
    };
    [executor.data().addr(), (&raw const *table).addr()]
}

/// The task of a waker, if the waker is one of ours.
#[inline]
pub(super) fn task_behind(waker: &Waker) -> Option<&'static Task> {
    let is_ours = TABLES.as_ptr_range().contains(&(&raw const *waker.vtable()));
    // SAFETY: its table shows that it was made here.
    is_ours.then(|| unsafe { task_of(waker.data()) })
}

/// Whether the current thread polls this task, and no other task inside it.
#[inline]
pub(crate) fn is_polled(task: &'static Task) -> bool {
    goroutine::known().and_then(Goroutine::polls).is_some_and(|polled| core::ptr::eq(polled, task))
}

/// Whether the current thread polls this task, perhaps with other tasks inside it.
#[inline]
pub(crate) fn is_in_poll(task: &'static Task) -> bool {
    let mut polled = goroutine::known().and_then(Goroutine::polls);
    while let Some(inner) = polled {
        if core::ptr::eq(inner, task) {
            return true;
        }
        polled = inner.outer();
    }
    false
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the caller passes the data of a waker with this table.
    let task = unsafe { task_of(data) };
    if is_enabled() {
        polls::woken(task);
    }
    // SAFETY: the waker is a clone, and this call consumes it.
    unsafe { task.wake() };
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the caller passes the data of a waker with this table.
    let task = unsafe { task_of(data) };
    if is_enabled() {
        polls::woken(task);
    }
    // SAFETY: the waker is a clone, or the waker of a poll.
    unsafe { task.wake_by_ref(|| is_in_poll(task)) };
}

unsafe fn release(data: *const ()) {
    // SAFETY: the caller passes the data of a waker with this table.
    let task = unsafe { task_of(data) };
    // SAFETY: only clones are dropped.
    unsafe { task.release() };
}
