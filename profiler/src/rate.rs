//! The heap profile rate, and the numbering of the rates at which samples were taken.
//!
//! Every sample stores its rate, as a small index in its bucket's key, so that each is scaled by the right weight: a
//! program that changes the rate keeps true totals. (In Go it does not: its tools assume one rate for the life of the
//! program.)
//!
//! `EPOCH` is the single word that the fast path of an allocation reads: it changes with every change of the rate, so
//! that a thread notices at its next allocation.
//!
//! ```text
//!   EPOCH = change number << 8 | index of the rate (0..64), or OFF
//!   0     = not started yet: allocations pass through
//! ```
//!
//! Locks: `CHANGE` (a [`ForkLock`]) orders changes; never in a hook.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rtprof_runtime::counters::{CountedProfile, Counter};
use rtprof_runtime::lock::fork_lock::ForkLock;

/// Go's default: one sample for every 512 KiB allocated, on average.
pub const DEFAULT_RATE: usize = 512 << 10;
/// The number of distinct rates that samples can refer to.
pub const MAX_RATES: usize = 64;

/// Changes of the rate beyond this number.
pub(crate) static APPROXIMATED: Counter = Counter::new(&[CountedProfile::Heap], || {
    format!(
        "changes of the heap profile rate were beyond {MAX_RATES} distinct rates and took the nearest one used before"
    )
});

const OFF: u64 = 0xff;

static CHANGE: ForkLock = ForkLock::new();
static STARTED: AtomicBool = AtomicBool::new(false);
static RATE: AtomicUsize = AtomicUsize::new(DEFAULT_RATE);
static RATES: [AtomicUsize; MAX_RATES] = [const { AtomicUsize::new(0) }; MAX_RATES];
pub(crate) static EPOCH: AtomicU64 = AtomicU64::new(0);

/// The index of a rate in the key of a bucket, `0..64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateIndex(u8);

impl RateIndex {
    /// Reads the index from the bits of a key.
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits as u8 % MAX_RATES as u8)
    }

    /// Returns the index as bits of a key.
    pub(crate) const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// Returns the rate in bytes.
    pub fn rate(self) -> usize {
        RATES[self.0 as usize].load(Ordering::Relaxed)
    }
}

/// Returns the rate of an epoch; `None` when nothing is sampled.
pub(crate) fn of_epoch(epoch: u64) -> Option<RateIndex> {
    (epoch != 0 && epoch & 0xff != OFF).then_some(RateIndex(epoch as u8))
}

/// Returns the current heap profile rate in bytes: on average one allocation is sampled per this many bytes allocated.
/// 1 samples everything, 0 nothing. Go: `runtime.MemProfileRate`.
pub fn mem_profile_rate() -> usize {
    RATE.load(Ordering::Relaxed)
}

/// Sets the heap profile rate in bytes and returns the previous one. 512 KiB is the default, 1
/// samples every allocation, 0 switches sampling off. Go: an assignment to `runtime.MemProfileRate`.
///
/// Any value is valid. The rate takes effect at the next allocation of every thread; objects sampled before keep their
/// weight and their frees are still counted, so totals stay true across changes. A program may use 64 distinct rates;
/// beyond that, the nearest rate that was used before is taken, and profiles say so.
pub fn set_mem_profile_rate(bytes: usize) -> usize {
    let _held = CHANGE.lock();
    let (bytes, index) = if bytes == 0 { (0, OFF) } else { index_of(bytes) };
    let previous = RATE.swap(bytes, Ordering::Relaxed);
    if STARTED.load(Ordering::Relaxed) {
        publish(index);
    }
    previous
}

/// Lets sampling begin. Called once by the allocator, when it is ready for samples.
pub fn start() {
    let _held = CHANGE.lock();
    if !STARTED.swap(true, Ordering::Relaxed) {
        let rate = RATE.load(Ordering::Relaxed);
        publish(if rate == 0 { OFF } else { index_of(rate).1 });
    }
}

fn publish(index: u64) {
    let change = (EPOCH.load(Ordering::Relaxed) >> 8) + 1;
    // Release: a thread that reads the epoch sees the rate under its index.
    EPOCH.store(change << 8 | index, Ordering::Release);
}

/// Returns the rate and its index: new if there is room, else of the nearest rate (by ratio) in use. The caller holds
/// `CHANGE`.
fn index_of(bytes: usize) -> (usize, u64) {
    let mut nearest = (f64::INFINITY, 0);
    for (index, slot) in RATES.iter().enumerate() {
        match slot.load(Ordering::Relaxed) {
            0 => {
                slot.store(bytes, Ordering::Relaxed);
                return (bytes, index as u64);
            }
            known if known == bytes => return (bytes, index as u64),
            known => {
                let distance = (known as f64 / bytes as f64).ln().abs();
                if distance < nearest.0 {
                    nearest = (distance, index);
                }
            }
        }
    }
    APPROXIMATED.add();
    (RATES[nearest.1].load(Ordering::Relaxed), nearest.1 as u64)
}

/// Returns the number of objects that a sampled object of `size` bytes stands for at `rate`: 1 / (1 - e^(-size/rate)),
/// the inverse of the probability that it was sampled. Exactly 1 where everything is sampled.
pub fn weight(size: usize, rate: usize) -> f64 {
    if rate <= 1 || size == 0 {
        return 1.0;
    }
    // expm1 keeps the digits that 1 - e^x loses for objects far below the rate.
    -1.0 / (-(size as f64) / rate as f64).exp_m1()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_weight_is_the_inverse_of_the_probability() {
        assert_eq!(weight(16, 1), 1.0);
        assert_eq!(weight(16, 0), 1.0);
        let w = weight(16, 512 << 10);
        assert!((w - 32768.5).abs() < 0.01, "{w}");
        assert!((weight(8 << 20, 512 << 10) - 1.0000001125).abs() < 1e-9);
    }
}
