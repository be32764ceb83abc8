//! What every encoder of a trace format does.

use rtprof_tracer::generation::{Generation, Tables};

use crate::order::OrderCounts;
use crate::schedule::Unmatched;

/// The clock of a trace's ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) ticks_per_second: u64,
    /// The tick at which the trace begins. No tick is older, except for the skew of the cores' counters.
    pub(crate) start: u64,
}

/// An encoder of a trace format. A file that ends after any part is readable.
pub(crate) trait Encode {
    /// Appends the beginning of a file.
    fn begin(&mut self, out: &mut Vec<u8>);

    /// Encodes the records of a generation. [`end_generation`](Self::end_generation) must follow.
    fn generation(&mut self, generation: &Generation<'_>, tables: &dyn Tables, out: &mut Vec<u8>);

    /// Appends the rest of the generation, with the names of functions if the format has them here. It may take seconds
    /// to find these, and the records are no longer needed, so that their buffers can be used again.
    fn end_generation(&mut self, tables: &dyn Tables, out: &mut Vec<u8>);

    /// Appends the end of a file, which includes the names of functions; the trace ends at `tick`. `tables` must still
    /// know all ids that it ever assigned.
    fn end(&mut self, tick: u64, tables: &dyn Tables, out: &mut Vec<u8>);

    /// Returns the counts so far.
    fn counts(&self) -> Counts;
}

/// Counts of the encoder's events, and of records that it could not use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Events written.
    pub(crate) events: u64,
    /// Records from which they were made, and irregularities in their order.
    pub(crate) order: OrderCounts,
    /// Records of ends without a beginning, or of no goroutine, which are not shown.
    pub(crate) unmatched: Unmatched,
    /// Addresses whose debug information was not read in time.
    pub(crate) unnamed_addresses: u64,
}
