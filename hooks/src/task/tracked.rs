//! A task, held by its future.

use core::mem::ManuallyDrop;
use core::task::{Poll, Waker};

use rtprof_runtime::goroutine::start::Start;
use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::init;
use rtprof_runtime::labels::{self, Current};
use rtprof_runtime::task::{self, Begun, Task};

use rtprof_tracer::polls::{self, PollEnd};
use rtprof_tracer::{Suspended, is_enabled};

#[cfg(feature = "tokio")]
use super::live;
use super::waker;

/// A task, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Tracked {
    task: &'static Task,
    /// The labels of the task; while it is polled, those of the thread.
    labels: Current,
    /// The user task that is current in the task.
    user_task: Suspended,
}

impl Tracked {
    /// Begins a task under the labels of the caller. `None` if tasks are not followed, or there is no memory for its slot.
    #[track_caller]
    #[inline]
    pub(super) fn begin(name: &str, start: Start) -> Option<Self> {
        if task::are_followed() { Self::begin_followed(name, start) } else { None }
    }

    #[track_caller]
    fn begin_followed(name: &str, start: Start) -> Option<Self> {
        init::open();
        let task = task::begin(name, start, goroutine::current_id())?;
        if is_enabled() {
            polls::created(task);
        }
        #[cfg(feature = "tokio")]
        live::tell_if_asked();
        Some(Self { task, labels: labels::current(), user_task: Suspended::NONE })
    }

    /// Polls the task's future by `poll`, with the task's waker.
    #[inline]
    pub(super) fn poll<T>(&mut self, executor: &Waker, poll: impl FnOnce(&Waker) -> Poll<T>) -> Poll<T> {
        // A thread that is about to end has no goroutine.
        let Some(thread) = goroutine::current() else { return poll(executor) };
        #[cfg(feature = "tokio")]
        live::tell_if_asked();
        let outer = thread.polls();
        if is_enabled() {
            polls::begin(self.task);
        }
        // SAFETY: the caller owns the future, and the poll ends below, or with the future.
        let begun = unsafe { self.task.enter(executor, || waker::identity(executor), outer) };
        // SAFETY: the waker is used during this poll only, and is not dropped.
        let own = unsafe { waker::of_poll(self.task, begun.notes_stacks) };
        let waker: &ManuallyDrop<Waker> = &own;
        let waker: &Waker = if begun.is_shared { waker } else { executor };
        let inside = self.inside(thread, outer, PollEnd::Panicked);
        let result = task::run(|| poll(waker));
        inside.end(begun, result.is_ready());
        if result.is_pending() && outer.is_some_and(Task::notes_stacks) {
            awaits_in_outer(executor);
        }
        result
    }

    /// Notes that the current thread runs the task's future.
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

    /// Drops the task's future, which was not ready, by `drop`. Events of its destructors belong to the task.
    pub(super) fn drop_future(&mut self, drop: impl FnOnce()) {
        let Some(thread) = goroutine::current() else { return drop() };
        let outer = thread.polls();
        if is_enabled() {
            polls::begin(self.task);
        }
        // SAFETY: the caller owns the future, and the task ends with it.
        unsafe { self.task.enter_end(outer) };
        let _inside = self.inside(thread, outer, PollEnd::Over);
        task::run(drop);
    }
}

/// Notes that the outer task waits here too, when a task waits inside its poll and has not cloned its waker, because it
/// holds one already.
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
    /// Runs a task that is a function and not a future.
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
        // SAFETY: the task has no future.
        unsafe { self.task.end() };
    }
}

/// A poll of the task, or the drop of its future, in progress.
struct Inside<'a> {
    thread: &'static Goroutine,
    task: &'static Task,
    /// The labels of the thread.
    labels: &'a mut Current,
    /// The task that the thread polled before.
    outer: Option<&'static Task>,
    /// The user task of the thread, if it was exchanged.
    user_task: &'a mut Suspended,
    is_swapped: bool,
    /// What happens to the task if the poll ends by a panic.
    end: PollEnd,
}

impl Inside<'_> {
    /// Ends the poll.
    #[inline(always)]
    fn end(self, begun: Begun, is_ready: bool) {
        let mut inside = ManuallyDrop::new(self);
        if is_enabled() {
            inside.record_end(if is_ready { PollEnd::Over } else { PollEnd::Pending });
        }
        // SAFETY: `begun` belongs to this poll.
        unsafe { inside.task.leave(begun, is_ready) };
        inside.restore();
    }

    #[inline]
    fn record_end(&self, end: PollEnd) {
        polls::end(self.thread, self.task, self.outer, end);
    }

    #[inline]
    fn restore(&mut self) {
        // If a trace began during the poll, a user task may have become current.
        if self.is_swapped || is_enabled() {
            self.user_task.swap();
        }
        self.labels.swap_unseen();
        self.thread.set_polls(self.outer);
    }
}

/// Ends a poll that panics, or the drop of the future.
impl Drop for Inside<'_> {
    #[cold]
    fn drop(&mut self) {
        if is_enabled() {
            self.record_end(self.end);
        }
        // SAFETY: the poll was begun, and a dropped future is not polled again.
        unsafe { self.task.leave_by_panic() };
        self.restore();
    }
}
