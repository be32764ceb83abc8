//! Errors of traces.

use std::fmt;
use std::io;

use rtprof_profiler::cpu::{CpuProfileError, MAX_HZ};
use rtprof_tracer::drain::StartError;

use super::{Format, Stats};

/// Why a trace was not started, or not written completely.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceError {
    /// A trace is being recorded, or has ended but was not stopped yet.
    AlreadyStarted,
    /// No trace is being recorded.
    NotStarted,
    /// The writer did not accept everything within [`Options::drain_timeout`](super::Options::drain_timeout). It may
    /// still be writing; no other trace can be started until it is done.
    WriterStalled(Box<Stats>),
    /// The data of a trace that has ended is still being written or read.
    WriterBusy,
    /// The writer failed, and recording ended there. The trace consists of what it had accepted before.
    Write(io::Error, Box<Stats>),
    /// A flight recorder is enabled already.
    FlightEnabled,
    /// The flight recorder is not enabled.
    FlightDisabled,
    /// A flight recorder cannot have this format, because a reader has to know a file in this format from its
    /// beginning.
    FlightFormat(Format),
    /// This process was forked while its parent recorded a trace.
    Forked,
    /// The system grants no memory for buffers (address-space limit?).
    NoMemory,
    /// The system cannot start a thread to write the trace.
    NoThread(io::Error),
    /// [`Options::cpu_hz`](super::Options::cpu_hz) requests CPU samples, but they are not available for this reason.
    CpuSamples(CpuProfileError),
    /// Traces are supported only on Linux on x86-64 and aarch64.
    Unsupported,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyStarted => {
                f.write_str("execution tracer already enabled; trace::stop ends the trace that goes on")
            }
            Self::NotStarted => f.write_str("no trace is being recorded; trace::start begins one"),
            Self::WriterStalled(stats) => write!(
                f,
                "the trace's writer has not taken everything in time ({} bytes so far), or the names of functions were not \
                 found in time; give it longer with Options::drain_timeout, or a writer that does not block",
                stats.bytes
            ),
            Self::WriterBusy => f.write_str(
                "the writer of the trace before has not returned yet; a trace can begin when it has",
            ),
            Self::FlightEnabled => f.write_str(
                "cannot enable an enabled flight recorder; FlightRecorder::current returns it, and its stop ends it",
            ),
            Self::FlightDisabled => f.write_str(
                "the flight recorder is not enabled; FlightRecorder::start enables it",
            ),
            Self::FlightFormat(format) => write!(
                f,
                "a flight recorder cannot write the format {}, which has no windows; choose {}",
                format.name(),
                Format::V2.name(),
            ),
            Self::Write(error, stats) => {
                write!(f, "the trace's writer failed after {} bytes: {error}", stats.bytes)
            }
            Self::Forked => f.write_str(
                "this process was forked while its parent recorded a trace; start traces before exec only where \
                 none went on at the fork",
            ),
            Self::NoMemory => {
                f.write_str("no memory for the trace's buffers; raise the address-space limit")
            }
            Self::NoThread(error) => write!(f, "no thread to write the trace: {error}"),
            Self::CpuSamples(CpuProfileError::InvalidRate(hz)) => write!(
                f,
                "{hz} samples a second cannot be taken; choose a cpu_hz from 1 to {MAX_HZ}, or 0 for none",
            ),
            Self::CpuSamples(error) => write!(f, "no CPU samples for the trace (cpu_hz): {error}"),
            Self::Unsupported => f.write_str("traces are recorded on Linux on x86-64 and aarch64 only"),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Write(error, _) | Self::NoThread(error) => Some(error),
            Self::CpuSamples(error) => Some(error),
            _ => None,
        }
    }
}

impl From<StartError> for TraceError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Forked => Self::Forked,
            StartError::NoMemory => Self::NoMemory,
            StartError::Unsupported => Self::Unsupported,
            _ => Self::AlreadyStarted,
        }
    }
}
