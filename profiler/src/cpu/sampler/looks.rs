//! Finds threads that have begun to block the signal after their event or timer was set.
//!
//! Their signals stay pending, and a thread that waits for all signals (`sigwait`, `signalfd`) would take ours for one of the
//! program's. So the sampler thread ends their events. To read the mask of each thread at each look would take too long: it is
//! read when the thread has run, but has had no sample in some looks. A thread that computes has samples, and one that sleeps
//! is sent nothing. One look is not enough, since a thread in our handler blocks all signals too.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The number of looks without a sample after which the mask is read. The looks are 0.1 s apart. To read a mask takes 6 to 9
/// µs (on a virtual machine with 2 cores), so a thousand threads that compute now and then cost less than 1 % of a processor.
const LOOKS: u32 = 10;

/// What the last looks at a thread found. Used only by the sampler thread.
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
        const ALL: usize = 2 * LOOKS as usize + 1;
        let runs: Vec<_> = (1..=ALL as u64).map(|used| (used, 10)).collect();
        // The first look sees the last sample.
        let is_suspected: Vec<_> = (0..ALL).map(|look| look > 0 && look % LOOKS as usize == 0).collect();
        assert_eq!(suspected(&runs), is_suspected);
        let sampled: Vec<_> = (1..=ALL as u64).map(|used| (used, 10 + used as i64 / 3)).collect();
        assert_eq!(suspected(&sampled), [false; ALL]);
        assert_eq!(suspected(&[(9, 20); ALL]), [false; ALL], "asleep");
        let mut now_and_then: Vec<_> = (0..ALL as u64).map(|look| (look / 2, 21)).collect();
        assert_eq!(suspected(&now_and_then).iter().position(|is| *is), Some(ALL - 1));
        now_and_then[5].1 = 22;
        assert!(!suspected(&now_and_then).contains(&true));
    }
}
