//! Options of a trace.

use std::time::Duration;

use rtprof_symbols::symbolizer::Symbolization;
use rtprof_symbols::view::View;

/// The format of a trace's file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// "go 1.26 trace", which Go 1.26 and later read. It consists of generations, one a second or more, each complete
    /// in itself: a file that was cut off shows all generations but the last one. Times are in units of 64 ns, and
    /// waits have their reasons as texts, as in Go.
    #[default]
    V2,
    /// "go 1.22 trace", the same for Go 1.22 and later. Goroutines that live when the trace begins have no names until
    /// they record a stack.
    V2Go122,
    /// "go 1.19 trace", which all versions of Go since 1.19 read. Its names come at the end, so a file that was cut off
    /// has no names. Times are in units of at most a nanosecond.
    V1,
    /// Perfetto's, which ui.perfetto.dev, Android Studio and trace_processor read, without Go. Times are in
    /// nanoseconds. A file that was cut off shows what is in it.
    ///
    /// A file in another format cannot be converted to this one.
    Perfetto,
}

impl Format {
    /// All formats.
    pub const ALL: &'static [Self] = &[Self::V2, Self::V2Go122, Self::V1, Self::Perfetto];

    /// Returns its name, which [`from_name`](Self::from_name) reads: `v2`, `v2-go1.22`, `v1` or
    /// `perfetto`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::V2Go122 => "v2-go1.22",
            Self::V1 => "v1",
            Self::Perfetto => "perfetto",
        }
    }

    /// Returns the extension of its files: `trace`, or `perfetto-trace`, by which Perfetto's files are known.
    pub const fn file_extension(self) -> &'static str {
        match self {
            Self::V2 | Self::V2Go122 | Self::V1 => "trace",
            Self::Perfetto => "perfetto-trace",
        }
    }

    /// Returns the format of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.name() == name)
    }
}

/// Options of a trace, and of a [`FlightRecorder`](super::FlightRecorder). [`Options::default`] suits most programs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The format of the file; [`Format::V2`] by default.
    pub format: Format,
    /// How long [`stop`](super::stop) waits for the writer to accept everything; 10 s by default.
    pub drain_timeout: Duration,
    /// Bytes of memory for records that are not encoded yet, at least 1 MiB; 64 MiB by default. Beyond that, events are
    /// lost, and [`Stats`](super::Stats) says how many. This happens if a program records faster than the writer
    /// accepts, or has too many threads. A thread that records takes 2 KiB for each second, and 64 KiB more once it has
    /// filled these: the default suffices for ten thousand threads that record little. Encoded data takes at most as
    /// much again.
    pub buffer_memory: usize,
    /// Whether and how names of functions are resolved; [`Symbolization::Full`] by default. Without names a trace has
    /// only addresses, and Go's tools add no names to them. Names are resolved at the end of each generation, but in
    /// the first format (`V1`) at the end of the trace: a program that forbids itself to open files should choose that
    /// format.
    pub symbolization: Symbolization,
    /// Whether stacks include the frames of std between the beginning of a thread and the program's first function; not
    /// by default.
    pub startup_frames: bool,
    /// The number of CPU samples in the trace per second of a thread's processor time, at most 10,000. With 0, the
    /// default, the trace takes no CPU samples itself. While a CPU profile is taken, the profile's samples are in the
    /// trace too. A profile that starts replaces the trace's own samples by the profile's samples, at the profile's
    /// rate; the trace's own samples continue within a second of the profile's end. In Go a trace has only the samples
    /// of profiles.
    pub cpu_hz: u32,
    /// How far back the window of a flight recorder reaches at least, if it does not exceed `max_bytes`; 10 s by
    /// default. A trace has no such limit. Go: `FlightRecorderConfig.MinAge`.
    pub min_age: Duration,
    /// Bytes of the window of a flight recorder, beyond which it drops old generations; 10 MiB by default. The window
    /// may exceed this limit by one generation: by an eighth of the limit, or by up to `buffer_memory` if the program
    /// records faster than one thread encodes. The file has the names of functions in addition. A trace has no such
    /// limit. Go: `FlightRecorderConfig.MaxBytes`.
    pub max_bytes: usize,
}

impl Options {
    pub(super) fn view(&self) -> View {
        View { symbolization: self.symbolization, startup_frames: self.startup_frames, from_program: false }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            format: Format::default(),
            drain_timeout: Duration::from_secs(10),
            buffer_memory: 64 << 20,
            symbolization: Symbolization::Full,
            startup_frames: false,
            cpu_hz: 0,
            min_age: Duration::from_secs(10),
            max_bytes: 10 << 20,
        }
    }
}
