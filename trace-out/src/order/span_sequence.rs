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
        match self.spans(of).start(number) {
            SpanOrder::Now => {
                self.turn(reading, tick, record, of, sink).started(number);
                self.wake_next_span(of);
            }
            SpanOrder::Later => return Err(of),
            SpanOrder::Stale => self.counts.stale += 1,
        }
        Ok(())
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
        match self.spans(of).end(number) {
            SpanOrder::Now => {
                self.turn(reading, tick, record, of, sink).is_open = false;
                self.wake_next_span(of);
            }
            SpanOrder::Later => return Err(of),
            SpanOrder::Stale => self.counts.stale += 1,
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
    ) -> &mut SpanSequence {
        let spans = self.spans(of);
        let cause = (spans.tick, spans.lane);
        let at = self.at(reading, tick, Some(cause));
        sink.record(at, NONE, record);
        let spans = self.spans(of);
        (spans.tick, spans.lane) = (at.tick, at.lane);
        spans
    }

    fn spans(&mut self, of: Awaits) -> &mut SpanSequence {
        if of == Awaits::Stop { &mut self.stops } else { &mut self.collections }
    }

    fn wake_next_span(&mut self, of: Awaits) {
        let spans = if of == Awaits::Stop { &mut self.stops } else { &mut self.collections };
        let ready = &mut self.ready;
        spans.wake(|reading| ready.push_back(reading));
    }
}
