//! The time of a stack's capture, counted in readings of the loader's list.
//!
//! Problem: an address identifies a function only together with a time. After `dlclose` and `dlopen` another library
//! may be mapped in the same place, and a hook may not ask the loader which library is mapped now.
//!
//! Consequence: a profile that uses only the present list names functions of one library for calls of another.
//!
//! Scheme: a clock counts the readings of the list. It shows 2n - 1 while reading n is under way, and 2n after it.
//!
//! ```text
//!  reading              1                2
//!  clock        0   |   1   |    2   |   3   |   4
//! ```
//!
//! Each stack in a table notes the clock values at its first and last capture. Its functions were on the thread's stack
//! when the clock was read, so their libraries were loaded then. Let the readings `first` to `last` have seen a
//! library.
//!
//! - It was not loaded at reading `first` - 1, which had set the clock to 2 (`first` - 1) - 1 before. So its code,
//!   which ran after the loader's lock was released, saw that value or a later one.
//! - It was not loaded at reading `last` + 1, which set the clock to 2 (`last` + 1) only afterwards. So its code, which
//!   ran before it was unloaded, saw an earlier value.
//!
//! Hence a stack was captured while the library was loaded only if the clock showed 2 `first` - 3 to 2 `last` + 1. The
//! ordering by which the program loads a library before it calls it also orders these stores before these loads: all
//! may be relaxed.

// Not loom's atomics: the clock stands still in models of the tables, which need not try its values.
use core::sync::atomic::{AtomicU64, Ordering};

static CLOCK: AtomicU64 = AtomicU64::new(0);

/// Begins a reading, and returns its number. An abandoned reading counts as under way: the next reading has its number.
pub(super) fn begin_reading() -> u64 {
    let reading = CLOCK.load(Ordering::Relaxed) / 2 + 1;
    CLOCK.store(2 * reading - 1, Ordering::Relaxed);
    reading
}

/// Ends the reading.
pub(super) fn end_reading(reading: u64) {
    CLOCK.store(2 * reading, Ordering::Relaxed);
}

/// Returns the clock value.
#[inline]
fn now() -> u64 {
    CLOCK.load(Ordering::Relaxed)
}

/// The span from the first capture of a stack to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureSpan {
    pub(super) first: u64,
    pub(super) last: u64,
}

impl CaptureSpan {
    /// The span of addresses whose capture time is not known.
    pub const UNKNOWN: Self = Self { first: 0, last: u64::MAX };

    /// Returns the span of a stack that is captured now.
    pub fn now() -> Self {
        let now = now();
        Self { first: now, last: now }
    }

    /// Returns the shortest span that contains both.
    pub fn and(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// Returns whether every capture was at `time` or later.
    #[inline]
    pub fn is_since(self, time: ClockTime) -> bool {
        self.first >= time.0
    }
}

/// A value of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockTime(pub(super) u64);

impl ClockTime {
    /// Before every reading.
    pub const START: Self = Self(0);
    /// After every reading.
    pub(crate) const NEVER: Self = Self(u64::MAX);
}

/// The span of a stack in a table.
pub(crate) struct Stamp {
    first: u64,
    last: AtomicU64,
}

impl Stamp {
    pub(crate) fn new() -> Self {
        let now = now();
        Self { first: now, last: AtomicU64::new(now) }
    }

    /// Notes another capture of the stack. Stores only if the list was read since the last one. Safe to call in a hook.
    #[inline]
    pub(crate) fn renew(&self) {
        let now = now();
        if self.last.load(Ordering::Relaxed) < now {
            self.last.fetch_max(now, Ordering::Relaxed);
        }
    }

    pub(crate) fn span(&self) -> CaptureSpan {
        CaptureSpan { first: self.first, last: self.last.load(Ordering::Relaxed) }
    }
}
