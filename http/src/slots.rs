//! How many captures run at one time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::answer::Refusal;

/// How long a request waits for a place.
const PATIENCE: Duration = Duration::from_secs(10);

/// A place, until it is dropped.
pub(crate) type CapturePermit = OwnedSemaphorePermit;

/// Places for captures.
#[derive(Clone)]
pub(crate) struct CapturePermits {
    free: Arc<Semaphore>,
    total: usize,
}

impl CapturePermits {
    pub(crate) fn new(total: usize) -> Self {
        // None at all would answer nothing for ever.
        let total = total.clamp(1, Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(total)), total }
    }

    /// Waits for a place, in the order of arrival. On the engine's thread.
    pub(crate) async fn take(&self) -> Result<CapturePermit, Refusal> {
        let waiting = tokio::time::timeout(PATIENCE, self.free.clone().acquire_owned());
        match waiting.await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(Refusal::busy(format!(
                "as many captures as allowed are under way (Config::max_captures, {}); try again",
                self.total
            ))),
        }
    }
}
