//! Work whose processor time is known, and profiles of it.

use std::io::Write;
use std::sync::{Arc, Mutex};

use rtprof::pprof::{self, CpuProfileOptions, CpuProfileStats, CpuSource};
use test_support::profile::{Profile, Sample};

pub(crate) const SOURCES: [CpuSource; 2] = [CpuSource::Perf, CpuSource::Timers];

/// Returns options for sampling by `source`.
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

/// Takes the CPU profile of `work`.
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

/// Returns the samples and the nanoseconds of all these.
pub(crate) fn sum<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> (i64, i64) {
    samples
        .into_iter()
        .fold((0, 0), |(count, nanos), sample| (count + sample.values[0], nanos + sample.values[1]))
}

/// Returns the samples that contain this function, and the samples for time in which timers did not find their thread
/// running: on a busy machine the kernel's ticks seldom hit a thread.
pub(crate) fn samples_and_missed(profile: &Profile, function: &str) -> i64 {
    samples_of(profile, function) + samples_of(profile, "cpu_time_not_sampled")
}

/// Returns the samples that contain this function.
pub(crate) fn samples_of(profile: &Profile, function: &str) -> i64 {
    sum(&profile.samples_of(function)).0
}
