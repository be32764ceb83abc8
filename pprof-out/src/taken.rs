//! When a profile was taken.

use std::time::{SystemTime, UNIX_EPOCH};

/// The moment of a state, or the end and the length of a stretch of time.
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
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let time_nanos = since_1970.map_or(0, |since| since.as_nanos().try_into().unwrap_or(i64::MAX));
        Self { time_nanos, duration_nanos: 0 }
    }
}
