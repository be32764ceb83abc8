//! A parsed trace.

use std::collections::HashMap;
use std::time::Duration;

use super::event::{ArgumentKind, EventType};
use super::invalid::Invalid;
use super::parse::{RawEvent, RawFrame};

/// A trace: its events in one order, with their stacks and names.
#[derive(Debug)]
pub struct Parsed {
    pub(super) ticks_per_second: u64,
    /// The tick at which each generation begins.
    pub(super) generations: Vec<u64>,
    pub(super) events: Vec<RawEvent>,
    pub(super) strings: HashMap<u64, String>,
    pub(super) stacks: HashMap<u64, Vec<RawFrame>>,
    pub(super) messages: Vec<String>,
    pub(super) findings: Vec<Invalid>,
}

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame<'a> {
    /// The program counter: in a trace, a number that identifies the frame.
    pub pc: u64,
    /// The function; empty if unknown.
    pub function: &'a str,
    /// The file; empty if unknown.
    pub file: &'a str,
    /// The line, from 1; 0 if unknown.
    pub line: u64,
}

impl Parsed {
    /// Returns the frequency of the clock.
    pub fn ticks_per_second(&self) -> u64 {
        self.ticks_per_second
    }

    /// Returns the ticks at which the complete generations begin. The first format has one generation, at 0.
    pub fn generations(&self) -> &[u64] {
        &self.generations
    }

    /// Returns the events in the order of Go's tools: by time, and each after the events on which it depends.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = Event<'_>> + ExactSizeIterator + Clone {
        self.events.iter().map(|raw| Event { trace: self, raw })
    }

    /// Returns the events of one type.
    pub fn events_of(&self, event_type: EventType) -> impl DoubleEndedIterator<Item = Event<'_>> + Clone {
        self.events().filter(move |event| event.event_type() == event_type)
    }

    /// Returns the number of events of a type.
    pub fn count(&self, event_type: EventType) -> usize {
        self.events_of(event_type).count()
    }

    /// Returns the time from the first event to the last.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.events().next_back().map_or(0, |event| event.time()))
    }

    /// Returns every goroutine with its name, in the order of creation. The name is the function in which it starts:
    /// the first of its start stack; empty if it has none.
    pub fn goroutines(&self) -> impl Iterator<Item = (u64, &str)> {
        self.events_of(EventType::GoCreate).map(|event| {
            let name = event.start_stack().next().map_or("", |frame| frame.function);
            (event.raw.args[0], name)
        })
    }

    /// Returns the name of a goroutine.
    pub fn goroutine_name(&self, goroutine: u64) -> Option<&str> {
        self.goroutines().find(|&(id, _)| id == goroutine).map(|(_, name)| name)
    }

    /// Returns the goroutines of this name, in the order of creation.
    pub fn goroutines_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u64> + 'a {
        self.goroutines().filter(move |&(_, of)| of == name).map(|(id, _)| id)
    }

    /// Returns all strings with their ids, in no order.
    pub fn strings(&self) -> impl Iterator<Item = (u64, &str)> {
        self.strings.iter().map(|(&id, text)| (id, text.as_str()))
    }

    /// Returns the string with this id; empty for 0 and for ids that are not defined.
    pub fn string(&self, id: u64) -> &str {
        self.strings.get(&id).map_or("", String::as_str)
    }

    /// Returns the ids of all stacks, in no order.
    pub fn stacks(&self) -> impl Iterator<Item = u64> + '_ {
        self.stacks.keys().copied()
    }

    /// Returns the stack with this id, leaf first; empty if there is none.
    pub fn stack(&self, id: u64) -> impl DoubleEndedIterator<Item = Frame<'_>> + ExactSizeIterator + Clone {
        self.stacks.get(&id).map_or(&[][..], Vec::as_slice).iter().map(|frame| Frame {
            pc: frame.pc,
            function: self.string(frame.function),
            file: self.string(frame.file),
            line: frame.line,
        })
    }

    /// Returns the faults that do not keep Go's tools from opening the trace:
    /// [`Consequence::Crash`](super::invalid::Consequence::Crash) and
    /// [`Misread`](super::invalid::Consequence::Misread). At most the first hundred.
    pub fn findings(&self) -> &[Invalid] {
        &self.findings
    }
}

