//! Sequences of packets, in the order of time.
//!
//! A packet has the time since the packet before it in its sequence, and belongs to the sequence's present track unless
//! it names another one. So the events of each P are a sequence: nearly all belong to the track of its thread, or of
//! the task that it polls.
//!
//! Problem: a thread's wait may be ended by another one, whose P has the event. In a file that was cut between the
//! sequences of two Ps, the waits of the one would never end, and its later slices would lie inside them.
//! Scheme: the packets of all Ps are written in the order in which the events are read, causes before their effects.

use super::definitions::{Tables, Used};
use super::event::{PACKET, TrackEvent, put_packet};
use super::proto;

/// The sequence of tracks and of events that belong to no P.
pub(super) const SHARED: u32 = 1;

/// After so many events in a row on another track that becomes the sequence's own, which takes about as many bytes as
/// naming it in five events.
const SWITCH: u32 = 8;

/// The size of a block of packets.
const BLOCK: usize = 64 << 10;

/// Packets of one sequence, or of several, in this generation.
#[derive(Default)]
pub(super) struct Body {
    /// Blocks that are full. They stay where they are: a buffer that grows would be copied again and again.
    full: Vec<Vec<u8>>,
    /// The last block. Empty, or of at least [`BLOCK`] bytes.
    block: Vec<u8>,
    /// How many of its bytes are packets; the rest is room for more.
    len: usize,
}

impl Body {
    /// Returns the room for an event.
    #[inline]
    fn room(&mut self) -> &mut [u8; PACKET] {
        if self.block.len() - self.len < PACKET {
            self.begin_block();
        }
        self.block[self.len..].first_chunk_mut().expect("there is room for a packet")
    }

    #[cold]
    fn begin_block(&mut self) {
        let mut block = std::mem::replace(&mut self.block, vec![0; BLOCK]);
        block.truncate(std::mem::take(&mut self.len));
        self.full.push(block);
    }

    /// Appends a packet that is no event.
    fn put(&mut self, packet: &proto::TracePacket) {
        self.block.truncate(self.len);
        proto::put(&mut self.block, packet);
        self.len = self.block.len();
        self.block.resize(self.len.max(BLOCK), 0);
    }

    /// Moves the packets to the end of `out`.
    pub(super) fn close(&mut self, out: &mut Vec<u8>) {
        let full: usize = self.full.iter().map(Vec::len).sum();
        out.reserve(full + self.len);
        for block in self.full.drain(..) {
            out.extend_from_slice(&block);
        }
        out.extend_from_slice(&self.block[..std::mem::take(&mut self.len)]);
    }

    fn take(&mut self) -> Box<[u8]> {
        let mut packets = Vec::new();
        self.close(&mut packets);
        packets.into()
    }
}

/// What a reader knows of a sequence in this generation.
#[derive(Default)]
pub(super) struct Sequence {
    /// Whether it has a packet.
    is_begun: bool,
    /// The times of the first packet and of the last one.
    first: u64,
    last: u64,
    /// The track of packets that name none: at first, and now.
    first_track: u64,
    track: u64,
    /// Another track, and the number of packets in a row that belong to it.
    other: (u64, u32),
    used: Used,
}

impl Sequence {
    /// Begins a generation. Its packets are not before the last one of an earlier generation.
    pub(super) fn begin(&mut self) {
        *self = Self { last: self.last, ..Self::default() };
    }

    /// Returns the time of the last packet.
    #[inline]
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Appends an event of a track to the packets, not before the last one of the sequence.
    #[inline]
    pub(super) fn put(&mut self, body: &mut Body, id: u32, track: u64, time: u64, event: &TrackEvent) {
        let is_first = !self.is_begun;
        let since = self.advance(time);
        if is_first {
            (self.first_track, self.track) = (track, track);
        } else if track != self.track {
            self.look_at(body, id, track);
        } else {
            self.other.1 = 0;
        }
        event.note(&mut self.used);
        let named = if track == self.track { 0 } else { track };
        body.len += put_packet(body.room(), id, since, named, event);
    }

