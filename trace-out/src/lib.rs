//! Execution traces: converts the tracer's records to files that `go tool trace` reads.
//!
//! 1. `order` puts the records of a generation, which are grouped by thread, into an order of cause and effect, and
//!    determines the state of each goroutine where records were lost. It knows no format.
//! 2. `V1` makes events of them in the first of Go's formats, and keeps every rule of Go's tools for these: the tools
//!    reject a whole trace for one event, and do not say which.

#![forbid(unsafe_code)]

/// Asserts a condition that holds unless this crate has a bug. Checked in the tests of this repository, in release
/// builds too, and never in a user's program: ending a service because of a flaw in its trace would be worse than the
/// flaw.
macro_rules! self_check {
    ($($condition:tt)*) => {
        if cfg!(any(test, feature = "self-check")) {
            assert!($($condition)*);
        }
    };
}

mod awaited;
mod dense;
mod error;
#[cfg(test)]
mod go_trace;
mod options;
mod order;
mod reader;
#[cfg(test)]
mod recorded;
mod samples;
mod schedule;
#[cfg(any(test, feature = "self-check"))]
pub mod self_check;
mod session;
#[cfg(test)]
mod simulated;
mod start;
mod stats;
mod v1;
mod varint;

pub use error::TraceError;
pub use options::Options;
pub use reader::Reader;
pub use session::stop;
pub use start::{start, start_with};
pub use stats::Stats;

use order::OrderCounts;
use rtprof_tracer::generation::{Generation, Tables};
use schedule::Unmatched;

/// The clock of a trace's ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) ticks_per_second: u64,
    /// The tick at which the trace begins. No tick is older, except for the skew of the cores' counters.
    pub(crate) start: u64,
}

/// An encoder of a trace format. Each part is complete: a file that ends after any part is readable.
pub(crate) trait Encode {
    /// Appends the beginning of a file.
    fn begin(&mut self, out: &mut Vec<u8>);

    /// Appends a generation.
    fn generation(&mut self, generation: &Generation<'_>, tables: &dyn Tables, out: &mut Vec<u8>);

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
