//! Callbacks through which higher layers observe goroutines.
//!
//! The recorders stand above this crate, and it cannot call them by name. Each installs its callbacks once, and they
//! stay.

use super::slot::Goroutine;
use crate::goroutine::state::State;
use crate::goroutine::wait_reason::WaitReason;
use crate::memory::atomic_ref::AtomicRef;

/// Callbacks of the execution tracer. All but `cycle` are called from hooks, by the goroutine's own thread.
#[derive(Debug)]
pub struct Observer {
    /// The goroutine begins. It is running, or, if its creator reported it, runnable; the callback then makes it run.
    pub began: fn(&'static Goroutine),
    /// The goroutine waits for this reason from now on, and calls no hook until it does something else.
    pub waits: fn(&'static Goroutine, WaitReason),
    /// The goroutine ends. Not called for threads that end unreported.
    pub ends: fn(&'static Goroutine),
    /// The process is a forked child.
    pub forked: fn(),
    /// Runs its argument, which walks over all buckets of the heap profile. Must not be called in a hook.
    pub cycle: fn(&mut dyn FnMut()),
    /// The current thread was interrupted with this stack (return addresses, leaf first) after this many sampling
    /// periods of its processor time. Called in the signal handler, on a stack with enough room.
    pub cpu_sample: fn(&[usize], u64),
}

/// Callbacks of the CPU sampler, from hooks.
#[derive(Debug)]
pub struct ThreadObserver {
    /// The current thread begins.
    pub began: fn(),
    /// The process is a forked child.
    pub forked: fn(),
}

/// Called from a hook by a thread whose goroutine ends, perhaps in a wait that it does not come back from.
pub type EndObserver = fn();

static OBSERVER: AtomicRef<Observer> = AtomicRef::none();
static THREAD_OBSERVER: AtomicRef<ThreadObserver> = AtomicRef::none();
static END_OBSERVER: AtomicRef<EndObserver> = AtomicRef::none();

/// Installs `observer` in place of an earlier one.
pub fn observe(observer: &'static Observer) {
    OBSERVER.set(Some(observer));
}

/// Installs `observer` in place of an earlier one.
pub fn observe_threads(observer: &'static ThreadObserver) {
    THREAD_OBSERVER.set(Some(observer));
}

/// Installs `observer` in place of an earlier one.
pub fn observe_ends(observer: &'static EndObserver) {
    END_OBSERVER.set(Some(observer));
}

/// Changes the goroutine's state while there is no observer.
fn change(goroutine: &Goroutine, from: State, to: State) {
    let mut word = goroutine.state();
    while word.state() == from {
        match goroutine.change(word, word.next(to, 0)) {
            Ok(()) => return,
            Err(seen) => word = seen,
        }
    }
}

pub(super) fn began(goroutine: &'static Goroutine) {
    match OBSERVER.get() {
        Some(observer) => (observer.began)(goroutine),
        None => change(goroutine, State::Runnable, State::Running),
    }
}

pub(super) fn thread_began() {
    if let Some(observer) = THREAD_OBSERVER.get() {
        (observer.began)();
    }
}

pub(super) fn ends(goroutine: &'static Goroutine) {
    if let Some(ends) = END_OBSERVER.get() {
        ends();
    }
    if let Some(observer) = OBSERVER.get() {
        (observer.ends)(goroutine);
    }
}

#[cfg(rtprof_supported)]
pub(super) fn forked() {
    if let Some(observer) = THREAD_OBSERVER.get() {
        (observer.forked)();
    }
    if let Some(observer) = OBSERVER.get() {
        (observer.forked)();
    }
}

/// Reports that the goroutine of the current thread, a thread of rtprof, waits from now on. Such a thread waits nearly
/// all of its time.
pub fn waits(goroutine: &'static Goroutine, reason: WaitReason) {
    match OBSERVER.get() {
        Some(observer) => (observer.waits)(goroutine, reason),
        None => change(goroutine, State::Running, State::Waiting(reason)),
    }
}

/// Reports that the CPU sampler has interrupted the current thread with this stack: see [`Observer::cpu_sample`].
pub fn cpu_sample(stack: &[usize], periods: u64) {
    if let Some(observer) = OBSERVER.get() {
        (observer.cpu_sample)(stack, periods);
    }
}

/// Runs `f`, which walks over all buckets of the heap profile.
pub fn cycle(f: &mut dyn FnMut()) {
    match OBSERVER.get() {
        Some(observer) => (observer.cycle)(f),
        None => f(),
    }
}
