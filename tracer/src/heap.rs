//! The heap's curve: how much is live, and how much may be.

use core::sync::atomic::{AtomicU64, Ordering};

use rtprof_profiler::{clock, goroutine, mem};

use crate::record::Kind;
use crate::thread::{any_turn, is_enabled, shared_turn};

/// Points of the curve are at least this far apart.
const INTERVAL_NANOS: u64 = 5_000_000;

#[repr(align(128))]
struct Curve {
    /// The tick of the last point.
    last: AtomicU64,
    /// The interval in ticks.
    interval: AtomicU64,
    goal: AtomicU64,
}

static CURVE: Curve = Curve { last: AtomicU64::new(0), interval: AtomicU64::new(0), goal: AtomicU64::new(0) };

/// A sampled object was allocated or freed. At most one event in 5 ms. For hooks. Go: `traceHeapAlloc`.
#[inline]
pub fn heap_changed() {
    if is_enabled() {
        draw(clock::ticks());
    }
}

#[cold]
fn draw(now: u64) {
    let last = CURVE.last.load(Ordering::Relaxed);
    let is_due = clock::since(last, now) >= CURVE.interval.load(Ordering::Relaxed);
    if is_due && CURVE.last.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        write(Kind::HeapAlloc, mem::live_heap_estimate());
    }
}

/// Sets the goal of the heap in bytes, which traces show above its curve: a memory limit, or what a collector aims
/// at. 0, which it is at first, is none. Go: `runtime/debug.SetMemoryLimit`, and the goal of the collector.
pub fn set_heap_goal(bytes: u64) {
    CURVE.goal.store(bytes, Ordering::Relaxed);
    if is_enabled() {
        write(Kind::HeapGoal, bytes);
    }
}

/// The first points of a trace.
pub(crate) fn begin() {
    let interval = clock::ticks_per_second() as u128 * u128::from(INTERVAL_NANOS) / u128::from(clock::NANOS);
    CURVE.interval.store(interval as u64, Ordering::Relaxed);
    CURVE.last.store(clock::ticks(), Ordering::Relaxed);
    write(Kind::HeapAlloc, mem::live_heap_estimate());
    match CURVE.goal.load(Ordering::Relaxed) {
        0 => {}
        goal => write(Kind::HeapGoal, goal),
    }
}

fn write(kind: Kind, bytes: u64) {
    // A thread that allocates is not registered for that.
    let is_known = goroutine::known().is_some();
    let event = |turn: &mut crate::turn::Turn<'_>| {
        if !turn.count_if_lost() {
            turn.write(kind, turn.now(), [bytes]);
        }
    };
    if is_known {
        any_turn(|turn| event(turn))
    } else {
        shared_turn(event)
    };
}
