//! Internal to the crate `rtprof`, whose interface programs use: this one promises no stability.
//!
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
mod encode;
mod encoders;
mod error;
mod flight;
mod numbers;
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

pub use error::TraceError;
pub use flight::{FlightRecorder, LatencyGuard, WindowFiles, WindowOptions};
pub use options::{Format, Options};
pub use reader::Reader;
pub use session::stop;
pub use start::{start, start_with};
pub use stats::Stats;
