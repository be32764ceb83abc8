//! What a new thread receives from its creator.

use std::io;

use rtprof_runtime::goroutine::start::Start;
use rtprof_runtime::goroutine::{self, Goroutine, Origin, Registered};
use rtprof_runtime::hook::hidden::{self, Calls};
use rtprof_runtime::init;
use rtprof_runtime::labels;
use rtprof_runtime::thread::thread_create;
use rtprof_tracer::states;

/// The stack that creates a thread, the function that the thread runs, and the record of the creation in the trace.
#[derive(Clone, Copy)]
pub(super) struct Creator(Origin);

impl Creator {
    /// Describes the caller as the creator of a thread of this name that runs an `F`. A trace records the creation
    /// before the thread can begin.
    #[inline(always)]
    #[track_caller]
    pub(super) fn here<F>(name: &str) -> Self {
        let start = Start::here::<F>();
        init::open();
        let created_by = thread_create::stack();
        let creator = goroutine::current().map_or(0, Goroutine::id);
        Self(Origin { created_by, creator, start: Some(start), birth: states::create(name, Some(start)) })
    }

    /// Has std make the thread. The creation is counted afterwards, because the system may refuse it.
    #[inline(always)]
    pub(super) fn create<T>(self, create: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        // Interposed functions would record the same thread once more.
        self.has_tried(hidden::hiding(Calls::THREADS, create))
    }

    /// Records whether the thread was made.
    fn has_tried<T>(self, thread: io::Result<T>) -> io::Result<T> {
        match (&thread, self.0.created_by, self.0.birth) {
            (Ok(_), Some(bucket), _) => bucket.record.count_one(),
            (Err(_), _, Some(birth)) => states::create_failed(birth),
            _ => {}
        }
        thread
    }

    /// Begins the current thread's goroutine, which ends when the guard is dropped.
    #[allow(clippy::disallowed_methods, reason = "std has made the handle of a thread that it starts")]
    fn enter(self) -> Registered {
        goroutine::register(std::thread::current().name(), self.0)
    }

    /// Wraps `body` into the goroutine, under the labels of the caller. A panic ends the goroutine and goes on to std.
    pub(super) fn around<T>(self, body: impl FnOnce() -> T) -> impl FnOnce() -> T {
        let labels = labels::current();
        move || {
            let _labels = labels.enter();
            let _goroutine = self.enter();
            body()
        }
    }
}
