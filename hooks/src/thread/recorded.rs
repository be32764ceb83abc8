//! The way of a thread's origin from its creator to the interposed functions.
//!
//! Problem: std runs code of its own in a new thread before the program's function, such as a wait for a lock of std. With the
//! feature `interpose` that wait is seen, and would give the thread a goroutine other than the one whose creation is recorded:
//! one thread would be two goroutines of the same name. Scheme: the creator leaves the origin here for the interposed
//! `pthread_create`, whose function begins the goroutine before any code of std runs, and ends it after the last.
//!
//! An allocator that starts a thread while std prepares one takes the origin for its thread. The two threads are mistaken for
//! each other then, and still are two goroutines: a thread whose goroutine has begun keeps it.

use core::cell::Cell;

use rtprof_runtime::goroutine::Origin;

thread_local! {
    // No destructors and no lazy initialisation, as everywhere in hooks.
    /// The origin of the thread that the current thread is about to create.
    static NEXT: Cell<Option<Origin>> = const { Cell::new(None) };
    static STARTED: Cell<Started> = const { Cell::new(Started::Otherwise) };
}

/// How the current thread was started, until `rtprof::thread` calls its function.
#[derive(Clone, Copy, Default, PartialEq)]
enum Started {
    /// Not by the interposed `pthread_create`, or its function has begun.
    #[default]
    Otherwise,
    /// With an origin that the interposed `pthread_create` has determined.
    Interposed,
    /// With an origin that its creator has recorded.
    Recorded,
}

/// Runs `create`, which makes a thread of this origin.
#[inline(always)]
pub(super) fn creating<T>(origin: Origin, create: impl FnOnce() -> T) -> T {
    /// Removes an origin that was not taken, also if std panics: the next thread is not of this origin.
    struct Remove;
    impl Drop for Remove {
        fn drop(&mut self) {
            NEXT.set(None);
        }
    }
    NEXT.set(Some(origin));
    let _remove = Remove;
    create()
}

/// Takes the origin that the creator has recorded for the thread that the current thread is about to create.
pub(crate) fn take() -> Option<Origin> {
    NEXT.take()
}

/// Notes that an interposed function has begun the current thread's goroutine; `is_recorded`: with an origin from [`take`].
pub(crate) fn start(is_recorded: bool) {
    STARTED.set(if is_recorded { Started::Recorded } else { Started::Interposed });
}

/// Whether the current thread was started with a recorded origin, and its function has not begun.
pub(crate) fn is_starting() -> bool {
    STARTED.get() == Started::Recorded
}

/// Notes that the function of the current thread begins. Returns whether [`start`] was called before.
pub(super) fn enter() -> bool {
    STARTED.take() != Started::Otherwise
}
