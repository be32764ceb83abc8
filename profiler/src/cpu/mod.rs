//! The CPU profile: which code uses the processors, by samples of each thread's processor time.
//!
//! Every thread of the process is interrupted by a signal each time it has used a period of processor time, 10 ms by
//! default, and counts its stack. Threads that wait cost nothing. Go: `runtime.SetCPUProfileRate`, `sigprof`.
//!
//! | module | what it answers |
//! |---|---|
//! | `perf`, `timer`, `cpu_time` | how the kernel measures a thread's time and says that a period is over |
//! | `signal`, `event` | by which signal, and what has caused one |
//! | `thread`, `rest` | what a sample stands for, and when none is taken |
//! | `samples`, `task_names` | where samples are counted, and the names of tasks kept that they were taken in |
//! | `sampling` | what threads do while they are sampled |
//! | `attach`, `threads` | how threads are found, and made to be signalled |
//! | `permit` | which sampling goes on, and for which it ends |
//! | `sampler` | how a sampling begins and ends |
//! | `current` | how handlers find what they use while it goes on |
//!
//! # Locks
//! None in the handler, nor in threads that begin. The one who stops a sampling gets its samples through a
//! [`ForkMutex`](rtprof_runtime::fork_safe::ForkMutex).

#[cfg(rtprof_supported)]
mod attach;
#[cfg(rtprof_supported)]
mod cpu_time;
#[cfg_attr(not(rtprof_supported), allow(dead_code))]
mod current;
mod error;
#[cfg(rtprof_supported)]
mod event;
#[cfg(rtprof_supported)]
mod noted_name;
#[cfg(rtprof_supported)]
mod perf;
#[cfg(rtprof_supported)]
mod permit;
#[cfg(rtprof_supported)]
mod rest;
#[cfg(rtprof_supported)]
mod sampler;
mod samples;
#[cfg(rtprof_supported)]
mod sampling;
#[cfg(rtprof_supported)]
mod signal;
mod task_names;
#[cfg(rtprof_supported)]
mod thread;
#[cfg(rtprof_supported)]
mod threads;
#[cfg(rtprof_supported)]
mod timer;

use core::fmt;
use core::time::Duration;

#[cfg(rtprof_supported)]
use rtprof_runtime::goroutine::observer::ThreadObserver;
pub use samples::CpuCount;

pub use error::CpuProfileError;

/// The most samples in a second of a thread's processor time.
pub const MAX_HZ: u32 = 10_000;

/// By which means threads are to be signalled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CpuSource {
    /// By events of the performance monitor where the kernel lets these count all of a thread's time, else by timers.
    #[default]
    Auto,
    /// By events of the performance monitor. Where the kernel forbids those that count its own time, by those that count time in
    /// user mode only ([`SampledBy::PerfUserOnly`]).
    Perf,
    /// By timers.
    Timers,
}

/// By which means threads are signalled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SampledBy {
    /// Events of the performance monitor, on its software clock: exact at any frequency.
    Perf,
    /// The same, but of what threads do outside the kernel: they have no sample while they are in it, and the first one
    /// after that stands for the time in it as well.
    PerfUserOnly,
    /// Timers of each thread's processor time, which the kernel looks at 100 to 1000 times in a second.
    Timers {
        /// Why events may not be used; `None` if they were not tried.
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

/// How threads are sampled.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Samples in a second of a thread's processor time, at most [`MAX_HZ`].
    pub hz: u32,
    /// By which means.
    pub source: CpuSource,
    /// Whether the samples of each thread are counted apart.
    pub by_thread: bool,
    /// Whether they are for the execution trace alone. They are not counted then, and the sampling ends when another one
    /// starts that is not for a trace: the trace has that one's samples.
    pub for_trace: bool,
}

/// What was sampled.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CpuSamples {
    /// How often each stack was found.
    pub counts: Vec<CpuCount>,
    /// The processor time that a sample stands for.
    pub period_nanos: u64,
    /// For how long threads were sampled.
    pub duration: Duration,
    /// By which means.
    pub sampled_by: SampledBy,
    /// Names of threads, by the kernel's numbers; empty unless they were counted apart.
    pub names: Vec<(u32, String)>,
    /// What a reader should know.
    pub remarks: Vec<String>,
}

/// A sampling that goes on, until this is dropped.
pub struct Sampler {
    #[cfg(rtprof_supported)]
    running: sampler::Running,
}

/// Starts to sample all threads, those that begin meanwhile included. One sampling at a time in a process. While an execution
/// trace is recorded, every sample that has a stack is in it too. Go:
/// `runtime.SetCPUProfileRate`.
///
/// # Errors
/// See [`CpuProfileError`]. Nothing of the sampling is left then.
pub fn start(options: Options) -> Result<Sampler, CpuProfileError> {
    #[cfg(rtprof_supported)]
    return Ok(Sampler { running: sampler::start(options)? });
    #[cfg(not(rtprof_supported))]
    {
        let _ = options;
        Err(CpuProfileError::Unsupported)
    }
}

/// By which means threads would be sampled now; `None` on platforms where they cannot be.
pub fn probe() -> Option<SampledBy> {
    #[cfg(rtprof_supported)]
    return sampler::probe();
    #[cfg(not(rtprof_supported))]
    None
}

impl Sampler {
    /// By which means threads are sampled.
    pub fn sampled_by(&self) -> &SampledBy {
        #[cfg(rtprof_supported)]
        return self.running.sampled_by();
        #[cfg(not(rtprof_supported))]
        unreachable!("there is none")
    }

    /// Whether it is over, because another one has taken its place; see [`Options::for_trace`].
    pub fn has_ended(&self) -> bool {
        #[cfg(rtprof_supported)]
        return self.running.has_ended();
        #[cfg(not(rtprof_supported))]
        true
    }

    /// Ends it: within milliseconds, and some more where others keep the cores busy (half a second with 256 threads that compute
    /// on 2 cores). A thread that a debugger has stopped in the handler is waited for for a second. `None` in a forked child,
    /// whose parent samples.
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
static OBSERVER: ThreadObserver = ThreadObserver { began: sampling::thread_began, forked: sampler::forked };

#[cfg(all(test, rtprof_supported, not(loom)))]
mod tests;
