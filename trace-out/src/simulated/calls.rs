//! Calls of a random program that take a while.

use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_tracer::record::RecordKind;

use super::{Call, Simulation};

/// The ticks from which on a call is told while it is in progress: more than clocks differ.
const LONG: u64 = 1000;

impl Simulation {
    pub(super) fn begin_call(&mut self, id: u64) {
        let state = [State::Syscall, State::Waiting(WaitReason::Net)][self.chance(2) as usize];
        let thread = self.threads.get_mut(&id).unwrap();
        let begin = self.now + thread.skew;
        thread.call = Some(Call { state, begin, is_told: false });
    }

    /// Ends the call of a thread, or not yet.
    pub(super) fn go_on_in_call(&mut self, id: u64) {
        let Some(Call { state, begin, .. }) = self.threads[&id].call else { return };
        if self.chance(4) > 0 {
            return;
        }
        self.declare(id, id);
        if let Some(polled) = self.polled(id) {
            self.declare_task(polled, id);
        }
        let ticks = self.now + self.threads[&id].skew - begin;
        let is_written = self.put(id, RecordKind::Call, [state.number().into(), 1, ticks]);
        self.waits_in_calls += usize::from(is_written && state != State::Syscall);
        self.threads.get_mut(&id).unwrap().call = None;
    }

    /// Tells which calls are in progress, as the cut does.
    pub(super) fn tell_calls(&mut self) {
        let now = self.now;
        let mut told = Vec::new();
        for (&id, thread) in &mut self.threads {
            if let Some(call) = &mut thread.call
                && call.begin + LONG < now
            {
                call.is_told = true;
                told.push([id, call.state.number().into(), call.begin]);
            }
        }
        for arguments in told {
            self.put(0, RecordKind::InCall, arguments);
        }
    }

    /// Returns the goroutines in calls that were told, and the states of these calls.
    pub(super) fn open_calls(&self) -> impl Iterator<Item = (u64, State)> + '_ {
        self.threads.iter().filter_map(|(&id, thread)| {
            let call = thread.call.filter(|call| call.is_told)?;
            Some((self.polled(id).unwrap_or(id), call.state))
        })
    }
}
