//! What each event requires of its thread, its P and its goroutine, and how it changes them. Go: the functions
//! `advance…` of `ordering`.

use crate::event::EventType as E;
use crate::invalid::Violation;

use super::block_event;
use super::ordering::{
    At, Collector, Goroutine, NO_G, OUTSIDE_GOROUTINE, Ordering, Proc, ProcStatus, Status, Thread, refused,
};
use super::ranges::{Ranges, Span};
use super::specs::Type as T;

impl Ordering {
    /// Changes the state, and returns that of the thread after the event; `None` if the event is not ready.
    pub(super) fn change(
        &mut self,
        at: At,
        thread: Thread,
        event: T,
        args: [u64; 4],
    ) -> Result<Option<Thread>, Violation> {
        let now = match event {
            T::ProcsChange => {
                at.needs_goroutine()?;
                self.push(At { proc: None, goroutine: None, ..at }, E::Gomaxprocs, &args[..2]);
                thread
            }
            T::ProcStatus => self.proc_status(at, thread, args[0], args[1])?,
            T::ProcStart => {
                let is_ready = self.procs.get(&args[0]).is_some_and(|proc| {
                    proc.status == ProcStatus::Idle
                        && proc.generation == self.generation
                        && proc.sequence.wrapping_add(1) == args[1]
                });
                if !is_ready || thread.proc.is_some() {
                    return Ok(None);
                }
                let proc = self.procs.get_mut(&args[0]).expect("it is ready");
                (proc.status, proc.sequence) = (ProcStatus::Running, args[1]);
                self.push(At { proc: Some(args[0]), ..at }, E::ProcStart, &[at.thread]);
                Thread { proc: Some(args[0]), ..thread }
            }
            T::ProcStop => {
                let proc = at.proc.ok_or_else(|| refused("ProcStop for proc that doesn't exist"))?;
                self.proc(proc)?.status = ProcStatus::Idle;
                if let Some(running) = at.goroutine
                    && self.goroutines.get(&running).is_some_and(|running| running.status == Status::Running)
                {
                    return Err(Violation::misread(format!("P {proc} stops while goroutine {running} runs")));
                }
                self.push(at, E::ProcStop, &[]);
                Thread { proc: None, ..thread }
            }
            T::GoCreate => {
                at.needs_proc()?;
                if let Some(creator) = at.goroutine {
                    self.needs(creator, Status::Running)?;
                }
                let goroutine = args[0];
                if self.goroutines.contains_key(&goroutine) {
                    let text = format!("tried to create goroutine ({goroutine}) that already exists");
                    return Err(refused(text));
                }
                self.goroutines.insert(goroutine, Goroutine::new(Status::Runnable, self.generation, at.p()));
                if goroutine != OUTSIDE_GOROUTINE {
                    self.push(at, E::GoCreate, &args[..3]);
                }
                thread
            }
            T::GoStart => {
                if !self.is_ready(args[0], Status::Runnable, args[1]) {
                    return Ok(None);
                }
                at.needs_proc()?;
                if at.goroutine.is_some() {
                    return Err(refused("expected no goroutine but had one"));
                }
                self.goroutine(args[0])?.status = Status::Running;
                self.goroutine(args[0])?.sequence = args[1];
                self.push_start(at, args[0])?;
                Thread { goroutine: Some(args[0]), ..thread }
            }
            T::GoStop | T::GoBlock | T::GoDestroy => {
                let goroutine = at.needs_goroutine()?;
                self.needs(goroutine, Status::Running)?;
                match event {
                    T::GoDestroy => {
                        self.goroutines.remove(&goroutine);
                        self.push(at, E::GoEnd, &[]);
                    }
                    T::GoStop => {
                        self.goroutine(goroutine)?.status = Status::Runnable;
                        self.push_with_reason(at, E::GoSched, args[1], args[0]);
                    }
                    _ => {
                        self.goroutine(goroutine)?.status = Status::Waiting;
                        let block = block_event(self.interned.text(args[0]));
                        self.push_with_reason(at, block, args[1], args[0]);
                    }
                }
                Thread { goroutine: None, ..thread }
            }
            T::GoUnblock => {
                if !self.is_ready(args[0], Status::Waiting, args[1]) {
                    return Ok(None);
                }
                self.goroutine(args[0])?.status = Status::Runnable;
                self.goroutine(args[0])?.sequence = args[1];
                let (sequence, is_local) = self.goroutine(args[0])?.changed(at.p());
                match is_local {
                    true => self.push(at, E::GoUnblockLocal, &[args[0], args[2]]),
                    false => self.push(at, E::GoUnblock, &[args[0], sequence, args[2]]),
                }
                thread
            }
            T::GoSyscallBegin => {
                let goroutine = at.needs_goroutine()?;
                self.needs(goroutine, Status::Running)?;
                self.goroutine(goroutine)?.status = Status::Syscall;
                let generation = self.generation;
                let proc = self.proc(at.needs_proc()?)?;
                proc.status = ProcStatus::Syscall;
                if proc.generation != generation || proc.sequence.wrapping_add(1) != args[0] {
                    let text =
                        format!("failed to advance GoSyscallBegin: {} after {}", args[0], proc.sequence);
                    return Err(refused(text));
                }
                proc.sequence = args[0];
                self.push(at, E::GoSysCall, &[args[1]]);
                self.push(at, E::GoSysBlock, &[]);
                thread
            }
            T::GoSyscallEnd => {
                let goroutine = at.needs_goroutine()?;
                self.needs(goroutine, Status::Syscall)?;
                self.goroutine(goroutine)?.status = Status::Running;
                let proc = self.proc(at.needs_proc()?)?;
                if proc.status != ProcStatus::Syscall {
                    return Err(refused("expected proc in a system call"));
                }
                proc.status = ProcStatus::Running;
                self.push_exit(at, goroutine)?;
                self.push_start(at, goroutine)?;
                thread
            }
            T::GoSyscallEndBlocked => {
                if let Some(proc) = at.proc
                    && self.proc(proc)?.status == ProcStatus::Syscall
                {
                    return Ok(None);
                }
                let goroutine = at.goroutine.ok_or_else(|| refused(NO_G))?;
                self.needs(goroutine, Status::Syscall)?;
                self.goroutine(goroutine)?.status = Status::Runnable;
                self.push_exit(at, goroutine)?;
                Thread { goroutine: None, ..thread }
            }
            T::GoStatus | T::GoStatusStack => self.status(at, thread, args)?,
            T::StwBegin => {
                let goroutine = at.needs_goroutine()?;
                self.goroutine(goroutine)?.ranges.begin(Span::Stop(args[0]))?;
                let kind = u64::from(self.interned.text(args[0]) == "GC sweep termination");
                self.push(at, E::StwStart, &[kind]);
                thread
            }
            T::StwEnd => {
                let goroutine = at.needs_goroutine()?;
                self.goroutine(goroutine)?.ranges.end(Span::Stop(0))?;
                self.push(at, E::StwDone, &[]);
                thread
            }
            T::GcActive | T::GcBegin | T::GcEnd => {
                if !self.collect(at, event, args)? {
                    return Ok(None);
                }
                thread
            }
            T::GcSweepActive => {
                let is_first = self.is_first();
                let proc =
                    self.procs.get_mut(&args[0]).ok_or_else(|| refused("GCSweepActive for unknown proc"))?;
                proc.ranges.active(Span::Sweep, is_first)?;
                thread
            }
            T::GcSweepBegin => {
                self.proc(at.needs_proc()?)?.ranges.begin(Span::Sweep)?;
                self.push(at, E::GcSweepStart, &args[..1]);
                thread
            }
            T::GcSweepEnd => {
                self.proc(at.needs_proc()?)?.ranges.end(Span::Sweep)?;
                self.push(at, E::GcSweepDone, &args[..2]);
                thread
            }
            T::GcMarkAssistActive => {
                let is_first = self.is_first();
                self.goroutine(args[0])?.ranges.active(Span::Assist, is_first)?;
                thread
            }
            T::GcMarkAssistBegin => {
                let goroutine = at.needs_goroutine()?;
                self.goroutine(goroutine)?.ranges.begin(Span::Assist)?;
                self.push(at, E::GcMarkAssistStart, &args[..1]);
                thread
            }
            T::GcMarkAssistEnd => {
                let goroutine = at.needs_goroutine()?;
                self.goroutine(goroutine)?.ranges.end(Span::Assist)?;
                self.push(at, E::GcMarkAssistDone, &[]);
                thread
            }
            T::HeapAlloc | T::HeapGoal => {
                at.needs_proc()?;
                let of = if event == T::HeapAlloc { E::HeapAlloc } else { E::HeapGoal };
                self.push(at, of, &args[..1]);
                thread
            }
            T::GoLabel => {
                at.needs_goroutine()?;
                let start = thread.start.and_then(|start| self.events.get_mut(start));
                let Some(start) = start else {
                    return Err(Violation::misread("a label does not follow the start of its goroutine"));
                };
                let goroutine = start.args[0];
                let sequence = self.goroutines.get(&goroutine).map_or(0, |known| known.changes - 1);
                (start.event, start.args) = (E::GoStartLabel, [goroutine, sequence, args[0], 0]);
                thread
            }
            T::UserTaskBegin => {
                at.needs_goroutine()?;
                if !self.tasks.insert(args[0]) {
                    return Err(refused(format!("task ID conflict: {}", args[0])));
                }
                self.push(at, E::UserTaskCreate, &args);
                thread
            }
            T::UserTaskEnd => {
                at.needs_goroutine()?;
                self.tasks.remove(&args[0]);
                self.push(at, E::UserTaskEnd, &args[..2]);
                thread
            }
            T::UserRegionBegin => {
                let goroutine = at.needs_goroutine()?;
                self.goroutine(goroutine)?.regions.push((args[0], args[1]));
                self.push(at, E::UserRegion, &[args[0], 0, args[1], args[2]]);
                thread
            }
            T::UserRegionEnd => {
                let goroutine = at.needs_goroutine()?;
                let regions = &mut self.goroutine(goroutine)?.regions;
                if regions.pop().is_some_and(|open| open != (args[0], args[1])) {
                    return Err(refused(format!("misuse of region in goroutine {goroutine}")));
                }
                self.push(at, E::UserRegion, &[args[0], 1, args[1], args[2]]);
                thread
            }
            T::UserLog => {
                at.needs_goroutine()?;
                self.push(at, E::UserLog, &[args[0], args[1], args[3]]);
                self.events.last_mut().expect("just pushed").message = args[2] as usize;
                thread
            }
            T::ProcSteal | T::GoCreateSyscall | T::GoDestroySyscall => {
                return Err(Violation::misread(format!("{} is not written by us", event.spec().name)));
            }
        };
        Ok(Some(now))
    }

