//! Execution traces for `go tool trace`, or for Perfetto: what each thread and each async task did, with a time
//! resolution of 64 ns. Go: package `runtime/trace`.
//!
//! ```no_run
//! use std::fs::File;
//! use rtprof::trace;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! trace::start(File::create("trace.out")?)?;
//! trace::with_region("parse", || { /* … */ });
//! let stats = trace::stop()?;
//! println!("{} events in {} bytes", stats.events, stats.bytes);
//! # Ok(())
//! # }
//! ```
//!
//! View the file with `go tool trace trace.out`, or a file in `Format::Perfetto` at <https://ui.perfetto.dev>. While
//! nothing is recorded, each of these functions costs a load or two.

pub use rtprof_hooks::trace::{WaitKind, syscall, wait};
#[cfg(feature = "pprof")]
pub use rtprof_trace_out::{
    FlightRecorder, Format, LatencyGuard, Options, Reader, Stats, TraceError, WindowFiles, WindowOptions,
    start, start_with, stop,
};
pub use rtprof_tracer::{Entered, Region, Task, is_enabled, log, start_region, with_region};
