//! What is asked of a sampling, and its result.

use core::fmt;
use core::time::Duration;

use super::samples::CpuCount;

/// The maximum number of samples per second of a thread's processor time.
pub const MAX_HZ: u32 = 10_000;

/// The requested means by which threads are signalled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CpuSource {
    /// By events of the performance monitor where the kernel lets these count all of a thread's time, else by timers.
    #[default]
    Auto,
    /// By events of the performance monitor. Where the kernel forbids events that count its own time, by events that
    /// count time in user mode only ([`SampledBy::PerfUserOnly`]).
    Perf,
    /// By timers.
    Timers,
}

/// The actual means by which threads are signalled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SampledBy {
    /// Events of the performance monitor, on its software clock: exact at any frequency.
    Perf,
    /// The same, but only for time outside the kernel: threads have no sample while they are in the kernel, and the
    /// first sample after that includes the time in it.
    PerfUserOnly,
    /// Timers of each thread's processor time, which the kernel checks 100 to 1000 times per second.
    Timers {
        /// Why events are not available; `None` if they were not tried.
        refused: Option<String>,
    },
}

impl fmt::Display for SampledBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Perf => f.write_str("perf_event_open, software clock"),
            Self::PerfUserOnly => {
                f.write_str("perf_event_open, software clock, outside the kernel only (perf_event_paranoid)")
            }
            Self::Timers { refused: None } => f.write_str("timers of each thread"),
            Self::Timers { refused: Some(error) } => {
                write!(f, "timers of each thread; perf_event_open: {error}")
            }
        }
    }
}

/// The options of a sampling.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Samples per second of a thread's processor time, at most [`MAX_HZ`].
    pub hz: u32,
    /// The means by which threads are signalled.
    pub source: CpuSource,
    /// Whether the samples of each thread are counted separately.
    pub by_thread: bool,
    /// Whether the samples are for the execution trace only. They are not counted then, and this sampling ends when
    /// another one starts that is not for a trace: the trace receives the samples of that one.
    pub for_trace: bool,
}

/// The result of a sampling.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CpuSamples {
    /// How often each stack was found.
    pub counts: Vec<CpuCount>,
    /// The processor time that a sample stands for.
    pub period_nanos: u64,
    /// How long threads were sampled.
    pub duration: Duration,
    /// The means by which threads were signalled.
    pub sampled_by: SampledBy,
    /// Names of threads, by the kernel's ids; empty unless threads were counted separately.
    pub names: Vec<(u32, String)>,
    /// Remarks for the reader.
    pub remarks: Vec<String>,
}