    fn proc_status(&mut self, at: At, thread: Thread, proc: u64, status: u64) -> Result<Thread, Violation> {
        let status = match status {
            1 => ProcStatus::Running,
            2 => ProcStatus::Idle,
            3 => ProcStatus::Syscall,
            _ => return Err(refused(format!("invalid status for proc {proc}: {status}"))),
        };
        let generation = self.generation;
        match self.procs.get_mut(&proc) {
            Some(known) if known.status != status => {
                let text =
                    format!("inconsistent status for proc {proc}: old {:?} vs. new {status:?}", known.status);
                return Err(refused(text));
            }
            Some(known) => (known.generation, known.sequence) = (generation, 0),
            None => {
                let ranges = Ranges::default();
                self.procs.insert(proc, Proc { status, generation, sequence: 0, ranges });
                if status != ProcStatus::Idle && proc != 0 {
                    self.push(At { proc: Some(proc), ..at }, E::ProcStart, &[at.thread]);
                }
            }
        }
        match status {
            ProcStatus::Idle => Ok(thread),
            _ if thread.proc.is_some_and(|bound| bound != proc) => {
                Err(Violation::misread(format!("thread {} has two Ps", at.thread)))
            }
            _ => Ok(Thread { proc: Some(proc), ..thread }),
        }
    }

