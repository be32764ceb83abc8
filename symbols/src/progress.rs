//! Progress of a thread that reads files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time of the thread's last read or result. Clones refer to the same thread.
#[derive(Clone, Debug)]
pub(crate) struct Progress(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    start: Instant,
    /// Milliseconds from `start` to the last step.
    last: AtomicU64,
}

impl Default for Progress {
    fn default() -> Self {
        Self(Arc::new(Inner { start: Instant::now(), last: AtomicU64::new(0) }))
    }
}

impl Progress {
    /// Notes a step.
    pub(crate) fn note(&self) {
        self.0.last.store(self.0.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Returns the time since the last step.
    pub(crate) fn pause(&self) -> Duration {
        self.0.start.elapsed().saturating_sub(Duration::from_millis(self.0.last.load(Ordering::Relaxed)))
    }

    /// Whether both refer to the same thread.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
