//! The future around a task's.

use core::fmt;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::task::{Context, Poll};

use pin_project_lite::pin_project;
use rtprof_runtime::goroutine::start::Start;

use super::program_type::program_type;
use super::tracked::Tracked;

pin_project! {
    /// A future that is a task in profiles. Made by [`instrument`](super::instrument()) and
    /// [`Instrument`](super::Instrument).
    ///
    /// The task begins when this is made, and ends when the future is ready or dropped. It takes no memory from the
    /// program's allocator. If it is polled again after it was ready, the inner future decides what happens.
    #[must_use = "futures do nothing unless polled"]
    pub struct Instrumented<F> {
        // Dropped within the task's end, or after it.
        #[pin]
        future: ManuallyDrop<F>,
        task: Option<Tracked>,
    }

    impl<F> PinnedDrop for Instrumented<F> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // SAFETY: the future is dropped in place and not used again, because `self` is being dropped.
            let drop = || unsafe { ManuallyDrop::drop(this.future.get_unchecked_mut()) };
            match this.task {
                Some(task) => task.drop_future(drop),
                None => drop(),
            }
        }
    }
}

impl<F> Instrumented<F> {
    #[track_caller]
    pub(super) fn new(name: &str, future: F) -> Self {
        Self {
            task: Tracked::begin(name, Start::here_as(program_type::<F>)),
            future: ManuallyDrop::new(future),
        }
    }
}

impl<F: Future> Future for Instrumented<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        // SAFETY: the future is a field of the pinned value and is not moved out of it.
        let future = unsafe { this.future.map_unchecked_mut(|future| &mut **future) };
        let Some(task) = this.task else { return future.poll(context) };
        let result = task.poll(context.waker(), |waker| future.poll(&mut Context::from_waker(waker)));
        if result.is_ready() {
            *this.task = None;
        }
        result
    }
}

impl<F> fmt::Debug for Instrumented<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instrumented").field("task", &self.task).finish_non_exhaustive()
    }
}
