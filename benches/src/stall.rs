//! For how long a thread that runs is held up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The longest pause of what [`Watch::run`] runs.
#[derive(Default)]
pub struct Watch {
    stop: AtomicBool,
    longest: AtomicU64,
}

impl Watch {
    /// Notes how long it takes from one look at the clock to the next, until [`Watch::stop`].
    pub fn run(&self) {
        let mut before = Instant::now();
        while !self.stop.load(Relaxed) {
            let now = Instant::now();
            self.longest.fetch_max((now - before).as_nanos() as u64, Relaxed);
            before = now;
        }
    }

    /// Ends it.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// The longest pause in milliseconds while `work` is done, and then while as long nothing is done, in each round.
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
