//! Random numbers for the hooks: one generator per thread, no lock.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

thread_local! {
    // No destructor, no lazy initialisation: it works before `main` and in the last destructor of a
    // thread.
    static GENERATOR: Cell<Option<SmallRng>> = const { Cell::new(None) };
}

/// The seed of this process's next generator: the kernel's randomness, plus one step per thread.
static SEED: AtomicU64 = AtomicU64::new(0);

/// Draws the process's seed. Must not be called in a hook: the first call of `getrandom` may wait for entropy.
pub(crate) fn open() {
    #[cfg(rtprof_supported)]
    {
        let mut seed = 0u64;
        // SAFETY: writes at most eight bytes to a local of that size. On failure the seed stays 0, which makes runs
        // repeat, but not wrong.
        unsafe { libc::getrandom((&raw mut seed).cast(), size_of::<u64>(), libc::GRND_NONBLOCK) };
        SEED.store(seed, Ordering::Relaxed);
    }
}

/// Seeds this thread's generator, so that its draws repeat; for tests.
pub fn reseed(seed: u64) {
    GENERATOR.with(|cell| cell.set(Some(SmallRng::seed_from_u64(seed))));
}

#[inline]
fn draw<T>(f: impl FnOnce(&mut SmallRng) -> T) -> T {
    GENERATOR.with(|cell| {
        let mut generator = cell.take().unwrap_or_else(|| {
            // A thread's seed: steps of the golden ratio are far apart in every bit after the generator's own mixing.
            SmallRng::seed_from_u64(SEED.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed))
        });
        let drawn = f(&mut generator);
        cell.set(Some(generator));
        drawn
    })
}

/// Draws a number in (0, 1], with 53 random bits: its logarithm is finite.
#[inline]
pub fn uniform() -> f64 {
    1.0 - draw(|generator| generator.random::<f64>())
}

/// Draws a number in `0..limit`; `limit` is not 0.
///
/// Uses the high half of a 128-bit product instead of a remainder: uniform to within limit / 2^64, and cheaper by a
/// division.
#[inline]
pub fn below(limit: u64) -> u64 {
    let bits = draw(|generator| generator.random::<u64>());
    ((u128::from(bits) * u128::from(limit)) >> 64) as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_below_a_limit_are_even() {
        reseed(11);
        const N: usize = 100_000;
        for limit in [1u64, 2, 7, 1 << 40, 3 << 61, u64::MAX] {
            let mean = (0..N).map(|_| below(limit) as f64).sum::<f64>() / N as f64;
            let (expected, sigma) =
                ((limit - 1) as f64 / 2.0, limit as f64 / 12f64.sqrt() / (N as f64).sqrt());
            // 6 sigma, one run in 5e8; and the seed is fixed.
            assert!((mean - expected).abs() <= 6.0 * sigma, "{limit}: {mean} for {expected}");
        }
        assert!((0..N).all(|_| below(3) < 3));
        assert!((0..N).all(|_| (0.0..=1.0).contains(&uniform())));
    }
}