    fn status(&mut self, at: At, thread: Thread, args: [u64; 4]) -> Result<Thread, Violation> {
        let [goroutine, of, status, start] = args;
        let status = match status {
            1 => Status::Runnable,
            2 => Status::Running,
            3 => Status::Syscall,
            4 => Status::Waiting,
            _ => return Err(refused(format!("invalid status for goroutine {goroutine}: {status}"))),
        };
        let generation = self.generation;
        let is_first = self.is_first();
        match self.goroutines.get_mut(&goroutine) {
            Some(known) if known.status != status => {
                let text = format!(
                    "inconsistent status for goroutine {goroutine}: {:?} vs. {status:?}",
                    known.status
                );
                return Err(refused(text));
            }
            Some(known) => (known.generation, known.sequence) = (generation, 0),
            None if !is_first => {
                let text = format!(
                    "found goroutine status for new goroutine after the first generation: {goroutine}"
                );
                return Err(refused(text));
            }
            None => {
                self.goroutines.insert(goroutine, Goroutine::new(status, generation, at.p()));
                if goroutine != OUTSIDE_GOROUTINE {
                    self.appear(At { goroutine: None, ..at }, goroutine, status, start)?;
                }
            }
        }
        match status {
            Status::Running => match thread.goroutine {
                Some(other) if other != goroutine => {
                    Err(Violation::misread(format!("thread {} has two goroutines", at.thread)))
                }
                _ => Ok(Thread { goroutine: Some(goroutine), ..thread }),
            },
            Status::Syscall if of != at.thread => {
                Err(Violation::misread("the status of a goroutine in a system call is on another thread"))
            }
            Status::Syscall if !is_first && thread.goroutine != Some(goroutine) => {
                Err(refused(format!("inconsistent thread for syscalling goroutine {goroutine}")))
            }
            Status::Syscall => Ok(Thread { goroutine: Some(goroutine), ..thread }),
            Status::Runnable | Status::Waiting => Ok(thread),
        }
    }

