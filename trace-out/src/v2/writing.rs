//! The events of the schedule, as those of threads.

use crate::numbers::put_number;
use crate::schedule::{Event, OUTSIDE, Proc, Wire};

use super::definitions::Tables;
use super::event::{EventType as E, NO_THREAD, proc_status};
use super::outside;
use super::streams::{Holds, LAST_SEQUENCE, Shown, ShownGoroutine, Streams, Syscall};

/// The most bytes of a sample.
const SAMPLE: usize = 1 + 5 * 10;

impl Streams {
    /// Adds an event of the outside thread that needs a goroutine.
    pub(super) fn put_outside_goroutine<const N: usize>(&mut self, tick: u64, event: E, args: [u64; N]) {
        self.outside.needs_goroutine();
        self.put_outside(tick, event, args);
    }

    /// Writes an event that needs a goroutine which runs.
    pub(super) fn put_with_goroutine<const N: usize>(
        &mut self,
        proc: u32,
        tick: u64,
        event: E,
        args: [u64; N],
    ) {
        match self.has_running(proc) {
            true => self.append(proc, tick, event, args),
            false => self.put_outside_goroutine(tick, event, args),
        }
    }

    fn has_running(&self, proc: u32) -> bool {
        proc != OUTSIDE && matches!(self.streams[proc].holds, Holds::Running(_))
    }

    /// Returns the thread that has the events of a P.
    fn thread_of(&self, proc: u32) -> u64 {
        if proc == OUTSIDE { outside::THREAD } else { self.streams[proc].thread }
    }

    /// Writes an event that needs a P, and a goroutine that runs or none.
    #[inline]
    fn put_with_proc<const N: usize>(&mut self, proc: u32, tick: u64, event: E, args: [u64; N]) {
        match proc != OUTSIDE && !matches!(self.streams[proc].holds, Holds::InSyscall(..)) {
            true => self.append(proc, tick, event, args),
            false => self.put_outside(tick, event, args),
        }
    }

    /// Writes that the goroutine stops running.
    #[inline]
    fn leave<const N: usize>(&mut self, proc: u32, tick: u64, event: E, args: [u64; N]) {
        self_check!(self.has_running(proc));
        self.append(proc, tick, event, args);
        let stream = &mut self.streams[proc];
        if let Holds::Running(index) = std::mem::take(&mut stream.holds) {
            self.goroutines[index].cause = (tick, stream.thread);
        }
    }

    fn begin_syscall(&mut self, proc: u32, tick: u64, stack: u64) {
        if self.streams[proc].sequence >= LAST_SEQUENCE {
            self.streams[proc].sequence = 0;
            self.append(proc, tick, E::ProcStatus, [proc.into(), proc_status::RUNNING]);
        }
        let stream = &mut self.streams[proc];
        stream.sequence += 1;
        let sequence = stream.sequence;
        if let Holds::Running(index) = stream.holds {
            stream.holds = Holds::InSyscall(index, tick);
            self.goroutines[index].syscall = Syscall::On(proc);
        }
        self.append(proc, tick, E::GoSyscallBegin, [sequence, stack]);
    }

