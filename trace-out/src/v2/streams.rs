//! The events of each thread.
//!
//! In this format an event says nothing of its goroutine and its P: readers follow, thread by thread, which P a thread
//! has and which goroutine runs on it. They order the threads' events by the sequence numbers of goroutines and Ps, and
//! use time only where these leave a choice.
//!
//! - A P is written as stopped only when it was idle for a while ([`IDLE`]): a thread that waits for
//!   some microseconds keeps its P, which saves two events for each wait.
//! - Some events need a P or a goroutine that runs. Where a lane has none, the event goes to the *outside* thread
//!   (`super::outside`), which always has a P, and a goroutine from the first event on that needs one. Its events come
//!   from all lanes, so they are sorted at the end. No event has an earlier tick than its causes; so the order of the
//!   ticks is one that readers accept.
//! - A thread in a system call keeps its P. A goroutine that was found in a system call has an unknown thread, and gets
//!   one that stands in for it.
//! - Sequence numbers count from 1 after each statement of a state. A goroutine whose numbers would take two bytes is
//!   stated to run again, which readers take for no change: so waits and wake-ups take five bytes at most where ids are
//!   small, however many there are.
//! - An effect on another thread is at least a tick later than its cause. Of the events of several threads at one tick,
//!   Go's reader may try all but the one for which the others wait, and then refuses the trace.
//! - A reader refuses some events if the thread is not ready for them yet, instead of waiting for other threads. So the
//!   state of a goroutine that has a thread is written on that thread.

use std::collections::HashMap;

use crate::dense::DenseTable;
use crate::schedule::{Changed, OUTSIDE, Phase};

use super::batch::{Batch, Items};
use super::clock::{IDLE, TICKS_PER_SECOND};
use super::event::{EventType as E, go_status, proc_status};
use super::outside::{self, Outside};

/// The threads of goroutines that were found in system calls, without their numbers.
const UNKNOWN_THREADS: u64 = 1 << 42;

/// The last sequence number of one byte, less one: a wake-up and a start follow each other.
pub(super) const LAST_SEQUENCE: u64 = 126;

/// What a reader knows of a P.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shown {
    /// Nothing yet.
    #[default]
    Unknown,
    Idle,
    Running,
}

/// The goroutine that a thread has, by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Holds {
    #[default]
    Nothing,
    Running(u32),
    /// Since this tick. The thread keeps its P.
    InSyscall(u32, u64),
    /// Its system call was over at this tick, but that is not written yet: the next event may be its start.
    AfterSyscall(u32, u64),
}

/// The events of a P, on the thread that has it.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) batch: Batch,
    /// The thread to which the P belongs.
    pub(super) owner: u64,
    /// The thread that has the P in the file, or had it last: its owner, or one that replaces it.
    pub(super) thread: u64,
    pub(super) shown: Shown,
    /// The tick since when the P is idle, if that is not written yet.
    pub(super) idle_since: Option<u64>,
    /// The sequence number of the P's last change in this generation.
    pub(super) sequence: u64,
    pub(super) holds: Holds,
    /// Whether its last goroutine has ended, and perhaps its thread.
    pub(super) has_ended: bool,
}

impl Stream {
    /// Whether this thread has the P.
    fn has(&self, thread: u64) -> bool {
        self.owner == thread && self.shown == Shown::Running
    }
}

/// Where a goroutine is in a system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Syscall {
    #[default]
    None,
    /// On the thread of this P.
    On(u32),
    /// On this thread, which has no P, and whose last event has this tick.
    WithoutProc(u64, u64),
}

/// Where an event is written.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// On the thread that has this P.
    Proc(u32),
    /// On this thread, which has no P.
    Thread(u64),
    Outside,
}

/// What a reader knows of a goroutine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ShownGoroutine {
    pub(super) id: u64,
    /// The sequence number of its last change in this generation.
    pub(super) sequence: u64,
    /// The tick of the event after which its next change comes, and the thread that has this event.
    pub(super) cause: (u64, u64),
    pub(super) syscall: Syscall,
}

/// The events of a generation, which are not in the file yet.
pub(super) struct Streams {
    pub(super) generation: u64,
    /// The tick at which the generation began.
    pub(super) begin: u64,
    /// The tick of the file before which all records of the generation were begun.
    pub(super) last: u64,
    /// Whether the status of a goroutine may have a stack that names the goroutine.
    pub(super) has_named_status: bool,
    /// The ticks of the file in one tick of the records, in units of 2⁻⁶⁴.
    pub(super) scale: u64,
    /// By P.
    pub(super) streams: DenseTable<Stream>,
    /// By index.
    pub(super) goroutines: DenseTable<ShownGoroutine>,
    pub(super) outside: Outside,
    /// Closed batches.
    pub(super) closed: Vec<u8>,
    pub(super) samples: Items,
    /// Which P has the thread of this number.
    pub(super) threads: HashMap<u64, u32>,
    /// The threads that have lost their P to another while their goroutine was in a system call, and those others.
    pub(super) replaced: HashMap<u64, u64>,
    pub(super) replacements: u64,
    /// The number of goroutines that can run at once, and whether it is written in this generation.
    pub(super) procs: u32,
    pub(super) has_procs: bool,
    /// The sequence number of the last event of a collection.
    pub(super) collection: u64,
    pub(super) events: u64,
}