    /// Pushes the events that bring a new goroutine to its state.
    fn appear(&mut self, at: At, goroutine: u64, status: Status, start: u64) -> Result<(), Violation> {
        self.push(at, E::GoCreate, &[goroutine, start, 0]);
        if status == Status::Runnable {
            return Ok(());
        }
        self.push_start(at, goroutine)?;
        let running = At { goroutine: Some(goroutine), ..at };
        match status {
            Status::Waiting => self.push(running, E::GoBlock, &[0]),
            Status::Syscall => {
                self.push(running, E::GoSysCall, &[0]);
                self.push(running, E::GoSysBlock, &[]);
            }
            Status::Runnable | Status::Running => {}
        }
        Ok(())
    }

    fn collect(&mut self, at: At, event: T, args: [u64; 4]) -> Result<bool, Violation> {
        let (sequence, state) = self.collector;
        let is_next = args[0] == sequence.wrapping_add(1);
        match (event, state) {
            (T::GcActive, Collector::Undetermined) if self.is_first() => {}
            (T::GcActive, _) if self.is_first() => {
                return Err(refused("GCActive in the first generation isn't first GC event"));
            }
            (T::GcBegin, Collector::Undetermined) => {}
            _ if !is_next => return Ok(false),
            (T::GcActive | T::GcEnd, Collector::Running) | (T::GcBegin, Collector::Idle) => {}
            _ => return Err(refused(format!("{} while the collector is {state:?}", event.spec().name))),
        }
        at.needs_goroutine()?;
        let next = if event == T::GcEnd { Collector::Idle } else { Collector::Running };
        self.collector = (args[0], next);
        match event {
            T::GcBegin => {
                self.push(at, E::GcStart, &[self.collections, args[1]]);
                self.collections += 1;
            }
            T::GcEnd => self.push(at, E::GcDone, &[]),
            _ => {}
        }
        Ok(true)
    }
}
