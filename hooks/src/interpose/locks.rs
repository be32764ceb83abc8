//! Mutexes of C, which wait inside the C library: its futex calls are not seen.
//!
//! std's locks on Linux are none of these. Libraries in C and C++ have them, and allocators.
//!
//! Problem: a call to lock one does not tell whether it has waited. Scheme: it tries first, which costs about as much as a lock
//! that is free; only where that fails does it wait. Where the mutex is fair to nobody, a thread that was woken may find it taken
//! again and go on sleeping, and that is not seen: so every unlock is charged with what all have waited since the last one, and the
//! last is the one that has let the thread in.
//!
//! In a static program these functions are the C library's, since not every version has them there under a second name.

use core::cell::Cell;
use core::ffi::{c_int, c_uint};
use core::mem::ManuallyDrop;

use libc::{pthread_mutex_t, timespec};
use rtprof_runtime::clock;
use rtprof_runtime::goroutine::Goroutine;
use rtprof_runtime::hidden::{self, Calls};
use rtprof_runtime::listeners;
use rtprof_runtime::state::State;
use rtprof_runtime::wait_reason::WaitReason;
use rtprof_tracer::states;

use super::forward::{Next, errno, function, set_errno};
use super::futex::SLEEPERS;
use super::mutex;
use super::watch::unwatched;
use crate::account::Charge;
use crate::sleepers;
use crate::wait::{self, Wait};

type Of = unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int;
type Timed = unsafe extern "C" fn(*mut pthread_mutex_t, *const timespec) -> c_int;
#[cfg(target_env = "gnu")]
type Clocked = unsafe extern "C" fn(*mut pthread_mutex_t, libc::clockid_t, *const timespec) -> c_int;

static LOCK: Next = Next::new();
static TIMED: Next = Next::new();
#[cfg(target_env = "gnu")]
static CLOCKED: Next = Next::new();
static TRY: Next = Next::new();
static UNLOCK: Next = Next::new();

pub(super) fn find() {
    LOCK.find(c"pthread_mutex_lock");
    TIMED.find(c"pthread_mutex_timedlock");
    #[cfg(target_env = "gnu")]
    CLOCKED.find(c"pthread_mutex_clocklock");
    TRY.find(c"pthread_mutex_trylock");
    UNLOCK.find(c"pthread_mutex_unlock");
}

/// `int pthread_mutex_lock(pthread_mutex_t *)`
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise.
    let call =
        || function!(LOCK, c"pthread_mutex_lock", Of).map_or(libc::EINVAL, |next| unsafe { next(mutex) });
    watch_lock(mutex, call)
}

/// `int pthread_mutex_timedlock(pthread_mutex_t *, const struct timespec *)`
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_mutex_timedlock(
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    let next = function!(TIMED, c"pthread_mutex_timedlock", Timed);
    // SAFETY: the caller's promise.
    watch_lock(mutex, || next.map_or(libc::EINVAL, |next| unsafe { next(mutex, until) }))
}

/// `int pthread_mutex_clocklock(pthread_mutex_t *, clockid_t, const struct timespec *)`
///
/// # Safety
/// As in the C library.
#[cfg(target_env = "gnu")]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_mutex_clocklock(
    mutex: *mut pthread_mutex_t,
    clock: libc::clockid_t,
    until: *const timespec,
) -> c_int {
    let next = function!(CLOCKED, c"pthread_mutex_clocklock", Clocked);
    // SAFETY: the caller's promise.
    let call = || next.map_or(libc::EINVAL, |next| unsafe { next(mutex, clock, until) });
    // With any other clock it fails, also where the mutex is free.
    if [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC].contains(&clock) {
        watch_lock(mutex, call)
    } else {
        call()
    }
}

/// `int pthread_mutex_unlock(pthread_mutex_t *)`
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    let call =
        // SAFETY: the caller's promise.
        || function!(UNLOCK, c"pthread_mutex_unlock", Of).map_or(libc::EINVAL, |next| unsafe { next(mutex) });
    // Here, so that the recording has the frame of this function beneath it.
    if listeners::are_any() && SLEEPERS.are_any(mutex.addr()) {
        interposed_unlock(mutex, call)
    } else {
        call()
    }
}

