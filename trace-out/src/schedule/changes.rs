//! The open items of a trace, and the changes of goroutines and Ps by events that readers accept.

use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_tracer::generation::Tables;
use rtprof_tracer::record::StackId;

use crate::awaited::AwaitedStacks;
use crate::dense::DenseTable;
use crate::order::{EventPosition, SHARED};

use super::collector::CollectorState;
use super::event::{Event, Start, Thread};
use super::goroutines::{Begun, Goroutines, NONE, OpenCall, Phase, UsedIds};
use super::names::Names;
use super::procs::{OUTSIDE, Procs, Wire};
use super::reason::Reason;

/// A lane as the trace shows it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EncodedLane {
    /// Its P, once an event was written on it.
    pub(super) proc: Option<u32>,
    pub(super) thread: Thread,
    /// The goroutine that was shown in a call on it when a part ended, and the tick at which that began.
    pub(super) open_call: Option<(u32, u64)>,
}

/// Counts of records that could not be shown, because no matching item was open, or no goroutine was running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unmatched {
    pub(crate) region_ends: u64,
    pub(crate) others: u64,
}

/// All open items of the trace, and the events so far.
pub(crate) struct Schedule<W: Wire> {
    pub(crate) procs: Procs<W>,
    pub(super) goroutines: Goroutines,
    /// The lanes, at the indices that [`crate::order`] assigns.
    pub(super) lanes: DenseTable<EncodedLane>,
    pub(super) ids: UsedIds,
    pub(crate) names: Names<W::Definitions>,
    pub(super) awaited: AwaitedStacks,
    pub(super) collector: CollectorState,
    /// Calls that are in progress at the end.
    pub(super) open_calls: Vec<OpenCall>,
    pub(crate) unmatched: Unmatched,
}

impl<W: Wire> Schedule<W> {
    /// A trace without events. All ticks of the file will be after `start`.
    pub(crate) fn new(start: u64, wire: W) -> Self {
        Self {
            procs: Procs::new(start, wire),
            goroutines: Goroutines::new(),
            lanes: DenseTable::new(),
            ids: UsedIds::default(),
            names: Names::default(),
            awaited: AwaitedStacks::default(),
            collector: CollectorState::new(start),
            open_calls: Vec::new(),
            unmatched: Unmatched::default(),
        }
    }

    /// Converts a tick of the records to the file's units.
    #[inline]
    pub(crate) fn in_file(&self, tick: u64) -> u64 {
        self.procs.wire.in_file(tick)
    }

    /// Returns the P of a lane, which keeps it for its life.
    #[inline]
    pub(super) fn proc_of(&mut self, lane: u32, tick: u64) -> u32 {
        if lane == SHARED {
            return OUTSIDE;
        }
        match self.lanes[lane].proc {
            Some(proc) => proc,
            None => {
                let proc = self.procs.take(tick.saturating_sub(1));
                self.lanes[lane].proc = Some(proc);
                proc
            }
        }
    }

    #[inline]
    pub(super) fn start_proc(&mut self, proc: u32, thread: Thread, tick: u64) {
        if !self.procs[proc].is_started {
            self.procs.put(proc, tick, Event::ProcStart { thread });
            self.procs[proc].is_started = true;
        }
    }

    /// Stops an idle P.
    #[inline]
    pub(super) fn stop_proc(&mut self, proc: u32, tick: u64) {
        if proc != OUTSIDE && self.procs[proc].is_started {
            self.end_sweep(proc, tick);
            self.procs.put(proc, tick, Event::ProcStop);
            self.procs[proc].is_started = false;
        }
    }

    /// Creates a goroutine, which can run. `stack` is the id of the stack that created it.
    pub(super) fn create(
        &mut self,
        proc: u32,
        tick: u64,
        index: u32,
        Begun { goroutine, name, is_task, .. }: Begun,
        (start, stack): (Start, u64),
    ) {
        let created = self.goroutines.begin(index, goroutine, name, &mut self.ids);
        (created.sequence, created.phase, created.proc) = (1, Phase::Runnable, proc);
        created.start = start.stack;
        let event = Event::Create { index, goroutine: created.id, is_task, start, stack };
        created.created = self.procs.put(proc, tick, event);
        created.tick = created.created;
    }

    /// runnable → running, on a P that is started and idle.
    #[inline]
    pub(super) fn run(&mut self, index: u32, proc: u32, tick: u64) {
        self.run_as(index, proc, tick, 0);
    }

    /// Like [`run`](Self::run), with the id of a label; 0 for none.
    pub(super) fn run_as(&mut self, index: u32, proc: u32, tick: u64, label: u64) {
        let goroutine = &mut self.goroutines[index];
        self_check!(goroutine.phase == Phase::Runnable);
        let (changed, tick) = (goroutine.next_change(index, proc), tick.max(goroutine.tick));
        let tick = self.procs.put(proc, tick, Event::Start { changed, label });
        goroutine.phase = Phase::Running;
        (goroutine.proc, goroutine.tick) = (proc, tick);
        self.procs[proc].goroutine = index;
    }

