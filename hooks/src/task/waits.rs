//! Waits of a future that the program announces.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};

use pin_project_lite::pin_project;
use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::task;

use crate::trace::WaitKind;

pin_project! {
    /// A future whose waits have a given reason. Made by [`wait`].
    #[must_use = "futures do nothing unless polled"]
    pub struct Waits<F> {
        #[pin]
        future: F,
        kind: WaitKind,
    }
}

/// Names the reason for which a task waits while it awaits `future`. Without this call a trace derives the reason from
/// the library of the leaf future, and shows an unknown reason as a lock. If two such calls are nested, the inner one
/// counts. This is the async form of [`trace::wait`](crate::trace::wait).
///
/// ```
/// # use rtprof_hooks as rtprof;
/// # mod trace { pub use rtprof_hooks::trace::WaitKind; }
/// # async fn read_from_device() {}
/// # async fn read() {
/// rtprof::task::wait(trace::WaitKind::Net, read_from_device()).await;
/// # }
/// ```
pub fn wait<F: Future>(kind: WaitKind, future: F) -> Waits<F> {
    Waits { future, kind }
}

impl<F: Future> Future for Waits<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let task = if task::is_on() { goroutine::known().and_then(Goroutine::polls) } else { None };
        let reason = this.kind.reason();
        let declared = task.map(|task| task.declare(reason));
        let result = this.future.poll(context);
        drop(declared);
        if result.is_pending()
            && let Some(task) = task
        {
            task.tell_reason(reason);
        }
        result
    }
}

impl<F> fmt::Debug for Waits<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waits").field("kind", &self.kind).finish_non_exhaustive()
    }
}
