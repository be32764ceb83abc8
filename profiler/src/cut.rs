//! Cuts: how a snapshot includes every event that was over before it, and no later event.
//!
//! See [`crate::mem_record`] for the scheme. This part does not depend on what is counted, so that loom can run it on a
//! separate record.

use crate::cycle::{Cycle, CycleHolder};

/// The cycle and its cuts.
#[derive(Default)]
pub struct Cuts {
    cycle: CycleHolder,
}

impl Cuts {
    rtprof_runtime::const_fn! {
        /// Starts at cycle 0.
        pub const fn new() -> Self {
            Self { cycle: CycleHolder::new() }
        }
    }

    /// Returns the current cycle.
    pub fn now(&self) -> Cycle {
        self.cycle.read()
    }

    /// Counts a malloc: calls `add` with the cycle that it is counted to, and returns the cycle that it will be
    /// published with, which its free must not precede. Safe to call in a hook.
    ///
    /// The two differ for a thread that was preempted between reading the cycle and adding, and overtaken by two cuts:
    /// its malloc is in the place of a cycle that is over, which is flushed again three cycles later. If its free were
    /// counted to the current cycle, it could be published first.
    #[inline]
    pub fn malloc(&self, add: impl FnOnce(Cycle)) -> Cycle {
        let counted = self.cycle.read().plus(2);
        add(counted);
        let now = self.cycle.read();
        if counted.is_after(now) { counted } else { counted.next_turn_after(now) }
    }

    /// Counts the free of an object whose malloc returned `malloc`: calls `add` with the cycle that it is counted to.
    /// `in_sweep` says that a collector frees the object late. Safe to call in a hook.
    #[inline]
    pub fn free(&self, malloc: Cycle, in_sweep: bool, add: impl FnOnce(Cycle)) {
        // An object that a sweep frees was dead at the last cut, and its free belongs there.
        let ahead = if in_sweep { 1 } else { 2 };
        add(self.cycle.read().plus(ahead).later(malloc));
    }

    /// Calls `flush` for the current cycle's place, unless that was done before. One caller at a time.
    pub fn flush_current(&self, flush: impl Fn(&[usize])) {
        let (cycle, already_flushed) = self.cycle.set_flushed();
        if !already_flushed {
            flush(&[cycle.index()]);
        }
    }

    /// Begins the next cycle, after flushing the current one if that was not done. One caller at a time.
    pub fn advance(&self, flush: impl Fn(&[usize])) {
        self.flush_current(flush);
        self.cycle.increment();
    }

    /// Makes a cut and has `flush` move everything counted before it. One caller at a time.
    ///
    /// Every place is flushed. The place of the ending cycle, which holds only events of stragglers, is flushed before
    /// the cut, because events after the cut are counted there; the other two are flushed after it.
    pub fn cut(&self, flush: impl Fn(&[usize])) {
        flush(&[self.cycle.read().index()]);
        self.cycle.increment();
        let cycle = self.cycle.read();
        flush(&[cycle.index(), cycle.plus(1).index()]);
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
        fn malloc(&self) -> Cycle {
            self.cuts.malloc(|cycle| self.record.malloc(cycle))
        }
        fn free(&self, malloc: Cycle) {
            self.cuts.free(malloc, false, |cycle| self.record.free(cycle));
        }
        fn snapshot(&self) -> (u64, u64) {
            self.cuts.cut(|indices| self.record.flush(indices));
            self.record.published()
        }
    }

    /// An event that was over before a snapshot is in it, and a free never shows before its malloc, however a thread is
    /// delayed between reading the cycle and adding, over all cuts.
    #[test]
    fn loom_a_cut_is_consistent() {
        check(|profile| profile.snapshot());
    }

    /// The same with the program's own `advance_cycle` in between.
    #[test]
    fn loom_advancing_loses_nothing() {
        check(|profile| {
            profile.cuts.advance(|indices| profile.record.flush(indices));
            profile.snapshot()
        });
    }

    fn check(snapshot: fn(&Profile) -> (u64, u64)) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let profile = Arc::new(Profile::default());
            profile.malloc();
            let worker = {
                let profile = profile.clone();
                thread::spawn(move || {
                    let malloc = profile.malloc();
                    profile.free(malloc);
                })
            };
            let mut last = (0, 0);
            for _ in 0..3 {
                let (allocs, frees) = snapshot(&profile);
                assert!(allocs >= 1, "an event that was over is missing");
                assert!(frees <= allocs && allocs >= last.0 && frees >= last.1);
                last = (allocs, frees);
            }
            worker.join().unwrap();
            assert_eq!(profile.snapshot(), (2, 1), "an event was lost, doubled or held back");
        });
    }
}
