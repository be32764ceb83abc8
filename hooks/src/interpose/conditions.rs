//! Condition variables of C, which wait inside the C library, as its mutexes do.
//!
//! A wait for a condition gives up a mutex, and takes it again at the end; the wait for the mutex is part of it. So the
//! wait ends when the function returns, and not when the condition was signalled.

use core::ffi::{c_int, c_uint};

use libc::{pthread_cond_t, pthread_mutex_t, timespec};
use rtprof_runtime::clock;
use rtprof_runtime::goroutine::Goroutine;
use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::hook::hidden::{self, Calls};
use rtprof_runtime::hook::listeners;
use rtprof_runtime::stack::frame_mark::FrameMark;
use rtprof_tracer::states;

use super::forward::{Next, Versions, errno, function, set_errno};
use super::locks;
use super::wait::InterposedWait;
use super::watch::unwatched;
use crate::inner::sleepers::{self, Note, SLEEPERS, Sleeper};
use crate::inner::wait;
use crate::inner::within;

type Of = unsafe extern "C" fn(*mut pthread_cond_t) -> c_int;
type Init = unsafe extern "C" fn(*mut pthread_cond_t, *const libc::pthread_condattr_t) -> c_int;
type WaitFor = unsafe extern "C-unwind" fn(*mut pthread_cond_t, *mut pthread_mutex_t) -> c_int;
type Timed = unsafe extern "C-unwind" fn(*mut pthread_cond_t, *mut pthread_mutex_t, *const timespec) -> c_int;
#[cfg(target_env = "gnu")]
type Clocked = unsafe extern "C-unwind" fn(
    *mut pthread_cond_t,
    *mut pthread_mutex_t,
    libc::clockid_t,
    *const timespec,
) -> c_int;

/// glibc has two versions of most of these functions on x86-64. The first is for programs of 2002, and keeps a pointer in the
/// condition that the second does not have. The loader gives these definitions to callers of either version. So all
/// functions are defined here, `pthread_cond_init` and `pthread_cond_destroy` too, and all forward to the second version: a
/// condition has the same size and the same static initialiser in both.
const VERSIONS: Option<Versions> = if cfg!(all(target_env = "gnu", target_arch = "x86_64")) {
    Some(Versions { old: c"GLIBC_2.2.5", new: c"GLIBC_2.3.2" })
} else {
    None
};

static INIT: Next = Next::versioned(VERSIONS);
static DESTROY: Next = Next::versioned(VERSIONS);
static WAIT: Next = Next::versioned(VERSIONS);
static TIMED: Next = Next::versioned(VERSIONS);
#[cfg(target_env = "gnu")]
static CLOCKED: Next = Next::new();
static SIGNAL: Next = Next::versioned(VERSIONS);
static BROADCAST: Next = Next::versioned(VERSIONS);

pub(super) fn find() {
    INIT.find(c"pthread_cond_init");
    DESTROY.find(c"pthread_cond_destroy");
    WAIT.find(c"pthread_cond_wait");
    TIMED.find(c"pthread_cond_timedwait");
    #[cfg(target_env = "gnu")]
    CLOCKED.find(c"pthread_cond_clockwait");
    SIGNAL.find(c"pthread_cond_signal");
    BROADCAST.find(c"pthread_cond_broadcast");
}

/// `int pthread_cond_init(pthread_cond_t *, const pthread_condattr_t *)`
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_init(
    condition: *mut pthread_cond_t,
    attributes: *const libc::pthread_condattr_t,
) -> c_int {
    let next = function!(INIT, c"pthread_cond_init", Init);
    // SAFETY: the caller keeps the contract of the C library's function.
    next.map_or(libc::EINVAL, |next| unsafe { next(condition, attributes) })
}

/// `int pthread_cond_destroy(pthread_cond_t *)`
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_destroy(condition: *mut pthread_cond_t) -> c_int {
    let next = function!(DESTROY, c"pthread_cond_destroy", Of);
    // SAFETY: the caller keeps the contract of the C library's function.
    next.map_or(libc::EINVAL, |next| unsafe { next(condition) })
}

