//! What a mutex of C says of itself, by its layout, which is part of the binary interface of either C library.
//!
//! ```text
//!   glibc   __lock   __count    __owner   __nusers   __kind        (nptl/bits/struct_mutex.h, 64 bits)
//!   musl    _m_type  _m_lock    _m_waiters  ..  ..   _m_count      (src/internal/pthread_impl.h)
//! ```
//!
//! An unlock is charged with what others have waited. That is wrong where it unlocks nothing, and what is said of who can run is wrong
//! where it wakes no thread: neither is known when the function has returned, since others may have the mutex by then.

use core::ffi::c_int;

use libc::pthread_mutex_t;
use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::kernel_thread;

/// The bits of the kind that tell what happens when it is locked again.
const AGAIN: c_int = 3;
/// `PTHREAD_MUTEX_RECURSIVE`
const RECURSIVE: c_int = 1;
/// `PTHREAD_MUTEX_ERRORCHECK`
const CHECKED: c_int = 2;
/// `PTHREAD_MUTEX_ROBUST_NORMAL_NP` and `PTHREAD_MUTEX_PRIO_INHERIT_NP` of glibc: the word that is locked has the number of the
/// thread that holds it.
const NUMBERED: c_int = 16 | 32;
/// The number in such a word. `FUTEX_TID_MASK`
const THREAD: c_int = 0x3fff_ffff;
/// In such a word: others wait. `FUTEX_WAITERS`
const WAITERS: c_int = c_int::MIN;

/// One `int` of a mutex.
///
/// # Safety
/// A mutex that the current thread has locked, and one of its first six.
unsafe fn word(mutex: *mut pthread_mutex_t, at: usize) -> c_int {
    // SAFETY: the caller's promise. Other threads write to some of these meanwhile, as the C library does.
    unsafe { mutex.cast::<c_int>().add(at).read_volatile() }
}

fn thread_id() -> u32 {
    goroutine::known().map_or_else(kernel_thread::thread_id, Goroutine::thread_id)
}

/// Whether an unlock leaves the mutex locked: a recursive one that the current thread has locked more than once, and one that knows
/// that another thread has locked it, where the unlock fails.
///
/// # Safety
/// As in the C library's unlock.
pub(super) unsafe fn stays_locked(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: the caller's promise.
    let word = |at| unsafe { word(mutex, at) };
    let (kind, count, owner) = if cfg!(target_env = "musl") {
        let kind = word(0);
        // The first lock leaves the count at zero.
        (kind & AGAIN, word(5) + 1, (kind & 15 != 0).then(|| word(1) & THREAD))
    } else {
        let kind = word(4);
        let has_owner = [RECURSIVE, CHECKED].contains(&(kind & AGAIN));
        // `__owner` stands for something else after the end of a thread that has held it.
        let owner = if kind & NUMBERED != 0 { Some(word(0) & THREAD) } else { has_owner.then(|| word(2)) };
        (kind & AGAIN, word(1), owner)
    };
    kind == RECURSIVE && count > 1 || owner.is_some_and(|owner| owner as u32 != thread_id())
}

/// Whether an unlock wakes a thread. One that is about to sleep, or was woken and is on its way, is not woken.
///
/// # Safety
/// As [`stays_locked`].
pub(super) unsafe fn wakes_one(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: the caller's promise.
    let word = |at| unsafe { word(mutex, at) };
    if cfg!(target_env = "musl") {
        return word(1) & WAITERS != 0 || word(2) > 0;
    }
    /// Others wait. Above these bits may be the ceiling of a priority.
    const CONTENDED: c_int = 2;
    let lock = word(0);
    if word(4) & NUMBERED != 0 { lock & WAITERS != 0 } else { lock & 3 == CONTENDED }
}
