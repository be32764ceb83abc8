//! The packets of a generation, and what a reader knows of each goroutine.

use rtprof_runtime::clock;

use crate::dense::DenseTable;
use crate::schedule::{OUTSIDE, Reason, Start};

use super::definitions::{Tables, name};
use super::event::TrackEvent;
use super::levels::{Level, Levels};
use super::proto;
use super::sequence::{Apart, Body, Closed, Head, SHARED, Sequence};
use super::track;
use super::tracks::{Kind, Tracks};
use super::unordered::Unordered;
use super::user_tasks::UserTasks;

/// The sequence of samples.
const SAMPLES: u32 = 2;

/// The sequence of the counts of threads and tasks. Events that were recorded after the end of a generation would
/// otherwise delay those of the next one.
const COUNTS: u32 = 3;

/// Returns the sequence of a P.
#[inline]
pub(super) fn sequence(proc: u32) -> u32 {
    if proc == OUTSIDE { SHARED } else { COUNTS + proc }
}

/// The slice that is open on a goroutine's track.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Open {
    #[default]
    None,
    Running,
    /// It waits, or is in a system call.
    Wait,
    /// The thread polls a task.
    Poll,
}

/// What a reader knows of a goroutine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ShownGoroutine {
    pub(super) id: u64,
    pub(super) kind: Kind,
    pub(super) name: u64,
    pub(super) open: Open,
    /// The name and category of that slice; 0 if it began in an earlier generation.
    pub(super) slice: (u64, u64),
    /// The time of the last change of its slices, and the sequence that has it.
    pub(super) changed: (u64, u32),
    /// The arrow that ends where it runs next; 0 for none.
    pub(super) flow: u64,
    /// Whether it has regions in this generation.
    pub(super) has_regions: bool,
    /// What it is counted as.
    level: Level,
}

/// What is shown of a P.
#[derive(Default)]
pub(crate) struct Lane {
    pub(super) sequence: Sequence,
    /// The kernel's number of its thread, and that thread's own goroutine; 0 if unknown.
    pub(super) thread_id: u64,
    pub(super) owner: u64,
    /// The index of the goroutine that runs; 0 for none.
    pub(super) running: u32,
    /// The index of that goroutine, when it was last looked up.
    pub(super) own: u32,
    /// The last region that began, by name and stack, and its time.
    pub(super) region: (u64, u64, u64),
    /// Whether events of this generation are on the thread's track because no goroutine runs.
    pub(super) uses_owner: bool,
}

impl Lane {
    /// Begins a generation.
    pub(super) fn begin(&mut self) {
        self.sequence.begin();
        // A goroutine that is not declared again is gone, and ids are new.
        (self.own, self.region) = (0, (0, 0, 0));
    }
}

/// A CPU sample.
pub(super) struct Sample {
    pub(super) time: u64,
    pub(super) thread_id: u32,
    pub(super) stack: u64,
}

/// The packets of this generation that are not in the file yet, but for those of Ps.
pub(crate) struct Packets {
    /// Nanoseconds in one tick, in units of 2⁻³².
    scale: u64,
    /// Is added to times, to make them times since boot.
    pub(super) boot: u64,
    /// The time at which the generation began.
    pub(super) begin: u64,
    /// By index.
    pub(super) goroutines: DenseTable<ShownGoroutine>,
    pub(super) tracks: Tracks,
    pub(super) user_tasks: UserTasks,
    pub(super) unordered: Unordered,
    levels: Levels,
    /// The events of Ps.
    pub(super) body: Body,
    shared: Apart,
    pub(super) samples: Vec<Sample>,
    sampled: Apart,
    counted: Apart,
    /// The number of the last arrow.
    flows: u64,
    /// Whether the slice of a collection is open, and the reason of the stop of the world whose slice is.
    pub(super) is_collecting: bool,
    pub(super) stopped: Option<Reason>,
    pub(super) events: u64,
}

impl Packets {
    pub(super) fn new(ticks_per_second: u64) -> Self {
        let mut packets = Self {
            scale: (u128::from(clock::NANOS) << 32).div_euclid(ticks_per_second.into()) as u64,
            boot: 0,
            begin: 0,
            goroutines: DenseTable::new(),
            tracks: Tracks::default(),
            user_tasks: UserTasks::default(),
            unordered: Unordered::default(),
            levels: Levels::default(),
            body: Body::default(),
            shared: Apart::default(),
            samples: Vec::new(),
            sampled: Apart::default(),
            counted: Apart::default(),
            flows: 0,
            is_collecting: false,
            stopped: None,
            events: 0,
        };
        packets.boot = packets.boot_now();
        packets
    }

