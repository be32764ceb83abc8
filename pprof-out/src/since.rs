//! What became of a profile between two snapshots.
//!
//! Records are compared, not written profiles: both snapshots are cuts of the same records, which are never freed, so
//! a record is known by where its stack lies. Nothing has to be resolved or encoded twice, and nothing is lost by
//! rounding. Go writes both profiles, parses them, scales one by -1 and merges.

use std::collections::HashMap;

use rtprof_runtime::hook;

use crate::contention::{ContentionRecord, ContentionRecords};
use crate::count_profile::{CountProfile, CountRecord};
use crate::heap::{HeapBase, HeapRecord, HeapRecords};
use crate::snapshot::{Records, Snapshot};
use crate::taken::Taken;

/// How a later snapshot is compared with an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Every value less what it was. What is in use may have become less, and is negative then. Go: `seconds=` of
    /// `net/http/pprof`.
    Everything,
    /// Values that only grow (allocations, waits, created threads) less what they were; what is in use as it is now.
    /// So does godeltaprof.
    Accumulated,
}

impl Snapshot {
    /// What was added since `earlier`, a snapshot of the same profile. Records to which nothing was added are left out.
    ///
    /// A snapshot of another profile has nothing in common with this one, and all of this one counts as added.
    pub fn since(&self, earlier: &Self, since: Since) -> Self {
        let _workspace = hook::workspace();
        let duration = self.instant.saturating_duration_since(earlier.instant);
        let duration_nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        let spanning = |taken: Taken| Taken { duration_nanos, ..taken };
        let records = match (&self.records, &earlier.records) {
            (Records::Heap(view, heap), Records::Heap(_, earlier)) => {
                let records = heap_since(&heap.records, &earlier.records, since);
                let comments = heap.comments.clone();
                Records::Heap(*view, HeapRecords { records, comments, taken: spanning(heap.taken), ..*heap })
            }
            (Records::Contention(later), Records::Contention(earlier)) if later.kind == earlier.kind => {
                let records = contention_since(&later.records, &earlier.records);
                let comments = later.comments.clone();
                let taken = spanning(later.taken);
                Records::Contention(ContentionRecords { records, comments, taken, ..*later })
            }
            (Records::Counts(later), Records::Counts(earlier)) if later.name == earlier.name => {
                let records = counts_since(&later.records, &earlier.records);
                let taken = spanning(later.taken);
                Records::Counts(CountProfile { records, taken, ..later.clone() })
            }
            (Records::Goroutines(later), Records::Goroutines(earlier)) if later.view == earlier.view => {
                let records = counts_since(&later.counts.records, &earlier.counts.records);
                let taken = spanning(later.counts.taken);
                Records::Counts(CountProfile { records, taken, ..later.counts.clone() })
            }
            (records, _) => records.clone(),
        };
        Self { records, instant: self.instant, startup_frames: self.startup_frames }
    }
}

type HeapKey = (usize, usize, usize, usize);

fn heap_key(record: &HeapRecord<'_>) -> HeapKey {
    (record.stack.as_ptr().addr(), record.size, record.rate, record.labels.as_ptr().addr())
}

fn heap_since(
    later: &[HeapRecord<'static>],
    earlier: &[HeapRecord<'static>],
    since: Since,
) -> Vec<HeapRecord<'static>> {
    let mut bases: HashMap<HeapKey, HeapBase> = HashMap::with_capacity(earlier.len());
    for record in earlier {
        let base = bases.entry(heap_key(record)).or_default();
        base.allocs += record.allocs;
        if since == Since::Everything {
            base.inuse += record.allocs - record.frees;
        }
    }
    let with_base = later.iter().map(|record| {
        let base = bases.remove(&heap_key(record)).unwrap_or_default();
        HeapRecord { base, ..*record }
    });
    with_base
        .filter(|record| record.allocs != record.base.allocs || record.in_use() != record.base.inuse)
        .collect()
}

fn contention_since(
    later: &[ContentionRecord<'static>],
    earlier: &[ContentionRecord<'static>],
) -> Vec<ContentionRecord<'static>> {
    let key = |record: &ContentionRecord<'_>| (record.stack.as_ptr().addr(), record.labels.as_ptr().addr());
    let mut bases: HashMap<_, (i64, u64)> = HashMap::with_capacity(earlier.len());
    for record in earlier {
        let base = bases.entry(key(record)).or_default();
        *base = (base.0 + record.count, base.1.saturating_add(record.cycles));
    }
    let added = later.iter().filter_map(|record| {
        let (count, cycles) = bases.remove(&key(record)).unwrap_or_default();
        let (count, cycles) = (record.count - count, record.cycles.saturating_sub(cycles));
        (count != 0 || cycles != 0).then_some(ContentionRecord { count, cycles, ..*record })
    });
    let mut added: Vec<_> = added.collect();
    added.sort_by_key(|record| std::cmp::Reverse(record.cycles));
    added
}

fn counts_since(
    later: &[CountRecord<'static>],
    earlier: &[CountRecord<'static>],
) -> Vec<CountRecord<'static>> {
    // By content: places of a program's own profile are copies.
    let key = |record: &CountRecord<'static>| (record.stack.clone(), record.leaf, record.labels.clone());
    let mut bases: HashMap<_, i64> = HashMap::with_capacity(earlier.len());
    for record in earlier {
        *bases.entry(key(record)).or_default() += record.count;
    }
    let mut changed: Vec<_> = Vec::new();
    for record in later {
        let count = record.count - bases.remove(&key(record)).unwrap_or(0);
        if count != 0 {
            changed.push(CountRecord { count, ..record.clone() });
        }
    }
    // Stacks that are gone altogether.
    let gone = |record: &CountRecord<'static>| {
        let count = -bases.remove(&key(record))?;
        Some(CountRecord { count, ..record.clone() })
    };
    changed.extend(earlier.iter().filter_map(gone));
    changed
}

#[cfg(test)]
#[path = "since_tests.rs"]
mod tests;
