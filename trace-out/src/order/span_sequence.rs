//! Collections, and stops of the world: one at a time, in the order of their numbers, across all lanes.

use rtprof_tracer::record::Record;

use super::lanes::{Awaits, Reading};
use super::pass::Passed;
use super::{EventSink, NONE, Order};

/// The trace's progress with the spans of one kind.
#[derive(Default)]
pub(super) struct SpanSequence {
    /// The number of the next span.
    next: u64,
    pub(super) is_open: bool,
    /// The tick at which the last span began or ended, and its lane.
    pub(super) tick: u64,
    pub(super) lane: u32,
    /// Readings that wait for their turn.
    waiting: Vec<u32>,
}

/// What to do with the record of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanOrder {
    Now,
    Later,
    /// It was overtaken, after a loss.
    Stale,
}

impl SpanSequence {
    pub(super) fn start(&self, number: u64) -> SpanOrder {
        match number {
            number if number < self.next => SpanOrder::Stale,
            number if number == self.next && !self.is_open => SpanOrder::Now,
            _ => SpanOrder::Later,
        }
    }

    pub(super) fn end(&self, number: u64) -> SpanOrder {
        match number + 1 {
            next if next == self.next && self.is_open => SpanOrder::Now,
            next if next <= self.next => SpanOrder::Stale,
            _ => SpanOrder::Later,
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

    /// Skips the spans before `number`, which were lost.
    pub(super) fn skip_to(&mut self, number: u64) {
        self.next = number;
        self.is_open = false;
    }

    pub(super) fn forget_waiting(&mut self) {
        self.waiting.clear();
    }
}

impl Order {
    pub(super) fn start_span(
        &mut self,
        reading: &Reading<'_>,
        tick: u64,
        record: &Record<'_>,
        number: u64,
        of: Awaits,
        sink: &mut impl EventSink,
    ) -> Passed {
        let order = self.spans(of).start(number);
        self.turn(reading, tick, record, (of, order), sink, |spans| spans.started(number))
    }

    pub(super) fn end_span(
        &mut self,
        reading: &Reading<'_>,
        tick: u64,
        record: &Record<'_>,
        number: u64,
        of: Awaits,
        sink: &mut impl EventSink,
    ) -> Passed {
        let order = self.spans(of).end(number);
        self.turn(reading, tick, record, (of, order), sink, |spans| spans.is_open = false)
    }

    /// Passes on the start or end of a span if its turn has come.
    fn turn(
        &mut self,
        reading: &Reading<'_>,
        tick: u64,
        record: &Record<'_>,
        (of, order): (Awaits, SpanOrder),
        sink: &mut impl EventSink,
        change: impl FnOnce(&mut SpanSequence),
    ) -> Passed {
        match order {
            SpanOrder::Now => {}
            SpanOrder::Later => return Err(of),
            SpanOrder::Stale => {
                self.counts.stale += 1;
                return Ok(());
            }
        }
        let spans = self.spans(of);
        let cause = (spans.tick, spans.lane);
        let at = self.at(reading, tick, Some(cause));
        sink.record(at, NONE, record);
        let spans = if of == Awaits::Stop { &mut self.stops } else { &mut self.collections };
        (spans.tick, spans.lane) = (at.tick, at.lane);
        change(spans);
        spans.wake(|reading| self.ready.push_back(reading));
        Ok(())
    }

    fn spans(&mut self, of: Awaits) -> &mut SpanSequence {
        if of == Awaits::Stop { &mut self.stops } else { &mut self.collections }
    }
}
