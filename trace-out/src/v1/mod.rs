//! The first trace format, "go 1.19 trace", which all of Go's tools since 2019 read.
//!
//! Strings and stacks are defined before they are used, but stacks of code only at the end of the trace, because their
//! symbolization takes tens of megabytes while it is in progress. In the tests of this repository every event is
//! checked as it is made (`crate::self_check`).

mod batches;
mod collector;
mod event;
mod wire;

use rtprof_symbols::view::View;
use rtprof_tracer::generation::{Generation, Tables};

use super::order::Order;
use super::schedule::{self, OUTSIDE, Schedule, Writing};
use crate::encode::{Clock, Counts, Encode};
use batches::Batches;
use event::NO_PROC;

const GIGAHERTZ: u64 = 1_000_000_000;

/// Encoder of the first trace format.
///
/// Memory: proportional to the live goroutines and lanes, plus some bytes for each distinct string and stack.
pub(crate) struct V1 {
    order: Order,
    schedule: Schedule<Batches>,
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
            schedule: Schedule::new(start, Batches::new(shift)),
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
        let procs = &mut self.schedule.procs;
        procs.on_wire(OUTSIDE, |wire, outside| wire.put_gomaxprocs(outside, self.start, self.procs));
        batches::close(procs, out);
    }

    fn generation(&mut self, generation: &Generation<'_>, tables: &dyn Tables, out: &mut Vec<u8>) {
        // Only the last generation shows calls in progress.
        self.schedule.forget_open_calls();
        let mut writing = Writing::new(&mut self.schedule, tables, generation, self.view);
        self.order.generation(generation, &mut writing);
        self.write(out);
    }

    fn end_generation(&mut self, _tables: &dyn Tables, _out: &mut Vec<u8>) {}

    fn end(&mut self, tick: u64, tables: &dyn Tables, out: &mut Vec<u8>) {
        self.schedule.finish(tick);
        self.unnamed_addresses = schedule::define(&mut self.schedule.names, tables, self.view);
        self.write(out);
    }

    fn counts(&self) -> Counts {
        Counts {
            events: self.schedule.procs.wire.events,
            order: self.order.counts(),
            unmatched: self.schedule.unmatched,
            unnamed_addresses: self.unnamed_addresses,
        }
    }
}

impl V1 {
    /// Writes definitions first, so that readers of a part have the names used in it.
    fn write(&mut self, out: &mut Vec<u8>) {
        let definitions = &mut self.schedule.names.definitions.0;
        if !definitions.is_empty() {
            wire::put_batch(out, NO_PROC, self.start);
            out.append(definitions);
        }
        batches::close(&mut self.schedule.procs, out);
    }
}

#[cfg(test)]
mod tests;
