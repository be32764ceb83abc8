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

/// Returns the median of `of(value, baseline)` over the rounds in which both took part.
///
/// Pairing by round removes slow drifts (frequency, a noisy neighbour) from a ratio or difference.
pub fn paired(values: &[f64], baseline: &[f64], of: impl Fn(f64, f64) -> f64) -> f64 {
    let pairs: Vec<f64> = values.iter().zip(baseline).map(|(&v, &b)| of(v, b)).collect();
    median(&pairs)
}

/// Returns how many times the baseline the values are: the median of [`paired`] quotients.
pub fn ratio(values: &[f64], baseline: &[f64]) -> f64 {
    paired(values, baseline, |v, b| v / b)
}

/// Returns how much the values exceed the baseline: the median of [`paired`] differences.
pub fn excess(values: &[f64], baseline: &[f64]) -> f64 {
    paired(values, baseline, |v, b| v - b)
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
    fn pairs_cancel_a_drift_that_hits_both() {
        let baseline = [10.0, 20.0, 40.0];
        let value = [11.0, 22.0, 44.0];
        assert!((ratio(&value, &baseline) - 1.1).abs() < 1e-9);
        assert!((excess(&value, &baseline) - 2.0).abs() < 1e-9);
    }
}
