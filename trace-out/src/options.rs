//! Options of a trace.

use std::time::Duration;

use rtprof_symbols::symbolizer::Symbolization;
use rtprof_symbols::view::View;

/// Options of a trace. [`Options::default`] suits most programs.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long [`stop`](super::stop) waits for the writer to accept everything; 10 s by default.
    pub drain_timeout: Duration,
    /// Bytes of memory for records that are not encoded yet, at least 1 MiB; 64 MiB by default. Beyond that events are
    /// lost, and [`Stats`](super::Stats) says how many: if a program records faster than the writer accepts, or has too
    /// many threads. A thread that records takes 2 KiB for each second, and 64 KiB more once it has filled these: the
    /// default suffices for ten thousand threads that record little. Encoded data takes at most as much again.
    pub buffer_memory: usize,
    /// Whether and how names of functions are resolved when the trace ends; [`Symbolization::Full`] by default. Without
    /// names a trace has addresses, to which Go's tools add nothing.
    pub symbolization: Symbolization,
    /// Whether stacks include the frames of std between the beginning of a thread and the program's first function; not
    /// by default.
    pub startup_frames: bool,
    /// CPU samples in the trace, per second of a thread's processor time, at most 10,000; 0, the default, for none but
    /// those of a CPU profile: while one is taken, its samples are in the trace too. A profile that starts replaces
    /// these samples by its own, at its own rate; they continue within a second of its end. Go has only the samples of
    /// profiles.
    pub cpu_hz: u32,
}

impl Options {
    pub(super) fn view(&self) -> View {
        View { symbolization: self.symbolization, startup_frames: self.startup_frames }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            drain_timeout: Duration::from_secs(10),
            buffer_memory: 64 << 20,
            symbolization: Symbolization::Full,
            startup_frames: false,
            cpu_hz: 0,
        }
    }
}
