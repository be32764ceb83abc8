//! The start and the stop of a trace, among waiting threads.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rtprof::sync::{Condvar, Mutex};
use rtprof::{thread, trace};

/// Threads that wait for an event that never comes.
#[derive(Default)]
pub(crate) struct Waiting {
    gate: Arc<(Mutex<usize>, Condvar)>,
    count: usize,
}

impl Waiting {
    /// Starts threads until there are `count`, and waits until they wait.
    pub(crate) fn grow(&mut self, count: usize) {
        while self.count < count {
            let gate = Arc::clone(&self.gate);
            let builder = thread::Builder::new().name(format!("waits {}", self.count)).stack_size(64 << 10);
            let never_ends = move || {
                let (arrived, never) = &*gate;
                let mut arrived = arrived.lock();
                *arrived += 1;
                loop {
                    never.wait(&mut arrived);
                }
            };
            builder.spawn(never_ends).expect("the system gives threads");
            self.count += 1;
        }
        while *self.gate.0.lock() < count {
            std::thread::yield_now();
        }
    }
}

/// Returns the nanoseconds of a start and of a stop of a trace in which next to nothing happens, and the bytes of the
/// file.
pub(crate) fn timed() -> [f64; 3] {
    let start = Instant::now();
    trace::start(io::sink()).expect("no trace goes on");
    let started = Instant::now();
    // As in any useful trace there is a stack, whose functions are named at the end, and a thread that writes.
    trace::log("request", "a message");
    std::thread::sleep(Duration::from_millis(5));
    let stop = Instant::now();
    let stats = trace::stop().expect("everything is written");
    let stopped = Instant::now();
    [(started - start).as_nanos() as f64, (stopped - stop).as_nanos() as f64, stats.bytes as f64]
}
