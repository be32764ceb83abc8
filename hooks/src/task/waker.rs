//! The waker that a task's future is polled with.
//!
//! A waker of ours is a pointer to the task's slot, so that a clone costs a count and no allocation. Leaf futures clone the waker
//! where they suspend: that is when the task notes where it awaits.
//!
//! A leaf does not clone a waker that would wake the same task as the one it has ([`Waker::will_wake`]): polled a second time,
//! perhaps from another line, it would leave no stack. So there are four tables, of functions that do the same; wakers are the same if
//! their tables are. While stacks are wanted, the waker of a poll has another table than its clones, and these another one than
//! those of the poll before: every leaf takes the waker for a new one, also where what polls it hands it a clone.
//!
//! | poll | table of its waker | of the clones |
//! |---|---|---|
//! | no stacks wanted | 0 | 0 |
//! | first | 3 | 1 |
//! | second | 2 | 0 |
//! | third | 3 | 1 |

use core::mem::ManuallyDrop;
use core::task::{RawWaker, RawWakerVTable, Waker};

use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::task::{self, Identity, Task};
use rtprof_tracer::{is_enabled, polls};

/// Added to the number of the table of clones: that of the waker which a poll is given.
const OF_POLL: usize = 2;

/// One array, so that no linker makes one table of two.
static TABLES: [RawWakerVTable; 4] = {
    const OF_CLONES: RawWakerVTable = RawWakerVTable::new(clone::<true>, wake, wake_by_ref, release);
    const OF_POLLS: RawWakerVTable = RawWakerVTable::new(clone::<false>, wake, wake_by_ref, release);
    [OF_CLONES, OF_CLONES, OF_POLLS, OF_POLLS]
};

/// The waker of a poll, which is not counted. `is_noted` says that the task notes where it is cloned.
///
/// # Safety
/// It is used during a poll of the task in which its waker may be handed out, and not dropped.
#[inline]
pub(super) unsafe fn of_poll(task: &'static Task, is_noted: bool) -> ManuallyDrop<Waker> {
    let table = if is_noted { usize::from(task.is_other_side()) + OF_POLL } else { 0 };
    // SAFETY: the functions of the tables keep the contract of wakers for a task whose slot is never freed: those that are
    // counted keep the executor's waker in it, and so does the poll.
    ManuallyDrop::new(unsafe { Waker::from_raw(raw(task, &TABLES[table])) })
}

#[inline]
fn raw(task: &'static Task, table: &'static RawWakerVTable) -> RawWaker {
    RawWaker::new((&raw const *task).cast(), table)
}

/// # Safety
/// `data` is that of a waker which was made here.
#[inline]
unsafe fn task_of(data: *const ()) -> &'static Task {
    // SAFETY: from a reference to a slot, which is never freed.
    unsafe { &*data.cast() }
}

/// What tells an executor's waker from another one. Ours, which an executor's is where a task is polled inside another one's poll, are
/// the same from each table.
#[inline]
pub(super) fn identity(executor: &Waker) -> Identity {
    let table = match task_behind(executor) {
        Some(_) => &TABLES[0],
        None => executor.vtable(),
    };
    [executor.data().addr(), (&raw const *table).addr()]
}

/// The task whose waker this is, if it is one of ours.
#[inline]
pub(super) fn task_behind(waker: &Waker) -> Option<&'static Task> {
    let is_ours = TABLES.as_ptr_range().contains(&(&raw const *waker.vtable()));
    // SAFETY: made here, says its table.
    is_ours.then(|| unsafe { task_of(waker.data()) })
}

unsafe fn clone<const IS_HANDED: bool>(data: *const ()) -> RawWaker {
    // SAFETY: the contract of wakers.
    let task = unsafe { task_of(data) };
    if task::is_on() && is_polled(task) {
        task.note_await(IS_HANDED);
    }
    // SAFETY: the caller's waker is a clone, or that of a poll.
    match unsafe { task.share(|| is_in_poll(task), identity) } {
        None => raw(task, &TABLES[usize::from(task.is_other_side())]),
        Some(executors) => {
            let executors = ManuallyDrop::new(executors);
            RawWaker::new(executors.data(), executors.vtable())
        }
    }
}

/// Whether the current thread polls this task, and none inside.
#[inline]
pub(super) fn is_polled(task: &'static Task) -> bool {
    goroutine::known().and_then(Goroutine::polls).is_some_and(|polled| core::ptr::eq(polled, task))
}

/// Whether the current thread polls this task, perhaps with others inside.
#[inline]
fn is_in_poll(task: &'static Task) -> bool {
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
    // SAFETY: the contract of wakers.
    let task = unsafe { task_of(data) };
    if is_enabled() {
        polls::woken(task);
    }
    // SAFETY: the caller's waker is a clone, and given up by this.
    unsafe { task.wake() };
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the contract of wakers.
    let task = unsafe { task_of(data) };
    if is_enabled() {
        polls::woken(task);
    }
    // SAFETY: the caller's waker is a clone, or that of a poll.
    unsafe { task.wake_by_ref(|| is_in_poll(task)) };
}

unsafe fn release(data: *const ()) {
    // SAFETY: the contract of wakers.
    let task = unsafe { task_of(data) };
    // SAFETY: only clones are dropped.
    unsafe { task.release() };
}
