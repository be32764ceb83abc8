//! Limits, and the values that are compared with them.

use rtprof_benches::statistics::{interval, median, paired};
use rtprof_benches::written::Verdict;
use rtprof_benches::yardstick::Yardstick;

use crate::pace::Pace;
use crate::table::Unit;

/// A limit of a quantity.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) scale: Scale,
    /// For a time, the limit where the yardstick takes what [`Yardstick::reference`] says.
    pub(crate) bound: f64,
    /// For a time, what it is judged by.
    yardstick: Option<Yardstick>,
}

/// What a limit's numbers are.
#[derive(Clone, Copy)]
pub(crate) enum Scale {
    /// An amount, at most the limit.
    Amount(Unit),
    /// An amount beyond a baseline of the same rounds, at most the limit.
    More(Unit),
    /// A multiple of a baseline of the same rounds, at most the limit.
    Times,
    /// A percentage, at least the limit.
    PercentAtLeast,
}

/// A measured value.
#[derive(Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) value: f64,
    /// The value, and the interval in which it lies, as they would be on the machine on which the limits were set.
    judged: f64,
    low: f64,
    high: f64,
    /// Whether a yardstick was measured in the same rounds.
    has_yardstick: bool,
}

impl From<f64> for Measured {
    /// Makes a value that every run has alike.
    fn from(value: f64) -> Self {
        Self::new(value, [value; 2])
    }
}

impl Measured {
    pub(crate) fn new(value: f64, [low, high]: [f64; 2]) -> Self {
        Self { value, judged: value, low, high, has_yardstick: false }
    }

    /// The median of some values.
    pub(crate) fn median(values: &[f64]) -> Self {
        Self::new(median(values), interval(values))
    }

    /// How many times the baseline the values are.
    pub(crate) fn ratio(values: &[f64], baseline: &[f64]) -> Self {
        Self::median(&paired(values, baseline, |v, b| v / b))
    }

    /// How much the values exceed the baseline.
    pub(crate) fn excess(values: &[f64], baseline: &[f64]) -> Self {
        Self::median(&paired(values, baseline, |v, b| v - b))
    }

    /// Judges a time by the yardstick of the same rounds.
    pub(crate) fn at(self, pace: &Pace) -> Self {
        Self { has_yardstick: true, ..self.slowed(pace.slowdown()) }
    }

    /// Judges a time that takes so many times as long as where the limits were set.
    pub(crate) fn slowed(self, times: f64) -> Self {
        let Self { judged, low, high, .. } = self;
        Self { judged: judged / times, low: low / times, high: high / times, ..self }
    }

    /// The quotient of two values of the same unit.
    pub(crate) fn per(self, other: Self) -> Self {
        Self::new(self.value / other.value, [self.low / other.high, self.high / other.low])
    }

    pub(crate) fn times(self, factor: f64) -> Self {
        let Self { value, judged, low, high, .. } = self;
        Self {
            value: value * factor,
            judged: judged * factor,
            low: low * factor,
            high: high * factor,
            ..self
        }
    }
}

impl Limit {
    /// Makes a limit of something that every machine measures alike: a multiple, a share, a size.
    pub(crate) const fn new(scale: Scale, bound: f64) -> Self {
        Self { scale, bound, yardstick: None }
    }

    /// Makes a limit of a multiple.
    pub(crate) const fn times(bound: f64) -> Self {
        Self::new(Scale::Times, bound)
    }

    /// Makes a limit of a time, which is judged by a yardstick.
    pub(crate) const fn of_time(scale: Scale, bound: f64, yardstick: Yardstick) -> Self {
        Self { scale, bound, yardstick: Some(yardstick) }
    }

    /// Returns what the measurement says. It is unclear if the limit lies within the [`interval`] of the value: another run
    /// may end on the other side of it.
    pub(crate) fn verdict(&self, measured: Measured) -> Verdict {
        let is_within = |value: f64| match self.scale {
            Scale::Amount(_) | Scale::More(_) | Scale::Times => value <= self.bound,
            Scale::PercentAtLeast => value >= self.bound,
        };
        // A value that was never measured is not met.
        match (is_within(measured.judged), is_within(measured.low), is_within(measured.high)) {
            (true, true, true) => Verdict::Met,
            (false, false, false) => Verdict::NotMet,
            _ => Verdict::Unclear,
        }
    }

    /// Returns how much of the limit the value uses up; the limit is met up to 1.
    ///
    /// Of a multiple, the part above 1 counts, and of a percentage that must be reached, the part that is missing from
    /// 100: a limit of 1.02 is half used up by 1.01, and not by 99 hundredths. A value that is better than the baseline
    /// uses nothing.
    pub(crate) fn share(&self, Measured { judged, .. }: Measured) -> f64 {
        let used = match self.scale {
            Scale::Amount(_) | Scale::More(_) => judged / self.bound,
            Scale::Times => (judged - 1.0) / (self.bound - 1.0),
            Scale::PercentAtLeast => (100.0 - judged) / (100.0 - self.bound),
        };
        used.max(0.0)
    }

