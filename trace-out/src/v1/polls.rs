//! Tasks on the lane of the thread that polls them.
//!
//! Problem: on a P one goroutine runs, and here a thread has its own goroutine, runs a task, and perhaps another one inside that.
//! Scheme: what polls is *suspended* while what it polls is shown: blocked, by an event that is in none of the profiles of
//! `go tool trace`. A task goes on when the poll inside of it is over. The goroutine of a thread, which for an executor's worker
//! does little else but poll, goes on only when the thread does something of its own:
//!
//! ```text
//!   records   Poll 7          Await 7   Poll 8     Await 8            Block (in epoll_wait)
//!   worker    GoBlock ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄ GoUnblock GoStart GoBlockNet
//!   7         GoStart ─────── GoBlockRecv
//!   8                                   GoStart ── GoBlockSync
//! ```

use rtprof_runtime::labels::LabelSetId;
use rtprof_tracer::record::{Record, StackId};

use crate::awaited::{Awaited, Left};
use crate::order::EventPosition;

use super::event::EventType;
use super::events::Events;
use super::goroutines::{NONE, Phase, block_event};
use super::writing::Writing;

/// A P on which nothing has run for so long is shown stopped, in ticks of about a nanosecond.
const IDLE: u64 = 10_000;

impl Events {
    /// A P goes on for what is about to run on it.
    fn continue_proc(&mut self, at: EventPosition, tick: u64) -> u32 {
        let proc = self.proc_of(at.lane, tick);
        let state = &self.procs[proc];
        let idle_since = state.tick;
        if state.is_started && state.goroutine == NONE && tick.saturating_sub(idle_since) > IDLE {
            self.stop_proc(proc, idle_since);
        }
        self.start_proc(proc, self.lanes[at.lane].thread_id, tick);
        proc
    }

    /// What runs on a P makes room for what it polls.
    pub(super) fn suspend(&mut self, proc: u32, tick: u64) {
        let running = self.procs[proc].goroutine;
        if running == NONE {
            return;
        }
        if self.stop_of == Some(running) {
            self.end_stop(tick);
        }
        self.end_sweep(proc, tick);
        self.pause(running, tick, EventType::GoBlock, 0, Phase::Waiting);
        self.goroutines[running].is_suspended = true;
    }

    /// What was suspended goes on, on its lane.
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

    /// Whether what a record tells is done by the goroutine of the lane, which was suspended, so that it goes on.
    pub(super) fn ends_suspension(&self, record: &Record<'_>, target: u32) -> bool {
        match record {
            // A wake of one that was not said to wait.
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

    /// → running, inside what runs on the lane.
    fn poll(&mut self, at: EventPosition, task: u32, tick: u64, label: u64) {
        self_check!(self.goroutines.name(task).is_some());
        if self.goroutines.running(task).is_some() {
            // The end of a poll is in no record.
            self.pause(task, tick, EventType::GoSched, 0, Phase::Runnable);
        }
        let proc = self.continue_proc(at, tick);
        self.suspend(proc, tick);
        if self.goroutines.waits(task) {
            self.wake(task, proc, tick, 0);
        }
        self.goroutines[task].is_suspended = false;
        self.run_as(task, proc, tick, label);
    }

    /// runnable → running, by itself or, if it polls a task, by that.
    pub(super) fn start(&mut self, at: EventPosition, index: u32, tick: u64, label: u64) {
        if self.goroutines.running(index).is_some() {
            return;
        }
        let proc = self.proc_of(at.lane, tick);
        let running = self.procs[proc].goroutine;
        if running != NONE {
            self.pause(running, tick, EventType::GoSched, 0, Phase::Runnable);
        }
        self.start_proc(proc, self.lanes[at.lane].thread_id, tick);
        if self.goroutines.waits(index) {
            self.wake(index, proc, tick, 0);
        }
        self.run_as(index, proc, tick, label);
    }

    /// Sees to it that what a lane's records are about runs, though how it came to run may be in no record. `false` if nothing is
    /// known of it.
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

impl Writing<'_> {
    /// The lane polls a task from now on.
    pub(super) fn begin_poll(&mut self, at: EventPosition, task: u32, tick: u64, labels: LabelSetId) {
        let label = self.events.label(task, labels, self.tables);
        self.events.poll(at, task, tick, label);
    }

    /// The poll is over, and the task waits.
    pub(super) fn await_(&mut self, at: EventPosition, tick: u64, left: Left) {
        let (awaited, stack) = self.events.awaited.of(left, self.generation, self.tables, self.view);
        let (event, phase) = match awaited {
            Awaited::Wait(reason) => (block_event(reason), Phase::Waiting),
            Awaited::Yield => (EventType::GoSched, Phase::Runnable),
        };
        self.end_poll(at, tick, event, phase, stack);
    }

    /// The poll is over, and the task can run.
    pub(super) fn reschedule(&mut self, at: EventPosition, tick: u64, stack: StackId) {
        self.end_poll(at, tick, EventType::GoSched, Phase::Runnable, stack);
    }

    fn end_poll(&mut self, at: EventPosition, tick: u64, event: EventType, to: Phase, stack: StackId) {
        self.events.sees_to_run(at, tick);
        let stack = self.stack(at, stack);
        let proc = self.events.goroutines[at.goroutine].proc;
        self.events.end_sweep(proc, tick);
        self.events.pause(at.goroutine, tick, event, stack, to);
    }

    /// The poll is over, and so is the task. Its P goes on.
    pub(super) fn ready(&mut self, at: EventPosition, tick: u64) {
        self.events.sees_to_run(at, tick);
        self.events.end_on_proc(at.goroutine, tick);
    }
}
