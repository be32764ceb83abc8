//! The CPU profile: which code uses the processors, by samples of each thread's processor time.
//!
//! Every thread of the process is interrupted by a signal each time it has used a period of processor time, 10 ms by
//! default, and counts its stack. Threads that wait cost nothing. Go: `runtime.SetCPUProfileRate`, `sigprof`.
//!
//! | module | contents |
//! |---|---|
//! | `current` | the handlers' access to the current sampling |
//! | `samples`, `task_names` | the counts of samples, and the names of the tasks in which they were taken |
//! | `sampler` | the beginning and the end of a sampling; inside it: |
//! | `perf`, `timer`, `cpu_time` | measuring a thread's time in the kernel, and its notice that a period is over |
//! | `signal`, `event` | the signal in use, and the cause of a signal |
//! | `thread`, `rest` | the weight of a sample, and when none is taken |
//! | `sampling` | the work of threads while they are sampled |
//! | `attach`, `threads` | finding threads, and arranging that they are signalled |
//! | `permit` | the current sampling, and which others may end it |
//!
//! # Locks
//! None in the handler, nor in threads that begin. The thread that stops a sampling receives its samples through a
//! [`ForkMutex`](rtprof_runtime::fork_safe::ForkMutex).

#[cfg_attr(not(rtprof_supported), allow(dead_code))]
mod current;
mod error;
#[cfg(rtprof_supported)]
mod sampler;
mod samples;
mod task_names;

use core::fmt;
use core::time::Duration;

#[cfg(rtprof_supported)]
use rtprof_runtime::goroutine::observer::ThreadObserver;
pub use samples::CpuCount;

pub use error::CpuProfileError;

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

/// A running sampling, until this is dropped.
pub struct Sampler {
    #[cfg(rtprof_supported)]
    running: sampler::Running,
}

/// Starts to sample all threads, including those that begin meanwhile. One sampling at a time in a process. While an
/// execution trace is recorded, every sample that has a stack is in the trace too. Go: `runtime.SetCPUProfileRate`.
///
/// # Errors
/// See [`CpuProfileError`]. After an error nothing of the sampling remains.
pub fn start(options: Options) -> Result<Sampler, CpuProfileError> {
    #[cfg(rtprof_supported)]
    return Ok(Sampler { running: sampler::start(options)? });
    #[cfg(not(rtprof_supported))]
    {
        let _ = options;
        Err(CpuProfileError::Unsupported)
    }
}

/// Returns the means by which threads would be sampled now; `None` on unsupported platforms.
pub fn probe() -> Option<SampledBy> {
    #[cfg(rtprof_supported)]
    return sampler::probe();
    #[cfg(not(rtprof_supported))]
    None
}

impl Sampler {
    /// Returns the means by which threads are sampled.
    pub fn sampled_by(&self) -> &SampledBy {
        #[cfg(rtprof_supported)]
        return self.running.sampled_by();
        #[cfg(not(rtprof_supported))]
        unreachable!("there is none")
    }

    /// Returns whether the sampling is over because another one has replaced it; see [`Options::for_trace`].
    pub fn has_ended(&self) -> bool {
        #[cfg(rtprof_supported)]
        return self.running.has_ended();
        #[cfg(not(rtprof_supported))]
        true
    }

    /// Returns what was sampled so far. The sampling goes on.
    pub fn so_far(&self) -> Vec<CpuCount> {
        #[cfg(rtprof_supported)]
        return self.running.so_far();
        #[cfg(not(rtprof_supported))]
        Vec::new()
    }

    /// Ends the sampling: within milliseconds, and some more where others keep the cores busy (half a second with 256
    /// threads that compute on 2 cores). If a debugger has stopped a thread in the handler, this waits for it for a
    /// second. Returns `None` in a forked child, whose parent samples.
    pub fn stop(self) -> Option<CpuSamples> {
        #[cfg(rtprof_supported)]
        return self.running.stop();
        #[cfg(not(rtprof_supported))]
        None
    }
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").field("sampled_by", self.sampled_by()).finish()
    }
}

#[cfg(rtprof_supported)]
static OBSERVER: ThreadObserver =
    ThreadObserver { began: sampler::sampling::thread_began, forked: sampler::forked };

#[cfg(all(test, rtprof_supported, not(loom)))]
mod tests;
