//! Converts records to events of the format.

use std::collections::HashMap;

use rtprof_runtime::state::State;
use rtprof_symbols::view::View;
use rtprof_tracer::generation::{Generation, Tables};
use rtprof_tracer::record::{Record, StackId, Status, StringId, StwReason};

use crate::awaited::Left;
use crate::order::{EventPosition, EventSink};

use super::called::Begun;
use super::event::EventType;
use super::events::{Events, unknown_thread};
use super::goroutines::{NONE, Phase};

/// The context in which a generation's records are converted to events.
pub(super) struct Writing<'a> {
    pub(super) events: &'a mut Events,
    pub(super) tables: &'a dyn Tables,
    pub(super) generation: &'a Generation<'a>,
    /// How stacks whose names decide an event are looked up.
    pub(super) view: View,
    /// The names that goroutines give themselves in the generation; computed once a goroutine without a name was
    /// created.
    pub(super) given: Option<HashMap<u64, StringId>>,
}

impl Writing<'_> {
    /// Returns the id of a stack at `at`, with the name of the goroutine as its root.
    #[inline]
    pub(super) fn stack(&mut self, at: EventPosition, stack: StackId) -> u64 {
        match self.events.goroutines.name(at.goroutine) {
            None => self.events.names.unnamed_stack(stack, self.tables),
            Some(name) => self.events.names.stack(stack, name, self.tables),
        }
    }

    /// Returns the P on which the lane's goroutine runs. Without a P, records that need one are left out.
    #[inline]
    pub(super) fn running(&mut self, at: EventPosition) -> Option<u32> {
        if let Some(proc) = self.events.goroutines.running(at.goroutine) {
            return Some(proc);
        }
        self.events.unmatched.others += 1;
        None
    }

    /// Creates a goroutine.
    fn create(&mut self, proc: u32, tick: u64, index: u32, begun: Begun, stack: u64) {
        let Begun { goroutine, .. } = begun;
        let name = self.name_of(begun);
        let start = self.events.names.start(name, self.tables);
        self.events.create(proc, tick, index, (goroutine, name), (start, stack));
    }

    /// Writes an event on a lane, whatever runs there.
    fn put<const N: usize>(&mut self, at: EventPosition, tick: u64, event: EventType, args: [u64; N]) {
        self.events.on_lane(at.lane, tick, |events, proc| events.procs.put(proc, tick, event, args));
    }

    /// Ends the region with this task and name, and the regions that were begun in it.
    pub(super) fn region_end(&mut self, at: EventPosition, tick: u64, key: (u64, u64)) {
        let Some(proc) = self.running(at) else { return };
        let Events { goroutines, procs, unmatched, .. } = &mut *self.events;
        let regions = &mut goroutines[at.goroutine].regions;
        let Some(from) = regions.iter().rposition(|&open| open == key) else {
            unmatched.region_ends += 1;
            return;
        };
        // The end of an inner region was lost, or comes too late. Readers expect the innermost first.
        for (task, name) in regions.drain(from..).rev() {
            procs.put(proc, tick, EventType::UserRegion, [task, 1, name, 0]);
        }
    }
}

