//! Statistics of many short measurements.

/// Returns the middle value, or the mean of the two middle ones; NaN for an empty slice.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[half],
        _ => (sorted[half - 1] + sorted[half]) / 2.0,
    }
}

/// Returns the value that `percent` of the values do not exceed; NaN for an empty slice.
pub fn percentile(values: &[f64], percent: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(place.max(1) - 1).copied().unwrap_or(f64::NAN)
}

/// Returns the smallest value: the cost of the code without disturbances.
pub fn min(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Returns the largest value.
pub fn max(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// Returns `of(value, baseline)` for each round in which both took part.
///
/// Pairing by round removes slow drifts (frequency, a noisy neighbour) from a ratio or difference.
pub fn paired(values: &[f64], baseline: &[f64], of: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    values.iter().zip(baseline).map(|(&v, &b)| of(v, b)).collect()
}

/// The stretches of rounds whose medians give an interval.
const STRETCHES: usize = 10;

/// Returns the least and the largest value that the true median probably has; NaN for an empty slice.
///
/// The rounds are cut into ten stretches. If the medians of all stretches had the same distribution and were independent,
/// the true median would lie outside of their second and ninth value in 2 (1 + 10) / 2^10 = 2 % of all runs (the sign
/// test). What differs from process to process, or for seconds, is in the interval, because a stretch has few processes
/// or seconds. With fewer than six values it is the range of them all.
pub fn interval(values: &[f64]) -> [f64; 2] {
    let stretches = STRETCHES.min(values.len());
    let cut = |number: usize| number * values.len() / stretches.max(1);
    let mut medians: Vec<f64> =
        (0..stretches).map(|number| median(&values[cut(number)..cut(number + 1)])).collect();
    medians.sort_by(f64::total_cmp);
    let left_out = usize::from(stretches == STRETCHES);
    let at = |place: usize| medians.get(place).copied().unwrap_or(f64::NAN);
    [at(left_out), at((stretches.max(1) - 1) - left_out)]
}

/// Returns how many times the baseline the values are: the median of the [`paired`] quotients.
pub fn ratio(values: &[f64], baseline: &[f64]) -> f64 {
    median(&paired(values, baseline, |v, b| v / b))
}

/// Returns how much the values exceed the baseline: the median of the [`paired`] differences.
pub fn excess(values: &[f64], baseline: &[f64]) -> f64 {
    median(&paired(values, baseline, |v, b| v - b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn percentiles_are_values() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(
            [50.0, 99.0, 100.0, 0.0].map(|percent| percentile(&values, percent)),
            [50.0, 99.0, 100.0, 1.0]
        );
        assert_eq!(percentile(&[7.0], 99.0), 7.0);
        assert!(percentile(&[], 99.0).is_nan());
    }

    #[test]
    fn an_interval_leaves_out_the_extremes_of_ten_stretches() {
        // Two values in each stretch.
        let values: Vec<f64> = (0..20).map(|n| f64::from(n / 2)).collect();
        assert_eq!(interval(&values), [1.0, 8.0]);
        assert_eq!(interval(&[3.0, 1.0, 2.0]), [1.0, 3.0]);
        assert_eq!(interval(&[4.0]), [4.0, 4.0]);
        assert!(interval(&[]).iter().all(|value| value.is_nan()));
        let same: Vec<f64> = (0..25).map(|n| f64::from(n % 2)).collect();
        assert!(interval(&same)[0] <= median(&same) && median(&same) <= interval(&same)[1]);
    }

    #[test]
    fn pairs_cancel_a_drift_that_hits_both() {
        let baseline = [10.0, 20.0, 40.0];
        let value = [11.0, 22.0, 44.0];
        assert!((ratio(&value, &baseline) - 1.1).abs() < 1e-9);
        assert!((excess(&value, &baseline) - 2.0).abs() < 1e-9);
    }
}
