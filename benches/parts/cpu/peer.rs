//! The CPU profiler of the pprof crate as a peer of rtprof's, with its default unwinder.
//!
//! Requests: `deliver _ HZ MILLIS` and `at _ HZ DEPTH STEPS`, as of `part-cpu`, with HZ of 0 for no profile; samples
//! take the place of signals in the answers.

use std::hint::black_box;
use std::time::Duration;

use pprof::ProfilerGuard;
use rtprof_benches::busy::{self, KINDS};
use rtprof_benches::descent::at_depth;
use rtprof_benches::processor::used_by_all;
use rtprof_benches::serve::serve;
use rtprof_benches::work::steps;

fn main() {
    serve(|request| match request.word() {
        "deliver" => {
            let _source = request.word();
            let hz = request.number();
            deliver(hz, Duration::from_millis(request.number() as u64))
        }
        "at" => {
            let _who = request.word();
            let (hz, depth, count) = (request.number(), request.number(), request.number());
            at(hz, depth, count).to_vec()
        }
        other => panic!("unknown request {other}"),
    });
}

fn start(hz: usize) -> ProfilerGuard<'static> {
    ProfilerGuard::new(hz as i32).expect("nothing else profiles")
}

/// Returns the number of samples of each thread, by its name.
fn stop(guard: &ProfilerGuard<'static>) -> Vec<(Vec<u8>, f64)> {
    let report = guard.report().build_unresolved().expect("the profile goes on");
    let samples = report
        .data
        .iter()
        .map(|(frames, count)| (frames.thread_name[..frames.thread_name_length].to_vec(), *count as f64));
    samples.collect()
}

fn deliver(hz: usize, length: Duration) -> Vec<f64> {
    let (samples, seconds) = busy::run(length, || start(hz), |guard| stop(&guard));
    let mut answer = vec![];
    for (kind, seconds) in KINDS.iter().zip(seconds) {
        let own = samples.iter().filter(|(name, _)| name == kind.name.as_bytes());
        let came = own.map(|(_, count)| count).sum();
        answer.extend([came, came, 0.0, seconds]);
    }
    answer
}

fn at(hz: usize, depth: usize, count: usize) -> [f64; 2] {
    let guard = (hz > 0).then(|| start(hz));
    let mut used = Duration::ZERO;
    at_depth(0, depth, &mut || {
        black_box(steps(1, count));
        let begun = used_by_all();
        black_box(steps(1, count));
        used = used_by_all() - begun;
    });
    // Half of the samples were taken during the warm-up.
    let came = guard.map_or(0.0, |guard| stop(&guard).iter().map(|(_, count)| count / 2.0).sum());
    [used.as_nanos() as f64, came]
}
