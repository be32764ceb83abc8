//! From one state of a goroutine to another by events that readers allow.

use rtprof_runtime::state::State;
use rtprof_runtime::wait_reason::WaitReason;

use crate::order::{EventPosition, SHARED};

use super::event::EventType;
use super::events::Events;
use super::goroutines::{NONE, Phase, block_event};
use super::procs::OUTSIDE;

/// How far a P that stands in for a moment may be ahead, in ticks of about a nanosecond. A trace begins with a burst
/// of events for each goroutine, and shall not have a P for each.
const STAND_IN_AHEAD: u64 = 100_000;

impl Events {
    /// The P of a lane, which keeps it for its life.
    #[inline]
    pub(super) fn proc_of(&mut self, lane: u32, tick: u64) -> u32 {
        if lane == SHARED {
            return OUTSIDE;
        }
        match self.lanes[lane as usize].proc {
            Some(proc) => proc,
            None => {
                let proc = self.procs.take(tick.saturating_sub(1));
                self.lanes[lane as usize].proc = Some(proc);
                proc
            }
        }
    }

    #[inline]
    pub(super) fn start_proc(&mut self, proc: u32, thread_id: u64, tick: u64) {
        if !self.procs[proc].is_started {
            self.procs.put(proc, tick, EventType::ProcStart, [thread_id]);
            self.procs[proc].is_started = true;
        }
    }

    /// Stops a P on which nothing runs.
    #[inline]
    pub(super) fn stop_proc(&mut self, proc: u32, tick: u64) {
        if proc != OUTSIDE && self.procs[proc].is_started {
            self.end_sweep(proc, tick);
            self.procs.put(proc, tick, EventType::ProcStop, []);
            self.procs[proc].is_started = false;
        }
    }

    pub(super) fn end_sweep(&mut self, proc: u32, tick: u64) {
        if self.procs[proc].is_sweeping {
            self.procs.put(proc, tick, EventType::GcSweepDone, [0, 0]);
            self.procs[proc].is_sweeping = false;
        }
    }

    /// runnable → running, on a P that is started and idle.
    #[inline]
    pub(super) fn run(&mut self, place: u32, proc: u32, tick: u64) {
        self.run_as(place, proc, tick, 0);
    }

    /// As [`run`](Self::run), with the id of a label; 0 for none.
    pub(super) fn run_as(&mut self, place: u32, proc: u32, tick: u64, label: u64) {
        let goroutine = &mut self.goroutines[place];
        self_check!(goroutine.phase == Phase::Runnable);
        let sequence = goroutine.next_sequence();
        let (id, tick) = (goroutine.id, tick.max(goroutine.tick));
        // What happened on the same P needs no number to be found.
        let tick = if label != 0 {
            self.procs.put(proc, tick, EventType::GoStartLabel, [id, sequence, label])
        } else if goroutine.proc == proc {
            self.procs.put(proc, tick, EventType::GoStartLocal, [id])
        } else {
            self.procs.put(proc, tick, EventType::GoStart, [id, sequence])
        };
        goroutine.phase = Phase::Running;
        (goroutine.proc, goroutine.tick) = (proc, tick);
        self.procs[proc].goroutine = place;
    }

    /// running → runnable or waiting, by `event`. The P stays started.
    #[inline]
    pub(super) fn pause(&mut self, place: u32, tick: u64, event: EventType, stack: u64, to: Phase) {
        let goroutine = &mut self.goroutines[place];
        self_check!(goroutine.phase == Phase::Running);
        let proc = goroutine.proc;
        goroutine.tick = self.procs.put(proc, tick, event, [stack]);
        goroutine.phase = to;
        self.procs[proc].goroutine = NONE;
    }

    /// running → waiting. Its P has nothing to do.
    #[inline]
    pub(super) fn block(&mut self, place: u32, tick: u64, reason: WaitReason, stack: u64) {
        let proc = self.goroutines[place].proc;
        self.end_sweep(proc, tick);
        self.pause(place, tick, block_event(reason), stack, Phase::Waiting);
        self.stop_proc(proc, tick);
    }

    /// running → in a system call, which always blocks as far as the trace is concerned: the thread takes its P along.
    #[inline]
    pub(super) fn begin_syscall(&mut self, place: u32, tick: u64, stack: u64) {
        let goroutine = &mut self.goroutines[place];
        let proc = goroutine.proc;
        goroutine.phase = Phase::Syscall;
        self.end_sweep(proc, tick);
        self.procs.put(proc, tick, EventType::GoSysCall, [stack]);
        self.goroutines[place].tick = self.procs.put(proc, tick, EventType::GoSysBlock, []);
        self.procs[proc].goroutine = NONE;
        self.stop_proc(proc, tick);
    }

    /// waiting or in a system call → runnable, by whatever runs on `proc`, or nothing.
    #[inline]
    pub(super) fn wake(&mut self, place: u32, proc: u32, tick: u64, stack: u64) {
        let goroutine = &mut self.goroutines[place];
        let sequence = goroutine.next_sequence();
        let (id, tick) = (goroutine.id, tick.max(goroutine.tick));
        let tick = match goroutine.phase {
            Phase::Syscall => self.procs.put(proc, tick, EventType::GoSysExit, [id, sequence, 0]),
            _ if goroutine.proc == proc => self.procs.put(proc, tick, EventType::GoUnblockLocal, [id, stack]),
            _ => self.procs.put(proc, tick, EventType::GoUnblock, [id, sequence, stack]),
        };
        goroutine.phase = Phase::Runnable;
        (goroutine.proc, goroutine.tick) = (proc, tick);
    }

