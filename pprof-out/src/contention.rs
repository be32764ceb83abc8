//! The block and mutex profiles: where the program waits, and which code makes it wait.

use std::cmp::Reverse;

use rtprof_profiler::contention::{self, BlockCount};
use rtprof_runtime::clock;
use rtprof_runtime::labels;

use crate::description::Description;
use crate::kind::ProfileKind;
use crate::record::{Detail, Leaf, Record};
use crate::snapshot::Snapshot;

/// Takes a snapshot of the waits that the profiler has recorded up to now.
pub(crate) fn take_block(of: &'static Description) -> Snapshot {
    take(of, contention::block_counts(), |count| Detail::Waits(count.kind))
}

/// Takes a snapshot of the unlocks that the profiler has recorded up to now, for which others have waited.
pub(crate) fn take_mutex(of: &'static Description) -> Snapshot {
    take(of, contention::mutex_counts(), |count| match count.woken_in {
        Some(woken_in) => Detail::Wake { woken_in, waited_at: count.waited_at.take().map(Box::new) },
        None => Detail::None,
    })
}

fn take(
    of: &'static Description,
    counts: Vec<BlockCount>,
    detail: impl Fn(&mut BlockCount) -> Detail,
) -> Snapshot {
    let record = |mut count: BlockCount| Record {
        labels: labels::resolve(count.labels).into(),
        detail: detail(&mut count),
        ..Record::of_kept(
            count.stack,
            Leaf::Hooks,
            [count.whole_waits(), i64::try_from(count.cycles).unwrap_or(i64::MAX)],
        )
    };
    let mut records: Vec<Record> = counts.into_iter().map(record).collect();
    sort(&mut records);
    let kind = ProfileKind::Contention {
        of,
        ticks_per_second: clock::ticks_per_second(),
        fraction: contention::set_mutex_profile_fraction(-1),
    };
    Snapshot::new(kind, records, of.comments())
}

/// Sorts by delay, longest first. Records of equal delay keep the profiler's order, newest stack first.
pub(crate) fn sort(records: &mut [Record]) {
    records.sort_by_key(|record| Reverse(record.added()[1]));
}

#[cfg(test)]
#[path = "contention_tests.rs"]
mod tests;
