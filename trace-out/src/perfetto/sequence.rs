//! Sequences of packets, in the order of time.
//!
//! A packet has the time since the packet before it in its sequence, and belongs to the sequence's present track unless
//! it names another one. So the events of each P are a sequence: nearly all belong to the track of its thread, or of
//! the task that it polls.

use super::definitions::{Tables, Used};
use super::event::{PACKET, TrackEvent, put_packet};
use super::proto;

/// After so many events in a row on another track that becomes the sequence's own, which takes about as many bytes as
/// naming it in five events.
const SWITCH: u32 = 8;

/// The bytes of a sequence with few packets, and the most by which it grows at a time.
const ROOM: usize = 512;
const MOST_ROOM: usize = 4 << 20;

/// The most bytes that a sequence keeps for the next generation: there may be thousands of sequences.
const KEPT: usize = 64 << 10;

/// The packets of a sequence in this generation.
#[derive(Default)]
pub(super) struct Sequence {
    packets: Vec<u8>,
    /// The bytes of `packets` that are packets; the rest is room for more.
    len: usize,
    /// The times of the first packet and of the last one.
    first: u64,
    last: u64,
    /// The track of packets that name none: at first, and now.
    first_track: u64,
    track: u64,
    /// Another track, and the number of packets in a row that belong to it.
    other: (u64, u32),
    pub(super) used: Used,
}

impl Sequence {
    /// Begins a generation. Its packets are not before the last one of an earlier generation.
    pub(super) fn begin(&mut self) {
        let (packets, last) = (std::mem::take(&mut self.packets), self.last);
        *self = Self { packets, last, ..Self::default() };
    }

    /// Returns the time of the last packet.
    #[inline]
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Appends an event of a track, not before the last one.
    #[inline]
    pub(super) fn put(&mut self, id: u32, track: u64, time: u64, event: &TrackEvent) {
        let since = self.advance(time);
        if track != self.track {
            self.look_at(id, track);
        } else {
            self.other.1 = 0;
        }
        event.note(&mut self.used);
        let named = if track == self.track { 0 } else { track };
        if self.packets.len() - self.len < PACKET {
            self.packets.resize((self.packets.len() * 2).clamp(ROOM, self.packets.len() + MOST_ROOM), 0);
        }
        let room = self.packets[self.len..].first_chunk_mut().expect("there is room for a packet");
        self.len += put_packet(room, id, since, named, event);
    }

    /// Appends a packet that is no event.
    fn put_packet(&mut self, packet: &proto::TracePacket) {
        self.packets.truncate(self.len);
        proto::put(&mut self.packets, packet);
        self.len = self.packets.len();
    }

    /// Advances to the time of the next packet, or stays. Returns the time since the packet before.
    #[inline]
    fn advance(&mut self, time: u64) -> u64 {
        let time = time.max(self.last);
        if self.len == 0 {
            (self.first, self.last) = (time, time);
        }
        time - std::mem::replace(&mut self.last, time)
    }

    /// Makes another track the sequence's own, if its events come in a row.
    fn look_at(&mut self, id: u32, track: u64) {
        if self.len == 0 {
            (self.first_track, self.track) = (track, track);
            return;
        }
        self.other = (track, if self.other.0 == track { self.other.1 + 1 } else { 1 });
        if self.other.1 > SWITCH {
            (self.track, self.other) = (track, (0, 0));
            let packet = proto::TracePacket {
                trusted_packet_sequence_id: id,
                trace_packet_defaults: Some(defaults(track)),
                ..Default::default()
            };
            self.put_packet(&packet);
        }
    }

    /// Appends a sample.
    pub(super) fn put_sample(&mut self, id: u32, time: u64, sample: proto::PerfSample) {
        let since = self.advance(time);
        self.used.stacks.note(sample.callstack_iid);
        let packet = proto::TracePacket {
            trusted_packet_sequence_id: id,
            timestamp: Some(since),
            perf_sample: Some(sample),
            ..Default::default()
        };
        self.put_packet(&packet);
    }

    /// Moves the packets to the end of `out`, after what they use. `boot` is to be added to times, to make
    /// them times since boot.
    pub(super) fn close(&mut self, id: u32, boot: u64, tables: &Tables, program: &str, out: &mut Vec<u8>) {
        if self.len == 0 {
            return;
        }
        self.head(id).put(boot, &self.used, tables, program, out);
        out.extend_from_slice(&self.packets[..self.len]);
        self.clear();
    }

    /// Takes the packets, if there are any.
    pub(super) fn take(&mut self, id: u32) -> Option<Closed> {
        if self.len == 0 {
            return None;
        }
        let (packets, used) = (self.packets[..self.len].into(), std::mem::take(&mut self.used));
        let closed = Closed { head: self.head(id), packets, used };
        self.clear();
        Some(closed)
    }

    fn head(&self, id: u32) -> Head {
        Head { id, first: self.first, track: self.first_track }
    }

    fn clear(&mut self) {
        // What a burst took is not kept.
        if self.packets.len() > KEPT {
            self.packets = Vec::new();
        }
        self.len = 0;
    }
}

/// The packets of a sequence in a generation that is complete, without the texts and stacks that they use.
pub(super) struct Closed {
    head: Head,
    packets: Box<[u8]>,
    used: Used,
}

impl Closed {
    /// Appends the packets, after what they use. `boot` is to be added to times, to make them times since boot.
    pub(super) fn put(&self, boot: u64, tables: &Tables, program: &str, out: &mut Vec<u8>) {
        self.head.put(boot, &self.used, tables, program, out);
        out.extend_from_slice(&self.packets);
    }

    /// Returns the memory that it takes.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.packets.len() + self.used.memory()
    }
}

/// What precedes the packets of a sequence.
struct Head {
    id: u32,
    /// The time of the first one.
    first: u64,
    /// The track of the first one.
    track: u64,
}

impl Head {
    fn put(&self, boot: u64, used: &Used, tables: &Tables, program: &str, out: &mut Vec<u8>) {
        let timestamp = boot.wrapping_add(self.first);
        let clock = |clock_id, is_incremental| proto::Clock { clock_id, timestamp, is_incremental };
        let packet = proto::TracePacket {
            trusted_packet_sequence_id: self.id,
            sequence_flags: proto::INCREMENTAL_STATE_CLEARED,
            clock_snapshot: Some(proto::ClockSnapshot {
                clocks: vec![
                    clock(proto::clock_id::BOOTTIME, false),
                    clock(proto::clock_id::INCREMENTAL, true),
                ],
            }),
            trace_packet_defaults: Some(defaults(self.track)),
            interned_data: Some(tables.interned(used, program)),
            ..Default::default()
        };
        proto::put(out, &packet);
    }
}

fn defaults(track: u64) -> proto::TracePacketDefaults {
    proto::TracePacketDefaults {
        timestamp_clock_id: proto::clock_id::INCREMENTAL,
        track_event_defaults: Some(proto::TrackEventDefaults { track_uuid: track }),
    }
}
