//! A task as its future knows it.

use core::mem::ManuallyDrop;
use core::task::{Poll, Waker};

use rtprof_profiler::goroutine::{self, Goroutine, Start};
use rtprof_profiler::labels::{self, Current};
use rtprof_profiler::task::{self, Task};

use super::waker::{self, Side};

/// A task, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Tracked {
    task: &'static Task,
    side: Side,
    /// Those of the task; those of the thread while it is polled.
    labels: Current,
}

impl Tracked {
    /// Begins a task, under the labels of the caller. `None` if there is no memory for it.
    #[track_caller]
    pub(super) fn begin(name: &str, start: Start) -> Option<Self> {
        let task = task::begin(name, start)?;
        Some(Self { task, side: Side::default(), labels: labels::current() })
    }

    /// Polls the task's future: `poll` does, with the waker that it is given.
    #[inline]
    pub(super) fn poll<T>(&mut self, executor: &Waker, poll: impl FnOnce(&Waker) -> Poll<T>) -> Poll<T> {
        // A thread that is about to end has none.
        let Some(thread) = goroutine::current() else { return poll(executor) };
        let outer = thread.polls();
        // SAFETY: the future is the caller's, and the poll ends below, or with the future.
        let is_shared = unsafe { self.task.enter(executor, waker::identity(executor), outer) };
        self.side = self.side.next();
        // SAFETY: used only if it is shared, during this poll, and not dropped.
        let own = unsafe { waker::of_poll(self.task, self.side) };
        let waker: &ManuallyDrop<Waker> = &own;
        let waker: &Waker = if is_shared { waker } else { executor };
        thread.set_polls(Some(self.task));
        self.labels.swap_unseen();
        let mut inside = Inside { thread, task: self.task, labels: &mut self.labels, outer, is_ready: false };
        let result = task::run(|| poll(waker));
        inside.is_ready = result.is_ready();
        drop(inside);
        if task::is_on() && result.is_pending() {
            awaits_in_outer(executor);
        }
        result
    }
}

/// A task waits inside another one's poll, whose waker it has not cloned, as it has one already: the other one waits here too.
#[cold]
fn awaits_in_outer(executor: &Waker) {
    if let Some(outer) = waker::task_behind(executor)
        && waker::is_polled(outer)
    {
        outer.note_await();
    }
}

#[cfg(feature = "tokio")]
impl Tracked {
    /// Runs a task that is no future.
    pub(super) fn run<T>(mut self, f: impl FnOnce() -> T) -> T {
        match self.poll(Waker::noop(), |_| Poll::Ready(f())) {
            Poll::Ready(result) => result,
            Poll::Pending => unreachable!("it is ready at once"),
        }
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        // SAFETY: the future is gone.
        unsafe { self.task.end() };
    }
}

/// A poll that goes on, also one that ends by a panic.
struct Inside<'a> {
    thread: &'static Goroutine,
    task: &'static Task,
    /// Those of the thread.
    labels: &'a mut Current,
    outer: Option<&'static Task>,
    /// The task ends, which its owner sees to.
    is_ready: bool,
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.labels.swap_unseen();
        // Dropped last, also if code of the executor's panics.
        let _restores = Restores { thread: self.thread, outer: self.outer };
        if !self.is_ready {
            // SAFETY: the poll was begun, and is over.
            unsafe { self.task.leave() };
        }
    }
}

/// What the thread polled before.
struct Restores {
    thread: &'static Goroutine,
    outer: Option<&'static Task>,
}

impl Drop for Restores {
    #[inline]
    fn drop(&mut self) {
        self.thread.set_polls(self.outer);
    }
}
