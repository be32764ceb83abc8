//! Samples whose stack finds no room in the table.

use super::marker;
use super::table::{Entry, Full, Key, Table};
use crate::counters::{CountedProfile, Counter};

/// Samples that found no memory for a bucket.
static WITHOUT_BUCKET: Counter = Counter::new(CountedProfile::EVENTS, || {
    "samples were dropped: no memory for their records (address-space limit?)".into()
});

/// The record type of a table with a counter for samples beyond its limit. Profiles have separate limits, and only the
/// heap profile's limit can be raised, so each profile reports its own count.
pub trait Limited {
    /// Returns the counter.
    fn over_limit() -> &'static Counter;
}

impl<K: Key, R: Default> Table<K, R> {
    /// Interns as [`Table::intern`] does. Beyond the limit on entries the sample is counted, and goes to a single stack
    /// whose name says so, so that totals stay true. `fold` maps the keys of that stack to few values, and `extra` is
    /// how many of them may be made beyond the limit. Returns `None` and counts the loss when there is no memory.
    #[inline]
    pub fn intern_or_fold(
        &self,
        key: K,
        stack: &[usize],
        fold: impl FnOnce(K) -> K,
        extra: usize,
    ) -> Option<&Entry<K, R>>
    where
        R: Limited,
    {
        match self.intern(key, stack) {
            Ok(entry) => Some(entry),
            Err(full) => self.overflow(full, fold(key), extra),
        }
    }

    #[cold]
    fn overflow(&self, full: Full, key: K, extra: usize) -> Option<&Entry<K, R>>
    where
        R: Limited,
    {
        if full == Full::Limit {
            let stack = [marker::frame(marker::too_many_distinct_stacks)];
            let limit = self.limit().saturating_add(extra);
            if let Ok(entry) = self.intern_within(key, &stack, limit) {
                R::over_limit().add();
                return Some(entry);
            }
        }
        WITHOUT_BUCKET.add();
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    static OVER_LIMIT: Counter = Counter::new(&[], || "samples of a test".into());

    #[derive(Default)]
    struct Record;

    impl Limited for Record {
        fn over_limit() -> &'static Counter {
            &OVER_LIMIT
        }
    }

    #[test]
    fn what_does_not_fit_is_counted_under_one_stack() {
        let table: Table<u64, Record> = Table::new(1);
        assert!(table.open());
        let intern =
            |stack: usize| table.intern_or_fold(stack as u64, &[stack], |_| 7, 1).unwrap().stack()[0];
        // Other tests use the same counter.
        let before = Record::over_limit().get();
        let marker = marker::frame(marker::too_many_distinct_stacks);
        assert_eq!([intern(1), intern(2), intern(3), intern(1)], [1, marker, marker, 1]);
        assert!(Record::over_limit().get() >= before + 2);
    }
}