    /// Formats a value of this quantity.
    pub(crate) fn show(&self, Measured { value, .. }: Measured) -> String {
        match self.scale {
            Scale::Amount(unit) => unit.show(value),
            Scale::More(unit) => unit.show_excess(value),
            Scale::Times if value >= 10.0 => format!("{value:.0}×"),
            Scale::Times => format!("{value:.3}×"),
            Scale::PercentAtLeast => Unit::Percent.show(value),
        }
    }

    /// Formats the yardsticks of a value, or nothing if it has none.
    pub(crate) fn show_yardsticks(&self, measured: Measured) -> String {
        let shown = self.in_yardsticks(measured.judged).filter(|_| measured.has_yardstick);
        shown.unwrap_or_default()
    }

    /// Formats the limit, without its yardsticks.
    pub(crate) fn show_amount(&self) -> String {
        let bound = self.bound;
        match self.scale {
            Scale::Amount(unit) => format!("≤ {bound} {}", unit.name()),
            Scale::More(unit) => format!("≤ +{bound} {}", unit.name()),
            Scale::Times => format!("≤ {bound}×"),
            Scale::PercentAtLeast => format!("≥ {bound} %"),
        }
    }

    /// Formats the limit as it is judged.
    pub(crate) fn show_limit(&self) -> String {
        match self.in_yardsticks(self.bound) {
            Some(yardsticks) => format!("{}: {yardsticks}", self.show_amount()),
            None => self.show_amount(),
        }
    }

    /// Formats a time on the machine on which the limits were set as a number of yardsticks.
    fn in_yardsticks(&self, judged: f64) -> Option<String> {
        let (Scale::Amount(unit) | Scale::More(unit)) = self.scale else { return None };
        let yardstick = self.yardstick?;
        let count = judged * unit.nanos()? / yardstick.reference();
        let count = match count.abs() {
            size if size < 10.0 => format!("{count:.2}"),
            size if size < 100.0 => format!("{count:.1}"),
            _ => format!("{count:.0}"),
        };
        Some(format!("{count} {}", yardstick.plural()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_judged_by_its_yardstick() {
        let reference = Yardstick::Pair.reference();
        let limit = Limit::of_time(Scale::Amount(Unit::Nanos), 10.0 * reference, Yardstick::Pair);
        // The machine is half as fast.
        let pace = Pace::of(Yardstick::Pair, vec![2.0 * reference]);
        let pairs = |count: f64| Measured::from(count * 2.0 * reference).at(&pace);
        assert_eq!(limit.verdict(pairs(9.0)), Verdict::Met);
        assert_eq!(limit.verdict(pairs(11.0)), Verdict::NotMet);
        assert!((limit.share(pairs(5.0)) - 0.5).abs() < 1e-9);
        // A figure from another machine of the same kind has no yardstick.
        assert_eq!(limit.verdict(pairs(9.0).value.into()), Verdict::NotMet);
        assert!(limit.show_limit().ends_with(": 10.0 pairs"), "{}", limit.show_limit());
        assert_eq!(limit.show_yardsticks(pairs(9.0)), "9.00 pairs");
        let never = Pace::of(Yardstick::Pair, vec![]);
        assert_eq!(limit.verdict(Measured::from(1.0).at(&never)), Verdict::NotMet);
    }

    #[test]
    fn other_limits_are_judged_by_their_values() {
        let times = Limit::times(1.02);
        assert_eq!([1.01, 1.03].map(|value| times.verdict(value.into())), [Verdict::Met, Verdict::NotMet]);
        assert!((times.share(1.01.into()) - 0.5).abs() < 1e-9);
        let at_least = Limit::new(Scale::PercentAtLeast, 99.0);
        assert_eq!([99.5, 98.0].map(|value| at_least.verdict(value.into())), [Verdict::Met, Verdict::NotMet]);
    }

    #[test]
    fn a_limit_within_the_scatter_is_unclear() {
        let limit = Limit::times(1.02);
        let around = |middle: f64, scatter: f64| {
            let values: Vec<f64> = (0..40).map(|n| middle + scatter * (f64::from(n % 4) - 1.5)).collect();
            limit.verdict(Measured::ratio(&values, &vec![1.0; 40]))
        };
        assert_eq!(around(1.01, 0.001), Verdict::Met);
        assert_eq!(around(1.03, 0.001), Verdict::NotMet);
        let drifts: Vec<f64> = (0..40).map(|n| 1.0 + f64::from(n) * 0.001).collect();
        assert_eq!(limit.verdict(Measured::ratio(&drifts, &[1.0; 40])), Verdict::Unclear);
    }
}
