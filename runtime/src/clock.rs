//! The clock of the hooks: raw ticks of the processor's counter, and the conversion of ticks to time.
//!
//! Go: `cputicks`, `tickspersecond`. Reading the counter takes 11 ns where a call of the C library's clock takes 29,
//! and a contended lock reads it two or three times.
//!
//! The choice of the counter must be made at the first read, in the middle of a lock's slow path, and must not change
//! afterwards: a difference of two clocks is not a time. So the choice is a pure function of the processor: any thread
//! may make it first, and all make the same. The length of a tick in nanoseconds is only needed outside the hooks, and
//! is measured there, over the time since [`crate::init::open`]: the longer, the more exact. (quanta, which does the
//! same, measures when its clock is made: 0.6 ms for every program, and no readings before that.)
//!
//! Threads on different cores may read counters that differ by a few ticks, so an effect can carry an earlier tick than
//! its cause: differences are taken with [`since`], which never falls below zero. Traces read the clock with
//! [`ticks_after_loads`] where the order matters.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::lock::fork_lock::ForkLock;

/// The shortest time over which the counter's frequency is measured: 5 ms, as in Go. Reading both
/// clocks is exact to about 50 ns, so the error is below 2 in 100,000.
const BASELINE_NANOS: u64 = 5_000_000;

/// Nanoseconds in a second.
pub const NANOS: u64 = 1_000_000_000;

const UNKNOWN: u8 = 0;
const COUNTER: u8 = 1;
const MONOTONIC: u8 = 2;

static SOURCE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Returns the current ticks, counted from some instant before the process began. Safe to call in a hook.
#[inline]
pub fn ticks() -> u64 {
    match SOURCE.load(Ordering::Relaxed) {
        COUNTER => counter::read(),
        MONOTONIC => monotonic(),
        _ => first(),
    }
}

/// Returns the current ticks, as [`ticks`] does, but only after all loads earlier in the program are done: for an
/// effect of what these loads have read. (Otherwise the processor may read its counter while it still waits for memory,
/// and the effect would seem older than its cause.) Takes twice as long.
#[inline]
pub fn ticks_after_loads() -> u64 {
    counter::wait_for_loads();
    ticks()
}

/// Returns the ticks from `start` to `end`; 0 if `end` came first, on another core's counter.
#[inline]
pub fn since(start: u64, end: u64) -> u64 {
    (end.wrapping_sub(start) as i64).max(0) as u64
}

/// Returns the nanoseconds of the system's monotonic clock.
pub fn monotonic_nanos() -> u64 {
    monotonic()
}

/// Returns the nanoseconds of the system's clock since boot, which unlike the monotonic one goes on while the machine is
/// suspended. On systems without it, those of the monotonic one.
pub fn boot_nanos() -> u64 {
    since_boot()
}

#[cold]
fn first() -> u64 {
    // Relaxed: every thread computes the same value.
    SOURCE.store(if counter::is_steady() { COUNTER } else { MONOTONIC }, Ordering::Relaxed);
    ticks()
}

#[cfg(rtprof_supported)]
fn monotonic() -> u64 {
    nanos_of(libc::CLOCK_MONOTONIC)
}

#[cfg(rtprof_supported)]
fn since_boot() -> u64 {
    nanos_of(libc::CLOCK_BOOTTIME)
}

/// Returns the nanoseconds of one of the system's clocks that every supported kernel has.
#[cfg(rtprof_supported)]
fn nanos_of(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a local. The clock exists, as the callers ensure, and reading it takes no lock.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * NANOS + now.tv_nsec as u64
}

#[cfg(not(rtprof_supported))]
fn since_boot() -> u64 {
    monotonic()
}

#[cfg(not(rtprof_supported))]
fn monotonic() -> u64 {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}

#[cfg(all(rtprof_supported, target_arch = "x86_64"))]
mod counter {
    use core::arch::x86_64::{__cpuid, _rdtsc};

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: the instruction has no precondition; the kernel leaves it enabled.
        unsafe { _rdtsc() }
    }

    #[inline]
    pub(super) fn wait_for_loads() {
        // SAFETY: every x86-64 processor has the instruction.
        unsafe { core::arch::x86_64::_mm_lfence() };
    }

    /// Returns whether the processor guarantees a counter that runs at one rate in every power state ("invariant TSC":
    /// leaf 0x8000_0007, bit 8 of edx).
    pub(super) fn is_steady() -> bool {
        #[allow(unused_unsafe)]
        // SAFETY: every x86-64 processor has the instruction, and leaf 0x8000_0000 returns the highest valid leaf.
        unsafe {
            __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & 1 << 8 != 0
        }
    }
}

#[cfg(all(rtprof_supported, target_arch = "aarch64"))]
mod counter {
    #[inline]
    pub(super) fn read() -> u64 {
        let count: u64;
        // SAFETY: reading the virtual counter has no effect, and Linux allows it to every program.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags))
        };
        count
    }

    #[inline]
    pub(super) fn wait_for_loads() {
        // SAFETY: the instruction has no effect except the wait.
        unsafe { core::arch::asm!("isb", options(nostack, preserves_flags)) };
    }

    /// Returns `true`: the architecture guarantees a constant rate.
    pub(super) fn is_steady() -> bool {
        true
    }
}

#[cfg(not(rtprof_supported))]
mod counter {
    pub(super) fn read() -> u64 {
        0
    }

    pub(super) fn wait_for_loads() {}