impl Streams {
    pub(super) fn new(ticks_per_second: u64, procs: u32, has_named_status: bool) -> Self {
        Self {
            generation: 0,
            begin: 0,
            last: 0,
            has_named_status,
            scale: ((u128::from(TICKS_PER_SECOND) << 64) / u128::from(ticks_per_second))
                .try_into()
                .unwrap_or(u64::MAX),
            streams: DenseTable::new(),
            goroutines: DenseTable::new(),
            outside: Outside::default(),
            closed: Vec::new(),
            samples: Items::new(E::CpuSamples),
            threads: HashMap::new(),
            replaced: HashMap::new(),
            replacements: 0,
            procs,
            has_procs: false,
            collection: 0,
            events: 0,
        }
    }

    /// Returns the number of the generation.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the outside thread has a goroutine in this generation.
    pub(super) fn has_outside_goroutine(&self) -> bool {
        self.outside.has_goroutine()
    }

    /// Converts ticks of the clock to the file's units.
    #[inline]
    pub(super) fn scaled(&self, tick: u64) -> u64 {
        ((u128::from(tick) * u128::from(self.scale)) >> 64) as u64
    }

    /// Begins a generation, with records that were begun before `last`: shows which Ps run. The states of goroutines must
    /// follow.
    pub(super) fn begin(&mut self, begin: u64, last: u64) {
        self.generation += 1;
        (self.begin, self.last) = (begin, last.max(begin));
        self.has_procs = false;
        self.put_outside(begin, E::ProcStatus, [OUTSIDE.into(), proc_status::RUNNING]);
        for index in self.streams.indices() {
            let stream = &mut self.streams[index];
            stream.sequence = 0;
            let status = match (stream.shown, stream.holds) {
                (Shown::Unknown, _) => continue,
                (Shown::Idle, _) => {
                    self.put_outside(begin, E::ProcStatus, [index.into(), proc_status::IDLE]);
                    continue;
                }
                (Shown::Running, Holds::InSyscall(..)) => proc_status::SYSCALL,
                (Shown::Running, _) => proc_status::RUNNING,
            };
            self.append(index, begin, E::ProcStatus, [index.into(), status]);
        }
    }

    /// Ends the generation at `end`, and moves its events to the end of `out`. `outside` is the id of the stack that
    /// names the goroutine of the outside thread.
    pub(super) fn end(&mut self, end: u64, outside: u64, out: &mut Vec<u8>) {
        for index in self.streams.indices() {
            self.resolve(index);
            if self.streams[index].idle_since.is_some_and(|since| end.saturating_sub(since) > IDLE) {
                self.stop(index);
            }
            let stream = &mut self.streams[index];
            stream.batch.close(&mut self.closed, self.generation, stream.thread);
        }
        self.outside.close(&mut self.closed, self.generation, outside, self.has_named_status);
        let streams = &self.streams;
        self.threads.retain(|&thread, &mut proc| streams[proc].has(thread));
        out.append(&mut self.closed);
        self.samples.close(out, self.generation, self.begin);
    }

    #[inline]
    pub(super) fn append<const N: usize>(&mut self, index: u32, tick: u64, event: E, args: [u64; N]) {
        let stream = &mut self.streams[index];
        if !stream.batch.has_room() {
            stream.batch.close(&mut self.closed, self.generation, stream.thread);
        }
        stream.batch.put(tick, event, args);
        self.events += 1;
    }

    /// Adds an event of the outside thread.
    pub(super) fn put_outside<const N: usize>(&mut self, tick: u64, event: E, args: [u64; N]) {
        // The states at the beginning come first.
        self.outside.put(tick.max(self.begin), event, args);
        self.events += 1;
    }

    /// Returns the earliest tick from `tick` on at which the goroutine can change on a thread. The next change on
    /// another thread comes after that.
    pub(super) fn after_cause(&mut self, index: u32, thread: u64, tick: u64) -> u64 {
        let known = &mut self.goroutines[index];
        let (since, on) = known.cause;
        let tick = tick.max(since + u64::from(on != thread));
        known.cause = (tick, thread);
        tick
    }

    /// Returns the next sequence number of a goroutine.
    #[inline]
    pub(super) fn next(&mut self, index: u32) -> u64 {
        let known = &mut self.goroutines[index];
        known.sequence += 1;
        known.sequence
    }

