//! The block, mutex and threadcreate profiles in the form of Go's package runtime: a record per stack.

use rtprof_runtime::stack::MAX_STACK;
use rtprof_runtime::thread::thread_create::{ThreadCount, thread_counts};

use crate::contention::{BlockCount, block_counts, mutex_counts};

/// A call stack. Go: `runtime.StackRecord`.
#[derive(Clone, Debug)]
pub struct StackRecord {
    /// Return addresses, leaf first; ends at the first 0.
    pub stack0: [usize; MAX_STACK],
}

impl Default for StackRecord {
    fn default() -> Self {
        Self { stack0: [0; MAX_STACK] }
    }
}

impl StackRecord {
    /// Returns the stack: return addresses, leaf first.
    pub fn stack(&self) -> &[usize] {
        stack_of(&self.stack0)
    }
}

/// Waits at one call stack, or caused by it, scaled by the weights of the samples. Go: `runtime.BlockProfileRecord`.
#[derive(Clone, Debug)]
pub struct BlockProfileRecord {
    /// The number of waits; at least 1, so that a mean can always be taken.
    pub count: i64,
    /// The total time of the waits in ticks of the clock; [`ticks_per_second`](rtprof_runtime::clock::ticks_per_second)
    /// gives the ticks per second.
    pub cycles: i64,
    /// Return addresses, leaf first; ends at the first 0.
    pub stack0: [usize; MAX_STACK],
}

impl Default for BlockProfileRecord {
    fn default() -> Self {
        Self { count: 0, cycles: 0, stack0: [0; MAX_STACK] }
    }
}

impl BlockProfileRecord {
    /// Returns the stack: return addresses, leaf first.
    pub fn stack(&self) -> &[usize] {
        stack_of(&self.stack0)
    }

    fn write(&mut self, count: &BlockCount) {
        self.count = count.whole_waits();
        self.cycles = count.cycles as i64;
        write_stack(&mut self.stack0, &count.stack);
    }
}

/// Returns the used part of a record's array.
pub(crate) fn stack_of(stack0: &[usize; MAX_STACK]) -> &[usize] {
    let depth = stack0.iter().position(|&pc| pc == 0).unwrap_or(MAX_STACK);
    &stack0[..depth]
}

/// Writes a stack into a record's array.
pub(crate) fn write_stack(stack0: &mut [usize; MAX_STACK], stack: &[usize]) {
    stack0[..stack.len()].copy_from_slice(stack);
    stack0[stack.len()..].fill(0);
}

impl BlockCount {
    /// Returns the count as profiles show it. A record that stands for less than one wait, or for a lock that was
    /// charged only for waits that began under another holder, still counts as 1: readers divide by the count.
    pub fn whole_waits(&self) -> i64 {
        // The cast saturates.
        (self.count as i64).max(1)
    }
}

/// Returns the block profile: where the program has waited for locks, channels and other threads since it began, a
/// record per stack, the newest first. Empty until
/// [`set_block_profile_rate`](crate::contention::set_block_profile_rate) first switches it on; when it is off again, it
/// keeps its records. Go: `runtime.BlockProfile`.
pub fn block_profile() -> Vec<BlockProfileRecord> {
    records(&block_counts())
}

/// Writes the records of [`block_profile`] into `records`. Returns the number of records, and whether they fitted; if
/// `records` is too short nothing is written.
pub fn block_profile_into(records: &mut [BlockProfileRecord]) -> (usize, bool) {
    fill(records, &block_counts(), BlockProfileRecord::write)
}

/// Returns the mutex profile: the stacks of unlocks for which others have waited since the program began, a record per
/// stack, the newest first. Empty until [`set_mutex_profile_fraction`](crate::contention::set_mutex_profile_fraction)
/// first switches it on; when it is off again, it keeps its records. Go: `runtime.MutexProfile`.
pub fn mutex_profile() -> Vec<BlockProfileRecord> {
    records(&mutex_counts())
}

/// Writes the records of [`mutex_profile`] into `records`. Returns the number of records, and whether they fitted; if
/// `records` is too short nothing is written.
pub fn mutex_profile_into(records: &mut [BlockProfileRecord]) -> (usize, bool) {
    fill(records, &mutex_counts(), BlockProfileRecord::write)
}

/// The maximum number of records per creating stack in [`thread_create_profile`]. A record is 1 KiB, and a program may
/// start a thread for every connection.
pub const MAX_THREAD_RECORDS: usize = 10_000;

/// Returns the stacks that created threads since the program began: a record per thread, those of one stack next to
/// each other, at most [`MAX_THREAD_RECORDS`] per stack (the `threadcreate` profile has the exact number). Threads that
/// [`rtprof::thread`] did not create are not included, unless the feature `interpose` is on. Go:
/// `runtime.ThreadCreateProfile`.
///
/// [`rtprof::thread`]: https://docs.rs/rtprof/latest/rtprof/thread
pub fn thread_create_profile() -> Vec<StackRecord> {
    let counts = thread_counts();
    let mut out = vec![StackRecord::default(); each_thread(&counts).count()];
    for (record, stack) in out.iter_mut().zip(each_thread(&counts)) {
        write_stack(&mut record.stack0, stack);
    }
    out
}

/// Writes the records of [`thread_create_profile`] into `records`. Returns the number of records, and whether they
/// fitted; if `records` is too short nothing is written.
pub fn thread_create_profile_into(records: &mut [StackRecord]) -> (usize, bool) {
    let counts = thread_counts();
    let stacks: Vec<&[usize]> = each_thread(&counts).collect();
    fill(records, &stacks, |record, stack| write_stack(&mut record.stack0, stack))
}

fn each_thread(counts: &[ThreadCount]) -> impl Iterator<Item = &'static [usize]> {
    counts.iter().flat_map(|count| {
        let threads = usize::try_from(count.created).unwrap_or(usize::MAX).min(MAX_THREAD_RECORDS);
        std::iter::repeat_n(count.stack.addresses, threads)
    })
}

fn records(counts: &[BlockCount]) -> Vec<BlockProfileRecord> {
    let mut out = vec![BlockProfileRecord::default(); counts.len()];
    fill(&mut out, counts, BlockProfileRecord::write);
    out
}

/// Writes all records, or none if they do not fit, as Go does.
fn fill<R, C>(records: &mut [R], counts: &[C], write: impl Fn(&mut R, &C)) -> (usize, bool) {
    if counts.len() > records.len() {
        return (counts.len(), false);
    }
    for (record, count) in records.iter_mut().zip(counts) {
        write(record, count);
    }
    (counts.len(), true)
}
