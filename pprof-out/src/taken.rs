//! When a profile was taken.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The moment of a state, or of a stretch of time its end (of a CPU profile its beginning) and its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Nanoseconds since 1970; 0 if the clock stands before that, the largest number if after 2262.
    pub(crate) time_nanos: i64,
    /// What the values were counted over, in nanoseconds; 0 for a state.
    pub(crate) duration_nanos: i64,
}

impl Taken {
    /// A state at this moment.
    pub(crate) fn now() -> Self {
        Self { time_nanos: since_1970(SystemTime::now()), duration_nanos: 0 }
    }

    /// A stretch of time from `start` on: of a CPU profile the beginning stands for it, as in Go.
    pub(crate) fn over(start: SystemTime, duration: Duration) -> Self {
        Self { time_nanos: since_1970(start), duration_nanos: nanos(duration) }
    }
}

fn since_1970(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, nanos)
}

fn nanos(duration: Duration) -> i64 {
    duration.as_nanos().try_into().unwrap_or(i64::MAX)
}
