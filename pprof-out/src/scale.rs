//! Scales sampled values to estimates of the totals.
//!
//! An object of `size` bytes is sampled with probability 1 - e^(-size/rate), so each sample stands for as many
//! objects as the inverse of that probability (`scaleHeapSample` in Go).
//!
//! Estimates are seldom whole numbers. Truncating them, as Go does, loses up to one object for each record: at a rate
//! of 512 KiB the records of 1 MiB objects, 1.157 objects a sample, lose 14 % where each was sampled once. Rounding to
//! the nearest is as wrong there. Here the fraction is compared with a threshold that is fixed for each record and
//! spread evenly over the records: the sums are right on average, the same record always gives the same value, more
//! samples never give a smaller value (which a difference of two profiles would show as negative), and zero stays zero.

use rtprof_profiler::rate;

/// How the values of one record are scaled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    factor: f64,
    threshold: f64,
}

impl Scale {
    /// `rate` is the mean number of bytes between two samples; at 1 and below every object was sampled and values are
    /// exact. `hash` identifies the record, and spreads the thresholds.
    pub(crate) fn new(size: usize, rate: usize, hash: u64) -> Self {
        let factor = rate::weight(size, rate);
        // The upper 53 bits make a number in 0 ≤ x < 1.
        let threshold = (hash.wrapping_mul(0xd134_2543_de82_ef95) >> 11) as f64 / (1u64 << 53) as f64;
        Self { factor, threshold }
    }

    /// Returns the estimate for a sampled number of objects or bytes.
    pub(crate) fn value(self, sampled: i64) -> i64 {
        if self.factor == 1.0 {
            return sampled;
        }
        (sampled as f64 * self.factor + self.threshold).floor() as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtprof_symbols::hash::stack_hash;

    #[test]
    fn rate_one_and_off_are_exact() {
        for rate in [0, 1] {
            for sampled in [0, 1, 7, (1 << 53) + 1, i64::MAX] {
                assert_eq!(Scale::new(16, rate, 99).value(sampled), sampled);
            }
        }
    }

    #[test]
    fn a_sample_stands_for_the_inverse_of_its_probability() {
        let scale = Scale::new(512 << 10, 512 << 10, 0);
        let expected = 1e6 / (1.0 - (-1.0f64).exp());
        assert!((scale.value(1_000_000) as f64 - expected).abs() <= 1.0);
        // A far smaller object: about rate / size, plus one half.
        let scale = Scale::new(16, 512 << 10, 0);
        assert!((scale.value(1000) - 32_768_500).abs() <= 1);
        // A far larger one is always sampled.
        assert_eq!(Scale::new(1 << 30, 512 << 10, u64::MAX).value(3), 3);
    }

    #[test]
    fn sums_are_unbiased() {
        // 100,000 records of one sample each, 1.157 objects a sample. The deviation of a rounded value is
        // at most 0.5, of the sum 158; 6 sigma are 950 (chance of a false alarm 2e-9; the input is fixed).
        let records = 100_000;
        let sum: i64 = (0..records)
            .map(|i| Scale::new(1 << 20, 512 << 10, stack_hash(&[0x5555_0000 + i, 0x5555_8000])).value(1))
            .sum();
        let expected = records as f64 / (1.0 - (-2.0f64).exp());
        assert!((sum as f64 - expected).abs() < 950.0, "{sum} for {expected}");
    }

    #[test]
    fn never_decreases_and_keeps_zero() {
        for hash in [0, 1, u64::MAX / 2, u64::MAX] {
            let scale = Scale::new(1000, 1500, hash);
            assert_eq!(scale.value(0), 0);
            assert!((0..1000).all(|n| scale.value(n) < scale.value(n + 1)));
        }
    }
}
