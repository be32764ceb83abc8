//! Statistics of a trace.

use std::time::Duration;

use rtprof_runtime::clock;
use rtprof_tracer::drain;

use crate::encode::Counts;

/// Counts of what was recorded in a trace, and of what was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes of the trace that the writer has accepted.
    pub bytes: u64,
    /// Events that were recorded. The trace has more, because the format requires additional ones.
    pub events: u64,
    /// Bytes that the events took in the buffers.
    pub recorded_bytes: u64,
    /// Cuts at which the buffers were emptied: one a second, or more if there were many events.
    pub generations: u64,
    /// Events that are not in the trace, because no buffer was free: the writer is too slow, or
    /// [`Options::buffer_memory`](super::Options::buffer_memory) too small.
    pub dropped_events: u64,
    /// Times a thread found no buffer free.
    pub dropped_buffers: u64,
    /// Events without a stack, because there were more than 65,536 distinct ones.
    pub dropped_stacks: u64,
    /// Names of regions, tasks and categories that are empty, because there were more than 65,536 distinct ones.
    pub dropped_names: u64,
    /// Regions dropped on a goroutine other than the one that started them: they end with the goroutine that started
    /// them.
    pub foreign_region_ends: u64,
    /// Collections and stops of the world that began during another one, and are not in the trace.
    pub concurrent_collections: u64,
    /// Events that seemed older than their cause, by the clocks of two cores, and were moved to a time after it.
    pub lifted_events: u64,
    /// The largest such move.
    pub largest_lift: Duration,
    /// Events that were left out because they fit nowhere: ends of regions that began before the trace or had ended
    /// with an outer one, ends of a sweep in which its thread has waited, and events that depend on dropped ones.
    pub omitted_events: u64,
    /// Addresses of functions without a name in the trace, because their debug information was not read in time: it
    /// lies on a mount that does not answer.
    pub unnamed_addresses: u64,
    /// From start to stop.
    pub duration: Duration,
}

impl Stats {
    pub(super) fn count(&mut self, counts: drain::Counts) {
        self.events = counts.records;
        self.recorded_bytes = counts.bytes;
        self.generations = counts.generations;
        self.dropped_events = counts.lost_events;
        self.dropped_buffers = counts.lost_buffers;
        self.dropped_stacks = counts.lost_stacks;
        self.dropped_names = counts.lost_names;
        self.foreign_region_ends = counts.foreign_region_ends;
        self.concurrent_collections = counts.concurrent_collections;
    }

    pub(super) fn count_encoded(&mut self, counts: Counts) {
        let Counts { order, unmatched, unnamed_addresses, .. } = counts;
        self.lifted_events = order.lifted;
        self.largest_lift = time_of(order.largest_lift);
        self.omitted_events = order.stale + order.stuck_records + unmatched.region_ends + unmatched.others;
        self.unnamed_addresses = unnamed_addresses;
    }
}

/// Returns the time that this many ticks take.
pub(super) fn time_of(ticks: u64) -> Duration {
    let nanos = u128::from(ticks) * u128::from(clock::NANOS) / u128::from(clock::ticks_per_second());
    Duration::from_nanos(nanos as u64)
}
