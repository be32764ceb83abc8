//! The tasks that each lane polls, each inside the poll of the previous one.

use rtprof_runtime::goroutine::state::State;
use rtprof_tracer::record::Record;

use super::goroutines::OrderedGoroutine;
use super::lanes::{Passed, Reading, SHARED};
use super::sink::{EventPosition, EventSink};
use super::{NONE, Order};

impl Order {
    /// Ends the poll of a task, on the lane where it began.
    pub(super) fn poll_over(
        &mut self,
        reading: &Reading<'_>,
        tick: u64,
        record: &Record<'_>,
        (task, number): (u64, u64),
        to: State,
        sink: &mut impl EventSink,
    ) -> Passed {
        let index = self.goroutines.at(task);
        if !self.numbered(index, number, |state| state == State::Running)? {
            // The trace is further already.
            if self.goroutines[index].polled_on == reading.lane {
                self.end_poll(index);
            }
            return Ok(());
        }
        let cause = self.cause_of(index);
        let at = EventPosition { goroutine: index, ..self.at(reading, tick, Some(cause)) };
        sink.record(at, NONE, record);
        self.change(index, to, at, true);
        let was_polled = self.end_poll(index);
        let lane = &self.lanes[reading.lane];
        if was_polled && let Some(&outer) = lane.polled.last() {
            sink.resume(EventPosition { goroutine: outer, ..at });
        }
        Ok(())
    }

    /// Begins a poll of a task by a lane.
    pub(super) fn begin_poll(&mut self, task: u32, lane: u32) {
        self.end_poll(task);
        self.lanes[lane].polled.push(task);
        self.goroutines[task].polled_on = lane;
    }

    /// Ends the poll of a task, if any lane polls it. Returns whether one did.
    pub(super) fn end_poll(&mut self, task: u32) -> bool {
        let lane = std::mem::replace(&mut self.goroutines[task].polled_on, SHARED);
        if lane == SHARED {
            return false;
        }
        // Tasks that it polled in turn are not polled any more either.
        while let Some(polled) = self.lanes[lane].polled.pop() {
            self.goroutines[polled].polled_on = SHARED;
            if polled == task {
                break;
            }
        }
        true
    }

    /// Ends all polls of the lane.
    pub(super) fn end_polls_of(&mut self, lane: u32) {
        while let Some(&polled) = self.lanes[lane].polled.last() {
            self.end_poll(polled);
        }
    }

    /// Forgets polls of ended tasks, at the end of a generation, before indices are reused.
    pub(super) fn forget_polled(&mut self) {
        let lanes: Vec<u32> = self.lanes.open().collect();
        for lane in lanes {
            for polled in self.lanes[lane].polled.clone() {
                if !self.goroutines[polled].is_alive() {
                    self.end_poll(polled);
                }
            }
        }
    }

    /// Returns the goroutine that acts for `goroutine`: the innermost task, if its thread polls one.
    pub(super) fn visible(&self, goroutine: u32) -> u32 {
        let lane = self.lanes.find(self.goroutines[goroutine].id).filter(|&lane| lane != SHARED);
        let polled = lane.and_then(|lane| self.lanes[lane].polled.last().copied());
        polled.filter(|&polled| self.goroutines[polled].is_alive()).unwrap_or(goroutine)
    }

    /// Notes the polling lane of a running task: such a task is declared on the lane that polls it, or outside threads.
    /// The beginning of the poll may be unrecorded.
    pub(super) fn note_poller(&mut self, target: u32, lane: u32) {
        let OrderedGoroutine { id, state, polled_on, .. } = self.goroutines[target];
        let is_task = self.lanes.find(id).is_none();
        if lane != SHARED && state == State::Running && is_task && polled_on != lane {
            self.begin_poll(target, lane);
        }
    }

    /// Ends a poll whose end is unrecorded, and which may have ended before: the thread's later actions were attributed
    /// to the task.
    pub(super) fn end_poll_elsewhere(&mut self, task: u32, at: EventPosition, sink: &mut impl EventSink) {
        let lane = self.goroutines[task].polled_on;
        if !self.end_poll(task) || !self.lanes[lane].polled.is_empty() {
            return;
        }
        let own = self.lanes[lane].own;
        let OrderedGoroutine { state, tick, .. } = self.goroutines[own];
        if self.goroutines[own].is_alive() && state != State::Running {
            sink.bridge(EventPosition { tick: at.tick.max(tick), ..at }, own, Some(lane), state);
        }
    }
}
