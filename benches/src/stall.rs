//! Measures how long a running thread is held up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The longest pause of the thread that runs [`Watch::run`].
#[derive(Default)]
pub struct Watch {
    stop: AtomicBool,
    longest: AtomicU64,
}

impl Watch {
    /// Reads the clock again and again, and keeps the longest interval, until [`Watch::stop`].
    pub fn run(&self) {
        let mut before = Instant::now();
        while !self.stop.load(Relaxed) {
            let now = Instant::now();
            self.longest.fetch_max((now - before).as_nanos() as u64, Relaxed);
            before = now;
        }
    }

    /// Ends [`Watch::run`].
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Returns the longest pauses in milliseconds, in each round first while `work` runs, and then in an equal time
    /// without work.
    pub fn pauses(&self, rounds: usize, work: impl Fn()) -> Vec<f64> {
        std::thread::sleep(Duration::from_millis(20));
        let pause = |work: &dyn Fn()| {
            self.longest.store(0, Relaxed);
            work();
            self.longest.load(Relaxed) as f64 / 1e6
        };
        let mut pauses = vec![];
        for _ in 0..rounds {
            let started = Instant::now();
            pauses.push(pause(&work));
            let took = started.elapsed();
            pauses.push(pause(&|| std::thread::sleep(took)));
        }
        pauses
    }
}
