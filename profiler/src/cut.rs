//! Cuts: how a snapshot sees every event that was over before it, and none that is younger.
//!
//! See [`crate::mem_record`] for the scheme. This is the part of it that does not depend on what is
//! counted, so that loom can run it on a record of its own.

use crate::cycle::{Cycle, CycleHolder};
use crate::primitive::{AtomicU32, Ordering};

/// The cycle, and the note of hooks that two cuts overtook.
pub struct Cuts {
    cycle: CycleHolder,
    overtaken: AtomicU32,
}

impl Cuts {
    /// Cycle 0.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { cycle: CycleHolder::new(), overtaken: AtomicU32::new(0) }
    }

    /// Under loom the atomics are not `const`.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { cycle: CycleHolder::new(), overtaken: AtomicU32::new(0) }
    }

    /// The cycle itself.
    pub fn cycle(&self) -> &CycleHolder {
        &self.cycle
    }

    /// Counts an event: calls `add` with the current cycle, and returns what it returns. For hooks.
    ///
    /// A thread may be preempted between reading the cycle and adding. Overtaken by one cut, its
    /// event lands in a place that the next flush takes. Overtaken by two, it lands in a place that
    /// belongs to younger events now, and the next snapshot, which began after this event was over,
    /// would miss it: so that snapshot is told to make two cuts, which reach every place.
    #[inline]
    pub fn count<T>(&self, add: impl FnOnce(Cycle) -> T) -> T {
        let before = self.cycle.read();
        let result = add(before);
        if self.cycle.read().since(before) >= 2 {
            self.overtaken.store(1, Ordering::Release);
        }
        result
    }

    /// Makes a cut and has `flush` move the ring indices of everything counted before it. One caller
    /// at a time.
    pub fn cut(&self, flush: impl Fn(&[usize])) {
        // Asked before the first cut: what is noted during it is younger than this snapshot, and a
        // second cut right after the first would not reach it.
        let twice = self.overtaken.swap(0, Ordering::Acquire) != 0;
        self.cut_once(&flush);
        if twice {
            self.cut_once(&flush);
        }
    }

    fn cut_once(&self, flush: &impl Fn(&[usize])) {
        self.cycle.increment();
        let cycle = self.cycle.read();
        // What is counted to cycle+2 from now on is younger than the cut, and stays.
        flush(&[cycle.index(), cycle.plus(1).index()]);
    }
}

impl Default for Cuts {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::mem_record::MemRecord;
    use loom::sync::Arc;
    use loom::thread;

    #[derive(Default)]
    struct Profile {
        cuts: Cuts,
        record: MemRecord,
    }

    impl Profile {
        fn malloc(&self) {
            self.cuts.count(|cycle| self.record.malloc(cycle.plus(2)));
        }
        fn free(&self) {
            self.cuts.count(|cycle| self.record.free(cycle.plus(2)));
        }
        fn snapshot(&self) -> (u64, u64) {
            self.cuts.cut(|indices| self.record.flush(indices));
            self.record.published()
        }
    }

    /// What was over before a snapshot is in it, and a free never shows before its malloc, however a
    /// thread is held up between reading the cycle and adding, over up to three cuts.
    #[test]
    fn loom_a_cut_is_consistent() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let profile = Arc::new(Profile::default());
            profile.malloc();
            let worker = {
                let profile = profile.clone();
                thread::spawn(move || {
                    profile.malloc();
                    profile.free();
                })
            };
            let mut last = (0, 0);
            for _ in 0..2 {
                let (allocs, frees) = profile.snapshot();
                assert!(allocs >= 1, "an event that was over is missing");
                assert!(frees <= allocs && allocs >= last.0 && frees >= last.1);
                last = (allocs, frees);
            }
            worker.join().unwrap();
            assert_eq!(profile.snapshot(), (2, 1), "an event was lost, doubled or held back");
        });
    }
}
