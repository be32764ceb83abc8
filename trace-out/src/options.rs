//! How a trace is recorded.

use std::time::Duration;

use rtprof_symbols::symbolizer::Symbolization;
use rtprof_symbols::view::View;

/// How a trace is recorded. [`Options::default`] is right for most.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long [`stop`](super::stop) waits for the writer to take everything; 10 s by default.
    pub drain_timeout: Duration,
    /// Bytes of memory for what was recorded and is not encoded yet, at least 1 MiB; 64 MiB by default. Beyond that events
    /// are lost, and [`Stats`](super::Stats) says how many: where a program records faster than the writer takes, or has
    /// too many threads. One that records takes 2 KiB for each second, and 64 KiB more once it has filled these: the
    /// default is enough for ten thousand threads that do little. What was encoded takes as much again at most.
    pub buffer_memory: usize,
    /// Who finds the names of functions, when the trace ends; [`Symbolization::Full`] by default. Where they are not found
    /// a trace has addresses, to which Go's tools add nothing.
    pub symbolization: Symbolization,
    /// Whether stacks have the frames that std runs between the beginning of a thread and the program's first function;
    /// not by default.
    pub startup_frames: bool,
    /// Samples of the processor in the trace, in a second of a thread's processor time, at most 10,000; 0, the default, for
    /// none but those of a CPU profile: while one is taken, its samples are in the trace too. A profile that starts takes the
    /// place of these samples with its own, at its own rate; they go on within a second of its end. Go has those of
    /// profiles only.
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
