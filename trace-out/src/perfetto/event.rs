//! Events of tracks, as `TrackEvent` messages in `TracePacket` messages.
//!
//! These are encoded byte by byte, because there may be millions of them: lengths are below 128 and take one byte, so
//! that nothing is measured before it is written.

use super::definitions::Used;

/// The room for a packet. The longest one takes less.
pub(super) const PACKET: usize = 128;

/// An event of a track, without the track. Ids that are 0 are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TrackEvent {
    pub(super) of: Type,
    pub(super) name: u64,
    pub(super) category: u64,
    pub(super) stack: u64,
    /// The arrow that begins here.
    pub(super) flow: u64,
    /// The arrow that ends here.
    pub(super) flow_end: u64,
    pub(super) value: Value,
}

/// `TrackEvent.Type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Type {
    SliceBegin = 1,
    SliceEnd = 2,
    #[default]
    Instant = 3,
    Counter = 4,
}

/// What else an event says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Value {
    #[default]
    None,
    /// The value of a counter.
    Counter(u64),
    /// A named number, by the id of the name.
    Number(u64, u64),
    /// A named text, by the ids of both.
    Text(u64, u64),
}

/// The keys of fields: the number, shifted by three bits, and the kind of value.
mod key {
    /// `Trace.packet`.
    pub(super) const PACKET: u8 = 1 << 3 | 2;
    /// `TracePacket.timestamp`.
    pub(super) const TIMESTAMP: u8 = 8 << 3;
    /// `TracePacket.trusted_packet_sequence_id`.
    pub(super) const SEQUENCE: u8 = 10 << 3;
    /// `TracePacket.track_event`.
    pub(super) const TRACK_EVENT: u8 = 11 << 3 | 2;
    /// `TrackEvent.category_iids`.
    pub(super) const CATEGORY: u8 = 3 << 3;
    /// `TrackEvent.debug_annotations`.
    pub(super) const ANNOTATION: u8 = 4 << 3 | 2;
    /// `TrackEvent.type`.
    pub(super) const TYPE: u8 = 9 << 3;
    /// `TrackEvent.name_iid`.
    pub(super) const NAME: u8 = 10 << 3;
    /// `TrackEvent.track_uuid`.
    pub(super) const TRACK: u8 = 11 << 3;
    /// `TrackEvent.counter_value`.
    pub(super) const COUNTER: u64 = 30 << 3;
    /// `TrackEvent.flow_ids`, a fixed number of eight bytes.
    pub(super) const FLOW: u64 = 47 << 3 | 1;
    /// `TrackEvent.terminating_flow_ids`, a fixed number of eight bytes.
    pub(super) const FLOW_END: u64 = 48 << 3 | 1;
    /// `TrackEvent.callstack_iid`.
    pub(super) const STACK: u64 = 56 << 3;
    /// `DebugAnnotation.name_iid`.
    pub(super) const ANNOTATION_NAME: u8 = 1 << 3;
    /// `DebugAnnotation.uint_value`.
    pub(super) const ANNOTATION_NUMBER: u64 = 3 << 3;
    /// `DebugAnnotation.string_value_iid`.
    pub(super) const ANNOTATION_TEXT: u64 = 17 << 3;
}

impl TrackEvent {
    /// The beginning of a slice.
    #[inline]
    pub(super) fn begin(name: u64, category: u64) -> Self {
        Self { of: Type::SliceBegin, name, category, ..Self::default() }
    }

    /// The end of the innermost slice.
    #[inline]
    pub(super) fn end() -> Self {
        Self { of: Type::SliceEnd, ..Self::default() }
    }

    /// A moment.
    #[inline]
    pub(super) fn instant(name: u64, category: u64) -> Self {
        Self { name, category, ..Self::default() }
    }

    /// The value of a counter from now on. The format's values are signed.
    pub(super) fn counter(value: u64) -> Self {
        Self { of: Type::Counter, value: Value::Counter(value.min(i64::MAX as u64)), ..Self::default() }
    }

    /// Notes the ids that it uses.
    #[inline]
    pub(super) fn note(&self, used: &mut Used) {
        used.names.note(self.name);
        used.categories.note(self.category);
        used.stacks.note(self.stack);
        match self.value {
            Value::None | Value::Counter(_) => {}
            Value::Number(name, _) => used.annotations.note(name),
            Value::Text(name, text) => {
                used.annotations.note(name);
                used.values.note(text);
            }
        }
    }

