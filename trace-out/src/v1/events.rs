//! From records to the events of the format.

use std::collections::HashMap;

use rtprof_runtime::state::State;
use rtprof_tracer::generation::{Generation, Tables};
use rtprof_tracer::record::{Record, StackId, Status, StringId, StwReason};

use crate::awaited::AwaitedStacks;
use crate::awaited::Left;
use crate::order::{EventPosition, EventSink};
use rtprof_symbols::view::View;

use super::called::Begun;
use super::calls::Open;
use super::event::EventType;
use super::goroutines::{Goroutines, NONE, Phase};
use super::moves::unknown_thread;
use super::names::Names;
use super::procs::Procs;

/// A lane as the trace shows it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EncodedLane {
    /// Its P, once something has happened on it.
    pub(super) proc: Option<u32>,
    pub(super) thread_id: u64,
}

/// What did not fit into the trace, as nothing like it was open, or nothing ran that it could be said of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unmatched {
    pub(crate) region_ends: u64,
    pub(crate) others: u64,
}

/// Everything that is open in the trace, and the events that led there.
pub(super) struct Events {
    pub(super) procs: Procs,
    pub(super) goroutines: Goroutines,
    pub(super) lanes: Vec<EncodedLane>,
    pub(super) names: Names,
    pub(super) awaited: AwaitedStacks,
    /// By how much ticks are shifted to the right.
    pub(super) shift: u32,
    has_collection: bool,
    collections: u64,
    /// When the last collection began or ended.
    collection_tick: u64,
    /// The goroutine that stops the world.
    pub(super) stop_of: Option<u32>,
    stop_tick: u64,
    /// Calls that go on at the end.
    pub(super) open_calls: Vec<Open>,
    pub(super) unmatched: Unmatched,
}

impl Events {
    /// Nothing happens until after `start`, in ticks that are shifted already.
    pub(super) fn new(start: u64, shift: u32) -> Self {
        Self {
            procs: Procs::new(start),
            goroutines: Goroutines::new(),
            lanes: vec![EncodedLane::default()],
            names: Names::default(),
            awaited: AwaitedStacks::default(),
            shift,
            has_collection: false,
            collections: 0,
            collection_tick: start,
            stop_of: None,
            stop_tick: start,
            open_calls: Vec::new(),
            unmatched: Unmatched::default(),
        }
    }

    pub(super) fn end_assist(&mut self, place: u32, tick: u64) {
        if self.goroutines[place].is_assisting {
            self.procs.put(self.goroutines[place].proc, tick, EventType::GcMarkAssistDone, []);
            self.goroutines[place].is_assisting = false;
        }
    }

    /// Lets the world go on. The goroutine that stopped it must run.
    pub(super) fn end_stop(&mut self, tick: u64) {
        if let Some(place) = self.stop_of.take() {
            let tick = tick.max(self.stop_tick + 1);
            self.stop_tick = self.procs.put(self.goroutines[place].proc, tick, EventType::StwDone, []);
        }
    }

    pub(super) fn end_collection(&mut self, proc: u32, tick: u64) {
        if self.has_collection {
            let tick = tick.max(self.collection_tick + 1);
            self.collection_tick = self.procs.put(proc, tick, EventType::GcDone, []);
            self.has_collection = false;
        }
    }
}

/// What a generation's records are turned into events with.
pub(super) struct Writing<'a> {
    pub(super) events: &'a mut Events,
    pub(super) tables: &'a dyn Tables,
    pub(super) generation: &'a Generation<'a>,
    /// How stacks are looked up whose names decide what is written.
    pub(super) view: View,
    /// The names that goroutines give themselves in it, once one without a name was created.
    pub(super) given: Option<HashMap<u64, StringId>>,
}