    /// Advances to the time of the next packet, or stays. Returns the time since the packet before.
    #[inline]
    fn advance(&mut self, time: u64) -> u64 {
        let time = time.max(self.last);
        if !self.is_begun {
            (self.is_begun, self.first, self.last) = (true, time, time);
        }
        time - std::mem::replace(&mut self.last, time)
    }

    /// Makes another track the sequence's own, if its events come in a row.
    fn look_at(&mut self, body: &mut Body, id: u32, track: u64) {
        self.other = (track, if self.other.0 == track { self.other.1 + 1 } else { 1 });
        if self.other.1 > SWITCH {
            (self.track, self.other) = (track, (0, 0));
            let packet = proto::TracePacket {
                trusted_packet_sequence_id: id,
                trace_packet_defaults: Some(defaults(track)),
                ..Default::default()
            };
            body.put(&packet);
        }
    }

    /// Appends a sample.
    pub(super) fn put_sample(&mut self, body: &mut Body, id: u32, time: u64, sample: proto::PerfSample) {
        let since = self.advance(time);
        self.used.stacks.note(sample.callstack_iid);
        let packet = proto::TracePacket {
            trusted_packet_sequence_id: id,
            timestamp: Some(since),
            perf_sample: Some(sample),
            ..Default::default()
        };
        body.put(&packet);
    }

    /// Returns what precedes its packets, if it has any.
    pub(super) fn take_head(&mut self, id: u32) -> Option<Head> {
        let used = std::mem::take(&mut self.used);
        std::mem::take(&mut self.is_begun).then_some(Head {
            id,
            first: self.first,
            track: self.first_track,
            used,
        })
    }
}

/// A sequence whose packets are not among those of others.
#[derive(Default)]
pub(super) struct Apart {
    pub(super) sequence: Sequence,
    pub(super) body: Body,
}

impl Apart {
    /// Moves the packets to the end of `out`, after what they use. `boot` is to be added to times, to make
    /// them times since boot.
    pub(super) fn close(&mut self, id: u32, boot: u64, tables: &Tables, program: &str, out: &mut Vec<u8>) {
        if let Some(head) = self.sequence.take_head(id) {
            head.put(boot, tables, program, out);
            self.body.close(out);
        }
    }

    /// Takes the packets.
    pub(super) fn take(&mut self, id: u32) -> Closed {
        Closed::new(self.sequence.take_head(id).into_iter().collect(), &mut self.body)
    }
}

/// The packets of sequences in a generation that is complete, without the texts and stacks that they use.
pub(super) struct Closed {
    heads: Vec<Head>,
    packets: Box<[u8]>,
}

impl Closed {
    pub(super) fn new(heads: Vec<Head>, body: &mut Body) -> Self {
        Self { heads, packets: body.take() }
    }

    /// Appends the packets, after what they use. `boot` is to be added to times, to make them times since boot.
    pub(super) fn put(&self, boot: u64, tables: &Tables, program: &str, out: &mut Vec<u8>) {
        self.heads.iter().for_each(|head| head.put(boot, tables, program, out));
        out.extend_from_slice(&self.packets);
    }

    /// Returns the memory that it takes.
    pub(super) fn memory(&self) -> usize {
        let heads: usize = self.heads.iter().map(|head| size_of::<Head>() + head.used.memory()).sum();
        size_of::<Self>() + self.packets.len() + heads
    }
}

/// What precedes the packets of a sequence.
pub(super) struct Head {
    id: u32,
    /// The time of the first one.
    first: u64,
    /// The track of the first one.
    track: u64,
    /// The texts and stacks that they use.
    used: Used,
}

impl Head {
    pub(super) fn put(&self, boot: u64, tables: &Tables, program: &str, out: &mut Vec<u8>) {
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
            interned_data: Some(tables.interned(&self.used, program)),
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
