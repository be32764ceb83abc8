//! Who wants to know when goroutines begin and end, and when heap profile cycles do: the execution tracer, which stands
//! above this crate.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::goroutine::{Goroutine, State};

/// What is called, by the goroutine's own thread, from hooks.
#[derive(Debug)]
pub struct Observer {
    /// It begins, running or, if its creator said so, runnable; then this makes it run.
    pub began: fn(&'static Goroutine),
    /// It ends, by its own thread. Not called for threads that end without a word.
    pub ends: fn(&'static Goroutine),
    /// This is a forked child.
    pub forked: fn(),
    /// Runs its argument, which walks over all buckets of the heap profile. Not from hooks.
    pub cycle: fn(&mut dyn FnMut()),
}

static OBSERVER: AtomicPtr<Observer> = AtomicPtr::new(null_mut());

/// Calls `observer` from now on, and nobody else any more.
pub fn observe(observer: &'static Observer) {
    OBSERVER.store((&raw const *observer).cast_mut(), Ordering::Release);
}

fn observer() -> Option<&'static Observer> {
    // SAFETY: null, or from a static reference.
    unsafe { OBSERVER.load(Ordering::Acquire).as_ref() }
}

pub(crate) fn began(goroutine: &'static Goroutine) {
    if let Some(observer) = observer() {
        (observer.began)(goroutine);
        return;
    }
    let mut word = goroutine.state();
    while word.state() == State::Runnable {
        match goroutine.change(word, word.next(State::Running, 0)) {
            Ok(()) => return,
            Err(seen) => word = seen,
        }
    }
}

pub(crate) fn ends(goroutine: &'static Goroutine) {
    if let Some(observer) = observer() {
        (observer.ends)(goroutine);
    }
}

#[cfg(rtprof_supported)]
pub(crate) fn forked() {
    if let Some(observer) = observer() {
        (observer.forked)();
    }
}

pub(crate) fn cycle(f: &mut dyn FnMut()) {
    match observer() {
        Some(observer) => (observer.cycle)(f),
        None => f(),
    }
}
