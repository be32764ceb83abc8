//! The counts of one bucket of the heap profile.
//!
//! Go: `memRecord`. Problem: a profile is read while the program continues to allocate, and a walk over all buckets
//! takes milliseconds. Read naively, a bucket visited late shows younger events than a bucket visited early: the sum is
//! the state of no instant.
//!
//! Scheme: events are counted to *future* cycles, and the walk only ever moves counts of cycles that have ended:
//!
//! ```text
//!   cycle C (now)                      a cut: C becomes C+1
//!        │  malloc, free ────────────► future[C+2]      next events go to future[C+3]
//!        │  free inside a sweep ─────► future[C+1]      = max(C+1, the cycle its malloc went to)
//!        │
//!        └─ flush: future[C] ─────────► active          what profiles show
//! ```
//!
//! A record is one count word per cycle and kind, since bytes are count × bucket size: every event is one `fetch_add`
//! and every move one `swap(0)`, so that no event is ever split, lost or doubled. A thread that read the cycle and was
//! preempted before it added (a *straggler*) lands entirely in this or a later flush; [`crate::cut`] says how.
//!
//! A free is never shown without its malloc: the malloc's add happens before the free's and goes to the same or an
//! earlier cycle, and a flush takes all frees before it takes mallocs, so a flush that takes the free finds the malloc.
//! Adds and swaps are both acquire and release: a swap that took a free sees what happened before that free, and an add
//! that came too late for a swap sees the cut of that swap, by which [`crate::cut`] detects stragglers.

use rtprof_runtime::counters::{CountedProfile, Counter};
use rtprof_runtime::primitive::{AtomicU64, Ordering};
use rtprof_runtime::stack::overflow::Limited;

use crate::cycle::{Cycle, FUTURE};

/// Samples beyond the limit on distinct stacks.
static OVER_LIMIT: Counter = Counter::new(&[CountedProfile::Heap], || {
    "samples were beyond the limit on distinct stacks and stand under too_many_distinct_stacks; raise it with \
     set_max_stacks"
        .into()
});

/// Mallocs and frees of one cycle.
#[derive(Default)]
struct CycleCounts {
    allocs: AtomicU64,
    frees: AtomicU64,
}

/// The record of one bucket.
#[derive(Default)]
pub struct MemRecord {
    active: CycleCounts,
    future: [CycleCounts; FUTURE],
}

impl Limited for MemRecord {
    fn over_limit() -> &'static Counter {
        &OVER_LIMIT
    }
}

impl MemRecord {
    /// Counts a malloc to `cycle`.
    #[inline]
    pub fn malloc(&self, cycle: Cycle) {
        self.future[cycle.index()].allocs.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a free to `cycle`.
    #[inline]
    pub fn free(&self, cycle: Cycle) {
        self.future[cycle.index()].frees.fetch_add(1, Ordering::AcqRel);
    }

    /// Moves the counts of the cycles at these ring indices into the published ones.
    ///
    /// One flush at a time: the caller holds the lock of the heap profile.
    pub fn flush(&self, indices: &[usize]) {
        let mut frees = 0;
        for &i in indices {
            frees += self.future[i].frees.swap(0, Ordering::AcqRel);
        }
        let mut allocs = 0;
        for &i in indices {
            allocs += self.future[i].allocs.swap(0, Ordering::AcqRel);
        }
        if allocs | frees != 0 {
            self.active.allocs.fetch_add(allocs, Ordering::Relaxed);
            self.active.frees.fetch_add(frees, Ordering::Relaxed);
        }
    }

    /// Returns the published counts of mallocs and frees.
    pub fn published(&self) -> (u64, u64) {
        let frees = self.active.frees.load(Ordering::Relaxed);
        (self.active.allocs.load(Ordering::Relaxed), frees)
    }

    /// Returns whether nothing was ever published.
    pub fn is_clear(&self) -> bool {
        self.published() == (0, 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_flush_moves_only_the_cycles_named() {
        let record = MemRecord::default();
        record.malloc(Cycle::new(0));
        record.malloc(Cycle::new(1));
        record.free(Cycle::new(1));
        record.flush(&[0]);
        assert_eq!(record.published(), (1, 0));
        record.flush(&[0, 1]);
        assert_eq!(record.published(), (2, 1));
    }
}
