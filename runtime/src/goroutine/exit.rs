//! Detection of the end of threads that no guard covers: a key of the thread library, whose destructor runs at the end
//! of every thread that has registered.
//!
//! Destructors run after those of Rust's thread-locals, in rounds, as long as they set values again; POSIX guarantees
//! four rounds. Our own destructor sets its value again until the fourth round, so that a goroutine ends after the
//! destructors of other keys have run. A thread that registers only in a later round has no fourth round: the next
//! snapshot finds it dead.

#[cfg(rtprof_supported)]
pub(super) use imp::{arm, is_open, open};

#[cfg(rtprof_supported)]
mod imp {
    use core::ptr::without_provenance;
    use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use libc::{c_void, pthread_key_t};

    /// Rounds of destructors that POSIX guarantees (`_POSIX_THREAD_DESTRUCTOR_ITERATIONS`).
    const ROUNDS: usize = 4;

    /// glibc stores the values of 32 keys in the thread itself, and calls `malloc` for the others. A hook may not do
    /// that, so a key beyond 32 is not used.
    const KEYS: u32 = if cfg!(target_env = "gnu") { 32 } else { u32::MAX };

    /// The key plus one; 0 when there is no key.
    static KEY: AtomicU32 = AtomicU32::new(0);
    static OPEN: AtomicBool = AtomicBool::new(false);

    /// Makes the key. Called once, by [`crate::init::open`]; must not be called in a hook.
    pub(crate) fn open() {
        make_key();
        OPEN.store(true, Ordering::Release);
    }

    /// Returns whether `open` has finished, with or without a key.
    pub(crate) fn is_open() -> bool {
        OPEN.load(Ordering::Acquire)
    }

    fn make_key() {
        let mut key = 0;
        // SAFETY: writes to a local; the destructor lives as long as this code, which stays loaded (`init`).
        if unsafe { libc::pthread_key_create(&raw mut key, Some(leave)) } != 0 {
            return;
        }
        if key >= KEYS {
            // SAFETY: the key was made above and is not published, so no other code uses it.
            unsafe { libc::pthread_key_delete(key) };
            return;
        }
        KEY.store(key + 1, Ordering::Release);
    }

    fn key() -> Option<pthread_key_t> {
        KEY.load(Ordering::Acquire).checked_sub(1)
    }

    /// Arranges that the end of the current thread is noticed. Returns `false` when that is impossible.
    pub(crate) fn arm() -> bool {
        // A value that is already set counts the rounds of an ending thread and must not be reset.
        // SAFETY: the key is our own and is never deleted.
        key().is_some_and(|key| unsafe {
            !libc::pthread_getspecific(key).is_null()
                || libc::pthread_setspecific(key, without_provenance(1)) == 0
        })
    }

    unsafe extern "C" fn leave(round: *mut c_void) {
        let round = round.addr();
        // SAFETY: the key is our own and is never deleted.
        let again = |key| unsafe { libc::pthread_setspecific(key, without_provenance(round + 1)) } == 0;
        if round == ROUNDS || !key().is_some_and(again) {
            super::super::leave_thread();
        }
    }
}

/// No thread is registered on this platform.
#[cfg(not(rtprof_supported))]
pub(super) fn open() {}

#[cfg(not(rtprof_supported))]
pub(super) fn is_open() -> bool {
    false
}

#[cfg(not(rtprof_supported))]
pub(super) fn arm() -> bool {
    false
}
