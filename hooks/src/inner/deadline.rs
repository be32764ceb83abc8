//! Timeouts as instants.

use std::time::{Duration, Instant};

/// The instant at which `timeout` ends. `None`, which means never, if the clock cannot represent it.
pub(crate) fn after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}
