//! Puts the events of all threads into one order, and follows the state of each goroutine, P and thread in it. Go:
//! `Reader.ReadEvent` and `ordering`.
//!
//! The oldest event is taken if it is ready, otherwise the next one that is. An event that carries a sequence number is
//! ready when its goroutine or P is there; every other one must be acceptable when it is the oldest.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::event::{EventType as E, MAX_ARGUMENTS, NO_PROC};
use crate::invalid::{Invalid, Violation};
use crate::parse::RawEvent;

use super::causes::Causes;
use super::cursor::{Cursor, Timed};
use super::generation::{Generation, Sample};
use super::interned::{Ids, Interned};
use super::ranges::Ranges;
use super::specs::{Kind, Type as T};

/// The goroutine that our traces use outside of threads.
pub(super) const OUTSIDE_GOROUTINE: u64 = 1 << 41;

/// The goroutine of no thread, for the events of the first format.
const NO_GOROUTINE: u64 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Runnable,
    Running,
    Syscall,
    Waiting,
}

#[derive(Debug)]
pub(super) struct Goroutine {
    pub(super) status: Status,
    pub(super) generation: u64,
    pub(super) sequence: u64,
    pub(super) regions: Vec<(u64, u64)>,
    pub(super) ranges: Ranges,
    /// The sequence number of its next change in the first format, and the P of the last one.
    pub(super) changes: u64,
    pub(super) last_proc: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcStatus {
    Running,
    Idle,
    Syscall,
}

#[derive(Debug)]
pub(super) struct Proc {
    pub(super) status: ProcStatus,
    pub(super) generation: u64,
    pub(super) sequence: u64,
    pub(super) ranges: Ranges,
}

/// A thread: the P and the goroutine that it has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Thread {
    pub(super) proc: Option<u64>,
    pub(super) goroutine: Option<u64>,
    /// The index of the start of its goroutine, if no event was written since.
    pub(super) start: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collector {
    Undetermined,
    Idle,
    Running,
}

pub(super) struct Ordering {
    pub(super) goroutines: HashMap<u64, Goroutine>,
    pub(super) procs: HashMap<u64, Proc>,
    pub(super) threads: HashMap<u64, Thread>,
    pub(super) tasks: BTreeSet<u64>,
    pub(super) collector: (u64, Collector),
    pub(super) collections: u64,
    pub(super) first: Option<u64>,
    pub(super) ids: Ids,
    /// The number of the generation.
    pub(super) generation: u64,
    /// The tick of the last event.
    pub(super) last_tick: u64,
    /// The tick of the last event of the generation. Some events of the one before may be younger than its end, by the
    /// clocks of two cores.
    pub(super) last_in_generation: u64,
    pub(super) interned: Interned,
    causes: Causes,
    pub(super) events: Vec<RawEvent>,
    pub(super) findings: Vec<Invalid>,
}

/// The event at hand.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) thread: u64,
    pub(super) proc: Option<u64>,
    pub(super) goroutine: Option<u64>,
    pub(super) tick: u64,
    pub(super) offset: usize,
}

pub(super) fn refused(text: impl Into<String>) -> Violation {
    Violation::refused(text)
}

