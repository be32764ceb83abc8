//! Decides when a record can be passed on, and which states change then.

use rtprof_runtime::goroutine::state::State;
use rtprof_tracer::record::Record;

use super::goroutines::{Fit, OrderedGoroutine};
use super::lanes::{Awaits, OpenCall, Passed, Reading, SHARED};
use super::sink::{EventPosition, EventSink};
use super::{NONE, Order};

impl Order {
    /// Passes a record on, or leaves it out if it is stale.
    #[inline]
    pub(super) fn pass(
        &mut self,
        reading: &mut Reading<'_>,
        tick: u64,
        record: &Record<'_>,
        sink: &mut impl EventSink,
    ) -> Passed {
        let is_running = |state| state == State::Running;
        match *record {
            Record::Status(ref status) => self.declare(reading, tick, status, sink),
            Record::Create { goroutine, is_task, .. } => {
                self.create(reading, tick, (goroutine, is_task), record, sink)
            }
            Record::CreateFailed { goroutine } => {
                let target = self.goroutines.at(goroutine);
                if !self.is_or_stale(target, OrderedGoroutine::is_alive)? {
                    return Ok(());
                }
                let cause = self.cause_of(target);
                let at = self.at(reading, tick, Some(cause));
                sink.record(at, target, record);
                self.change(target, State::Dead, at, false);
                Ok(())
            }
            Record::Start { goroutine, number, .. } => {
                // Nearly always the lane's own.
                let own = self.lanes[reading.lane].own;
                let is_own = self.goroutines[own].id == goroutine;
                let target = if is_own { own } else { self.goroutines.at(goroutine) };
                if self.numbered(target, number, |state| state == State::Runnable)? {
                    reading.is_after_loss = false;
                    let cause = self.cause_of(target);
                    let at = self.at(reading, tick, Some(cause));
                    sink.record(at, self.visible(target), record);
                    self.change(target, State::Running, at, true);
                }
                Ok(())
            }
            Record::Poll { goroutine, number, .. } => {
                let target = self.goroutines.at(goroutine);
                self.own_is_declared(reading)?;
                let can_begin = |state| matches!(state, State::Runnable | State::Waiting(_));
                if self.numbered(target, number, can_begin)? {
                    self.end_poll(target);
                    let cause = self.cause_of(target);
                    let at = self.at(reading, tick, Some(cause));
                    sink.record(at, target, record);
                    self.change(target, State::Running, at, true);
                    self.begin_poll(target, reading.lane);
                }
                Ok(())
            }
            Record::Await { goroutine, number, reason, .. } => {
                self.poll_over(reading, tick, record, (goroutine, number), State::Waiting(reason), sink)
            }
            Record::Reschedule { goroutine, number, .. } => {
                self.poll_over(reading, tick, record, (goroutine, number), State::Runnable, sink)
            }
            Record::Ready { goroutine, number } => {
                self.poll_over(reading, tick, record, (goroutine, number), State::Dead, sink)
            }
            Record::Unblock { goroutine, number, .. } => {
                let target = self.goroutines.at(goroutine);
                self.own_is_declared(reading)?;
                if self.numbered(target, number, |state| matches!(state, State::Waiting(_)))? {
                    let cause = self.cause_of(target);
                    let at = self.at(reading, tick, Some(cause));
                    sink.record(at, self.visible(target), record);
                    self.change(target, State::Runnable, at, false);
                }
                Ok(())
            }
            Record::Block { reason, .. } => {
                self.own(reading, tick, record, is_running, State::Waiting(reason), sink)
            }
            Record::Yield { .. } => self.own(reading, tick, record, is_running, State::Runnable, sink),
            Record::SyscallBegin { .. } => self.own(reading, tick, record, is_running, State::Syscall, sink),
            Record::End => self.own(reading, tick, record, is_running, State::Dead, sink),
            Record::Wake => {
                let is_waiting = |state| matches!(state, State::Waiting(_));
                self.own(reading, tick, record, is_waiting, State::Running, sink)
            }
            Record::SyscallEnd => {
                self.own(reading, tick, record, |state| state == State::Syscall, State::Running, sink)
            }
            Record::Collector(ref of) => self.pass_collector(reading, tick, (record, of), sink),
            Record::CpuSample { goroutine, task, .. } => {
                self.sample(reading, tick, (goroutine, task), record, sink)
            }
            Record::InCall { goroutine, state, begin } => {
                self.open_calls.push(OpenCall { tick, goroutine, state, begin });
                Ok(())
            }
            Record::Name { goroutine, .. } => {
                self.own_is_declared(reading)?;
                let target = self.goroutines.at(goroutine);
                let at = self.at(reading, tick, None);
                sink.record(at, target, record);
                Ok(())
            }
            Record::HeapAlloc { .. } | Record::HeapGoal { .. } => {
                let at = self.at(reading, tick, None);
                sink.record(at, NONE, record);
                Ok(())
            }
            // User tasks, regions, logs and calls: events of the lane's goroutine that change no
            // state.
            _ => {
                self.own_is_declared(reading)?;
                let at = self.at(reading, tick, None);
                sink.record(at, NONE, record);
                Ok(())
            }
        }
    }

