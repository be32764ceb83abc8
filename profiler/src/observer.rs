//! Who wants to know when goroutines begin and end, when heap profile cycles do, and what threads were sampled in: the
//! execution tracer, which stands above this crate.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::goroutine::{Goroutine, State, WaitReason};

/// What is called, by the goroutine's own thread, from hooks.
#[derive(Debug)]
pub struct Observer {
    /// It begins, running or, if its creator said so, runnable; then this makes it run.
    pub began: fn(&'static Goroutine),
    /// It waits for this reason from now on, and is not heard of until it does something else.
    pub waits: fn(&'static Goroutine, WaitReason),
    /// It ends, by its own thread. Not called for threads that end without a word.
    pub ends: fn(&'static Goroutine),
    /// This is a forked child.
    pub forked: fn(),
    /// Runs its argument, which walks over all buckets of the heap profile. Not from hooks.
    pub cycle: fn(&mut dyn FnMut()),
    /// The current thread was found with this stack, return addresses, leaf first, when so many periods of its processor time
    /// were over. In the signal handler, on a stack that has room.
    pub cpu_sample: fn(&[usize], u64),
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

/// Changes its state while there is no observer.
fn change(goroutine: &Goroutine, from: State, to: State) {
    let mut word = goroutine.state();
    while word.state() == from {
        match goroutine.change(word, word.next(to, 0)) {
            Ok(()) => return,
            Err(seen) => word = seen,
        }
    }
}

pub(crate) fn began(goroutine: &'static Goroutine) {
    match observer() {
        Some(observer) => (observer.began)(goroutine),
        None => change(goroutine, State::Runnable, State::Running),
    }
}

/// A thread of ours waits nearly all of its time.
#[cfg(all(rtprof_supported, not(loom)))]
pub(crate) fn waits(goroutine: &'static Goroutine, reason: WaitReason) {
    match observer() {
        Some(observer) => (observer.waits)(goroutine, reason),
        None => change(goroutine, State::Running, State::Waiting(reason)),
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

#[cfg(all(rtprof_supported, not(loom)))]
pub(crate) fn cpu_sample(stack: &[usize], periods: u64) {
    if let Some(observer) = observer() {
        (observer.cpu_sample)(stack, periods);
    }
}

pub(crate) fn cycle(f: &mut dyn FnMut()) {
    match observer() {
        Some(observer) => (observer.cycle)(f),
        None => f(),
    }
}
