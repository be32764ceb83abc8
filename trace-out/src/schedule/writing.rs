//! Converts records to events of the format.

use std::collections::HashMap;

use rtprof_runtime::goroutine::state::State;
use rtprof_symbols::view::View;
use rtprof_tracer::generation::{Generation, Tables};
use rtprof_tracer::record::{Record, StackId, Status, StringId, cut};

use crate::awaited::SuspendedPoll;
use crate::order::{EventPosition, EventSink};

use super::changes::{Schedule, unknown_thread};
use super::event::{Event, Introduction, Thread};
use super::goroutines::{Begun, NONE, Phase};
use super::procs::{OUTSIDE, Wire};
use super::reason::Reason;

/// The most open regions of a goroutine: more than a recursion has that begins one in each call, on a stack of 8 MiB. Ends that
/// were lost would otherwise add up while a flight recorder goes on for days, here to a megabyte a goroutine. Readers that
/// end the regions with the goroutine may keep older ones; for others all are ended.
pub(crate) const OPEN_REGIONS: usize = 1 << 16;

/// The context in which a generation's records are converted to events.
pub(crate) struct Writing<'a, W: Wire> {
    pub(super) schedule: &'a mut Schedule<W>,
    pub(super) tables: &'a dyn Tables,
    pub(super) generation: &'a Generation<'a>,
    /// How stacks whose names decide an event are looked up.
    pub(super) view: View,
    /// The names that goroutines give themselves in the generation; computed once a goroutine without a name was
    /// created.
    pub(super) given: Option<HashMap<u64, StringId>>,
}

impl<'a, W: Wire> Writing<'a, W> {
    pub(crate) fn new(
        schedule: &'a mut Schedule<W>,
        tables: &'a dyn Tables,
        generation: &'a Generation<'a>,
        view: View,
    ) -> Self {
        Self { schedule, tables, generation, view, given: None }
    }
}

impl<W: Wire> Writing<'_, W> {
    /// Returns the id of a stack at `at`, with the name of the goroutine as its root.
    #[inline]
    pub(super) fn stack(&mut self, at: EventPosition, stack: StackId) -> u64 {
        match self.schedule.goroutines.name(at.goroutine) {
            None => self.schedule.names.unnamed_stack(stack, self.tables),
            Some(name) => self.schedule.names.stack(stack, name, self.tables),
        }
    }

    /// Returns the P on which the lane's goroutine runs. Without a P, records that need one are left out.
    #[inline]
    pub(super) fn running(&mut self, at: EventPosition) -> Option<u32> {
        if let Some(proc) = self.schedule.goroutines.running(at.goroutine) {
            return Some(proc);
        }
        self.schedule.unmatched.others += 1;
        None
    }

    /// Creates a goroutine.
    fn create(&mut self, proc: u32, tick: u64, index: u32, begun: Begun, stack: u64) {
        let begun = Begun { name: self.name_of(begun), ..begun };
        let start = self.schedule.names.start(begun.name, self.tables);
        self.schedule.create(proc, tick, index, begun, (start, stack));
    }

    /// Shows a goroutine of which the trace knows nothing in its state.
    fn state(&mut self, tick: u64, index: u32, owner: Option<u32>, begun: Begun, status: &Status) {
        let state = status.state;
        let name = self.name_of(begun);
        let (proc, phase) = match (state, owner) {
            (State::Running, Some(_)) => {
                (self.schedule.idle_proc(owner, State::Running, tick).0, Phase::Running)
            }
            // A running goroutine without a thread cannot be shown.
            (State::Runnable | State::Running, _) => (OUTSIDE, Phase::Runnable),
            (State::Waiting(_), _) => (OUTSIDE, Phase::Waiting),
            (State::Syscall, _) => (OUTSIDE, Phase::Syscall),
            (State::Dead, _) => return,
        };
        let text = match state {
            State::Waiting(reason) => self.schedule.text_of(Reason::Wait(reason)),
            _ => 0,
        };
        let found = Introduction { is_task: status.is_task, thread_id: status.thread_id, text };
        self.schedule.appear(index, (begun.goroutine, name), (proc, phase), tick, found, self.tables);
    }

    /// Writes an event on a lane, whatever runs there.
    fn put(&mut self, at: EventPosition, tick: u64, event: Event<'_>) {
        self.schedule.on_lane(at.lane, tick, |schedule, proc| schedule.procs.put(proc, tick, event));
    }

    /// Ends the region with this task and name, and the regions that were begun in it.
    pub(super) fn region_end(&mut self, at: EventPosition, tick: u64, key: (u64, StringId)) {
        let Some(proc) = self.running(at) else { return };
        let Schedule { goroutines, procs, unmatched, names, .. } = &mut *self.schedule;
        let regions = &mut goroutines[at.goroutine].regions;
        let Some(from) = regions.iter().rposition(|&open| open == key) else {
            unmatched.region_ends += 1;
            return;
        };
        // The end of an inner region was lost, or comes too late. Readers expect the innermost first.
        for (task, name) in regions.drain(from..).rev() {
            let name = names.string(name, self.tables);
            procs.put(proc, tick, Event::RegionEnd { task, name });
        }
    }
}

