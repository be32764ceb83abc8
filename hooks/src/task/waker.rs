//! The waker that a task's future is polled with.
//!
//! A waker of ours is a pointer to the task's slot, so that a clone costs a count and no allocation. Leaf futures clone the waker
//! where they suspend: that is when the task notes where it awaits.
//!
//! A leaf does not clone a waker that would wake the same task as the one it has ([`Waker::will_wake`]): when it is polled a
//! second time it would leave no stack. So there are two tables of functions that do the same. While stacks are wanted, each
//! poll takes the other table than the poll before, and every leaf takes the waker for a new one.

use core::mem::ManuallyDrop;
use core::task::{RawWaker, RawWakerVTable, Waker};

use rtprof_profiler::goroutine::{self, Goroutine};
use rtprof_profiler::task::{self, Identity, Task};

/// Which of the tables the last poll took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Side(bool);

impl Side {
    /// The one for the next poll.
    #[inline]
    pub(super) fn next(self) -> Self {
        if task::is_on() { Self(!self.0) } else { self }
    }

    #[inline]
    fn table(self) -> &'static RawWakerVTable {
        if self.0 { &RIGHT } else { &LEFT }
    }
}

// The functions that clone differ in what they return, so that no linker makes one table of the two.
static LEFT: RawWakerVTable = RawWakerVTable::new(clone_left, wake, wake_by_ref, release);
static RIGHT: RawWakerVTable = RawWakerVTable::new(clone_right, wake, wake_by_ref, release);

/// The waker of a poll, which is not counted.
///
/// # Safety
/// It is used during a poll of the task in which its waker may be handed out, and not dropped.
#[inline]
pub(super) unsafe fn of_poll(task: &'static Task, side: Side) -> ManuallyDrop<Waker> {
    // SAFETY: the functions of the tables keep the contract of wakers for a task whose slot is never freed: those that are
    // counted keep the executor's waker in it, and so does the poll.
    ManuallyDrop::new(unsafe { Waker::from_raw(raw(task, side)) })
}

#[inline]
fn raw(task: &'static Task, side: Side) -> RawWaker {
    RawWaker::new((&raw const *task).cast(), side.table())
}

/// # Safety
/// `data` is that of a waker which was made here.
#[inline]
unsafe fn task_of(data: *const ()) -> &'static Task {
    // SAFETY: from a reference to a slot, which is never freed.
    unsafe { &*data.cast() }
}

unsafe fn clone_left(data: *const ()) -> RawWaker {
    // SAFETY: the contract of wakers.
    unsafe { clone(data, Side(false)) }
}

unsafe fn clone_right(data: *const ()) -> RawWaker {
    // SAFETY: the contract of wakers.
    unsafe { clone(data, Side(true)) }
}

/// What tells an executor's waker from another one. Ours, which an executor's is where a task is polled inside another one's poll, are
/// the same from either table.
#[inline]
pub(super) fn identity(executor: &Waker) -> Identity {
    let table = match task_behind(executor) {
        Some(_) => &LEFT,
        None => executor.vtable(),
    };
    [executor.data().addr(), (&raw const *table).addr()]
}

/// The task whose waker this is, if it is one of ours.
#[inline]
pub(super) fn task_behind(waker: &Waker) -> Option<&'static Task> {
    let is_ours = [&LEFT, &RIGHT].iter().any(|ours| core::ptr::eq(*ours, waker.vtable()));
    // SAFETY: made here, says its table.
    is_ours.then(|| unsafe { task_of(waker.data()) })
}

/// # Safety
/// `data` is that of a waker which was made here, and is not dropped meanwhile.
#[inline(always)]
unsafe fn clone(data: *const (), side: Side) -> RawWaker {
    // SAFETY: the caller's promise.
    let task = unsafe { task_of(data) };
    if task::is_on() && is_polled(task) {
        task.note_await();
    }
    // SAFETY: the caller's waker is a clone, or that of a poll.
    match unsafe { task.share(|| is_polled(task), identity) } {
        None => raw(task, side),
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
