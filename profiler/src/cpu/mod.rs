//! The CPU profile: which code uses the processors, by samples of each thread's processor time.
//!
//! Every thread of the process is interrupted by a signal each time it has used a period of processor time, 10 ms by
//! default, and counts its stack. Threads that wait cost nothing. Go: `runtime.SetCPUProfileRate`, `sigprof`.
//!
//! | module | contents |
//! |---|---|
//! | `options` | what is asked of a sampling, and its result |
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
//! [`ForkMutex`](rtprof_runtime::lock::fork_safe::ForkMutex).

#[cfg_attr(not(rtprof_supported), allow(dead_code))]
mod current;
mod error;
mod options;
#[cfg(rtprof_supported)]
mod sampler;
mod samples;
mod task_names;

use core::fmt;

pub use error::CpuProfileError;
pub use options::{CpuSamples, CpuSource, MAX_HZ, Options, SampledBy};
pub use samples::CpuCount;

/// A running sampling, until this is dropped.
pub struct Sampler {
    #[cfg(rtprof_supported)]
    running: sampler::Running,
}

/// Starts to sample all threads, including those that begin later. A process can have one sampling at a time. While an
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

#[cfg(all(test, rtprof_supported, not(loom)))]
mod tests;
