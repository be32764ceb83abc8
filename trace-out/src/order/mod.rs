//! Puts the records of a generation into an order in which every effect comes after its cause.
//!
//! Each lane is in order. Between lanes there are only the numbers of the goroutines' changes, and ticks, which are
//! almost in order: cores' counters are a few ticks apart, and the thread that takes a number is not always the next to
//! read the clock. Readers of traces accept no violation of this order.
//!
//! So a lane is read until its next record has to wait for another lane. Then it waits at the goroutine, or for the
//! collection, and another lane is read. A lane that changes the goroutine wakes the waiting ones. Every record is
//! examined once, and once more for each wait. A tick that is not after its cause's is lifted; the number and the size
//! of lifts are counted, because they show how far the trace can be trusted.
//!
//! After a loss the [`Status`](rtprof_tracer::record::Status) of a goroutine need not match the changes read so far. The `Status` wins, and the sink
//! bridges the gap. Lanes that wait for records that never come give up until the next generation, whose declarations
//! restore all states.

mod collector;
mod declared;
mod goroutines;
mod lanes;
mod pass;
mod polls;
mod sink;

use std::collections::VecDeque;

use rtprof_runtime::goroutine::state::State;
use rtprof_tracer::generation::Generation;
use rtprof_tracer::record::Record;

use collector::CollectorSpans;
use goroutines::Goroutines;
use lanes::{Awaits, Lanes, Next, OpenCall, Reading};

pub(crate) use goroutines::NONE;
pub(crate) use lanes::SHARED;
pub(crate) use sink::{EventPosition, EventSink, OrderCounts};

/// The most generations that a thread may take from its creation until it begins.
const GENERATIONS_UNTIL_BEGUN: u32 = 100;

/// The state of the ordering.
pub(crate) struct Order {
    goroutines: Goroutines,
    lanes: Lanes,
    collector: CollectorSpans,
    /// The number of generations so far.
    generation: u32,
    /// The readings that can continue.
    ready: VecDeque<u32>,
    /// The calls that were in progress at the end of the generation, until all lanes are read.
    open_calls: Vec<OpenCall>,
    counts: OrderCounts,
}

impl Order {
    pub(crate) fn new() -> Self {
        Self {
            goroutines: Goroutines::new(),
            lanes: Lanes::new(),
            collector: CollectorSpans::default(),
            generation: 0,
            ready: VecDeque::new(),
            open_calls: Vec::new(),
            counts: OrderCounts::default(),
        }
    }

    pub(crate) fn counts(&self) -> OrderCounts {
        self.counts
    }

    /// Passes on all records of a generation.
    pub(crate) fn generation(&mut self, generation: &Generation<'_>, sink: &mut impl EventSink) {
        self.generation += 1;
        let mut readings = Vec::with_capacity(generation.lanes.len());
        for records in &generation.lanes {
            let (lane, _) = self.lanes.at(records.goroutine);
            self.lanes[lane].seen = self.generation;
            if lane != SHARED {
                sink.lane(lane, records.goroutine, records.thread_id);
            }
            if lane != SHARED && !self.lanes[lane].has_ended {
                self.lanes[lane].own = self.goroutines.at(records.goroutine);
            }
            readings.push(Reading::new(lane, records));
        }
        self.ready.extend(0..readings.len() as u32);
        loop {
            while let Some(at) = self.ready.pop_front() {
                self.read(at, &mut readings[at as usize], sink);
            }
            if !self.unstick(&mut readings) && !self.leap(&readings, sink) {
                break;
            }
        }
        self.give_up(&mut readings, generation.end, sink);
        self.pass_open_calls(sink);
        self.bury(generation.end, sink);
        self.forget_polled();
        self.ready.clear();
        self.goroutines.forget_dead();
        self.collector.forget_waiting();
    }

    /// Reads a lane until it must wait, or ends.
    fn read(&mut self, at: u32, reading: &mut Reading<'_>, sink: &mut impl EventSink) {
        reading.awaits = None;
        if let Some((tick, record)) = reading.pending.take()
            && let Err(awaits) = self.pass(reading, tick, &record, sink)
        {
            return self.park(at, reading, (tick, record), awaits);
        }
        loop {
            while let Some((tick, record)) = reading.record() {
                if let Err(awaits) = self.pass(reading, tick, &record, sink) {
                    return self.park(at, reading, (tick, record), awaits);
                }
            }
            match reading.next_buffer() {
                Next::Buffer { goroutine, is_after_loss } => {
                    self.begin_buffer(reading, goroutine, is_after_loss, sink);
                }
                Next::Torn => {
                    self.counts.torn += 1;
                    reading.is_after_loss = true;
                }
                Next::End => {
                    // A reading that waited for two events is woken twice.
                    let was_done = std::mem::replace(&mut reading.is_done, true);
                    if !was_done && reading.is_over && reading.lane != SHARED {
                        let tick = self.lanes[reading.lane].tick;
                        self.end_lane(reading.lane, tick, sink);
                    }
                    return;
                }
            }
        }
    }

