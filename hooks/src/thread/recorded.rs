//! The way of a thread's origin from its creator to the interposed functions.
//!
//! Problem: std runs code of its own in a new thread before the program's function, such as a wait for a lock of std. With the
//! feature `interpose` that wait is seen, and would give the thread a goroutine other than the one whose creation is recorded:
//! one thread would be two goroutines of the same name. Scheme: the creator leaves the origin here for the interposed
//! `pthread_create`, whose function begins the goroutine before any code of std runs, and ends it after the last.

use core::cell::Cell;

use rtprof_runtime::goroutine::Origin;

thread_local! {
    // No destructors and no lazy initialisation, as everywhere in hooks.
    /// The origin of the thread that the current thread is about to create.
    static NEXT: Cell<Option<Origin>> = const { Cell::new(None) };
    /// Whether the current thread has begun its goroutine with such an origin, and has not reached its function yet.
    static IS_STARTING: Cell<bool> = const { Cell::new(false) };
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

/// Notes that the current thread has begun its goroutine with a recorded origin.
pub(crate) fn start() {
    IS_STARTING.set(true);
}

/// Whether std is about to call the function of the current thread, whose goroutine has begun.
pub(crate) fn is_starting() -> bool {
    IS_STARTING.get()
}

/// Notes that the function of the current thread begins. Returns whether its goroutine has begun before.
pub(super) fn enter() -> bool {
    IS_STARTING.take()
}
