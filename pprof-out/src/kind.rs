//! The kinds of profiles: the meaning of their records' counts.

use std::ops::Deref;

use rtprof_runtime::clock;
use rtprof_symbols::{hook_names, prune};

use crate::description::{Description, MOST_VALUES};
use crate::heap_values;
use crate::record::Record;

/// A kind of profile, with the data that its records share.
#[derive(Clone, Debug)]
pub(crate) enum ProfileKind {
    /// Counts are sampled objects: allocated, and in use.
    Heap {
        of: &'static Description,
        /// The current mean number of bytes between two samples; records may have been made at other rates.
        rate: usize,
    },
    /// Counts are waits, and their durations in ticks; scaled to all waits that the samples represent.
    Contention {
        of: &'static Description,
        ticks_per_second: u64,
        /// The current fraction of the mutex profile, 0 when it is off; records may have been made at other fractions.
        fraction: i64,
    },
    /// The first count is a number of threads or goroutines.
    Count { of: &'static Description },
    /// The first count is a number of things of a custom profile.
    Custom {
        /// The name of the profile, and of its values.
        name: String,
    },
    /// The first count is a number of samples.
    Cpu {
        of: &'static Description,
        /// The processor time that one sample stands for.
        period_nanos: u64,
    },
}

/// The values of a record, in the order of the sample types.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    all: [i64; MOST_VALUES],
    len: usize,
}

impl Deref for Values {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        &self.all[..self.len]
    }
}

impl<const N: usize> From<[i64; N]> for Values {
    fn from(values: [i64; N]) -> Self {
        let mut all = [0; MOST_VALUES];
        all[..N].copy_from_slice(&values);
        Self { all, len: N }
    }
}

impl ProfileKind {
    /// Returns the profile's description; `None` for a custom profile.
    pub(crate) fn description(&self) -> Option<&'static Description> {
        match self {
            Self::Heap { of, .. }
            | Self::Contention { of, .. }
            | Self::Count { of }
            | Self::Cpu { of, .. } => Some(of),
            Self::Custom { .. } => None,
        }
    }

    /// Returns the profile's name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Custom { name } => name,
            Self::Heap { of, .. }
            | Self::Contention { of, .. }
            | Self::Count { of }
            | Self::Cpu { of, .. } => of.name,
        }
    }

    /// Returns name and unit of each value. Go's come first, in Go's order; readers rely on the position.
    pub(crate) fn sample_types(&self) -> Vec<(&str, &str)> {
        match self.description() {
            Some(of) => of.sample_types.to_vec(),
            None => vec![(self.name(), "count")],
        }
    }

    /// Returns name and unit of the sampling period, and its length.
    pub(crate) fn period(&self) -> ((&str, &str), i64) {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        match self {
            Self::Heap { rate, .. } => (("space", "bytes"), whole(*rate as u64)),
            Self::Cpu { of, period_nanos } => (of.sample_types[1], whole(*period_nanos)),
            Self::Contention { .. } | Self::Count { .. } | Self::Custom { .. } => (self.sample_types()[0], 1),
        }
    }

    /// Returns the sample type that a reader should show first; empty for the last one.
    pub(crate) fn default_sample_type(&self) -> &'static str {
        let default = |of: &'static Description| Some(of.sample_types[of.told_first?].0);
        self.description().and_then(default).unwrap_or("")
    }

    /// Returns the index of that sample type.
    pub(crate) fn shown_first(&self) -> usize {
        self.description().map_or(0, Description::shown_first)
    }

    /// Returns a pattern of functions that a reader should hide with their callees, once it knows the names; empty for
    /// none.
    pub(crate) fn drop_frames(&self) -> &'static str {
        match self {
            Self::Heap { .. } => prune::DROP_FRAMES,
            Self::Contention { .. } | Self::Count { .. } => hook_names::DROP_FRAMES,
            Self::Custom { .. } | Self::Cpu { .. } => "",
        }
    }

    /// Returns the values of a record, less its baseline.
    pub(crate) fn values(&self, record: &Record) -> Values {
        match self {
            Self::Heap { .. } => heap_values::estimated(record).into(),
            Self::Contention { .. } => {
                let [waits, ticks] = record.added();
                [waits, self.nanos(ticks)].into()
            }
            Self::Count { .. } | Self::Custom { .. } => [record.added()[0]].into(),
            Self::Cpu { .. } => {
                let samples = record.added()[0];
                [samples, samples.saturating_mul(self.period().1)].into()
            }
        }
    }

    /// Returns which of the counts only grow.
    pub(crate) fn grows(&self) -> [bool; 2] {
        [true, !matches!(self, Self::Heap { .. })]
    }

    /// Returns the ticks per nanosecond of a profile that counts ticks.
    pub(crate) fn gigahertz(&self) -> f64 {
        match self {
            Self::Contention { ticks_per_second, .. } => *ticks_per_second as f64 / clock::NANOS as f64,
            _ => 1.0,
        }
    }

    fn nanos(&self, ticks: i64) -> i64 {
        // The cast saturates: a slow clock's ticks are many nanoseconds each.
        (ticks as f64 / self.gigahertz()) as i64
    }

    /// Whether snapshots of both kinds have the same records, so that one can be compared with the other.
    pub(crate) fn has_records_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Heap { .. }, Self::Heap { .. }) => true,
            (Self::Contention { of, .. }, Self::Contention { of: other, .. }) => of == other,
            (Self::Count { of }, Self::Count { of: other }) => of == other,
            (Self::Custom { name }, Self::Custom { name: other }) => name == other,
            _ => false,
        }
    }
}
