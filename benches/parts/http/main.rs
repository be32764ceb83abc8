//! A service with the endpoints of profiles.
//!
//! Requests: `fill STACKS` (samples on that many stacks), `serve` (answers the port), `work SECONDS` (serves requests of
//! its own for so long; answers the median and the 99th percentile of their latency in µs, and their number), `cpu`
//! (answers the milliseconds of CPU time that the process has used), `busy THREADS` (that compute until the process ends),
//! `threads` (of the server), `resident`.

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use rtprof::sync::Mutex;
use rtprof_benches::descent::on_distinct_stacks;
use rtprof_benches::live_heap;
use rtprof_benches::processor::used_by_all;
use rtprof_benches::serve::serve;
use rtprof_benches::statistics::percentile;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

/// Threads that serve requests.
const WORKERS: usize = 2;
/// From one request to the next, for each of them.
const INTERVAL: Duration = Duration::from_millis(2);

fn main() {
    rtprof::set_block_profile_rate(10_000);
    rtprof::set_mutex_profile_fraction(10);
    let mut server = None;
    serve(|request| match request.word() {
        "fill" => {
            fill(request.number());
            vec![]
        }
        "serve" => {
            let serving = rtprof::http::serve("127.0.0.1:0").expect("a port is free");
            let port = serving.local_addr().port();
            server = Some(serving);
            vec![f64::from(port)]
        }
        "work" => work(Duration::from_secs(request.number() as u64)),
        // Of the process, which does nothing but answer while it is scraped: most of the server's threads are gone when
        // their time could be read.
        "cpu" => vec![used_by_all().as_secs_f64() * 1e3],
        "busy" => {
            (0..request.number()).for_each(|_| drop(std::thread::spawn(compute)));
            vec![]
        }
        "threads" => vec![server_threads() as f64],
        "resident" => vec![live_heap::resident().expect("benchmarks run on Linux") as f64],
        other => panic!("unknown request {other}"),
    });
    drop(server);
}

/// Keeps a sampled object on each of as many stacks, as a service has after some days.
fn fill(stacks: usize) {
    let before = rtprof::set_mem_profile_rate(1);
    on_distinct_stacks(stacks, 24, &mut || std::mem::forget(black_box(vec![1u8; 64])));
    rtprof::set_mem_profile_rate(before);
}

/// What all requests share.
static SHARED: Mutex<u64> = Mutex::new(0);

fn work(duration: Duration) -> Vec<f64> {
    let workers: Vec<_> = (0..WORKERS).map(|_| rtprof::thread::spawn(move || requests(duration))).collect();
    let mut latencies: Vec<f64> = Vec::new();
    for worker in workers {
        latencies.extend(worker.join().expect("a worker does not panic"));
    }
    vec![percentile(&latencies, 50.0), percentile(&latencies, 99.0), latencies.len() as f64]
}

/// The latencies of requests that come at fixed times, in µs, the time included that they wait for a core.
fn requests(duration: Duration) -> Vec<f64> {
    let start = Instant::now();
    let mut latencies = Vec::new();
    for number in 1.. {
        let due = start + INTERVAL * number;
        if due > start + duration {
            return latencies;
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        one_request(number);
        latencies.push(due.elapsed().as_secs_f64() * 1e6);
    }
    latencies
}

/// Never waits: each pause would let others run.
fn compute() {
    let mut number = 1u64;
    loop {
        number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// About 0.2 ms: parses, sorts, allocates, and takes a lock.
fn one_request(seed: u32) {
    let mut words: Vec<String> =
        (0..800u32).map(|i| (i.wrapping_mul(2_654_435_761) ^ seed).to_string()).collect();
    words.sort_unstable();
    *SHARED.lock() += black_box(words).len() as u64;
}

/// The server's threads, as the kernel has them.
fn server_threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("benchmarks run on Linux").flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == "rtprof-http").count()
}
