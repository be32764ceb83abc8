//! Calls that were recorded when they were over: their goroutine is shown as blocked in retrospect. A call that is in
//! progress at the end of a part of the trace is shown there, and ended when its record comes. Such a call has no stack,
//! which comes only with its record, when the part may be written already.

use std::collections::HashSet;

use rtprof_runtime::goroutine::state::State;
use rtprof_tracer::record::{Record, StackId};

use crate::order::EventPosition;

use super::changes::Schedule;
use super::goroutines::{NONE, OpenCall, Phase};
use super::procs::Wire;
use super::writing::Writing;

impl<W: Wire> Schedule<W> {
    /// Changes a running goroutine to the state of a call.
    fn begin_call(&mut self, index: u32, tick: u64, state: State, stack: u64) {
        match state {
            State::Waiting(reason) => self.block(index, tick, reason, stack),
            _ => self.begin_syscall(index, tick, stack),
        }
    }

    /// Notes that a goroutine, on the lane of its thread, has been in a call since `begin`.
    pub(super) fn note_open_call(&mut self, (lane, index): (u32, u32), begin: u64, state: State) {
        // Its record may have come between the look at the call and the end of the part.
        let is_over = begin < self.goroutines[index].call_end;
        if !is_over {
            self.open_calls.push(OpenCall { lane, index, state, begin: self.in_file(begin) });
        }
    }

    /// Forgets the calls that were in progress at the end of an earlier generation.
    pub(crate) fn forget_open_calls(&mut self) {
        self.open_calls.clear();
    }

    /// Shows the open calls of running goroutines, from their beginning on, or from the goroutine's last event on.
    pub(super) fn begin_open_calls(&mut self) {
        for OpenCall { lane, index, state, begin } in std::mem::take(&mut self.open_calls) {
            if let Some((shown, since)) = self.open_call_of(lane) {
                if since == begin {
                    continue;
                }
                // The record of another call was lost.
                self.end_open_call(lane, shown, begin);
            }
            // A thread that makes the call after it has polled a task acts again.
            if !self.goroutines.waits(index) || self.goroutines[index].is_suspended {
                self.sees_to_run(EventPosition { lane, tick: begin, goroutine: index }, begin);
            }
            if self.goroutines[index].phase == Phase::Running && !self.has_stopped_world(index) {
                self.begin_call(index, begin, state, 0);
                self.goroutines[index].open_call_on = Some(lane);
                self.lanes[lane].open_call = Some((index, begin));
            }
        }
    }

    /// Ends, at the end of a part, the calls that are shown but not in progress any more: their records were lost, or
    /// the thread was cancelled in the call.
    pub(super) fn end_lost_calls(&mut self, tick: u64) {
        let open: HashSet<u32> = self.open_calls.iter().map(|call| call.lane).collect();
        for index in self.goroutines.indices() {
            if let Some(lane) = self.goroutines[index].open_call_on
                && !open.contains(&lane)
            {
                self.end_open_call(lane, index, tick);
            }
        }
    }

    /// Ends the call that a goroutine is shown in, when the first record of its thread is not that of the call.
    #[inline]
    pub(super) fn end_lost_call(&mut self, at: EventPosition, tick: u64, record: &Record<'_>) {
        let Some((index, _)) = self.open_call_of(at.lane) else { return };
        let is_its_end = index == at.goroutine && matches!(record, Record::Call { .. });
        if !is_its_end {
            self.end_open_call(at.lane, index, tick);
        }
    }

    /// Forgets the call on a lane whose thread is over.
    pub(super) fn forget_open_call(&mut self, lane: u32) {
        self.open_calls.retain(|call| call.lane != lane);
        if let Some((index, _)) = self.open_call_of(lane) {
            self.suspend_open_call(index);
        }
    }

    /// Returns the goroutine that is shown in a call on this lane since an earlier part, and the tick at which that began.
    #[inline]
    fn open_call_of(&self, lane: u32) -> Option<(u32, u64)> {
        let open = self.lanes.get(lane)?.open_call?;
        (self.goroutines[open.0].open_call_on == Some(lane)).then_some(open)
    }

    /// Continues a goroutine after a call whose end is unrecorded. If its thread runs another one now, it stays where it
    /// is until its next record.
    fn end_open_call(&mut self, lane: u32, index: u32, tick: u64) {
        let proc = self.proc_of(lane, tick);
        if self.procs[proc].goroutine == NONE {
            return self.come_back(EventPosition { lane, tick, goroutine: index }, tick);
        }
        self.suspend_open_call(index);
    }

    fn suspend_open_call(&mut self, index: u32) {
        let goroutine = &mut self.goroutines[index];
        goroutine.open_call_on = None;
        goroutine.is_suspended = goroutine.phase == Phase::Waiting;
    }
}

impl<W: Wire> Writing<'_, W> {
    /// Shows that the goroutine was in a call for `ticks` ticks until now.
    pub(super) fn call(&mut self, at: EventPosition, ticks: u64, state: State, stack: StackId) {
        if let Some(goroutine) = self.schedule.goroutines.get_mut(at.goroutine) {
            goroutine.call_end = at.tick;
        }
        let (begin, end) =
            (self.schedule.in_file(at.tick.saturating_sub(ticks)), self.schedule.in_file(at.tick));
        if self.schedule.goroutines.waits(at.goroutine) {
            // The call was shown already, at the end of an earlier part.
            return self.schedule.come_back(at, end);
        }
        if self.running(at).is_none() || self.schedule.has_stopped_world(at.goroutine) {
            return;
        }
        let stack = self.stack(at, stack);
        self.schedule.begin_call(at.goroutine, begin, state, stack);
        self.schedule.come_back(at, end);
    }
}
