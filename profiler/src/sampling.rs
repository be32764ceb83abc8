//! The sampling of allocations: the decision, per thread, without a lock.
//!
//! Think of every byte allocated as a coin that comes up heads with probability 1/rate, and of an
//! object as sampled when any of its bytes does. Then an object of `size` bytes is sampled with
//! probability 1 - (1 - 1/rate)^size, about 1 - e^(-size/rate): 0.003 % of 16-byte objects at
//! 512 KiB, 0.8 % of 4 KiB, 86 % of 1 MiB, all of 1 GiB. Multiplying by the inverse of that
//! probability (see [`crate::rate::weight`]) makes the totals right on average for every size.
//!
//! One coin per byte would be slow. The number of bytes up to the next heads is exponentially distributed with mean
//! `rate`, so a thread draws that distance once and counts it down:
//!
//! ```text
//!   countdown   = floor(X), X exponential with mean rate
//!   allocation  : countdown -= size;  below zero? then this object is sampled, and X is drawn anew
//! ```
//!
//! floor(X) < size exactly when X < size, so an object is sampled with exactly 1 - e^(-size/rate). The exponential
//! distribution has no memory, so the rest of X after an object that was not sampled is equivalent to a fresh draw.
//! Drawing anew is therefore always allowed: after a change of the rate, or when a thread begins. Source: tcmalloc's
//! `sampler.h` describes the same process.
//!
//! The fast path is one load, a subtraction, a compare, the compare of the epoch, and a store.

use core::sync::atomic::Ordering;

use rtprof_runtime::counters::{CountedProfile, Counter};
use rtprof_runtime::hook::{self, AllocationGate, Hook};
use rtprof_runtime::random;
use rtprof_runtime::stack::spare;

use crate::rate::{self, EPOCH, RateIndex};

/// Samples that were due in a signal handler that had interrupted a hook.
static IN_INTERRUPTED_HOOKS: Counter = Counter::new(&[CountedProfile::Heap], || {
    "allocations were to be sampled but were not: made by a signal handler that had interrupted the profiler"
        .into()
});

/// Returns whether an allocation of `size` bytes passes unsampled, on the fast path. If `false`, the caller calls
/// [`decide`].
#[inline(always)]
pub fn passes(size: usize) -> bool {
    hook::with_gate(|gate| gate.passes(size, EPOCH.load(Ordering::Relaxed)))
}

/// The decision about an allocation.
pub enum Decision {
    /// It goes to the inner allocator, and into no profile.
    Unsampled,
    /// It is sampled.
    Sampled(DueSample),
    /// It is the profiler's own work and goes into the workspace; see [`hook::workspace`].
    Workspace,
}

/// A sample that must be taken. While it lives the thread is in a hook, and samples nothing else.
pub struct DueSample {
    pub(crate) rate: RateIndex,
    /// Whether the thread's stack is known to have room for the sample.
    pub(crate) has_room: bool,
    _hook: Hook,
}

/// Decides about an allocation that [`passes`] did not let through.
#[cold]
pub fn decide(size: usize) -> Decision {
    hook::with_gate(|gate| {
        if hook::is_in_workspace() {
            gate.close();
            return if hook::is_in_hook() { Decision::Unsampled } else { Decision::Workspace };
        }
        // Work of ours does not pass the gate: the caller looks whether the inner allocator has memory.
        let is_untracked = hook::is_untracked();
        let stays_closed = is_untracked || hook::is_own_thread();
        if hook::is_in_hook() {
            // Hooks allocate nothing, so this is a signal handler that has interrupted a hook. The allocation is not
            // sampled, but its coins were tossed: without a new draw the next allocation would be sampled for it.
            let rate = rate::of_epoch(gate.epoch());
            if rate.is_some() && !stays_closed && gate.left_after(size) < 0 {
                IN_INTERRUPTED_HOOKS.add();
            }
            draw(gate, rate);
            if stays_closed {
                gate.close();
            }
            return Decision::Unsampled;
        }
        if is_untracked {
            gate.close();
            return Decision::Unsampled;
        }
        let epoch = EPOCH.load(Ordering::Acquire);
        let rate = rate::of_epoch(epoch);
        // A closed gate has no countdown. The distance to the next sample has no memory, so that it may be drawn anew at any
        // allocation.
        if gate.epoch() != epoch || stays_closed {
            gate.set_epoch(epoch);
            draw(gate, rate);
        }
        let left = gate.left_after(size);
        if left >= 0 {
            gate.set(left);
        } else {
            draw(gate, rate);
        }
        if stays_closed {
            gate.close();
        }
        if left >= 0 {
            return Decision::Unsampled;
        }
        rate.and_then(due_sample).map_or(Decision::Unsampled, Decision::Sampled)
    })
}

fn due_sample(rate: RateIndex) -> Option<DueSample> {
    let hook = Hook::enter()?;
    let has_room = spare::has_room();
    if has_room || spare::may_begin() {
        return Some(DueSample { rate, has_room, _hook: hook });
    }
    spare::WITHOUT_ROOM.add();
    None
}

/// Draws the distance to the next sample.
fn draw(gate: &AllocationGate, rate: Option<RateIndex>) {
    gate.set(match rate.map_or(0, RateIndex::rate) {
        0 => i64::MAX,
        1 => 0,
        mean => exponential(mean),
    });
}

fn exponential(mean: usize) -> i64 {
    // Never negative; `as` saturates, and a quarter of the range keeps sums from wrapping.
    ((-random::uniform().ln() * mean as f64) as i64).min(i64::MAX / 4)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn distances_are_exponential() {
        random::reseed(7);
        const N: usize = 200_000;
        const MEAN: usize = 4096;
        let draws: Vec<i64> = (0..N).map(|_| exponential(MEAN)).collect();
        assert!(draws.iter().all(|&d| d >= 0));
        // P(X < size) = 1 - e^(-size/mean); binomial, 6 sigma: one run in 5e8 fails by chance, and the
        // seed is fixed besides.
        for size in [16i64, 1024, 4096, 100_000] {
            let p = 1.0 - (-(size as f64) / MEAN as f64).exp();
            let hits = draws.iter().filter(|&&d| d < size).count() as f64;
            let sigma = (N as f64 * p * (1.0 - p)).sqrt().max(1.0);
            assert!((hits - N as f64 * p).abs() < 6.0 * sigma, "{size}: {hits} of {}", N as f64 * p);
        }
        assert!(exponential(usize::MAX) > 0);
    }

    /// The gate stays closed for a thread of ours, so that it draws anew at each allocation.
    #[test]
    fn threads_of_ours_are_sampled_in_proportion() {
        rate::start();
        rate::set_mem_profile_rate(1 << 20);
        random::reseed(7);
        const N: usize = 20_000;
        let _own = hook::own_thread();
        for size in [10_000_usize, 1 << 20] {
            let p = 1.0 - (-(size as f64) / (1 << 20) as f64).exp();
            let mut hits = 0;
            for _ in 0..N {
                assert!(!passes(size));
                hits += usize::from(matches!(decide(size), Decision::Sampled(_)));
            }
            let sigma = (N as f64 * p * (1.0 - p)).sqrt();
            assert!((hits as f64 - N as f64 * p).abs() < 6.0 * sigma, "{size}: {hits} of {}", N as f64 * p);
        }
    }
}
