//! A flight recorder that is always on.

use std::fs;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use rtprof::pprof::Symbolization;
use rtprof::trace::{FlightRecorder, Options, Stats};

use crate::{memory, pool};

/// Starts a flight recorder with the default options.
pub(crate) fn start() -> FlightRecorder {
    let flight = FlightRecorder::new(Options::default());
    flight.start().expect("no other one is enabled");
    flight
}

/// Stops it. Returns what it has recorded.
pub(crate) fn stop(flight: &FlightRecorder) -> Stats {
    // Ends the generation: before that it is not in the statistics.
    flight.write_with(Sink, Symbolization::None).expect("it takes everything");
    let stats = flight.stats();
    flight.stop();
    stats
}

/// Runs the pool of `pool.rs` for so long with a flight recorder, and writes its window twice. Returns the events, their
/// bytes in the buffers, events dropped and omitted, the bytes of the window in memory and in the file, the bytes by
/// which the process grew at most while it recorded, and nanoseconds: of recording, of processor time of the recorder's
/// thread for each event, and of writing the window the first and the second time.
pub(crate) fn timed(nanos: usize, time: Duration) -> [f64; 10] {
    pool::run(nanos, Duration::from_millis(100));
    let before = memory::peak();
    let flight = start();
    let begun = Instant::now();
    pool::run(nanos, time);
    // The events of the last generation are not encoded yet, and not in these statistics.
    let (took, used, encoded) = (begun.elapsed(), used_by("rtprof-flight"), flight.stats().events);
    let peak = memory::peak();
    let mut file = 0;
    let mut write = || {
        let begun = Instant::now();
        file = flight.write_to(Sink).expect("it takes everything");
        begun.elapsed().as_nanos() as f64
    };
    let writes = [write(), write()];
    let stats = stop(&flight);
    [
        stats.events as f64,
        stats.recorded_bytes as f64,
        (stats.dropped_events + stats.omitted_events) as f64,
        stats.bytes as f64,
        file as f64,
        (peak - before) as f64,
        took.as_nanos() as f64,
        used as f64 / encoded as f64,
        writes[0],
        writes[1],
    ]
}

struct Sink;

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the nanoseconds of processor time of the thread of this name.
fn used_by(name: &str) -> u64 {
    let threads = fs::read_dir("/proc/self/task").expect("benchmarks run on Linux");
    let is_it = |folder: &std::path::Path| {
        fs::read_to_string(folder.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let folder = threads.flatten().map(|thread| thread.path()).find(|folder| is_it(folder));
    let text = fs::read_to_string(folder.expect("the thread lives").join("schedstat")).expect("it lives");
    text.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("a number")
}
