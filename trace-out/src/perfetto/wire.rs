//! The events of the schedule, as slices, moments and arrows on tracks.
//!
//! A goroutine's track has a slice while the goroutine runs and one for each wait. Between the end of a wait and the
//! next slice it could run but did not. A thread that polls tasks has their polls on its track instead of its own
//! slices. A region may begin before a wait and end after it; so regions, which would not nest with these slices, are
//! on a track below.
//!
//! ```text
//!   thread     [running][sync: mutex      ]   [running]        [poll: search]  [poll: search]
//!     regions       [look up                       ]
//!   search 7                                          [waits ] [running     ][ channel receive ][running]
//! ```

use crate::schedule::{Changed, Event, Introduction, OUTSIDE, Phase, Proc, Reason, Wire};

use super::definitions::{Tables, annotation, category, iid, name};
use super::event::{TrackEvent, Value};
use super::levels::Level;
use super::packets::{Lane, Open, Packets, Sample, ShownGoroutine, kernel_number, sequence};
use super::track;
use super::tracks::Kind;

/// A region that begins in fewer nanoseconds after the same one in the same place has no stack: it would take a fifth
/// of what regions in a tight loop take in the file.
const SAME_REGION: u64 = 10_000;

impl Packets {
    /// Shows that a goroutine runs on a P.
    fn run(&mut self, proc: u32, lane: &mut Lane, time: u64, index: u32, label: u64) -> u64 {
        let time = self.close(proc, lane, index, time);
        let ShownGoroutine { id, kind, name: own_name, flow, .. } = self.goroutines[index];
        if kind != Kind::Task {
            // After losses it may be shown on a P that stands in for that of its thread.
            let thread_id = if lane.owner == id { kernel_number(lane.thread_id) } else { 0 };
            self.see_thread(index, time, thread_id);
        }
        let mut event = TrackEvent { flow_end: flow, ..TrackEvent::begin(name::RUNNING, 0) };
        // A thread without labels any more has its name as the label.
        if label != 0 && label != own_name {
            event.value = Value::Text(annotation::LABELS, iid(label));
        }
        let mut time = self.change(proc, lane, index, time, event);
        let known = &mut self.goroutines[index];
        (known.open, known.flow) = (Open::Running, 0);
        lane.running = index;
        self.set_task_level(index, time, Level::None);
        // After a loss the thread's own state may be known from a later time already, and stays.
        if kind == Kind::Task
            && let Some(own) = self.own(lane)
            && self.goroutines[own].changed.0 <= time
        {
            self.see_thread(own, time, kernel_number(lane.thread_id));
            time = self.close(proc, lane, own, time);
            let shown = if own_name == 0 { name::POLL } else { iid(own_name) };
            time = self.change(proc, lane, own, time, TrackEvent::begin(shown, category::POLL));
            self.goroutines[own].open = Open::Poll;
        }
        time
    }

    /// Shows that the goroutine which runs on a P runs no longer. Returns its index.
    #[inline]
    fn leave(&mut self, proc: u32, lane: &mut Lane, mut time: u64) -> (u32, u64) {
        let index = std::mem::take(&mut lane.running);
        if index == 0 {
            return (0, time);
        }
        if self.goroutines[index].kind == Kind::Task
            && let Some(own) = self.own(lane)
            && self.goroutines[own].open == Open::Poll
        {
            time = self.close(proc, lane, own, time);
        }
        (index, self.close(proc, lane, index, time))
    }

    /// Shows that a goroutine waits. A task that polls another one is not counted as one that waits.
    #[inline]
    fn wait(&mut self, proc: u32, lane: &mut Lane, time: u64, index: u32, slice: TrackEvent) -> u64 {
        let time = self.change(proc, lane, index, time, slice);
        self.goroutines[index].open = Open::Wait;
        if slice.category != category::POLL {
            self.set_task_level(index, time, Level::Waiting);
        }
        time
    }

