//! Lets a thread get on though the handler takes longer than a period.
//!
//! What the handler takes is processor time of its thread. If it took a period or more (10,000 samples in a second, deep stacks,
//! a program without optimization, an emulator), the next signal would be due as soon as it returns, and the thread would
//! stand still. So after each sample the thread runs undisturbed for as long as the handler took: a signal that comes within
//! that time is passed over, and the next sample stands for its period too. So handlers take half of a thread's time at most.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// In nanoseconds of a thread's processor time. Used by its handler alone.
#[derive(Default)]
pub(super) struct Rest {
    /// When the handler last began to work.
    begun: AtomicU64,
    /// Until when the thread is to run undisturbed.
    until: AtomicU64,
}

impl Rest {
    /// For another thread.
    pub(super) fn clear(&self) {
        self.until.store(0, Relaxed);
    }

    /// The handler begins, at `now`. False if the thread is to run on undisturbed.
    pub(super) fn begin_work(&self, now: u64) -> bool {
        self.begun.store(now, Relaxed);
        now >= self.until.load(Relaxed)
    }

    /// The handler has done its work, at `now`.
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
        // The handler before does not count what it passes over as work.
        assert!(!rest.begin_work(1301) && !rest.begin_work(1599) && rest.begin_work(1600));
        rest.end_work(1601);
        assert!(rest.begin_work(1602));
        rest.clear();
        assert!(rest.begin_work(0), "of another thread");
    }
}
