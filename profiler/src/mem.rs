//! The heap profile: malloc and free of sampled objects, cycles, and snapshots.
//!
//! Locks:
//! - `PUBLISH` (a [`ForkLock`]) protects the published counts of every record, the flushed flag and
//!   the order of cuts. Taken by snapshots and by `advance_cycle`, `flush_cycle` and the collector's
//!   calls; never in a hook. In a forked child it is taken over from a parent's thread; the one
//!   record that thread was moving at the instant of the fork may be short of what it had in hand.
//!
//! Hooks take no lock: they intern a bucket (see [`rtprof_runtime::stack::table`]), read the cycle, and add one
//! to a word of its record (see [`crate::mem_record`]).
//!
//! Two ways of publishing, as design and Go have it:
//! - Without a collector, every snapshot is a cut at the moment of the call: the cycle is advanced,
//!   and everything counted before it is published.
//! - After the first [`collector_cycle`] snapshots show the last complete cut, up to two cycles old,
//!   as `runtime.MemProfile` does: allocations count only once they had the chance to be freed.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rtprof_runtime::fork_lock::{ForkGuard, ForkLock};
use rtprof_runtime::goroutine::observer;
use rtprof_runtime::labels::{self, LabelSetId};
use rtprof_runtime::stack::scratch::with_frames;
use rtprof_runtime::stack::table::Table;
use rtprof_runtime::stack::{Stack, capture, spare};

use crate::bucket::{MemBucket, MemKey};
use crate::cut::Cuts;
use crate::cycle::{Cycle, FUTURE};
use crate::mem_record::MemRecord;
use crate::rate::RateIndex;
use crate::sampling::DueSample;

/// Distinct (stack, size, rate, labels) kept by default: about 45 MiB at 30 frames when all are used.
pub const DEFAULT_MAX_STACKS: usize = 1 << 17;
/// Buckets that may be made beyond the limit, all with the overflow stack: one a size.
const OVERFLOW_BUCKETS: usize = 1 << 14;

static PUBLISH: ForkLock = ForkLock::new();
// The models use tables and cuts of their own.
rtprof_runtime::lazy_under_loom! {
    static BUCKETS: Table<MemKey, MemRecord> = Table::new(DEFAULT_MAX_STACKS);
}
rtprof_runtime::lazy_under_loom! {
    static CUTS: Cuts = Cuts::new();
}
/// Whether a collector drives the cycles.
static COLLECTED: AtomicBool = AtomicBool::new(false);
/// Bytes estimated live; wraps, as a free may be counted just before its malloc.
static LIVE: LiveEstimate = LiveEstimate(AtomicU64::new(0));

#[repr(align(128))]
struct LiveEstimate(AtomicU64);

/// A sampled object's record: kept by the allocator beside the object until its free.
#[derive(Clone, Copy)]
pub struct Sample {
    /// Its bucket.
    pub bucket: &'static MemBucket,
    /// The cycle its malloc was counted to.
    pub cycle: Cycle,
}

/// Makes what the heap profile needs. Idempotent. Not for hooks.
pub fn open() {
    rtprof_runtime::init::open();
    BUCKETS.open();
}

/// Changes the most distinct stacks that the heap profile keeps and returns the previous limit;
/// 131,072 by default. Samples beyond it are counted under one stack whose name says so; totals stay
/// true (sizes above 4 KiB are rounded down by at most 1/16 there).
pub fn set_max_stacks(limit: usize) -> usize {
    BUCKETS.set_limit(limit)
}

/// Distinct stacks kept so far, and the bytes mapped for them.
pub fn stacks_in_use() -> (usize, usize) {
    (BUCKETS.len(), BUCKETS.mapped_bytes())
}

/// The live heap in bytes, estimated from the samples; 0 while nothing is sampled. Cheap: one load.
pub fn live_heap_estimate() -> u64 {
    (LIVE.0.load(Ordering::Relaxed) as i64).max(0) as u64
}