    /// Parks the lane with its next record.
    fn park<'a>(&mut self, at: u32, reading: &mut Reading<'a>, record: (u64, Record<'a>), awaits: Awaits) {
        reading.pending = Some(record);
        reading.awaits = Some(awaits);
        match awaits {
            Awaits::Declaration(goroutine) | Awaits::Loss(goroutine) => {
                self.goroutines[goroutine].wait(0, at);
            }
            Awaits::Change(goroutine, number) => self.goroutines[goroutine].wait(number, at),
            // Readings that wait for a change are woken before it.
            Awaits::Jump(goroutine, number) => self.goroutines[goroutine].wait(number + 1, at),
            Awaits::Collector(numbered) => self.collector.of(numbered).wait(at),
        }
    }

    fn begin_buffer(
        &mut self,
        reading: &mut Reading<'_>,
        goroutine: u64,
        is_after_loss: bool,
        sink: &mut impl EventSink,
    ) {
        reading.is_after_loss |= is_after_loss;
        let lane = reading.lane;
        // A thread whose goroutine waits may state that it runs none; the records belong to that goroutine
        // nevertheless.
        if goroutine == 0 || goroutine == self.goroutines[self.lanes[lane].top()].id {
            return;
        }
        // The beginnings and ends of polls were lost.
        self.end_polls_of(lane);
        // If that contradicts the task's state, a declaration of the task follows on this lane, or the trace is further
        // already.
        if let Some(polled) = self.goroutines.find(goroutine)
            && goroutine != self.lanes[lane].goroutine
            && self.goroutines[polled].state == State::Running
        {
            self.begin_poll(polled, lane);
            let tick = self.lanes[lane].tick;
            sink.resume(EventPosition { lane, tick, goroutine: polled });
        }
    }

