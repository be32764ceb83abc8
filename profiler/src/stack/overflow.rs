//! What becomes of a sample whose stack the table has no room for.

use super::marker;
use super::table::{Entry, Full, Key, Table};
use crate::block_record::BlockRecord;
use crate::counters::{COUNTERS, Counter};
use crate::mem_record::MemRecord;
use crate::thread_create::ThreadRecord;

/// What is kept in a table, and what is counted when the table is full. Profiles have limits of their own, and
/// only that of the heap profile can be raised: each must tell of its own.
pub(crate) trait Limited {
    fn over_limit() -> &'static Counter;
}

impl Limited for MemRecord {
    fn over_limit() -> &'static Counter {
        &COUNTERS.samples_over_stack_limit
    }
}

impl Limited for BlockRecord {
    fn over_limit() -> &'static Counter {
        &COUNTERS.waits_over_stack_limit
    }
}

impl Limited for ThreadRecord {
    fn over_limit() -> &'static Counter {
        &COUNTERS.threads_over_stack_limit
    }
}

impl<K: Key, R: Default> Table<K, R> {
    /// As [`Table::intern`]; beyond the limit on entries the sample goes to the one stack whose name
    /// says so, so that totals stay true, and is counted. `fold` makes the keys of that stack few, and
    /// `extra` is how many of them may be made beyond the limit. `None`, counted, when there is no
    /// memory.
    #[inline]
    pub(crate) fn intern_or_fold(
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

    fn overflows<R: Default + Limited>(counter: &Counter) {
        let table: Table<u64, R> = Table::new(1);
        assert!(table.open());
        let intern =
            |stack: usize| table.intern_or_fold(stack as u64, &[stack], |_| 7, 1).unwrap().stack()[0];
        // Other tests count as well.
        let before = counter.get();
        let marker = marker::frame(marker::too_many_distinct_stacks);
        assert_eq!([intern(1), intern(2), intern(3), intern(1)], [1, marker, marker, 1]);
        assert!(counter.get() >= before + 2);
    }

    #[test]
    fn each_profile_counts_its_own() {
        overflows::<MemRecord>(&COUNTERS.samples_over_stack_limit);
        overflows::<BlockRecord>(&COUNTERS.waits_over_stack_limit);
        overflows::<ThreadRecord>(&COUNTERS.threads_over_stack_limit);
    }
}
