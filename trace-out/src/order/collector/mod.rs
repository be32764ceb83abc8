//! Passes on the records of a collector that the program embeds.

mod spans;

use rtprof_tracer::record::{CollectorRecord, Record};

use super::lanes::{Awaits, Passed, Reading};
use super::sink::EventSink;
use super::{NONE, Order};

pub(super) use spans::{CollectorSpans, Numbered};
use spans::{Edge, SpanOrder};

/// Returns the edge of a span that the record is. Sweeps and assists are not numbered.
fn edge_of(record: &CollectorRecord) -> Option<(Numbered, Edge)> {
    match *record {
        CollectorRecord::GcStart { number, .. } => Some((Numbered::Collection, Edge::Start(number))),
        CollectorRecord::GcDone { number } => Some((Numbered::Collection, Edge::End(number))),
        CollectorRecord::StwStart { number, .. } => Some((Numbered::Stop, Edge::Start(number))),
        CollectorRecord::StwDone { number } => Some((Numbered::Stop, Edge::End(number))),
        CollectorRecord::SweepStart { .. }
        | CollectorRecord::SweepDone { .. }
        | CollectorRecord::AssistStart { .. }
        | CollectorRecord::AssistDone => None,
    }
}

impl Order {
    /// Passes on `record`, which has `of`, if its turn has come.
    pub(super) fn pass_collector(
        &mut self,
        reading: &Reading<'_>,
        tick: u64,
        (record, of): (&Record<'_>, &CollectorRecord),
        sink: &mut impl EventSink,
    ) -> Passed {
        let Some((numbered, edge)) = edge_of(of) else {
            // An event of the lane's goroutine that changes no state.
            self.own_is_declared(reading)?;
            let at = self.at(reading, tick, None);
            sink.record(at, NONE, record);
            return Ok(());
        };
        if matches!(edge, Edge::Start(_)) {
            self.own_is_declared(reading)?;
        }
        match self.collector.of(numbered).order(edge) {
            SpanOrder::Now => {}
            SpanOrder::Later => return Err(Awaits::Collector(numbered)),
            SpanOrder::Stale => {
                self.counts.stale += 1;
                return Ok(());
            }
        }
        let cause = self.collector.of(numbered).cause;
        let at = self.at(reading, tick, Some(cause));
        sink.record(at, NONE, record);
        let spans = self.collector.of(numbered);
        spans.cause = (at.tick, at.lane);
        spans.pass(edge);
        spans.wake(|reading| self.ready.push_back(reading));
        Ok(())
    }

    /// Frees the readings that wait for a lost collection or stop, when no reading can continue. Returns `false` if there are
    /// none.
    pub(super) fn unstick_collector(&mut self, readings: &[Reading<'_>]) -> bool {
        for numbered in [Numbered::Collection, Numbered::Stop] {
            let spans = self.collector.of(numbered);
            if spans.waiting().is_empty() {
                continue;
            }
            // Everything before the first of them was lost. It may be an end whose start was lost.
            let next = |reading: &u32| match &readings[*reading as usize].pending {
                Some((_, Record::Collector(of))) => edge_of(of).map(|(_, edge)| edge.first_needed()),
                _ => None,
            };
            if let Some(next) = spans.waiting().iter().filter_map(next).min() {
                spans.skip_to(next);
            }
            let awaits = Some(Awaits::Collector(numbered));
            self_check!(spans.waiting().iter().all(|&waiting| readings[waiting as usize].awaits == awaits));
            spans.wake(|reading| self.ready.push_back(reading));
            return true;
        }
        false
    }
}
