//! The heap profile: malloc and free of sampled objects, cycles, and snapshots.
//!
//! Locks:
//! - `PUBLISH` (a [`ForkLock`]) protects the published counts of every record, the flushed flag and the order of cuts.
//!   Taken by snapshots and by `advance_cycle`, `flush_cycle` and the collector's calls; never in a hook. A forked
//!   child takes it over from a parent's thread; the one record that this thread was moving at the instant of the fork
//!   may miss the counts in transit.
//!
//! Hooks take no lock: they intern a bucket (see [`rtprof_runtime::stack::table`]), read the cycle, and add one to a
//! word of its record (see [`crate::mem_record`]).
//!
//! Two ways of publishing:
//! - Without a collector, every snapshot is a cut at the moment of the call: the cycle is advanced, and everything
//!   counted before it is published.
//! - After the first [`collector_cycle`] snapshots show the last complete cut, up to two cycles old, as
//!   `runtime.MemProfile` does: allocations count only after they could have been freed.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rtprof_runtime::goroutine::observer;
use rtprof_runtime::labels::{self, LabelSetId};
use rtprof_runtime::lock::fork_lock::{ForkGuard, ForkLock};
use rtprof_runtime::stack::scratch::with_frames;
use rtprof_runtime::stack::table::Table;
use rtprof_runtime::stack::{Stack, capture, spare};

use crate::bucket::{MemBucket, MemKey};
use crate::cut::Cuts;
use crate::cycle::{Cycle, FUTURE};
use crate::mem_record::MemRecord;
use crate::rate::RateIndex;
use crate::sampling::DueSample;

/// The default number of distinct (stack, size, rate, labels): about 45 MiB at 30 frames when all are used.
pub const DEFAULT_MAX_STACKS: usize = 1 << 17;
/// The number of buckets that may be made beyond the limit, all with the overflow stack: one per size.
const OVERFLOW_BUCKETS: usize = 1 << 14;

static PUBLISH: ForkLock = ForkLock::new();
// The models use separate tables and cuts.
rtprof_runtime::lazy_under_loom! {
    static BUCKETS: Table<MemKey, MemRecord> = Table::new(DEFAULT_MAX_STACKS);
}
rtprof_runtime::lazy_under_loom! {
    static CUTS: Cuts = Cuts::new();
}
/// Whether a collector drives the cycles.
static COLLECTED: AtomicBool = AtomicBool::new(false);
/// The estimated number of live bytes; wraps, as a free may be counted just before its malloc.
static LIVE: LiveEstimate = LiveEstimate(AtomicU64::new(0));

#[repr(align(128))]
struct LiveEstimate(AtomicU64);

/// The record of a sampled object, which the allocator keeps beside the object until its free.
#[derive(Clone, Copy)]
pub struct Sample {
    /// Its bucket.
    pub bucket: &'static MemBucket,
    /// The cycle that its malloc was counted to.
    pub cycle: Cycle,
}

/// Initialises the heap profile. Idempotent. Must not be called in a hook.
pub fn open() {
    rtprof_runtime::init::open();
    BUCKETS.open();
}

/// Sets the maximum number of distinct stacks in the heap profile and returns the previous limit; 131,072 by default.
/// Samples beyond it are counted under one stack whose name says so; totals stay true (sizes above 4 KiB are rounded
/// down by at most 1/16 there).
pub fn set_max_stacks(limit: usize) -> usize {
    BUCKETS.set_limit(limit)
}

/// Returns the number of distinct stacks stored so far, and the bytes mapped for them.
pub fn stacks_in_use() -> (usize, usize) {
    (BUCKETS.len(), BUCKETS.mapped_bytes())
}

/// Returns the live heap in bytes, estimated from the samples; 0 while nothing is sampled. Cheap: one load.
pub fn live_heap_estimate() -> u64 {
    (LIVE.0.load(Ordering::Relaxed) as i64).max(0) as u64
}

/// Records the malloc of a sampled object with the caller's stack. Returns `None` and counts the loss when there is no
/// memory for its bucket, or no room on the stack. Go: `mProf_Malloc`. Safe to call in a hook.
#[inline]
pub fn malloc(size: usize, due: &DueSample) -> Option<Sample> {
    let rate = due.rate;
    if due.has_room { malloc_here(size, rate) } else { spare::elsewhere(|| malloc_here(size, rate))? }
}

#[inline(never)]
fn malloc_here(size: usize, rate: RateIndex) -> Option<Sample> {
    let key = MemKey::new(size, rate, labels::current_id());
    let bucket = with_frames(|frames| {
        let depth = capture(frames);
        BUCKETS.intern_or_fold(key, &frames[..depth], MemKey::coarse, OVERFLOW_BUCKETS)
    })?;
    let cycle = CUTS.malloc(|cycle| bucket.record.malloc(cycle));
    LIVE.0.fetch_add(estimate(key), Ordering::Relaxed);
    Some(Sample { bucket, cycle })
}

