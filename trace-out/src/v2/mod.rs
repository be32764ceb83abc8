//! The second trace format, which Go has written since 1.22.
//!
//! A file is a sequence of generations. Each has its own strings, stacks and clock, and shows at its beginning the
//! state of every goroutine that lives; so a reader may begin with any of them, and a file that was cut keeps the
//! complete ones. That requires the names of functions at the end of each generation: names that were found once are
//! kept, so that later generations open no file.

mod batch;
mod clock;
mod collector;
mod definitions;
mod event;
mod outside;
mod streams;
#[cfg(test)]
mod tests;
mod threads;
mod unnamed;
mod writing;

use rtprof_symbols::view::View;
use rtprof_tracer::generation::{Generation, Tables};

use super::order::Order;
use super::schedule::{self, Names, Schedule, Writing};
use crate::encode::{Clock, Counts, Encode};
use batch::put_clock;
use clock::Snapshot;
use event::EventType;
use streams::Streams;
pub(crate) use unnamed::UnnamedGeneration;

/// The version of Go that a file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Read by Go 1.22 and later.
    Go122,
    /// Read by Go 1.26 and later. A generation has a snapshot of the clocks and a mark at its end, and goroutines that
    /// lived before the trace have names.
    Go126,
}

impl Version {
    pub(crate) fn header(self) -> &'static [u8; 16] {
        match self {
            Self::Go122 => b"go 1.22 trace\0\0\0",
            Self::Go126 => b"go 1.26 trace\0\0\0",
        }
    }
}

/// Encoder of the second trace format.
///
/// Memory: proportional to the live goroutines and lanes, and to the strings, stacks and events of one generation.
pub(crate) struct V2 {
    version: Version,
    order: Order,
    schedule: Schedule<Streams>,
    /// The ticks of the file at which the current generation begins and ends.
    begin: u64,
    end: u64,
    unnamed_addresses: u64,
    view: View,
}

impl V2 {
    /// `procs` is the number of goroutines that can run at once. Go: `GOMAXPROCS`.
    pub(crate) fn new(version: Version, clock: Clock, procs: u32, view: View) -> Self {
        let streams = Streams::new(clock.ticks_per_second, procs, version == Version::Go126);
        let start = streams.scaled(clock.start).max(1);
        Self {
            version,
            order: Order::new(),
            schedule: Schedule::new(start, streams),
            begin: start,
            end: start,
            unnamed_addresses: 0,
            view,
        }
    }
}

impl Encode for V2 {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.version.header());
    }

    fn generation(&mut self, generation: &Generation<'_>, tables: &dyn Tables, _out: &mut Vec<u8>) {
        self.begin = self.schedule.procs.wire.scaled(generation.begin);
        self.end = self.schedule.procs.wire.scaled(generation.end);
        self.schedule.names.forget_ids();
        let last = self.schedule.procs.wire.scaled(generation.closed);
        self.schedule.procs.wire.begin(self.begin, last);
        self.schedule.begin_part(self.begin, tables);
        let mut writing = Writing::new(&mut self.schedule, tables, generation, self.view);
        self.order.generation(generation, &mut writing);
        self.schedule.end_part(self.end);
    }

    fn end_generation(&mut self, tables: &dyn Tables, out: &mut Vec<u8>) {
        self.put_events(out);
        let number = self.schedule.procs.wire.generation();
        let names = &mut self.schedule.names;
        let unnamed = put_names(out, (self.version, number, self.begin), names, tables, self.view);
        self.unnamed_addresses = self.unnamed_addresses.max(unnamed);
    }

    /// Every generation is complete.
    fn end(&mut self, _tick: u64, _tables: &dyn Tables, _out: &mut Vec<u8>) {}

    fn counts(&self) -> Counts {
        Counts {
            events: self.schedule.procs.wire.events,
            order: self.order.counts(),
            unmatched: self.schedule.unmatched,
            unnamed_addresses: self.unnamed_addresses,
        }
    }
}

impl V2 {
    /// Ends a generation whose names are looked up when it is written. Instead of
    /// [`end_generation`](Encode::end_generation).
    pub(crate) fn end_part(&mut self) -> UnnamedGeneration {
        let mut events = Vec::new();
        self.put_events(&mut events);
        let number = self.schedule.procs.wire.generation();
        UnnamedGeneration::new((self.version, number, self.begin), events, self.schedule.names.take_part())
    }

    /// Appends the clock and the events of a generation.
    fn put_events(&mut self, out: &mut Vec<u8>) {
        let has_outside = self.schedule.procs.wire.has_outside_goroutine();
        let outside = if has_outside { self.schedule.start_outside() } else { 0 };
        let number = self.schedule.procs.wire.generation();
        let snapshot = match self.version {
            Version::Go122 => None,
            Version::Go126 => {
                Some(Snapshot::at(self.schedule.procs.wire.scaled(rtprof_runtime::clock::ticks())))
            }
        };
        put_clock(out, number, self.begin, snapshot);
        self.schedule.procs.wire.end(self.end, outside, out);
    }
}

/// Looks up the names of a generation, and appends its strings and stacks and its end. Returns how many addresses have
/// no name because their file was not read in time.
fn put_names(
    out: &mut Vec<u8>,
    (version, number, begin): (Version, u64, u64),
    names: &mut Names<definitions::Tables>,
    tables: &dyn Tables,
    view: View,
) -> u64 {
    let unnamed = schedule::define(names, tables, view);
    names.definitions.close(out, number, begin);
    if version == Version::Go126 {
        out.push(EventType::EndOfGeneration as u8);
    }
    unnamed
}
