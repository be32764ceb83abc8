//! Tasks on the lane of the thread that polls them.
//!
//! Problem: on a P one goroutine runs, but a thread has its own goroutine, runs a task, and perhaps another task inside
//! that.
//! Scheme: a polling goroutine is *suspended* while the goroutine that it polls is shown: blocked, by an event that is
//! in none of the profiles of `go tool trace`. A task continues when the poll inside it is over. The goroutine of a
//! thread, which in an executor's worker mostly polls, continues only when the thread itself does something else:
//!
//! ```text
//!   records   Poll 7          Await 7   Poll 8     Await 8            Block (in epoll_wait)
//!   worker    GoBlock ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄ GoUnblock GoStart GoBlockNet
//!   7         GoStart ─────── GoBlockRecv
//!   8                                   GoStart ── GoBlockSync
//! ```

use rtprof_runtime::labels::LabelSetId;
use rtprof_tracer::record::{Record, StackId};

use crate::awaited::{Awaited, SuspendedPoll};
use crate::order::EventPosition;

use super::changes::Schedule;
use super::goroutines::{NONE, Phase};
use super::procs::Wire;
use super::reason::Reason;
use super::writing::Writing;

/// A P that was idle for this long is shown as stopped, in ticks of about a nanosecond.
const IDLE: u64 = 10_000;

impl<W: Wire> Schedule<W> {
    /// Continues a P for a goroutine that is about to run on it.
    fn continue_proc(&mut self, at: EventPosition, tick: u64) -> u32 {
        let proc = self.proc_of(at.lane, tick);
        let state = &self.procs[proc];
        let idle_since = state.tick;
        if state.is_started && state.goroutine == NONE && tick.saturating_sub(idle_since) > IDLE {
            self.stop_proc(proc, idle_since);
        }
        self.start_proc(proc, self.lanes[at.lane].thread, tick);
        proc
    }

    /// Suspends the goroutine that runs on a P, in favour of a task that it polls.
    pub(super) fn suspend(&mut self, proc: u32, tick: u64) {
        let running = self.procs[proc].goroutine;
        if running == NONE {
            return;
        }
        self.end_stop_of(running, tick);
        self.end_sweep(proc, tick);
        self.pause_for(running, tick, Reason::Polling, 0);
        self.goroutines[running].is_suspended = true;
    }

    /// Resumes a suspended goroutine, on its lane.
    pub(super) fn resume_suspended(&mut self, at: EventPosition, tick: u64) {
        let Some(goroutine) = self.goroutines.get_mut(at.goroutine) else { return };
        if !std::mem::take(&mut goroutine.is_suspended) || goroutine.phase != Phase::Waiting {
            return;
        }
        let proc = self.continue_proc(at, tick);
        if self.procs[proc].goroutine == NONE {
            self.wake(at.goroutine, proc, tick, 0);
            self.run(at.goroutine, proc, tick);
        }
    }

    /// Whether a record shows that the lane's own, suspended goroutine acts, so that it resumes.
    pub(super) fn ends_suspension(&self, record: &Record<'_>, target: u32) -> bool {
        match record {
            // A wake of a goroutine that was not shown as waiting.
            Record::Unblock { .. } => self.goroutines.waits(target),
            Record::Status(_)
            | Record::Name { .. }
            | Record::CreateFailed { .. }
            | Record::Start { .. }
            | Record::Wake
            | Record::SyscallEnd
            | Record::Poll { .. }
            | Record::CpuSample { .. }
            | Record::InCall { .. }
            | Record::HeapAlloc { .. }
            | Record::HeapGoal { .. } => false,
            _ => true,
        }
    }

    /// → running, inside the goroutine that runs on the lane.
    fn poll(&mut self, at: EventPosition, task: u32, tick: u64, label: u64) {
        self_check!(self.goroutines.name(task).is_some());
        if self.goroutines.running(task).is_some() {
            // The end of a poll is unrecorded.
            self.pause_for(task, tick, Reason::Yield, 0);
        }
        let proc = self.continue_proc(at, tick);
        self.suspend(proc, tick);
        if self.goroutines.waits(task) {
            self.wake(task, proc, tick, 0);
        }
        self.goroutines[task].is_suspended = false;
        self.run_as(task, proc, tick, label);
    }

    /// runnable → running, by itself or, if it polls a task, through that task.
    pub(super) fn start(&mut self, at: EventPosition, index: u32, tick: u64, label: u64) {
        if self.goroutines.running(index).is_some() {
            return;
        }
        let proc = self.proc_of(at.lane, tick);
        let running = self.procs[proc].goroutine;
        if running != NONE {
            self.pause_for(running, tick, Reason::Yield, 0);
        }
        self.start_proc(proc, self.lanes[at.lane].thread, tick);
        if self.goroutines.waits(index) {
            self.wake(index, proc, tick, 0);
        }
        self.run_as(index, proc, tick, label);
    }

    /// Ensures that the goroutine to which a lane's records belong is running, even if its start is unrecorded. `false`
    /// if the goroutine is unknown.
    pub(super) fn sees_to_run(&mut self, at: EventPosition, tick: u64) -> bool {
        if self.goroutines.running(at.goroutine).is_some() {
            return true;
        }
        let is_known = self.goroutines.name(at.goroutine).is_some();
        if is_known {
            self.resume_suspended(at, tick);
            if self.goroutines.running(at.goroutine).is_none() {
                self.poll(at, at.goroutine, tick, 0);
            }
        }
        is_known
    }
}

impl<W: Wire> Writing<'_, W> {
    /// Begins a poll of a task by the lane.
    pub(super) fn begin_poll(&mut self, at: EventPosition, task: u32, tick: u64, labels: LabelSetId) {
        let label = self.schedule.label(task, labels, self.tables);
        self.schedule.poll(at, task, tick, label);
    }

    /// Ends the poll of a task that waits.
    pub(super) fn await_(&mut self, at: EventPosition, tick: u64, left: SuspendedPoll) {
        let (awaited, library, stack) =
            self.schedule.awaited.of(left, self.generation, self.tables, self.view);
        let reason = match awaited {
            Awaited::Wait(reason) => Reason::Await(reason, library),
            Awaited::Yield => Reason::Yield,
        };
        self.end_poll(at, tick, reason, stack);
    }

    /// Ends the poll of a task that can run.
    pub(super) fn reschedule(&mut self, at: EventPosition, tick: u64, stack: StackId) {
        self.end_poll(at, tick, Reason::Yield, stack);
    }

    fn end_poll(&mut self, at: EventPosition, tick: u64, reason: Reason, stack: StackId) {
        self.schedule.sees_to_run(at, tick);
        let stack = self.stack(at, stack);
        let proc = self.schedule.goroutines[at.goroutine].proc;
        self.schedule.end_sweep(proc, tick);
        self.schedule.pause_for(at.goroutine, tick, reason, stack);
    }

    /// Ends the poll and the task. Its P stays started.
    pub(super) fn ready(&mut self, at: EventPosition, tick: u64) {
        self.schedule.sees_to_run(at, tick);
        self.schedule.end_on_proc(at.goroutine, tick);
    }
}
