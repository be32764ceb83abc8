//! The waker that a task's future is polled with.
//!
//! A waker of ours is a pointer to the task's slot, so that a clone costs a count and no allocation. Leaf futures clone the waker
//! where they suspend: that is when the task notes where it awaits.
//!
//! A leaf does not clone a waker that would wake the same task as the one it has ([`Waker::will_wake`]): polled a second time,
//! perhaps from another line, it would leave no stack. So there are several tables of functions that do the same. While stacks
//! are wanted, the waker of a poll has another table than its clones, which have another one than those of the poll before: every
//! leaf takes the waker for a new one, also where what polls it hands it a clone.

use core::mem::ManuallyDrop;
use core::task::{RawWaker, RawWakerVTable, Waker};

use rtprof_profiler::goroutine::{self, Goroutine};
use rtprof_profiler::task::{self, Identity, Task};

/// Which of the tables the last poll took: an index of [`TABLES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Side(usize);

/// Added to a side: the table of the waker that a poll is given, not of its clones.
const OF_POLL: usize = 2;

impl Side {
    /// The one for the next poll.
    #[inline]
    pub(super) fn next(self) -> Self {
        if task::is_on() { Self(self.0 ^ 1) } else { self }
    }
}

/// One array, so that no linker makes one table of two.
static TABLES: [RawWakerVTable; 4] =
    [table::<0>(), table::<1>(), table::<OF_POLL>(), table::<{ OF_POLL + 1 }>()];

const fn table<const INDEX: usize>() -> RawWakerVTable {
    RawWakerVTable::new(clone::<INDEX>, wake, wake_by_ref, release)
}

/// The waker of a poll, which is not counted.
///
/// # Safety
/// It is used during a poll of the task in which its waker may be handed out, and not dropped.
#[inline]
pub(super) unsafe fn of_poll(task: &'static Task, side: Side) -> ManuallyDrop<Waker> {
    let table = if task::is_on() { side.0 + OF_POLL } else { side.0 };
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

unsafe fn clone<const INDEX: usize>(data: *const ()) -> RawWaker {
    // SAFETY: the contract of wakers.
    let task = unsafe { task_of(data) };
    if task::is_on() && is_polled(task) {
        task.note_await();
    }
    // SAFETY: the caller's waker is a clone, or that of a poll.
    match unsafe { task.share(|| is_polled(task), identity) } {
        None => raw(task, const { &TABLES[INDEX % OF_POLL] }),
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

unsafe fn wake(data: *const ()) {
    // SAFETY: the contract of wakers.
    let task = unsafe { task_of(data) };
    // SAFETY: the caller's waker is a clone, and given up by this.
    unsafe { task.wake() };
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the contract of wakers.
    let task = unsafe { task_of(data) };
    // SAFETY: the caller's waker is a clone, or that of a poll.
    unsafe { task.wake_by_ref() };
}

unsafe fn release(data: *const ()) {
    // SAFETY: the contract of wakers.
    let task = unsafe { task_of(data) };
    // SAFETY: only clones are dropped.
    unsafe { task.release() };
}
