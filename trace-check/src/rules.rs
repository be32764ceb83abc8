//! The rules for events on a P and of a goroutine, once the events are in one order.
//!
//! These are the checks of Go's tools, in their words, and those that the tools lack although their viewers crash or
//! show errors without them.

use std::collections::{HashMap, HashSet};

use super::event::{EventType, NO_PROC};
use super::invalid::Violation;
use super::last_change::LastChange;
use super::transitions::State;
use rangemap::RangeInclusiveSet;

/// The largest P, and the Ps on which Go's tools draw timers, the network and the like.
const MAX_PROC: u64 = i32::MAX as u64;
const DRAWN: std::ops::RangeInclusive<u64> = 1_000_000..=1_000_005;

#[derive(Debug, Default)]
struct Proc {
    is_started: bool,
    current: u64,
    is_sweeping: bool,
    /// The goroutine that blocked in a system call since the P was started; 0 for none.
    in_syscall: u64,
}

#[derive(Debug)]
struct CheckedGoroutine {
    state: State,
    /// The tick of its creation.
    created: u64,
    is_in_syscall: bool,
    is_assisting: bool,
    /// Task and name of the open regions, the innermost last.
    regions: Vec<(u64, u64)>,
    /// The task of the region in which it was created: the viewer makes a region of it too. 0 for none.
    inherited_task: u64,
}

impl CheckedGoroutine {
    /// Returns the task that goroutines created by it inherit.
    fn task(&self) -> u64 {
        self.regions.last().map_or(self.inherited_task, |&(task, _)| task)
    }
}

/// The state of all live goroutines and Ps.
#[derive(Debug)]
pub(crate) struct Rules {
    version: u32,
    procs: HashMap<u64, Proc>,
    goroutines: HashMap<u64, CheckedGoroutine>,
    tasks: HashSet<u64>,
    /// Goroutines that a sample named before they were created.
    sampled_early: HashSet<u64>,
    created: RangeInclusiveSet<u64>,
    gc: LastChange,
    stw: LastChange,
    has_gomaxprocs: bool,
    /// A fault of the event that does not make the trace unreadable.
    finding: Option<Violation>,
}

macro_rules! refuse {
    ($($text:tt)*) => { return Err(Violation::refused(format!($($text)*))) };
}

impl Rules {
    pub(crate) fn new(version: u32) -> Self {
        Self {
            version,
            procs: HashMap::new(),
            goroutines: HashMap::new(),
            tasks: HashSet::new(),
            sampled_early: HashSet::new(),
            created: RangeInclusiveSet::new(),
            gc: LastChange::default(),
            stw: LastChange::default(),
            has_gomaxprocs: false,
            finding: None,
        }
    }

    /// Returns the goroutine that runs on the P; 0 for none.
    pub(crate) fn current(&self, p: u64) -> u64 {
        self.procs.get(&p).map_or(0, |proc| proc.current)
    }

    fn note(&mut self, violation: Violation) {
        self.finding.get_or_insert(violation);
    }

    fn state(&self, goroutine: u64) -> State {
        self.goroutines.get(&goroutine).map_or(State::Unknown, |goroutine| goroutine.state)
    }

    fn is(&mut self, goroutine: u64, state: State) {
        if let Some(goroutine) = self.goroutines.get_mut(&goroutine) {
            goroutine.state = state;
        }
    }

    /// Applies the next event. An error that is not a refusal leaves the same state as no error.
    pub(crate) fn event(
        &mut self,
        p: u64,
        tick: u64,
        event: EventType,
        args: &[u64],
    ) -> Result<(), Violation> {
        self.finding = None;
        if p != NO_PROC && p > MAX_PROC && event != EventType::CpuSample {
            refuse!("processor ID {p} is larger than maximum of {MAX_PROC}");
        }
        if DRAWN.contains(&p) {
            self.note(Violation::misread(format!(
                "p {p} is one that the viewer draws timers and the like on"
            )));
        }
        let name = event.name();
        let current = self.current(p);
        match event {
            EventType::Gomaxprocs => self.has_gomaxprocs = true,
            EventType::ProcStart | EventType::ProcStop => self.proc(p, event)?,
            EventType::GoCreate => self.create(current, tick, args)?,
            EventType::GoStart | EventType::GoStartLabel | EventType::GoStartLocal => {
                self.start(p, args[0])?
            }
            EventType::GoUnblock | EventType::GoUnblockLocal => self.unblock(args[0])?,
            EventType::GoSysExit | EventType::GoSysExitLocal => {
                let goroutine = if event == EventType::GoSysExit { args[0] } else { current };
                self.exit_syscall(goroutine)?;
            }
            EventType::GoWaiting | EventType::GoInSyscall => {
                if self.state(args[0]) != State::Runnable {
                    refuse!("g {} is not runnable before Ev{name}", args[0]);
                }
                if let Some(goroutine) = self.goroutines.get_mut(&args[0]) {
                    goroutine.state = State::Waiting;
                    goroutine.is_in_syscall = event == EventType::GoInSyscall;
                }
            }
            EventType::GoSysCall => {
                if current == 0 {
                    refuse!("g 0 did {name}");
                }
            }
            _ if event.leaves() => self.leave(p, current, event)?,
            EventType::UserTaskCreate => {
                if !self.tasks.insert(args[0]) {
                    refuse!("task id conflicts (id:{})", args[0]);
                }
                if args[0] == 0 {
                    self.note(Violation::crash("task 0 is created, which stands for none"));
                }
            }
            EventType::UserTaskEnd => {
                self.tasks.remove(&args[0]);
            }
            EventType::UserRegion => self.region(current, args)?,
            EventType::CpuSample => {
                if args[2] != 0 && !self.created.contains(&args[2]) {
                    self.sampled_early.insert(args[2]);
                }
                if self.goroutines.get(&args[2]).is_some_and(|goroutine| goroutine.created == tick) {
                    refuse!("g {} may already exist: its creation and a sample have one time", args[2]);
                }
            }
            EventType::FutileWakeup => refuse!("unexpected event type {}", event.number()),
            EventType::Batch | EventType::Frequency | EventType::Stack | EventType::String => {
                refuse!("unexpected event type {}", event.number())
            }
            _ => self.collector(p, current, tick, event, args)?,
        }
        self.finding.take().map_or(Ok(()), Err)
    }

