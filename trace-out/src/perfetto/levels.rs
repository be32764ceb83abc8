//! How many threads and tasks there are over time.
//!
//! Problem: a count changes with each event, but Ps are read one after the other, so changes do not come in the order of
//! time.
//! Scheme: each change is added to the step of time in which it happens. At the end of a generation the sums over the
//! steps are the counts, each at the end of its step.

use super::event::TrackEvent;
use super::track;
use super::unordered::Unordered;

/// The nanoseconds of a step.
const STEP: u64 = 1_000_000;

/// The most steps of a generation, which takes about a second. If a clock was wrong, the last one has the rest.
const STEPS: usize = 1 << 16;

/// What a goroutine is counted as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Level {
    /// It is not counted: a task that runs, or one that is not known.
    #[default]
    None,
    Thread,
    /// A task that could run.
    Runnable,
    /// A task that waits.
    Waiting,
}

/// The tracks of the counts.
const TRACKS: [u64; 3] = [track::THREADS, track::RUNNABLE, track::WAITING];

impl Level {
    /// Returns its position in [`TRACKS`].
    fn position(self) -> Option<usize> {
        (self as usize).checked_sub(1)
    }
}

/// The counts of a generation.
#[derive(Default)]
pub(super) struct Levels {
    begin: u64,
    /// The counts at the beginning.
    first: [i64; TRACKS.len()],
    /// By how much they change in each step. A change after the end of the generation belongs to its last step.
    steps: Vec<[i64; TRACKS.len()]>,
}

impl Levels {
    /// Begins a generation, without any goroutine.
    pub(super) fn begin(&mut self, begin: u64) {
        self.steps.clear();
        (self.begin, self.first) = (begin, Default::default());
    }

    /// Counts a goroutine as something else.
    pub(super) fn change(&mut self, time: u64, from: Level, to: Level) {
        let counts = if time <= self.begin {
            &mut self.first
        } else {
            let step = ((time - self.begin) / STEP).min(STEPS as u64 - 1) as usize;
            if step >= self.steps.len() {
                self.steps.resize(step + 1, Default::default());
            }
            &mut self.steps[step]
        };
        for (level, by) in [(from, -1), (to, 1)] {
            if let Some(position) = level.position() {
                counts[position] += by;
            }
        }
    }

    /// Adds the counts of a generation that ends at `end`: all of them at the beginning, and then each where it has
    /// changed.
    pub(super) fn put(&self, end: u64, unordered: &mut Unordered) {
        let mut put = |at: usize, time: u64, count: i64| {
            // A change may have been lost.
            unordered.put(TRACKS[at], time, TrackEvent::counter(count.max(0) as u64));
        };
        let mut counts = self.first;
        for (at, count) in counts.into_iter().enumerate() {
            put(at, self.begin, count);
        }
        for (number, step) in (1..).zip(&self.steps) {
            let time = (self.begin + number * STEP).min(end);
            for (at, by) in step.iter().enumerate().filter(|(_, by)| **by != 0) {
                counts[at] += by;
                put(at, time, counts[at]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_has_its_value_at_the_end_of_each_step() {
        let mut levels = Levels::default();
        levels.begin(500);
        // Later changes may come first.
        levels.change(500 + 3 * STEP, Level::Waiting, Level::None);
        levels.change(500, Level::None, Level::Thread);
        levels.change(500 + STEP / 2, Level::None, Level::Runnable);
        levels.change(500 + STEP / 2 + 1, Level::Runnable, Level::Waiting);
        levels.change(500 + STEP - 1, Level::None, Level::Waiting);
        levels.change(500 + STEP, Level::None, Level::Thread);
        let mut unordered = Unordered::default();
        levels.put(500 + 3 * STEP + 7, &mut unordered);
        let (threads, runnable, waiting) = (track::THREADS, track::RUNNABLE, track::WAITING);
        let expected = [
            (500, threads, 1),
            (500, runnable, 0),
            (500, waiting, 0),
            (500 + STEP, waiting, 2),
            (500 + 2 * STEP, threads, 2),
            (500 + 3 * STEP + 7, waiting, 1),
        ];
        let expected = expected.map(|(time, track, count)| (time, track, TrackEvent::counter(count)));
        assert_eq!(unordered.events(), expected);
    }

    #[test]
    fn a_wrong_clock_takes_no_memory() {
        let mut levels = Levels::default();
        levels.begin(500);
        levels.change(u64::MAX / 2, Level::None, Level::Thread);
        assert_eq!(levels.steps.len(), STEPS);
    }
}
