//! Work whose processor time is known, and the profile of it.

use std::io::Write;
use std::sync::{Arc, Mutex};

use rtprof::pprof::{self, CpuProfileOptions, CpuProfileStats, CpuSource};

use crate::support::profile::{Profile, Sample};

pub(crate) const SOURCES: [CpuSource; 2] = [CpuSource::Perf, CpuSource::Timers];

/// Options of a sampling by `source`.
pub(crate) fn by(source: CpuSource, hz: u32) -> CpuProfileOptions {
    CpuProfileOptions { hz, source, ..CpuProfileOptions::default() }
}

/// A writer whose bytes can be read.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    pub(crate) fn profile(&self) -> Profile {
        let profile = Profile::read(&self.0.lock().unwrap());
        profile.check();
        profile
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The CPU profile of what `work` does.
pub(crate) fn profiled<T>(
    options: CpuProfileOptions,
    work: impl FnOnce() -> T,
) -> (T, Profile, CpuProfileStats) {
    let bytes = Shared::default();
    pprof::start_cpu_profile_with(bytes.clone(), options).expect("it starts");
    let result = work();
    let stats = pprof::stop_cpu_profile().expect("it stops");
    (result, bytes.profile(), stats)
}

/// Samples and nanoseconds of all these.
pub(crate) fn sum<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> (i64, i64) {
    samples
        .into_iter()
        .fold((0, 0), |(count, nanos), sample| (count + sample.values[0], nanos + sample.values[1]))
}

/// Samples in which this function is, and those of time for which timers have not found their thread running: on a machine
/// that others keep busy the kernel's ticks meet it seldom.
pub(crate) fn samples_and_missed(profile: &Profile, function: &str) -> i64 {
    samples_of(profile, function) + samples_of(profile, "cpu_time_not_sampled")
}

/// Samples in which this function is.
pub(crate) fn samples_of(profile: &Profile, function: &str) -> i64 {
    sum(&profile.samples_of(function)).0
}