    /// Returns what is to be added to times of the present, to make them times since boot. The length of a tick was
    /// measured, so over days this changes by some seconds.
    pub(super) fn boot_now(&self) -> u64 {
        clock::boot_nanos().wrapping_sub(self.time_of(clock::ticks()))
    }

    /// Converts ticks of the records to nanoseconds.
    #[inline]
    pub(super) fn time_of(&self, tick: u64) -> u64 {
        ((u128::from(tick) * u128::from(self.scale)) >> 32) as u64
    }

    /// Begins a generation. The states of goroutines must follow.
    pub(super) fn begin(&mut self, begin: u64, end: u64) {
        self.begin = begin;
        self.shared.sequence.begin();
        self.sampled.sequence.begin();
        self.counted.sequence.begin();
        self.tracks.begin();
        self.levels.begin(begin, end);
        for index in self.goroutines.indices() {
            self.goroutines[index].slice = (0, 0);
        }
    }

    /// Counts a goroutine as something else.
    #[inline]
    pub(super) fn set_level(&mut self, index: u32, time: u64, level: Level) {
        let before = std::mem::replace(&mut self.goroutines[index].level, level);
        if before != level {
            self.levels.change(time, before, level);
        }
    }

    /// The same, if it is a task.
    #[inline]
    pub(super) fn set_task_level(&mut self, index: u32, time: u64, level: Level) {
        if self.goroutines[index].kind == Kind::Task {
            self.set_level(index, time, level);
        }
    }

    /// Returns a new arrow.
    pub(super) fn flow(&mut self) -> u64 {
        self.flows += 1;
        self.flows
    }

    /// Writes an event of a track on a P, not before `time`; returns its time.
    #[inline]
    pub(super) fn put(
        &mut self,
        proc: u32,
        lane: &mut Lane,
        track: u64,
        time: u64,
        event: TrackEvent,
    ) -> u64 {
        self.events += 1;
        if proc == OUTSIDE {
            // It is not written before what the last generation has there.
            let time = time.max(self.shared.sequence.last());
            self.unordered.put(track, time, event);
            return time;
        }
        lane.sequence.put(&mut self.body, sequence(proc), track, time, &event);
        lane.sequence.last()
    }

    /// Writes a change of a goroutine's slices on a P. Readers sort the packets of all sequences by their times. So two
    /// packets of one track that are in different sequences must have different times.
    #[inline]
    pub(super) fn change(
        &mut self,
        proc: u32,
        lane: &mut Lane,
        index: u32,
        time: u64,
        event: TrackEvent,
    ) -> u64 {
        let ShownGoroutine { id, kind, changed: (last, on), .. } = self.goroutines[index];
        if kind == Kind::Thread(0) {
            self.tracks.note(id, kind);
        }
        let own = sequence(proc);
        let time = time.max(last + u64::from(on != own));
        let time = self.put(proc, lane, track::goroutine(id), time, event);
        let known = &mut self.goroutines[index];
        known.changed = (time, own);
        known.slice = (event.name, event.category);
        time
    }

    /// Ends the slice that is open on a goroutine's track.
    #[inline]
    pub(super) fn close(&mut self, proc: u32, lane: &mut Lane, index: u32, time: u64) -> u64 {
        if self.goroutines[index].open == Open::None {
            return time;
        }
        self.goroutines[index].open = Open::None;
        self.change(proc, lane, index, time, TrackEvent::end())
    }

    /// Shows a goroutine that is new in the generation. `kind` is set where it is new in the trace.
    pub(super) fn know(&mut self, index: u32, id: u64, kind: Option<Kind>, start: Start) {
        self.goroutines.entry(index);
        if self.goroutines[index].id != id {
            // The end of the one before was lost.
            self.set_level(index, self.begin, Level::None);
            self.goroutines[index] = ShownGoroutine { id, ..ShownGoroutine::default() };
        }
        let known = &mut self.goroutines[index];
        known.kind = kind.unwrap_or(known.kind);
        (known.name, known.has_regions) = (start.name, false);
        self.tracks.add((id, index), known.kind, start.stack);
    }

    /// Notes the kernel's number of a thread, which runs, and counts it.
    #[inline]
    pub(super) fn see_thread(&mut self, index: u32, time: u64, thread_id: u32) {
        self.note_thread(index, thread_id);
        self.set_level(index, time, Level::Thread);
    }

