//! Fields of a C mutex, whose layout is part of the binary interface of both C libraries.
//!
//! ```text
//!   glibc   __lock   __count    __owner   __nusers   __kind        (nptl/bits/struct_mutex.h, 64 bits)
//!   musl    _m_type  _m_lock    _m_waiters  ..  ..   _m_count      (src/internal/pthread_impl.h)
//! ```
//!
//! An unlock is charged with what others have waited. That would be wrong if it does not unlock, and marking a waiter
//! as runnable would be wrong if it wakes no thread. Both must be known before the call, because other threads may have
//! the mutex when it has returned.

use core::ffi::c_int;

use libc::pthread_mutex_t;
use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::thread::kernel_thread;

/// The bits of the kind that decide what a second lock by the holder does.
const AGAIN: c_int = 3;
/// `PTHREAD_MUTEX_RECURSIVE`
const RECURSIVE: c_int = 1;
/// `PTHREAD_MUTEX_ERRORCHECK`
const CHECKED: c_int = 2;
/// `PTHREAD_MUTEX_ROBUST_NORMAL_NP` of glibc.
const ROBUST: c_int = 16;
/// Of glibc, with `PTHREAD_MUTEX_PRIO_INHERIT_NP`: the lock word contains the number of the holder.
const NUMBERED: c_int = ROBUST | 32;
/// The holder's number in such a word. `FUTEX_TID_MASK`
const THREAD: c_int = 0x3fff_ffff;
/// The bit of such a word for waiters. `FUTEX_WAITERS`
const WAITERS: c_int = c_int::MIN;

/// One `int` of a mutex.
///
/// # Safety
/// The mutex is initialised and not destroyed during the call, and `at` is less than 6.
unsafe fn word(mutex: *mut pthread_mutex_t, at: usize) -> c_int {
    // SAFETY: the caller guarantees that the mutex exists, and the word is within it. Other threads may write to it at
    // the same time, as they may while the C library reads it.
    unsafe { mutex.cast::<c_int>().add(at).read_volatile() }
}

fn thread_id() -> u32 {
    goroutine::known().map_or_else(kernel_thread::thread_id, Goroutine::thread_id)
}

/// Whether a thread that ends with the mutex leaves it to another one, which gets it with an error.
///
/// # Safety
/// The mutex is valid.
pub(super) unsafe fn is_robust(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: the caller passes a valid mutex.
    unsafe { if cfg!(target_env = "musl") { word(mutex, 0) & 4 != 0 } else { word(mutex, 4) & ROBUST != 0 } }
}

/// Whether a mutex is locked. A thread that has ended does not hold it any more, if it is robust.
///
/// # Safety
/// The mutex is valid.
pub(super) unsafe fn is_held(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: the caller passes a valid mutex.
    let word = |at| unsafe { word(mutex, at) };
    if cfg!(target_env = "musl") {
        // All bits of the number stand for a mutex that no thread can lock any more.
        return ![0, THREAD].contains(&(word(1) & THREAD));
    }
    let lock = word(0);
    if word(4) & NUMBERED != 0 { lock & THREAD != 0 } else { lock != 0 }
}

/// Whether an unlock leaves the mutex locked: a recursive mutex that the current thread has locked more than once, and
/// a checked mutex that another thread holds, where the unlock fails.
///
/// # Safety
/// As for the C library's unlock.
pub(super) unsafe fn stays_locked(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: the caller keeps the contract of the C library's function.
    let word = |at| unsafe { word(mutex, at) };
    let (kind, count, owner) = if cfg!(target_env = "musl") {
        let kind = word(0);
        // The first lock leaves the count at zero.
        (kind & AGAIN, word(5) + 1, (kind & 15 != 0).then(|| word(1) & THREAD))
    } else {
        let kind = word(4);
        let has_owner = [RECURSIVE, CHECKED].contains(&(kind & AGAIN));
        // `__owner` has another meaning after the end of a thread that has held the mutex.
        let owner = if kind & NUMBERED != 0 { Some(word(0) & THREAD) } else { has_owner.then(|| word(2)) };
        (kind & AGAIN, word(1), owner)
    };
    kind == RECURSIVE && count > 1 || owner.is_some_and(|owner| owner as u32 != thread_id())
}

/// Whether an unlock wakes a thread. A thread that is about to sleep, or was woken before, is not woken.
///
/// # Safety
/// As [`stays_locked`].
pub(super) unsafe fn wakes_one(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: the caller keeps the contract of the C library's function.
    let word = |at| unsafe { word(mutex, at) };
    if cfg!(target_env = "musl") {
        return word(1) & WAITERS != 0 || word(2) > 0;
    }
    /// The low bits of the word while others wait. A priority ceiling may be above these bits.
    const CONTENDED: c_int = 2;
    let lock = word(0);
    if word(4) & NUMBERED != 0 { lock & WAITERS != 0 } else { lock & 3 == CONTENDED }
}
