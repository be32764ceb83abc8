//! The counts of one bucket of the block or mutex profile. Go: `blockRecord`.

use rtprof_runtime::counters::Counter;
use rtprof_runtime::goroutine::wait_site::{NotedSite, WaitSite};
use rtprof_runtime::primitive::{AtomicU64, Ordering};
use rtprof_runtime::stack::overflow::Limited;

use crate::contention;

/// The number of waits, and the total ticks that they took.
///
/// The count is a fraction, because a sampled short wait stands for rate / ticks waits. No lock: both words are
/// separate atomics. An event adds its ticks before its count, and a reader reads the count first, so that it never
/// sees a wait without its time; of an event that is being added at that instant it may see only the time.
#[derive(Default)]
pub struct BlockRecord {
    /// The bits of an `f64`.
    count: AtomicU64,
    cycles: AtomicU64,
    /// The site of the first wait that an event stands for, if it is known.
    wait_site: NotedSite,
}

impl Limited for BlockRecord {
    fn over_limit() -> &'static Counter {
        &contention::OVER_LIMIT
    }
}

impl BlockRecord {
    /// Notes the site of a wait that an event stands for. Only the first is kept: all waits of one function that one stack has
    /// ended are of one kind.
    pub(crate) fn note_wait_site(&self, site: &'static WaitSite) {
        if self.wait_site.get().is_none() {
            self.wait_site.set(Some(site));
        }
    }

    /// Returns the noted site.
    pub(crate) fn wait_site(&self) -> Option<&'static WaitSite> {
        self.wait_site.get()
    }

    /// Adds an event that stands for `count` waits of `cycles` ticks in total. The sum of ticks saturates at
    /// `i64::MAX`.
    pub(crate) fn add(&self, count: f64, cycles: u64) {
        update(&self.cycles, |sum| sum.saturating_add(cycles).min(i64::MAX as u64));
        update(&self.count, |bits| (f64::from_bits(bits) + count).to_bits());
    }

    /// Returns the count and the ticks so far.
    pub(crate) fn read(&self) -> (f64, u64) {
        let count = f64::from_bits(self.count.load(Ordering::Acquire));
        (count, self.cycles.load(Ordering::Relaxed))
    }
}

#[inline]
fn update(word: &AtomicU64, next: impl Fn(u64) -> u64) {
    // Release, for the count: a thread that reads it sees the ticks that were added before it. A successful exchange
    // continues the release sequence of the one it read.
    let _ = word.fetch_update(Ordering::Release, Ordering::Relaxed, |seen| Some(next(seen)));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn threads_neither_lose_nor_invent() {
        let record = BlockRecord::default();
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    for _ in 0..10_000 {
                        record.add(0.5, 3);
                        let (count, cycles) = record.read();
                        assert!(cycles as f64 >= count * 6.0, "{count} waits in {cycles} ticks");
                    }
                });
            }
        });
        assert_eq!(record.read(), (40_000.0, 240_000));
    }

    #[test]
    fn the_sum_of_ticks_saturates() {
        let record = BlockRecord::default();
        record.add(1.0, u64::MAX);
        record.add(1.0, 5);
        assert_eq!(record.read(), (2.0, i64::MAX as u64));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;

    #[test]
    fn loom_a_wait_is_never_seen_without_its_time() {
        loom::model(|| {
            let record = loom::sync::Arc::new(BlockRecord::default());
            let spawn = |f: fn(&BlockRecord)| {
                let record = record.clone();
                loom::thread::spawn(move || f(&record))
            };
            let reader = spawn(|record| {
                let (count, cycles) = record.read();
                assert!(cycles as f64 >= count * 10.0);
            });
            let writer = spawn(|record| record.add(1.0, 10));
            record.add(1.0, 10);
            reader.join().unwrap();
            writer.join().unwrap();
            assert_eq!(record.read(), (2.0, 20));
        });
    }
}