/// An event of a trace.
#[derive(Clone, Copy)]
pub struct Event<'a> {
    trace: &'a Parsed,
    raw: &'a RawEvent,
}

impl<'a> Event<'a> {
    /// Returns the nanoseconds since the first event.
    pub fn time(&self) -> u64 {
        let first = self.trace.events.first().map_or(0, |first| first.tick);
        let nanos_per_tick = 1e9 / self.trace.ticks_per_second as f64;
        (self.raw.tick.wrapping_sub(first) as f64 * nanos_per_tick) as u64
    }

    /// Returns the time in ticks of the trace's clock.
    pub fn tick(&self) -> u64 {
        self.raw.tick as u64
    }

    /// Returns the type. The local forms are kept, which Go's tools show as the others.
    pub fn event_type(&self) -> EventType {
        self.raw.event
    }

    /// Returns the P; [`NO_PROC`](super::event::NO_PROC) for none.
    pub fn p(&self) -> u64 {
        self.raw.p
    }

    /// Returns the goroutine that ran on the P; 0 for none. For `GoStart…`, `GoSysExit`, `GoWaiting` and `GoInSyscall`
    /// it is the goroutine that they name.
    pub fn g(&self) -> u64 {
        self.raw.g
    }

    /// Returns the arguments, without the time, as the table of [`EventType`] lists them.
    pub fn args(&self) -> &'a [u64] {
        self.raw.args()
    }

    /// Returns the argument of this name.
    pub fn argument(&self, name: &str) -> Option<u64> {
        let at = self.raw.event.arguments().iter().position(|argument| argument.name == name)?;
        Some(self.raw.args[at])
    }

    /// Returns the goroutine that the event names, if any.
    pub fn target(&self) -> Option<u64> {
        self.raw.argument(ArgumentKind::Goroutine)
    }

    /// Returns the name of a task or region, the category of a log, or the label of a start; empty if it has none.
    pub fn name(&self) -> &'a str {
        self.raw.argument(ArgumentKind::String).map_or("", |id| self.trace.string(id))
    }

    /// Returns the message of a log; empty for other events.
    pub fn message(&self) -> &'a str {
        match self.raw.event {
            // In the second format messages are strings.
            EventType::UserLog if self.trace.messages.is_empty() => {
                self.trace.string(self.raw.message as u64)
            }
            EventType::UserLog => &self.trace.messages[self.raw.message],
            _ => "",
        }
    }

    /// Returns the words for which a goroutine stops, which only the second format has; else empty.
    pub fn reason(&self) -> &'a str {
        // The reader of the second format puts it behind the arguments.
        if self.raw.event.leaves() { self.trace.string(self.raw.args[1]) } else { "" }
    }

    /// Returns the event's stack, leaf first; empty if there is none.
    pub fn stack(&self) -> impl DoubleEndedIterator<Item = Frame<'a>> + ExactSizeIterator + Clone + use<'a> {
        self.trace.stack(self.raw.argument(ArgumentKind::Stack).unwrap_or(0))
    }

    /// Returns the functions of that stack, leaf first.
    pub fn functions(&self) -> Vec<&'a str> {
        self.stack().map(|frame| frame.function).collect()
    }

    /// Returns the start stack of a new goroutine.
    pub fn start_stack(
        &self,
    ) -> impl DoubleEndedIterator<Item = Frame<'a>> + ExactSizeIterator + Clone + use<'a> {
        self.trace.stack(self.raw.argument(ArgumentKind::StartStack).unwrap_or(0))
    }

    /// Returns the position of its record in the file, in bytes.
    pub fn offset(&self) -> usize {
        self.raw.offset
    }
}

impl std::fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} p={} g={}", self.time(), self.raw.event.name(), self.raw.p as i64, self.raw.g)?;
        for (argument, value) in self.raw.event.arguments().iter().zip(self.args()) {
            write!(f, " {}={value}", argument.name)?;
        }
        for (label, text) in [("name", self.name()), ("message", self.message())] {
            if !text.is_empty() {
                write!(f, " {label}={text:?}")?;
            }
        }
        Ok(())
    }
}
