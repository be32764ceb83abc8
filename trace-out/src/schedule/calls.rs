//! Calls that were recorded when they were over: their goroutine is shown as blocked in retrospect. A call that is in
//! progress at the end of a part of the trace is shown there, and ended when its record comes.

use rtprof_runtime::state::State;
use rtprof_tracer::record::StackId;

use crate::order::EventPosition;

use super::changes::Schedule;
use super::goroutines::Phase;
use super::procs::Wire;
use super::writing::Writing;

/// A call that is in progress at the end of a part of the trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    index: u32,
    id: u64,
    state: State,
    begin: u64,
}

impl<W: Wire> Schedule<W> {
    /// Changes a running goroutine to the state of a call.
    fn begin_call(&mut self, index: u32, tick: u64, state: State, stack: u64) {
        match state {
            State::Waiting(reason) => self.block(index, tick, reason, stack),
            _ => self.begin_syscall(index, tick, stack),
        }
    }

    /// Notes that a goroutine has been in a call since `begin`.
    pub(super) fn note_open_call(&mut self, index: u32, begin: u64, state: State) {
        let (id, begin) = (self.goroutines[index].id, self.in_file(begin));
        self.open_calls.push(Open { index, id, state, begin });
    }

    /// Forgets the calls that were in progress at the end of an earlier generation.
    pub(crate) fn forget_open_calls(&mut self) {
        self.open_calls.clear();
    }

    /// Shows the open calls of goroutines without any later event.
    pub(super) fn begin_open_calls(&mut self) {
        for Open { index, id, state, begin } in std::mem::take(&mut self.open_calls) {
            let goroutine = &self.goroutines[index];
            let runs_since = goroutine.phase == Phase::Running && self.procs[goroutine.proc].tick <= begin;
            if goroutine.id == id && runs_since {
                self.begin_call(index, begin, state, 0);
            }
        }
    }
}

impl<W: Wire> Writing<'_, W> {
    /// Shows that the goroutine was in a call for `ticks` ticks until now.
    pub(super) fn call(&mut self, at: EventPosition, ticks: u64, state: State, stack: StackId) {
        let (begin, end) =
            (self.schedule.in_file(at.tick.saturating_sub(ticks)), self.schedule.in_file(at.tick));
        if self.schedule.goroutines.waits(at.goroutine) {
            // The call was shown already, at the end of an earlier part.
            return self.schedule.come_back(at, end);
        }
        if self.running(at).is_none() || self.schedule.stop_of == Some(at.goroutine) {
            return;
        }
        let stack = self.stack(at, stack);
        self.schedule.begin_call(at.goroutine, begin, state, stack);
        self.schedule.come_back(at, end);
    }
}
