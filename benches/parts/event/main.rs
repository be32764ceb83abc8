//! The part for recording one event of the block or mutex profile, without the wait: the call that locks make.
//!
//! Requests: `way NUMBER` (which functions the stack goes through), `depth PROFILE FRAMES` (answers the depth of
//! recursion that gives a recorded stack of so many frames, and the frames that it really has), `at PROFILE RATE DEPTH
//! COUNT` (answers ns for an event), `load-depth FRAMES` (as `depth`, for `load`), `load HOW PER_SECOND DEPTH` (answers
//! what `Load::nanos` returns), `events PROFILE` (answers how many were recorded, and dropped).

mod load;
#[path = "../recorded.rs"]
mod recorded;

use std::hint::black_box;

use rtprof_benches::descent::{at_depth, depth_for};
use rtprof_benches::processor::Stopwatch;
use rtprof_benches::serve::{Request, serve};
use rtprof_profiler::BlockKinds;
use rtprof_profiler::contention::{block_event, mutex_event};

use load::Load;
use recorded::{Profile, dropped, set_rates};

fn main() {
    let mut way = 0;
    let load = Load::start();
    serve(|request| match request.word() {
        "way" => {
            way = request.number();
            vec![]
        }
        "depth" => {
            let profile = profile(request);
            let wanted = request.number();
            let frames_at = |depth| {
                profile.frames_of(|| {
                    timed_at(way, profile, 1, depth, 1);
                })
            };
            let depth = depth_for(wanted, frames_at(1));
            vec![depth as f64, frames_at(depth) as f64]
        }
        "at" => {
            let profile = profile(request);
            let (rate, depth) = (request.number(), request.number());
            vec![timed_at(way, profile, rate, depth, request.number())]
        }
        "load-depth" => load.depth_for(way, request.number()).to_vec(),
        "load" => {
            let (how, per_second) = (request.word(), request.number());
            load.nanos(how, per_second, (way, request.number()))
        }
        "events" => vec![profile(request).events(), dropped()],
        other => panic!("unknown request {other}"),
    });
}

fn profile(request: &mut Request<'_>) -> Profile {
    match request.word() {
        "block" => Profile::Block,
        "mutex" => Profile::Mutex,
        other => panic!("unknown profile {other}"),
    }
}

/// Returns the nanoseconds for an event at this rate and depth of recursion, after a warm-up.
///
/// All calls come from this function, so that the stacks by which a depth is found are as deep as those of the
/// measurement.
#[inline(never)]
fn timed_at(way: usize, profile: Profile, rate: usize, depth: usize, count: usize) -> f64 {
    let mut nanos = 0.0;
    at_depth(way, depth, &mut || {
        match profile {
            Profile::Block => set_rates(rate, 0),
            Profile::Mutex => set_rates(0, rate),
        }
        let events = match profile {
            Profile::Block => block_events,
            Profile::Mutex => mutex_events,
        };
        events(count / 8);
        let watch = Stopwatch::start();
        events(count);
        nanos = watch.nanos_each(count);
        set_rates(0, 0);
    });
    black_box(nanos)
}

/// Reports waits of one tick: at any rate but 1 hardly any of them is sampled.
#[inline(never)]
fn block_events(count: usize) {
    for _ in 0..count {
        block_event(BlockKinds::SYNC, black_box(1));
    }
}

#[inline(never)]
fn mutex_events(count: usize) {
    for _ in 0..count {
        mutex_event(black_box(1), black_box(1));
    }
}
