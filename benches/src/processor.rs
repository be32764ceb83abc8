//! Used processor time.

use std::time::Duration;

/// Returns the processor time of the current thread.
pub fn used() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the processor time of the whole process.
pub fn used_by_all() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to a local; both clocks exist on every kernel.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
