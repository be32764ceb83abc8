//! A short sleep within a hook.

/// Sleeps for about 50 microseconds, or until a signal comes. Restores `errno`. Safe to call in a hook.
///
/// The C library's sleep functions are cancellation points: a cancelled thread would be unwound out of a hook, with
/// locks held, through functions that cannot be unwound. So this makes the system call directly.
pub fn nap() {
    #[cfg(loom)]
    crate::primitive::yield_now();
    #[cfg(all(rtprof_supported, not(loom)))]
    crate::hook::errno::kept(|| {
        let time = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
        // SAFETY: reads a local; the remaining time is not requested.
        unsafe {
            libc::syscall(libc::SYS_nanosleep, &raw const time, core::ptr::null_mut::<libc::timespec>())
        };
    });
    #[cfg(not(any(rtprof_supported, loom)))]
    std::thread::sleep(core::time::Duration::from_micros(50));
}
