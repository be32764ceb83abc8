//! CPU samples that a trace requests.

use rtprof_profiler::cpu::{self, CpuProfileError, CpuSource, Sampler};

/// Keeps threads sampled, by this sampler or by a CPU profile, until it is dropped.
#[derive(Debug)]
pub(super) struct Samples {
    hz: u32,
    /// `None` while a profile samples.
    sampler: Option<Sampler>,
}

impl Samples {
    /// Starts to sample, at this rate. Returns `None` if it is 0.
    pub(super) fn start(hz: u32) -> Result<Option<Self>, CpuProfileError> {
        if hz == 0 {
            return Ok(None);
        }
        Ok(Some(Self { hz, sampler: sampler(hz)? }))
    }

    /// Resumes sampling if a profile has replaced this sampler and has ended. Must be called regularly.
    pub(super) fn go_on(&mut self) {
        if self.sampler.as_ref().is_none_or(Sampler::has_ended) {
            // An error may be temporary, as a running profile is.
            self.sampler = sampler(self.hz).unwrap_or_default();
        }
    }
}

/// Returns `None` while a profile samples.
fn sampler(hz: u32) -> Result<Option<Sampler>, CpuProfileError> {
    let options = cpu::Options { hz, source: CpuSource::Auto, by_thread: false, for_trace: true };
    match cpu::start(options) {
        Ok(sampler) => Ok(Some(sampler)),
        Err(CpuProfileError::AlreadyStarted) => Ok(None),
        Err(error) => Err(error),
    }
}
