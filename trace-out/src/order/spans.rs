//! Passes on the records of collections and of stops of the world.

use rtprof_tracer::record::Record;

use super::lanes::{Awaits, Passed, Reading};
use super::sink::EventSink;
use super::span_sequence::{SpanOrder, SpanSequence};
use super::{NONE, Order};

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