    /// Frees readings that wait for lost records, when no reading can continue. Returns `false` if there is nothing to
    /// free.
    fn unstick(&mut self, readings: &mut [Reading<'_>]) -> bool {
        for (at, reading) in readings.iter_mut().enumerate() {
            if let Some(Awaits::Declaration(goroutine)) = reading.awaits {
                reading.is_loose = true;
                self.goroutines[goroutine].wait_no_more(at as u32);
                self.ready.push_back(at as u32);
            }
        }
        if !self.ready.is_empty() {
            return true;
        }
        // One by one, the oldest first: the records after it may contain a declaration for another.
        let oldest = readings.iter_mut().enumerate().filter_map(|(at, reading)| {
            let tick = reading.pending.as_ref()?.0;
            match reading.awaits? {
                Awaits::Loss(goroutine) | Awaits::Jump(goroutine, _) => Some((tick, at, goroutine)),
                _ => None,
            }
        });
        if let Some((_, at, goroutine)) = oldest.min() {
            match readings[at].awaits {
                // No change was lost.
                Some(Awaits::Loss(_)) => readings[at].is_after_loss = false,
                _ => readings[at].is_due = true,
            }
            self.goroutines[goroutine].wait_no_more(at as u32);
            self.ready.push_back(at as u32);
            return true;
        }
        if self.unstick_collector(readings) {
            return true;
        }
        for reading in readings {
            if let Some(Awaits::Change(target, _)) = reading.awaits
                && target != self.lanes[reading.lane].own
                && !self.goroutines[target].is_known
                && !self.goroutines[target].is_absent
            {
                self.goroutines[target].is_absent = true;
                self.goroutines[target].wake_all(|reading| self.ready.push_back(reading));
            }
        }
        !self.ready.is_empty()
    }

    /// Accepts the oldest waiting record that implies the state before it as reliably as a declaration would. This is
    /// the start of a goroutine on its own lane, or the beginning or end of a poll: all of the goroutine's own changes
    /// before it have been read.
    fn leap(&mut self, readings: &[Reading<'_>], sink: &mut impl EventSink) -> bool {
        let oldest = readings.iter().filter_map(|reading| {
            let &(tick, ref record) = reading.pending.as_ref()?;
            let (goroutine, number, runs, is_own) = match *record {
                Record::Start { goroutine, number, .. } => {
                    (goroutine, number, false, self.lanes[reading.lane].goroutine == goroutine)
                }
                Record::Poll { goroutine, number, .. } => (goroutine, number, false, true),
                Record::Await { goroutine, number, .. }
                | Record::Reschedule { goroutine, number, .. }
                | Record::Ready { goroutine, number } => (goroutine, number, true, true),
                _ => return None,
            };
            let index = self.goroutines.find(goroutine)?;
            let waits = matches!(reading.awaits?, Awaits::Change(..)) && self.goroutines[index].is_alive();
            (waits && is_own).then_some((tick, reading.lane, index, number, runs))
        });
        let Some((tick, lane, index, number, runs)) = oldest.min() else { return false };
        let at = EventPosition { lane, tick: tick.max(self.goroutines[index].tick), goroutine: NONE };
        let before = if runs { State::Running } else { State::Runnable };
        self.jump(at, index, Some(lane), number.wrapping_sub(1), before, sink);
        true
    }

    /// Gives up on readings that would wait for ever, and leaves out the rest of their records.
    fn give_up(&mut self, readings: &mut [Reading<'_>], end: u64, sink: &mut impl EventSink) {
        let mut is_stuck = false;
        for reading in readings {
            if reading.awaits.take().is_none() {
                continue;
            }
            is_stuck = true;
            self.counts.stuck_records += reading.drop_rest(&mut self.open_calls);
            if reading.is_over && reading.lane != SHARED {
                self.end_lane(reading.lane, end, sink);
            }
        }
        self.counts.stuck_generations += u64::from(is_stuck);
    }

    /// Passes on the calls that are still in progress. They belong to the goroutine that their thread runs at the end, so
    /// the beginnings and ends of polls must have been read.
    fn pass_open_calls(&mut self, sink: &mut impl EventSink) {
        for OpenCall { tick, goroutine, state, begin } in std::mem::take(&mut self.open_calls) {
            let Some(index) = self.goroutines.find(goroutine) else { continue };
            let Some(lane) = self.lanes.find(goroutine) else { continue };
            // What the thread has recorded since shows that the call is over.
            if self.goroutines[index].is_alive() && self.lanes[lane].tick <= tick {
                let at = EventPosition { lane, tick, goroutine: NONE };
                self.counts.records += 1;
                sink.record(at, self.visible(index), &Record::InCall { goroutine, state, begin });
            }
        }
    }

    /// Ends the goroutines without any record in this generation and the previous one: a declaration may have been lost
    /// with a buffer, but not two of them. A thread that was created declares itself when it begins, and may take some
    /// more generations until then.
    fn bury(&mut self, end: u64, sink: &mut impl EventSink) {
        for index in self.goroutines.indices() {
            let goroutine = &self.goroutines[index];
            let may_begin = !goroutine.is_task && goroutine.state == State::Runnable && goroutine.number == 0;
            let silent = if may_begin { GENERATIONS_UNTIL_BEGUN } else { 1 };
            if goroutine.is_alive() && goroutine.declared + silent < self.generation {
                let owner = self.lanes.find(goroutine.id);
                let lane = owner.unwrap_or(SHARED);
                let at = EventPosition { lane, tick: end.max(goroutine.tick), goroutine: NONE };
                self.goroutines[index].state = State::Dead;
                self.end_poll(index);
                sink.bridge(at, index, owner, State::Dead);
            }
        }
        // Lanes of threads that have recorded nothing since.
        let silent: Vec<u32> = self
            .lanes
            .open()
            .filter(|&index| {
                let lane = &self.lanes[index];
                lane.seen != self.generation
                    && !self
                        .goroutines
                        .find(lane.goroutine)
                        .is_some_and(|thread| self.goroutines[thread].is_alive())
            })
            .collect();
        for lane in silent {
            self.end_lane(lane, end, sink);
        }
    }

    fn end_lane(&mut self, lane: u32, tick: u64, sink: &mut impl EventSink) {
        if let Some(index) = self.goroutines.find(self.lanes[lane].goroutine)
            && self.goroutines[index].is_alive()
        {
            let tick = tick.max(self.goroutines[index].tick);
            self.goroutines[index].state = State::Dead;
            sink.bridge(EventPosition { lane, tick, goroutine: NONE }, index, Some(lane), State::Dead);
            self.goroutines[index].wake_all(|reading| self.ready.push_back(reading));
        }
        sink.lane_over(lane);
        self.end_polls_of(lane);
        self.lanes.remove(self.lanes[lane].goroutine);
    }
}

#[cfg(test)]
mod tests;
