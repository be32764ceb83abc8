//! What a new thread knows of its creator.

use std::io;

use rtprof_runtime::goroutine::{self, Goroutine, Origin, Registered};
use rtprof_runtime::hidden::{self, Calls};
use rtprof_runtime::init;
use rtprof_runtime::labels;
use rtprof_runtime::start::Start;
use rtprof_runtime::thread_create;
use rtprof_tracer::states;

/// The stack that is about to create a thread, what the thread is to run, and what the trace knows of that.
#[derive(Clone, Copy)]
pub(super) struct Creator(Origin);

impl Creator {
    /// That of the caller, for a thread of this name that runs an `F`. A trace has the creation before the thread can
    /// begin.
    #[inline(always)]
    #[track_caller]
    pub(super) fn here<F>(name: &str) -> Self {
        let start = Start::here::<F>();
        init::open();
        let created_by = thread_create::stack();
        let creator = goroutine::current().map_or(0, Goroutine::id);
        Self(Origin { created_by, creator, start: Some(start), birth: states::create(name, Some(start)) })
    }

    /// Has std make the thread. Counted afterwards: the system may refuse.
    #[inline(always)]
    pub(super) fn create<T>(self, create: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        // Interposed functions would tell of the same thread once more.
        self.has_tried(hidden::hiding(Calls::THREADS, create))
    }

    /// The thread was made, or not.
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

    /// `body` with the goroutine around it, under the labels of the caller. A panic ends the goroutine and goes on to std.
    pub(super) fn around<T>(self, body: impl FnOnce() -> T) -> impl FnOnce() -> T {
        let labels = labels::current();
        move || {
            let _labels = labels.enter();
            let _goroutine = self.enter();
            body()
        }
    }
}
