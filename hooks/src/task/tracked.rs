//! A task as its future knows it.

use core::mem::ManuallyDrop;
use core::task::{Poll, Waker};

use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::init;
use rtprof_runtime::labels::{self, Current};
use rtprof_runtime::start::Start;
use rtprof_runtime::task::{self, Begun, Task};

use rtprof_tracer::polls::{self, PollEnd};
use rtprof_tracer::{Suspended, is_enabled};

use super::waker;

/// A task, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Tracked {
    task: &'static Task,
    /// Those of the task; those of the thread while it is polled.
    labels: Current,
    /// The user task that is current in it.
    user_task: Suspended,
}

impl Tracked {
    /// Begins a task, under the labels of the caller. `None` if there is no memory for it.
    #[track_caller]
    pub(super) fn begin(name: &str, start: Start) -> Option<Self> {
        init::open();
        let task = task::begin(name, start, goroutine::current_id())?;
        if is_enabled() {
            polls::created(task);
        }
        Some(Self { task, labels: labels::current(), user_task: Suspended::NONE })
    }

    /// Polls the task's future: `poll` does, with the waker that it is given.
    #[inline]
    pub(super) fn poll<T>(&mut self, executor: &Waker, poll: impl FnOnce(&Waker) -> Poll<T>) -> Poll<T> {
        // A thread that is about to end has none.
        let Some(thread) = goroutine::current() else { return poll(executor) };
        let is_noted = task::is_on();
        let outer = thread.polls();
        if is_enabled() {
            polls::begin(self.task);
        }
        // SAFETY: the future is the caller's, and the poll ends below, or with the future.
        let begun = unsafe { self.task.enter(executor, || waker::identity(executor), outer) };
        // SAFETY: used only if it is shared, during this poll, and not dropped.
        let own = unsafe { waker::of_poll(self.task, is_noted) };
        let waker: &ManuallyDrop<Waker> = &own;
        let waker: &Waker = if begun.is_shared { waker } else { executor };
        let inside = self.inside(thread, outer, PollEnd::Panicked);
        let result = task::run(|| poll(waker));
        inside.end(begun, result.is_ready());
        if is_noted && result.is_pending() {
            awaits_in_outer(executor);
        }
        result
    }

    /// The current thread runs the task's future.
    #[inline]
    fn inside(
        &mut self,
        thread: &'static Goroutine,
        outer: Option<&'static Task>,
        end: PollEnd,
    ) -> Inside<'_> {
        thread.set_polls(Some(self.task));
        self.labels.swap_unseen();
        let is_swapped = is_enabled() || !self.user_task.is_none();
        if is_swapped {
            self.user_task.swap();
        }
        Inside {
            thread,
            task: self.task,
            labels: &mut self.labels,
            outer,
            user_task: &mut self.user_task,
            is_swapped,
            end,
        }
    }

    /// Drops the task's future, which was not ready: `drop` does. What destructors do is the task's.
    pub(super) fn drop_future(&mut self, drop: impl FnOnce()) {
        let Some(thread) = goroutine::current() else { return drop() };
        let outer = thread.polls();
        if is_enabled() {
            polls::begin(self.task);
        }
        // SAFETY: the future is the caller's, and the task ends with it.
        unsafe { self.task.enter_end(outer) };
        let _inside = self.inside(thread, outer, PollEnd::Over);
        task::run(drop);
    }
}

/// A task waits inside another one's poll, whose waker it has not cloned, as it has one already: the other one waits here too.
#[cold]
fn awaits_in_outer(executor: &Waker) {
    if let Some(outer) = waker::task_behind(executor)
        && waker::is_polled(outer)
    {
        outer.note_await(false);
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
        if is_enabled() {
            polls::dropped(self.task);
        }
        // SAFETY: the future is gone.
        unsafe { self.task.end() };
    }
}

/// A poll of the task goes on, or its future is dropped.
struct Inside<'a> {
    thread: &'static Goroutine,
    task: &'static Task,
    /// Those of the thread.
    labels: &'a mut Current,
    /// What the thread polled before.
    outer: Option<&'static Task>,
    /// The user task of the thread, where it was exchanged; else none, and the thread's is none of this trace.
    user_task: &'a mut Suspended,
    is_swapped: bool,
    /// What becomes of the task if the poll does not say it.
    end: PollEnd,
}

impl Inside<'_> {
    /// The poll is over.
    #[inline(always)]
    fn end(self, begun: Begun, is_ready: bool) {
        let mut inside = ManuallyDrop::new(self);
        if is_enabled() {
            inside.record_end(if is_ready { PollEnd::Over } else { PollEnd::Pending });
        }
        // SAFETY: that poll.
        unsafe { inside.task.leave(begun, is_ready) };
        inside.restore();
    }

    #[inline]
    fn record_end(&self, end: PollEnd) {
        polls::end(self.thread, self.task, self.outer, end);
    }

    #[inline]
    fn restore(&mut self) {
        // In a trace that began during the poll a user task may have become current.
        if self.is_swapped || is_enabled() {
            self.user_task.swap();
        }
        self.labels.swap_unseen();
        self.thread.set_polls(self.outer);
    }
}

/// The poll ends by a panic, or the future was dropped.
impl Drop for Inside<'_> {
    #[cold]
    fn drop(&mut self) {
        if is_enabled() {
            self.record_end(self.end);
        }
        // SAFETY: the poll was begun; and no poll of a future follows that was dropped.
        unsafe { self.task.leave_by_panic() };
        self.restore();
    }
}
