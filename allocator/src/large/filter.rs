//! A filter of keys: one cache line that says of most keys that they are not in the table.
//!
//! A group of the table is one line of thirty thousand bytes of keys, and not in the processor's first cache when a server
//! frees a buffer that it has not used since its last wait. Few large samples are live in most programs (one in 512 KiB of
//! live objects above 4 KiB), so most frees need only this line.
//!
//! Each byte counts the keys with one hash. A byte that has reached its largest value stays there: it is not known any more
//! when the last of its keys is removed.

use rtprof_runtime::primitive::{AtomicU8, Ordering};

const COUNTS: usize = if cfg!(loom) { 2 } else { 64 };

#[repr(C, align(64))]
pub(super) struct Filter {
    counts: [AtomicU8; COUNTS],
}

impl Filter {
    rtprof_runtime::const_fn! {
        pub(super) const fn new() -> Self {
            Self { counts: rtprof_runtime::array_of![AtomicU8::new(0); COUNTS] }
        }
    }

    /// The count for keys with this hash.
    #[inline]
    pub(super) fn count(&self, hash: usize) -> &AtomicU8 {
        // Other bits than those that choose a group in the first levels: the lowest ones.
        &self.counts[(hash >> 20) % COUNTS]
    }
}

/// Whether there may be a key that this counts. Relaxed: the program itself orders an object's free after its allocation, in
/// which its key was counted.
#[inline]
pub(super) fn has_any(count: &AtomicU8) -> bool {
    count.load(Ordering::Relaxed) != 0
}

/// Counts a key, before its object can be freed.
pub(super) fn add(count: &AtomicU8) {
    change(count, |count| count.checked_add(1));
}

/// Takes back the count of a key, which was removed.
pub(super) fn remove(count: &AtomicU8) {
    change(count, |count| if count == u8::MAX { None } else { count.checked_sub(1) });
}

fn change(count: &AtomicU8, change: impl Fn(u8) -> Option<u8>) {
    // Fails if nothing is to be changed.
    let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_full_count_stays() {
        let filter = Filter::new();
        let count = filter.count(usize::MAX);
        assert!(!has_any(count));
        add(count);
        remove(count);
        assert!(!has_any(count));
        for _ in 0..1000 {
            add(count);
        }
        for _ in 0..1000 {
            remove(count);
        }
        assert!(has_any(count));
        assert!(!has_any(filter.count(0)));
    }
}
