//! The C library's `errno`, which a hook leaves as it was: a program may allocate between a failed system call and reading
//! its error.

#[cfg(rtprof_supported)]
mod imp {
    /// The error number of the current thread. For hooks.
    #[inline]
    pub fn get() -> i32 {
        // SAFETY: the location is this thread's own and always valid.
        unsafe { *libc::__errno_location() }
    }

    /// Sets the error number of the current thread. For hooks.
    #[inline]
    pub fn set(value: i32) {
        // SAFETY: the location is this thread's own and always valid.
        unsafe { *libc::__errno_location() = value };
    }
}

#[cfg(not(rtprof_supported))]
mod imp {
    /// There is none.
    pub fn get() -> i32 {
        0
    }

    /// There is none.
    pub fn set(_value: i32) {}
}

pub use imp::{get, set};

/// Returns what `f` returns; `errno` is afterwards what it was before. For hooks.
pub fn kept<R>(f: impl FnOnce() -> R) -> R {
    let before = get();
    let result = f();
    set(before);
    result
}
