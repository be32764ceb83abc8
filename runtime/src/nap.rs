//! A short sleep within a hook.

/// Sleeps for about 50 microseconds, or until a signal comes. Leaves `errno` as it was. For hooks.
///
/// The C library's functions that sleep are points where a thread is cancelled: it would be unwound out of a hook, with locks held,
/// through functions that cannot be. So this is the system call itself.
pub fn nap() {
    #[cfg(loom)]
    crate::primitive::yield_now();
    #[cfg(all(rtprof_supported, not(loom)))]
    crate::errno::kept(|| {
        let time = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
        // SAFETY: reads a local; what is left of the time is not asked for.
        unsafe {
            libc::syscall(libc::SYS_nanosleep, &raw const time, core::ptr::null_mut::<libc::timespec>())
        };
    });
    #[cfg(not(any(rtprof_supported, loom)))]
    std::thread::sleep(core::time::Duration::from_micros(50));
}
