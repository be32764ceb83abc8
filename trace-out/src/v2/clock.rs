//! The ticks of a file.

use std::time::SystemTime;

use rtprof_runtime::clock;

/// The ticks of a file per second, as in Go: one is 64 ns. A finer one would add a byte to most events. It has to be a
/// whole number of nanoseconds, because readers round the time from each event to the next one down to those.
pub(super) const TICKS_PER_SECOND: u64 = clock::NANOS / 64;

/// A P that was idle for this long is shown as stopped: a millisecond, in ticks of the file.
pub(super) const IDLE: u64 = TICKS_PER_SECOND / 1000;

/// One moment on three clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    /// In the file's units.
    pub(super) tick: u64,
    /// Nanoseconds of the system's monotonic clock.
    pub(super) monotonic: u64,
    pub(super) wall: SystemTime,
}

impl Snapshot {
    /// Returns the present moment, at `tick` of the file.
    pub(super) fn at(tick: u64) -> Self {
        Self { tick, monotonic: clock::monotonic_nanos(), wall: SystemTime::now() }
    }
}
