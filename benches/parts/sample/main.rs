//! The part for the cost of one sampled allocation, in a process whose rate is changed between loops.
//!
//! Requests: `mode MODE`, `way NUMBER` (which functions the stack goes through), `depth FRAMES` (answers the depth of
//! recursion that gives a recorded stack of so many frames, and the frames that it really has), `coroutine 0|1`
//! (whether the loops run on a stack that the program switches to by itself), `at RATE SHAPE SIZES DEPTH COUNT`
//! (answers ns for an allocation with its free), `samples`.

use std::hint::black_box;

use rtprof_benches::churn::{Shape, churn};
use rtprof_benches::coroutine::Coroutine;
use rtprof_benches::descent::{at_depth, depth_for};
use rtprof_benches::serve::serve;
use rtprof_benches::sizes::Sizes;
use rtprof_runtime::counters::{self, CountedProfile};

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

fn main() {
    // Only the allocations of the loops are sampled.
    rtprof::set_mem_profile_rate(0);
    let mut way = 0;
    let mut coroutine = None;
    serve(|request| match request.word() {
        "mode" => {
            rtprof::set_stack_mode(mode(request.word()));
            vec![]
        }
        "way" => {
            way = request.number();
            vec![]
        }
        "depth" => {
            let wanted = request.number();
            timed_at(way, 1, Shape::Pair, &probes(1), 1, PROBES);
            let depth = depth_for(wanted, recorded_frames(1));
            timed_at(way, 1, Shape::Pair, &probes(depth), depth, PROBES);
            vec![depth as f64, recorded_frames(depth) as f64]
        }
        "coroutine" => {
            coroutine = (request.number() == 1).then(Coroutine::new);
            vec![]
        }
        "at" => {
            let rate = request.number();
            let shape = Shape::parse(request.word()).expect("a shape");
            let sizes = Sizes::parse(request.word()).expect("sizes");
            let depth = request.number();
            let (table, count) = (sizes.table(), request.number());
            let mut nanos = 0.0;
            let mut measure = || nanos = timed_at(way, rate, shape, &table, depth, count);
            match &coroutine {
                Some(coroutine) => coroutine.run(&mut measure),
                None => measure(),
            }
            vec![nanos]
        }
        "samples" => {
            let taken: i64 = rtprof::mem_profile(true).iter().map(|record| record.alloc_objects).sum();
            vec![taken as f64, counters::total(CountedProfile::Heap) as f64]
        }
        other => panic!("unknown request {other}"),
    });
}

fn mode(word: &str) -> rtprof::StackMode {
    match word {
        "auto" => rtprof::StackMode::Auto,
        "frame-pointers" => rtprof::StackMode::FramePointers,
        "unwind" => rtprof::StackMode::Unwind,
        other => panic!("unknown stack mode {other}"),
    }
}

/// Returns the nanoseconds for an allocation with its free at this rate and depth of recursion.
///
/// All calls come from one function and go through this one, so that the stacks by which a depth is
/// found are as deep as those of the measurement.
#[inline(never)]
fn timed_at(way: usize, rate: usize, shape: Shape, table: &[usize], depth: usize, count: usize) -> f64 {
    let mut nanos = 0.0;
    at_depth(way, depth, &mut || {
        let before = rtprof::set_mem_profile_rate(rate);
        nanos = churn(shape, table, count);
        rtprof::set_mem_profile_rate(before);
    });
    black_box(nanos)
}

/// The number of objects by which a depth is found: many more than the loop keeps alive beside them.
const PROBES: usize = 1000;

/// Returns the size of the probes for this depth, by which their record is found. It is small enough for the pool, as
/// the measured objects are.
fn probe_size(depth: usize) -> usize {
    2001 + depth
}

fn probes(depth: usize) -> Vec<usize> {
    Sizes::Fixed(probe_size(depth)).table()
}

/// Returns the number of frames in the record of the probes of this depth.
fn recorded_frames(depth: usize) -> usize {
    let size = probe_size(depth) as i64;
    rtprof::mem_profile(true)
        .iter()
        .filter(|record| record.alloc_objects >= PROBES as i64)
        .find(|record| record.alloc_bytes == record.alloc_objects * size)
        .expect("at rate 1 the probes were sampled")
        .stack()
        .len()
}
