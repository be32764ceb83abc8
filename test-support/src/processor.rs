//! Processor time: clocks, and work that uses it.

use std::hint::black_box;
use std::mem::zeroed;
use std::time::Duration;

/// Returns the processor time of the current thread.
pub fn used() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the processor time of the process.
pub fn used_by_all() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// The clock of one thread's processor time, which others can read as long as the thread lives.
#[derive(Clone, Copy)]
pub struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// Returns the clock of the current thread.
    pub fn own() -> Self {
        let mut clock = 0;
        // SAFETY: the call writes to a local; the thread is alive.
        assert_eq!(unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) }, 0);
        Self(clock)
    }

    pub fn used(self) -> Duration {
        read(self.0)
    }
}

fn read(clock: libc::clockid_t) -> Duration {
    // SAFETY: the call writes to a local.
    let time = unsafe {
        let mut time: libc::timespec = zeroed();
        assert_eq!(libc::clock_gettime(clock, &raw mut time), 0);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Computes for this long, mostly outside the kernel. Returns the time used.
#[inline(always)]
pub fn burn(time: Duration) -> Duration {
    let start = used();
    loop {
        for i in 0..2000_u32 {
            black_box(i.wrapping_mul(i));
        }
        let now = used() - start;
        if now >= time {
            return now;
        }
    }
}
