//! Measures how fast recorded data is read back and encoded, by one thread, while nothing else runs.

use std::thread;
use std::time::{Duration, Instant};

use rtprof::trace::{Format, Options, Reader};
use rtprof_benches::team::{Placement, Team};

use crate::event::{self, Events};
use crate::job;

/// Records so many operations into buffers, and then reads them. Returns the number of records, their bytes in the
/// buffers and in the file, nanoseconds of reading, events dropped, and nanoseconds for the names, which are looked up
/// once: those of a short trace before.
pub(crate) fn timed(events: &Events, team: &Team, what: (Format, &str), count: usize) -> [f64; 6] {
    let [.., names, _] = read(events, team, what, 100);
    let [records, recorded, chunk, nanos, dropped] = read(events, team, what, count);
    [records, recorded, chunk, nanos, dropped, names]
}

fn read(events: &Events, team: &Team, (format, what): (Format, &str), count: usize) -> [f64; 5] {
    let mut reader = Reader::start_with(Options { format, buffer_memory: 512 << 20, ..Options::default() })
        .expect("no trace goes on");
    let begun = Instant::now();
    match what {
        "regions" => {
            events.timed(event::kind("pair"), (0, 4), 1, count);
        }
        "channel" => {
            job::of("channel")(team, Placement::OneCore, count);
        }
        other => panic!("unknown records {other}"),
    }
    // The beginning that every file has.
    reader.read_chunk().expect("a trace has begun");
    // A generation with little data lasts a second. After this sleep it is ended without waiting.
    thread::sleep(Duration::from_secs(1).saturating_sub(begun.elapsed()));
    let before = reader.stats();
    let start = Instant::now();
    // No cut was made so far, so all records are in one chunk.
    let chunk = reader.read_chunk().expect("something was recorded").len();
    let nanos = start.elapsed().as_nanos();
    let after = reader.stats();
    let records = after.events - before.events;
    let recorded = after.recorded_bytes - before.recorded_bytes;
    reader.stop();
    while reader.read_chunk().is_some() {}
    let dropped = reader.stats().dropped_events + reader.stats().omitted_events;
    [records as f64, recorded as f64, chunk as f64, nanos as f64, dropped as f64]
}
