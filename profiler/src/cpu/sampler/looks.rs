//! Finds threads that have begun to block the signal after their event or timer was set.
//!
//! Their signals stay pending, and a thread that waits for all signals (`sigwait`, `signalfd`) would take ours for one of the
//! program's. So the collector ends their events. To read the mask of each thread at each look would take too long: it is
//! read when the thread has run, but has had no sample in some looks. A thread that computes has samples, and one that sleeps
//! is sent nothing. One look is not enough, since a thread in our handler blocks all signals too.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The number of looks without a sample after which the mask is read. With 5, each 0.1 s, a thousand threads that compute now and
/// then cost some 2 % of a processor.
const LOOKS: u32 = 5;

/// What the last looks at a thread found. Used only by the collector.
#[derive(Default)]
pub(super) struct Looks {
    /// The thread's processor time, in nanoseconds.
    used: AtomicU64,
    /// The time up to which samples were counted.
    charged: AtomicI64,
    /// How many looks in a row have found no sample.
    count: AtomicU32,
}

impl Looks {
    /// Resets this for another thread.
    pub(super) fn clear(&self) {
        self.count.store(0, Relaxed);
    }

    /// Notes what this look has found. Returns whether it is time to read the thread's mask.
    pub(super) fn are_without_samples(&self, used: u64, charged: i64) -> bool {
        let (used_before, charged_before) =
            (self.used.swap(used, Relaxed), self.charged.swap(charged, Relaxed));
        let count = match (charged == charged_before, used == used_before) {
            (false, _) => 0,
            (true, true) => return false,
            (true, false) => self.count.load(Relaxed) + 1,
        };
        self.count.store(count % LOOKS, Relaxed);
        count == LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_thread_that_runs_without_samples_is_suspected() {
        let looks = Looks::default();
        let suspected = |found: &[(u64, i64)]| -> Vec<bool> {
            looks.clear();
            found.iter().map(|&(used, charged)| looks.are_without_samples(used, charged)).collect()
        };
        let runs: Vec<_> = (1..12).map(|used| (used, 10)).collect();
        let mut found = [false; 11];
        // The first one is the last sample.
        [found[5], found[10]] = [true; 2];
        assert_eq!(suspected(&runs), found);
        let sampled: Vec<_> = (1..12).map(|used| (used, 10 + used as i64 / 3)).collect();
        assert_eq!(suspected(&sampled), [false; 11]);
        assert_eq!(suspected(&[(9, 20); 11]), [false; 11], "asleep");
        let mut now_and_then = [1, 2, 3, 3, 3, 4, 5, 6].map(|used| (used, 21));
        assert_eq!(suspected(&now_and_then).iter().position(|is| *is), Some(7));
        now_and_then[4].1 = 22;
        assert!(!suspected(&now_and_then).contains(&true));
    }
}
