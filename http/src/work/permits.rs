//! Permits: how many answers are worked on at one time.
//!
//! Each capture keeps a snapshot of a profile in memory, and may wait for minutes until its `seconds=` have passed. So
//! their number is limited ([`Config::max_captures`](crate::Config::max_captures)). A request waits for a permit in the
//! order of arrival, for [`PATIENCE`], and is then answered 503.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::answer::Refusal;

/// How long a request waits for a permit.
const PATIENCE: Duration = Duration::from_secs(10);

/// Permission to work on an answer, until this is dropped.
pub(crate) type Permit = OwnedSemaphorePermit;

/// What a permit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A profile or a trace.
    Capture,
    /// The index page or names of addresses, which are answered even when all captures are busy.
    Page,
}

/// The permits of a handler. Clones share them.
#[derive(Clone)]
pub(crate) struct Permits {
    captures: Arc<Semaphore>,
    pages: Arc<Semaphore>,
    total: usize,
}

impl Permits {
    /// Makes so many permits of each purpose.
    pub(crate) fn new(max_captures: usize) -> Self {
        // Without a permit no request would ever be answered.
        let total = max_captures.clamp(1, Semaphore::MAX_PERMITS);
        Self { captures: Arc::new(Semaphore::new(total)), pages: Arc::new(Semaphore::new(total)), total }
    }

    /// Waits for a permit. Runs on the engine's thread, which has a timer.
    pub(crate) async fn acquire(&self, purpose: Purpose) -> Result<Permit, Refusal> {
        let permits = match purpose {
            Purpose::Capture => &self.captures,
            Purpose::Page => &self.pages,
        };
        // The semaphore is never closed.
        let Ok(Ok(permit)) = timeout(PATIENCE, permits.clone().acquire_owned()).await else {
            return Err(Refusal::busy(format!(
                "as many captures as allowed are under way (Config::max_captures, {}); try again",
                self.total
            )));
        };
        Ok(permit)
    }
}