    /// Returns the id of the text for a reason, if the format has it.
    #[inline]
    pub(super) fn text_of(&mut self, reason: Reason) -> u64 {
        if W::HAS_TEXTS { self.names.reason(reason) } else { 0 }
    }

    /// running → runnable, for [`Reason::Yield`], or else waiting. The P stays started.
    #[inline]
    pub(super) fn pause_for(&mut self, index: u32, tick: u64, reason: Reason, stack: u64) {
        self.leave_stop(index, tick);
        let text = self.text_of(reason);
        let goroutine = &mut self.goroutines[index];
        self_check!(goroutine.phase == Phase::Running);
        let proc = goroutine.proc;
        let (event, phase) = match reason {
            Reason::Yield => (Event::Yield { text, stack }, Phase::Runnable),
            _ => (Event::Block { reason, text, stack }, Phase::Waiting),
        };
        goroutine.tick = self.procs.put(proc, tick, event);
        goroutine.phase = phase;
        self.procs[proc].goroutine = NONE;
    }

    /// running → waiting. Its P becomes idle.
    #[inline]
    pub(super) fn block(&mut self, index: u32, tick: u64, reason: WaitReason, stack: u64) {
        let proc = self.goroutines[index].proc;
        self.end_sweep(proc, tick);
        self.pause_for(index, tick, Reason::Wait(reason), stack);
        self.stop_proc(proc, tick);
    }

    /// running → in a system call. Its P becomes idle.
    #[inline]
    pub(super) fn begin_syscall(&mut self, index: u32, tick: u64, stack: u64) {
        self.leave_stop(index, tick);
        let goroutine = &mut self.goroutines[index];
        let proc = goroutine.proc;
        goroutine.phase = Phase::Syscall;
        self.end_sweep(proc, tick);
        self.goroutines[index].tick = self.procs.put(proc, tick, Event::SyscallBegin { stack });
        self.procs[proc].goroutine = NONE;
        self.stop_proc(proc, tick);
    }

    /// waiting or in a system call → runnable, by the goroutine that runs on `proc`, if any.
    #[inline]
    pub(super) fn wake(&mut self, index: u32, proc: u32, tick: u64, stack: u64) {
        let goroutine = &mut self.goroutines[index];
        let (changed, tick) = (goroutine.next_change(index, proc), tick.max(goroutine.tick));
        let stack = if stack == 0 && W::HAS_WAKER_ALWAYS { goroutine.start } else { stack };
        let event = match goroutine.phase {
            Phase::Syscall => Event::SyscallEnd { changed },
            _ => Event::Unblock { changed, stack },
        };
        let tick = self.procs.put(proc, tick, event);
        goroutine.phase = Phase::Runnable;
        goroutine.open_call_on = None;
        (goroutine.proc, goroutine.tick) = (proc, tick);
    }

    /// waiting or in a system call → running, on the lane of the record: no goroutine of the program woke it.
    #[inline]
    pub(super) fn come_back(&mut self, at: EventPosition, tick: u64) {
        let proc = self.proc_of(at.lane, tick);
        self.start_proc(proc, self.lanes[at.lane].thread, tick);
        self.suspend(proc, tick);
        self.goroutines[at.goroutine].is_suspended = false;
        self.wake(at.goroutine, proc, tick, 0);
        self.run(at.goroutine, proc, tick);
    }

    /// running → dead. Its P becomes idle.
    #[inline]
    pub(super) fn end(&mut self, index: u32, tick: u64) {
        let proc = self.goroutines[index].proc;
        self.end_on_proc(index, tick);
        self.stop_proc(proc, tick);
    }

    /// running → dead. The P stays started.
    #[inline]
    pub(super) fn end_on_proc(&mut self, index: u32, tick: u64) {
        let proc = self.goroutines[index].proc;
        self.end_sweep(proc, tick);
        self.end_assist(index, tick);
        self.end_stop_of(index, tick);
        if !W::REGIONS_END_WITH_GOROUTINE {
            self.end_regions(index, proc, tick);
        }
        self.procs.put(proc, tick, Event::End);
        self.goroutines[index].phase = Phase::Unknown;
        self.procs[proc].goroutine = NONE;
    }

    /// Ends all regions of a goroutine, which runs on `proc`.
    pub(super) fn end_regions(&mut self, index: u32, proc: u32, tick: u64) {
        for (task, _) in self.goroutines[index].regions.drain(..).rev() {
            self.procs.put(proc, tick, Event::RegionEnd { task, name: 0 });
        }
    }

    /// Runs `act` on a lane with its P started, though no goroutine may run on it.
    #[inline]
    pub(super) fn on_lane<T>(&mut self, lane: u32, tick: u64, act: impl FnOnce(&mut Self, u32) -> T) -> T {
        let proc = self.proc_of(lane, tick);
        let is_stopped = !self.procs[proc].is_started;
        if is_stopped {
            self.start_proc(proc, self.lanes[lane].thread, tick);
        }
        let done = act(self, proc);
        if is_stopped {
            self.stop_proc(proc, tick);
        }
        done
    }

