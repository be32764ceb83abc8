//! What the counts of a heap record mean: objects and bytes, of the samples and of what the samples stand for.

use std::hash::{DefaultHasher, Hash, Hasher};

use rtprof_symbols::hash::stack_hash;

use crate::record::{Detail, Record};
use crate::scale::Scale;

/// Objects and bytes, allocated and still in use: in the order of the sample types.
pub(crate) type HeapValues = [i64; 4];

/// Indices in [`HeapValues`].
pub(crate) const ALLOC_OBJECTS: usize = 0;
pub(crate) const ALLOC_SPACE: usize = 1;
pub(crate) const INUSE_OBJECTS: usize = 2;
pub(crate) const INUSE_SPACE: usize = 3;

fn size_and_rate(record: &Record) -> (usize, usize) {
    match record.detail {
        Detail::Objects { size, rate } => (size, rate),
        _ => (0, 1),
    }
}

fn values([allocs, inuse]: [i64; 2], size: usize) -> HeapValues {
    let size = size as i64;
    [allocs, allocs.saturating_mul(size), inuse, inuse.saturating_mul(size)]
}

/// Returns the sampled values.
pub(crate) fn sampled(record: &Record) -> HeapValues {
    values(record.added(), size_and_rate(record).0)
}

/// Returns the estimate of the allocated values, scaled from the samples.
pub(crate) fn estimated(record: &Record) -> HeapValues {
    let (size, rate) = size_and_rate(record);
    // The hash covers the record's whole key: records of one place under many labels must not all round the same way.
    let hash = stack_hash(&record.stack)
        ^ (size as u64).rotate_left(32)
        ^ (rate as u64).rotate_left(16)
        ^ label_hash(&record.labels);
    let scale = Scale::new(size, rate, hash);
    let estimate = |counts| values(counts, size).map(|sampled| scale.value(sampled));
    let all = estimate(record.counts);
    if record.base == [0; 2] {
        return all;
    }
    // The difference of two estimates, not the estimate of a difference: the same value as when a reader subtracts one
    // profile from the other.
    let base = estimate(record.base);
    std::array::from_fn(|at| all[at] - base[at])
}

fn label_hash(labels: &[(String, String)]) -> u64 {
    if labels.is_empty() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    labels.hash(&mut hasher);
    hasher.finish()
}

/// Returns the rate that all records have in common, if any; `current` if there are no records.
pub(crate) fn single_rate(records: &[Record], current: usize) -> Option<usize> {
    let mut rates = records.iter().map(|record| size_and_rate(record).1);
    let first = rates.next().unwrap_or(current);
    rates.all(|rate| rate == first).then_some(first)
}
