//! Mutexes of C, which wait inside the C library, whose futex calls cannot be interposed.
//!
//! std's locks on Linux do not use them. Libraries in C and C++ do, and allocators.
//!
//! Problem: the lock function does not return whether it has waited. Scheme: it first tries to lock, which costs about
//! as much as locking a free mutex; only if that fails, it waits. These mutexes are not fair: a woken thread may find
//! the mutex taken and go on sleeping, which cannot be observed. So every unlock is charged with what all waiters have
//! waited since the last one, and the last unlock is the one that has let the thread in.
//!
//! In a static program these functions stay the C library's, because not every version has a second name for them
//! there.

use core::cell::Cell;
use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicBool, Ordering};

use libc::{pthread_mutex_t, timespec};
use rtprof_profiler::contention;
use rtprof_runtime::clock;
use rtprof_runtime::goroutine::Goroutine;
use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::hook::hidden::{self, Calls};
use rtprof_runtime::hook::listeners;
use rtprof_runtime::stack::frame_mark::FrameMark;
use rtprof_tracer::states;

use super::forward::{Next, errno, function, is_of_c_library, set_errno};
use super::futex::is_wake_of_interest;
use super::mutex;
use super::wait::InterposedWait;
use super::watch::unwatched;
use crate::inner::account::Charge;
use crate::inner::sleepers::{self, Caller, SLEEPERS, Sleeper};
use crate::inner::wait;
use crate::inner::within;

type Of = unsafe extern "C-unwind" fn(*mut pthread_mutex_t) -> c_int;
type Timed = unsafe extern "C-unwind" fn(*mut pthread_mutex_t, *const timespec) -> c_int;
#[cfg(target_env = "gnu")]
type Clocked = unsafe extern "C-unwind" fn(*mut pthread_mutex_t, libc::clockid_t, *const timespec) -> c_int;

static LOCK: Next = Next::new();
static TIMED: Next = Next::new();
#[cfg(target_env = "gnu")]
static CLOCKED: Next = Next::new();
static TRY: Next = Next::new();
static UNLOCK: Next = Next::new();
/// Whether the functions forward to the C library. Another library (a tool, by `LD_PRELOAD`) is to see each lock as a lock, and
/// not as an attempt.
static ARE_TRIED: AtomicBool = AtomicBool::new(false);

pub(super) fn find() {
    ARE_TRIED.store(is_of_c_library(c"pthread_mutex_lock"), Ordering::Relaxed);
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
/// As for the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller keeps the contract of the C library's function.
    let call =
        || function!(LOCK, c"pthread_mutex_lock", Of).map_or(libc::EINVAL, |next| unsafe { next(mutex) });
    watch_lock(mutex, call)
}

/// `int pthread_mutex_timedlock(pthread_mutex_t *, const struct timespec *)`
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_mutex_timedlock(
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    let next = function!(TIMED, c"pthread_mutex_timedlock", Timed);
    // SAFETY: the caller keeps the contract of the C library's function.
    watch_lock(mutex, || next.map_or(libc::EINVAL, |next| unsafe { next(mutex, until) }))
}

/// `int pthread_mutex_clocklock(pthread_mutex_t *, clockid_t, const struct timespec *)`
///
/// # Safety
/// As for the C library's function.
#[cfg(target_env = "gnu")]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_mutex_clocklock(
    mutex: *mut pthread_mutex_t,
    clock: libc::clockid_t,
    until: *const timespec,
) -> c_int {
    let next = function!(CLOCKED, c"pthread_mutex_clocklock", Clocked);
    // SAFETY: the caller keeps the contract of the C library's function.
    let call = || next.map_or(libc::EINVAL, |next| unsafe { next(mutex, clock, until) });
    // With any other clock it fails, even if the mutex is free.
    if [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC].contains(&clock) {
        watch_lock(mutex, call)
    } else {
        call()
    }
}

/// `int pthread_mutex_unlock(pthread_mutex_t *)`
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    let call =
        // SAFETY: the caller keeps the contract of the C library's function.
        || function!(UNLOCK, c"pthread_mutex_unlock", Of).map_or(libc::EINVAL, |next| unsafe { next(mutex) });
    // Here, so that the recorded stack contains this function.
    if listeners::are_any() && is_wake_of_interest(mutex.addr()) {
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
    if within::is_hidden(&FrameMark::new()) {
        return call();
    }
    // SAFETY: the caller passes a valid mutex.
    if !ARE_TRIED.load(Ordering::Relaxed) || unsafe { mutex::is_robust(mutex) } {
        return interposed_untried_lock(mutex, call);
    }
    // SAFETY: as above.
    let tried = function!(TRY, c"pthread_mutex_trylock", Of).map(|next| unsafe { next(mutex) });
    match tried {
        Some(libc::EBUSY) | None => interposed_wait(mutex, call),
        Some(result) => result,
    }
}