    /// Writes an event, and returns its tick.
    fn write(&mut self, proc: u32, tick: u64, event: Event<'_>) -> u64 {
        match event {
            Event::ProcStart { thread } => return self.start_proc(proc, tick, thread.number),
            Event::ProcStop => {
                let stream = &mut self.streams[proc];
                let is_in_syscall = matches!(stream.holds, Holds::InSyscall(..));
                stream.idle_since = (!is_in_syscall).then_some(tick);
                if stream.has_ended {
                    self.stop(proc);
                }
            }
            Event::Create { index, goroutine, start, stack, .. } => {
                // A thread in a system call creates nothing, but after a loss it may seem so.
                let is_outside = proc == OUTSIDE || matches!(self.streams[proc].holds, Holds::InSyscall(..));
                let cause = (tick, self.thread_of(if is_outside { OUTSIDE } else { proc }));
                *self.goroutines.entry(index) =
                    ShownGoroutine { id: goroutine, cause, ..ShownGoroutine::default() };
                self.put_with_proc(proc, tick, E::GoCreate, [goroutine, start.stack, stack]);
            }
            Event::Start { changed, label } => return self.start(proc, tick, changed, label),
            Event::Yield { text, stack } => self.leave(proc, tick, E::GoStop, [text, stack]),
            Event::Block { text, stack, .. } => self.leave(proc, tick, E::GoBlock, [text, stack]),
            Event::Unblock { changed, stack } => {
                let tick = self.after_cause(changed.index, self.thread_of(proc), tick);
                let args = [changed.goroutine, self.next(changed.index), stack];
                match proc == OUTSIDE {
                    true => self.put_outside(tick, E::GoUnblock, args),
                    false => self.append(proc, tick, E::GoUnblock, args),
                }
                return tick;
            }
            Event::SyscallBegin { stack } => self.begin_syscall(proc, tick, stack),
            Event::SyscallEnd { changed } => return self.end_syscall(tick, changed.index),
            Event::End => {
                self.leave(proc, tick, E::GoDestroy, []);
                self.streams[proc].has_ended = true;
            }
            Event::Collector(event) => self.put_collector(proc, tick, event),
            Event::HeapAlloc { bytes } => self.put_with_proc(proc, tick, E::HeapAlloc, [bytes]),
            Event::HeapGoal { bytes } => self.put_with_proc(proc, tick, E::HeapGoal, [bytes]),
            Event::TaskBegin { task, parent, name, stack } => {
                self.put_with_goroutine(proc, tick, E::UserTaskBegin, [task, parent, name, stack]);
            }
            Event::TaskEnd { task, stack } => {
                self.put_with_goroutine(proc, tick, E::UserTaskEnd, [task, stack]);
            }
            Event::RegionBegin { task, name, stack } => {
                self.append(proc, tick, E::UserRegionBegin, [task, name, stack]);
            }
            Event::RegionEnd { task, name } => {
                self.append(proc, tick, E::UserRegionEnd, [task, name, 0]);
            }
            Event::Log { task, category, stack, text, .. } => {
                self.put_with_goroutine(proc, tick, E::UserLog, [task, category, text, stack]);
            }
            Event::Status { index, goroutine, start, phase, is_assisting, .. } => {
                self.state(proc, tick, index, (goroutine, start.stack), (phase, is_assisting));
            }
        }
        tick
    }
}

impl Wire for Streams {
    type Lane = ();
    type Definitions = Tables;

    /// A trace begins with the states of the goroutines, which need no P.
    const STAND_IN_AHEAD: u64 = 0;
    const HAS_TEXTS: bool = true;
    /// A reader may begin with any generation.
    const HAS_LONG_STOPS: bool = false;
    const STOPS_END_ALONE: bool = false;
    const REGIONS_END_WITH_GOROUTINE: bool = true;
    /// For the profiles of Go 1.22 and 1.23, a wait lasts until the next event with a stack.
    const HAS_WAKER_ALWAYS: bool = true;

    /// If a thread was preempted between the beginning of a record and its look at the clock, the tick may be
    /// milliseconds after the next generation's beginning, and readers would move the events of all threads behind it.
    /// So it is brought back to the cut.
    #[inline]
    fn in_file(&self, tick: u64) -> u64 {
        self.scaled(tick).min(self.last)
    }

    fn may_state(&self) -> bool {
        self.generation == 1
    }

    #[inline]
    fn put(&mut self, index: u32, proc: &mut Proc<()>, tick: u64, event: Event<'_>) -> u64 {
        let mut tick = tick.max(self.begin);
        if index != OUTSIDE {
            let stream = self.streams.entry(index);
            tick = tick.max(stream.batch.last());
            if let Holds::AfterSyscall(_, since) = stream.holds {
                tick = tick.max(since);
                let may_continue = matches!(
                    event,
                    Event::Start { .. }
                        | Event::SyscallEnd { .. }
                        | Event::ProcStart { .. }
                        | Event::ProcStop
                );
                if !may_continue {
                    self.resolve(index);
                }
            }
        }
        let tick = self.write(index, tick, event);
        if index != OUTSIDE {
            proc.tick = tick;
        }
        tick
    }

    /// Leaves nothing on the P that may end when others use it already.
    fn give_back(&mut self, index: u32, proc: &mut Proc<()>) {
        if self.streams.get(index).is_some() {
            self.resolve(index);
            self.leave_in_syscall(index);
            proc.tick = proc.tick.max(self.streams[index].batch.last());
        }
    }

    fn put_sample(&mut self, index: u32, (tick, thread): (u64, u64), goroutine: u64, stack: u64) {
        let (thread, proc) = match self.streams.get(index) {
            _ if index == OUTSIDE => (NO_THREAD, u64::MAX),
            Some(stream) if stream.shown != Shown::Unknown => (stream.thread, index.into()),
            _ => (thread, index.into()),
        };
        self.samples.put(SAMPLE, |out| {
            out.push(E::CpuSample as u8);
            for number in [tick, thread, proc, goroutine, stack] {
                put_number(out, number);
            }
        });
        self.events += 1;
    }

    fn finish(&mut self) {}
}
