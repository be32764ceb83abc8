//! A collector's events.

use rtprof_tracer::record::StwReason;

use crate::schedule::{CollectorEvent, Proc, Reason};

use super::batches::{Batch, Batches};
use super::event::EventType as E;

impl Batches {
    /// Writes an event of the collector, and returns its tick.
    pub(super) fn put_collector(
        &mut self,
        index: u32,
        proc: &mut Proc<Batch>,
        tick: u64,
        event: CollectorEvent,
    ) -> u64 {
        match event {
            CollectorEvent::StopBegin { reason, .. } => {
                let kind = u64::from(reason == Reason::Stop(StwReason::SweepTermination));
                self.append(index, proc, tick, E::StwStart, [kind], None)
            }
            CollectorEvent::StopEnd => self.append(index, proc, tick, E::StwDone, [], None),
            CollectorEvent::CollectionBegin { number, stack } => {
                self.append(index, proc, tick, E::GcStart, [number, stack], None)
            }
            CollectorEvent::CollectionEnd => self.append(index, proc, tick, E::GcDone, [], None),
            CollectorEvent::SweepBegin { stack } => {
                self.append(index, proc, tick, E::GcSweepStart, [stack], None)
            }
            CollectorEvent::SweepEnd { swept, reclaimed } => {
                self.append(index, proc, tick, E::GcSweepDone, [swept, reclaimed], None)
            }
            CollectorEvent::AssistBegin { stack } => {
                self.append(index, proc, tick, E::GcMarkAssistStart, [stack], None)
            }
            CollectorEvent::AssistEnd => self.append(index, proc, tick, E::GcMarkAssistDone, [], None),
            // The whole file is one part.
            CollectorEvent::SweepActive | CollectorEvent::CollectionActive => tick,
        }
    }
}
