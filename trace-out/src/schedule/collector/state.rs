//! The events of a collector that the program embeds, and those of its activities that the whole trace has once.

use rtprof_tracer::record::StwReason;

use crate::schedule::reason::Reason;

/// An event of the collector, on a P.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CollectorEvent {
    /// The goroutine stops the world.
    StopBegin { reason: Reason, text: u64 },
    /// The world runs again.
    StopEnd,
    /// A collection begins, with the number of collections before it.
    CollectionBegin { number: u64, stack: u64 },
    /// The collection ends.
    CollectionEnd,
    /// A collection is in progress, at the beginning of a part of the trace.
    CollectionActive,
    /// The P begins to sweep.
    SweepBegin { stack: u64 },
    /// The P has swept, in bytes.
    SweepEnd { swept: u64, reclaimed: u64 },
    /// The P sweeps, at the beginning of a part of the trace.
    SweepActive,
    /// The goroutine begins to help the collector.
    AssistBegin { stack: u64 },
    /// The goroutine has helped the collector.
    AssistEnd,
}

/// The collection and the stop of the world that are open, if any. Sweeps belong to Ps, and assists to goroutines.
pub(in crate::schedule) struct CollectorState {
    pub(super) has_collection: bool,
    /// The number of collections so far.
    pub(super) collections: u64,
    /// The tick at which the last collection began or ended.
    pub(super) collection_tick: u64,
    /// The goroutine that has stopped the world.
    pub(super) stop_of: Option<u32>,
    /// The tick at which the last stop began or ended.
    pub(super) stop_tick: u64,
    pub(super) stop_reason: StwReason,
    /// The goroutine whose stop of the world was ended with the last part, and goes on in the next.
    pub(super) interrupted_stop: Option<u32>,
}

impl CollectorState {
    /// Nothing is open, and all ticks will be after `start`.
    pub(in crate::schedule) fn new(start: u64) -> Self {
        Self {
            has_collection: false,
            collections: 0,
            collection_tick: start,
            stop_of: None,
            stop_tick: start,
            stop_reason: StwReason::MarkTermination,
            interrupted_stop: None,
        }
    }
}