    fn proc(&mut self, p: u64, event: EventType) -> Result<(), Violation> {
        let proc = self.procs.entry(p).or_default();
        match event {
            EventType::ProcStart if proc.is_started => refuse!("p {p} is running before start"),
            EventType::ProcStart => {}
            _ if !proc.is_started => refuse!("p {p} is not running before stop"),
            _ if proc.current != 0 => refuse!("p {p} is running a goroutine {} during stop", proc.current),
            _ => {}
        }
        proc.is_started = event == EventType::ProcStart;
        proc.in_syscall = 0;
        Ok(())
    }

    fn create(&mut self, current: u64, tick: u64, args: &[u64]) -> Result<(), Violation> {
        let [goroutine, start_stack, stack] = *args else { return Ok(()) };
        if goroutine == 0 || self.sampled_early.contains(&goroutine) || self.created.contains(&goroutine) {
            refuse!("g {goroutine} already exists");
        }
        self.created.insert(goroutine..=goroutine);
        if start_stack == 0 {
            let text = format!("invalid go create event: missing stack information for go id={goroutine}");
            self.note(Violation::crash(text));
        }
        if !self.has_gomaxprocs {
            let text = format!("g {goroutine} loses its name: it is created before the first Gomaxprocs");
            self.note(Violation::misread(text));
        }
        if i64::try_from(goroutine).is_err() {
            self.note(Violation::misread(format!("g {goroutine} is shown as a negative number")));
        }
        let inherited_task = self.goroutines.get(&current).map_or(0, CheckedGoroutine::task);
        if inherited_task != 0 && stack == 0 {
            let text =
                format!("g {goroutine} is created without a stack, in a region of task {inherited_task}");
            self.note(Violation::crash(text));
        }
        let new = CheckedGoroutine {
            state: State::Runnable,
            created: tick,
            is_in_syscall: false,
            is_assisting: false,
            regions: Vec::new(),
            inherited_task,
        };
        self.goroutines.insert(goroutine, new);
        Ok(())
    }

    fn start(&mut self, p: u64, goroutine: u64) -> Result<(), Violation> {
        if self.state(goroutine) != State::Runnable {
            refuse!("g {goroutine} is not runnable before start");
        }
        let proc = self.procs.entry(p).or_default();
        if proc.current != 0 {
            refuse!("p {p} is already running g {} while start g {goroutine}", proc.current);
        }
        let (is_started, in_syscall) = (proc.is_started, proc.in_syscall);
        proc.current = goroutine;
        self.is(goroutine, State::Running);
        if !is_started {
            let text = format!("p {p} runs g {goroutine} without ProcStart; the view by thread stops there");
            self.note(Violation::crash(text));
        }
        if in_syscall != 0 {
            let text = format!("p {p} runs g {goroutine} without ProcStop since g {in_syscall}'s GoSysBlock");
            self.note(Violation::crash(text));
        }
        Ok(())
    }

    fn unblock(&mut self, goroutine: u64) -> Result<(), Violation> {
        match self.goroutines.get_mut(&goroutine) {
            Some(target) if target.state == State::Waiting => {
                target.state = State::Runnable;
                if std::mem::take(&mut target.is_in_syscall) {
                    let text = format!("g {goroutine} is unblocked in a system call, which so never ends");
                    self.note(Violation::misread(text));
                }
                Ok(())
            }
            _ => refuse!("g {goroutine} is not waiting before unpark"),
        }
    }

    fn exit_syscall(&mut self, goroutine: u64) -> Result<(), Violation> {
        match self.goroutines.get_mut(&goroutine) {
            Some(target) if target.state == State::Waiting => {
                target.state = State::Runnable;
                if !std::mem::take(&mut target.is_in_syscall) {
                    let text = format!("g {goroutine} leaves a system call that it is not in");
                    self.note(Violation::crash(text));
                }
                Ok(())
            }
            _ => refuse!("g {goroutine} is not waiting during syscall exit"),
        }
    }