    /// Starts a goroutine, and returns the tick of that.
    pub(super) fn start(&mut self, proc: u32, mut tick: u64, changed: Changed, label: u64) -> u64 {
        let Changed { index, goroutine, .. } = changed;
        let is_back = matches!(self.streams[proc].holds, Holds::AfterSyscall(back, _) if back == index);
        if is_back {
            self.goroutines[index].syscall = Syscall::None;
            self.append(proc, tick, E::GoSyscallEnd, []);
        } else {
            if let Syscall::On(elsewhere) = self.goroutines[index].syscall {
                self.resolve(elsewhere);
            }
            self.resolve(proc);
            self.replace_thread(proc, tick);
            let stream = &self.streams[proc];
            tick = self.after_cause(index, stream.thread, tick.max(stream.batch.last()));
            let sequence = self.next(index);
            self.append(proc, tick, E::GoStart, [goroutine, sequence]);
        }
        self.set_running(proc, tick, index);
        if label != 0 {
            self.append(proc, tick, E::GoLabel, [label]);
        }
        if self.goroutines[index].sequence >= LAST_SEQUENCE {
            self.goroutines[index].sequence = 0;
            self.append(proc, tick, E::GoStatus, [goroutine, 0, go_status::RUNNING]);
        }
        tick
    }

    /// Ends a goroutine's system call: at once where its thread has no P, else with the next event of its P. Returns
    /// its tick.
    pub(super) fn end_syscall(&mut self, tick: u64, index: u32) -> u64 {
        // The call's end may have been found by a thread whose clock is behind.
        match self.goroutines[index].syscall {
            Syscall::On(proc) => {
                let stream = &mut self.streams[proc];
                if matches!(stream.holds, Holds::InSyscall(of, _) if of == index) {
                    let tick = tick.max(stream.batch.last());
                    stream.holds = Holds::AfterSyscall(index, tick);
                    return tick;
                }
            }
            Syscall::WithoutProc(thread, last) => {
                let tick = tick.max(last);
                self.put_on_thread(thread, tick, E::GoSyscallEndBlocked, []);
                let known = &mut self.goroutines[index];
                (known.syscall, known.cause) = (Syscall::None, (tick, thread));
                return tick;
            }
            Syscall::None => {}
        }
        tick
    }

    /// Writes an event on a thread that has no P.
    fn put_on_thread<const N: usize>(&mut self, thread: u64, tick: u64, event: E, args: [u64; N]) {
        let mut batch = Batch::default();
        batch.put(tick.max(self.begin), event, args);
        batch.close(&mut self.closed, self.generation, thread);
        self.events += 1;
    }

    /// Notes that a goroutine runs on a P.
    #[inline]
    fn set_running(&mut self, proc: u32, tick: u64, index: u32) {
        let stream = &mut self.streams[proc];
        (stream.holds, stream.has_ended) = (Holds::Running(index), false);
        if !self.has_procs {
            // The event needs a goroutine that runs.
            self.has_procs = true;
            self.append(proc, tick, E::ProcsChange, [self.procs.into(), 0]);
        }
    }

    /// Writes the state of a goroutine, and whether it helps the collector, on the thread that has it.
    pub(super) fn state(
        &mut self,
        proc: u32,
        tick: u64,
        index: u32,
        (goroutine, start): (u64, u64),
        (phase, is_assisting): (Phase, bool),
    ) {
        let known = self.goroutines.entry(index);
        let is_new = known.id != goroutine;
        if is_new {
            *known = ShownGoroutine { id: goroutine, ..ShownGoroutine::default() };
        }
        known.sequence = 0;
        let status = match phase {
            Phase::Running => go_status::RUNNING,
            Phase::Syscall => go_status::SYSCALL,
            Phase::Runnable => go_status::RUNNABLE,
            Phase::Waiting => go_status::WAITING,
            Phase::Unknown => return,
        };
        let place = match (phase, known.syscall) {
            (Phase::Running, _) => Place::Proc(proc),
            (Phase::Syscall, Syscall::On(proc)) => Place::Proc(proc),
            (Phase::Syscall, Syscall::WithoutProc(thread, _)) => Place::Thread(thread),
            (Phase::Syscall, Syscall::None) => Place::Thread(UNKNOWN_THREADS + goroutine),
            _ => Place::Outside,
        };
        if let Place::Thread(thread) = place {
            known.syscall = Syscall::WithoutProc(thread, tick);
        }
        let thread = match place {
            Place::Proc(proc) => self.streams[proc].thread,
            Place::Thread(thread) => thread,
            // Go writes -1, in ten bytes; readers do not look at it.
            Place::Outside => 0,
        };
        known.cause = (tick, if matches!(place, Place::Outside) { outside::THREAD } else { thread });
        if self.has_named_status && start != 0 {
            self.put_at(place, tick, E::GoStatusStack, [goroutine, thread, status, start]);
        } else {
            self.put_at(place, tick, E::GoStatus, [goroutine, thread, status]);
        }
        if is_assisting {
            self.put_at(place, tick, E::GcMarkAssistActive, [goroutine]);
        }
        if let Place::Proc(proc) = place
            && phase == Phase::Running
        {
            self.set_running(proc, tick, index);
        }
    }

    fn put_at<const N: usize>(&mut self, place: Place, tick: u64, event: E, args: [u64; N]) {
        match place {
            Place::Proc(proc) => self.append(proc, tick, event, args),
            Place::Thread(thread) => self.put_on_thread(thread, tick, event, args),
            Place::Outside => self.put_outside(tick, event, args),
        }
    }
}