    /// Passes on a sample, which carries its time, lane and goroutine, and changes no state: it may be recorded in
    /// another lane, and come after later changes of the goroutine.
    fn sample(
        &mut self,
        reading: &Reading<'_>,
        tick: u64,
        (thread, task): (u64, u64),
        record: &Record<'_>,
        sink: &mut impl EventSink,
    ) -> Passed {
        let goroutine = if task == 0 { thread } else { task };
        let target = if goroutine == 0 { NONE } else { self.goroutines.at(goroutine) };
        if target != NONE && !self.is_or_stale(target, |goroutine| goroutine.is_known)? {
            return Ok(());
        }
        let lane = self.lanes.find(thread).unwrap_or(SHARED);
        let goroutine = self.lanes[reading.lane].top();
        sink.record(EventPosition { lane, tick, goroutine }, target, record);
        self.counts.records += 1;
        Ok(())
    }

    /// Determines the position of a record in the lane's order, and lifts the tick above the cause's.
    #[inline]
    pub(super) fn at(
        &mut self,
        reading: &Reading<'_>,
        tick: u64,
        cause: Option<(u64, u32)>,
    ) -> EventPosition {
        let lane = &mut self.lanes[reading.lane];
        let own = tick.max(lane.tick);
        let mut lifted = own;
        if let Some((since, on)) = cause {
            lifted = lifted.max(since + u64::from(on != reading.lane));
            if lifted > own {
                self.counts.lifted += 1;
                self.counts.largest_lift = self.counts.largest_lift.max(lifted - own);
            }
        }
        lane.tick = lifted;
        self.counts.records += 1;
        EventPosition { lane: reading.lane, tick: lifted, goroutine: lane.top() }
    }

    pub(super) fn cause_of(&self, goroutine: u32) -> (u64, u32) {
        let goroutine = &self.goroutines[goroutine];
        (goroutine.tick, goroutine.lane)
    }

    /// Applies the goroutine's next change, made by itself if `is_own`.
    #[inline]
    pub(super) fn change(&mut self, index: u32, state: State, at: EventPosition, is_own: bool) {
        let goroutine = &mut self.goroutines[index];
        goroutine.number = goroutine.next_number();
        goroutine.state = state;
        goroutine.tick = at.tick;
        goroutine.lane = at.lane;
        goroutine.has_jumped &= !is_own;
        let ready = &mut self.ready;
        if state == State::Dead {
            goroutine.wake_all(|reading| ready.push_back(reading));
        } else {
            goroutine.wake(|reading| ready.push_back(reading));
        }
    }

