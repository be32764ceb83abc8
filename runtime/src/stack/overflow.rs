//! What becomes of a sample whose stack the table has no room for.

use super::marker;
use super::table::{Entry, Full, Key, Table};
use crate::counters::{COUNTERS, Counter};

/// What is kept in a table, and what is counted when the table is full. Profiles have limits of their own, and
/// only that of the heap profile can be raised: each must tell of its own.
pub trait Limited {
    /// What is counted.
    fn over_limit() -> &'static Counter;
}

impl<K: Key, R: Default> Table<K, R> {
    /// As [`Table::intern`]; beyond the limit on entries the sample goes to the one stack whose name
    /// says so, so that totals stay true, and is counted. `fold` makes the keys of that stack few, and
    /// `extra` is how many of them may be made beyond the limit. `None`, counted, when there is no
    /// memory.
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
        COUNTERS.samples_without_bucket.add();
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Record;

    impl Limited for Record {
        fn over_limit() -> &'static Counter {
            &COUNTERS.samples_over_stack_limit
        }
    }

    #[test]
    fn what_does_not_fit_is_counted_under_one_stack() {
        let table: Table<u64, Record> = Table::new(1);
        assert!(table.open());
        let intern =
            |stack: usize| table.intern_or_fold(stack as u64, &[stack], |_| 7, 1).unwrap().stack()[0];
        // Other tests count as well.
        let before = Record::over_limit().get();
        let marker = marker::frame(marker::too_many_distinct_stacks);
        assert_eq!([intern(1), intern(2), intern(3), intern(1)], [1, marker, marker, 1]);
        assert!(Record::over_limit().get() >= before + 2);
    }
}
