//! The same work with a profile off and on, in turns, in several processes.

use std::io;

use rtprof_benches::statistics::excess;
use rtprof_benches::yardstick::Yardstick;

use crate::child::Child;
use crate::pace::Pace;

/// Nanoseconds for each operation with the profile off and on; values at the same index are from the same round.
pub(crate) struct Flips {
    pub(crate) off: Vec<f64>,
    pub(crate) on: Vec<f64>,
    /// Frames of the recorded stacks.
    pub(crate) frames: f64,
    /// The cost of a record in each process. Each goes its own way through the functions, and so differs in what collides
    /// in caches.
    pub(crate) by_process: Vec<f64>,
    /// How many were recorded, and recorded badly.
    pub(crate) recorded: [f64; 2],
    pub(crate) pace: Pace,
}

impl Flips {
    pub(crate) fn new() -> Self {
        Self {
            off: vec![],
            on: vec![],
            frames: 0.0,
            by_process: vec![],
            recorded: [0.0; 2],
            pace: Pace::by(Yardstick::Walk),
        }
    }

    /// Measures in one process, in which one operation in `one_in` is recorded. `request` returns the request for the work
    /// with the profile on or off, and `counts` is the one for how many were recorded.
    ///
    /// # Errors
    /// When the process is gone.
    pub(crate) fn measure(
        &mut self,
        child: &mut Child,
        rounds: usize,
        one_in: f64,
        counts: &str,
        request: impl Fn(bool) -> String,
    ) -> io::Result<()> {
        let before: [f64; 2] = child.numbers(counts)?;
        let first = self.off.len();
        for round in 0..rounds {
            self.pace.measure(child)?;
            for step in 0..2 {
                // The order alternates.
                let is_on = (round + step) % 2 == 1;
                let [nanos] = child.numbers(&request(is_on))?;
                if is_on { &mut self.on } else { &mut self.off }.push(nanos);
            }
        }
        let after: [f64; 2] = child.numbers(counts)?;
        for (all, (after, before)) in self.recorded.iter_mut().zip(after.into_iter().zip(before)) {
            *all += (after - before).round();
        }
        self.by_process.push(excess(&self.on[first..], &self.off[first..]) * one_in);
        Ok(())
    }
}
