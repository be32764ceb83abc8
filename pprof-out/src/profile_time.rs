//! The time at which a profile was taken.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time of a state, or the end of a time span (its beginning for a CPU profile) and the duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProfileTime {
    /// Nanoseconds since 1970; 0 if the clock is earlier, the largest number if it is later than 2262.
    pub(crate) time_nanos: i64,
    /// The duration over which the values were counted, in nanoseconds; 0 for a state.
    pub(crate) duration_nanos: i64,
}

impl ProfileTime {
    /// A state at the present time.
    pub(crate) fn now() -> Self {
        Self { time_nanos: since_1970(SystemTime::now()), duration_nanos: 0 }
    }

    /// A time span from `start` on. Its time is its beginning, as in Go's CPU profiles.
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
