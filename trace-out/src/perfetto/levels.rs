//! How many threads and tasks there are over time.
//!
//! Problem: a count changes with each event, but Ps are read one after the other, so changes do not come in the order
//! of time.
//! Scheme: each change is added to the step of time in which it happens. At the end of a generation the sums over the
//! steps are the counts, each at the end of its step.

use super::event::TrackEvent;
use super::track;
use super::unordered::Unordered;

/// The nanoseconds of a step.
const STEP: u64 = 1_000_000;

/// The most steps of a generation, which takes about a second, and the most changes after its end. If a clock is wrong
/// the last step has the rest.
const STEPS: usize = 1 << 16;
const LATE: usize = 1 << 16;

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

/// The counts, and how they change in a generation.
#[derive(Default)]
pub(super) struct Levels {
    begin: u64,
    end: u64,
    /// The counts at the beginning.
    counts: [i64; TRACKS.len()],
    /// By how much they change in each step.
    steps: Vec<[i64; TRACKS.len()]>,
    /// Changes after the end, which belong to the next generation: a thread may record while the generation is being
    /// ended.
    late: Vec<(u64, Level, Level)>,
}

impl Levels {
    /// Begins a generation.
    pub(super) fn begin(&mut self, begin: u64, end: u64) {
        (self.begin, self.end) = (begin, end);
        for (time, from, to) in std::mem::take(&mut self.late) {
            self.change(time, from, to);
        }
    }

    /// Counts a goroutine as something else.
    pub(super) fn change(&mut self, time: u64, from: Level, to: Level) {
        if time > self.end && self.late.len() < LATE {
            self.late.push((time, from, to));
            return;
        }
        let counts = if time <= self.begin {
            &mut self.counts
        } else {
            let step = ((time.min(self.end) - self.begin) / STEP).min(STEPS as u64 - 1) as usize;
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

    /// Ends the generation: adds all counts at its beginning, and then each where it has changed.
    pub(super) fn put(&mut self, unordered: &mut Unordered) {
        let mut put = |at: usize, time: u64, count: i64| {
            self_check!(count >= 0, "{count} on {}", TRACKS[at]);
            unordered.put(TRACKS[at], time, TrackEvent::counter(count.max(0) as u64));
        };
        for (at, &count) in self.counts.iter().enumerate() {
            put(at, self.begin, count);
        }
        for (number, step) in (1..).zip(self.steps.drain(..)) {
            let time = (self.begin + number * STEP).min(self.end);
            for (at, by) in step.into_iter().enumerate().filter(|(_, by)| *by != 0) {
                self.counts[at] += by;
                put(at, time, self.counts[at]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::Value;
    use super::*;

    /// Returns what a generation adds: times, tracks and counts.
    fn put(levels: &mut Levels) -> Vec<(u64, u64, u64)> {
        let mut unordered = Unordered::default();
        levels.put(&mut unordered);
        let count = |event: TrackEvent| match event.value {
            Value::Counter(count) => count,
            other => panic!("{other:?}"),
        };
        unordered.events().iter().map(|&(time, track, event)| (time, track, count(event))).collect()
    }

    #[test]
    fn a_count_has_its_value_at_the_end_of_each_step() {
        let end = 500 + 3 * STEP + 7;
        let mut levels = Levels::default();
        levels.begin(500, end);
        // Later changes may come first.
        levels.change(500 + 3 * STEP, Level::Waiting, Level::None);
        levels.change(500, Level::None, Level::Thread);
        levels.change(500 + STEP / 2, Level::None, Level::Runnable);
        levels.change(500 + STEP / 2 + 1, Level::Runnable, Level::Waiting);
        levels.change(500 + STEP - 1, Level::None, Level::Waiting);
        levels.change(500 + STEP, Level::None, Level::Thread);
        levels.change(end + 1, Level::Thread, Level::None);
        let (threads, runnable, waiting) = (track::THREADS, track::RUNNABLE, track::WAITING);
        let expected = [
            (500, threads, 1),
            (500, runnable, 0),
            (500, waiting, 0),
            (500 + STEP, waiting, 2),
            (500 + 2 * STEP, threads, 2),
            (end, waiting, 1),
        ];
        assert_eq!(put(&mut levels), expected);
        levels.begin(end, end + 4 * STEP);
        let expected = [(end, threads, 2), (end, runnable, 0), (end, waiting, 1), (end + STEP, threads, 1)];
        assert_eq!(put(&mut levels), expected);
    }

    #[test]
    fn a_wrong_clock_takes_little_memory() {
        let mut levels = Levels::default();
        levels.begin(500, u64::MAX - 1);
        levels.change(u64::MAX / 2, Level::None, Level::Thread);
        for _ in 0..LATE + 10 {
            levels.change(u64::MAX, Level::None, Level::Thread);
        }
        assert_eq!((levels.steps.len(), levels.late.len()), (STEPS, LATE));
    }
}