    /// Shows that a goroutine no longer waits. If another one runs on the P, that has woken it.
    fn wake(&mut self, proc: u32, lane: &mut Lane, time: u64, index: u32, stack: u64) -> u64 {
        if self.goroutines[index].open != Open::Wait {
            return time;
        }
        let mut time = self.close(proc, lane, index, time);
        self.set_task_level(index, time, Level::Runnable);
        if lane.running != 0 && lane.running != index {
            let flow = self.flow();
            let unblock = TrackEvent { flow, stack, ..TrackEvent::instant(name::UNBLOCK, 0) };
            time = self.moment(proc, lane, time, unblock);
            self.goroutines[index].flow = flow;
        }
        time
    }

    /// Shows a goroutine that the trace did not know.
    fn find(
        &mut self,
        proc: u32,
        lane: &mut Lane,
        time: u64,
        index: u32,
        phase: Phase,
        found: Introduction,
    ) -> u64 {
        if found.thread_id != 0 {
            // It was there when the generation began.
            self.see_thread(index, self.begin, found.thread_id);
        }
        match phase {
            Phase::Running => self.run(proc, lane, time, index, 0),
            Phase::Waiting => {
                let name = if found.text == 0 { name::WAITS } else { iid(found.text) };
                self.wait(proc, lane, time, index, TrackEvent::begin(name, category::WAIT_BEFORE))
            }
            Phase::Syscall => {
                let slice = TrackEvent::begin(name::SYSCALL, category::WAIT_BEFORE);
                self.wait(proc, lane, time, index, slice)
            }
            Phase::Runnable | Phase::Unknown => {
                self.set_task_level(index, time, Level::Runnable);
                time
            }
        }
    }

    /// Writes a moment on the track of the goroutine that runs on a P.
    pub(super) fn moment(&mut self, proc: u32, lane: &mut Lane, time: u64, event: TrackEvent) -> u64 {
        let track = self.track_of(lane);
        self.put(proc, lane, track, time, event)
    }

    /// Writes an event of the process.
    pub(super) fn of_process(&mut self, track: u64, time: u64, event: TrackEvent) -> u64 {
        self.events += 1;
        self.unordered.put(track, time, event);
        time
    }

