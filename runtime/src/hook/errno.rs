//! The C library's `errno`, which a hook restores: a program may allocate between a failed system call and the check of
//! its error.

#[cfg(rtprof_supported)]
mod imp {
    use core::cell::Cell;
    use core::ptr;

    thread_local! {
        /// Where the thread's error number is; null before the first use. After a wait the C library's function is not in
        /// the processor's cache any more, and each of the two or four calls of a hook took 12 ns.
        static LOCATION: Cell<*mut i32> = const { Cell::new(ptr::null_mut()) };
    }

    #[inline(always)]
    fn location() -> *mut i32 {
        LOCATION.with(|known| if known.get().is_null() { find(known) } else { known.get() })
    }

    #[cold]
    fn find(known: &Cell<*mut i32>) -> *mut i32 {
        // SAFETY: the function has no preconditions.
        known.set(unsafe { libc::__errno_location() });
        known.get()
    }

    /// Returns the error number of the current thread. Safe to call in a hook.
    #[inline]
    pub fn get() -> i32 {
        // SAFETY: the location belongs to this thread, never changes, and is valid as long as the thread runs.
        unsafe { *location() }
    }

    /// Sets the error number of the current thread. Safe to call in a hook.
    #[inline]
    pub fn set(value: i32) {
        // SAFETY: as in `get`.
        unsafe { *location() = value };
    }
}

#[cfg(not(rtprof_supported))]
mod imp {
    /// Returns 0: this platform has no error number.
    pub fn get() -> i32 {
        0
    }

    /// Does nothing: this platform has no error number.
    pub fn set(_value: i32) {}
}

pub use imp::{get, set};

/// Runs `f` and restores `errno` afterwards. Safe to call in a hook.
#[inline]
pub fn kept<R>(f: impl FnOnce() -> R) -> R {
    let before = get();
    let result = f();
    set(before);
    result
}
