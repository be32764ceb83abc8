//! The block and mutex profiles: where the program waits, and which code makes it wait.

use std::cmp::Reverse;

use rtprof_profiler::comments;
use rtprof_profiler::contention::{self, BlockCount};
use rtprof_runtime::clock;
use rtprof_runtime::counters::CountedProfile;
use rtprof_runtime::labels;

use crate::kind::ProfileKind;
use crate::record::{Detail, Leaf, Record};
use crate::snapshot::Snapshot;

/// The order is Go's; readers rely on the position.
pub(crate) const SAMPLE_TYPES: [(&str, &str); 2] = [("contentions", "count"), ("delay", "nanoseconds")];

/// The two contention profiles, which share one form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contention {
    /// The stacks that waited.
    Block,
    /// The stacks that made others wait.
    Mutex,
}

impl Contention {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Mutex => "mutex",
        }
    }

    fn counts(self) -> Vec<BlockCount> {
        match self {
            Self::Block => contention::block_counts(),
            Self::Mutex => contention::mutex_counts(),
        }
    }

    fn subject(self) -> CountedProfile {
        match self {
            Self::Block => CountedProfile::Block,
            Self::Mutex => CountedProfile::Mutex,
        }
    }

    /// Returns the present number of records.
    pub(crate) fn count(self) -> usize {
        self.counts().len()
    }

    /// Takes a snapshot of what the profiler has recorded up to now.
    pub(crate) fn take(self) -> Snapshot {
        let record = |count: BlockCount| Record {
            labels: labels::resolve(count.labels).into(),
            detail: match self {
                Self::Block => Detail::Waits(count.kind),
                Self::Mutex => match count.woken_in {
                    Some(woken_in) => Detail::Wake { woken_in, waited_at: count.waited_at.map(Box::new) },
                    None => Detail::None,
                },
            },
            ..Record::of_kept(
                count.stack,
                Leaf::Hooks,
                [count.whole_waits(), i64::try_from(count.cycles).unwrap_or(i64::MAX)],
            )
        };
        let mut records: Vec<Record> = self.counts().into_iter().map(record).collect();
        sort(&mut records);
        let kind = ProfileKind::Contention {
            of: self,
            ticks_per_second: clock::ticks_per_second(),
            fraction: contention::set_mutex_profile_fraction(-1),
        };
        Snapshot::new(kind, records, comments::of(self.subject()))
    }
}

/// Sorts by delay, longest first. Records of equal delay keep the profiler's order, newest stack first.
pub(crate) fn sort(records: &mut [Record]) {
    records.sort_by_key(|record| Reverse(record.added()[1]));
}

#[cfg(test)]
#[path = "contention_tests.rs"]
mod tests;
