//! The first trace format, "go 1.19 trace", which all of Go's tools since 2019 read.
//!
//! Readers track the state of each goroutine and of each P event by event. `Events` keeps the states as a reader sees
//! them, and changes them by events that readers accept; `Writing` turns records into such events; `Procs` has the Ps
//! with the events of each; `Names` the strings and stacks. In the tests of this repository every event is checked as
//! it is made (`crate::self_check`).

mod called;
mod calls;
mod event;
mod events;
mod finish;
mod goroutines;
mod id_set;
mod late_names;
mod names;
mod polls;
mod procs;
mod stacks;
mod wire;
mod writing;

use rtprof_tracer::generation::{Generation, Tables};

use event::{EventType, NO_PROC};
use events::Events;
pub(crate) use events::Unmatched;
use procs::OUTSIDE;
use writing::Writing;

use super::order::Order;
use super::{Clock, Counts, Encode};
use rtprof_symbols::view::View;

const GIGAHERTZ: u64 = 1_000_000_000;

/// Encoder of the first trace format.
///
/// Memory: proportional to the live goroutines and lanes, plus some bytes for each distinct string and stack.
pub(crate) struct V1 {
    order: Order,
    events: Events,
    ticks_per_second: u64,
    /// The tick of the beginning, in the file's units.
    start: u64,
    procs: u32,
    unnamed_addresses: u64,
    view: View,
}

impl V1 {
    /// `procs` is the number of goroutines that can run at once. Go: `GOMAXPROCS`.
    pub(crate) fn new(clock: Clock, procs: u32, view: View) -> Self {
        // A tick of the file is half a nanosecond to one: a finer tick adds no information, and each bit costs bytes.
        let shift = (clock.ticks_per_second / GIGAHERTZ).max(1).ilog2();
        // Readers interpret tick 0 as "never".
        let start = (clock.start >> shift).max(1);
        Self {
            order: Order::new(),
            events: Events::new(start, shift),
            ticks_per_second: clock.ticks_per_second >> shift,
            start,
            procs,
            unnamed_addresses: 0,
            view,
        }
    }
}

impl Encode for V1 {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(wire::HEADER);
        // The frequency comes first, so that a truncated trace can be read; the number of Ps comes before all other
        // events, because readers take earlier ones for older than the trace.
        wire::put_batch(out, NO_PROC, self.start);
        wire::put_frequency(out, self.ticks_per_second);
        self.events.procs.put(OUTSIDE, self.start, EventType::Gomaxprocs, [self.procs.into(), 0]);
        self.events.procs.close(out);
    }

    fn generation(&mut self, generation: &Generation<'_>, tables: &dyn Tables, out: &mut Vec<u8>) {
        let (events, view) = (&mut self.events, self.view);
        let mut writing = Writing { events, tables, generation, view, given: None };
        self.order.generation(generation, &mut writing);
        self.write(out);
    }

    fn end(&mut self, tick: u64, tables: &dyn Tables, out: &mut Vec<u8>) {
        self.events.finish(tick);
        self.unnamed_addresses = stacks::define(&mut self.events.names, tables, self.view);
        self.write(out);
    }

    fn counts(&self) -> Counts {
        Counts {
            events: self.events.procs.events,
            order: self.order.counts(),
            unmatched: self.events.unmatched,
            unnamed_addresses: self.unnamed_addresses,
        }
    }
}

impl V1 {
    /// Writes definitions first, so that readers of a part have the names used in it.
    fn write(&mut self, out: &mut Vec<u8>) {
        let definitions = &mut self.events.names.definitions;
        if !definitions.is_empty() {
            wire::put_batch(out, NO_PROC, self.start);
            out.append(definitions);
        }
        self.events.procs.close(out);
    }
}

#[cfg(test)]
mod simulated_tests;
#[cfg(test)]
mod tests;