    /// Whether the goroutine to which the lane's records belong is declared, so that they can be passed on.
    #[inline]
    pub(super) fn own_is_declared(&self, reading: &Reading<'_>) -> Passed {
        let top = self.lanes[reading.lane].top();
        let goroutine = &self.goroutines[top];
        let is_declared = top == NONE
            || goroutine.is_known
                && (goroutine.declared == self.generation || goroutine.state == State::Running)
            || reading.is_loose;
        if is_declared { Ok(()) } else { Err(Awaits::Declaration(top)) }
    }

    /// Passes on a change that the lane's own goroutine makes itself.
    #[inline]
    fn own(
        &mut self,
        reading: &mut Reading<'_>,
        tick: u64,
        record: &Record<'_>,
        fits: impl Fn(State) -> bool,
        to: State,
        sink: &mut impl EventSink,
    ) -> Passed {
        let index = self.lanes[reading.lane].own;
        let goroutine = &self.goroutines[index];
        if index == NONE || goroutine.is_known && goroutine.state == State::Dead {
            self.counts.stale += 1;
            return Ok(());
        }
        // After a loss a matching state may be an old one. The declaration need not stand on this lane.
        let is_declared = goroutine.is_known && goroutine.declared == self.generation;
        if !is_declared || !fits(goroutine.state) {
            if is_declared && goroutine.has_jumped {
                // From before the jump: no event for which it could wait will come.
                self.counts.stale += 1;
                return Ok(());
            }
            return Err(Awaits::Change(index, 0));
        }
        if reading.is_after_loss && !goroutine.has_jumped {
            return Err(Awaits::Loss(index));
        }
        reading.is_after_loss = false;
        if to == State::Dead {
            // The ends of its polls, if there were any, were lost.
            self.end_polls_of(reading.lane);
        }
        let cause = self.cause_of(index);
        let at = self.at(reading, tick, Some(cause));
        sink.record(at, NONE, record);
        self.change(index, to, at, true);
        if to == State::Dead {
            self.lanes[reading.lane].own = NONE;
            self.lanes[reading.lane].has_ended = true;
        }
        Ok(())
    }

    /// Whether a numbered change is passed on now; otherwise it waits, or is left out.
    #[inline]
    pub(super) fn numbered(
        &mut self,
        target: u32,
        number: u64,
        fits: impl Fn(State) -> bool,
    ) -> Result<bool, Awaits> {
        let goroutine = &self.goroutines[target];
        let is_declared = goroutine.is_known && goroutine.declared == self.generation;
        if is_declared || goroutine.is_known && goroutine.state == State::Dead {
            match goroutine.fit(number) {
                Fit::Next if fits(goroutine.state) => return Ok(true),
                Fit::Next | Fit::Later => return Err(Awaits::Change(target, number)),
                Fit::Stale => {}
            }
        } else if !goroutine.is_absent {
            return Err(Awaits::Change(target, 0));
        }
        self.counts.stale += 1;
        Ok(false)
    }

    /// Whether a goroutine, once it is known, is in the state that the record needs. If not, the record is stale, and
    /// counted.
    fn is_or_stale(&mut self, target: u32, fits: impl Fn(&OrderedGoroutine) -> bool) -> Result<bool, Awaits> {
        let goroutine = &self.goroutines[target];
        if fits(goroutine) {
            return Ok(true);
        }
        if !goroutine.is_known && !goroutine.is_absent {
            return Err(Awaits::Change(target, 0));
        }
        self.counts.stale += 1;
        Ok(false)
    }

    fn create(
        &mut self,
        reading: &Reading<'_>,
        tick: u64,
        (goroutine, is_task): (u64, bool),
        record: &Record<'_>,
        sink: &mut impl EventSink,
    ) -> Passed {
        self.own_is_declared(reading)?;
        let target = self.goroutines.at(goroutine);
        if target == NONE || self.goroutines[target].is_known {
            self.counts.stale += 1;
            return Ok(());
        }
        let at = self.at(reading, tick, None);
        sink.record(at, target, record);
        self.set(target, 0, State::Runnable, at);
        self.goroutines[target].is_task = is_task;
        Ok(())
    }
}