    fn write(&mut self, proc: u32, lane: &mut Lane, time: u64, event: Event<'_>) -> u64 {
        match event {
            Event::ProcStart { thread } => {
                if lane.owner != thread.goroutine || lane.thread_id != thread.number {
                    self.describe_owner(lane);
                    (lane.owner, lane.thread_id) = (thread.goroutine, thread.number);
                }
                time
            }
            Event::ProcStop => time,
            Event::Create { index, goroutine, is_task, start, stack } => {
                self.know(index, goroutine, Some(kind_of(is_task)), start);
                self.set_task_level(index, time, Level::Runnable);
                if lane.running == 0 {
                    return time;
                }
                let flow = self.flow();
                let spawn = TrackEvent { flow, stack, ..TrackEvent::instant(name::SPAWN, 0) };
                let time = self.moment(proc, lane, time, spawn);
                let created = &mut self.goroutines[index];
                (created.flow, created.changed) = (flow, (time, sequence(proc)));
                time
            }
            Event::Start { changed, label } => self.run(proc, lane, time, changed.index, label),
            Event::Yield { .. } => {
                let (index, time) = self.leave(proc, lane, time);
                self.set_task_level(index, time, Level::Runnable);
                time
            }
            Event::End => {
                let (index, time) = self.leave(proc, lane, time);
                self.set_level(index, time, Level::None);
                time
            }
            Event::Block { reason, text, stack } => {
                let (index, time) = self.leave(proc, lane, time);
                let polls = reason == Reason::Polling;
                if index == 0 || polls && self.goroutines[index].kind != Kind::Task {
                    return time;
                }
                let category = if polls { category::POLL } else { category::WAIT };
                let slice = TrackEvent { stack, ..TrackEvent::begin(iid(text), category) };
                self.wait(proc, lane, time, index, slice)
            }
            Event::SyscallBegin { stack } => {
                let (index, time) = self.leave(proc, lane, time);
                if index == 0 {
                    return time;
                }
                let slice = TrackEvent { stack, ..TrackEvent::begin(name::SYSCALL, category::WAIT) };
                self.wait(proc, lane, time, index, slice)
            }
            Event::Unblock { changed: Changed { index, .. }, stack } => {
                self.wake(proc, lane, time, index, stack)
            }
            Event::SyscallEnd { changed: Changed { index, .. } } => {
                if self.goroutines[index].open != Open::Wait {
                    return time;
                }
                let time = self.close(proc, lane, index, time);
                self.set_task_level(index, time, Level::Runnable);
                time
            }
            Event::Collector(event) => self.put_collector(proc, lane, time, event),
            Event::HeapAlloc { bytes } => self.of_process(track::HEAP, time, TrackEvent::counter(bytes)),
            Event::HeapGoal { bytes } => self.of_process(track::GOAL, time, TrackEvent::counter(bytes)),
            Event::TaskBegin { task, parent, name, stack } => {
                self.user_tasks.begin(time, task, (parent, name, stack));
                time
            }
            Event::TaskEnd { task, stack } => {
                self.user_tasks.end(time, task, stack);
                time
            }
            Event::RegionBegin { task, name, mut stack } => {
                let (last, at, since) = std::mem::replace(&mut lane.region, (name, stack, time));
                if (last, at) == (name, stack) && time.saturating_sub(since) < SAME_REGION {
                    stack = 0;
                }
                let known = &mut self.goroutines[lane.running];
                let id = known.id;
                if !std::mem::replace(&mut known.has_regions, true) {
                    self.tracks.add_regions(id);
                }
                let region = TrackEvent { stack, value: of_task(task), ..TrackEvent::begin(iid(name), 0) };
                self.put(proc, lane, track::regions(id), time, region)
            }
            Event::RegionEnd { .. } => {
                let id = self.goroutines[lane.running].id;
                self.put(proc, lane, track::regions(id), time, TrackEvent::end())
            }
            Event::Log { task, category, stack, text, .. } => {
                let category = if category == 0 { category::LOG } else { iid(category) };
                let log =
                    TrackEvent { stack, value: of_task(task), ..TrackEvent::instant(iid(text), category) };
                self.moment(proc, lane, time, log)
            }
            Event::Status { index, goroutine, start, phase, found, .. } => {
                self.know(index, goroutine, found.map(|found| kind_of(found.is_task)), start);
                match found {
                    Some(found) => self.find(proc, lane, time, index, phase, found),
                    None => time,
                }
            }
        }
    }
}

/// Returns what a goroutine is that is new in the trace.
fn kind_of(is_task: bool) -> Kind {
    if is_task { Kind::Task } else { Kind::default() }
}

/// Names the user task that an event belongs to; 0 for none.
fn of_task(task: u64) -> Value {
    if task == 0 { Value::None } else { Value::Number(annotation::TASK, task) }
}

impl Wire for Packets {
    type Lane = Lane;
    type Definitions = Tables;

    const STAND_IN_AHEAD: u64 = 0;
    const HAS_TEXTS: bool = true;
    const HAS_LONG_STOPS: bool = true;
    const STOPS_END_ALONE: bool = true;
    const REGIONS_END_WITH_GOROUTINE: bool = false;
    const HAS_WAKER_ALWAYS: bool = false;

    #[inline]
    fn in_file(&self, tick: u64) -> u64 {
        self.time_of(tick)
    }

    fn may_state(&self) -> bool {
        true
    }

    #[inline]
    fn put(&mut self, index: u32, proc: &mut Proc<Lane>, tick: u64, event: Event<'_>) -> u64 {
        let time = tick.max(self.begin).max(proc.tick);
        // User tasks have their own tracks. After a loss their records may be later than what is found out next.
        let is_of_proc =
            index != OUTSIDE && !matches!(event, Event::TaskBegin { .. } | Event::TaskEnd { .. });
        let time = self.write(index, &mut proc.lane, time, event);
        if is_of_proc {
            proc.tick = time;
        }
        time
    }

    fn give_back(&mut self, _index: u32, _proc: &mut Proc<Lane>) {}

    fn put_sample(&mut self, _index: u32, (time, thread): (u64, u64), _goroutine: u64, stack: u64) {
        let thread_id = kernel_number(thread);
        self.samples.push(Sample { time: time.max(self.begin), thread_id, stack });
        self.events += 1;
    }

    fn finish(&mut self) {}
}