/// Records the free of a sampled object. `in_sweep` says that a collector found it dead and frees it late. Go:
/// `mProf_Free`. Safe to call in a hook.
pub fn free(sample: Sample, in_sweep: bool) {
    CUTS.free(sample.cycle, in_sweep, |cycle| sample.bucket.record.free(cycle));
    LIVE.0.fetch_sub(estimate(sample.bucket.key), Ordering::Relaxed);
}

fn estimate(key: MemKey) -> u64 {
    (key.size() as f64 * crate::rate::weight(key.size(), key.rate().rate())) as u64
}

/// Begins the next heap profile cycle. Go: `mProf_NextCycle`. The previous cycle is flushed first if that was not done,
/// so that no event is counted to a wrong cycle.
pub fn advance_cycle() {
    let held = PUBLISH.lock();
    observer::cycle(&mut || CUTS.advance(|indices| flush(&held, indices)));
}

/// Moves the current cycle's events into the published profile; the second call in a cycle does
/// nothing. Go: `mProf_Flush`.
pub fn flush_cycle() {
    let held = PUBLISH.lock();
    observer::cycle(&mut || CUTS.flush_current(|indices| flush(&held, indices)));
}

fn flush(_held: &ForkGuard<'_>, indices: &[usize]) {
    for bucket in BUCKETS.iter() {
        bucket.record.flush(indices);
    }
}

/// Records a collector's mark termination: the cut, and the publication of the previous cycle. From the first call on,
/// profiles show the last complete cut. Called through `rtprof::collector::cycle`.
pub fn collector_cycle() {
    let held = PUBLISH.lock();
    COLLECTED.store(true, Ordering::Relaxed);
    observer::cycle(&mut || {
        CUTS.advance(|indices| flush(&held, indices));
        CUTS.flush_current(|indices| flush(&held, indices));
    });
}

/// Records that all sweeping of the last collector cycle is over: publishes the state at that cycle's cut now, instead
/// of at the next one. Go: `mProf_PostSweep`.
pub fn post_sweep() {
    let held = PUBLISH.lock();
    flush(&held, &[CUTS.now().plus(1).index()]);
}

/// Publishes what a snapshot shows. See the module documentation for the two ways.
fn publish(held: &ForkGuard<'_>) {
    if !COLLECTED.load(Ordering::Relaxed) {
        CUTS.cut(|indices| flush(held, indices));
        return;
    }
    // Between a collector's advance and its flush the current cycle may not be published yet.
    flush(held, &[CUTS.now().index()]);
    if BUCKETS.iter().all(|bucket| bucket.record.is_clear()) {
        // Nothing is published yet: no collection has completed. Show everything, instead of an empty profile.
        const ALL: [usize; FUTURE] = [0, 1, 2];
        flush(held, &ALL);
    }
}

/// A bucket as of a snapshot: raw counts of samples, not scaled.
#[derive(Clone, Copy, Debug)]
pub struct MemCount {
    /// The stack that allocated the objects.
    pub stack: Stack<'static>,
    /// Bytes of each object.
    pub size: usize,
    /// The rate at which the samples were taken, in bytes; each stands for [`crate::rate::weight`] objects.
    pub rate: usize,
    /// The labels under which the samples were taken.
    pub labels: LabelSetId,
    /// Objects allocated.
    pub allocs: i64,
    /// Objects freed, at most `allocs`.
    pub frees: i64,
}

/// The published profile as of one cut. No other cut is made while it lives: it should be short-lived, and a thread
/// must not take a second one while it holds the first.
pub struct PublishedProfile {
    _held: ForkGuard<'static>,
    len: usize,
}

impl PublishedProfile {
    /// Makes the cut and publishes it.
    pub fn take() -> Self {
        open();
        // Libraries loaded since the last snapshot become known to the stack walker.
        rtprof_runtime::modules::refresh();
        let held = PUBLISH.lock();
        observer::cycle(&mut || publish(&held));
        let len = BUCKETS.iter().filter(|bucket| !bucket.record.is_clear()).count();
        Self { _held: held, len }
    }

    /// Returns the number of buckets with counts.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no bucket has counts.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the buckets with counts, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = MemCount> {
        BUCKETS.iter().filter(|bucket| !bucket.record.is_clear()).map(|bucket| {
            let (allocs, frees) = bucket.record.published();
            MemCount {
                stack: bucket.captured(),
                size: bucket.key.size(),
                rate: bucket.key.rate().rate(),
                labels: bucket.key.labels(),
                allocs: allocs as i64,
                // A free can be published before its malloc only with a collector, and for a thread that two of its
                // cycles overtook; the next cycle corrects it.
                frees: frees.min(allocs) as i64,
            }
        })
    }
}

/// Takes a snapshot of every bucket with counts. For exports; Go's form is [`crate::mem_profile`].
pub fn snapshot() -> Vec<MemCount> {
    let snapshot = PublishedProfile::take();
    let mut out = Vec::with_capacity(snapshot.len());
    out.extend(snapshot.iter());
    out
}