    /// waiting or in a system call → running, on the lane where that was recorded: nobody of the program woke it.
    #[inline]
    pub(super) fn come_back(&mut self, at: EventPosition, tick: u64) {
        let proc = self.proc_of(at.lane, tick);
        self.start_proc(proc, self.lanes[at.lane as usize].thread_id, tick);
        self.suspend(proc, tick);
        self.goroutines[at.goroutine].is_suspended = false;
        self.wake(at.goroutine, proc, tick, 0);
        self.run(at.goroutine, proc, tick);
    }

    /// running → dead. Its P has nothing to do.
    #[inline]
    pub(super) fn end(&mut self, place: u32, tick: u64) {
        let proc = self.goroutines[place].proc;
        self.end_on_proc(place, tick);
        self.stop_proc(proc, tick);
    }

    /// running → dead. The P stays started.
    #[inline]
    pub(super) fn end_on_proc(&mut self, place: u32, tick: u64) {
        let proc = self.goroutines[place].proc;
        self.end_sweep(proc, tick);
        self.end_assist(place, tick);
        if self.stop_of == Some(place) {
            self.end_stop(tick);
        }
        self.procs.put(proc, tick, EventType::GoEnd, []);
        self.goroutines[place].phase = Phase::Unknown;
        self.procs[proc].goroutine = NONE;
    }

    /// Does what happens on a lane with its P started, though no goroutine may run on it.
    #[inline]
    pub(super) fn on_lane<T>(&mut self, lane: u32, tick: u64, act: impl FnOnce(&mut Self, u32) -> T) -> T {
        let proc = self.proc_of(lane, tick);
        let is_stopped = !self.procs[proc].is_started;
        if is_stopped {
            self.start_proc(proc, self.lanes[lane as usize].thread_id, tick);
        }
        let done = act(self, proc);
        if is_stopped {
            self.stop_proc(proc, tick);
        }
        done
    }

    /// Brings a goroutine to a state, whatever it was in. How it came there nobody knows; each step is one that could
    /// have happened. `lane` is where that was learnt, `owner` the lane of its thread.
    pub(super) fn bring(&mut self, place: u32, to: State, lane: u32, owner: Option<u32>, tick: u64) {
        let wanted = match to {
            State::Running => Phase::Running,
            State::Waiting(_) => Phase::Waiting,
            State::Syscall => Phase::Syscall,
            State::Runnable => Phase::Runnable,
            State::Dead => Phase::Unknown,
        };
        let goroutine = &self.goroutines[place];
        let (phase, proc) = (goroutine.phase, goroutine.proc);
        if phase == wanted {
            return;
        }
        if phase == Phase::Running {
            match to {
                State::Waiting(reason) => return self.block(place, tick, reason, 0),
                State::Syscall => return self.begin_syscall(place, tick, 0),
                State::Dead => return self.end(place, tick),
                State::Runnable | State::Running => {
                    self.end_sweep(proc, tick);
                    self.pause(place, tick, EventType::GoSched, 0, Phase::Runnable);
                    self.stop_proc(proc, tick);
                }
            }
        }
        if matches!(phase, Phase::Waiting | Phase::Syscall) {
            self.on_lane(lane, tick, |events, proc| events.wake(place, proc, tick, 0));
        }
        // One that runs without a thread cannot be drawn.
        if to == State::Runnable || to == State::Running && owner.is_none() {
            return;
        }
        let (proc, stands_in) = self.idle_proc(owner, to, tick);
        self.run(place, proc, tick);
        self.settle(place, to, proc, stands_in, tick);
    }

    /// A P for a goroutine that is about to run and then `to`, started and idle: that of its thread; or, if there is
    /// none or it is taken, and the goroutine will not run on, one that stands in, which is told by `true`.
    pub(super) fn idle_proc(&mut self, owner: Option<u32>, to: State, tick: u64) -> (u32, bool) {
        let is_idle = |lane: &u32| {
            let proc = self.lanes[*lane as usize].proc;
            proc.is_some_and(|proc| self.procs[proc].goroutine == NONE)
        };
        match owner.filter(|&lane| lane != SHARED).filter(|lane| to == State::Running || is_idle(lane)) {
            Some(lane) => {
                let proc = self.proc_of(lane, tick);
                let running = self.procs[proc].goroutine;
                if running != NONE {
                    self.end_sweep(proc, tick);
                    self.pause(running, tick, EventType::GoSched, 0, Phase::Runnable);
                }
                self.start_proc(proc, self.lanes[lane as usize].thread_id, tick);
                (proc, false)
            }
            None => {
                let proc = self.procs.take(tick + STAND_IN_AHEAD);
                self.start_proc(proc, unknown_thread(proc.into()), tick);
                (proc, true)
            }
        }
    }

    /// running → `to`, on a P of [`idle_proc`](Self::idle_proc).
    pub(super) fn settle(&mut self, place: u32, to: State, proc: u32, stands_in: bool, tick: u64) {
        match to {
            State::Waiting(reason) => self.block(place, tick, reason, 0),
            State::Syscall => self.begin_syscall(place, tick, 0),
            State::Dead => self.end(place, tick),
            State::Runnable | State::Running => {}
        }
        if stands_in {
            self.procs.give_back(proc);
        }
    }
}

/// A thread's number that is nobody's: the kernel's are smaller. No two Ps may run on one thread.
pub(super) fn unknown_thread(of: u64) -> u64 {
    (1 << 32) + of
}
