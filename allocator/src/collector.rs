//! Accounting for programs that free memory late: with a garbage collector, an arena, or an epoch reclaimer.
//!
//! Without this module every free counts when it happens. In such a program memory that is dead but not yet reclaimed
//! would count as in use, and a profile would be skewed toward allocations. A program that calls [`cycle`] at each
//! collection and frees inside [`sweep`] gets Go's accounting instead: frees of a sweep count as if they had happened
//! at the collection's cut, and profiles show the last cut whose sweep is over.
//!
//! ```
//! # use rtprof_allocator as rtprof;
//! # fn retire() -> Vec<Box<u64>> { vec![Box::new(1)] }
//! let dead = retire();                    // found dead at this collection
//! rtprof::collector::cycle();   // the cut
//! rtprof::collector::sweep(|sweep| {
//!     let bytes = dead.len() * 8;
//!     drop(dead);
//!     sweep.swept(bytes);
//! });
//! rtprof::collector::post_sweep();
//! ```
//!
//! The example `epochs` does this with epoch reclamation. A trace shows these collections, stops of the world, sweeps and
//! assists.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use rtprof_profiler::mem;
use rtprof_tracer::collector as tracer;
pub use rtprof_tracer::record::StwReason;

use crate::alloc_free_trace;

thread_local! {
    /// Number of nested sweeps of this thread.
    static SWEEPS: Cell<u32> = const { Cell::new(0) };
    /// Bytes reported by them.
    static TOTAL: Cell<u64> = const { Cell::new(0) };
}

static SWEPT: AtomicU64 = AtomicU64::new(0);

/// Begins a heap profile cycle at a collection's mark termination: allocations from now on belong to the next cycle.
/// Go: the runtime at mark termination (`mProf_NextCycle`, `mProf_Flush`).
///
/// From the first call on, profiles show the last complete cycle, up to two cycles old, as Go's do. A trace shows a
/// collection for as long as this call takes; [`collect`] shows the program's actual collection.
pub fn cycle() {
    collect(|| ());
}

/// Runs `f`, a collection up to the end of its marking, and then begins a heap profile cycle as [`cycle`] does. A trace
/// shows a collection for as long as this call takes. Go: from `gcStart` to mark termination.
///
/// A trace shows one collection at a time: a collection that begins during another one is only counted in the trace's
/// statistics. The heap profile counts both.
pub fn collect<T>(f: impl FnOnce() -> T) -> T {
    let _collection = tracer::begin_collection();
    let result = f();
    mem::collector_cycle();
    alloc_free_trace::collection();
    result
}

/// Runs `f` while the program has stopped its world for the end of marking, and shows this stop in a trace. The
/// function itself stops nothing. A trace shows one stop at a time, as with collections. Go: `stopTheWorld`.
pub fn stop_the_world<T>(f: impl FnOnce() -> T) -> T {
    stop_the_world_for(StwReason::MarkTermination, f)
}

/// Like [`stop_the_world`], with a reason.
pub fn stop_the_world_for<T>(reason: StwReason, f: impl FnOnce() -> T) -> T {
    let _stop = tracer::begin_stop(reason);
    f()
}

/// Runs `f`, in which the current thread helps the collector to keep up with the thread's allocations, and shows that
/// in a trace. Go: mark assist.
pub fn assist<T>(f: impl FnOnce() -> T) -> T {
    let _assist = tracer::begin_assist();
    f()
}

/// Runs `f`, in which this thread frees what the last collection found dead: its frees count as if they had happened at
/// that collection's cut. Go: sweeping.
///
/// Sweeps may run on several threads and be nested; a trace shows the outermost sweep of a thread. An object allocated
/// after the cut and freed in a sweep counts as allocated and freed in the same cycle, so in-use never becomes
/// negative.
pub fn sweep<T>(f: impl FnOnce(&mut Sweep) -> T) -> T {
    struct Leave(Sweep);
    impl Drop for Leave {
        fn drop(&mut self) {
            let left = SWEEPS.with(|s| s.replace(s.get() - 1)) - 1;
            let bytes = self.0.bytes;
            TOTAL.with(|total| total.set(total.get() + bytes));
            if left == 0 {
                let all = TOTAL.with(|total| total.replace(0));
                tracer::end_sweep(all, all);
            }
        }
    }
    if SWEEPS.with(|s| s.replace(s.get() + 1)) == 0 {
        tracer::begin_sweep();
    }
    let mut leave = Leave(Sweep { bytes: 0 });
    let result = f(&mut leave.0);
    SWEPT.fetch_add(leave.0.bytes, Ordering::Relaxed);
    result
}

/// Ends all sweeps of the last [`cycle`]: profiles show the state at its cut from now on, without waiting for the next
/// cycle. Go: `mProf_PostSweep`, as `runtime.GC` calls it.
pub fn post_sweep() {
    mem::post_sweep();
}

/// Returns the bytes that finished sweeps have reported since the program began.
pub fn swept_bytes() -> u64 {
    SWEPT.load(Ordering::Relaxed)
}

/// A sweep in progress.
#[derive(Debug)]
pub struct Sweep {
    bytes: u64,
}

impl Sweep {
    /// Reports `bytes` as swept.
    pub fn swept(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }
}

/// Whether this thread frees for a sweep. Safe to call in a hook.
#[inline]
pub(crate) fn in_sweep() -> bool {
    SWEEPS.with(|s| s.get() > 0)
}