impl Ordering {
    pub(super) fn new() -> Self {
        Self {
            goroutines: HashMap::new(),
            procs: HashMap::new(),
            threads: HashMap::new(),
            tasks: BTreeSet::new(),
            collector: (0, Collector::Undetermined),
            collections: 0,
            first: None,
            ids: Ids::default(),
            generation: 0,
            last_tick: 0,
            last_in_generation: 0,
            interned: Interned::default(),
            causes: Causes::default(),
            events: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// Reads all events of a generation.
    pub(super) fn generation(&mut self, generation: Generation<'_>) -> Result<(), Invalid> {
        self.ids = self.interned.ids(&generation);
        self.generation = generation.number;
        self.first.get_or_insert(generation.number);
        self.last_in_generation = 0;
        self.causes = Causes::default();
        self.findings.extend(generation.findings);
        let mut samples = generation.samples.into_iter().peekable();
        let mut cursors = Vec::new();
        // The threads' next events, by time.
        let mut heads: BTreeMap<(u64, usize), Timed> = BTreeMap::new();
        for (thread, batches) in generation.threads {
            let mut cursor = Cursor::new(thread, batches);
            if let Some(event) = cursor.next()? {
                heads.insert((event.tick, cursors.len()), event);
            }
            cursors.push(cursor);
        }
        while let Some((&(tick, _), _)) = heads.first_key_value() {
            while let Some(sample) = samples.next_if(|sample| sample.values[0] < tick) {
                self.sample(sample)?;
            }
            let mut taken = None;
            for (&key, event) in &heads {
                let thread = cursors[key.1].thread;
                if self.advance(thread, event).map_err(|violation| violation.at(event.offset))? {
                    taken = Some(key);
                    break;
                }
            }
            let Some(key) = taken else {
                let stuck: Vec<String> = heads
                    .iter()
                    .take(8)
                    .map(|(key, event)| self.describe(cursors[key.1].thread, event))
                    .collect();
                let text = format!("broken trace: failed to advance: {}", stuck.join("; "));
                return Err(refused(text).into());
            };
            heads.remove(&key);
            if let Some(next) = cursors[key.1].next()? {
                heads.insert((next.tick, key.1), next);
            }
        }
        samples.try_for_each(|sample| self.sample(sample))
    }

    fn describe(&self, thread: u64, event: &Timed) -> String {
        let of = match event.event {
            T::GoStart | T::GoUnblock => format!("{:?}", self.goroutines.get(&event.args[0])),
            T::ProcStart => format!("{:?}", self.procs.get(&event.args[0])),
            _ => String::new(),
        };
        let name = event.event.spec().name;
        format!("M {thread} {name} {:?} at {} {of}", event.args, event.tick)
    }

    fn sample(&mut self, sample: Sample) -> Result<(), Invalid> {
        let [tick, _, proc, goroutine, stack] = sample.values;
        let Some(stack) = self.ids.stack(stack) else {
            return Err(
                refused(format!("found invalid stack ID {stack} for event CPUSample")).at(sample.offset)
            );
        };
        let proc = if proc == 0 { NO_PROC } else { proc };
        self.last_tick = self.last_tick.max(tick);
        self.events.push(RawEvent {
            event: E::CpuSample,
            p: proc,
            g: shown(goroutine),
            tick: self.last_tick as i64,
            args: [tick, proc, shown(goroutine), stack],
            message: 0,
            offset: sample.offset,
        });
        Ok(())
    }

    /// Takes an event, or returns `false` if it is not ready.
    fn advance(&mut self, thread: u64, event: &Timed) -> Result<bool, Violation> {
        let name = event.event.spec().name;
        let known = *self.threads.entry(thread).or_default();
        let at = At {
            thread,
            proc: known.proc,
            goroutine: known.goroutine,
            tick: event.tick,
            offset: event.offset,
        };
        let mut args = event.args;
        for (arg, kind) in args.iter_mut().zip(event.event.spec().arguments) {
            let (id, what) = match kind {
                Kind::Number => continue,
                Kind::String => (self.ids.string(*arg), "string"),
                Kind::Stack => (self.ids.stack(*arg), "stack"),
            };
            *arg = id.ok_or_else(|| refused(format!("found invalid {what} ID {arg} for event {name}")))?;
        }
        let count = self.events.len();
        let Some(now) = self.change(at, known, event.event, args)? else { return Ok(false) };
        let is_label = matches!(event.event, T::GoStart | T::ProcsChange);
        let start = match event.event {
            T::GoStart => Some(count),
            _ => now.start.filter(|_| is_label),
        };
        self.threads.insert(thread, Thread { start, ..now });
        let is_tied = self.causes.is_tied(at, event.event, args);
        if event.tick < self.last_in_generation {
            let late = self.last_in_generation - event.tick;
            let text = format!("{name} of thread {thread} is {late} ticks older than what comes before it");
            self.findings.push(Violation::misread(text).at(event.offset));
        } else if is_tied {
            let text = format!("{name} of thread {thread} is not later than the event for which it waits");
            self.findings.push(Violation::misread(text).at(event.offset));
        }
        self.last_in_generation = event.tick.max(self.last_in_generation);
        self.last_tick = event.tick.max(self.last_tick);
        Ok(true)
    }

    pub(super) fn is_first(&self) -> bool {
        self.first == Some(self.generation)
    }

    pub(super) fn goroutine(&mut self, goroutine: u64) -> Result<&mut Goroutine, Violation> {
        let unknown = || refused(format!("event for goroutine ({goroutine}) that doesn't exist"));
        self.goroutines.get_mut(&goroutine).ok_or_else(unknown)
    }

    pub(super) fn proc(&mut self, proc: u64) -> Result<&mut Proc, Violation> {
        self.procs.get_mut(&proc).ok_or_else(|| refused(format!("uninitialized proc {proc} found")))
    }

    pub(super) fn needs(&mut self, goroutine: u64, status: Status) -> Result<(), Violation> {
        match self.goroutine(goroutine)?.status == status {
            true => Ok(()),
            false => Err(refused(format!("event for goroutine {goroutine} that's not {status:?}"))),
        }
    }

    /// Whether a goroutine is in this state, just before the change with this number.
    pub(super) fn is_ready(&self, goroutine: u64, status: Status, sequence: u64) -> bool {
        self.goroutines.get(&goroutine).is_some_and(|goroutine| {
            goroutine.status == status
                && goroutine.generation == self.generation
                && goroutine.sequence.wrapping_add(1) == sequence
        })
    }

    pub(super) fn push(&mut self, at: At, event: E, args: &[u64]) {
        let mut all = [0; MAX_ARGUMENTS];
        all[..args.len()].copy_from_slice(args);
        let g = match event.happens_on_argument() {
            true => args[0],
            false => at.goroutine.map_or(NO_GOROUTINE, shown),
        };
        let tick = at.tick.max(self.last_tick) as i64;
        self.events.push(RawEvent { event, p: at.p(), g, tick, args: all, message: 0, offset: at.offset });
    }

    /// Pushes the stop of a goroutine; the id of the reason follows its arguments.
    pub(super) fn push_with_reason(&mut self, at: At, event: E, stack: u64, reason: u64) {
        self.push(at, event, &[stack]);
        self.events.last_mut().expect("just pushed").args[1] = reason;
    }

    pub(super) fn push_start(&mut self, at: At, goroutine: u64) -> Result<(), Violation> {
        let (sequence, is_local) = self.goroutine(goroutine)?.changed(at.p());
        match (goroutine, is_local) {
            (OUTSIDE_GOROUTINE, _) => {}
            (_, true) => self.push(at, E::GoStartLocal, &[goroutine]),
            (_, false) => self.push(at, E::GoStart, &[goroutine, sequence]),
        }
        Ok(())
    }

    pub(super) fn push_exit(&mut self, at: At, goroutine: u64) -> Result<(), Violation> {
        let (sequence, _) = self.goroutine(goroutine)?.changed(at.p());
        self.push(At { goroutine: None, ..at }, E::GoSysExit, &[goroutine, sequence, 0]);
        Ok(())
    }
}

pub(super) const NO_G: &str = "expected a goroutine but didn't have one";

impl At {
    pub(super) fn needs_proc(self) -> Result<u64, Violation> {
        self.proc.ok_or_else(|| refused("expected a proc but didn't have one"))
    }

    pub(super) fn needs_goroutine(self) -> Result<u64, Violation> {
        self.needs_proc()?;
        self.goroutine.ok_or_else(|| refused(NO_G))
    }

    /// Returns the P that the first format would show.
    pub(super) fn p(self) -> u64 {
        self.proc.filter(|&proc| proc != 0).unwrap_or(NO_PROC)
    }
}

impl Goroutine {
    pub(super) fn new(status: Status, generation: u64, last_proc: u64) -> Self {
        Self {
            status,
            generation,
            sequence: 0,
            regions: Vec::new(),
            ranges: Ranges::default(),
            changes: 1,
            last_proc,
        }
    }

    /// Counts a change; returns its number in the first format, and whether the last one was on the same P.
    pub(super) fn changed(&mut self, proc: u64) -> (u64, bool) {
        let is_local = self.last_proc == proc;
        self.last_proc = proc;
        self.changes += 1;
        (self.changes - 1, is_local)
    }
}

fn shown(goroutine: u64) -> u64 {
    if goroutine == OUTSIDE_GOROUTINE { NO_GOROUTINE } else { goroutine }
}