/// `int pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *)`
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_cond_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    let next = function!(WAIT, c"pthread_cond_wait", WaitFor);
    // SAFETY: the caller keeps the contract of the C library's function.
    watch_wait(condition, mutex, || next.map_or(libc::EINVAL, |next| unsafe { next(condition, mutex) }))
}

/// `int pthread_cond_timedwait(pthread_cond_t *, pthread_mutex_t *, const struct timespec *)`
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_cond_timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    let next = function!(TIMED, c"pthread_cond_timedwait", Timed);
    // SAFETY: the caller keeps the contract of the C library's function.
    let call = || next.map_or(libc::EINVAL, |next| unsafe { next(condition, mutex, until) });
    watch_wait(condition, mutex, call)
}

/// `int pthread_cond_clockwait(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *)`
///
/// # Safety
/// As for the C library's function.
#[cfg(target_env = "gnu")]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_cond_clockwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: libc::clockid_t,
    until: *const timespec,
) -> c_int {
    let next = function!(CLOCKED, c"pthread_cond_clockwait", Clocked);
    // SAFETY: the caller keeps the contract of the C library's function.
    let call = || next.map_or(libc::EINVAL, |next| unsafe { next(condition, mutex, clock, until) });
    watch_wait(condition, mutex, call)
}

/// `int pthread_cond_signal(pthread_cond_t *)`
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_signal(condition: *mut pthread_cond_t) -> c_int {
    wakes(condition, 1);
    // SAFETY: the caller keeps the contract of the C library's function.
    function!(SIGNAL, c"pthread_cond_signal", Of).map_or(libc::EINVAL, |next| unsafe { next(condition) })
}

/// `int pthread_cond_broadcast(pthread_cond_t *)`
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_broadcast(condition: *mut pthread_cond_t) -> c_int {
    wakes(condition, c_uint::MAX);
    // SAFETY: the caller keeps the contract of the C library's function.
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
    let mark = FrameMark::new();
    if within::is_hidden(&mark) {
        return call();
    }
    let before = errno();
    // SAFETY: the calling thread holds the mutex, and unlocks it in the call.
    wait::charged_for_chosen(unsafe { locks::charge(mutex) });
    let start = sleepers::rounded(clock::ticks());
    within::enter_wait(mark.set());
    // A cancelled thread is unwound, and leaves its cell when it ends: see `within::thread_ends`.
    let wait = InterposedWait::begin(WaitReason::CondWait, start);
    // No unlock ends this wait, and it is reported until the thread has the mutex again. So only a trace needs the wake.
    let (address, goroutine) = (condition.addr(), wait.goroutine());
    let sleeper = Sleeper { address, bits: c_uint::MAX, start, goroutine, note: Note::default() };
    let place = within::enter_cell(sleeper);
    set_errno(before);
    let result = call();
    let after = errno();
    if let Some(place) = place {
        SLEEPERS.leave(place);
    }
    wait.end_if_slept();
    within::leave_wait(&mark);
    set_errno(after);
    result
}

/// Marks up to `count` threads that wait for the condition as runnable, before they are woken. They have not waited for
/// a lock, so nothing is charged.
#[inline(always)]
fn wakes(condition: *mut pthread_cond_t, count: c_uint) {
    if listeners::are_any() && rtprof_tracer::is_enabled() {
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

/// Records that the goroutine, whose wait began at `start`, can run, as for a futex.
fn unblock(goroutine: &Goroutine, start: u64) {
    if !rtprof_tracer::is_enabled() {
        return;
    }
    let waits = |state| {
        state == State::Waiting(WaitReason::CondWait)
            && goroutine.waiting() == Some((WaitReason::CondWait, start))
    };
    states::unblock_if(goroutine, waits);
}
