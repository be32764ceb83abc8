//! The future around a task's.

use core::any;
use core::fmt;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::task::{Context, Poll};

use pin_project_lite::pin_project;
use rtprof_runtime::start::Start;

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

/// The name of a future's type, without our wrappers.
fn program_type<F>() -> &'static str {
    let mut name = any::type_name::<F>();
    while let Some(inside) = inside_ours(name) {
        name = inside;
    }
    name
}

/// The type inside one of our wrappers.
fn inside_ours(name: &'static str) -> Option<&'static str> {
    let inside = name.strip_prefix("rtprof_hooks::task::")?.strip_suffix('>')?;
    inside.strip_prefix("instrumented::Instrumented<").or_else(|| inside.strip_prefix("labelled::Labelled<"))
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

#[cfg(all(test, not(loom)))]
mod tests {
    use core::future::Ready;

    use super::super::Labelled;
    use super::*;

    #[test]
    fn a_task_is_named_by_what_the_program_wrote() {
        assert_eq!(program_type::<Ready<u8>>(), "core::future::ready::Ready<u8>");
        type Twice = Instrumented<Labelled<Instrumented<Ready<Instrumented<u8>>>>>;
        let named = "core::future::ready::Ready<rtprof_hooks::task::instrumented::Instrumented<u8>>";
        assert_eq!(program_type::<Twice>(), named);
    }
}