    /// Brings a goroutine to a state, whatever its state was. The real changes are unknown; each step is one that could
    /// have happened. `lane` is the lane of the record, `owner` the lane of its thread.
    pub(super) fn bring(&mut self, index: u32, to: State, lane: u32, owner: Option<u32>, tick: u64) {
        let wanted = match to {
            State::Running => Phase::Running,
            State::Waiting(_) => Phase::Waiting,
            State::Syscall => Phase::Syscall,
            State::Runnable => Phase::Runnable,
            State::Dead => Phase::Unknown,
        };
        let goroutine = &self.goroutines[index];
        let (phase, proc) = (goroutine.phase, goroutine.proc);
        // A goroutine in a call is declared as running.
        if phase == wanted || to == State::Running && goroutine.open_call_on.is_some() {
            if phase == wanted {
                self.goroutines[index].open_call_on = None;
            }
            return;
        }
        if phase == Phase::Running {
            match to {
                State::Waiting(reason) => return self.block(index, tick, reason, 0),
                State::Syscall => return self.begin_syscall(index, tick, 0),
                State::Dead => return self.end(index, tick),
                State::Runnable | State::Running => {
                    self.end_sweep(proc, tick);
                    self.pause_for(index, tick, Reason::Yield, 0);
                    self.stop_proc(proc, tick);
                }
            }
        }
        if matches!(phase, Phase::Waiting | Phase::Syscall) {
            self.on_lane(lane, tick, |schedule, proc| schedule.wake(index, proc, tick, 0));
        }
        // A running goroutine without a thread cannot be shown.
        if to == State::Runnable || to == State::Running && owner.is_none() {
            return;
        }
        let (proc, stands_in) = self.idle_proc(owner, to, tick);
        self.run(index, proc, tick);
        self.settle(index, to, proc, stands_in, tick);
    }

    /// Returns an idle, started P for a goroutine that is about to run and then change to `to`. It is the P of its
    /// thread. If there is none or it is taken, and the goroutine will not continue to run, it is a P that stands in;
    /// the result is `true` then.
    pub(super) fn idle_proc(&mut self, owner: Option<u32>, to: State, tick: u64) -> (u32, bool) {
        let is_idle = |lane: &u32| {
            let proc = self.lanes[*lane].proc;
            proc.is_some_and(|proc| self.procs[proc].goroutine == NONE)
        };
        match owner.filter(|&lane| lane != SHARED).filter(|lane| to == State::Running || is_idle(lane)) {
            Some(lane) => {
                let proc = self.proc_of(lane, tick);
                let running = self.procs[proc].goroutine;
                if running != NONE {
                    self.end_sweep(proc, tick);
                    self.pause_for(running, tick, Reason::Yield, 0);
                }
                self.start_proc(proc, self.lanes[lane].thread, tick);
                (proc, false)
            }
            None => {
                let proc = self.procs.take(tick + W::STAND_IN_AHEAD);
                self.start_proc(proc, unknown_thread(proc.into(), 0), tick);
                (proc, true)
            }
        }
    }

    /// running → `to`, on a P from [`idle_proc`](Self::idle_proc).
    pub(super) fn settle(&mut self, index: u32, to: State, proc: u32, stands_in: bool, tick: u64) {
        match to {
            State::Waiting(reason) => self.block(index, tick, reason, 0),
            State::Syscall => self.begin_syscall(index, tick, 0),
            State::Dead => self.end(index, tick),
            State::Runnable | State::Running => {}
        }
        if stands_in {
            self.procs.give_back(proc);
        }
    }

    /// Writes `count` samples of one moment with this stack, of a goroutine, or of a thread without one: their number
    /// shows the processor time. They belong to the P of the thread, whatever state the goroutine has in the trace: a
    /// thread that is about to wait may use processor time, and samples may be recorded late.
    pub(super) fn samples(
        &mut self,
        (lane, index): (u32, u32),
        tick: u64,
        (stack, count): (StackId, u64),
        tables: &dyn Tables,
    ) {
        let proc = self.proc_of(lane, tick);
        let (tick, goroutine, stack) = if index == NONE {
            (tick, 0, self.names.unnamed_stack(stack, tables))
        } else {
            let goroutine = &self.goroutines[index];
            // Go 1.21 rejects a goroutine that was sampled before it was created. It may take two events of the same
            // tick in either order, so the sample has to be later.
            (tick.max(goroutine.created + 1), goroutine.id, self.names.stack(stack, goroutine.name, tables))
        };
        let thread = self.lanes.get(lane).map_or(0, |lane| lane.thread.number);
        for _ in 0..count {
            self.procs.wire.put_sample(proc, (tick, thread), goroutine, stack);
        }
    }
}

/// Returns a thread with a number that no thread has: the kernel's are smaller. No two Ps may run on one thread.
pub(super) fn unknown_thread(of: u64, goroutine: u64) -> Thread {
    Thread { number: (1 << 32) + of, goroutine }
}
