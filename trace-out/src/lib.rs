//! Execution traces: converts the tracer's records to files that `go tool trace` or Perfetto reads.
//!
//! 1. `order` puts the records of a generation, which are grouped by thread, into an order of cause and effect, and
//!    determines the state of each goroutine where records were lost. It knows no format.
//! 2. `schedule` makes events of them: goroutines that run on Ps, wait and wake each other. It keeps every rule of Go's
//!    tools: they reject a whole trace for one event, and do not say which.
//! 3. `v1` and `v2` write the events in the two formats of Go, `perfetto` as slices and arrows in the one of Perfetto.
//!
//! `recording` is what a trace ([`Reader`]) and a [`FlightRecorder`] share.

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
mod flight;
mod options;
mod order;
mod perfetto;
mod reader;
#[cfg(test)]
mod recorded;
mod recording;
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
mod v2;
mod varint;

pub use error::TraceError;
pub use flight::{FlightRecorder, LatencyGuard, WindowFiles, WindowOptions};
pub use options::{Format, Options};
pub use reader::Reader;
pub use session::stop;
pub use start::{start, start_with};
pub use stats::Stats;

use order::OrderCounts;
use perfetto::Perfetto;
use rtprof_symbols::view::View;
use rtprof_tracer::generation::{Generation, Tables};
use schedule::Unmatched;
use v1::V1;
use v2::{V2, Version};

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

/// Returns the encoder of a format, of a trace of a program in which `procs` threads can run at once.
pub(crate) fn encoder(format: Format, clock: Clock, procs: u32, view: View) -> Box<dyn Encode + Send + Sync> {
    match format {
        Format::V1 => Box::new(V1::new(clock, procs, view)),
        Format::Perfetto => Box::new(Perfetto::new(clock, view)),
        Format::V2 => Box::new(V2::new(Version::Go126, clock, procs, view)),
        Format::V2Go122 => Box::new(V2::new(Version::Go122, clock, procs, view)),
    }
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