/// Makes `call`, which locks the mutex, and reports how long it has waited.
#[inline(always)]
fn watch_lock(mutex: *mut pthread_mutex_t, call: impl FnOnce() -> c_int) -> c_int {
    if listeners::are_any() { interposed_lock(mutex, call) } else { unwatched(call) }
}

#[inline(never)]
fn interposed_lock(mutex: *mut pthread_mutex_t, call: impl FnOnce() -> c_int) -> c_int {
    if hidden::is_hidden(Calls::WAITS) {
        return call();
    }
    // SAFETY: the promise of who wants to lock it.
    let tried = function!(TRY, c"pthread_mutex_trylock", Of).map(|next| unsafe { next(mutex) });
    match tried {
        Some(libc::EBUSY) | None => interposed_wait(mutex, call),
        Some(result) => result,
    }
}

#[cold]
#[inline(never)]
fn interposed_wait(mutex: *mut pthread_mutex_t, call: impl FnOnce() -> c_int) -> c_int {
    let before = errno();
    let start = sleepers::rounded(clock::ticks());
    let mut wait = ManuallyDrop::new(Wait::begin_at(WaitReason::MutexLock, start));
    let place = SLEEPERS.enter(mutex.addr(), c_uint::MAX, start, wait.goroutine());
    set_errno(before);
    let result = call();
    let after = errno();
    let charged = place.and_then(|place| SLEEPERS.leave(place));
    match charged {
        Some(until) if result == 0 => {
            wait.woken(until);
            ManuallyDrop::into_inner(wait).end();
        }
        // Its time was over, or the unlock came before this thread was seen to wait, or the holder ended without one.
        _ => ManuallyDrop::into_inner(wait).end_if_slept(),
    }
    set_errno(after);
    result
}

#[cold]
#[inline(never)]
fn interposed_unlock(mutex: *mut pthread_mutex_t, call: impl FnOnce() -> c_int) -> c_int {
    let before = errno();
    // SAFETY: the promise of who unlocks it.
    let charge = unsafe { charge(mutex) };
    set_errno(before);
    let result = call();
    // When others hold the lock again: they need not wait for this.
    let after = errno();
    wait::charged(charge);
    set_errno(after);
    result
}

/// What the unlock that follows is charged with. Says that one of the waiters can run, if it will wake one: before that is so, since an
/// effect is not to be seen before its cause.
///
/// # Safety
/// The current thread holds the mutex, or has the C library find out.
pub(super) unsafe fn charge(mutex: *mut pthread_mutex_t) -> Charge {
    if !SLEEPERS.are_any(mutex.addr()) || hidden::is_hidden(Calls::WAKES) {
        return Charge::default();
    }
    // SAFETY: the caller's promise.
    let (stays_locked, wakes_one) = unsafe { (mutex::stays_locked(mutex), mutex::wakes_one(mutex)) };
    if stays_locked {
        return Charge::default();
    }
    let now = clock::ticks();
    // A thread that was woken and found it taken sleeps again, behind the others. It is still said to be runnable, so it is not meant.
    let longest: Cell<Option<(u64, &Goroutine)>> = Cell::new(None);
    let charge = SLEEPERS.charge(mutex.addr(), now, |goroutine| {
        if wakes_one
            && goroutine.state().state() == State::Waiting(WaitReason::MutexLock)
            && let Some((WaitReason::MutexLock, start)) = goroutine.waiting()
            && longest.get().is_none_or(|(longest, _)| start < longest)
        {
            longest.set(Some((start, goroutine)));
        }
    });
    if let Some((start, goroutine)) = longest.get()
        // A later wait than the one that was charged is not meant.
        && start < now
    {
        states::unblock_if(goroutine, |state| {
            state == State::Waiting(WaitReason::MutexLock)
                && goroutine.waiting() == Some((WaitReason::MutexLock, start))
        });
    }
    charge
}
