//! Used processor time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Measures work of the current thread by its processor time.
///
/// A clock on the wall would also count the time in which another program has the core: beside two busy loops a
/// millisecond of work sometimes takes four. Time in which the thread sleeps is not counted either, so work that waits
/// for other threads is measured in another way.
pub struct Stopwatch(Duration);

impl Stopwatch {
    /// Begins.
    #[inline(always)]
    pub fn start() -> Self {
        Self(used())
    }

    /// Returns the processor time since the start.
    #[inline(always)]
    pub fn elapsed(&self) -> Duration {
        used() - self.0
    }

    /// Returns the nanoseconds for one of `count` operations since the start.
    #[inline(always)]
    pub fn nanos_each(&self, count: usize) -> f64 {
        self.elapsed().as_nanos() as f64 / count as f64
    }
}

/// Returns the processor time of the current thread.
pub fn used() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the processor time of the whole process.
pub fn used_by_all() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// The clocks of some threads, whose processor time is added up.
#[derive(Default)]
pub struct Clocks(Mutex<Vec<libc::clockid_t>>);

impl Clocks {
    /// Makes a sum of no threads.
    pub const fn new() -> Self {
        Self(Mutex::new(vec![]))
    }

    /// Adds the current thread, unless it was added before. It must not end before the last call of [`Clocks::used`].
    ///
    /// # Panics
    /// When the thread has no clock.
    pub fn add_this_thread(&self) {
        let mut clock = 0;
        // SAFETY: the handle is that of the running thread, and the call writes to a local.
        let failed = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        assert_eq!(failed, 0, "every thread of Linux has a clock");
        let mut clocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !clocks.contains(&clock) {
            clocks.push(clock);
        }
    }

    /// Returns the processor time of all threads that were added.
    pub fn used(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|&clock| read(clock)).sum()
    }
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to a local.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(failed, 0, "the process and its living threads have clocks");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
