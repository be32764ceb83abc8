//! The threadcreate profile: the stacks that led to the creation of threads.
//!
//! Go stores this stack in every `m`. Here threads come and go by the million, so each distinct stack is stored once
//! with the number of threads it has created; state grows with stacks, not with threads.

use crate::counters::{CountedProfile, Counter};
use crate::primitive::{AtomicU64, Ordering};
use crate::stack::overflow::Limited;
use crate::stack::table::{Entry, Key, Table};
use crate::stack::{MAX_STACK, Stack, capture, with_room};

/// The number of distinct stacks that are stored.
const MAX_STACKS: usize = 1 << 14;

/// Threads beyond this number.
pub static OVER_LIMIT: Counter = Counter::new(&[CountedProfile::ThreadCreate], || {
    format!(
        "threads were created beyond the {MAX_STACKS} distinct stacks that the threadcreate profile keeps, and stand under \
         too_many_distinct_stacks"
    )
});

/// The key of a bucket: the stack alone distinguishes buckets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ThreadKey;

impl Key for ThreadKey {
    fn seed(&self) -> u64 {
        0
    }
}

/// The number of threads that a stack has created.
#[derive(Default)]
pub struct ThreadRecord {
    created: AtomicU64,
}

/// A stack that creates threads. Never freed: a thread may refer to it during its whole life.
pub(crate) type ThreadBucket = Entry<ThreadKey, ThreadRecord>;

lazy_under_loom! {
    static THREADS: Table<ThreadKey, ThreadRecord> = Table::new(MAX_STACKS);
}

pub(crate) fn open() {
    THREADS.open();
}

impl Limited for ThreadRecord {
    fn over_limit() -> &'static Counter {
        &OVER_LIMIT
    }
}

impl ThreadRecord {
    /// Counts a created thread.
    pub fn count_one(&self) {
        self.created.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the stack of the caller, which is about to create a thread. Returns `None` and counts the loss when there is
/// no memory for it, and `None` before [`crate::init::open`].
///
/// This counts nothing: the thread must know its creator before it runs, but counts as created only when the system has
/// made it ([`ThreadRecord::count_one`]). Go: `allocm`.
#[inline(never)]
pub fn stack() -> Option<&'static ThreadBucket> {
    if THREADS.is_open() { with_room(stack_here).flatten() } else { None }
}

#[inline(never)]
fn stack_here() -> Option<&'static ThreadBucket> {
    let mut frames = [0; MAX_STACK];
    let depth = capture(&mut frames);
    THREADS.intern_or_fold(ThreadKey, &frames[..depth], |key| key, 1)
}

/// A stack that created threads, and their number.
#[derive(Clone, Copy, Debug)]
pub struct ThreadCount {
    /// The stack that created them.
    pub stack: Stack<'static>,
    /// The number of threads it has created since the program began, running or not.
    pub created: u64,
}

/// Returns the stacks that created threads, the newest first. For exports; Go's form is
/// `rtprof::thread_create_profile`.
pub fn thread_counts() -> Vec<ThreadCount> {
    let mut out = Vec::with_capacity(THREADS.len());
    out.extend(THREADS.iter().filter_map(|bucket| {
        let created = bucket.record.created.load(Ordering::Relaxed);
        (created > 0).then_some(ThreadCount { stack: bucket.captured(), created })
    }));
    out
}
