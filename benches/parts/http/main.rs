//! The part for a service with the endpoints of profiles.
//!
//! Requests: `fill STACKS` (samples on that many stacks), `serve` (answers the port), `work SECONDS` (serves the
//! program's requests for so long; answers the median and the 99th percentile of their latency in µs, and their
//! number), `cpu` (answers the milliseconds of CPU time that the process has used), `busy THREADS` (that compute until
//! the process ends), `threads` (of the server), `resident`.

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
/// The time from one request to the next of each thread.
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
        // The time of the whole process, which does nothing but answer while it is scraped. Most of the server's
        // threads have ended when their own time could be read.
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

/// Keeps a sampled object alive on each of so many stacks, as in a service after some days.
fn fill(stacks: usize) {
    let before = rtprof::set_mem_profile_rate(1);
    on_distinct_stacks(stacks, 24, &mut || std::mem::forget(black_box(vec![1u8; 64])));
    rtprof::set_mem_profile_rate(before);
}

/// The state that all requests share.
static SHARED: Mutex<u64> = Mutex::new(0);

fn work(duration: Duration) -> Vec<f64> {
    let workers: Vec<_> = (0..WORKERS).map(|_| rtprof::thread::spawn(move || requests(duration))).collect();
    let mut latencies: Vec<f64> = Vec::new();
    for worker in workers {
        latencies.extend(worker.join().expect("a worker does not panic"));
    }
    vec![percentile(&latencies, 50.0), percentile(&latencies, 99.0), latencies.len() as f64]
}

/// Serves requests that arrive at fixed times. Returns their latencies in µs, including the time that they wait for a
/// core.
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

/// Computes for ever. Never waits, because each pause would let other threads run.
fn compute() {
    let mut number = 1u64;
    loop {
        number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// Does about 0.2 ms of work: parses, sorts, allocates, and takes a lock.
fn one_request(seed: u32) {
    let mut words: Vec<String> =
        (0..800u32).map(|i| (i.wrapping_mul(2_654_435_761) ^ seed).to_string()).collect();
    words.sort_unstable();
    *SHARED.lock() += black_box(words).len() as u64;
}

/// Returns the number of the server's threads, by the names that the kernel has.
fn server_threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("benchmarks run on Linux").flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == "rtprof-http").count()
}