    pub(super) fn is_steady() -> bool {
        false
    }
}

/// One instant on both clocks.
#[derive(Clone, Copy)]
struct Anchor {
    ticks: u64,
    nanos: u64,
}

impl Anchor {
    /// Reads both clocks several times, and returns the fastest reading, in which the thread was not interrupted.
    fn now() -> Self {
        let mut best = (u64::MAX, Self { ticks: 0, nanos: 0 });
        for _ in 0..8 {
            let before = ticks();
            let nanos = monotonic();
            let width = since(before, ticks());
            if width < best.0 {
                best = (width, Self { ticks: before + width / 2, nanos });
            }
        }
        best.1
    }

    /// Returns the ticks per second between an earlier instant and this one.
    fn frequency_since(self, earlier: Self) -> f64 {
        let nanos = self.nanos.saturating_sub(earlier.nanos).max(1);
        since(earlier.ticks, self.ticks) as f64 * NANOS as f64 / nanos as f64
    }
}

/// Held while the measurement begins.
static OPENING: ForkLock = ForkLock::new();
static FIRST_TICKS: AtomicU64 = AtomicU64::new(0);
static FIRST_NANOS: AtomicU64 = AtomicU64::new(0);
/// The frequency as it was first computed, so that all answers agree; 0 before.
static TICKS_PER_SECOND: AtomicU64 = AtomicU64::new(0);

/// Begins the measurement of the counter's frequency, if it has not begun. Must not be called in a hook.
pub(crate) fn open() {
    let _held = OPENING.lock();
    if FIRST_NANOS.load(Ordering::Relaxed) != 0 {
        return;
    }
    let first = Anchor::now();
    FIRST_TICKS.store(first.ticks, Ordering::Relaxed);
    // Last: a child that was forked in between finds that the measurement has not begun. Release: a thread that reads
    // this value also reads the ticks.
    FIRST_NANOS.store(first.nanos, Ordering::Release);
}

/// Measures the ticks per second over 5 ms.
fn measured_now() -> f64 {
    let start = Anchor::now();
    std::thread::sleep(Duration::from_nanos(BASELINE_NANOS));
    Anchor::now().frequency_since(start)
}

/// Returns whether `ticks` are at least `micros` microseconds; `false` before the first call of [`ticks_per_second`].
/// Safe to call in a hook.
#[inline]
pub fn are_micros(ticks: u64, micros: u64) -> bool {
    let per_second = TICKS_PER_SECOND.load(Ordering::Relaxed);
    per_second != 0 && ticks.saturating_mul(1_000_000) >= per_second.saturating_mul(micros)
}

/// Returns the ticks per second. Go: `runtime.tickspersecond`. The first call may sleep for 5 ms, or for 15 ms on a
/// machine that was suspended. Must not be called in a hook.
pub fn ticks_per_second() -> u64 {
    let known = TICKS_PER_SECOND.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    open();
    if SOURCE.load(Ordering::Relaxed) == MONOTONIC {
        return NANOS;
    }
    let first =
        Anchor { ticks: FIRST_TICKS.load(Ordering::Relaxed), nanos: FIRST_NANOS.load(Ordering::Relaxed) };
    let elapsed = monotonic().saturating_sub(first.nanos);
    if elapsed < BASELINE_NANOS {
        std::thread::sleep(Duration::from_nanos(BASELINE_NANOS - elapsed));
    }
    let now = Anchor::now();
    let mut measured = now.frequency_since(first);
    if elapsed > 100 * BASELINE_NANOS {
        // A longer measurement is more exact, unless the machine was suspended, or migrated: then one of the clocks
        // stood still.
        let is_off = |lately: f64| !(0.99..1.01).contains(&(measured / lately));
        let lately = measured_now();
        if is_off(lately) {
            // The difference may also mean that this thread lost its core in between: use the median of three.
            let mut all = [lately, measured_now(), measured_now()];
            all.sort_by(f64::total_cmp);
            if is_off(all[1]) {
                measured = all[1];
            }
        }
    }
    let measured = (measured.round() as u64).max(1);
    match TICKS_PER_SECOND.compare_exchange(0, measured, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => measured,
        Err(theirs) => theirs,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn ticks_agree_with_the_clock_of_the_system() {
        let per_second = ticks_per_second() as f64;
        // Each reading lies between two readings of the system clock, however long the thread may be without a core.
        let read = || (Instant::now(), ticks(), Instant::now());
        let (before_start, start, after_start) = read();
        std::thread::sleep(Duration::from_millis(50));
        let (before_end, end, after_end) = read();
        let by_ticks = since(start, end) as f64 / per_second;
        let least = (before_end - after_start).as_secs_f64();
        let most = (after_end - before_start).as_secs_f64();
        assert!((0.98 * least..1.02 * most).contains(&by_ticks), "{by_ticks} s, not {least} to {most} s");
        assert_eq!(ticks_per_second() as f64, per_second, "the answer does not change");
    }

    #[test]
    fn microseconds_are_told_from_ticks() {
        let per_second = ticks_per_second();
        assert!(are_micros(per_second, 1_000_000) && are_micros(u64::MAX, 20) && are_micros(0, 0));
        assert!(!are_micros(per_second - 1, 1_000_000) && !are_micros(0, 1));
    }

    #[test]
    fn a_difference_never_falls_below_zero() {
        assert_eq!(since(7, 9), 2);
        assert_eq!(since(9, 7), 0);
    }
}
