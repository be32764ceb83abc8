//! Waiting for a condition, instead of for a time.

use std::time::{Duration, Instant};

/// Longer than any step takes on the busiest machine, short enough to notice a hang.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns when `done` returns true; fails if that takes a minute.
#[track_caller]
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
