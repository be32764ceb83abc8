//! The part for the CPU profile: which samples are delivered, and what a sample costs.
//!
//! Requests: `deliver SOURCE HZ MILLIS` (answers, for each kind of `busy::KINDS`, signals that arrived, samples that
//! they stood for, samples without a stack, and the seconds of processor time that were used), `way NUMBER` (which
//! functions the stack goes through), `depth FRAMES` (answers the depth of recursion that gives a sampled stack of so
//! many frames, and the frames that it really has), `at WHO HZ DEPTH STEPS` (WHO is `perf`, `timers`, `kernel` or,
//! without a profile, `none`; answers nanoseconds of processor time of the process, and signals that arrived).

mod kernel_alone;

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rtprof_benches::busy::{self, KINDS};
use rtprof_benches::descent::{at_depth, depth_for};
use rtprof_benches::processor::used_by_all;
use rtprof_benches::serve::{Request, serve};
use rtprof_benches::work::steps;
use rtprof_profiler::cpu::{self, CpuSamples, CpuSource};
use rtprof_runtime::goroutine::observer::{self, Observer};
use rtprof_runtime::thread::kernel_thread::thread_id as kernel_thread_id;

/// The rate in Hz at which the depth of stacks is found.
const LOOK_HZ: u32 = 10_000;
/// Steps of work that take some hundred samples at this rate.
const LOOK_STEPS: usize = 20_000_000;

/// The number of signals to threads of each kind, and last of signals to all other threads.
static SIGNALS: [AtomicU64; KINDS.len() + 1] = [const { AtomicU64::new(0) }; KINDS.len() + 1];

/// Counts samples as they arrive, in place of the tracer, which records nothing here: a profile has only the number of
/// samples that the signals stood for.
static COUNTER: Observer = Observer {
    began: |_| (),
    waits: |_, _| (),
    ends: |_| (),
    forked: || (),
    cycle: |run| run(),
    cpu_sample: |_, _| {
        let kind = busy::own_kind().unwrap_or(KINDS.len());
        SIGNALS[kind].fetch_add(1, Ordering::Relaxed);
    },
};

fn signals() -> [u64; KINDS.len() + 1] {
    SIGNALS.each_ref().map(|count| count.load(Ordering::Relaxed))
}

fn main() {
    // Opens the profiler, which sets the tracer as the observer.
    rtprof::set_block_profile_rate(0);
    observer::observe(&COUNTER);
    let way = Cell::new(0);
    serve(|request| match request.word() {
        "deliver" => {
            let (source, hz) = (source(request), request.number() as u32);
            deliver(source, hz, Duration::from_millis(request.number() as u64))
        }
        "way" => {
            way.set(request.number());
            vec![]
        }
        "depth" => {
            let wanted = request.number();
            let depth = depth_for(wanted, frames_at(way.get(), 1));
            vec![depth as f64, frames_at(way.get(), depth) as f64]
        }
        "at" => {
            let (who, hz) = (request.word(), request.number() as u32);
            let (depth, count) = (request.number(), request.number());
            let work = || at(way.get(), depth, count);
            let answer = match who {
                "perf" => during(start(CpuSource::Perf, hz, false), work),
                "timers" => during(start(CpuSource::Timers, hz, false), work),
                "kernel" => during(kernel_alone::Event::start(hz), work),
                "none" => work(),
                other => panic!("unknown profiler {other}"),
            };
            answer.to_vec()
        }
        other => panic!("unknown request {other}"),
    });
}

fn source(request: &mut Request<'_>) -> CpuSource {
    match request.word() {
        "perf" => CpuSource::Perf,
        "timers" => CpuSource::Timers,
        other => panic!("unknown source {other}"),
    }
}

fn start(source: CpuSource, hz: u32, by_thread: bool) -> cpu::Sampler {
    let options = cpu::Options { hz, source, by_thread, for_trace: false };
    cpu::start(options).expect("the kernel permits it")
}

fn stop(sampler: cpu::Sampler) -> CpuSamples {
    sampler.stop().expect("not forked")
}

fn deliver(source: CpuSource, hz: u32, length: Duration) -> Vec<f64> {
    let before = signals();
    let (samples, seconds) = busy::run(length, || start(source, hz, true), stop);
    let after = signals();
    let mut answer = vec![];
    for (at, kind) in KINDS.iter().enumerate() {
        let ids = samples.names.iter().filter(|(_, name)| name == kind.name).map(|(id, _)| *id);
        let (mut charged, mut without) = (0, 0);
        for id in ids {
            for count in samples.counts.iter().filter(|count| count.thread == id) {
                charged += count.samples;
                // A stack of one frame is the profiler's own statement that the stack is missing.
                without += if count.stack.len() == 1 { count.samples } else { 0 };
            }
        }
        let came = after[at] - before[at];
        answer.extend([came as f64, charged as f64, without as f64, seconds[at]]);
    }
    answer
}

/// Runs `f` while `_alive` lives.
fn during<R>(_alive: impl Sized, f: impl FnOnce() -> R) -> R {
    f()
}

/// Returns the process's nanoseconds for this work, and the number of signals during it.
fn at(way: usize, depth: usize, count: usize) -> [f64; 2] {
    let came = || signals()[KINDS.len()] + kernel_alone::signals();
    let (mut used, mut signals) = (Duration::ZERO, 0);
    at_depth(way, depth, &mut || {
        // Warms up, as in a profile that has been running: the first samples find all caches cold.
        black_box(steps(1, count));
        let (begun, before) = (used_by_all(), came());
        black_box(steps(1, count));
        (used, signals) = (used_by_all() - begun, came() - before);
    });
    [used.as_nanos() as f64, signals as f64]
}

/// Returns the number of frames of the most frequent stack in work at this depth.
fn frames_at(way: usize, depth: usize) -> usize {
    let sampler = start(CpuSource::Auto, LOOK_HZ, true);
    at_depth(way, depth, &mut || {
        black_box(steps(1, LOOK_STEPS));
    });
    let own = kernel_thread_id();
    let mut by_frames = [0; rtprof_runtime::MAX_STACK + 1];
    for count in stop(sampler).counts.iter().filter(|count| count.thread == own) {
        by_frames[count.stack.len()] += count.samples;
    }
    (0..by_frames.len()).max_by_key(|&frames| by_frames[frames]).expect("there are some")
}
