//! How much of a core answers take at the program's own priority.
//!
//! Problem: an answer must be there in time when the program keeps all cores busy, so its writer cannot give way to the
//! program. But many clients, or one that asks without a pause, would then take cores from the program whenever they
//! like. Scheme: writers have the program's priority while they take [`SHARE`] of a core in the long run, and up to
//! [`BURST`] at once. That is ten times what a scrape of all profiles every ten seconds takes, or one heap profile of some
//! 300,000 records. A writer that begins beyond it gives way to the program (nice 10), and its client waits longer.
//!
//! The account is a single instant (the generic cell rate algorithm): the one at which all work until now is within the
//! share. Work moves it away, and time passes by itself.
//!
//! Locks: `within_share`, for the length of a comparison.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Of a core: one part in a hundred.
const SHARE: u32 = 100;
/// How much may be done at once.
const BURST: Duration = Duration::from_millis(250);

/// What is left for writers at the program's priority.
pub(crate) struct Budget {
    within_share: Mutex<Instant>,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { within_share: Mutex::new(Instant::now()) }
    }

    /// Whether more may be done now.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left_at(Instant::now())
    }

    /// So much time of a core was spent.
    pub(crate) fn spend(&self, work: Duration) {
        self.spend_at(Instant::now(), work);
    }

    fn is_left_at(&self, now: Instant) -> bool {
        self.lock().saturating_duration_since(now) < BURST * SHARE
    }

    fn spend_at(&self, now: Instant, work: Duration) {
        let mut within_share = self.lock();
        // Work that was not within the burst gives way: more of it changes nothing.
        let most = now + BURST * SHARE;
        *within_share = ((*within_share).max(now) + work.min(BURST) * SHARE).min(most);
    }

    fn lock(&self) -> MutexGuard<'_, Instant> {
        self.within_share.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_a_share() {
        let budget = Budget::new();
        let start = Instant::now();
        let piece = BURST / 10;
        for _ in 0..10 {
            assert!(budget.is_left_at(start));
            budget.spend_at(start, piece);
        }
        assert!(!budget.is_left_at(start));
        // What is spent beyond it is not held against those who come later.
        budget.spend_at(start, Duration::from_secs(1000));
        for share in 1..10 {
            let now = start + Duration::from_secs(10) * share;
            assert!(budget.is_left_at(now), "{share}");
            budget.spend_at(now, Duration::from_secs(10) / SHARE);
            assert!(!budget.is_left_at(now), "{share}");
        }
        let later = start + Duration::from_secs(3600);
        budget.spend_at(later, BURST - piece);
        assert!(budget.is_left_at(later), "a whole burst, and no more");
        budget.spend_at(later, piece);
        assert!(!budget.is_left_at(later));
    }
}
