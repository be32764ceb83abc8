//! The errors of a CPU profile.

use std::fmt;
use std::io;

use super::options::MAX_HZ;

/// The reason why a CPU profile was not started, or not written completely.
#[derive(Debug)]
#[non_exhaustive]
pub enum CpuProfileError {
    /// The rate is not from 1 to 10,000.
    InvalidRate(u32),
    /// A CPU profile is being taken.
    AlreadyStarted,
    /// No CPU profile is being taken.
    NotStarted,
    /// The kernel does not permit perf_event_open, and the options allow no other source.
    NoPerf(io::Error),
    /// The kernel permits neither perf_event_open nor timers.
    NoSource {
        /// Why perf_event_open failed; `None` if the options select timers.
        perf: Option<io::Error>,
        /// Why timers failed.
        timers: io::Error,
    },
    /// The program has handlers for all usable signals.
    NoSignal,
    /// The program does not allow signals to its threads, or rtprof is part of a shared library.
    SignalsOff,
    /// The profile belongs to the parent of this process; or this process was forked at the instant in which a profile
    /// began or ended in the parent.
    Forked,
    /// The kernel grants no memory for the samples (address-space limit?).
    NoMemory,
    /// The system grants no thread for the sampler.
    NoThread(io::Error),
    /// The writer failed. What it has received is not a complete profile.
    Write(io::Error),
    /// The writer did not take everything in time, and may still be running.
    WriterStalled,
    /// The writer of the previous profile has not returned yet.
    WriterBusy,
    /// CPU profiles are supported only on Linux on x86-64 and aarch64.
    Unsupported,
}

impl fmt::Display for CpuProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidRate(hz) => {
                write!(f, "{hz} samples a second cannot be taken; choose an hz from 1 to {MAX_HZ}")
            }
            Self::AlreadyStarted => f.write_str(
                "cpu profiling already in use; end that profile with stop_cpu_profile, or wait for /debug/pprof/profile",
            ),
            Self::NotStarted => f.write_str("no CPU profile is being taken; start_cpu_profile begins one"),
            Self::NoPerf(error) => write!(
                f,
                "the kernel does not permit perf_event_open: {error}; lower kernel.perf_event_paranoid to 2 or less, \
                 allow it in the seccomp filter, or use timers (CpuSource::Auto)"
            ),
            Self::NoSource { perf, timers } => {
                write!(f, "the kernel gives no timers: {timers}; RLIMIT_SIGPENDING or a seccomp filter may be why")?;
                match perf {
                    Some(error) => write!(f, "; and it does not permit perf_event_open: {error}"),
                    None => Ok(()),
                }
            }
            Self::NoSignal => f.write_str(
                "the program has handlers for SIGURG, SIGWINCH, SIGPROF, SIGSTKFLT and SIGVTALRM; leave one of them to rtprof",
            ),
            Self::SignalsOff => f.write_str(
                "threads may not be signalled, as in a shared library by default; set_thread_signals(true) permits it",
            ),
            Self::Forked => f.write_str(
                "it is the parent of this process that takes this CPU profile, or was about to when this process was forked; \
                 use CpuCapture here, which is this process's own",
            ),
            Self::NoMemory => f.write_str("no memory for the samples; raise the address-space limit"),
            Self::NoThread(error) => write!(f, "no thread to look after the samples: {error}"),
            Self::Write(error) => write!(f, "the CPU profile's writer failed: {error}"),
            Self::WriterStalled => f.write_str(
                "the CPU profile's writer has not taken everything in time; give it longer with \
                 CpuProfileOptions::drain_timeout, or a writer that does not block",
            ),
            Self::WriterBusy => f.write_str(
                "the writer of the CPU profile before has not returned yet; another can begin when it has",
            ),
            Self::Unsupported => f.write_str("CPU profiles are taken on Linux on x86-64 and aarch64 only"),
        }
    }
}

impl std::error::Error for CpuProfileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Write(error) | Self::NoThread(error) | Self::NoPerf(error) => Some(error),
            Self::NoSource { timers, .. } => Some(timers),
            _ => None,
        }
    }
}
