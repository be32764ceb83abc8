//! What a goroutine waits for now, and since when: two words that readers never see mixed.
//!
//! Problem: both change at every contended wait, where only a few stores are allowed, and another
//! thread reads them at any moment.
//! Scheme: beside the reason stands the number of the wait. A reader that finds the same number before
//! and after it has read the time has read the time of that wait.

use super::reason::WaitReason;
use crate::primitive::{AtomicU64, Ordering};

/// Tries of a reader that the wait keeps changing under.
const TRIES: usize = 8;

const REASON_BITS: u32 = 8;

/// One writer at a time: the goroutine itself, and whoever wakes it, which the wait queue orders.
#[cfg_attr(not(loom), derive(Default))]
pub(super) struct Waiting {
    /// The number of the wait, and below it its reason, 0 when it is over.
    current: AtomicU64,
    since: AtomicU64,
}

impl Waiting {
    #[inline]
    pub(super) fn begin(&self, reason: WaitReason, since: u64) {
        let number = (self.current.load(Ordering::Relaxed) >> REASON_BITS).wrapping_add(1);
        // Release: who reads this time and then looks again sees that the wait before is over.
        self.since.store(since, Ordering::Release);
        self.current.store(number << REASON_BITS | reason as u64, Ordering::Release);
    }

    #[inline]
    pub(super) fn end(&self) {
        let number = self.current.load(Ordering::Relaxed) >> REASON_BITS;
        self.current.store(number << REASON_BITS, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Option<(WaitReason, u64)> {
        for _ in 0..TRIES {
            let current = self.current.load(Ordering::Acquire);
            let reason = WaitReason::from_number(current as u8)?;
            let since = self.since.load(Ordering::Acquire);
            if self.current.load(Ordering::Relaxed) == current {
                return Some((reason, since));
            }
        }
        None
    }
}

#[cfg(loom)]
impl Default for Waiting {
    fn default() -> Self {
        Self { current: AtomicU64::new(0), since: AtomicU64::new(0) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_what_began_last_until_it_ends() {
        let waiting = Waiting::default();
        assert_eq!(waiting.read(), None);
        waiting.begin(WaitReason::MutexLock, u64::MAX);
        assert_eq!(waiting.read(), Some((WaitReason::MutexLock, u64::MAX)));
        waiting.begin(WaitReason::Sleep, 0);
        assert_eq!(waiting.read(), Some((WaitReason::Sleep, 0)));
        waiting.end();
        waiting.end();
        assert_eq!(waiting.read(), None);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// A reader sees one of the waits whole, or none.
    #[test]
    fn loom_a_wait_is_read_whole() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let waiting = Arc::new(Waiting::default());
            // The reader is the spawned one: loom compares a store with the last access only, which for
            // this writer is its own load, and would never run a reader of the main thread in between.
            let reader = {
                let waiting = waiting.clone();
                loom::thread::spawn(move || match waiting.read() {
                    None | Some((WaitReason::Join, 1 | 3) | (WaitReason::Park, 2)) => {}
                    mixed => panic!("{mixed:?} was no wait"),
                })
            };
            for (reason, since) in [(WaitReason::Join, 1), (WaitReason::Park, 2), (WaitReason::Join, 3)] {
                waiting.begin(reason, since);
                waiting.end();
            }
            reader.join().unwrap();
            assert_eq!(waiting.read(), None);
        });
    }
}
