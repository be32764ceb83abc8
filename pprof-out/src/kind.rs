//! The kinds of profiles: the meaning of their records' counts, and the names of their values.

use std::borrow::Cow;
use std::ops::Deref;

use rtprof_runtime::clock;
use rtprof_symbols::{hook_names, prune};

use crate::contention::{self, Contention};
use crate::cpu;
use crate::heap::{self, HeapView};
use crate::record::Record;

/// A kind of profile, with the data that its records share.
#[derive(Clone, Debug)]
pub(crate) enum ProfileKind {
    /// Counts are sampled objects: allocated, and in use.
    Heap {
        view: HeapView,
        /// The current mean number of bytes between two samples; records may have been made at other rates.
        rate: usize,
    },
    /// Counts are waits, and their durations in ticks; scaled to all waits that the samples represent.
    Contention {
        of: Contention,
        ticks_per_second: u64,
        /// The current fraction of the mutex profile, 0 when it is off; records may have been made at other fractions.
        fraction: i64,
    },
    /// The first count is a number of things: threads, goroutines, or things of a custom profile.
    Count {
        /// The name of the profile, and of its values.
        name: Cow<'static, str>,
        leaf: CountLeaf,
    },
    /// The first count is a number of samples.
    Cpu {
        /// The processor time that one sample stands for.
        period_nanos: u64,
    },
}

/// The owner of the functions at the leaf of a stack in a profile of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountLeaf {
    Hooks,
    Program,
}

/// The values of a record, in the order of the sample types.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    all: [i64; MOST_VALUES],
    len: usize,
}

/// The most values of a record of any kind.
pub(crate) const MOST_VALUES: usize = 4;

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
    /// Returns the profile's name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Heap { view, .. } => view.name(),
            Self::Contention { of, .. } => of.name(),
            Self::Count { name, .. } => name,
            Self::Cpu { .. } => cpu::NAME,
        }
    }

    /// Returns name and unit of each value. The order is Go's; readers rely on the position.
    pub(crate) fn sample_types(&self) -> Vec<(&str, &str)> {
        match self {
            Self::Heap { .. } => heap::SAMPLE_TYPES.to_vec(),
            Self::Contention { .. } => contention::SAMPLE_TYPES.to_vec(),
            Self::Count { name, .. } => vec![(name, "count")],
            Self::Cpu { .. } => cpu::SAMPLE_TYPES.to_vec(),
        }
    }

    /// Returns name and unit of the sampling period, and its length.
    pub(crate) fn period(&self) -> ((&str, &str), i64) {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        match self {
            Self::Heap { rate, .. } => (("space", "bytes"), whole(*rate as u64)),
            Self::Contention { .. } => (contention::SAMPLE_TYPES[0], 1),
            Self::Count { name, .. } => ((name, "count"), 1),
            Self::Cpu { period_nanos } => (cpu::SAMPLE_TYPES[1], whole(*period_nanos)),
        }
    }

    /// Returns the sample type that a reader should show first; empty for the last one.
    pub(crate) fn default_sample_type(&self) -> &'static str {
        match self {
            Self::Heap { view, .. } => view.default_sample_type(),
            _ => "",
        }
    }

    /// Returns a pattern of functions that a reader should hide with their callees, once it knows the names; empty for
    /// none.
    pub(crate) fn drop_frames(&self) -> &'static str {
        match self {
            Self::Heap { .. } => prune::DROP_FRAMES,
            Self::Contention { .. } | Self::Count { leaf: CountLeaf::Hooks, .. } => hook_names::DROP_FRAMES,
            Self::Count { leaf: CountLeaf::Program, .. } | Self::Cpu { .. } => "",
        }
    }

    /// Returns the values of a record, less its baseline.
    pub(crate) fn values(&self, record: &Record) -> Values {
        match self {
            Self::Heap { .. } => heap::estimated(record).into(),
            Self::Contention { .. } => {
                let [waits, ticks] = record.added();
                [waits, self.nanos(ticks)].into()
            }
            Self::Count { .. } => [record.added()[0]].into(),
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
            (Self::Count { name, .. }, Self::Count { name: other, .. }) => name == other,
            _ => false,
        }
    }
}
