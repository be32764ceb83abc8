//! A collector's events.

use crate::schedule::CollectorEvent;

use super::event::EventType as E;
use super::streams::Streams;

impl Streams {
    /// Writes an event of the collector.
    pub(super) fn put_collector(&mut self, proc: u32, tick: u64, event: CollectorEvent) {
        match event {
            CollectorEvent::StopBegin { text, .. } => self.append(proc, tick, E::StwBegin, [text, 0]),
            CollectorEvent::StopEnd => self.append(proc, tick, E::StwEnd, []),
            CollectorEvent::CollectionBegin { stack, .. } => {
                let sequence = self.next_collection();
                self.put_with_goroutine(proc, tick, E::GcBegin, [sequence, stack]);
            }
            CollectorEvent::CollectionEnd => {
                let sequence = self.next_collection();
                self.put_with_goroutine(proc, tick, E::GcEnd, [sequence]);
            }
            CollectorEvent::CollectionActive => {
                let sequence = self.next_collection();
                self.put_outside_goroutine(tick, E::GcActive, [sequence]);
            }
            CollectorEvent::SweepBegin { stack } => self.append(proc, tick, E::GcSweepBegin, [stack]),
            CollectorEvent::SweepEnd { swept, reclaimed } => {
                self.append(proc, tick, E::GcSweepEnd, [swept, reclaimed]);
            }
            CollectorEvent::SweepActive => self.append(proc, tick, E::GcSweepActive, [proc.into()]),
            CollectorEvent::AssistBegin { stack } => {
                self.append(proc, tick, E::GcMarkAssistBegin, [stack]);
            }
            CollectorEvent::AssistEnd => self.append(proc, tick, E::GcMarkAssistEnd, []),
        }
    }

    /// Returns the next sequence number of collections.
    fn next_collection(&mut self) -> u64 {
        self.collection += 1;
        self.collection
    }
}
