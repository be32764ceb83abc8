//! Execution traces: from the tracer's records to files that `go tool trace` reads.
//!
//! 1. `order` puts the records of a generation, which stand thread by thread, into an order of cause and effect, and
//!    says what has become of each goroutine where records were lost. It knows no format.
//! 2. `V1` makes events of them in the first of Go's formats, and keeps every rule that Go's tools have for
//!    these: they refuse a whole trace for one event, and do not say which.

#![forbid(unsafe_code)]

/// What holds unless this crate has a bug. Asked in the tests of this repository, in release builds too, and never in a
/// user's program: to end a service for a flaw in its trace would be worse than the flaw.
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
#[cfg(any(test, feature = "self-check"))]
pub mod self_check;
mod session;
#[cfg(test)]
mod simulated;
mod start;
mod stats;
mod v1;

pub use error::TraceError;
pub use options::Options;
pub use reader::Reader;
pub use session::stop;
pub use start::{start, start_with};
pub use stats::Stats;

use rtprof_tracer::generation::{Generation, Tables};

/// The clock of a trace's ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) ticks_per_second: u64,
    /// The tick at which the trace begins. None is older, but for the skew of the cores' counters.
    pub(crate) start: u64,
}

/// A format of traces. Each part is whole: a file that ends after one is readable.
pub(crate) trait Encode {
    /// Appends what a file begins with.
    fn begin(&mut self, out: &mut Vec<u8>);

    /// Appends a generation.
    fn generation(&mut self, generation: &Generation<'_>, tables: &dyn Tables, out: &mut Vec<u8>);

    /// Appends what a file ends with, the names of functions among it; the trace ends at `tick`. `tables` must still
    /// know all ids that it ever gave.
    fn end(&mut self, tick: u64, tables: &dyn Tables, out: &mut Vec<u8>);

    /// What has come of it so far.
    fn counts(&self) -> Counts;
}

/// What an encoder has made of the records, and what it could make nothing of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Events written.
    pub(crate) events: u64,
    /// Records that led to them.
    pub(crate) records: u64,
    /// Records whose tick was not after their cause's, and was moved.
    pub(crate) lifted: u64,
    /// By how many ticks at most.
    pub(crate) largest_lift: u64,
    /// Records left out, after a loss, since what they tell was over already or is about unknown goroutines.
    pub(crate) stale: u64,
    /// How often it is in no record how a goroutine came to the state that it is in.
    pub(crate) bridged: u64,
    /// Generations with records that waited for others which never came.
    pub(crate) stuck_generations: u64,
    /// Records left out because of that.
    pub(crate) stuck_records: u64,
    /// Buffers that could not be read to their end.
    pub(crate) torn: u64,
    /// Ends of regions that had not begun in the trace.
    pub(crate) unmatched_region_ends: u64,
    /// Other ends of what had not begun, and beginnings that no goroutine has made.
    pub(crate) unmatched: u64,
    /// Addresses whose debug information was not read in time.
    pub(crate) unnamed_addresses: u64,
}
