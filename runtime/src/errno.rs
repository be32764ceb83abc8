//! The C library's `errno`, which a hook restores: a program may allocate between a failed system call and the check of
//! its error.

#[cfg(rtprof_supported)]
mod imp {
    /// Returns the error number of the current thread. Safe to call in a hook.
    #[inline]
    pub fn get() -> i32 {
        // SAFETY: the location belongs to this thread and is always valid.
        unsafe { *libc::__errno_location() }
    }

    /// Sets the error number of the current thread. Safe to call in a hook.
    #[inline]
    pub fn set(value: i32) {
        // SAFETY: the location belongs to this thread and is always valid.
        unsafe { *libc::__errno_location() = value };
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
pub fn kept<R>(f: impl FnOnce() -> R) -> R {
    let before = get();
    let result = f();
    set(before);
    result
}