    #[inline]
    fn write(&self, out: &mut Writer<'_>) {
        out.put(key::TYPE);
        out.put(self.of as u8);
        if self.category != 0 {
            out.put(key::CATEGORY);
            out.number(self.category);
        }
        if self.name != 0 {
            out.put(key::NAME);
            out.number(self.name);
        }
        if self.flow != 0 {
            out.number(key::FLOW);
            out.fixed(self.flow);
        }
        if self.flow_end != 0 {
            out.number(key::FLOW_END);
            out.fixed(self.flow_end);
        }
        if self.stack != 0 {
            out.number(key::STACK);
            out.number(self.stack);
        }
        match self.value {
            Value::None => {}
            Value::Counter(value) => {
                out.number(key::COUNTER);
                out.number(value);
            }
            Value::Number(name, value) => out.annotation(name, key::ANNOTATION_NUMBER, value),
            Value::Text(name, text) => out.annotation(name, key::ANNOTATION_TEXT, text),
        }
    }
}

/// Writes a packet of a sequence to `out`, `since` nanoseconds after the packet before, and returns its length. `track`
/// is 0 for the default.
#[inline]
pub(super) fn put_packet(
    out: &mut [u8; PACKET],
    sequence: u32,
    since: u64,
    track: u64,
    event: &TrackEvent,
) -> usize {
    let mut out = Writer { out, at: 0 };
    out.put(key::PACKET);
    out.measured(|out| {
        out.put(key::TIMESTAMP);
        out.number(since);
        out.put(key::SEQUENCE);
        out.number(sequence.into());
        out.put(key::TRACK_EVENT);
        out.measured(|out| {
            event.write(out);
            if track != 0 {
                out.put(key::TRACK);
                out.number(track);
            }
        });
    });
    out.at
}

/// Writes at a position that advances.
struct Writer<'a> {
    out: &'a mut [u8; PACKET],
    at: usize,
}

impl Writer<'_> {
    #[inline]
    fn put(&mut self, byte: u8) {
        // The longest packet fits, as a test checks; without the mask every byte would be compared with the end.
        self.out[self.at % PACKET] = byte;
        self.at += 1;
    }

    #[inline]
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put(value as u8 | 0x80);
            value >>= 7;
        }
        self.put(value as u8);
    }

    #[inline]
    fn fixed(&mut self, value: u64) {
        if let Some(room) = self.out[self.at % PACKET..].first_chunk_mut() {
            *room = value.to_le_bytes();
        }
        self.at += 8;
    }

    /// Writes fields and, before them, their length in one byte.
    #[inline]
    fn measured(&mut self, fields: impl FnOnce(&mut Self)) {
        let length = self.at;
        self.at += 1;
        fields(self);
        self.out[length] = (self.at - length - 1) as u8;
    }

    /// Writes a `DebugAnnotation`.
    fn annotation(&mut self, name: u64, key: u64, value: u64) {
        self.put(key::ANNOTATION);
        self.measured(|out| {
            out.put(key::ANNOTATION_NAME);
            out.number(name);
            out.number(key);
            out.number(value);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_the_bytes_of_the_format() {
        let event = TrackEvent { stack: 5, flow_end: 7, ..TrackEvent::begin(300, 2) };
        let mut out = [0; PACKET];
        let len = put_packet(&mut out, 3, 200, 9, &event);
        let head = [0x0a, 29, 0x40, 200, 1, 0x50, 3, 0x5a, 22];
        let event = [0x48, 1, 0x18, 2, 0x50, 0xac, 2, 0x81, 3, 7, 0, 0, 0, 0, 0, 0, 0, 0xc0, 3, 5];
        assert_eq!(out[..len], [&head[..], &event, &[0x58, 9]].concat());
    }

    #[test]
    fn the_longest_packet_fits() {
        let (most, id) = (u64::MAX, u32::MAX.into());
        for value in [Value::Number(5, most), Value::Text(5, id)] {
            let longest =
                TrackEvent { stack: id, flow: most, flow_end: most, value, ..TrackEvent::instant(id, id) };
            let len = put_packet(&mut [0; PACKET], u32::MAX, most, most, &longest);
            assert!(len < PACKET, "{len}");
        }
    }
}