    /// Stops the goroutine that runs on the P.
    fn leave(&mut self, p: u64, current: u64, event: EventType) -> Result<(), Violation> {
        if current == 0 {
            refuse!("g 0 did {}", event.name());
        }
        let proc = self.procs.entry(p).or_default();
        proc.current = 0;
        if event == EventType::GoSysBlock {
            proc.in_syscall = current;
        }
        match event.transition() {
            Some(transition) => {
                self.is(current, transition.to);
                if let Some(goroutine) = self.goroutines.get_mut(&current) {
                    goroutine.is_in_syscall = event == EventType::GoSysBlock;
                }
            }
            None => drop(self.goroutines.remove(&current)),
        }
        Ok(())
    }

    fn region(&mut self, current: u64, args: &[u64]) -> Result<(), Violation> {
        let [task, mode, name, stack] = *args else { return Ok(()) };
        if mode > 1 {
            refuse!("invalid user region mode: {mode}");
        }
        let Some(goroutine) = self.goroutines.get_mut(&current) else {
            self.note(Violation::crash("UserRegion on a P that runs no goroutine"));
            return Ok(());
        };
        if mode == 0 {
            goroutine.regions.push((task, name));
            if stack == 0 {
                self.note(Violation::crash("a region begins without a stack"));
            }
            return Ok(());
        }
        match goroutine.regions.last() {
            Some(&(open_task, open_name)) if (open_task, open_name) != (task, name) => refuse!(
                "misuse of region in goroutine {current}: span end of task {task}, name {name} when the inner-most \
                 active span start event is of task {open_task}, name {open_name}"
            ),
            Some(_) => drop(goroutine.regions.pop()),
            // It was opened before the trace.
            None => goroutine.inherited_task = 0,
        }
        Ok(())
    }

    fn collector(
        &mut self,
        p: u64,
        current: u64,
        tick: u64,
        event: EventType,
        args: &[u64],
    ) -> Result<(), Violation> {
        match event {
            EventType::GcStart if self.gc.is_open => refuse!("previous GC is not ended before a new one"),
            EventType::GcStart => self.gc.set(true, p, tick, "GC start")?,
            EventType::GcDone if !self.gc.is_open => refuse!("bogus GC end"),
            EventType::GcDone => self.gc.set(false, p, tick, "GC end")?,
            EventType::StwStart if self.stw.is_open => refuse!("previous STW is not ended before a new one"),
            EventType::StwStart => {
                if self.version < 21 && args[0] > 1 {
                    refuse!("unknown STW kind {}", args[0]);
                }
                self.stw.set(true, p, tick, "STW start")?;
                self.needs_goroutine(current, event);
            }
            EventType::StwDone if !self.stw.is_open => refuse!("bogus STW end"),
            EventType::StwDone => {
                self.stw.set(false, p, tick, "STW end")?;
                self.needs_goroutine(current, event);
            }
            EventType::GcSweepStart | EventType::GcSweepDone => {
                let proc = self.procs.entry(p).or_default();
                let begins = event == EventType::GcSweepStart;
                if proc.is_sweeping == begins {
                    let text = "previous sweeping is not ended before a new one";
                    return Err(Violation::refused(if begins { text } else { "bogus sweeping end" }));
                }
                proc.is_sweeping = begins;
            }
            EventType::GcMarkAssistStart | EventType::GcMarkAssistDone => {
                self.needs_goroutine(current, event);
                let begins = event == EventType::GcMarkAssistStart;
                if let Some(goroutine) = self.goroutines.get_mut(&current) {
                    if begins && goroutine.is_assisting {
                        refuse!("previous mark assist is not ended before a new one");
                    }
                    goroutine.is_assisting = begins;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn needs_goroutine(&mut self, current: u64, event: EventType) {
        if current == 0 {
            let text = format!("{} on a P that runs no goroutine", event.name());
            self.note(Violation::crash(text));
        }
    }

    /// Ends the trace. Go 1.21 looks for the end of everything that is still open here without checking that there is
    /// one.
    pub(crate) fn finish(&self) -> Result<(), Violation> {
        let running = self.procs.iter().filter(|(_, proc)| proc.current != 0);
        if let Some((p, proc)) = running.min_by_key(|(p, _)| **p) {
            return Err(Violation::crash(format!("g {} still runs on p {p} at the end", proc.current)));
        }
        if self.gc.is_open {
            return Err(Violation::crash("a GC is not ended at the end"));
        }
        if self.stw.is_open {
            return Err(Violation::crash("an STW is not ended at the end"));
        }
        if let Some(p) = self.procs.iter().filter(|(_, proc)| proc.is_sweeping).map(|(p, _)| p).min() {
            return Err(Violation::crash(format!("sweeping on p {p} is not ended at the end")));
        }
        Ok(())
    }
}
