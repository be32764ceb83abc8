//! The threadcreate profile: the stacks that led to the creation of threads.

use rtprof_profiler::comments;
use rtprof_runtime::counters::Subject;
use rtprof_runtime::thread_create::{self, ThreadCount};

use crate::count_profile::{CountProfile, CountRecord, Leaf};
use crate::taken::Taken;
use rtprof_symbols::hook_names;

/// The profile's name.
pub(crate) const NAME: &str = "threadcreate";

/// How many threads were created up to now. Go: `countThreadCreate`.
pub(crate) fn count() -> usize {
    let total =
        thread_create::thread_counts().iter().fold(0u64, |sum, count| sum.saturating_add(count.created));
    usize::try_from(total).unwrap_or(usize::MAX)
}

/// What the profiler has recorded up to now.
pub(crate) fn take() -> CountProfile<'static> {
    CountProfile {
        name: NAME.into(),
        records: records(thread_create::thread_counts()),
        drop_frames: hook_names::DROP_FRAMES,
        comments: comments::of(Subject::ThreadCreate),
        taken: Taken::now(),
    }
}

/// The stack that created the most threads first, then by address.
fn records(mut counts: Vec<ThreadCount>) -> Vec<CountRecord<'static>> {
    counts.sort_unstable_by(|a, b| {
        b.created.cmp(&a.created).then_with(|| a.stack.addresses.cmp(b.stack.addresses))
    });
    counts
        .into_iter()
        .map(|ThreadCount { stack, created }| CountRecord {
            stack: stack.addresses.into(),
            span: stack.span,
            leaf: Leaf::Hooks,
            labels: [].as_slice().into(),
            count: i64::try_from(created).unwrap_or(i64::MAX),
        })
        .collect()
}
