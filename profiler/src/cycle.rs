//! The heap profile cycle: the number whose change is the cut of a snapshot.
//!
//! Go: `mProfCycleHolder`. The number is kept modulo [`CYCLE_WRAP`], above a flag in bit 0 that
//! says whether the counts of the current cycle have been moved into the published profile.

use rtprof_runtime::primitive::{AtomicU32, Ordering};

/// The number of cycles whose events are separate: the current one, and the two that events are counted to.
pub const FUTURE: usize = 3;

/// The number at which the cycle wraps. A multiple of [`FUTURE`], because the ring of future counts is indexed by the
/// remainder and must not jump when the number wraps; Go's value.
pub const CYCLE_WRAP: u32 = FUTURE as u32 * (2 << 24);

/// A cycle number, `0..CYCLE_WRAP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycle(u32);

impl Cycle {
    /// Makes a cycle from a number, wrapped to the range.
    pub const fn new(number: u32) -> Self {
        Self(number % CYCLE_WRAP)
    }

    /// Returns the plain number.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns the cycle `n` later.
    pub const fn plus(self, n: u32) -> Self {
        Self((self.0 + n) % CYCLE_WRAP)
    }

    /// Returns the index of its counts in the ring.
    pub const fn index(self) -> usize {
        self.0 as usize % FUTURE
    }

    /// Returns how many cycles lie between `earlier` and this one, counting across the wrap.
    pub const fn since(self, earlier: Self) -> u32 {
        (self.0 + CYCLE_WRAP - earlier.0) % CYCLE_WRAP
    }

    /// Returns whether this cycle is later than `other`, from which it is less than half the range away.
    pub const fn is_after(self, other: Self) -> bool {
        let distance = self.since(other);
        distance != 0 && distance < CYCLE_WRAP / 2
    }

    /// Returns the first cycle after `now` that has this one's place in the ring. This one is not after `now`.
    pub const fn next_turn_after(self, now: Self) -> Self {
        self.plus((now.since(self) / FUTURE as u32 + 1) * FUTURE as u32)
    }

    /// Returns the later of two cycles that are less than half the range apart.
    pub const fn later(self, other: Self) -> Self {
        if self.since(other) < CYCLE_WRAP / 2 { self } else { other }
    }
}

/// The current cycle and its flag in one word, so that both change at one instant.
pub struct CycleHolder {
    value: AtomicU32,
}

impl CycleHolder {
    rtprof_runtime::const_fn! {
        /// Cycle 0, not flushed.
        pub const fn new() -> Self {
            Self { value: AtomicU32::new(0) }
        }
    }

    /// Returns the current cycle.
    #[inline]
    pub fn read(&self) -> Cycle {
        Cycle(self.value.load(Ordering::Acquire) >> 1)
    }

    /// Sets the flag; returns the current cycle and the previous flag.
    pub fn set_flushed(&self) -> (Cycle, bool) {
        let previous = self.value.fetch_or(1, Ordering::AcqRel);
        (Cycle(previous >> 1), previous & 1 != 0)
    }

    /// Begins the next cycle and clears the flag. This is the cut.
    pub fn increment(&self) {
        let next = |previous: u32| Some(Cycle(previous >> 1).plus(1).0 << 1);
        let _ = self.value.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
    }

    /// Sets the current cycle; for the test of the wrap.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn set(&self, cycle: Cycle) {
        self.value.store(cycle.0 << 1, Ordering::Relaxed);
    }
}

impl Default for CycleHolder {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_ring_index_steps_by_one_across_the_wrap() {
        let holder = CycleHolder::new();
        holder.set(Cycle::new(CYCLE_WRAP - 2));
        let mut last = holder.read();
        for _ in 0..5 {
            holder.increment();
            let now = holder.read();
            assert_eq!(now.since(last), 1);
            assert_eq!(now.index(), (last.index() + 1) % FUTURE);
            last = now;
        }
        assert_eq!(last.number(), 3);
    }

    #[test]
    fn the_flag_belongs_to_one_cycle() {
        let holder = CycleHolder::new();
        assert_eq!(holder.set_flushed(), (Cycle::new(0), false));
        assert_eq!(holder.set_flushed(), (Cycle::new(0), true));
        holder.increment();
        assert_eq!(holder.set_flushed(), (Cycle::new(1), false));
    }

    #[test]
    fn the_next_turn_has_the_same_place() {
        for (past, now, turn) in [(5, 5, 8), (4, 5, 7), (3, 5, 6), (2, 5, 8)] {
            let next = Cycle::new(past).next_turn_after(Cycle::new(now));
            assert_eq!(next, Cycle::new(turn));
            assert!(next.is_after(Cycle::new(now)) && next.index() == Cycle::new(past).index());
        }
        assert_eq!(Cycle::new(CYCLE_WRAP - 1).next_turn_after(Cycle::new(1)), Cycle::new(2));
    }

    #[test]
    fn later_looks_across_the_wrap() {
        let (old, new) = (Cycle::new(CYCLE_WRAP - 1), Cycle::new(1));
        assert_eq!(old.later(new), new);
        assert_eq!(new.later(old), new);
    }
}
