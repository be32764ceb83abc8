//! The part for execution traces: the cost and the size of an event, the cost for programs, and reading.
//!
//! Requests:
//! - `begin` and `end`: a trace that is read while it is recorded, with `begin-v1` in the first format; `end` answers
//!   events, bytes in the buffers, bytes of the file, and events that were dropped;
//! - `fly` and `land`: the same with a flight recorder, whose bytes are those of its window;
//! - `warm`: records until buffers are reused;
//! - `depth KIND WAY FRAMES`: answers the depth of recursion that gives recorded stacks of so many frames, and the
//!   frames that they really have;
//! - `event KIND WAY DEPTH THREADS COUNT`: answers ns for an event (for `pair` and `yield`: two), at this depth;
//! - `off HOOK COPY COUNT`: answers ns for a call of a hook;
//! - `unread` and `drop`: a trace that is not read, to measure a few milliseconds within it;
//! - `job NAME PLACE COUNT`: answers ns for an operation of threads that wait for each other;
//! - `pool NANOS MILLIS`: answers ns for a job of a pool of workers, and the number of jobs;
//! - `threads COUNT`: starts waiting threads until there are so many;
//! - `session`: answers ns of a start and of a stop, and the bytes of the file;
//! - `drain FORMAT WHAT COUNT`: answers the results of reading full buffers, see `drain.rs`;
//! - `long FORMAT COUNT`: answers the results of a long trace, see `long.rs`;
//! - `flight NANOS MILLIS`: answers the results of a flight recorder, see `flight.rs`.

mod bare;
mod drain;
mod event;
mod flight;
mod job;
mod long;
mod memory;
mod off;
mod pool;
mod recording;
mod session;

use std::thread;
use std::time::Duration;

use rtprof::trace::{Format, Options, Reader, Stats};
use rtprof_benches::serve::serve;
use rtprof_benches::team::{Placement, Team};

use event::Events;
use recording::Recording;

fn main() {
    let events = Events::default();
    let mut recording: Option<Recording> = None;
    let mut flying = None;
    let mut unread = None;
    let mut waiting = session::Waiting::default();
    let team = Team::start(2);
    serve(|request| match request.word() {
        "begin" => {
            recording = Some(Recording::start(Options::default()));
            vec![]
        }
        "begin-v1" => {
            recording = Some(Recording::start(Options { format: Format::V1, ..Options::default() }));
            vec![]
        }
        "end" => counts(recording.take().expect("a trace was begun").stop().0),
        "fly" => {
            flying = Some(flight::start());
            vec![]
        }
        "land" => counts(flight::stop(&flying.take().expect("a flight recorder was started"))),
        "warm" => {
            let read = || match (&recording, &flying) {
                (Some(recording), _) => recording.generations(),
                (None, Some(flying)) => flying.stats().generations,
                (None, None) => panic!("a trace was begun"),
            };
            warm(&events, read);
            vec![]
        }
        "depth" => {
            let (kind, way) = (request.word(), request.number());
            let (depth, frames) = events.depth_for(event::kind(kind), way, request.number());
            vec![depth as f64, frames as f64]
        }
        "event" => {
            let kind = event::kind(request.word());
            let (way, depth) = (request.number(), request.number());
            let threads = request.number();
            vec![events.timed(kind, (way, depth), threads, request.number())]
        }
        "off" => {
            let turns = off::of(request.word());
            vec![turns(request.number(), request.number())]
        }
        "unread" => {
            unread = Some(Reader::start().expect("no trace goes on"));
            vec![]
        }
        "drop" => {
            unread = None;
            vec![]
        }
        "job" => {
            let job = job::of(request.word());
            let place = Placement::parse(request.word()).expect("a place");
            vec![job(&team, place, request.number())]
        }
        "pool" => {
            let nanos = request.number();
            let window = Duration::from_millis(request.number() as u64);
            let (each, jobs) = pool::run(nanos, window);
            vec![each, jobs as f64]
        }
        "threads" => {
            waiting.grow(request.number());
            vec![]
        }
        "session" => session::timed().into(),
        "drain" => {
            let (format, what) = (format(request.word()), request.word());
            drain::timed(&events, &team, (format, what), request.number()).into()
        }
        "flight" => {
            let nanos = request.number();
            flight::timed(nanos, Duration::from_millis(request.number() as u64)).into()
        }
        "long" => {
            let format = format(request.word());
            long::timed(&events, format, request.number()).into()
        }
        other => panic!("unknown request {other}"),
    });
    drop(unread);
}

fn format(name: &str) -> Format {
    Format::from_name(name).expect("a format")
}

fn counts(stats: Stats) -> Vec<f64> {
    [stats.events, stats.recorded_bytes, stats.bytes, stats.dropped_events].map(|n| n as f64).into()
}

/// Records until some generations are read: later records go to buffers that were used before, as in any trace that has
/// run for a while. Fresh buffers would cost page faults.
fn warm(events: &Events, read: impl Fn() -> u64) {
    for generation in 1..=3 {
        // More than a generation holds, at seven bytes each, but recorded no faster than the reader reads.
        events.timed(event::kind("goal"), (0, 1), 1, 1_300_000);
        while read() < generation {
            thread::sleep(Duration::from_millis(10));
        }
    }
    thread::sleep(Duration::from_millis(100));
}
