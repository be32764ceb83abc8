//! What receives the ordered records.

use rtprof_runtime::goroutine::state::State;
use rtprof_tracer::record::{Record, Status};

/// Place and time of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventPosition {
    /// The lane it was recorded on; [`SHARED`](super::SHARED) outside threads.
    pub(crate) lane: u32,
    /// The lifted tick: not before that of any cause.
    pub(crate) tick: u64,
    /// The goroutine to which the lane's records belong; [`NONE`](super::NONE) for none.
    pub(crate) goroutine: u32,
}

/// Receives the ordered records and makes a trace of them. Goroutines and lanes are identified by small dense indices,
/// which are reused after [`record`](Self::record) of an `End`, [`bridge`](Self::bridge) to [`State::Dead`], or
/// [`lane_over`](Self::lane_over).
pub(crate) trait EventSink {
    /// Notes that the lane has records in this generation, from the kernel's thread `thread_id`. If that is 0, a thread
    /// is running of which nothing more is known yet.
    fn lane(&mut self, lane: u32, goroutine: u64, thread_id: u32);

    /// Introduces a goroutine, in the state of `status`. `owner` is the lane of its thread, if known.
    fn introduce(&mut self, at: EventPosition, goroutine: u32, owner: Option<u32>, status: &Status);

    /// Brings a goroutine to a state that it reached by unrecorded changes.
    fn bridge(&mut self, at: EventPosition, goroutine: u32, owner: Option<u32>, state: State);

    /// Receives the next record in order. `target` is the goroutine that the record names, else [`NONE`](super::NONE).
    fn record(&mut self, at: EventPosition, target: u32, record: &Record<'_>);

    /// Continues the task at `at.goroutine`, whose poll has polled another task until now.
    fn resume(&mut self, at: EventPosition);

    /// Ends the lane: the thread is over, and so is the goroutine that ran on it.
    fn lane_over(&mut self, lane: u32);
}

/// Counts of irregularities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OrderCounts {
    /// Records passed on.
    pub(crate) records: u64,
    /// Ticks that were not after their cause's, and were moved.
    pub(crate) lifted: u64,
    /// The largest move, in ticks.
    pub(crate) largest_lift: u64,
    /// Records left out after a loss, because they were outdated or concern unknown goroutines.
    pub(crate) stale: u64,
    /// Times a goroutine's state was set without a record of how the goroutine came to it.
    pub(crate) bridged: u64,
    /// Generations in which lanes waited for records that never came.
    pub(crate) stuck_generations: u64,
    /// Records that were left out because of that.
    pub(crate) stuck_records: u64,
    /// Buffers that could not be read to the end.
    pub(crate) torn: u64,
}