/// Locks a mutex that must not be tried. A wait for a thread that has locked it after it was looked at is not recorded.
///
/// A robust mutex is one of these: if no thread can lock it any more (`ENOTRECOVERABLE`), glibc's `pthread_mutex_trylock` says so
/// and leaves it locked, by a thread that will not unlock it, and the next lock waits for ever.
#[cold]
#[inline(never)]
fn interposed_untried_lock(mutex: *mut pthread_mutex_t, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller passes a valid mutex.
    if unsafe { mutex::is_held(mutex) } { interposed_wait(mutex, call) } else { call() }
}

#[cold]
#[inline(never)]
fn interposed_wait(mutex: *mut pthread_mutex_t, call: impl FnOnce() -> c_int) -> c_int {
    let before = errno();
    let mark = FrameMark::new();
    within::enter_wait(mark.set());
    let start = sleepers::rounded(clock::ticks());
    let wait = InterposedWait::begin(WaitReason::MutexLock, start);
    let (note, choice) = wait.choose(Caller::UNKNOWN);
    let (address, goroutine) = (mutex.addr(), wait.goroutine());
    let sleeper = Sleeper { address, bits: c_uint::MAX, start, goroutine, note };
    let place = within::enter_cell(sleeper);
    set_errno(before);
    let result = call();
    let after = errno();
    let now = clock::ticks();
    // In a timeout the time after the last charge counts too. Without a charge, the unlock came before this thread was in the
    // table, or the holder ended without one.
    let charged = place.and_then(|place| SLEEPERS.leave(place)).filter(|_| result == 0);
    wait.end_chosen(choice, charged, now);
    within::leave_wait(&mark);
    set_errno(after);
    result
}

#[cold]
#[inline(never)]
fn interposed_unlock(mutex: *mut pthread_mutex_t, call: impl FnOnce() -> c_int) -> c_int {
    let before = errno();
    // SAFETY: the caller of the unlock holds the mutex, or the C library reports an error.
    let charge = unsafe { charge(mutex) };
    set_errno(before);
    let result = call();
    // After the unlock, so that other threads do not wait for the recording.
    let after = errno();
    wait::charged_for_chosen(charge);
    set_errno(after);
    result
}

/// Computes the charge of the unlock that follows. Marks one waiter as runnable if the unlock will wake one: before the
/// unlock, because the trace must not show the effect before the cause.
///
/// # Safety
/// The current thread holds the mutex, or the C library checks that.
pub(super) unsafe fn charge(mutex: *mut pthread_mutex_t) -> Charge {
    if !is_wake_of_interest(mutex.addr()) || hidden::is_hidden(Calls::WAKES) {
        return Charge::default();
    }
    // SAFETY: the caller keeps the contract of the C library's function.
    let (stays_locked, wakes_one) = unsafe { (mutex::stays_locked(mutex), mutex::wakes_one(mutex)) };
    if stays_locked {
        return Charge::default();
    }
    let now = clock::ticks();
    // A woken thread that found the mutex taken sleeps again, behind the others. It is still marked as runnable, so it
    // is skipped.
    let longest: Cell<Option<(u64, &Goroutine)>> = Cell::new(None);
    let charge = SLEEPERS.charge(mutex.addr(), now, |goroutine| {
        if wakes_one
            && rtprof_tracer::is_enabled()
            && goroutine.state().state() == State::Waiting(WaitReason::MutexLock)
            && let Some((WaitReason::MutexLock, start)) = goroutine.waiting()
            && longest.get().is_none_or(|(longest, _)| start < longest)
        {
            longest.set(Some((start, goroutine)));
        }
    });
    if SLEEPERS.are_watched(mutex.addr()) {
        contention::note_watch(clock::since(now, clock::ticks()));
    }
    if let Some((start, goroutine)) = longest.get()
        // A wait that began after the charge is skipped.
        && start < now
    {
        states::unblock_if(goroutine, |state| {
            state == State::Waiting(WaitReason::MutexLock)
                && goroutine.waiting() == Some((WaitReason::MutexLock, start))
        });
    }
    charge
}
