//! A collector's events: collections and stops of the world as slices on tracks of the process, sweeps and assists as moments
//! on the goroutines' tracks.

use std::borrow::Cow;

use crate::schedule::CollectorEvent;

use super::definitions::{annotation, category, iid, name};
use super::event::{TrackEvent, Value};
use super::packets::{Lane, Packets};
use super::track;

impl Packets {
    /// Writes an event of the collector, and returns its time.
    pub(super) fn put_collector(
        &mut self,
        proc: u32,
        lane: &mut Lane,
        time: u64,
        event: CollectorEvent,
    ) -> u64 {
        match event {
            CollectorEvent::StopBegin { reason, text } => {
                self.stopped = Some(reason);
                let slice = TrackEvent::begin(iid(text), category::COLLECTOR);
                self.of_process(track::STOPS, time, slice)
            }
            CollectorEvent::StopEnd => match self.stopped.take() {
                Some(_) => self.of_process(track::STOPS, time, TrackEvent::end()),
                None => time,
            },
            CollectorEvent::CollectionBegin { number, stack } => {
                self.is_collecting = true;
                let slice = TrackEvent {
                    stack,
                    value: Value::Number(annotation::NUMBER, number),
                    ..TrackEvent::begin(name::COLLECTION, category::COLLECTOR)
                };
                self.of_process(track::COLLECTIONS, time, slice)
            }
            CollectorEvent::CollectionEnd => match std::mem::take(&mut self.is_collecting) {
                true => self.of_process(track::COLLECTIONS, time, TrackEvent::end()),
                false => time,
            },
            CollectorEvent::SweepBegin { stack } => {
                let sweep = TrackEvent { stack, ..TrackEvent::instant(name::SWEEP, category::COLLECTOR) };
                self.moment(proc, lane, time, sweep)
            }
            CollectorEvent::SweepEnd { swept, .. } => {
                let value = Value::Number(annotation::BYTES, swept);
                let swept = TrackEvent { value, ..TrackEvent::instant(name::SWEPT, category::COLLECTOR) };
                self.moment(proc, lane, time, swept)
            }
            CollectorEvent::AssistBegin { stack } => {
                let assist = TrackEvent { stack, ..TrackEvent::instant(name::ASSIST, category::COLLECTOR) };
                self.moment(proc, lane, time, assist)
            }
            CollectorEvent::AssistEnd => {
                self.moment(proc, lane, time, TrackEvent::instant(name::ASSISTED, category::COLLECTOR))
            }
            // A reader has the whole trace.
            CollectorEvent::SweepActive | CollectorEvent::CollectionActive => time,
        }
    }

    /// Returns the collector's open slices: track, name and category.
    pub(super) fn open_collector(&self) -> impl Iterator<Item = (u64, Cow<'static, str>, u64)> {
        let collection =
            self.is_collecting.then(|| (track::COLLECTIONS, name::text(name::COLLECTION).into()));
        let stop = self.stopped.map(|reason| (track::STOPS, reason.text()));
        collection.into_iter().chain(stop).map(|(track, name)| (track, name, category::COLLECTOR))
    }
}
