//! Puts the records of a generation into an order in which every effect comes after its cause.
//!
//! Each lane is in order. Between lanes there are only the numbers of the changes that goroutines go through, and
//! ticks, which are almost in order: cores' counters are a few ticks apart, and who takes a number is not who reads
//! the clock next. Readers of traces forgive nothing here.
//!
//! So a lane is read until its next record has to wait for another lane's; then it waits at the goroutine, or for the
//! collection, and another lane is read. Whoever changes the goroutine wakes it. Every record is looked at once, and
//! once more for each wait. A tick that is not after its cause's is lifted; how often and how far is counted, as it
//! says how far the trace can be trusted.
//!
//! After a loss the [`Status`](rtprof_tracer::record::Status) of a goroutine need not be what its records led to. It
//! wins, and the visitor bridges the gap. Lanes that wait for what never comes give up until the next generation,
//! whose declarations put everything right.

mod declared;
mod goroutines;
mod lanes;
mod pass;
mod polls;
mod span_sequence;

use std::collections::VecDeque;

use rtprof_runtime::state::State;
use rtprof_tracer::generation::Generation;
use rtprof_tracer::record::{Record, Status};

use goroutines::Goroutines;
use lanes::{Awaits, Lanes, Next, Reading};
use span_sequence::SpanSequence;

pub(crate) use goroutines::NONE;
pub(crate) use lanes::SHARED;

/// Where and when something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventPosition {
    /// The lane it was recorded on; [`SHARED`] outside threads.
    pub(crate) lane: u32,
    /// The lifted tick: not before that of any cause.
    pub(crate) tick: u64,
    /// The goroutine that it is about, as the lane has it; [`NONE`] for none.
    pub(crate) goroutine: u32,
}

/// Who makes a trace of what happened. Goroutines and lanes are named by small dense numbers that are given away
/// again after [`record`](Self::record) of an `End`, [`bridge`](Self::bridge) to [`State::Dead`], or
/// [`lane_over`](Self::lane_over).
pub(crate) trait EventSink {
    /// The lane has records in this generation, of the kernel's thread `thread_id`; or, where that is 0, a thread runs
    /// of which nothing more is known yet.
    fn lane(&mut self, lane: u32, thread: u64, thread_id: u32);

    /// A goroutine is heard of for the first time, as what `status` says. `owner` is the lane of its thread, if that
    /// is known.
    fn introduce(&mut self, at: EventPosition, goroutine: u32, owner: Option<u32>, status: &Status);

    /// A goroutine is in this state now; how it came there is in no record.
    fn bridge(&mut self, at: EventPosition, goroutine: u32, owner: Option<u32>, state: State);

    /// Something was recorded, and has its turn. `target` is the goroutine that the record names, else [`NONE`].
    fn record(&mut self, at: EventPosition, target: u32, record: &Record<'_>);

    /// The task at `at.goroutine` goes on, whose poll has polled another one until now.
    fn resume(&mut self, at: EventPosition);

    /// The thread is over, and so is the goroutine that ran on it.
    fn lane_over(&mut self, lane: u32);
}

/// What did not go smoothly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OrderCounts {
    /// Records passed on.
    pub(crate) records: u64,
    /// Ticks that were not after their cause's.
    pub(crate) lifted: u64,
    /// By how many ticks the largest of them was moved.
    pub(crate) largest_lift: u64,
    /// Records of what was over already, or of goroutines that nothing is known of, after a loss: left out.
    pub(crate) stale: u64,
    /// How often it is not known how a goroutine came to a state.
    pub(crate) bridged: u64,
    /// Generations in which lanes waited for what never came.
    pub(crate) stuck_generations: u64,
    /// Records that were left out because of that.
    pub(crate) stuck_records: u64,
    /// Buffers whose end could not be read.
    pub(crate) torn: u64,
}

/// How many generations a thread may take from its creation until it begins.
const GENERATIONS_UNTIL_BEGUN: u32 = 100;

/// What the trace has come to.
pub(crate) struct Order {
    goroutines: Goroutines,
    lanes: Lanes,
    collections: SpanSequence,
    stops: SpanSequence,
    /// How many generations there were.
    generation: u32,
    /// The readings that can get on.
    ready: VecDeque<u32>,
    counts: OrderCounts,
}

impl Order {
    pub(crate) fn new() -> Self {
        Self {
            goroutines: Goroutines::new(),
            lanes: Lanes::new(),
            collections: SpanSequence::default(),
            stops: SpanSequence::default(),
            generation: 0,
            ready: VecDeque::new(),
            counts: OrderCounts::default(),
        }
    }

    pub(crate) fn counts(&self) -> OrderCounts {
        self.counts
    }

