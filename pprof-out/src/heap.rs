//! The heap and allocs profiles: the same records, shown by what is in use or by what was ever allocated.

use std::io;

use std::hash::{DefaultHasher, Hash, Hasher};

use rtprof_profiler::comments;
use rtprof_profiler::{mem, rate};
use rtprof_runtime::counters::Subject;
use rtprof_runtime::labels;
use rtprof_runtime::stack::Stack;

use crate::encode::{self, Encoder, Header};
use crate::scale::Scale;
use crate::sink::Sink;
use crate::taken::Taken;
use crate::top::Values;
use rtprof_symbols::hash::stack_hash;
use rtprof_symbols::locations::Locations;
use rtprof_symbols::prune::DROP_FRAMES;
use rtprof_symbols::view::View;

/// The order is Go's; readers go by position.
pub(crate) const SAMPLE_TYPES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// The place of a sample type; the last one's if there is no such.
pub(crate) fn place_of(sample_type: &str) -> usize {
    let last = SAMPLE_TYPES.len() - 1;
    SAMPLE_TYPES.iter().position(|&(name, _)| name == sample_type).unwrap_or(last)
}

/// Records of one cut, unscaled.
#[derive(Clone)]
pub(crate) struct HeapRecords<'a> {
    pub(crate) records: Vec<HeapRecord<'a>>,
    /// The current mean number of bytes between two samples; records may have been made at others.
    pub(crate) rate: usize,
    pub(crate) comments: Vec<String>,
    pub(crate) taken: Taken,
}

/// The sampled objects of one size from one stack.
#[derive(Clone, Debug)]
pub(crate) struct HeapRecord<'a> {
    pub(crate) stack: Stack<'a>,
    pub(crate) size: usize,
    /// The rate these samples were taken at.
    pub(crate) rate: usize,
    pub(crate) labels: &'a [(String, String)],
    pub(crate) allocs: i64,
    pub(crate) frees: i64,
    /// What is not shown, because it was so before.
    pub(crate) base: HeapBase,
}

/// Sampled objects that a profile of a stretch of time leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeapBase {
    pub(crate) allocs: i64,
    pub(crate) inuse: i64,
}

/// Objects and bytes, allocated and still in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeapValues {
    pub(crate) alloc_objects: i64,
    pub(crate) alloc_space: i64,
    pub(crate) inuse_objects: i64,
    pub(crate) inuse_space: i64,
}

impl HeapRecord<'_> {
    /// Sampled objects in use now, whatever the base.
    pub(crate) fn in_use(&self) -> i64 {
        self.allocs - self.frees
    }

    /// What was sampled.
    pub(crate) fn sampled(&self) -> HeapValues {
        self.values(self.allocs - self.base.allocs, self.in_use() - self.base.inuse)
    }

    fn values(&self, allocs: i64, inuse: i64) -> HeapValues {
        let size = self.size as i64;
        HeapValues {
            alloc_objects: allocs,
            alloc_space: allocs.saturating_mul(size),
            inuse_objects: inuse,
            inuse_space: inuse.saturating_mul(size),
        }
    }

    /// What was allocated, as far as the samples tell.
    pub(crate) fn estimated(&self) -> HeapValues {
        // All of the record's key: records of one place under many labels must not round together.
        let hash = stack_hash(&self.stack)
            ^ (self.size as u64).rotate_left(32)
            ^ (self.rate as u64).rotate_left(16)
            ^ label_hash(self.labels);
        let scale = Scale::new(self.size, self.rate, hash);
        let estimate = |allocs: i64, inuse: i64| {
            let sampled = self.values(allocs, inuse);
            HeapValues {
                alloc_objects: scale.value(sampled.alloc_objects),
                alloc_space: scale.value(sampled.alloc_space),
                inuse_objects: scale.value(sampled.inuse_objects),
                inuse_space: scale.value(sampled.inuse_space),
            }
        };
        let all = estimate(self.allocs, self.in_use());
        if self.base == HeapBase::default() {
            return all;
        }
        // The difference of two estimates, not the estimate of a difference: what two profiles show when a reader
        // subtracts one from the other.
        all.less(estimate(self.base.allocs, self.base.inuse))
    }
}

fn label_hash(labels: &[(String, String)]) -> u64 {
    if labels.is_empty() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    labels.hash(&mut hasher);
    hasher.finish()
}

impl HeapValues {
    /// In the order of the sample types.
    pub(crate) fn in_order(self) -> [i64; 4] {
        [self.alloc_objects, self.alloc_space, self.inuse_objects, self.inuse_space]
    }

    fn less(self, other: Self) -> Self {
        Self {
            alloc_objects: self.alloc_objects - other.alloc_objects,
            alloc_space: self.alloc_space - other.alloc_space,
            inuse_objects: self.inuse_objects - other.inuse_objects,
            inuse_space: self.inuse_space - other.inuse_space,
        }
    }
}

impl Values for HeapValues {
    fn add(&mut self, other: Self) {
        self.alloc_objects += other.alloc_objects;
        self.alloc_space += other.alloc_space;
        self.inuse_objects += other.inuse_objects;
        self.inuse_space += other.inuse_space;
    }
}

impl<'a> HeapRecords<'a> {
    /// The stack of every record.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = Stack<'a>> + Clone {
        self.records.iter().map(|record| record.stack)
    }
}

impl HeapRecords<'static> {
    /// What the profiler has recorded up to now.
    pub(crate) fn take() -> Self {
        let records = mem::snapshot()
            .into_iter()
            .filter(|bucket| bucket.allocs != 0 || bucket.frees != 0)
            .map(|bucket| HeapRecord {
                stack: bucket.stack,
                size: bucket.size,
                rate: bucket.rate,
                labels: labels::resolve(bucket.labels),
                allocs: bucket.allocs,
                frees: bucket.frees,
                base: HeapBase::default(),
            })
            .collect();
        Self {
            records,
            rate: rate::mem_profile_rate(),
            comments: comments::of(Subject::Heap),
            taken: Taken::now(),
        }
    }
}

/// Writes profile.proto.
pub(crate) fn write(
    heap: &HeapRecords<'_>,
    default_sample_type: &str,
    view: View,
    sink: &mut Sink<'_>,
) -> io::Result<()> {
    let mut locations = Locations::new(view);
    locations.prepare(heap.stacks());
    let comments = locations.comments(&heap.comments);
    let mut encoder = Encoder::new(
        sink,
        &Header {
            sample_types: &SAMPLE_TYPES,
            period_type: ("space", "bytes"),
            period: i64::try_from(heap.rate).unwrap_or(i64::MAX),
            default_sample_type,
            drop_frames: DROP_FRAMES,
            comments: &comments,
            taken: heap.taken,
        },
    );
    for record in &heap.records {
        let visible = locations.allocation(record.stack).visible;
        let values = record.estimated();
        encoder.sample(&locations, visible, |sample, strings| {
            sample.value.extend(values.in_order());
            sample.label.extend(encode::text_labels(strings, record.labels));
            let size = record.size as i64;
            sample.label.push(encode::number_label(strings, "bytes", size, "bytes"));
        })?;
    }
    encoder.finish(&locations)
}

#[cfg(test)]
#[path = "heap_tests.rs"]
mod tests;
