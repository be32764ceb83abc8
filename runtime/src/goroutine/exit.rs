//! The end of threads that nobody else tells of: a key of the thread library, whose destructor runs at the
//! end of every thread that has registered.
//!
//! Destructors run after those of Rust's thread-locals, in rounds, as long as they set values again; POSIX
//! promises four. Ours sets its value again until the fourth, so that goroutines end after what others do in
//! theirs. A thread that registers only in a later round has no fourth: it is found dead by the next
//! snapshot.

#[cfg(rtprof_supported)]
pub(super) use imp::{arm, is_open, open};

#[cfg(rtprof_supported)]
mod imp {
    use core::ptr::without_provenance;
    use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use libc::{c_void, pthread_key_t};

    /// Rounds of destructors that POSIX promises (`_POSIX_THREAD_DESTRUCTOR_ITERATIONS`).
    const ROUNDS: usize = 4;

    /// glibc keeps the values of 32 keys in the thread itself, and asks `malloc` for the others'. A hook may
    /// not do that, so a later key is none.
    const KEYS: u32 = if cfg!(target_env = "gnu") { 32 } else { u32::MAX };

    /// The key plus one; 0 when there is none.
    static KEY: AtomicU32 = AtomicU32::new(0);
    static OPEN: AtomicBool = AtomicBool::new(false);

    /// Makes the key. Once, by [`crate::init::open`]; not for hooks.
    pub(crate) fn open() {
        make_key();
        OPEN.store(true, Ordering::Release);
    }

    /// Whether there is a key, or will never be one.
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
            // SAFETY: made above, and nobody else knows it.
            unsafe { libc::pthread_key_delete(key) };
            return;
        }
        KEY.store(key + 1, Ordering::Release);
    }

    fn key() -> Option<pthread_key_t> {
        KEY.load(Ordering::Acquire).checked_sub(1)
    }

    /// Sees to it that the end of the current thread will be noticed. `false` when it will not.
    pub(crate) fn arm() -> bool {
        // A value that is there counts the rounds of a thread that is ending: it must go on.
        // SAFETY: a key of ours, never deleted.
        key().is_some_and(|key| unsafe {
            !libc::pthread_getspecific(key).is_null()
                || libc::pthread_setspecific(key, without_provenance(1)) == 0
        })
    }

    unsafe extern "C" fn leave(round: *mut c_void) {
        let round = round.addr();
        // SAFETY: as in `arm`.
        let again = |key| unsafe { libc::pthread_setspecific(key, without_provenance(round + 1)) } == 0;
        if round == ROUNDS || !key().is_some_and(again) {
            super::super::leave_thread();
        }
    }
}

/// No thread is registered there.
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