impl EventSink for Writing<'_> {
    fn lane(&mut self, lane: u32, thread: u64, thread_id: u32) {
        let lane = self.events.lanes.entry(lane);
        if thread_id != 0 {
            lane.thread_id = thread_id.into();
        } else if lane.thread_id == 0 {
            lane.thread_id = unknown_thread(thread);
        }
    }

    fn introduce(&mut self, at: EventPosition, goroutine: u32, owner: Option<u32>, status: &Status) {
        let tick = at.tick >> self.events.shift;
        let Status { goroutine: id, name, created_by, .. } = *status;
        let begun = Begun { goroutine: id, name, created_by };
        let stack = self.events.names.unnamed_stack(status.created_by, self.tables);
        // A running goroutine without a thread cannot be shown.
        if status.state == State::Runnable || status.state == State::Running && owner.is_none() {
            let proc = self.events.proc_of(at.lane, tick);
            let is_stopped = !self.events.procs[proc].is_started;
            self.events.start_proc(proc, self.events.lanes[at.lane].thread_id, tick);
            self.create(proc, tick, goroutine, begun, stack);
            if is_stopped {
                self.events.stop_proc(proc, tick);
            }
            return;
        }
        let (proc, stands_in) = self.events.idle_proc(owner, status.state, tick);
        self.create(proc, tick, goroutine, begun, stack);
        self.events.run(goroutine, proc, tick);
        match status.state {
            // The wait is shown in no profile, because its beginning is unknown.
            State::Waiting(_) => {
                self.events.pause(goroutine, tick, EventType::GoBlock, 0, Phase::Waiting);
                self.events.stop_proc(proc, tick);
                self.events.settle(goroutine, State::Runnable, proc, stands_in, tick);
            }
            state => self.events.settle(goroutine, state, proc, stands_in, tick),
        }
    }

    fn bridge(&mut self, at: EventPosition, goroutine: u32, owner: Option<u32>, state: State) {
        let tick = at.tick >> self.events.shift;
        self.events.bring(goroutine, state, at.lane, owner, tick);
    }

    #[inline]
    fn record(&mut self, at: EventPosition, target: u32, record: &Record<'_>) {
        let tick = at.tick >> self.events.shift;
        let events = &mut *self.events;
        if events.ends_suspension(record, target) {
            events.resume_suspended(at, tick);
        }
        match *record {
            Record::Status(_) => {}
            Record::Poll { labels, .. } => self.begin_poll(at, target, tick, labels),
            Record::Await { reason, told, stacks, .. } => {
                self.await_(at, tick, Left { stacks, reason, told })
            }
            Record::Reschedule { stack, .. } => self.reschedule(at, tick, stack),
            Record::Ready { .. } => self.ready(at, tick),
            Record::Name { name, .. } => events.rename(target, name),
            Record::Create { goroutine, name, stack: created_by } => {
                let begun = Begun { goroutine, name, created_by };
                let stack = self.stack(at, created_by);
                let proc = self.events.proc_of(at.lane, tick);
                let is_stopped = !self.events.procs[proc].is_started;
                self.events.start_proc(proc, self.events.lanes[at.lane].thread_id, tick);
                self.create(proc, tick, target, begun, stack);
                if is_stopped {
                    self.events.stop_proc(proc, tick);
                }
            }
            Record::CreateFailed { .. } => events.bring(target, State::Dead, at.lane, None, tick),
            Record::Start { labels, .. } => {
                let label = events.label(target, labels, self.tables);
                events.start(at, target, tick, label);
            }
            Record::CpuSample { stack, count, .. } => {
                events.samples((at.lane, target), tick, (stack, count), self.tables)
            }
            Record::Block { .. } | Record::Yield { .. } | Record::SyscallBegin { .. } | Record::End
                if !events.sees_to_run(at, tick) =>
            {
                events.unmatched.others += 1;
            }
            Record::Block { reason, stack } => {
                let stack = self.stack(at, stack);
                self.events.block(at.goroutine, tick, reason, stack);
            }
            // A task that yields is woken by its executor, but can run already.
            Record::Unblock { .. } if !events.goroutines.waits(target) => {}
            Record::Unblock { stack, .. } => {
                let stack = self.stack(at, stack);
                self.events.on_lane(at.lane, tick, |events, proc| events.wake(target, proc, tick, stack));
            }
            Record::Wake | Record::SyscallEnd if events.goroutines.waits(at.goroutine) => {
                events.come_back(at, tick);
            }
            Record::Wake | Record::SyscallEnd => drop(events.sees_to_run(at, tick)),
            Record::Call { state, stack, ticks } => self.call(at, ticks, state, stack),
            Record::InCall { state, begin, .. } => events.note_open_call(target, begin, state),
            Record::Yield { stack } => {
                let stack = self.stack(at, stack);
                let proc = self.events.goroutines[at.goroutine].proc;
                self.events.end_sweep(proc, tick);
                // The P stays started, because the goroutine is about to run again.
                self.events.pause(at.goroutine, tick, EventType::GoSched, stack, Phase::Runnable);
            }
            Record::SyscallBegin { stack } => {
                let stack = self.stack(at, stack);
                self.events.begin_syscall(at.goroutine, tick, stack);
            }
            Record::End => events.end(at.goroutine, tick),
            Record::HeapAlloc { bytes } => self.put(at, tick, EventType::HeapAlloc, [bytes]),
            Record::HeapGoal { bytes } => self.put(at, tick, EventType::HeapGoal, [bytes]),
            Record::GcStart { stack, .. } => {
                let stack = self.stack(at, stack);
                self.events.on_lane(at.lane, tick, |events, proc| events.start_collection(proc, tick, stack));
            }
            Record::GcDone { .. } => {
                events.on_lane(at.lane, tick, |events, proc| events.end_collection(proc, tick))
            }
            Record::StwStart { reason, .. } => {
                if self.running(at).is_none() {
                    return;
                }
                let events = &mut *self.events;
                if let Some(index) = events.stop_of {
                    if events.goroutines[index].phase != Phase::Running {
                        // The end of the other stop was lost, and its goroutine is not running, so no end can be
                        // written now.
                        events.unmatched.others += 1;
                        return;
                    }
                    events.end_stop(tick);
                }
                let kind = match reason {
                    StwReason::MarkTermination => 0,
                    StwReason::SweepTermination => 1,
                };
                events.start_stop(at.goroutine, tick, kind);
            }
            Record::StwDone { .. } => {
                if self.running(at).is_some() {
                    match self.events.stop_of == Some(at.goroutine) {
                        true => self.events.end_stop(tick),
                        false => self.events.unmatched.others += 1,
                    }
                }
            }
            Record::SweepStart { stack } => {
                let stack = self.stack(at, stack);
                let Some(proc) = self.running(at) else { return };
                self.events.end_sweep(proc, tick);
                self.events.procs.put(proc, tick, EventType::GcSweepStart, [stack]);
                self.events.procs[proc].is_sweeping = true;
            }
            Record::SweepDone { swept, reclaimed } => {
                let Some(proc) = self.running(at) else { return };
                if !std::mem::take(&mut self.events.procs[proc].is_sweeping) {
                    // The sweep was closed when its goroutine stopped running.
                    self.events.unmatched.others += 1;
                    return;
                }
                self.events.procs.put(proc, tick, EventType::GcSweepDone, [swept, reclaimed]);
            }
            Record::AssistStart { stack } => {
                let stack = self.stack(at, stack);
                let Some(proc) = self.running(at) else { return };
                self.events.end_assist(at.goroutine, tick);
                self.events.procs.put(proc, tick, EventType::GcMarkAssistStart, [stack]);
                self.events.goroutines[at.goroutine].is_assisting = true;
            }
            Record::AssistDone => {
                if self.running(at).is_some() {
                    match self.events.goroutines[at.goroutine].is_assisting {
                        true => self.events.end_assist(at.goroutine, tick),
                        false => self.events.unmatched.others += 1,
                    }
                }
            }
            Record::TaskCreate { task, parent, name, stack } => {
                let name = events.names.string(name, self.tables);
                let stack = self.stack(at, stack);
                self.put(at, tick, EventType::UserTaskCreate, [task, parent, name, stack]);
            }
            Record::TaskEnd { task, stack } => {
                let stack = self.stack(at, stack);
                self.put(at, tick, EventType::UserTaskEnd, [task, stack]);
            }
            Record::RegionBegin { task, name, stack } => {
                let name = events.names.string(name, self.tables);
                let stack = events.names.region(stack, events.goroutines.name(at.goroutine), self.tables);
                let Some(proc) = self.running(at) else { return };
                self.events.procs.put(proc, tick, EventType::UserRegion, [task, 0, name, stack]);
                self.events.goroutines[at.goroutine].regions.push((task, name));
            }
            Record::RegionEnd { task, name } => {
                let name = events.names.string(name, self.tables);
                self.region_end(at, tick, (task, name));
            }
            Record::Log { task, category, stack, message } => {
                let category = events.names.string(category, self.tables);
                let stack = self.stack(at, stack);
                let args = [task, category, stack];
                self.events.on_lane(at.lane, tick, |events, proc| {
                    events.procs.put_with(proc, tick, EventType::UserLog, args, Some(message))
                });
            }
        }
    }

    fn resume(&mut self, at: EventPosition) {
        self.events.resume_suspended(at, at.tick >> self.events.shift);
    }

    fn lane_over(&mut self, lane: u32) {
        let tick = 0;
        if let Some(proc) = std::mem::take(&mut self.events.lanes[lane]).proc {
            let running = self.events.procs[proc].goroutine;
            if running != NONE {
                self.events.end_sweep(proc, tick);
                self.events.pause(running, tick, EventType::GoSched, 0, Phase::Runnable);
            }
            self.events.stop_proc(proc, tick);
            self.events.procs.give_back(proc);
        }
    }
}
