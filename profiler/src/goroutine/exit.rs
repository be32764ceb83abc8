//! The end of threads that nobody else tells of: a key of the thread library, whose destructor runs at the
//! end of every thread that has registered.
//!
//! Destructors run after those of Rust's thread-locals, in rounds, as long as they set values again; POSIX
//! promises four. Ours sets its value again until the fourth, so that goroutines end after what others do in
//! theirs. A thread that registers only in a later round has no fourth: it is found dead by the next
//! snapshot.

use core::sync::atomic::{AtomicU32, Ordering};

/// Rounds of destructors that POSIX promises (`_POSIX_THREAD_DESTRUCTOR_ITERATIONS`).
#[cfg_attr(not(rtprof_supported), allow(dead_code))]
const ROUNDS: usize = 4;

/// glibc keeps the values of this many keys in the thread itself, and asks `malloc` for the others'. A hook
/// may not do that, so a later key is none.
#[cfg(all(rtprof_supported, target_env = "gnu"))]
const MAX_KEY: u32 = 31;
#[cfg(all(rtprof_supported, not(target_env = "gnu")))]
const MAX_KEY: u32 = u32::MAX - 1;

/// The key plus one; 0 when there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Makes the key. Once, by [`crate::init::open`]; not for hooks.
#[cfg(rtprof_supported)]
pub(super) fn open() {
    stay_loaded();
    let mut key = 0;
    // SAFETY: writes to a local; the destructor lives as long as this code, which stays loaded.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(leave)) } != 0 {
        return;
    }
    if key > MAX_KEY {
        // SAFETY: made above, and nobody else knows it.
        unsafe { libc::pthread_key_delete(key) };
        return;
    }
    KEY.store(key + 1, Ordering::Release);
}

#[cfg(not(rtprof_supported))]
pub(super) fn open() {
    let _ = &KEY;
}

/// Keeps a library that contains this crate from being unloaded: threads would run into the hole where the
/// destructor was.
#[cfg(rtprof_supported)]
fn stay_loaded() {
    let here = leave as *const () as usize;
    if let Some(library) = crate::modules::find(here).filter(|module| !module.is_main_executable)
        && let Ok(name) = std::ffi::CString::new(library.loader_name())
    {
        // SAFETY: the library is loaded already, so this runs no code of it; it marks it as permanent.
        unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    }
}

#[cfg(rtprof_supported)]
fn key() -> Option<libc::pthread_key_t> {
    KEY.load(Ordering::Acquire).checked_sub(1)
}

/// Sees to it that the end of the current thread will be noticed. `false` when it will not.
pub(super) fn arm() -> bool {
    #[cfg(rtprof_supported)]
    return key().is_some_and(|key| {
        // A value that is there counts the rounds of a thread that is ending: it must go on.
        // SAFETY: a key of ours, never deleted.
        unsafe {
            !libc::pthread_getspecific(key).is_null()
                || libc::pthread_setspecific(key, core::ptr::without_provenance(1)) == 0
        }
    });
    #[cfg(not(rtprof_supported))]
    false
}

#[cfg(rtprof_supported)]
unsafe extern "C" fn leave(round: *mut libc::c_void) {
    let round = round.addr();
    if round < ROUNDS
        && let Some(key) = key()
    {
        // SAFETY: as in `arm`.
        if unsafe { libc::pthread_setspecific(key, core::ptr::without_provenance(round + 1)) } == 0 {
            return;
        }
    }
    super::leave_thread();
}
