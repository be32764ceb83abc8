//! The counts of samples: one for each stack, under each set of labels.
//!
//! The handler counts in the table itself ([`Table`]: no lock, our own memory). So no queue has to be read, and a late
//! reader loses nothing.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::Arc;

use rtprof_runtime::counters::{CountedProfile, Counter};
use rtprof_runtime::labels::{self, LabelSetId};
use rtprof_runtime::modules::CaptureSpan;
use rtprof_runtime::stack::overflow::Limited;
use rtprof_runtime::stack::table::{Entry, Key, Table};

use super::task_names::{TaskName, TaskNames};

/// The number of distinct (stack, labels, thread) that are stored.
const MAX_STACKS: usize = 1 << 16;

/// Samples beyond this number.
static OVER_LIMIT: Counter = Counter::new(&[CountedProfile::Cpu], || {
    format!(
        "CPU samples were beyond the {MAX_STACKS} distinct stacks that a profile keeps, and stand under \
         too_many_distinct_stacks"
    )
});
/// The number of buckets that may be made beyond that, all with the overflow stack: one per label set.
const OVERFLOW_BUCKETS: usize = labels::MAX_SETS;

/// The part of the key that distinguishes samples of one stack.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuKey {
    pub(super) labels: LabelSetId,
    /// The kernel's id of the thread; 0 where threads are not distinguished.
    pub(super) thread: u32,
    /// The name of the task that the thread polled.
    pub(super) task: TaskName,
}

impl Key for CpuKey {
    fn seed(&self) -> u64 {
        (u64::from(self.thread) << 32 | u64::from(self.labels.bits())) ^ (self.task.number() as u64) << 16
    }
}

#[derive(Default)]
pub(super) struct CpuRecord(AtomicU64);

impl Limited for CpuRecord {
    fn over_limit() -> &'static Counter {
        &OVER_LIMIT
    }
}

/// The samples of one stack, under one set of labels.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CpuCount {
    /// Return addresses, leaf first. The first is that of the interrupted instruction, plus 1.
    pub stack: Box<[usize]>,
    /// When the stack was captured.
    pub span: CaptureSpan,
    /// The labels of the thread or task.
    pub labels: LabelSetId,
    /// The kernel's id of the thread; 0 where threads are not distinguished.
    pub thread: u32,
    /// The name of the task, if it has one.
    pub task: Option<Arc<str>>,
    /// The number of periods of processor time.
    pub samples: u64,
}

/// All samples so far.
pub(super) struct Samples(Option<Kept>);

struct Kept {
    counts: Table<CpuKey, CpuRecord>,
    task_names: TaskNames,
}

impl Samples {
    /// Makes an empty table. Returns `None` if the kernel grants no memory.
    pub(super) fn new() -> Option<Self> {
        let counts = Table::new(MAX_STACKS);
        // `TaskNames` first, because it frees its memory when it is dropped.
        let kept = Kept { task_names: TaskNames::new()?, counts };
        kept.counts.open().then(|| Self(Some(kept)))
    }

    /// Makes a sink that never stores samples.
    pub(super) fn not_kept() -> Self {
        Self(None)
    }

    /// Counts `samples` more of this stack. Safe to call in a signal handler.
    pub(super) fn add(&self, key: CpuKey, stack: &[usize], samples: u64) {
        let fold = |key: CpuKey| CpuKey { thread: 0, task: TaskName::NONE, ..key };
        let Some(kept) = &self.0 else { return };
        if let Some(entry) = kept.counts.intern_or_fold(key, stack, fold, OVERFLOW_BUCKETS) {
            entry.record.0.fetch_add(samples, Ordering::Relaxed);
        }
    }

    /// Returns the name of the task that the current thread polls. Called in its handler.
    pub(super) fn task_name(&self) -> TaskName {
        self.0.as_ref().map_or(TaskName::NONE, |kept| kept.task_names.of_polled())
    }

    /// Returns all counts.
    pub(super) fn counts(&self) -> Vec<CpuCount> {
        let Some(kept) = &self.0 else { return Vec::new() };
        let names: HashMap<TaskName, Arc<str>> =
            kept.task_names.all().map(|(kept, name)| (kept, name.into())).collect();
        let count = |entry: &Entry<CpuKey, CpuRecord>| CpuCount {
            stack: entry.stack().into(),
            span: entry.captured().span,
            labels: entry.key.labels,
            thread: entry.key.thread,
            task: names.get(&entry.key.task).cloned(),
            samples: entry.record.0.load(Ordering::Relaxed),
        };
        kept.counts.iter().map(count).filter(|count| count.samples > 0).collect()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: `self` is borrowed mutably, so no other thread uses the table, and no entry is borrowed from it.
        unsafe { self.counts.clear() };
    }
}
