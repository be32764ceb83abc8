//! Lets a thread progress although the handler takes longer than a period.
//!
//! The handler's time is processor time of its thread. If it took a period or more (10,000 samples per second, deep
//! stacks, a program without optimization, an emulator), the next signal would be due as soon as it returns, and the
//! thread would make no progress. So after each sample the thread runs undisturbed for as long as the handler took: a
//! signal within that time is ignored, and the next sample includes its period. So handlers take at most half of a
//! thread's time.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Times in nanoseconds of a thread's processor time. Used only by its handler.
#[derive(Default)]
pub(super) struct Rest {
    /// When the handler last began to work.
    begun: AtomicU64,
    /// The time until which the thread runs undisturbed.
    until: AtomicU64,
}

impl Rest {
    /// Resets this for another thread.
    pub(super) fn clear(&self) {
        self.until.store(0, Relaxed);
    }

    /// Notes that the handler begins, at `now`. Returns false if the thread must run on undisturbed.
    pub(super) fn begin_work(&self, now: u64) -> bool {
        self.begun.store(now, Relaxed);
        now >= self.until.load(Relaxed)
    }

    /// Notes that the handler has done its work, at `now`.
    pub(super) fn end_work(&self, now: u64) {
        self.until.store(now + now.saturating_sub(self.begun.load(Relaxed)), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_for_as_long_as_the_handler_did() {
        let rest = Rest::default();
        assert!(rest.begin_work(1000));
        rest.end_work(1300);
        // A signal that the handler ignores does not count as work.
        assert!(!rest.begin_work(1301) && !rest.begin_work(1599) && rest.begin_work(1600));
        rest.end_work(1601);
        assert!(rest.begin_work(1602));
        rest.clear();
        assert!(rest.begin_work(0), "of another thread");
    }
}
