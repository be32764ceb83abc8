//! The heap and allocs profiles: the same records, shown by what is in use or by what was ever allocated.

use rtprof_profiler::{mem, rate};
use rtprof_runtime::labels;

use crate::description::Description;
use crate::kind::ProfileKind;
use crate::record::{Detail, Leaf, Record};
use crate::snapshot::Snapshot;

/// Takes a snapshot of what the profiler has recorded up to now.
pub(crate) fn take(of: &'static Description) -> Snapshot {
    let buckets = mem::snapshot().into_iter().filter(|bucket| bucket.allocs != 0 || bucket.frees != 0);
    let record = |bucket: mem::MemCount| Record {
        labels: labels::resolve(bucket.labels).into(),
        detail: Detail::Objects { size: bucket.size, rate: bucket.rate },
        ..Record::of_kept(bucket.stack, Leaf::Allocator, [bucket.allocs, bucket.allocs - bucket.frees])
    };
    let records = buckets.map(record).collect();
    let kind = ProfileKind::Heap { of, rate: rate::mem_profile_rate() };
    Snapshot::new(kind, records, of.comments())
}

#[cfg(test)]
#[path = "heap_tests.rs"]
mod tests;
