//! The goroutines known to a trace, and the readings that wait for them.

use rtprof_runtime::goroutine::state::State;

use crate::dense::DenseTable;

/// Stands for "no goroutine", and for records that belong to none.
pub(crate) const NONE: u32 = 0;

/// The bits of a change number, after which it wraps, as in the recorder.
const NUMBER_BITS: u32 = 36;

/// The trace's progress with a goroutine.
pub(super) struct OrderedGoroutine {
    pub(super) id: u64,
    /// The number of the last change that was passed on.
    pub(super) number: u64,
    pub(super) state: State,
    /// The tick of that change, and its lane.
    pub(super) tick: u64,
    pub(super) lane: u32,
    /// The lane that polls it, if it is a task that is being polled; else [`SHARED`](super::SHARED).
    pub(super) polled_on: u32,
    /// The generation in which it was last declared.
    pub(super) declared: u32,
    /// Whether it was declared or created. Otherwise a reading waits for that.
    pub(super) is_known: bool,
    /// Whether it is a task, once it is known.
    pub(super) is_task: bool,
    /// Whether a declaration after a loss came, and the goroutine has not changed since.
    pub(super) has_jumped: bool,
    /// Whether no declaration of it comes in this generation, so that no reading may wait for one.
    pub(super) is_absent: bool,
    /// Awaited changes and the readings that wait; the smallest change is last. 0 waits for any change.
    waiting: Vec<(u64, u32)>,
}

/// The position of a numbered change relative to the changes passed on so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// It is the next change.
    Next,
    /// Other changes come before it.
    Later,
    /// It was passed on, or skipped, already.
    Stale,
}

/// All goroutines. Index 0 is [`NONE`].
pub(super) type Goroutines = DenseTable<OrderedGoroutine>;

impl Default for OrderedGoroutine {
    fn default() -> Self {
        Self::unknown(0)
    }
}

impl OrderedGoroutine {
    fn unknown(id: u64) -> Self {
        Self {
            id,
            number: 0,
            state: State::Dead,
            tick: 0,
            lane: 0,
            polled_on: 0,
            declared: 0,
            is_known: false,
            is_task: false,
            has_jumped: false,
            is_absent: false,
            waiting: Vec::new(),
        }
    }

    /// Whether it is known and not dead.
    pub(super) fn is_alive(&self) -> bool {
        self.is_known && self.state != State::Dead
    }

    pub(super) fn fit(&self, number: u64) -> Fit {
        if self.is_known && self.state == State::Dead {
            return Fit::Stale;
        }
        match distance(self.number, number) {
            1 => Fit::Next,
            ahead if ahead > 1 => Fit::Later,
            _ => Fit::Stale,
        }
    }

    pub(super) fn next_number(&self) -> u64 {
        (self.number + 1) & ((1 << NUMBER_BITS) - 1)
    }

    pub(super) fn wait(&mut self, number: u64, reading: u32) {
        let index = self.waiting.partition_point(|&(awaited, _)| awaited > number);
        self.waiting.insert(index, (number, reading));
    }

    pub(super) fn wait_no_more(&mut self, reading: u32) {
        self.waiting.retain(|&(_, waiting)| waiting != reading);
    }

    /// Passes to `ready` the readings that can continue, now that the change `number` was passed on.
    #[inline]
    pub(super) fn wake(&mut self, mut ready: impl FnMut(u32)) {
        let next = self.number + 1;
        while let Some(&(awaited, reading)) = self.waiting.last()
            && awaited <= next
        {
            self.waiting.pop();
            ready(reading);
        }
    }

    pub(super) fn wake_all(&mut self, mut ready: impl FnMut(u32)) {
        self.waiting.drain(..).for_each(|(_, reading)| ready(reading));
    }
}

/// Returns by how many changes `to` comes after `from`; negative if it comes before.
pub(super) fn distance(from: u64, to: u64) -> i64 {
    let unused = u64::BITS - NUMBER_BITS;
    ((to.wrapping_sub(from) << unused) as i64) >> unused
}

impl Goroutines {
    /// Returns the index of a goroutine, known or not.
    pub(super) fn at(&mut self, id: u64) -> u32 {
        self.find_or_insert(id, || OrderedGoroutine::unknown(id)).0
    }

    /// Removes dead goroutines, and those that were only waited for.
    pub(super) fn forget_dead(&mut self) {
        for index in self.indices() {
            let goroutine = &mut self[index];
            goroutine.is_absent = false;
            goroutine.waiting.clear();
            if !goroutine.is_alive() {
                let id = goroutine.id;
                self.remove(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap() {
        let last = (1 << NUMBER_BITS) - 1;
        assert_eq!((distance(5, 6), distance(6, 5), distance(last, 0), distance(0, last)), (1, -1, 1, -1));
        let mut goroutine = OrderedGoroutine::unknown(1);
        goroutine.number = last;
        assert_eq!((goroutine.next_number(), goroutine.fit(0)), (0, Fit::Next));
        assert_eq!((goroutine.fit(last), goroutine.fit(1)), (Fit::Stale, Fit::Later));
    }

    #[test]
    fn who_waits_is_woken_in_turn() {
        let mut goroutine = OrderedGoroutine::unknown(1);
        for (number, reading) in [(7, 70), (3, 30), (9, 90), (0, 1), (3, 31)] {
            goroutine.wait(number, reading);
        }
        let woken = |goroutine: &mut OrderedGoroutine, number| {
            goroutine.number = number;
            let mut woken = Vec::new();
            goroutine.wake(|reading| woken.push(reading));
            woken.sort_unstable();
            woken
        };
        assert_eq!(woken(&mut goroutine, 1), [1]);
        assert_eq!(woken(&mut goroutine, 2), [30, 31]);
        goroutine.wait_no_more(90);
        assert_eq!(woken(&mut goroutine, 20), [70]);
    }

    #[test]
    fn the_dead_are_forgotten() {
        let mut goroutines = Goroutines::new();
        assert_eq!((goroutines.at(0), goroutines.at(50), goroutines.at(60)), (NONE, 1, 2));
        goroutines[1].is_known = true;
        goroutines[1].state = State::Running;
        goroutines.forget_dead();
        assert_eq!((goroutines.find(50), goroutines.find(60)), (Some(1), None));
        assert_eq!((goroutines.at(70), goroutines.at(50)), (2, 1));
    }
}
