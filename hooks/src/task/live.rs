//! How many tasks tokio has, beside those that rtprof follows: tasks that `tokio::spawn` has made are in no profile, and a
//! reader of the goroutine profile must not take what is there for all.
//!
//! Only a thread in a runtime can ask tokio, and a handle that is kept for it would keep the runtime's descriptors open. So
//! the goroutine profile asks for the number, and the next thread that begins or polls a followed task tells it.

use rtprof_runtime::task;
use tokio::runtime::Handle;

/// Tells the goroutine profile the number of tokio's tasks, if it has asked. Called where a task begins and is polled.
#[inline]
pub(super) fn tell_if_asked() {
    if task::are_executor_tasks_asked() {
        tell();
    }
}

#[cold]
#[inline(never)]
fn tell() {
    if let Ok(handle) = Handle::try_current()
        && let Some(count) = live_tasks(&handle)
    {
        task::tell_executor_tasks(count);
    }
}

/// Returns the number of live tasks; `None` before tokio 1.41, which does not tell it.
fn live_tasks(handle: &Handle) -> Option<usize> {
    #[allow(unused_imports)]
    use absent::{Alive, Metrics};
    // Methods of tokio, if its version has them, take precedence over those of the traits.
    handle.metrics().num_alive_tasks().into()
}

/// Stands in for methods that older versions of tokio lack.
#[allow(dead_code)]
mod absent {
    use tokio::runtime::Handle;

    pub(super) trait Metrics {
        fn metrics(&self) {}
    }

    impl Metrics for Handle {}

    pub(super) trait Alive {
        fn num_alive_tasks(&self) -> Option<usize> {
            None
        }
    }

    impl<T> Alive for T {}
}