impl<W: Wire> EventSink for Writing<'_, W> {
    fn lane(&mut self, lane: u32, goroutine: u64, thread_id: u32) {
        let lane = self.schedule.lanes.entry(lane);
        if thread_id != 0 {
            lane.thread = Thread { number: thread_id.into(), goroutine };
        } else if lane.thread.number == 0 {
            lane.thread = unknown_thread(goroutine, goroutine);
        }
    }

    fn introduce(&mut self, at: EventPosition, goroutine: u32, owner: Option<u32>, status: &Status) {
        let tick = self.schedule.in_file(at.tick);
        let Status { goroutine: id, name, created_by, is_task, .. } = *status;
        let begun = Begun { goroutine: id, name, created_by, is_task };
        if self.schedule.procs.wire.may_state() {
            return self.state(tick, goroutine, owner, begun, status);
        }
        let stack = self.schedule.names.unnamed_stack(status.created_by, self.tables);
        // A running goroutine without a thread cannot be shown.
        if status.state == State::Runnable || status.state == State::Running && owner.is_none() {
            let proc = self.schedule.proc_of(at.lane, tick);
            let is_stopped = !self.schedule.procs[proc].is_started;
            self.schedule.start_proc(proc, self.schedule.lanes[at.lane].thread, tick);
            self.create(proc, tick, goroutine, begun, stack);
            if is_stopped {
                self.schedule.stop_proc(proc, tick);
            }
            return;
        }
        let (proc, stands_in) = self.schedule.idle_proc(owner, status.state, tick);
        self.create(proc, tick, goroutine, begun, stack);
        self.schedule.run(goroutine, proc, tick);
        match status.state {
            // The wait is shown in no profile, because its beginning is unknown.
            State::Waiting(_) => {
                self.schedule.pause_for(goroutine, tick, Reason::BeforeTheTrace, 0);
                self.schedule.stop_proc(proc, tick);
                self.schedule.settle(goroutine, State::Runnable, proc, stands_in, tick);
            }
            state => self.schedule.settle(goroutine, state, proc, stands_in, tick),
        }
    }

    fn bridge(&mut self, at: EventPosition, goroutine: u32, owner: Option<u32>, state: State) {
        let tick = self.schedule.in_file(at.tick);
        self.schedule.bring(goroutine, state, at.lane, owner, tick);
    }

    #[inline]
    fn record(&mut self, at: EventPosition, target: u32, record: &Record<'_>) {
        let tick = self.schedule.in_file(at.tick);
        let schedule = &mut *self.schedule;
        if schedule.ends_suspension(record, target) {
            // A call is recorded at its end. The goroutine acts when it begins.
            let acts = match *record {
                Record::Call { ticks, .. } => schedule.in_file(at.tick.saturating_sub(ticks)),
                _ => tick,
            };
            schedule.resume_suspended(at, acts);
            schedule.end_lost_call(at, tick, record);
        } else if let Record::Poll { .. } = record {
            schedule.end_lost_call(at, tick, record);
        }
        match *record {
            Record::Status(_) => {}
            Record::Poll { labels, .. } => self.begin_poll(at, target, tick, labels),
            Record::Await { reason, declared, stacks, .. } => {
                self.await_(at, tick, SuspendedPoll { stacks, reason, declared })
            }
            Record::Reschedule { stack, .. } => self.reschedule(at, tick, stack),
            Record::Ready { .. } => self.ready(at, tick),
            Record::Name { name, .. } => schedule.rename(target, name),
            Record::Create { goroutine, name, stack: created_by, is_task } => {
                let begun = Begun { goroutine, name, created_by, is_task };
                let stack = self.stack(at, created_by);
                let proc = self.schedule.proc_of(at.lane, tick);
                let is_stopped = !self.schedule.procs[proc].is_started;
                self.schedule.start_proc(proc, self.schedule.lanes[at.lane].thread, tick);
                self.create(proc, tick, target, begun, stack);
                if is_stopped {
                    self.schedule.stop_proc(proc, tick);
                }
            }
            Record::CreateFailed { .. } => schedule.bring(target, State::Dead, at.lane, None, tick),
            Record::Start { labels, .. } => {
                let label = schedule.label(target, labels, self.tables);
                schedule.start(at, target, tick, label);
            }
            Record::CpuSample { stack, count, .. } => {
                schedule.samples((at.lane, target), tick, (stack, count), self.tables)
            }
            Record::Block { .. } | Record::Yield { .. } | Record::SyscallBegin { .. } | Record::End
                if !schedule.sees_to_run(at, tick) =>
            {
                schedule.unmatched.others += 1;
            }
            Record::Block { reason, stack } => {
                let stack = self.stack(at, stack);
                self.schedule.block(at.goroutine, tick, reason, stack);
            }
            // A task that yields is woken by its executor, but can run already.
            Record::Unblock { .. } if !schedule.goroutines.waits(target) => {}
            Record::Unblock { stack, .. } => {
                let stack = self.stack(at, stack);
                self.schedule
                    .on_lane(at.lane, tick, |schedule, proc| schedule.wake(target, proc, tick, stack));
            }
            Record::Wake | Record::SyscallEnd if schedule.goroutines.waits(at.goroutine) => {
                schedule.come_back(at, tick);
            }
            Record::Wake | Record::SyscallEnd => drop(schedule.sees_to_run(at, tick)),
            Record::Call { state, stack, ticks } => self.call(at, ticks, state, stack),
            Record::InCall { state, begin, .. } => schedule.note_open_call((at.lane, target), begin, state),
            Record::Yield { stack } => {
                let stack = self.stack(at, stack);
                let proc = self.schedule.goroutines[at.goroutine].proc;
                self.schedule.end_sweep(proc, tick);
                // The P stays started, because the goroutine is about to run again.
                self.schedule.pause_for(at.goroutine, tick, Reason::Yield, stack);
            }
            Record::SyscallBegin { stack } => {
                let stack = self.stack(at, stack);
                self.schedule.begin_syscall(at.goroutine, tick, stack);
            }
            Record::End => schedule.end(at.goroutine, tick),
            Record::HeapAlloc { bytes } => self.put(at, tick, Event::HeapAlloc { bytes }),
            Record::HeapGoal { bytes } => self.put(at, tick, Event::HeapGoal { bytes }),
            Record::Collector(record) => self.collector(at, tick, record),
            Record::TaskCreate { task, parent, name, stack } => {
                let name = schedule.names.string(name, self.tables);
                let stack = self.stack(at, stack);
                self.put(at, tick, Event::TaskBegin { task, parent, name, stack });
            }
            Record::TaskEnd { task, stack } => {
                let stack = self.stack(at, stack);
                self.put(at, tick, Event::TaskEnd { task, stack });
            }
            Record::RegionBegin { task, name, stack } => {
                let stack = schedule.names.region(stack, schedule.goroutines.name(at.goroutine), self.tables);
                let Some(proc) = self.running(at) else { return };
                let open = &mut self.schedule.goroutines[at.goroutine].regions;
                if open.len() >= OPEN_REGIONS {
                    match W::REGIONS_END_WITH_GOROUTINE {
                        true => drop(open.drain(..OPEN_REGIONS / 2)),
                        false => self.schedule.end_regions(at.goroutine, proc, tick),
                    }
                }
                self.schedule.goroutines[at.goroutine].regions.push((task, name));
                let name = self.schedule.names.string(name, self.tables);
                self.schedule.procs.put(proc, tick, Event::RegionBegin { task, name, stack });
            }
            Record::RegionEnd { task, name } => self.region_end(at, tick, (task, name)),
            Record::Log { task, category, stack, message } => {
                let category = schedule.names.string(category, self.tables);
                let stack = self.stack(at, stack);
                let text = match W::HAS_TEXTS {
                    true => self.schedule.names.text(cut(&String::from_utf8_lossy(message))),
                    false => 0,
                };
                self.put(at, tick, Event::Log { task, category, stack, message, text });
            }
        }
    }

    fn resume(&mut self, at: EventPosition) {
        let tick = self.schedule.in_file(at.tick);
        self.schedule.resume_suspended(at, tick);
    }

    fn lane_over(&mut self, lane: u32) {
        let tick = 0;
        self.schedule.forget_open_call(lane);
        if let Some(proc) = std::mem::take(&mut self.schedule.lanes[lane]).proc {
            let running = self.schedule.procs[proc].goroutine;
            if running != NONE {
                self.schedule.end_sweep(proc, tick);
                self.schedule.pause_for(running, tick, Reason::Yield, 0);
            }
            self.schedule.stop_proc(proc, tick);
            self.schedule.procs.give_back(proc);
        }
    }
}
