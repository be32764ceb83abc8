//! A future under labels.

use core::fmt;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::task::{Context, Poll};

use pin_project_lite::pin_project;
use rtprof_runtime::labels::{self, Current, LabelSet};

pin_project! {
    /// A future that runs under labels. Made by [`do_with`].
    #[must_use = "futures do nothing unless polled"]
    pub struct Labelled<F> {
        #[pin]
        future: ManuallyDrop<F>,
        // The future's labels; while it is polled, those of its poller.
        labels: Current,
    }

    impl<F> PinnedDrop for Labelled<F> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            let _inside = Inside::begin(this.labels);
            // SAFETY: the future is dropped in place and not used again, because `self` is being dropped.
            unsafe { ManuallyDrop::drop(this.future.get_unchecked_mut()) };
        }
    }
}

/// Runs `future` under the labels of the caller plus `labels`; a key that is set already takes the new value. These
/// labels are current while the future is polled, on any thread: its samples have them, and the tasks and threads that
/// it starts through rtprof inherit them, as do the futures that it awaits. In the goroutine profile a task that awaits
/// inside `future` has these labels. A future that is already a task keeps the labels of its creator, so label first
/// and instrument last. Go: `pprof.Do`.
///
/// ```
/// # use rtprof_hooks as rtprof;
/// # use rtprof_runtime::labels;
/// # mod pprof { pub use rtprof_runtime::labels::labels; }
/// # async fn handle() {}
/// # async fn serve() {
/// rtprof::task::do_with(pprof::labels(&[("route", "/orders")]), handle()).await;
/// # }
/// ```
pub fn do_with<F: Future>(labels: LabelSet, future: F) -> Labelled<F> {
    Labelled { future: ManuallyDrop::new(future), labels: labels::current().with(labels) }
}

impl<F: Future> Future for Labelled<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _inside = Inside::begin(this.labels);
        // SAFETY: the future is a field of the pinned value and is not moved out of it.
        unsafe { this.future.map_unchecked_mut(|future| &mut **future) }.poll(context)
    }
}

/// Makes the future's labels current until it is dropped, also by a panic.
struct Inside<'a>(&'a mut Current);

impl<'a> Inside<'a> {
    fn begin(labels: &'a mut Current) -> Self {
        labels.swap();
        Self(labels)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.swap();
    }
}

impl<F> fmt::Debug for Labelled<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Labelled").field("labels", &self.labels).finish_non_exhaustive()
    }
}