    /// Notes the kernel's number of a thread; 0 if it is unknown.
    #[inline]
    fn note_thread(&mut self, index: u32, thread_id: u32) {
        let known = &mut self.goroutines[index];
        if known.kind == Kind::Thread(0) {
            known.kind = Kind::Thread(thread_id);
            self.tracks.note(known.id, known.kind);
        }
    }

    /// Returns the track for events of the goroutine that runs on a P, or of the P's thread.
    #[inline]
    pub(super) fn track_of(&self, lane: &mut Lane) -> u64 {
        match (lane.running, lane.owner) {
            (0, 0) => track::OUTSIDE,
            (0, owner) => {
                lane.uses_owner = true;
                track::goroutine(owner)
            }
            (index, _) => track::goroutine(self.goroutines[index].id),
        }
    }

    /// Returns the index of the goroutine of a P's thread.
    #[inline]
    pub(super) fn own(&self, lane: &mut Lane) -> Option<u32> {
        if lane.owner == 0 {
            return None;
        }
        if self.goroutines[lane.own].id != lane.owner {
            lane.own = self.tracks.index_of(lane.owner)?;
        }
        Some(lane.own)
    }

    /// Has the track of a P's thread described, if it has events. After losses its goroutine may be unknown.
    pub(super) fn describe_owner(&mut self, lane: &mut Lane) {
        if !std::mem::take(&mut lane.uses_owner) {
            return;
        }
        let thread_id = kernel_number(lane.thread_id);
        match self.own(lane) {
            Some(own) => self.note_thread(own, thread_id),
            None => self.tracks.add_thread(lane.owner, thread_id),
        }
    }

    /// Ends a generation.
    pub(super) fn end(&mut self, end: u64) {
        self.end_flows(end);
        let mut counts = Unordered::default();
        self.levels.put(&mut counts);
        counts.sort_into(COUNTS, &mut self.counted);
    }

    /// Ends the arrows that would end in the next generation: a reader may have only one of the two.
    fn end_flows(&mut self, end: u64) {
        for index in self.goroutines.indices() {
            let ShownGoroutine { id, kind, flow, changed: (last, _), .. } = self.goroutines[index];
            if flow != 0 {
                self.goroutines[index].flow = 0;
                let event = TrackEvent { flow_end: flow, ..TrackEvent::instant(name::CAN_RUN, 0) };
                let time = end.max(last + 1);
                self.goroutines[index].changed = (time, SHARED);
                // A thread that has not begun has no track.
                let track = if kind == Kind::Thread(0) { track::OUTSIDE } else { track::goroutine(id) };
                self.unordered.put(track, time, event);
                self.events += 1;
            }
        }
    }

    /// Brings what has come in no order into the order of time.
    pub(super) fn settle(&mut self) {
        self.user_tasks.settle(&mut self.tracks, &mut self.unordered);
        self.unordered.sort_into(SHARED, &mut self.shared);
        let mut samples = std::mem::take(&mut self.samples);
        samples.sort_by_key(|sample| sample.time);
        for Sample { time, thread_id, stack } in samples {
            let sample = proto::PerfSample {
                pid: std::process::id(),
                tid: thread_id,
                callstack_iid: stack,
                cpu_mode: USER,
            };
            self.sampled.sequence.put_sample(&mut self.sampled.body, SAMPLES, time, sample);
        }
    }

    /// Appends the packets of no P to `out`, before those of Ps. In a file that is cut after them, an end of a slice
    /// without its beginning does no harm, unlike a slice without its end.
    pub(super) fn put_shared(&mut self, tables: &Tables, program: &str, out: &mut Vec<u8>) {
        self.shared.close(SHARED, self.boot, tables, program, out);
    }

    /// Appends samples and counts to `out`, after the packets of Ps.
    pub(super) fn put_rest(&mut self, tables: &Tables, program: &str, out: &mut Vec<u8>) {
        self.sampled.close(SAMPLES, self.boot, tables, program, out);
        self.counted.close(COUNTS, self.boot, tables, program, out);
    }

    /// Takes all packets, for a generation whose names are looked up later. `heads` are those of Ps.
    pub(super) fn take(&mut self, heads: Vec<Head>) -> [Closed; 4] {
        [
            self.shared.take(SHARED),
            Closed::new(heads, &mut self.body),
            self.sampled.take(SAMPLES),
            self.counted.take(COUNTS),
        ]
    }
}

/// Returns the kernel's number of a thread; 0 if it is not the kernel's.
pub(super) fn kernel_number(thread: u64) -> u32 {
    thread.try_into().unwrap_or(0)
}

/// `Profiling.CpuMode.MODE_USER`.
const USER: u32 = 2;