/// Records the malloc of a sampled object with the caller's stack. `None`, counted, when there is no
/// memory for its bucket, or no room on the stack. Go: `mProf_Malloc`. For hooks.
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

/// Records the free of a sampled object. `in_sweep` says that a collector found it dead and frees it
/// late. Go: `mProf_Free`. For hooks.
pub fn free(sample: Sample, in_sweep: bool) {
    CUTS.free(sample.cycle, in_sweep, |cycle| sample.bucket.record.free(cycle));
    LIVE.0.fetch_sub(estimate(sample.bucket.key), Ordering::Relaxed);
}

fn estimate(key: MemKey) -> u64 {
    (key.size() as f64 * crate::rate::weight(key.size(), key.rate().rate())) as u64
}

/// Begins the next heap profile cycle. Go: `mProf_NextCycle`. The cycle before it is flushed first if
/// nobody did, so that no event is counted to a wrong one.
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

/// A collector's mark termination: the cut, and the publication of the cycle before. From the first
/// call on profiles show the last complete cut. Use it through `rtprof::collector::cycle`.
pub fn collector_cycle() {
    let held = PUBLISH.lock();
    COLLECTED.store(true, Ordering::Relaxed);
    observer::cycle(&mut || {
        CUTS.advance(|indices| flush(&held, indices));
        CUTS.flush_current(|indices| flush(&held, indices));
    });
}

/// All sweeping of the last collector cycle is over: publishes the state at that cycle's cut now,
/// instead of at the next one. Go: `mProf_PostSweep`.
pub fn post_sweep() {
    let held = PUBLISH.lock();
    flush(&held, &[CUTS.now().plus(1).index()]);
}

/// Publishes what a snapshot shows. See the module's head for the two ways.
fn publish(held: &ForkGuard<'_>) {
    if !COLLECTED.load(Ordering::Relaxed) {
        CUTS.cut(|indices| flush(held, indices));
        return;
    }
    // Between a collector's advance and its flush the current cycle may not be published yet.
    flush(held, &[CUTS.now().index()]);
    if BUCKETS.iter().all(|bucket| bucket.record.is_clear()) {
        // Nothing is published yet: no collection has completed. Show everything, rather than an
        // empty profile.
        const ALL: [usize; FUTURE] = [0, 1, 2];
        flush(held, &ALL);
    }
}

/// A bucket as of a snapshot: raw counts of samples, not scaled.
#[derive(Clone, Copy, Debug)]
pub struct MemCount {
    /// Where they were allocated.
    pub stack: Stack<'static>,
    /// Bytes of each object.
    pub size: usize,
    /// The rate the samples were taken at, in bytes; each stands for [`crate::rate::weight`] objects.
    pub rate: usize,
    /// The labels they were taken under.
    pub labels: LabelSetId,
    /// Objects allocated.
    pub allocs: i64,
    /// Objects freed, at most `allocs`.
    pub frees: i64,
}

/// The published profile as of one cut. No other cut is made while it lives: keep it short, and do not
/// take a second one on the same thread.
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

    /// How many buckets hold anything.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no bucket holds anything.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The buckets that hold anything, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = MemCount> {
        BUCKETS.iter().filter(|bucket| !bucket.record.is_clear()).map(|bucket| {
            let (allocs, frees) = bucket.record.published();
            MemCount {
                stack: bucket.captured(),
                size: bucket.key.size(),
                rate: bucket.key.rate().rate(),
                labels: bucket.key.labels(),
                allocs: allocs as i64,
                // Only with a collector, and a thread that two of its cycles overtook, can a free be
                // published before its malloc; the next cycle mends it.
                frees: frees.min(allocs) as i64,
            }
        })
    }
}

/// A snapshot of every bucket that holds anything. For exports; Go's form is
/// [`crate::mem_profile`].
pub fn snapshot() -> Vec<MemCount> {
    let snapshot = PublishedProfile::take();
    let mut out = Vec::with_capacity(snapshot.len());
    out.extend(snapshot.iter());
    out
}
