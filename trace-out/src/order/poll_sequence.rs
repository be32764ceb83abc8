//! Collections, and stops of the world: one at a time, in the order of their numbers, over all lanes.

use rtprof_tracer::record::Record;

use super::lanes::{Awaits, Reading};
use super::pass::Passed;
use super::{EventSink, NONE, Order};

/// How far the trace has followed those of one kind.
#[derive(Default)]
pub(super) struct PollSequence {
    /// The number of the next one.
    next: u64,
    pub(super) is_open: bool,
    /// When the last one began or ended, and on which lane.
    pub(super) tick: u64,
    pub(super) lane: u32,
    /// Who waits for its turn.
    waiting: Vec<u32>,
}

/// What to do with a record of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollOrder {
    Now,
    Later,
    /// It was overtaken, after a loss.
    Stale,
}

impl PollSequence {
    pub(super) fn start(&self, number: u64) -> PollOrder {
        match number {
            number if number < self.next => PollOrder::Stale,
            number if number == self.next && !self.is_open => PollOrder::Now,
            _ => PollOrder::Later,
        }
    }

    pub(super) fn end(&self, number: u64) -> PollOrder {
        match number + 1 {
            next if next == self.next && self.is_open => PollOrder::Now,
            next if next <= self.next => PollOrder::Stale,
            _ => PollOrder::Later,
        }
    }

    pub(super) fn started(&mut self, number: u64) {
        self.next = number + 1;
        self.is_open = true;
    }

    pub(super) fn wait(&mut self, reading: u32) {
        self.waiting.push(reading);
    }

    pub(super) fn wake(&mut self, ready: impl FnMut(u32)) {
        self.waiting.drain(..).for_each(ready);
    }

    pub(super) fn waiting(&self) -> &[u32] {
        &self.waiting
    }

    /// What comes before `number` is in no record.
    pub(super) fn skip_to(&mut self, number: u64) {
        self.next = number;
        self.is_open = false;
    }

    pub(super) fn forget_waiting(&mut self) {
        self.waiting.clear();
    }
}

impl Order {
    pub(super) fn start_poll_in_order(
        &mut self,
        reading: &Reading<'_>,
        tick: u64,
        record: &Record<'_>,
        number: u64,
        of: Awaits,
        sink: &mut impl EventSink,
    ) -> Passed {
        match self.polls_of(of).start(number) {
            PollOrder::Now => {
                self.turn(reading, tick, record, of, sink).started(number);
                self.wake_next_poll(of);
            }
            PollOrder::Later => return Err(of),
            PollOrder::Stale => self.counts.stale += 1,
        }
        Ok(())
    }

    pub(super) fn end_poll_in_order(
        &mut self,
        reading: &Reading<'_>,
        tick: u64,
        record: &Record<'_>,
        number: u64,
        of: Awaits,
        sink: &mut impl EventSink,
    ) -> Passed {
        match self.polls_of(of).end(number) {
            PollOrder::Now => {
                self.turn(reading, tick, record, of, sink).is_open = false;
                self.wake_next_poll(of);
            }
            PollOrder::Later => return Err(of),
            PollOrder::Stale => self.counts.stale += 1,
        }
        Ok(())
    }

    fn turn(
        &mut self,
        reading: &Reading<'_>,
        tick: u64,
        record: &Record<'_>,
        of: Awaits,
        sink: &mut impl EventSink,
    ) -> &mut PollSequence {
        let polls_of = self.polls_of(of);
        let cause = (polls_of.tick, polls_of.lane);
        let at = self.at(reading, tick, Some(cause));
        sink.record(at, NONE, record);
        let polls_of = self.polls_of(of);
        (polls_of.tick, polls_of.lane) = (at.tick, at.lane);
        polls_of
    }

    fn polls_of(&mut self, of: Awaits) -> &mut PollSequence {
        if of == Awaits::Stop { &mut self.stops } else { &mut self.collections }
    }

    fn wake_next_poll(&mut self, of: Awaits) {
        let polls_of = if of == Awaits::Stop { &mut self.stops } else { &mut self.collections };
        let ready = &mut self.ready;
        polls_of.wake(|reading| ready.push_back(reading));
    }
}
