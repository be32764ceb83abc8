//! The part for async tasks: the cost of following them, and of snapshots of them.
//!
//! Requests: `work RUNTIME WORK HOW COUNT` (answers nanoseconds for a task or poll, of the workers and of all threads, and
//! for a trace the events, their bytes in the buffers and those in the file; HOW is `plain`, `off`, `on` with stacks captured at each await, `block`
//! with waits sampled one in 10 microseconds, or `traced`), `start COUNT FRAMES` (tasks that wait, with so many frames
//! of recursion; answers milliseconds, those of processor time, and stacks of the first snapshot), `snapshot` (answers
//! the same, and records),
//! `stall ROUNDS` (answers milliseconds for each round: the longest pause of a running task while snapshots are taken,
//! and then in an equal time without snapshots), `service TRACED MILLIS` (sends requests to a service for so long,
//! while a trace is recorded if TRACED is not 0; answers what `service.rs` measures, and the events).

mod service;

use std::collections::HashMap;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rtprof::GoroutineKind;
use rtprof::task::{AwaitStacks, Instrument, instrument, set_await_stacks};
use rtprof_benches::async_work::{Plain, Spawn, Work, nanos_each, runtime};
use rtprof_benches::processor::used_by_all;
use rtprof_benches::serve::{Request, serve};
use rtprof_benches::stall::Watch;
use service::Service;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

/// Snapshots in a round of `stall`.
const SNAPSHOTS: usize = 3;

fn main() {
    let mut runtimes = HashMap::new();
    let mut service = None;
    serve(|request| match request.word() {
        "work" => {
            let name = request.word();
            let runtime = runtimes.entry(name.to_owned()).or_insert_with(|| runtime(name));
            work(runtime, request).to_vec()
        }
        "start" => {
            let runtime = runtimes.entry("multi".into()).or_insert_with(|| runtime("multi"));
            start(runtime, request.number(), request.number())
        }
        "service" => {
            let runtime = runtimes.entry("multi".into()).or_insert_with(|| runtime("multi"));
            let service = service.get_or_insert_with(|| Service::start(runtime));
            let (traced, millis) = (request.number() != 0, request.number());
            serve_requests(service, traced, Duration::from_millis(millis as u64)).to_vec()
        }
        "snapshot" => snapshot(|_| true).to_vec(),
        "stall" => stall(&runtimes["multi"], request.number()),
        other => panic!("unknown request {other}"),
    });
}

/// Spawns tasks that rtprof follows.
#[derive(Clone, Copy)]
struct Instrumented;

impl Spawn for Instrumented {
    fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        tokio::spawn(instrument(future))
    }
}

fn work(runtime: &Runtime, request: &mut Request<'_>) -> [f64; 5] {
    let (work, how, count) = (Work::named(request.word()), request.word(), request.number());
    let used = used_by_all();
    match how {
        "plain" | "off" => {}
        "on" => _ = set_await_stacks(AwaitStacks::Always),
        "block" => rtprof::set_block_profile_rate(10_000),
        "traced" => rtprof::trace::start(std::io::sink()).expect("no other trace goes on"),
        other => panic!("unknown way {other}"),
    }
    let nanos = match how {
        "plain" => work.nanos(runtime, count, Plain),
        _ => work.nanos(runtime, count, Instrumented),
    };
    let recorded = if how == "traced" {
        let stats = rtprof::trace::stop().expect("a sink takes everything");
        assert_eq!(stats.dropped_events, 0, "what was dropped costs something else");
        [stats.events, stats.recorded_bytes, stats.bytes].map(|number| number as f64)
    } else {
        [0.0; 3]
    };
    // With the end of a trace, which is encoded by another thread.
    let of_all = nanos_each(used_by_all() - used, count);
    set_await_stacks(AwaitStacks::OnRequest);
    rtprof::set_block_profile_rate(0);
    let [events, in_buffers, in_file] = recorded;
    [nanos, of_all, events, in_buffers, in_file]
}

fn serve_requests(service: &Service, traced: bool, duration: Duration) -> [f64; 4] {
    if traced {
        rtprof::trace::start(std::io::sink()).expect("no other trace goes on");
    }
    let [median, late, requests] = service.measure(duration);
    let events = match traced {
        true => rtprof::trace::stop().expect("a sink takes everything").events,
        false => 0,
    };
    [median, late, requests, events as f64]
}

/// Waits for ever, under `frames` frames.
fn waits(frames: usize, leaf: Arc<Notify>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        match frames {
            // A leaf with two ways to wait: a notification and a timer.
            0 => tokio::select! {
                () = leaf.notified() => {}
                () = tokio::time::sleep(Duration::from_secs(1 << 20)) => {}
            },
            _ => waits(frames - 1, leaf).await,
        }
    })
}

fn start(runtime: &Runtime, count: usize, frames: usize) -> Vec<f64> {
    let leaf = Arc::new(Notify::new());
    for _ in 0..count {
        runtime.spawn(waits(frames, leaf.clone()).instrument_named("waits"));
    }
    // Waits until all tasks wait, without turning on the capture of stacks at awaits, as a snapshot would.
    set_await_stacks(AwaitStacks::Never);
    let waiting = || {
        let all = rtprof::goroutine_profile();
        all.iter().filter(|task| task.kind == GoroutineKind::Task && task.wait_reason().is_some()).count()
    };
    while waiting() < count {
        std::thread::sleep(Duration::from_millis(5));
    }
    set_await_stacks(AwaitStacks::OnRequest);
    snapshot(|task| task.name == "waits" && task.stack().len() > frames).to_vec()
}

/// Takes a snapshot. Returns milliseconds, those of the processor time of all threads, and the number of records that
/// are `counted`.
fn snapshot(counted: impl Fn(&rtprof::GoroutineRecord) -> bool) -> [f64; 3] {
    let (started, used) = (Instant::now(), used_by_all());
    let all = black_box(rtprof::goroutine_profile());
    let (took, used) = (started.elapsed(), used_by_all() - used);
    let counted = all.iter().filter(|record| counted(record)).count();
    [took.as_secs_f64() * 1e3, used.as_secs_f64() * 1e3, counted as f64]
}

fn stall(runtime: &Runtime, rounds: usize) -> Vec<f64> {
    let watch = Arc::new(Watch::default());
    let watched = watch.clone();
    let runs = runtime.spawn(async move { watched.run() }.instrument_named("runs"));
    let pauses = watch.pauses(rounds, || (0..SNAPSHOTS).for_each(|_| _ = snapshot(|_| true)));
    watch.stop();
    runtime.block_on(runs).expect("it does not panic");
    pauses
}
