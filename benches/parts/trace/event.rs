//! Records events one after the other, on stacks of a given depth.

use std::hint::black_box;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use rtprof::trace::{Region, log, start_region, with_region};
use rtprof_benches::descent::{at_depth, depth_for};
use rtprof_benches::processor::Stopwatch;
use rtprof_benches::team::Placement;
use rtprof_tracer::drain;
use rtprof_tracer::generation::Tables;
use rtprof_tracer::record::Record;

use crate::bare::Bare;

/// The kind of the recorded events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `set_heap_goal`: an event without a stack.
    Goal,
    /// The beginnings of regions; the ends are not timed.
    Begin,
    /// The ends of regions, events without a stack; the beginnings are not timed.
    End,
    /// Beginnings and ends of empty regions.
    Pair,
    /// A message of 24 bytes.
    Log,
}

pub(crate) fn kind(word: &str) -> Kind {
    match word {
        "goal" => Kind::Goal,
        "begin" => Kind::Begin,
        "end" => Kind::End,
        "pair" => Kind::Pair,
        "log" => Kind::Log,
        other => panic!("unknown kind {other}"),
    }
}

/// The threads that record.
pub(crate) struct Events {
    threads: [Bare; 2],
}

impl Default for Events {
    fn default() -> Self {
        Self { threads: [Bare::start(), Bare::start()] }
    }
}

impl Events {
    /// Returns the nanoseconds for an event, after a warm-up; with two threads the mean of both, which record at the
    /// same time.
    pub(crate) fn timed(&self, kind: Kind, at: (usize, usize), threads: usize, count: usize) -> f64 {
        let together = Arc::new(Barrier::new(threads));
        let results = Arc::new(Mutex::new(vec![]));
        let threads = &self.threads[..threads];
        for (number, thread) in threads.iter().enumerate() {
            let (together, results) = (Arc::clone(&together), Arc::clone(&results));
            thread.begin(move || {
                Placement::Apart.take(number + 1);
                let nanos = on_stack(kind, at, count, &together);
                results.lock().expect("nobody panics").push(nanos);
            });
        }
        threads.iter().for_each(Bare::wait);
        let results = results.lock().expect("nobody panics");
        results.iter().sum::<f64>() / results.len() as f64
    }

    /// Returns the depth of recursion that gives stacks of so many frames, including the tracer's own, and the frames
    /// that they have.
    pub(crate) fn depth_for(&self, kind: Kind, way: usize, wanted: usize) -> (usize, usize) {
        let frames_at = |depth| {
            self.frames_of(|| {
                // Runs on both threads, so that each is known to the tracer from now on.
                self.timed(kind, (way, depth), self.threads.len(), 1);
            })
        };
        let depth = depth_for(wanted, frames_at(1));
        (depth, frames_at(depth))
    }

    /// Returns the number of frames of the deepest stack that is recorded while `f` runs.
    fn frames_of(&self, f: impl FnOnce()) -> usize {
        let mut drain = drain::start(1 << 20, &((|| 0) as fn() -> u64)).expect("no trace goes on");
        f();
        let stacks: Vec<_> = {
            let collected = drain.cut();
            let buffers = collected.generation().lanes.into_iter().flat_map(|lane| lane.buffers);
            let records = buffers.flat_map(|buffer| buffer.records);
            let stack_of = |(_, record)| match record {
                Record::RegionBegin { stack, .. } | Record::Log { stack, .. } => Some(stack),
                _ => None,
            };
            records.filter_map(stack_of).collect()
        };
        stacks.iter().map(|&stack| drain.tables().stack(stack).len()).max().expect("an event with a stack")
    }
}

/// Records `count` events at this depth. All calls come from this function, so that the stacks by which a depth is
/// found are as deep as those of the measurement.
#[inline(never)]
fn on_stack(kind: Kind, (way, depth): (usize, usize), count: usize, together: &Barrier) -> f64 {
    let mut took = Duration::ZERO;
    at_depth(way, depth, &mut || {
        let record = match kind {
            Kind::Goal => goals,
            Kind::Begin => begins,
            Kind::End => ends,
            Kind::Pair => pairs,
            Kind::Log => logs,
        };
        record(count / 8);
        together.wait();
        took = record(count);
    });
    black_box(took).as_nanos() as f64 / count as f64
}

#[inline(never)]
fn goals(count: usize) -> Duration {
    let start = Stopwatch::start();
    for bytes in 0..count {
        // The number takes as many bytes as that of a real goal, about a gigabyte.
        rtprof::set_heap_goal(black_box((1 << 30) + bytes as u64));
    }
    start.elapsed()
}

#[inline(never)]
fn logs(count: usize) -> Duration {
    let start = Stopwatch::start();
    for _ in 0..count {
        log(black_box("request"), black_box("GET /debug/pprof/heap?ab"));
    }
    start.elapsed()
}

#[inline(never)]
fn pairs(count: usize) -> Duration {
    let start = Stopwatch::start();
    for _ in 0..count {
        with_region(black_box("step"), || black_box(()));
    }
    start.elapsed()
}

#[inline(never)]
fn begins(count: usize) -> Duration {
    in_batches(count).0
}

#[inline(never)]
fn ends(count: usize) -> Duration {
    in_batches(count).1
}

/// Begins nested regions and ends them, a few hundred at a time: the clock is read twice for each batch.
///
/// Inlined, so that `begins` is one frame as the other kinds are.
#[inline(always)]
fn in_batches(count: usize) -> (Duration, Duration) {
    const BATCH: usize = 512;
    let mut regions: Vec<Region> = Vec::with_capacity(BATCH);
    let (mut beginning, mut ending) = (Duration::ZERO, Duration::ZERO);
    let mut left = count;
    while left > 0 {
        let batch = left.min(BATCH);
        left -= batch;
        let start = Stopwatch::start();
        for _ in 0..batch {
            regions.push(start_region(black_box("step")));
        }
        let begun = start.elapsed();
        while let Some(region) = regions.pop() {
            drop(region);
        }
        ending += start.elapsed() - begun;
        beginning += begun;
    }
    (beginning, ending)
}
