//! Timeouts as instants.

use std::time::{Duration, Instant};

/// The instant at which `timeout` is over. `None`, which is never, for a timeout beyond what the clock can hold.
pub(crate) fn after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}
