//! A trace of many events, from its start to its last byte.

use std::time::Instant;

use rtprof::trace::{Format, Options};

use crate::event::{self, Events};
use crate::memory::peak;
use crate::recording::Recording;

/// Records so many events as fast as one thread can, with the default options, while another thread reads. Returns the
/// events, their bytes in the buffers and in the file, events dropped and omitted, generations, the maximum number of
/// bytes by which the process grew, and seconds: of recording, until the stop returned, and of processor time of the
/// reader.
pub(crate) fn timed(events: &Events, format: Format, count: usize) -> [f64; 9] {
    let before = peak();
    let start = Instant::now();
    let recording = Recording::start(Options { format, ..Options::default() });
    // One pair is two events, and the warm-up adds an eighth.
    events.timed(event::kind("pair"), (0, 4), 1, count * 4 / 9);
    let recorded = start.elapsed();
    let (stats, reading) = recording.stop();
    let stopped = start.elapsed();
    [
        stats.events as f64,
        stats.recorded_bytes as f64,
        stats.bytes as f64,
        (stats.dropped_events + stats.omitted_events) as f64,
        stats.generations as f64,
        (peak() - before) as f64,
        recorded.as_secs_f64(),
        stopped.as_secs_f64(),
        reading,
    ]
}
