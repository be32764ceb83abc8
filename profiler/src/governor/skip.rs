//! Which of a thread's waits is chosen next: one in M on average, independent of all others.
//!
//! To draw a random number for each wait would take longer than all else that a wait costs which is not chosen. So the
//! number of waits up to the next chosen one is drawn, as the heap profile does with bytes. If each wait is chosen with the
//! probability p = 1 / M, that number k has the geometric distribution
//!
//! ```text
//!   P(k or more) = (1 - p)^k        k = floor(ln u / ln(1 - p)), with u uniform in (0, 1]
//! ```
//!
//! It has no memory: when M changes, a new number is drawn, whatever was left of the old one.
//!
//! The wait that follows a chosen one draws the number, not the chosen one itself. A chosen wait must not take longer to begin
//! than others (`hooks::interpose::wait`), and whether the next one is chosen does not depend on the time that it took.

use core::cell::Cell;
use core::sync::atomic::{Ordering, compiler_fence};

use rtprof_runtime::random;

/// The waits of one kind.
///
/// A signal handler may wait between any two instructions, and its wait may even lead to another M. So M is one word, from
/// which the rest is computed, and while it changes all waits are chosen. (Where the handler interrupts `choose`, that one wait
/// may have the weight of the old M, chosen by the new one.)
#[repr(C)]
pub(super) struct Skip {
    /// The number of waits that pass before the next chosen one, or [`NOT_DRAWN`].
    left: Cell<u64>,
    /// M. If it is at most 1, all are chosen.
    one_in: Cell<f64>,
}

const NOT_DRAWN: u64 = u64::MAX;

impl Skip {
    /// All are chosen.
    pub(super) const fn none() -> Self {
        Self { left: Cell::new(NOT_DRAWN), one_in: Cell::new(1.0) }
    }

    /// Chooses one in `one_in` from now on. All, if that is 1 or less.
    pub(super) fn set(&self, one_in: f64) {
        self.one_in.set(1.0);
        compiler_fence(Ordering::Release);
        self.left.set(NOT_DRAWN);
        compiler_fence(Ordering::Release);
        self.one_in.set(one_in);
    }

    /// Returns whether all are chosen.
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        self.one_in.get() <= 1.0
    }

    /// Returns M if this wait is chosen.
    #[inline]
    pub(super) fn choose(&self) -> Option<f64> {
        let one_in = self.one_in.get();
        if one_in <= 1.0 {
            return Some(1.0);
        }
        match self.left.get() {
            NOT_DRAWN => self.draw_and_choose(one_in),
            left => self.choose_after(left, one_in),
        }
    }

    #[inline]
    fn choose_after(&self, left: u64, one_in: f64) -> Option<f64> {
        match left.checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                None
            }
            None => {
                self.left.set(NOT_DRAWN);
                Some(one_in)
            }
        }
    }

    #[cold]
    fn draw_and_choose(&self, one_in: f64) -> Option<f64> {
        // `ln_1p`, because 1 - p is rounded. The cast saturates.
        let left = (random::uniform().ln() / (-1.0 / one_in).ln_1p()) as u64;
        self.choose_after(left.min(NOT_DRAWN - 1), one_in)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_in_so_many_is_chosen() {
        random::reseed(62);
        const N: u32 = 200_000;
        for one_in in [1.0, 1.001, 1.5, 2.0, 10.0, 977.3] {
            let skip = Skip::none();
            skip.set(one_in);
            let chosen: Vec<bool> = (0..N).map(|_| skip.choose().is_some()).collect();
            // Also right after a chosen one: they are independent.
            let after: Vec<bool> = chosen.windows(2).filter(|pair| pair[0]).map(|pair| pair[1]).collect();
            for waits in [&chosen, &after] {
                let (n, p) = (waits.len() as f64, 1.0 / one_in);
                let share = waits.iter().filter(|&&is_chosen| is_chosen).count() as f64 / n;
                // 6 sigma, one run in 5e8; and the seed is fixed.
                let sigma = (p * (1.0 - p) / n).sqrt();
                assert!((share - p).abs() <= 6.0 * sigma, "one in {one_in}: {share} of {n}");
            }
            assert_eq!(skip.is_none(), one_in <= 1.0);
        }
    }
}
