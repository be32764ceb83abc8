//! The time that a thread has used since its last signal, on average over all moments.
//!
//! A sample stands for the time since the sample before it, so when a profile ends, each thread has used some time that no
//! sample stands for. The first sample of a thread stands for as much that the thread has not used: half a period, on average,
//! as the first period is cut to a random part. That balances where signals come at equal intervals.
//!
//! A timer's do not: the kernel looks at it in its ticks, some 4 ms apart, and only at that of the thread which runs at that
//! moment. A thread that runs for 10 µs at a time is seldom that one, and some of its signals come much later than others. A
//! moment at which a profile ends lies in a long gap more often than in a short one, as more of the time belongs to long gaps.
//! So the mean time since the last signal is not half the mean gap, but (the mean residual life of renewal theory; W. Feller,
//! *An Introduction to Probability Theory and Its Applications*, volume 2, XI.4):
//!
//! ```text
//!   mean age = Σ gap² / (2 · Σ gap)
//! ```
//!
//! A thread is granted the difference at its signals. For a hundred threads with 10 samples each it was 4 to 8 % of the
//! profile.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The unit of what is summed.
const NANOS: u64 = 1_000;

/// The number of gaps that are summed. So many are enough, and their squares do not overflow: a gap is at most 16 s.
const MOST: u64 = 4_096;

/// Gaps between signals: of all threads of a sampling, or of one thread.
#[derive(Default)]
pub(super) struct Gaps {
    count: AtomicU64,
    sum: AtomicU64,
    squares: AtomicU64,
    is_closed: AtomicBool,
}

impl Gaps {
    /// Resets this for another thread.
    pub(super) fn clear(&self) {
        for number in [&self.count, &self.sum, &self.squares] {
            number.store(0, Relaxed);
        }
    }

    /// Notes that the sampling ends now: a thread that is signalled from now on has used hardly anything since, at the end.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Relaxed);
    }

    /// Returns whether the sampling ends.
    pub(super) fn are_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// Adds a gap, in nanoseconds of its thread's processor time.
    pub(super) fn add(&self, gap: u64) {
        if self.count.fetch_add(1, Relaxed) >= MOST {
            return;
        }
        let gap = gap / NANOS;
        self.sum.fetch_add(gap, Relaxed);
        self.squares.fetch_add(gap.saturating_mul(gap), Relaxed);
    }

    /// Returns the number of gaps.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Returns the nanoseconds that a thread has used since its last signal, on average; `None` if there are fewer than
    /// `least` gaps.
    pub(super) fn mean_age(&self, least: u64) -> Option<u64> {
        let [sum, squares] = [&self.sum, &self.squares].map(|number| u128::from(number.load(Relaxed)));
        let is_known = self.count() >= least && sum > 0;
        is_known.then(|| (squares * u128::from(NANOS) / (2 * sum)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_gap_is_met_more_often() {
        let gaps = Gaps::default();
        (1..20).for_each(|_| gaps.add(4_000_000));
        assert_eq!(gaps.mean_age(20), None);
        gaps.add(4_000_000);
        assert_eq!(gaps.mean_age(20), Some(2_000_000), "half of it, if all are equal");
        (0..20).for_each(|_| gaps.add(12_000_000));
        assert_eq!(gaps.mean_age(20), Some(5_000_000), "a quarter of the time at 2 ms, the rest at 6");
    }

    #[test]
    fn as_many_long_gaps_as_there_may_be() {
        let gaps = Gaps::default();
        (0..100_000).for_each(|_| gaps.add(16_000_000_000));
        assert_eq!(gaps.mean_age(1), Some(8_000_000_000));
        gaps.clear();
        assert_eq!((gaps.mean_age(1), gaps.count()), (None, 0));
    }
}