impl Writing<'_> {
    /// The stack of what happens at `at`, with the name of the goroutine beneath it.
    #[inline]
    pub(super) fn stack(&mut self, at: EventPosition, stack: StackId) -> u64 {
        match self.events.goroutines.name(at.goroutine) {
            None => self.events.names.unnamed_stack(stack, self.tables),
            Some(name) => self.events.names.stack(stack, name, self.tables),
        }
    }

    /// The P that the lane's goroutine runs on. Without one, what needs one is left out.
    #[inline]
    pub(super) fn running(&mut self, at: EventPosition) -> Option<u32> {
        if let Some(proc) = self.events.goroutines.running(at.goroutine) {
            return Some(proc);
        }
        self.events.unmatched.others += 1;
        None
    }

    /// A goroutine is there that was not.
    fn create(&mut self, proc: u32, tick: u64, place: u32, begun: Begun, stack: u64) {
        let Begun { goroutine, .. } = begun;
        let name = self.name_of(begun);
        let start = self.events.names.start(name, self.tables);
        let Events { goroutines, procs, .. } = &mut *self.events;
        let created = goroutines.begin(place, goroutine, name);
        (created.sequence, created.phase, created.proc) = (1, Phase::Runnable, proc);
        created.created = procs.put(proc, tick, EventType::GoCreate, [created.id, start, stack]);
        created.tick = created.created;
    }

    /// What happens on a lane whatever runs there.
    fn put<const N: usize>(&mut self, at: EventPosition, tick: u64, event: EventType, args: [u64; N]) {
        self.events.on_lane(at.lane, tick, |events, proc| events.procs.put(proc, tick, event, args));
    }
}

impl EventSink for Writing<'_> {
    fn lane(&mut self, lane: u32, thread: u64, thread_id: u32) {
        let lanes = &mut self.events.lanes;
        let lane = lane as usize;
        if lane >= lanes.len() {
            lanes.resize(lane + 1, EncodedLane::default());
        }
        if thread_id != 0 {
            lanes[lane].thread_id = thread_id.into();
        } else if lanes[lane].thread_id == 0 {
            lanes[lane].thread_id = unknown_thread(thread);
        }
    }

    fn introduce(&mut self, at: EventPosition, goroutine: u32, owner: Option<u32>, status: &Status) {
        let tick = at.tick >> self.events.shift;
        let Status { goroutine: id, name, created_by, .. } = *status;
        let begun = Begun { goroutine: id, name, created_by };
        let stack = self.events.names.unnamed_stack(status.created_by, self.tables);
        // One that runs without a thread cannot be drawn.
        if status.state == State::Runnable || status.state == State::Running && owner.is_none() {
            let proc = self.events.proc_of(at.lane, tick);
            let is_stopped = !self.events.procs[proc].is_started;
            self.events.start_proc(proc, self.events.lanes[at.lane as usize].thread_id, tick);
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
            // What it waits for enters no profile: when the wait began nobody knows.
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
                self.events.start_proc(proc, self.events.lanes[at.lane as usize].thread_id, tick);
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
            // A task that lets others run is woken by its executor, and can run all the same.
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
                // The P goes on: the goroutine is about to run again.
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
                self.events.on_lane(at.lane, tick, |events, proc| {
                    events.end_collection(proc, tick);
                    let number = events.collections;
                    events.collections += 1;
                    events.has_collection = true;
                    let tick = tick.max(events.collection_tick + 1);
                    events.collection_tick =
                        events.procs.put(proc, tick, EventType::GcStart, [number, stack]);
                });
            }
            Record::GcDone { .. } => {
                events.on_lane(at.lane, tick, |events, proc| events.end_collection(proc, tick))
            }
            Record::StwStart { reason, .. } => {
                let Some(proc) = self.running(at) else { return };
                let events = &mut *self.events;
                if let Some(place) = events.stop_of {
                    if events.goroutines[place].phase != Phase::Running {
                        // The end of the other stop was lost, and nothing can be said of its goroutine now.
                        events.unmatched.others += 1;
                        return;
                    }
                    events.end_stop(tick);
                }
                let kind = match reason {
                    StwReason::MarkTermination => 0,
                    StwReason::SweepTermination => 1,
                };
                let tick = tick.max(events.stop_tick + 1);
                events.stop_tick = events.procs.put(proc, tick, EventType::StwStart, [kind]);
                events.stop_of = Some(at.goroutine);
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
                    // It was closed when its goroutine stopped running.
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
        if let Some(proc) = std::mem::take(&mut self.events.lanes[lane as usize]).proc {
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
