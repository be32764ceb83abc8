//! Conditions of C, which wait inside the C library as its mutexes do.
//!
//! A wait for one gives up a mutex, and has it again when it is over: what was waited for that is part of it. So it ends when the
//! function returns, and not when the condition was signalled.

use core::ffi::{CStr, c_int, c_uint};
use core::mem::ManuallyDrop;

use libc::{pthread_cond_t, pthread_mutex_t, timespec};
use rtprof_runtime::clock;
use rtprof_runtime::goroutine::Goroutine;
use rtprof_runtime::hidden::{self, Calls};
use rtprof_runtime::listeners;
use rtprof_runtime::state::State;
use rtprof_runtime::wait_reason::WaitReason;
use rtprof_tracer::states;

use super::forward::{Next, errno, function, set_errno};
use super::futex::SLEEPERS;
use super::locks;
use super::watch::unwatched;
use crate::sleepers;
use crate::wait::{self, Wait};

type Of = unsafe extern "C" fn(*mut pthread_cond_t) -> c_int;
type WaitFor = unsafe extern "C-unwind" fn(*mut pthread_cond_t, *mut pthread_mutex_t) -> c_int;
type Timed = unsafe extern "C-unwind" fn(*mut pthread_cond_t, *mut pthread_mutex_t, *const timespec) -> c_int;
#[cfg(target_env = "gnu")]
type Clocked = unsafe extern "C-unwind" fn(
    *mut pthread_cond_t,
    *mut pthread_mutex_t,
    libc::clockid_t,
    *const timespec,
) -> c_int;

/// Of most of these glibc has two on x86-64: the first version is for conditions of programs of 2002, and is what a plain lookup of
/// the next definition finds.
const VERSION: Option<&CStr> =
    if cfg!(all(target_env = "gnu", target_arch = "x86_64")) { Some(c"GLIBC_2.3.2") } else { None };

static WAIT: Next = Next::versioned(VERSION);
static TIMED: Next = Next::versioned(VERSION);
#[cfg(target_env = "gnu")]
static CLOCKED: Next = Next::new();
static SIGNAL: Next = Next::versioned(VERSION);
static BROADCAST: Next = Next::versioned(VERSION);

pub(super) fn find() {
    WAIT.find(c"pthread_cond_wait");
    TIMED.find(c"pthread_cond_timedwait");
    #[cfg(target_env = "gnu")]
    CLOCKED.find(c"pthread_cond_clockwait");
    SIGNAL.find(c"pthread_cond_signal");
    BROADCAST.find(c"pthread_cond_broadcast");
}

/// `int pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *)`
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_cond_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    let next = function!(WAIT, c"pthread_cond_wait", WaitFor);
    // SAFETY: the caller's promise.
    watch_wait(condition, mutex, || next.map_or(libc::EINVAL, |next| unsafe { next(condition, mutex) }))
}

/// `int pthread_cond_timedwait(pthread_cond_t *, pthread_mutex_t *, const struct timespec *)`
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_cond_timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    let next = function!(TIMED, c"pthread_cond_timedwait", Timed);
    // SAFETY: the caller's promise.
    let call = || next.map_or(libc::EINVAL, |next| unsafe { next(condition, mutex, until) });
    watch_wait(condition, mutex, call)
}

/// `int pthread_cond_clockwait(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *)`
///
/// # Safety
/// As in the C library.
#[cfg(target_env = "gnu")]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_cond_clockwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: libc::clockid_t,
    until: *const timespec,
) -> c_int {
    let next = function!(CLOCKED, c"pthread_cond_clockwait", Clocked);
    // SAFETY: the caller's promise.
    let call = || next.map_or(libc::EINVAL, |next| unsafe { next(condition, mutex, clock, until) });
    watch_wait(condition, mutex, call)
}

/// `int pthread_cond_signal(pthread_cond_t *)`
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_signal(condition: *mut pthread_cond_t) -> c_int {
    wakes(condition, 1);
    // SAFETY: the caller's promise.
    function!(SIGNAL, c"pthread_cond_signal", Of).map_or(libc::EINVAL, |next| unsafe { next(condition) })
}

/// `int pthread_cond_broadcast(pthread_cond_t *)`
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_broadcast(condition: *mut pthread_cond_t) -> c_int {
    wakes(condition, c_uint::MAX);
    // SAFETY: the caller's promise.
    function!(BROADCAST, c"pthread_cond_broadcast", Of)
        .map_or(libc::EINVAL, |next| unsafe { next(condition) })
}

#[inline(always)]
fn watch_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    call: impl FnOnce() -> c_int,
) -> c_int {
    if listeners::are_any() { interposed_wait(condition, mutex, call) } else { unwatched(call) }
}

#[cold]
#[inline(never)]
fn interposed_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    call: impl FnOnce() -> c_int,
) -> c_int {
    if hidden::is_hidden(Calls::WAITS) {
        return call();
    }
    let before = errno();
    // SAFETY: who waits holds the mutex, and unlocks it in the call.
    wait::charged(unsafe { locks::charge(mutex) });
    let start = sleepers::rounded(clock::ticks());
    // A thread that is cancelled is unwound, and leaves its place behind: see `sleepers`.
    let wait = ManuallyDrop::new(Wait::begin_at(WaitReason::CondWait, start));
    let place = SLEEPERS.enter(condition.addr(), c_uint::MAX, start, wait.goroutine());
    set_errno(before);
    let result = call();
    let after = errno();
    if let Some(place) = place {
        SLEEPERS.leave(place);
    }
    ManuallyDrop::into_inner(wait).end_if_slept();
    set_errno(after);
    result
}

/// So many of those that wait for the condition are about to be woken. Nothing is charged for it: they have waited for no lock.
#[inline(always)]
fn wakes(condition: *mut pthread_cond_t, count: c_uint) {
    if listeners::are_any() && SLEEPERS.are_any(condition.addr()) {
        interposed_wake(condition, count);
    }
}

#[cold]
#[inline(never)]
fn interposed_wake(condition: *mut pthread_cond_t, count: c_uint) {
    if hidden::is_hidden(Calls::WAKES) {
        return;
    }
    let before = errno();
    SLEEPERS.wake(condition.addr(), count, c_uint::MAX, clock::ticks(), unblock);
    set_errno(before);
}

/// The goroutine, whose wait began at `start`, can run.
fn unblock(goroutine: &Goroutine, start: u64) {
    let waits = |state| {
        state == State::Waiting(WaitReason::CondWait)
            && goroutine.waiting() == Some((WaitReason::CondWait, start))
    };
    states::unblock_if(goroutine, waits);
}
