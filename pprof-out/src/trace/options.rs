//! How a trace is recorded.

use std::time::Duration;

/// How a trace is recorded. [`Options::default`] is right for most.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long [`stop`](super::stop) waits for the writer to take everything; 10 s by default.
    pub drain_timeout: Duration,
    /// Bytes of memory for what was recorded and is not encoded yet, at least 1 MiB; 64 MiB by default. A program that
    /// records faster than the writer takes loses events beyond that, and [`Stats`](super::Stats) says how many. What was
    /// encoded takes as much again at most.
    pub buffer_memory: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { drain_timeout: Duration::from_secs(10), buffer_memory: 64 << 20 }
    }
}
