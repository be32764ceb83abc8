//! Declarations of goroutines, and the handling of declarations that contradict the trace.

use rtprof_runtime::goroutine::state::State;
use rtprof_tracer::record::Status;

use super::goroutines::distance;
use super::lanes::{Awaits, Passed, Reading, SHARED};
use super::sink::{EventPosition, EventSink};
use super::{NONE, Order};

impl Order {
    /// Processes a declaration, which is authoritative unless the trace is further already.
    pub(super) fn declare(
        &mut self,
        reading: &mut Reading<'_>,
        tick: u64,
        status: &Status,
        sink: &mut impl EventSink,
    ) -> Passed {
        let target = self.goroutines.at(status.goroutine);
        let goroutine = &self.goroutines[target];
        let ahead = distance(goroutine.number, status.number);
        let is_behind = goroutine.is_known && ahead < 0;
        let is_dead = goroutine.is_known && goroutine.state == State::Dead;
        if is_behind && !is_dead {
            // Another lane has later changes, so no change is missing.
            self.goroutines[target].declared = self.generation;
            self.goroutines[target].wake_all(|reading| self.ready.push_back(reading));
            return Ok(());
        }
        if target == NONE || is_dead || !goroutine.is_known && status.state == State::Dead {
            self.counts.stale += 1;
            return Ok(());
        }
        // The goroutine's own lane may have changes from before the loss that are not read yet.
        let is_elsewhere = self.lanes[reading.lane].goroutine != status.goroutine;
        let is_there = goroutine.is_known && ahead == 0;
        if goroutine.is_known && status.is_after_loss && is_elsewhere && !is_there && !reading.is_due {
            return Err(Awaits::Jump(target, status.number));
        }
        reading.is_due = false;
        let (is_known, was) = (goroutine.is_known, goroutine.state);
        let has_jumped = status.is_after_loss || is_known && ahead != 0;
        if is_known && was == status.state {
            if was != State::Running {
                // The lane whose buffer said that it polls this task no longer does so.
                let at =
                    EventPosition { lane: reading.lane, tick: self.goroutines[target].tick, goroutine: NONE };
                self.end_poll_elsewhere(target, at, sink);
            }
            // The state is unchanged: no event is written, and the tick is no cause of later events.
            let goroutine = &mut self.goroutines[target];
            goroutine.number = status.number;
            goroutine.declared = self.generation;
            goroutine.has_jumped = has_jumped;
            goroutine.wake_all(|reading| self.ready.push_back(reading));
            self.note_poller(target, reading.lane);
            return Ok(());
        }
        let owner = self.owner(status, sink);
        let cause = is_known.then(|| self.cause_of(target));
        let at = self.at(reading, tick, cause);
        if is_known {
            self.jump(at, target, owner, status.number, status.state, sink);
        } else {
            sink.introduce(at, target, owner, status);
            self.goroutines[target].is_task = status.is_task;
            self.set(target, status.number, status.state, at);
        }
        self.goroutines[target].has_jumped = has_jumped;
        self.note_poller(target, reading.lane);
        Ok(())
    }

    /// Sets a goroutine's state that it reached by unrecorded changes.
    pub(super) fn jump(
        &mut self,
        at: EventPosition,
        index: u32,
        owner: Option<u32>,
        number: u64,
        state: State,
        sink: &mut impl EventSink,
    ) {
        self.counts.bridged += 1;
        if state != State::Running {
            self.end_poll_elsewhere(index, at, sink);
        }
        let shown = if state == State::Dead { index } else { self.visible(index) };
        sink.bridge(at, shown, owner, state);
        self.set(index, number, state, at);
        self.goroutines[index].has_jumped = true;
    }

    /// Returns the lane of a goroutine's thread. A running goroutine needs it, even if the thread has recorded nothing
    /// yet.
    fn owner(&mut self, status: &Status, sink: &mut impl EventSink) -> Option<u32> {
        if status.thread == 0 {
            return None;
        }
        if status.state != State::Running {
            return self.lanes.find(status.thread);
        }
        let (lane, is_new) = self.lanes.at(status.thread);
        if is_new {
            self.lanes[lane].seen = self.generation;
            sink.lane(lane, status.thread, status.thread_id);
        }
        self_check!(lane != SHARED);
        Some(lane)
    }

    pub(super) fn set(&mut self, index: u32, number: u64, state: State, at: EventPosition) {
        let goroutine = &mut self.goroutines[index];
        goroutine.is_known = true;
        goroutine.number = number;
        goroutine.state = state;
        goroutine.tick = at.tick;
        goroutine.lane = at.lane;
        goroutine.declared = self.generation;
        let ready = &mut self.ready;
        goroutine.wake_all(|reading| ready.push_back(reading));
    }
}
