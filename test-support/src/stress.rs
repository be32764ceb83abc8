//! How much a stress test does.

use std::time::Duration;

/// Returns how long a stress test runs: `RTPROF_STRESS_SECS`, by default half a second. Each test also does a minimum number of
/// rounds.
pub fn stress() -> Duration {
    let seconds = std::env::var("RTPROF_STRESS_SECS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(0.5))
}

/// Returns whether this is a long run: `RTPROF_STRESS_SECS` of 30 and more, as in `ci/long.sh`.
pub fn is_long() -> bool {
    stress() >= Duration::from_secs(30)
}

/// Returns `all` in a long run, otherwise `few`.
pub fn rounds<N>(few: N, all: N) -> N {
    if is_long() { all } else { few }
}
