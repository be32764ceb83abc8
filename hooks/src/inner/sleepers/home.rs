//! The home of an address: how many watched waiters are there, and how far away the cells of its waiters are.
//!
//! ```text
//!   63       48 47       32 31              0
//!   ┌──────────┬───────────┬────────────────┐
//!   │ reach of │ reach of  │ watched        │
//!   │ odd ones │ even ones │ waiters        │
//!   └──────────┴───────────┴────────────────┘
//! ```
//!
//! Watched waiters take cells at even distances and others cells at odd ones, while there are any. A wake looks at both up to
//! the reach of each: where thirty idle workers are not watched, the even cells among theirs are empty, and to look at them
//! would double the time.

use core::cell::Cell;

use rtprof_runtime::primitive::AtomicU64;

use super::CELLS;
use crate::inner::primitive::Ordering;

const _: () = assert!(CELLS <= 1 << 16, "the number of a home is a u16, and a distance");

/// The word.
pub(super) struct Home(pub(super) AtomicU64);

/// The word, as of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HomeSeen {
    /// The number of watched waiters at the addresses of the home.
    pub(super) watched: u32,
    pub(super) reach: Reach,
}

/// The largest distances of cells that waiters at the addresses of a home use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// The largest even one.
    even: u16,
    /// The largest odd one; 0 if there is none.
    odd: u16,
}

impl Reach {
    pub(super) const LEAST: Self = Self { even: 0, odd: 0 };

    /// Extends it to a cell at this distance.
    pub(super) fn with(self, distance: usize) -> Self {
        let distance = distance as u16;
        match distance % 2 {
            0 => Self { even: self.even.max(distance), ..self },
            _ => Self { odd: self.odd.max(distance), ..self },
        }
    }

    /// The distances within it.
    pub(super) fn distances(self) -> impl DoubleEndedIterator<Item = usize> {
        self.of(0).chain(self.of(1))
    }

    /// The even distances within it (0), or the odd ones (1).
    #[inline(always)]
    pub(super) fn of(self, parity: usize) -> impl DoubleEndedIterator<Item = usize> {
        let most = if parity == 0 { self.even } else { self.odd };
        (parity..usize::from(most) + 1).step_by(2)
    }

    /// The number of distances within it.
    pub(super) fn count(self) -> u32 {
        u32::from(self.even / 2) + 1 + u32::from(self.odd.div_ceil(2))
    }
}

impl HomeSeen {
    fn of(word: u64) -> Self {
        let reach = Reach { even: (word >> 32) as u16, odd: (word >> 48) as u16 };
        Self { watched: word as u32, reach }
    }

    pub(super) fn word(self) -> u64 {
        u64::from(self.watched) | u64::from(self.reach.even) << 32 | u64::from(self.reach.odd) << 48
    }
}

impl Home {
    pub(super) fn read(&self) -> HomeSeen {
        HomeSeen::of(self.0.load(Ordering::Acquire))
    }

    /// Returns what it was before.
    pub(super) fn change(&self, change: impl Fn(HomeSeen) -> HomeSeen) -> HomeSeen {
        // Never fails, as a change is always made.
        let word = |word| Some(change(HomeSeen::of(word)).word());
        let (Ok(before) | Err(before)) = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, word);
        HomeSeen::of(before)
    }
}

/// At what distances from their homes a thread has found free cells before: of a few addresses, as a worker of a pool waits
/// for the next job at one and for the pool's lock at another. A search past the cells of thirty idle workers took most of the
/// time of a wait's beginning.
pub(crate) struct Hints {
    hints: [Cell<u64>; HINTS],
    /// The number of times that a far cell was hinted at.
    far: Cell<u32>,
}

const HINTS: usize = 8;
/// A cell that is farther away is not used each time, so that threads come back when there are fewer of them.
const FAR: usize = 32;
/// It is searched for a nearer one once in so many times.
const NEARER: u32 = 16;
/// Not a hint of any home.
const NONE: u64 = u64::MAX;

impl Hints {
    pub(crate) const fn new() -> Self {
        Self { hints: [const { Cell::new(NONE) }; HINTS], far: Cell::new(0) }
    }

    /// Returns the hint for a home, whose number is even, and what it must begin with.
    fn of(&self, home: usize, is_watched: bool) -> (&Cell<u64>, u64) {
        let key = home | usize::from(is_watched);
        (&self.hints[key % HINTS], key as u64)
    }

    pub(super) fn get(&self, home: usize, is_watched: bool) -> Option<usize> {
        let (hint, key) = self.of(home, is_watched);
        let hint = hint.get();
        let distance = (hint & u64::from(u32::MAX) == key).then_some((hint >> 32) as usize)?;
        if distance <= FAR {
            return Some(distance);
        }
        self.far.set(self.far.get().wrapping_add(1));
        (!self.far.get().is_multiple_of(NEARER)).then_some(distance)
    }

    pub(super) fn set(&self, home: usize, is_watched: bool, distance: usize) {
        let (hint, key) = self.of(home, is_watched);
        hint.set((distance as u64) << 32 | key);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_reach_has_the_distances_of_its_waiters() {
        let reach = Reach::LEAST.with(5).with(2).with(1);
        assert_eq!(reach.distances().collect::<Vec<_>>(), [0, 2, 1, 3, 5]);
        assert_eq!((reach.count(), Reach::LEAST.count()), (5, 1));
        let seen = HomeSeen { watched: 7, reach: reach.with(CELLS - 1).with(CELLS - 2) };
        assert_eq!(HomeSeen::of(seen.word()), seen);
    }

    #[test]
    fn a_hint_is_for_one_home() {
        let hints = Hints::new();
        assert_eq!(hints.get(0, false), None);
        let far = (0..2 * NEARER).filter(|_| {
            hints.set(2, false, FAR + 1);
            hints.get(2, false).is_some()
        });
        assert_eq!(far.count() as u32, 2 * (NEARER - 1));
        hints.set(6, true, 9);
        assert_eq!(
            [(6, true), (6, false), (6 + HINTS, true)].map(|(home, is_watched)| hints.get(home, is_watched)),
            [Some(9), None, None]
        );
    }
}
