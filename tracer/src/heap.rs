//! The heap's curve: the live bytes, and the goal.

use core::sync::atomic::{AtomicU64, Ordering};

use rtprof_runtime::memory::atomic_ref::AtomicRef;
use rtprof_runtime::{clock, goroutine};

use crate::lane_writer::LaneWriter;
use crate::record::RecordKind;
use crate::thread::{in_own_lane, is_enabled, record_shared};

/// Points of the curve are at least this far apart.
const INTERVAL_NANOS: u64 = 5_000_000;

#[repr(align(128))]
struct Curve {
    /// The tick of the last point.
    last: AtomicU64,
    /// The interval in ticks.
    interval: AtomicU64,
    goal: AtomicU64,
    /// Returns the live bytes. Set while a trace is recorded.
    live: AtomicRef<fn() -> u64>,
    /// The live bytes as of the last point.
    shown: AtomicU64,
}

static CURVE: Curve = Curve {
    last: AtomicU64::new(0),
    interval: AtomicU64::new(0),
    goal: AtomicU64::new(0),
    live: AtomicRef::none(),
    shown: AtomicU64::new(0),
};

/// Records the live bytes, which `live` returns, after a sampled object was allocated or freed. At most one event in 5
/// ms is recorded. Safe to call in a hook. Go: `traceHeapAlloc`.
#[inline]
pub fn heap_changed(live: impl FnOnce() -> u64) {
    if is_enabled() {
        draw(clock::ticks(), live());
    }
}

#[cold]
fn draw(now: u64, live: u64) {
    let last = CURVE.last.load(Ordering::Relaxed);
    let is_due = clock::since(last, now) >= CURVE.interval.load(Ordering::Relaxed);
    if is_due && CURVE.last.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        write_live(live);
    }
}

fn write_live(live: u64) {
    CURVE.shown.store(live, Ordering::Relaxed);
    write(RecordKind::HeapAlloc, live);
}

/// Records the point that the curve lacks when a burst ends within the interval after a point. The drain calls it
/// periodically, and before the end of a trace.
pub(crate) fn catch_up() {
    let Some(live) = CURVE.live.get().map(|live| live()) else { return };
    if CURVE.shown.load(Ordering::Relaxed) != live {
        CURVE.last.store(clock::ticks(), Ordering::Relaxed);
        write_live(live);
    }
}

/// Sets the goal of the heap in bytes, which traces show above its curve: a memory limit, or what a collector aims at.
/// 0, the initial value, means none. Go: `runtime/debug.SetMemoryLimit`, and the goal of the collector.
pub fn set_heap_goal(bytes: u64) {
    CURVE.goal.store(bytes, Ordering::Relaxed);
    if is_enabled() {
        write(RecordKind::HeapGoal, bytes);
    }
}

/// Records the first points of a trace.
pub(crate) fn begin(live: &'static fn() -> u64) {
    CURVE.live.set(Some(live));
    let interval = clock::ticks_per_second() as u128 * u128::from(INTERVAL_NANOS) / u128::from(clock::NANOS);
    CURVE.interval.store(interval as u64, Ordering::Relaxed);
    restate();
}

/// Records the present points again.
pub(crate) fn restate() {
    let Some(live) = CURVE.live.get().map(|live| live()) else { return };
    CURVE.last.store(clock::ticks(), Ordering::Relaxed);
    write_live(live);
    match CURVE.goal.load(Ordering::Relaxed) {
        0 => {}
        goal => write(RecordKind::HeapGoal, goal),
    }
}

fn write(kind: RecordKind, bytes: u64) {
    let event = |writer: &mut LaneWriter<'_>| {
        if !writer.count_if_lost() {
            writer.write(kind, writer.now(), [bytes]);
        }
    };
    // An allocation does not register its thread, and does not end a wait that the thread has announced.
    let is_written = goroutine::known().and_then(|own| {
        in_own_lane(own, |writer| {
            writer.declare(own);
            event(writer);
        })
    });
    if is_written.is_none() {
        record_shared(event);
    }
}
