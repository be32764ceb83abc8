//! What a new thread receives from its creator.

use std::io;

use rtprof_runtime::goroutine::start::Start;
use rtprof_runtime::goroutine::{self, Goroutine, Origin, Registered};
use rtprof_runtime::init;
use rtprof_runtime::labels;
use rtprof_runtime::thread::thread_create;
use rtprof_tracer::states;

#[cfg(rtprof_interposed)]
use super::recorded;

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
        #[cfg(rtprof_interposed)]
        let thread = recorded::creating(self.0, create);
        #[cfg(not(rtprof_interposed))]
        let thread = create();
        self.has_tried(thread)
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

    /// Begins the current thread's goroutine, which ends when the guard is dropped. `None` if interposed functions have
    /// begun it.
    #[allow(clippy::disallowed_methods, reason = "std has made the handle of a thread that it starts")]
    fn enter(self) -> Option<Registered> {
        let thread = std::thread::current();
        #[cfg(rtprof_interposed)]
        if recorded::enter() && goroutine::known().is_some() {
            // The kernel's name of it may be shorter.
            thread.name().inspect(|name| goroutine::rename(name));
            return None;
        }
        Some(goroutine::register(thread.name(), self.0))
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

#[cfg(all(test, rtprof_interposed))]
mod tests {
    use rtprof_runtime::goroutine::Birth;
    use rtprof_runtime::goroutine_id;

    use super::*;

    fn own_id() -> u64 {
        goroutine::known().expect("it has begun").id()
    }

    /// As an allocator may do that starts a thread when std allocates.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "std's are meant")]
    fn a_thread_that_is_created_within_a_creation_has_another_goroutine() {
        let id = goroutine_id::reserve();
        let birth = Some(Birth { goroutine: id, mark: 0 });
        let creator = Creator(Origin { birth, ..Origin::default() });
        let (other, own) = creator
            .create(|| {
                let other = std::thread::spawn(own_id).join().unwrap();
                Ok((other, std::thread::Builder::new().spawn(creator.around(own_id))?.join().unwrap()))
            })
            .unwrap();
        assert_eq!(other, id, "it was taken for the thread");
        assert_ne!(own, id);
    }
}
