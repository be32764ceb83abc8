//! Perfetto's format, a sequence of `TracePacket` messages, which ui.perfetto.dev and trace_processor read.
//!
//! A file consists of generations, each complete in itself but for the descriptions of tracks. Within a generation each
//! P has a sequence of packets, whose texts and stacks come first. Readers sort all packets by time. The packets
//! of all Ps are in an order in which causes precede effects, so that a file which was cut shows all that is in it
//! rightly.

mod collector;
mod definitions;
mod event;
mod levels;
mod open_tasks;
mod openings;
mod packets;
mod proto;
mod sequence;
#[cfg(test)]
mod tests;
mod track;
mod tracks;
mod unnamed;
mod unordered;
mod user_tasks;
mod wire;

use std::time::SystemTime;

use rtprof_runtime::clock;
use rtprof_runtime::process::own_files;
use rtprof_symbols::view::View;
use rtprof_tracer::generation::{Generation, Tables};

use self::sequence::SHARED;
use super::order::Order;
use super::schedule::{self, OUTSIDE, Schedule, Unmatched, Wire, Writing};
use crate::encode::{Clock, Counts, Encode};
use openings::Openings;
use packets::{Packets, sequence};
use tracks::Descriptions;
pub(crate) use unnamed::{GenerationFile, UnnamedGeneration};

/// Encoder of Perfetto's format.
///
/// Memory: proportional to the live goroutines, lanes and user tasks, to the strings, stacks and events of one
/// generation, and to the places where tasks were started.
pub(crate) struct Perfetto {
    order: Order,
    schedule: Schedule<Packets>,
    descriptions: Descriptions,
    program: String,
    unnamed_addresses: u64,
    view: View,
    /// What was open where the generation began, if generations are kept.
    openings: Openings,
}

impl Perfetto {
    pub(crate) fn new(clock: Clock, view: View) -> Self {
        let packets = Packets::new(clock.ticks_per_second);
        let start = packets.in_file(clock.start);
        Self {
            order: Order::new(),
            schedule: Schedule::new(start, packets),
            descriptions: Descriptions::default(),
            program: own_files::program(),
            unnamed_addresses: 0,
            view,
            openings: Openings::default(),
        }
    }

    /// Ends a generation whose names are looked up when it is written. Instead of
    /// [`end_generation`](Encode::end_generation), for all generations.
    pub(crate) fn end_part(&mut self, tables: &dyn Tables) -> UnnamedGeneration {
        let procs = &mut self.schedule.procs;
        procs.wire.settle();
        let mut heads = Vec::new();
        procs.each_lane(|_, index, proc, _| {
            if index != OUTSIDE {
                heads.extend(proc.lane.sequence.take_head(sequence(index)));
            }
        });
        let packets = procs.wire.take(heads).into();
        let mut openings = std::mem::take(&mut self.openings);
        let regions = self.schedule.open_regions(tables);
        let Schedule { procs, names, .. } = &mut self.schedule;
        self.openings = Openings::of(&mut procs.wire, &openings, &names.definitions, &regions);
        openings.keep_listed(&mut procs.wire.tracks);
        UnnamedGeneration {
            boot: procs.wire.boot_now(),
            begin: procs.wire.begin.saturating_sub(1),
            openings,
            tracks: procs.wire.tracks.take(),
            packets,
            names: names.take_part(),
        }
    }
}

impl Encode for Perfetto {
    fn begin(&mut self, out: &mut Vec<u8>) {
        put_clocks(out);
        self.descriptions.begin(&self.program, out);
    }

    fn generation(&mut self, generation: &Generation<'_>, tables: &dyn Tables, _out: &mut Vec<u8>) {
        let begin = self.schedule.in_file(generation.begin);
        let end = self.schedule.in_file(generation.end);
        self.schedule.names.forget_ids();
        let procs = &mut self.schedule.procs;
        procs.wire.begin(begin, end);
        procs.each_lane(|_, _, proc, _| proc.lane.begin());
        self.schedule.begin_part(begin, tables);
        let mut writing = Writing::new(&mut self.schedule, tables, generation, self.view);
        self.order.generation(generation, &mut writing);
        self.schedule.end_part(end);
        self.schedule.procs.wire.end(end);
        self.schedule.procs.each_lane(|packets, _, proc, _| packets.describe_owner(&mut proc.lane));
    }

    fn end_generation(&mut self, tables: &dyn Tables, out: &mut Vec<u8>) {
        let unnamed = schedule::define(&mut self.schedule.names, tables, self.view);
        self.unnamed_addresses = self.unnamed_addresses.max(unnamed);
        let Self { schedule: Schedule { procs, names, .. }, descriptions, program, .. } = self;
        procs.wire.settle();
        descriptions.put(&procs.wire.tracks.listed, &names.definitions, out);
        procs.wire.put_shared(&names.definitions, program, out);
        procs.each_lane(|packets, index, proc, _| {
            if index != OUTSIDE
                && let Some(head) = proc.lane.sequence.take_head(sequence(index))
            {
                head.put(packets.boot, &names.definitions, program, out);
            }
        });
        procs.wire.body.close(out);
        procs.wire.put_rest(&names.definitions, program, out);
    }

    /// Every generation is complete.
    fn end(&mut self, _tick: u64, _tables: &dyn Tables, _out: &mut Vec<u8>) {}

    fn counts(&self) -> Counts {
        let Packets { events, ref user_tasks, .. } = self.schedule.procs.wire;
        let Unmatched { region_ends, others } = self.schedule.unmatched;
        Counts {
            events,
            order: self.order.counts(),
            unmatched: Unmatched { region_ends, others: others + user_tasks.unmatched },
            unnamed_addresses: self.unnamed_addresses,
        }
    }
}

/// Appends the present moment on the system's clocks, so that readers know the date, and can merge traces of the
/// system.
fn put_clocks(out: &mut Vec<u8>) {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let clock = |clock_id, timestamp| proto::Clock { clock_id, timestamp, is_incremental: false };
    let clocks = vec![
        clock(proto::clock_id::BOOTTIME, clock::boot_nanos()),
        clock(proto::clock_id::MONOTONIC, clock::monotonic_nanos()),
        clock(proto::clock_id::REALTIME, since_1970.as_nanos() as u64),
    ];
    let packet = proto::TracePacket {
        trusted_packet_sequence_id: SHARED,
        clock_snapshot: Some(proto::ClockSnapshot { clocks }),
        ..Default::default()
    };
    proto::put(out, &packet);
}
