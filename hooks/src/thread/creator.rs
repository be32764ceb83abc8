//! What a new thread knows of its creator.

use rtprof_profiler::goroutine::{self, Registered};
use rtprof_profiler::thread_create::{self, ThreadBucket};

/// The stack that is about to create a thread.
#[derive(Clone, Copy)]
pub(super) struct Creator(Option<&'static ThreadBucket>);

impl Creator {
    /// That of the caller.
    #[inline(always)]
    pub(super) fn here() -> Self {
        Self(thread_create::stack())
    }

    /// The thread was made. Counted now and not before: the system may have refused.
    pub(super) fn has_created(self) {
        if let Some(bucket) = self.0 {
            bucket.record.count_one();
        }
    }

    /// Begins the current thread's goroutine, which ends when the guard is dropped.
    #[allow(clippy::disallowed_methods, reason = "std has made the handle of a thread that it starts")]
    fn enter(self) -> Registered {
        goroutine::register(std::thread::current().name(), self.0)
    }

    /// `body` with the goroutine around it. A panic ends the goroutine and goes on to std.
    pub(super) fn around<T>(self, body: impl FnOnce() -> T) -> impl FnOnce() -> T {
        move || {
            let _goroutine = self.enter();
            body()
        }
    }
}