    /// Passes all that is in a generation on.
    pub(crate) fn generation(&mut self, generation: &Generation<'_>, sink: &mut impl EventSink) {
        self.generation += 1;
        let mut readings = Vec::with_capacity(generation.lanes.len());
        for records in &generation.lanes {
            let (lane, _) = self.lanes.at(records.thread);
            self.lanes[lane].seen = self.generation;
            if lane != SHARED {
                sink.lane(lane, records.thread, records.thread_id);
            }
            if lane != SHARED && !self.lanes[lane].has_ended {
                self.lanes[lane].own = self.goroutines.at(records.thread);
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
        self.bury(generation.end, sink);
        self.forget_polled();
        self.ready.clear();
        self.goroutines.forget_dead();
        self.collections.forget_waiting();
        self.stops.forget_waiting();
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
                    // Who waited for two things is woken twice.
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

    /// The lane waits with its next record.
    fn park<'a>(&mut self, at: u32, reading: &mut Reading<'a>, record: (u64, Record<'a>), awaits: Awaits) {
        reading.pending = Some(record);
        reading.awaits = Some(awaits);
        match awaits {
            Awaits::Declaration(goroutine) | Awaits::Loss(goroutine) => {
                self.goroutines[goroutine].wait(0, at);
            }
            Awaits::Change(goroutine, number) => self.goroutines[goroutine].wait(number, at),
            // Those that wait for a change are woken before it.
            Awaits::Jump(goroutine, number) => self.goroutines[goroutine].wait(number + 1, at),
            Awaits::Collection => self.collections.wait(at),
            Awaits::Stop => self.stops.wait(at),
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
        // A thread whose goroutine waits may say that it runs none; the records are about that one all the same.
        if goroutine == 0 || goroutine == self.goroutines[self.lanes[lane].top()].id {
            return;
        }
        // The beginnings and ends of polls were lost.
        self.end_polls_of(lane);
        // Where that is not what the task has come to, a declaration of it follows on this lane, or the trace is further already.
        if let Some(polled) = self.goroutines.find(goroutine)
            && goroutine != self.lanes[lane].thread
            && self.goroutines[polled].state == State::Running
        {
            self.begin_poll(polled, lane);
            let tick = self.lanes[lane].tick;
            sink.resume(EventPosition { lane, tick, goroutine: polled });
        }
    }

    /// Nobody can get on: frees those that wait for what was lost. False if there is nothing to be done.
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
        // One by one, the oldest first: what comes after it may be a declaration for another.
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
        for (spans, of) in [(&mut self.collections, Awaits::Collection), (&mut self.stops, Awaits::Stop)] {
            if spans.waiting().is_empty() {
                continue;
            }
            // What comes before the first of them was lost. It may be an end: of one whose start was.
            let next = |reading: &u32| match readings[*reading as usize].pending {
                Some((_, Record::GcStart { number, .. } | Record::StwStart { number, .. })) => Some(number),
                Some((_, Record::GcDone { number } | Record::StwDone { number })) => Some(number + 1),
                _ => None,
            };
            if let Some(next) = spans.waiting().iter().filter_map(next).min() {
                spans.skip_to(next);
            }
            self_check!(spans.waiting().iter().all(|&waiting| readings[waiting as usize].awaits == Some(of)));
            spans.wake(|reading| self.ready.push_back(reading));
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

    /// The start of a goroutine on its own lane, or the beginning or end of a poll, tells the state before it as well as a declaration
    /// would: all of its own changes before it have been read. So the oldest one that waits is believed.
    fn leap(&mut self, readings: &[Reading<'_>], sink: &mut impl EventSink) -> bool {
        let oldest = readings.iter().filter_map(|reading| {
            let &(tick, ref record) = reading.pending.as_ref()?;
            let (goroutine, number, runs, is_own) = match *record {
                Record::Start { goroutine, number, .. } => {
                    (goroutine, number, false, self.lanes[reading.lane].thread == goroutine)
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

    /// Whoever waits now waits for ever: leaves the rest of his records out.
    fn give_up(&mut self, readings: &mut [Reading<'_>], end: u64, sink: &mut impl EventSink) {
        let mut is_stuck = false;
        for reading in readings {
            if reading.awaits.take().is_none() {
                continue;
            }
            is_stuck = true;
            self.counts.stuck_records += reading.drop_rest();
            if reading.is_over && reading.lane != SHARED {
                self.end_lane(reading.lane, end, sink);
            }
        }
        self.counts.stuck_generations += u64::from(is_stuck);
    }

    /// Ends the goroutines that nothing was heard of in this generation, nor in the one before: a declaration may
    /// have been lost with a buffer, but not two of them. A thread that was created declares itself when it begins, and may take
    /// some more until then.
    fn bury(&mut self, end: u64, sink: &mut impl EventSink) {
        for index in self.goroutines.indices() {
            let goroutine = &self.goroutines[index];
            let is_new = goroutine.state == State::Runnable && goroutine.number == 0;
            let silent = if is_new { GENERATIONS_UNTIL_BEGUN } else { 1 };
            if goroutine.is_alive() && goroutine.declared + silent < self.generation {
                let owner = self.lanes.find(goroutine.id);
                let lane = owner.unwrap_or(SHARED);
                let at = EventPosition { lane, tick: end.max(goroutine.tick), goroutine: NONE };
                self.goroutines[index].state = State::Dead;
                self.end_poll(index);
                sink.bridge(at, index, owner, State::Dead);
            }
        }
        // Lanes of threads that were never heard of again.
        let silent: Vec<u32> = self
            .lanes
            .open()
            .filter(|&index| {
                let lane = &self.lanes[index];
                lane.seen != self.generation
                    && !self
                        .goroutines
                        .find(lane.thread)
                        .is_some_and(|thread| self.goroutines[thread].is_alive())
            })
            .collect();
        for lane in silent {
            self.end_lane(lane, end, sink);
        }
    }

    fn end_lane(&mut self, lane: u32, tick: u64, sink: &mut impl EventSink) {
        if let Some(index) = self.goroutines.find(self.lanes[lane].thread)
            && self.goroutines[index].is_alive()
        {
            let tick = tick.max(self.goroutines[index].tick);
            self.goroutines[index].state = State::Dead;
            sink.bridge(EventPosition { lane, tick, goroutine: NONE }, index, Some(lane), State::Dead);
            self.goroutines[index].wake_all(|reading| self.ready.push_back(reading));
        }
        sink.lane_over(lane);
        self.end_polls_of(lane);
        self.lanes.remove(self.lanes[lane].thread);
    }
}

#[cfg(test)]
mod tests;
